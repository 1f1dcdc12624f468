use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{BladeSpec, Convention, NamedWeights, Parameter, Preset, SchemeError, SchemeSpec};

/// A scheme by name or file, and what is changed of it: what a command line, a plan or a request
/// says.
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
    /// Weights of the blades, of which no blade may have two.
    pub weights: Vec<NamedWeights>,
    /// The name of a scheme that ships, or a file; the reference scheme unless given.
    pub scheme: Option<PathBuf>,
    /// Fields that are set after the scheme, in this order.
    pub set: Vec<FieldEdit>,
    /// The operating point; that of the convention unless given.
    pub preset: Option<Preset>,
    /// What fills in where the paper is silent.
    pub convention: Convention,
    /// Numbers that are set last.
    pub numbers: Vec<(&'static Parameter, f64)>,
}

/// What the model that ships drafts at under the sound convention. It is a thousandth of the size
/// of those that the operating point was published with, and at temperature 1 its tail of unlikely
/// tokens is most of what it writes.
const SHIPPED_DRAFT_TEMPERATURE: f64 = 0.75;

/// How many candidates it drafts without a preset: more of what it writes is no answer.
const SHIPPED_CANDIDATES: usize = 12;

impl Steering {
    /// The scheme: the preset under the convention, then the scheme or file, then single fields,
    /// then numbers, then weights.
    ///
    /// `shipped` says that the model that ships drafts, which has a temperature and, without a
    /// preset, a number of candidates of its own under the sound convention.
    ///
    /// # Errors
    /// If the file cannot be read as a scheme, a number is out of range, or one does not apply to
    /// the scheme's slots.
    pub fn spec(&self, shipped: bool) -> Result<SchemeSpec, SchemeError> {
        let preset = self.preset.unwrap_or_else(|| Preset::of_convention(self.convention));
        let mut point = preset.operating_point();
        let shipped = shipped && self.convention == Convention::Sound;
        if shipped && self.preset.is_none() {
            point.candidates = SHIPPED_CANDIDATES;
        }
        let mut spec = SchemeSpec::reference(self.convention, &point);
        if shipped {
            spec = spec.with_draft_temperature(SHIPPED_DRAFT_TEMPERATURE);
        }
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

    /// Refuses what does nothing for a scheme whose blades are all seated.
    ///
    /// # Errors
    /// If β is given, and no blade has one.
    pub fn check_effect(&self, seated: &SchemeSpec) -> Result<(), SchemeError> {
        let beta = self.numbers.iter().any(|(parameter, _)| parameter.name == "beta");
        if beta && !seated.blades.iter().any(BladeSpec::has_beta) {
            return Err(SchemeError::Parameter { slot: "--beta", reason: "no blade of the scheme has a β".to_owned() });
        }
        Ok(())
    }

    /// The weights given, if any are.
    ///
    /// # Errors
    /// If a blade is given two.
    pub fn weights(&self) -> Result<Option<NamedWeights>, SchemeError> {
        NamedWeights::together(&self.weights).map_err(|reason| SchemeError::Parameter { slot: "--weights", reason })
    }

    /// What an arm beside this scheme is steered by: another scheme and other fields, the same
    /// candidates and weights.
    #[must_use]
    pub fn of_arm(&self, scheme: PathBuf, set: &[FieldEdit]) -> Self {
        let shared = self.set.iter().filter(|field| ["proposal", "granularity"].contains(&field.slot.as_str()));
        // The numbers of slots that make candidates, and β.
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

/// `SLOT.FIELD=VALUE` or `blades.NAME.FIELD=VALUE`: one field of a scheme.
///
/// The value is TOML; what is not is a string.
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
    /// Sets fields of a scheme in this order, those of one section together. `name` stands before
    /// each of them in errors.
    ///
    /// # Errors
    /// As [`SchemeSpec::amend`]; earlier sections are then set.
    pub fn apply(fields: &[Self], spec: &mut SchemeSpec, name: &str) -> Result<(), SchemeError> {
        for fields in by_section(fields) {
            let names: Vec<String> = fields.iter().map(|field| format!("{name} {field}")).collect();
            let lines: String = fields.iter().map(|field| field.line()).collect();
            spec.amend(&names.join(" "), &(fields[0].header() + &lines))?;
        }
        Ok(())
    }

    /// The line of a scheme file under which it belongs.
    fn header(&self) -> String {
        let blade = self.blade.as_ref().map_or_else(String::new, |name| format!(".{}", toml::Value::String(name.clone())));
        format!("[{}{blade}]\n", self.slot)
    }

    /// What it says there.
    fn line(&self) -> String {
        // What reads as a TOML value is one; anything else is a string without its quotes.
        let is_value = format!("value = {}", self.value).parse::<toml::Table>().is_ok();
        let value = if is_value { self.value.clone() } else { toml::Value::String(self.value.clone()).to_string() };
        format!("{} = {value}\n", self.field)
    }
}

/// Fields of one section together, since they may be right together only; of one that is set twice,
/// the last.
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
        // A blade's name may be anything, dots included; a field has none.
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
        assert_eq!("blades.x.beta=1".parse::<FieldEdit>().unwrap().to_string(), "blades.x.beta=1");
        for text in ["selector", "top_k=50", "selector.=1", "a b.c=1", "blades.x=1", "blades..x=1", "selector.x.y=1", ".x=1"] {
            assert!(text.parse::<FieldEdit>().is_err(), "{text}");
        }
    }
}
