//! The numeric parameters of a scheme, each declared once.
//!
//! [`ALL`] is the source of the command-line options, `--set`, searches, the settings of sweeps,
//! the JSON Schema and the table in the book.

use toml::Value;

use crate::choices::Convention;
use crate::spec::Base;

/// A numeric parameter of a scheme.
#[derive(Debug)]
pub struct Parameter {
    /// The name in plans and records.
    pub name: &'static str,
    /// The symbol in the paper.
    pub symbol: &'static str,
    /// The section of a scheme file that contains it; `gates` means `[selector.gates.NAME]`.
    pub section: &'static str,
    /// The field in the section.
    pub field: &'static str,
    /// The allowed values.
    pub range: Range,
    /// The default value, by the `kind` of the slot; `None` if there is no default.
    pub default: fn(&Base, &str) -> Option<f64>,
    /// The search range, if it can be searched.
    pub search: Option<Search>,
    /// The command-line option without dashes, and the placeholder for its value.
    pub option: Option<(&'static str, &'static str)>,
    /// The meaning, in one sentence.
    pub meaning: &'static str,
}

/// A range of allowed values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The least value.
    pub least: f64,
    /// The largest value.
    pub most: f64,
    /// Whether the least value itself is excluded.
    pub open: bool,
    /// Whether only whole numbers are allowed.
    pub whole: bool,
}

impl Range {
    const fn real(least: f64, most: f64) -> Self {
        Self { least, most, open: false, whole: false }
    }

    const fn above(least: f64, most: f64) -> Self {
        Self { open: true, ..Self::real(least, most) }
    }

    const fn count(least: f64) -> Self {
        Self { whole: true, ..Self::real(least, f64::INFINITY) }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { least, most, open, whole } = *self;
        let number = if whole { "whole, " } else { "" };
        match (least == f64::NEG_INFINITY, most == f64::INFINITY, open) {
            (true, true, _) => write!(f, "{number}any"),
            (_, true, true) => write!(f, "{number}above {least}"),
            (_, true, false) => write!(f, "{number}at least {least}"),
            (_, _, true) => write!(f, "{number}in ({least}, {most}]"),
            (_, _, false) => write!(f, "{number}in [{least}, {most}]"),
        }
    }
}

/// The range and scale of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Search {
    /// The lower end. The paper prints optima but no ranges; these ranges contain all its optima
    /// with a margin on both sides.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The mapping of the range onto [0, 1).
    pub scale: Scale,
}

/// The mapping of a range onto [0, 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic.
    Log,
    /// Integers, each with an equal share.
    Whole,
}

const INFINITY: f64 = f64::INFINITY;
const NOT_NEGATIVE: Range = Range::real(0.0, INFINITY);
const POSITIVE: Range = Range::above(0.0, INFINITY);
const SHARE: Range = Range::real(0.0, 1.0);
const MASS: Range = Range::above(0.0, 1.0);
const MODERATE: Range = Range::real(1e-6, 1e6);
const ANY: Range = Range::real(f64::NEG_INFINITY, INFINITY);

/// Declares a parameter whose name is that of its field, without default or search range.
const fn number(section: &'static str, field: &'static str, range: Range, meaning: &'static str) -> Parameter {
    let default = |_: &Base, _: &str| None;
    Parameter { name: field, symbol: field, section, field, range, default, search: None, option: None, meaning }
}

impl Parameter {
    const fn symbol(self, symbol: &'static str) -> Self {
        Self { symbol, ..self }
    }

    const fn name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    const fn default(self, default: fn(&Base, &str) -> Option<f64>) -> Self {
        Self { default, ..self }
    }

    const fn option(self, option: &'static str, value: &'static str) -> Self {
        Self { option: Some((option, value)), ..self }
    }

    const fn searched(self, low: f64, high: f64, scale: Scale) -> Self {
        Self { search: Some(Search { low, high, scale }), ..self }
    }
}

/// Returns `sound` under the sound convention and `paper` under the paper's.
fn either(base: &Base, sound: f64, paper: f64) -> Option<f64> {
    Some(if base.convention == Convention::Paper { paper } else { sound })
}

