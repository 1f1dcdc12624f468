//! The defaults of a scheme.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use crate::parameters::{ALL, Parameter};
use crate::spec::{About, Base, TEMPLATE};
use crate::{BladeSpec, Convention, FallbackSpec, SchemeSpec, SearchSpec, WeightingSpec};

/// Returns the default values of a section's fields, including fields of other kinds.
pub(crate) fn defaults(slot: &str, kind: &str, base: &Base) -> Table {
    let paper = base.convention == Convention::Paper;
    let text = |value: &str| Value::String(value.to_owned());
    let convention = || text(&base.convention.to_string());
    let number = |number: &Parameter| Some((number.field.to_owned(), number.value((number.default)(base, kind)?)));
    let mut table: Table = ALL.iter().filter(|number| number.section == slot).filter_map(number).collect();
    let choices: Vec<(&str, Value)> = match slot {
        "proposal" => vec![("keep_end_of_text", Value::Boolean(!paper)), ("merge", text("exact")), ("prior", text("backbone"))],
        "granularity" if kind == "response" => vec![("span_tokens", text("unlimited"))],
        "granularity" if kind == "delimiters" => vec![("delimiters", Value::Array(Vec::new()))],
        "blades" => vec![
            ("adapters", Value::Array(Vec::new())),
            ("dispersion", text(if kind == "discriminator" { "zero" } else { "min-entropy" })),
            ("arm", text("real")),
            ("likelihood", text("summed")),
            ("divergence", text("reverse-kl")),
        ],
        "normalizer" => vec![
            ("deviation", text("sample")),
            ("dispersion_unit", text(if paper { "own" } else { "score" })),
            ("propagation", text("linear")),
        ],
        "aggregator" => vec![
            ("convention", convention()),
            ("standardize", Value::Boolean(true)),
            ("link", text("probit")),
            ("divergence", text("reverse-kl")),
        ],
        "selector" => vec![("convention", convention()), ("standardize", Value::Boolean(true))],
        "gates" => vec![("fallback", text("best"))],
        _ => Vec::new(),
    };
    table.extend(choices.into_iter().map(|(field, value)| (field.to_owned(), value)));
    table
}

/// Returns the kind that a section of a scheme file has unless the file names one.
pub(crate) fn usual_kind(slot: &str) -> String {
    match slot {
        "blades" => "implicit-reward".to_owned(),
        "gates" => "blade".to_owned(),
        _ => {
            SchemeSpec::default().section(slot).and_then(|section| Some(section["kind"].as_str()?.to_owned())).unwrap_or_default()
        }
    }
}

/// Returns the default contents of a slot.
fn published<T: DeserializeOwned>(slot: &str, kind: &str, base: &Base) -> T {
    let mut table = defaults(slot, kind, base);
    table.insert("kind".to_owned(), Value::String(kind.to_owned()));
    T::deserialize(table).expect("the published operating points are schemes")
}

impl Default for SchemeSpec {
    fn default() -> Self {
        Self::reference(Base::default())
    }
}

impl SchemeSpec {
    /// Returns the reference instantiation with these defaults.
    pub fn reference(base: Base) -> Self {
        Self {
            about: About::default(),
            weights: None,
            proposal: published("proposal", "drafter", &base),
            granularity: published("granularity", "blank-line", &base),
            search: SearchSpec::Full,
            fallback: FallbackSpec::None,
            blades: Vec::new(),
            template: Some(BladeSpec::implicit_reward(TEMPLATE, base.point.beta)),
            fluency: Some("fluency".to_owned()),
            weighting: WeightingSpec::Fixed,
            normalizer: published("normalizer", "cbn", &base),
            aggregator: published("aggregator", "swiss-elo", &base),
            selector: published("selector", "champion", &base),
            base,
        }
    }
}
