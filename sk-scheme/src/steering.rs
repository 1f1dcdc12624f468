use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::spec::{TEMPLATE, table_of};
use crate::{Base, Convention, NamedWeights, Parameter, Preset, SchemeError, SchemeSpec};

/// A scheme by name or file with changes, as a command line, a plan or a request specifies it.
///
/// ```
/// use sk_scheme::Steering;
///
/// let set = vec!["proposal.candidates=3".parse().unwrap()];
/// let steering = Steering { scheme: Some("softmax-mu".into()), set, ..Steering::default() };
/// let spec = steering.spec(false)?;
/// assert_eq!(sk_scheme::Parameter::named("candidates").unwrap().get(&spec), Some(3.0));
/// # Ok::<(), sk_scheme::SchemeError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Steering {
    /// The weights of the blades; each blade may have only one.
    pub weights: Vec<NamedWeights>,
    /// The name of a shipped scheme, or a file. Defaults to the reference scheme.
    pub scheme: Option<PathBuf>,
    /// Fields that are set after the scheme, those of `blades.*` first, the others in this order.
    pub set: Vec<FieldEdit>,
    /// The operating point. Defaults to that of the convention.
    pub preset: Option<Preset>,
    /// The convention for what the paper leaves open.
    pub convention: Convention,
    /// Numbers that are set last, before the weights.
    pub numbers: Vec<(&'static Parameter, f64)>,
}

/// The temperature of the shipped drafter under the sound convention. The model has a thousandth of
/// the size of those with which the operating point was published. At temperature 1, unlikely
/// tokens make up most of its text.
const SHIPPED_DRAFT_TEMPERATURE: f64 = 0.75;

/// The number of candidates of the shipped drafter at the operating point `responsive`. More
/// candidates are needed, since fewer of its drafts are answers.
const SHIPPED_CANDIDATES: usize = 12;

impl Steering {
    /// Builds the scheme. Applies the preset under the convention, then the scheme or file, then
    /// single fields, then numbers, then weights.
    ///
    /// `shipped` says whether the shipped model drafts. Under the sound convention it has its own
    /// temperature and, at the operating point `responsive`, its own number of candidates.
    ///
    /// # Errors
    /// If the file cannot be read as a scheme, a number is out of range or does not apply to the
    /// scheme, or a blade has two weights.
    pub fn spec(&self, shipped: bool) -> Result<SchemeSpec, SchemeError> {
        let preset = self.preset.unwrap_or_else(|| Preset::of_convention(self.convention));
        let mut base = Base::new(self.convention, &preset.into());
        if shipped && self.convention == Convention::Sound {
            base.draft_temperature = SHIPPED_DRAFT_TEMPERATURE;
            if preset == Preset::Responsive {
                base.point.candidates = SHIPPED_CANDIDATES;
            }
        }
        let mut spec = SchemeSpec::reference(base);
        if let Some(path) = &self.scheme {
            spec.adopt(path)?;
        }
        FieldEdit::apply(&self.set, &mut spec, "--set")?;
        for (parameter, value) in &self.numbers {
            parameter.set(&mut spec, *value)?;
        }
        spec.check()?;
        spec.weights = self.weights()?;
        Ok(spec)
    }

    /// Rejects numbers that have no effect on a scheme whose blades are all seated.
    ///
    /// # Errors
    /// If β is given and no blade has one, or if α is given and there is no fluency blade.
    pub fn check_effect(&self, seated: &SchemeSpec) -> Result<(), SchemeError> {
        let is_given = |name: &str| self.numbers.iter().any(|(parameter, _)| parameter.name == name);
        let refuse = |slot, reason: &str| Err(SchemeError::Parameter { slot, reason: reason.to_owned() });
        if is_given("beta") && !seated.blades.iter().any(|blade| table_of(blade).contains_key("beta")) {
            return refuse("--beta", "no blade of the scheme has a β");
        }
        let is_set = self.set.iter().any(|edit| (edit.slot.as_str(), edit.field.as_str()) == ("aggregator", "alpha"));
        for (is_given, name) in [(is_given("alpha"), "--alpha"), (is_set, "--set aggregator.alpha")] {
            if is_given && seated.fluency.is_none() {
                return refuse(name, "the scheme has no blade of kind \"fluency\"");
            }
        }
        Ok(())
    }

    /// Returns the given weights; `None` if there are none.
    ///
    /// # Errors
    /// If a blade is given two weights.
    pub fn weights(&self) -> Result<Option<NamedWeights>, SchemeError> {
        NamedWeights::together(&self.weights).map_err(|reason| SchemeError::Parameter { slot: "--weights", reason })
    }

    /// Returns the steering of an arm of this scheme: another scheme and other fields, with the
    /// same candidates and weights.
    #[must_use]
    pub fn of_arm(&self, scheme: PathBuf, set: &[FieldEdit]) -> Self {
        let shared = self.set.iter().filter(|field| ["proposal", "granularity"].contains(&field.slot.as_str()));
        // The numbers that determine candidates, and β.
        let numbers =
            self.numbers.iter().filter(|(parameter, _)| ["proposal", "granularity", "blades"].contains(&parameter.section));
        Self {
            scheme: Some(scheme),
            set: shared.chain(set).cloned().collect(),
            numbers: numbers.copied().collect(),
            ..self.clone()
        }
    }
}