/// All parameters. Searchable ones come first, in the order of the paper's table.
pub static ALL: [Parameter; 39] = [
    number("selector", "temperature", NOT_NEGATIVE, "T, temperature of the final choice; 0 takes the best.")
        .default(|base, kind| Some(if ["champion", ""].contains(&kind) { base.point.temperature } else { 1.0 }))
        .symbol("T")
        .option("temperature", "T")
        .searched(0.25, 32.0, Scale::Log),
    number("selector", "w_tour", NOT_NEGATIVE, "Weight of the tournament rating in the final choice.")
        .default(|base, _| Some(base.point.w_tour))
        .option("w-tour", "W")
        .searched(0.0, 3.0, Scale::Linear),
    number("selector", "w_blade", NOT_NEGATIVE, "Weight of the blades' composite score in the final choice.")
        .default(|base, _| Some(base.point.w_blade))
        .option("w-blade", "W")
        .searched(0.0, 3.0, Scale::Linear),
    number("selector", "lambda", NOT_NEGATIVE, "λ, penalty on the composite dispersion.")
        .default(|base, _| Some(base.point.lambda))
        .symbol("λ")
        .option("lambda", "LAMBDA")
        .searched(0.0, 1.0, Scale::Linear),
    number("aggregator", "rounds", Range { most: 65536.0, ..Range::count(1.0) }, "R, rounds of the tournament.")
        .default(|base, _| Some(base.point.rounds as f64))
        .symbol("R")
        .option("rounds", "R")
        .searched(1.0, 8.0, Scale::Whole),
    number("proposal", "candidates", Range::count(1.0), "N, candidates per step.")
        .default(|base, _| Some(base.point.candidates as f64))
        .symbol("N")
        .option("n", "N")
        .searched(2.0, 12.0, Scale::Whole),
    number("aggregator", "alpha", SHARE, "α, coefficient of the drafter's fluency in a match.")
        .default(|base, _| Some(base.point.alpha))
        .symbol("α")
        .option("alpha", "ALPHA")
        .searched(0.0, 1.0, Scale::Linear),
    number("blades", "beta", POSITIVE, "β, scale of the blades' implicit reward.")
        .default(|base, _| Some(base.point.beta))
        .symbol("β")
        .option("beta", "BETA"),
    number("granularity", "span_tokens", Range::count(1.0), "Maximum number of tokens of a candidate span.")
        .default(|base, kind| if kind == "response" { None } else { either(base, 32.0, 512.0) })
        .option("span-tokens", "TOKENS"),
    number("proposal", "temperature", NOT_NEGATIVE, "Sampling temperature of the drafter; 0 is greedy.")
        .default(|base, _| Some(base.draft_temperature))
        .name("draft_temperature")
        .option("draft-temperature", "T"),
    number("proposal", "top_p", MASS, "Keep the most likely tokens that hold this much probability; 1 keeps all.")
        .default(|_, _| Some(0.95))
        .option("top-p", "P"),
    number("proposal", "top_k", Range::count(0.0), "Keep this many most likely tokens; 0 keeps all.")
        .default(|base, _| either(base, 0.0, 50.0))
        .option("top-k", "K"),
    number(
        "proposal",
        "repetition_penalty",
        MODERATE,
        "Divide positive logits of tokens seen before by this, and multiply negative ones; 1 is off.",
    )
        .default(|base, _| either(base, 1.0, 1.05))
        .option("repetition-penalty", "R"),
    number("proposal", "head_k", Range::count(0.0), "Keep this many of the most likely tokens under π_B; 0 keeps all.")
        .default(|_, _| Some(0.0)),
    number(
        "proposal",
        "plausibility",
        SHARE,
        "Keep tokens with at least this fraction of the most likely token's probability under π_B.",
    )
    .default(|_, _| Some(0.0)),
    number("blades", "weight", NOT_NEGATIVE, "Weight of the blade, scaled so that all sum to one.").symbol("w"),
    number("blades", "guided", NOT_NEGATIVE, "λ of ARGS and FUDGE: the score becomes log π_B plus this times μ.").symbol("λ"),
    number("blades", "divergence_alpha", POSITIVE, "α of the α-divergence of a ratio.").default(|_, _| Some(0.5)),
    number("normalizer", "epsilon", NOT_NEGATIVE, "ε, added to the standard deviation of a batch.")
        .default(|base, _| either(base, 0.0, 1e-6))
        .symbol("ε"),
    number("aggregator", "k_max", MODERATE, "K of the first round.").default(|base, _| Some(base.point.k_max)),
    number("aggregator", "k_min", MODERATE, "K of the last round, not above that of the first.")
        .default(|base, _| Some(base.point.k_min)),
    number("aggregator", "p", Range::real(1.0, INFINITY), "Exponent of the spread of a round robin; may be inf.")
        .default(|_, _| Some(2.0)),
    number("aggregator", "nu", Range::real(0.1, INFINITY), "ν, degrees of freedom of Student's t.")
        .default(|_, _| Some(3.0))
        .symbol("ν"),
    number("aggregator", "divergence_alpha", POSITIVE, "α of the α-divergence of a mixture.")
        .default(|_, _| Some(0.5))
        .name("aggregator_divergence_alpha"),
    number("selector", "epsilon", SHARE, "ε, the share of steps in which any candidate is drawn.")
        .default(|_, _| Some(0.1))
        .name("selector_epsilon")
        .symbol("ε"),
    number("selector", "top_k", Range::count(1.0), "Keep this many of the most probable candidates.").name("selector_top_k"),
    number("selector", "top_p", MASS, "Keep the most likely candidates that together have this probability.")
        .name("selector_top_p"),
    number("granularity", "entropy", NOT_NEGATIVE, "Entropy of the next token, in nats, that ends a span.")
        .default(|_, _| Some(3.0)),
    number("search", "first", Range::count(1.0), "Candidates of the first wave; for waves at least 2.").default(|_, _| Some(4.0)),
    number("search", "wave", Range::count(1.0), "Candidates of each wave after it.").default(|_, _| Some(4.0)),
    number("search", "probability", MASS, "Selection probability of a candidate that settles the choice.")
        .default(|_, _| Some(0.9)),
    number("search", "score", ANY, "Composite score that is good enough."),
    number("search", "tokens", Range::count(1.0), "Tokens after which unlikely candidates are dropped.")
        .default(|_, _| Some(8.0)),
    number(
        "search",
        "mass",
        MASS,
        "Keep the most likely candidates that together have this probability; 1 − this is the risk, by the first tokens, of dropping the winner.",
    )
    .default(|_, _| Some(0.9)),
    number("fallback", "threshold", ANY, "The least composite score of a choice that is kept.").name("fallback_threshold"),
    number("weighting", "temperature", POSITIVE, "T of the rule for w, in the unit of the scores.")
        .default(|_, _| Some(1.0))
        .name("weighting_temperature")
        .symbol("T"),
    number("weighting", "limit", Range::above(0.0, 1e9), "The most that the multiplier of a constraint may be.").default(|_, _| Some(10.0)),
    number("gates", "threshold", ANY, "The least value that passes."),
    number("gates", "kappa", ANY, "κ: the gate compares μ − κσ.").default(|_, _| Some(0.0)).symbol("κ"),
];

impl Parameter {
    /// Returns the parameter of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|parameter| parameter.name == name)
    }

    /// Returns the searchable parameters, in the order of the paper's table, α last.
    pub fn searchable() -> impl Iterator<Item = &'static Self> {
        ALL.iter().filter(|parameter| parameter.search.is_some())
    }

    /// Converts a value into the type that a scheme file uses.
    pub(crate) fn value(&self, value: f64) -> Value {
        if self.range.whole && value.fract() == 0.0 { Value::Integer(value as i64) } else { Value::Float(value) }
    }
}

pub(crate) fn number_of(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(integer) => Some(*integer as f64),
        Value::Float(float) => Some(*float),
        _ => None,
    }
}
