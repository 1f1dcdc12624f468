use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use sk_core::OperatingPoint;

use super::model::ModelArgs;
use super::output::positive;
use crate::scheme::{AggregatorKind, Convention, SchemeConfig, SchemeError, SelectorKind};
use crate::weights::NamedWeights;

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
    #[arg(long, value_name = "PRESET", default_value = "hhh")]
    pub preset: Preset,
    /// What fills in where the paper is silent.
    ///
    /// `sound` keeps the paper's equations and repairs what is accidental in the published runs; `paper` repeats them.
    #[arg(long, value_name = "CONVENTION", default_value = "sound")]
    pub convention: Convention,
    /// N, candidates per step.
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Operating point")]
    pub n: Option<usize>,
    /// R, rounds of the tournament.
    #[arg(long, value_name = "R", value_parser = positive, help_heading = "Operating point")]
    pub rounds: Option<usize>,
    /// T, temperature of the final choice; 0 takes the best.
    #[arg(long, value_name = "T", help_heading = "Operating point", allow_negative_numbers = true)]
    pub temperature: Option<f64>,
    /// Weight of the tournament rating in the final choice.
    #[arg(long, value_name = "W", help_heading = "Operating point", allow_negative_numbers = true)]
    pub w_tour: Option<f64>,
    /// Weight of the blades' composite score in the final choice.
    #[arg(long, value_name = "W", help_heading = "Operating point", allow_negative_numbers = true)]
    pub w_blade: Option<f64>,
    /// λ, penalty on the composite dispersion.
    #[arg(long, value_name = "LAMBDA", help_heading = "Operating point", allow_negative_numbers = true)]
    pub lambda: Option<f64>,
    /// α, coefficient of the drafter's fluency in a match.
    #[arg(long, value_name = "ALPHA", help_heading = "Operating point", allow_negative_numbers = true)]
    pub alpha: Option<f64>,
    /// β, scale of the blades' implicit reward.
    #[arg(long, value_name = "BETA", help_heading = "Operating point", allow_negative_numbers = true)]
    pub beta: Option<f64>,
    /// Most tokens of a candidate span.
    #[arg(long, value_name = "TOKENS", value_parser = positive, help_heading = "Drafting")]
    pub span_tokens: Option<usize>,
    /// Sampling temperature of the drafter; 0 is greedy.
    #[arg(long, value_name = "T", help_heading = "Drafting", allow_negative_numbers = true)]
    pub draft_temperature: Option<f32>,
    /// Keep the most likely tokens that hold this much probability; 1 keeps all.
    #[arg(long, value_name = "P", help_heading = "Drafting", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Keep this many most likely tokens; 0 keeps all.
    #[arg(long, value_name = "K", help_heading = "Drafting")]
    pub top_k: Option<usize>,
    /// Divide the logits of tokens seen before by this; 1 is off.
    #[arg(long, value_name = "R", help_heading = "Drafting", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,
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
const SHIPPED_DRAFT_TEMPERATURE: f32 = 0.7;

/// The published operating points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Preset {
    /// Helpful, honest and harmless together: N 7, R 5, T 8.
    #[default]
    Hhh,
    /// Harmlessness alone: N 11, R 4, T 11.2.
    Harmlessness,
    /// Helpfulness alone: N 7, R 3, T 1.69.
    Helpfulness,
    /// Honesty alone: N 3, R 7, T 21.
    Honesty,
}

impl Preset {
    /// Its numbers.
    pub fn operating_point(self) -> OperatingPoint {
        match self {
            Self::Hhh => OperatingPoint::HHH,
            Self::Harmlessness => OperatingPoint::HARMLESSNESS,
            Self::Helpfulness => OperatingPoint::HELPFULNESS,
            Self::Honesty => OperatingPoint::HONESTY,
        }
    }
}

