//! Serialisation of whole schemes to and from any serde format.

use std::path::Path;

use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use crate::blades::FluencySection;
use crate::overlay::Blades;
use crate::source::Source;
use crate::spec::table_of;
use crate::{Base, FallbackSpec, NamedWeights, SchemeError, SchemeSpec, SearchSpec, SelectorSpec, WeightingSpec, parameters};

/// Named parts, in order.
struct Named<I>(I);

impl<K: Serialize, V: Serialize, I: Iterator<Item = (K, V)> + Clone> Serialize for Named<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}

/// The `[selector]` section with its gates in order.
struct SelectorSection<'s>(&'s SelectorSpec);

impl Serialize for SelectorSection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (field, value) in table_of(self.0) {
            map.serialize_entry(&field, &value)?;
        }
        if !self.0.gates.is_empty() {
            map.serialize_entry("gates", &Named(self.0.gates.iter().map(|gate| (gate.name.as_str(), table_of(gate)))))?;
        }
        map.end()
    }
}

impl Serialize for SchemeSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("about", &self.about)?;
        map.serialize_entry("base", &self.base)?;
        if let Some(weights) = &self.weights {
            map.serialize_entry("weights", weights)?;
        }
        map.serialize_entry("proposal", &self.proposal)?;
        map.serialize_entry("granularity", &self.granularity)?;
        // Default sections are omitted, so that schemes keep the digest they had before these
        // sections existed.
        if self.search != SearchSpec::default() {
            map.serialize_entry("search", &self.search)?;
        }
        if self.fallback != FallbackSpec::default() {
            map.serialize_entry("fallback", &self.fallback)?;
        }
        let weighed = self.template.iter().chain(&self.blades).map(|blade| (blade.name.as_str(), table_of(blade)));
        let fluency = self.fluency.iter().map(|name| (name.as_str(), table_of(&FluencySection::Fluency)));
        map.serialize_entry("blades", &Named(weighed.chain(fluency)))?;
        if self.weighting != WeightingSpec::default() {
            map.serialize_entry("weighting", &self.weighting)?;
        }
        map.serialize_entry("normalizer", &self.normalizer)?;
        map.serialize_entry("aggregator", &self.aggregator)?;
        map.serialize_entry("selector", &SelectorSection(&self.selector))?;
        map.end()
    }
}

impl SchemeSpec {
    /// Parses a whole scheme from TOML, as serialisation writes it. Missing sections and fields
    /// take the values of the published scheme at its [`Base`].
    ///
    /// # Errors
    /// As [`overlay`](Self::overlay) and [`check`](Self::check).
    pub fn from_toml(name: &str, text: &str) -> Result<Self, SchemeError> {
        let (source, table) = Source::parse(name, text, true)?;
        Self::of_table(&source, table)
    }

    fn of_table(source: &Source<'_>, mut table: Table) -> Result<Self, SchemeError> {
        let root = source.root();
        let base = table.remove("base").map_or_else(|| Ok(Base::default()), Base::deserialize);
        let base = base.map_err(|error| root.under("base", Table::new()).fault(error.message()))?;
        let mut spec = Self::reference(base);
        if let Some(weights) = table.remove("weights") {
            let section = root.under("weights", Table::new());
            let Value::Table(weights) = weights else { return Err(section.fault("expected weights by name")) };
            let number = |(name, value): (String, Value)| {
                let weight = parameters::number_of(&value).filter(|weight| weight.is_finite() && *weight >= 0.0);
                let weight = weight.ok_or_else(|| section.mistyped(&name, "a number that is not negative", &value))?;
                Ok::<_, SchemeError>((name, weight))
            };
            spec.weights = Some(section.entries(weights).into_iter().map(number).collect::<Result<NamedWeights, _>>()?);
        }
        spec.take(source, table, Path::new(""), Blades::Listed)?;
        spec.check()?;
        Ok(spec)
    }
}

/// As [`SchemeSpec::from_toml`], for any format. Formats with sorted maps lose the order of blades
/// and gates; JSON keeps it.
impl<'de> Deserialize<'de> for SchemeSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (source, table) = Source::deserialize("the scheme", deserializer)?;
        Self::of_table(&source, table).map_err(D::Error::custom)
    }
}
