use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, FromArgMatches};

use super::model::ModelArgs;
use super::output::positive;
use crate::scheme::{BladeSpec, Convention, NamedWeights, Parameter, Preset, SchemeError, SchemeSpec, parameters};

/// How the model is steered.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Steering")]
pub struct SteeringArgs {
    /// Weights of the blades; equal unless given; may be repeated.
    ///
    /// They are scaled to sum to one, and a blade that is not named gets zero.
    #[arg(short, long, value_name = "NAME=W,…")]
    pub weights: Vec<NamedWeights>,
    /// A scheme: a TOML file that fills the slots by name, or one that ships (see `swiss-knife schemes`).
    ///
    /// Its sections are [proposal], [granularity], [blades.NAME], [normalizer], [aggregator] and [selector]. What it leaves out is as the
    /// preset and the convention have it.
    #[arg(long, value_name = "NAME|FILE")]
    pub scheme: Option<PathBuf>,
    /// Set one field of a slot after the scheme, such as `selector.top_k=50`; may be repeated.
    ///
    /// The value is TOML; a bare word is taken for a string. Fields of a blade are `blades.NAME.FIELD`, and `blades.*.FIELD` those of every blade
    /// without a section of its own.
    #[arg(long = "set", value_name = "SLOT.FIELD=VALUE")]
    pub set: Vec<SetArg>,
    /// Published operating point.
    #[arg(long, value_name = "PRESET", default_value_t, value_parser = named::<Preset>(&Preset::NAMES))]
    pub preset: Preset,
    /// What fills in where the paper is silent.
    ///
    /// `sound` keeps the paper's equations and repairs what is accidental in the published runs; `paper` repeats them.
    #[arg(long, value_name = "CONVENTION", default_value_t, value_parser = named::<Convention>(&Convention::NAMES))]
    pub convention: Convention,
    /// Numbers of the operating point and of drafting.
    #[command(flatten)]
    pub numbers: NumberArgs,
}