impl SteeringArgs {
    /// The scheme that these options describe for `models`: the preset under the convention, then the file, then single numbers.
    ///
    /// # Errors
    /// When the file cannot be read as a scheme, a number is out of range, or one does not apply to the scheme's slots.
    pub fn scheme(&self, models: &ModelArgs) -> Result<SchemeConfig, SchemeError> {
        let mut config = SchemeConfig::reference(self.convention, &self.preset.operating_point());
        if models.are_shipped() && self.convention == Convention::Sound {
            config.proposal.temperature = SHIPPED_DRAFT_TEMPERATURE;
        }
        if let Some(path) = &self.scheme {
            config.adopt(path)?;
        }
        for fields in by_section(&self.set) {
            let names: Vec<String> = fields.iter().map(|field| format!("--set {field}")).collect();
            let lines: String = fields.iter().map(|field| field.line()).collect();
            config.amend(&names.join(" "), &(fields[0].header() + &lines))?;
        }
        self.set_numbers(&mut config)?;
        config.check()?;
        config.weights = self.weights()?;
        Ok(config)
    }

    /// Refuses what does nothing for a scheme whose blades are all seated.
    ///
    /// # Errors
    /// When β is given, and no blade has one.
    pub(crate) fn check_effect(&self, seated: &SchemeConfig) -> Result<(), SchemeError> {
        if self.beta.is_some() && !seated.blades.iter().any(|blade| blade.kind.has_beta()) {
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
        Self {
            scheme: Some(scheme),
            set: shared.chain(set).cloned().collect(),
            rounds: None,
            temperature: None,
            w_tour: None,
            w_blade: None,
            lambda: None,
            alpha: None,
            ..self.clone()
        }
    }

    fn set_numbers(&self, config: &mut SchemeConfig) -> Result<(), SchemeError> {
        let SchemeConfig { proposal, granularity, blades, template, beta, aggregator, selector, .. } = config;
        let kind = proposal.kind;
        let drawn = |option: &'static str, given: bool| {
            if !given || kind.draws() {
                Ok(())
            } else {
                Err(SchemeError::Inapplicable { option, slot: "proposal", kind: kind.name() })
            }
        };
        drawn("n", self.n.is_some())?;
        drawn("draft-temperature", self.draft_temperature.is_some())?;
        drawn("top-p", self.top_p.is_some())?;
        drawn("top-k", self.top_k.is_some())?;
        drawn("repetition-penalty", self.repetition_penalty.is_some())?;
        set(&mut proposal.candidates, self.n);
        set(&mut proposal.temperature, self.draft_temperature);
        set(&mut proposal.top_p, self.top_p);
        set(&mut proposal.top_k, self.top_k);
        set(&mut proposal.repetition_penalty, self.repetition_penalty);
        if let Some(tokens) = self.span_tokens.and_then(NonZeroUsize::new) {
            drawn("span-tokens", true)?;
            granularity.span_tokens = Some(tokens);
        }
        if let Some(value) = self.beta {
            *beta = value;
            blades.iter_mut().chain(template).filter(|blade| blade.kind.has_beta()).for_each(|blade| blade.beta = value);
        }
        let rated = |option, applies| {
            let kind = aggregator.kind.name();
            if applies { Ok(()) } else { Err(SchemeError::Inapplicable { option, slot: "aggregator", kind }) }
        };
        if self.rounds.is_some() {
            rated("rounds", aggregator.kind == AggregatorKind::SwissElo)?;
        }
        if self.alpha.is_some() {
            rated("alpha", aggregator.kind.compares())?;
        }
        set(&mut aggregator.rounds, self.rounds);
        set(&mut aggregator.alpha, self.alpha);
        let selected = |option, applies| {
            let kind = selector.kind.name();
            if applies { Ok(()) } else { Err(SchemeError::Inapplicable { option, slot: "selector", kind }) }
        };
        let champion = selector.kind == SelectorKind::Champion;
        for (option, given) in [("w-tour", self.w_tour), ("w-blade", self.w_blade), ("lambda", self.lambda)] {
            if given.is_some() {
                selected(option, champion)?;
            }
        }
        if self.temperature.is_some() {
            selected("temperature", selector.kind.has_temperature())?;
        }
        set(&mut selector.temperature, self.temperature);
        set(&mut selector.w_tour, self.w_tour);
        set(&mut selector.w_blade, self.w_blade);
        set(&mut selector.lambda, self.lambda);
        Ok(())
    }
}

fn set<T: Copy>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
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