/// An assignment to one field of a scheme: `SLOT.FIELD=VALUE` or `blades.NAME.FIELD=VALUE`.
///
/// The value is parsed as TOML, or taken as a string if it is not TOML.
///
/// ```
/// use sk_scheme::FieldEdit;
///
/// let edit: FieldEdit = "selector.kind=softmax".parse().unwrap();
/// assert_eq!(edit.to_string(), "selector.kind=softmax");
/// assert!("selector=softmax".parse::<FieldEdit>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldEdit {
    slot: String,
    blade: Option<String>,
    field: String,
    value: String,
}

impl FieldEdit {
    /// Returns the blade whose field is set, or `*` for all.
    #[must_use]
    pub fn blade(&self) -> Option<&str> {
        self.blade.as_deref()
    }

    /// Applies edits to a scheme in this order, those of one section together and those of
    /// `blades.*` first. Errors prefix each edit with `name`.
    ///
    /// # Errors
    /// As for [`SchemeSpec::amend`]. Earlier sections are then already set.
    pub fn apply(fields: &[Self], spec: &mut SchemeSpec, name: &str) -> Result<(), SchemeError> {
        for fields in by_section(fields) {
            let names: Vec<String> = fields.iter().map(|field| format!("{name} {field}")).collect();
            let lines: String = fields.iter().map(|field| field.line()).collect();
            spec.amend(&names.join(" "), &(fields[0].header() + &lines))?;
        }
        Ok(())
    }

    /// Returns the header of its section in a scheme file.
    fn header(&self) -> String {
        let blade = self.blade.as_ref().map_or_else(String::new, |name| format!(".{}", toml::Value::String(name.clone())));
        format!("[{}{blade}]\n", self.slot)
    }

    /// Returns its line in that section.
    fn line(&self) -> String {
        // Text that is not a single TOML value is quoted as a string.
        let is_value = format!("value = {}", self.value).parse::<toml::Table>().is_ok_and(|table| table.len() == 1);
        let value = if is_value { self.value.clone() } else { toml::Value::String(self.value.clone()).to_string() };
        format!("{} = {value}\n", self.field)
    }
}

/// Groups edits by section, since the fields of a section may be valid only together. Of several
/// edits of one field, the last is kept.
fn by_section(all: &[FieldEdit]) -> Vec<Vec<&FieldEdit>> {
    let mut sections: Vec<Vec<&FieldEdit>> = Vec::new();
    for field in all {
        match sections.iter_mut().find(|fields| (&fields[0].slot, &fields[0].blade) == (&field.slot, &field.blade)) {
            None => sections.push(vec![field]),
            Some(fields) => {
                if let Some(earlier) = fields.iter_mut().find(|earlier| earlier.field == field.field) {
                    *earlier = field;
                } else {
                    fields.push(field);
                }
            }
        }
    }
    // A blade that gets a section is a copy of the template, whatever the order of the edits.
    sections.sort_by_key(|fields| fields[0].blade.as_deref() != Some(TEMPLATE));
    sections
}

impl fmt::Display for FieldEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blade = self.blade.as_ref().map_or_else(String::new, |name| format!(".{name}"));
        write!(f, "{}{blade}.{}={}", self.slot, self.field, self.value)
    }
}

impl FromStr for FieldEdit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_key = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let (key, value) = text.split_once('=').ok_or("expected SLOT.FIELD=VALUE, such as selector.top_k=50")?;
        let (slot, field) = key.trim().split_once('.').unwrap_or((key, ""));
        // The name of a blade may contain dots; the name of a field may not.
        let (blade, field) = match field.rsplit_once('.') {
            Some((blade, field)) if slot == "blades" => (Some(blade), field),
            _ => (None, field),
        };
        if !is_key(slot) || !is_key(field) || blade.is_some_and(str::is_empty) || (slot == "blades" && blade.is_none()) {
            let expected = "SLOT.FIELD=VALUE, such as selector.top_k=50, or blades.NAME.FIELD=VALUE";
            return Err(format!("`{key}` names no field: expected {expected}"));
        }
        let blade = blade.map(str::to_owned);
        Ok(Self { slot: slot.to_owned(), blade, field: field.to_owned(), value: value.trim().to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_set_with_or_without_quotes() {
        let toml = |text: &str| {
            let field: FieldEdit = text.parse().unwrap();
            field.header() + &field.line()
        };
        assert_eq!(toml("selector.top_k=50"), "[selector]\ntop_k = 50\n");
        assert_eq!(toml("proposal.kind=drafter"), "[proposal]\nkind = \"drafter\"\n");
        assert_eq!(toml("proposal.kind=\"drafter\""), "[proposal]\nkind = \"drafter\"\n");
        assert_eq!(toml("aggregator.p = inf"), "[aggregator]\np = inf\n");
        assert_eq!(toml("blades.*.guided=0.5"), "[blades.\"*\"]\nguided = 0.5\n");
        assert_eq!(toml("blades.a.b.dispersion=zero"), "[blades.\"a.b\"]\ndispersion = \"zero\"\n");
        // A value sets no other field and no other section.
        for more in ["beta = 1", "[blades.x]\nadapter = \"/etc\""] {
            let table: toml::Table = toml(&format!("selector.top_k=50\n{more}")).parse().unwrap();
            assert_eq!(table["selector"]["top_k"].as_str(), Some(format!("50\n{more}").as_str()));
            assert!(table.len() == 1 && table["selector"].as_table().unwrap().len() == 1, "{table}");
        }
        assert_eq!("blades.x.beta=1".parse::<FieldEdit>().unwrap().to_string(), "blades.x.beta=1");
        for text in ["selector", "top_k=50", "selector.=1", "a b.c=1", "blades.x=1", "blades..x=1", "selector.x.y=1", ".x=1"] {
            assert!(text.parse::<FieldEdit>().is_err(), "{text}");
        }
    }
}