/// The numbers of a scheme that have an option, in the order of [`parameters::ALL`].
#[derive(Debug, Clone, Default)]
pub struct NumberArgs(Vec<(&'static Parameter, f64)>);

impl NumberArgs {
    fn parameters() -> impl Iterator<Item = (&'static Parameter, &'static str, &'static str)> {
        parameters::ALL.iter().filter_map(|parameter| parameter.option.map(|(option, value)| (parameter, option, value)))
    }

    /// The value given for the option `name`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.iter().find(|(parameter, _)| parameter.option.is_some_and(|(option, _)| option == name)).map(|(_, value)| *value)
    }

    /// The numbers of slots that make candidates, and β: arms beside a scheme share them with it.
    fn shared(&self) -> Self {
        let shared = |section: &str| ["proposal", "granularity", "blades"].contains(&section);
        Self(self.0.iter().copied().filter(|(parameter, _)| shared(parameter.section)).collect())
    }
}

impl Args for NumberArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(Self::parameters().map(|(parameter, option, value)| {
            let drafting = ["proposal", "granularity"].contains(&parameter.section) && option != "n";
            let arg = clap::Arg::new(option)
                .long(option)
                .value_name(value)
                .help(parameter.meaning.trim_end_matches('.'))
                .help_heading(if drafting { "Drafting" } else { "Operating point" });
            match (parameter.range.whole, parameter.range.least >= 1.0) {
                (true, true) => arg.value_parser(|text: &str| positive(text).map(|count| count as f64)),
                (true, false) => arg.value_parser(|text: &str| text.parse::<usize>().map(|count| count as f64)),
                (false, _) => arg.value_parser(clap::value_parser!(f64)).allow_negative_numbers(true),
            }
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for NumberArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::parameters().filter_map(|(parameter, option, _)| Some((parameter, *matches.get_one(option)?)));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads one of some names, which help and refusals list.
fn named<T: FromStr<Err = String> + Clone + Send + Sync + 'static>(
    names: &'static [&'static str],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

/// `SLOT.FIELD=VALUE` or `blades.NAME.FIELD=VALUE`: one field of a scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetArg {
    slot: String,
    blade: Option<String>,
    field: String,
    value: String,
}

impl SetArg {
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

/// Fields of one section together, since they may be right together only; of one that is set twice, the last.
fn by_section(all: &[SetArg]) -> Vec<Vec<&SetArg>> {
    let mut sections: Vec<Vec<&SetArg>> = Vec::new();
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

impl fmt::Display for SetArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blade = self.blade.as_ref().map_or_else(String::new, |name| format!(".{name}"));
        write!(f, "{}{blade}.{}={}", self.slot, self.field, self.value)
    }
}

impl FromStr for SetArg {
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

/// What the model that ships drafts at under the sound convention. It is a thousandth of the size of those that the operating point was
/// published with, and at temperature 1 its tail of unlikely tokens is most of what it writes.
const SHIPPED_DRAFT_TEMPERATURE: f64 = 0.7;

impl SteeringArgs {
    /// The scheme that these options describe for `models`: the preset under the convention, then the file, then single numbers.
    ///
    /// # Errors
    /// When the file cannot be read as a scheme, a number is out of range, or one does not apply to the scheme's slots.
    pub fn scheme(&self, models: &ModelArgs) -> Result<SchemeSpec, SchemeError> {
        let mut config = SchemeSpec::reference(self.convention, &self.preset.operating_point());
        if models.are_shipped() && self.convention == Convention::Sound {
            config = config.with_draft_temperature(SHIPPED_DRAFT_TEMPERATURE);
        }
        if let Some(path) = &self.scheme {
            config.adopt(path)?;
        }
        for fields in by_section(&self.set) {
            let names: Vec<String> = fields.iter().map(|field| format!("--set {field}")).collect();
            let lines: String = fields.iter().map(|field| field.line()).collect();
            config.amend(&names.join(" "), &(fields[0].header() + &lines))?;
        }
        for (parameter, value) in &self.numbers.0 {
            parameter.set(&mut config, *value)?;
        }
        config.check()?;
        config.weights = self.weights()?;
        Ok(config)
    }

    /// Refuses what does nothing for a scheme whose blades are all seated.
    ///
    /// # Errors
    /// When β is given, and no blade has one.
    pub(crate) fn check_effect(&self, seated: &SchemeSpec) -> Result<(), SchemeError> {
        if self.numbers.get("beta").is_some() && !seated.blades.iter().any(BladeSpec::has_beta) {
            return Err(SchemeError::Parameter { slot: "--beta", reason: "no blade of the scheme has a β".to_owned() });
        }
        Ok(())
    }

    /// The weights given, if any are.
    ///
    /// # Errors
    /// When a blade is given two.
    pub(crate) fn weights(&self) -> Result<Option<NamedWeights>, SchemeError> {
        NamedWeights::together(&self.weights).map_err(|reason| SchemeError::Parameter { slot: "--weights", reason })
    }

    /// The options of an arm beside the scheme that these describe: another scheme and other fields, the same candidates and weights.
    #[must_use]
    pub(crate) fn of_arm(&self, scheme: PathBuf, set: &[SetArg]) -> Self {
        let shared = self.set.iter().filter(|field| ["proposal", "granularity"].contains(&field.slot.as_str()));
        Self { scheme: Some(scheme), set: shared.chain(set).cloned().collect(), numbers: self.numbers.shared(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_set_with_or_without_quotes() {
        let toml = |text: &str| {
            let field: SetArg = text.parse().unwrap();
            field.header() + &field.line()
        };
        assert_eq!(toml("selector.top_k=50"), "[selector]\ntop_k = 50\n");
        assert_eq!(toml("proposal.kind=drafter"), "[proposal]\nkind = \"drafter\"\n");
        assert_eq!(toml("proposal.kind=\"drafter\""), "[proposal]\nkind = \"drafter\"\n");
        assert_eq!(toml("aggregator.p = inf"), "[aggregator]\np = inf\n");
        assert_eq!(toml("blades.*.guided=0.5"), "[blades.\"*\"]\nguided = 0.5\n");
        assert_eq!(toml("blades.a.b.dispersion=zero"), "[blades.\"a.b\"]\ndispersion = \"zero\"\n");
        assert_eq!("blades.x.beta=1".parse::<SetArg>().unwrap().to_string(), "blades.x.beta=1");
        for text in ["selector", "top_k=50", "selector.=1", "a b.c=1", "blades.x=1", "blades..x=1", "selector.x.y=1", ".x=1"] {
            assert!(text.parse::<SetArg>().is_err(), "{text}");
        }
    }
}
