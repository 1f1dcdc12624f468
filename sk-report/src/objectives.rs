//! Objectives: the criteria by which responses are judged, and the blade that steers each.
//!
//! An objectives file is TOML. An objective is the mean of rubrics, a rubric is a question about
//! one response, and a blade is the name of a weight:
//!
//! ```
//! use sk_report::objectives::Objectives;
//!
//! let objectives = Objectives::parse(
//!     r#"
//!     [[objectives]]
//!     name = "calm"
//!
//!     [[rubrics]]
//!     name = "calm"
//!     criterion = "How calm is the response?"
//!     low = "agitated"
//!     middle = "neither calm nor agitated"
//!     high = "calm throughout"
//!     "#,
//! )
//! .unwrap();
//! let scores = objectives.scores(vec![Some(0.75)]);
//! assert_eq!(scores.objectives, [0.75]);
//! ```
//!
//! [`Objectives::hhh`] is the set with which the paper evaluates helpfulness, harmlessness and
//! honesty.

mod scale;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sk_scheme::suggest;

pub use scale::Scale;

fn shipped(text: &str) -> Objectives {
    // A test parses both files.
    #[allow(clippy::expect_used)]
    Objectives::parse(text).expect("the files that ship are objectives")
}

/// Columns of the judgement table, which may not be names of rubrics or blades.
const COLUMNS: [&str; 5] = ["method", "config", "frontier_id", "id", FLUENCY];

/// Returns whether the judgement table has a column of this name besides those of rubrics.
pub(crate) fn is_column(name: &str) -> bool {
    COLUMNS.contains(&name) || name.starts_with("w_")
}

/// Headings of other columns and rows in the tables of a report.
const HEADINGS: [&str; 15] = [
    "", "all", "arm", "axis", "case", "cells", "judged", "method", "n", "pooled", "prompt", "response", "rival", "weights",
    FLUENCY,
];

/// Fields of a scheme in the summary of `judge`, beside the means of objectives and of rubrics
/// without one.
const SUMMARY: [&str; 4] = ["abstained", "perplexity", "responses", "scheme"];

/// The name of the one measure without a rubric: 1/perplexity of a response.
pub const FLUENCY: &str = "fluency";

/// The objectives of an evaluation, with their rubrics and blades.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Entries")]
pub struct Objectives {
    /// The blades, in the order in which weights are printed. Defaults to those of the objectives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blades: Vec<Blade>,
    /// The objectives, in the order of the tables.
    pub objectives: Vec<Objective>,
    /// The rubrics.
    pub rubrics: Vec<Rubric>,
}

/// The contents of an objectives file before validation.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    #[serde(default)]
    blades: Vec<Blade>,
    #[serde(default)]
    objectives: Vec<Objective>,
    #[serde(default)]
    rubrics: Vec<Rubric>,
}

impl TryFrom<Entries> for Objectives {
    type Error = String;

    fn try_from(entries: Entries) -> Result<Self, String> {
        let Entries { mut blades, mut objectives, mut rubrics } = entries;
        for objective in &mut objectives {
            if objective.rubrics.is_empty() {
                objective.rubrics = vec![objective.name.clone()];
            }
            let blade = objective.blade();
            match blades.iter().find(|known| known.is_called(blade)) {
                Some(known) => objective.blade = Some(known.name.clone()),
                None => {
                    let blade = Blade { name: blade.to_owned(), aliases: Vec::new() };
                    objective.blade = Some(blade.name.clone());
                    blades.push(blade);
                }
            }
        }
        for rubric in &mut rubrics {
            if rubric.version == 0 {
                rubric.version = rubric.fingerprint();
            }
        }
        let read = Self { blades, objectives, rubrics };
        read.check()?;
        Ok(read)
    }
}

/// The name of a weight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blade {
    /// The name in tables.
    pub name: String,
    /// Alternative names in records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
}

impl Blade {
    /// Returns whether `name` is the name or an alias of the blade.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// A mean of rubrics, in [0, 1]; higher is better.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// The name in tables.
    pub name: String,
    /// The blade whose weight steers it. Defaults to the blade of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blade: Option<String>,
    /// The rubrics that it averages. Defaults to the rubric of the same name.
    #[serde(default, deserialize_with = "names", skip_serializing_if = "Vec::is_empty")]
    pub rubrics: Vec<String>,
}

impl Objective {
    /// Returns the name of the blade whose weight steers it.
    pub fn blade(&self) -> &str {
        self.blade.as_deref().unwrap_or(&self.name)
    }
}

/// A question about one response, answered with a score in [0, 1].
///
/// A score measures the amount of the property that the rubric is named after. A high toxicity
/// score is therefore bad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rubric {
    /// The name in records and tables.
    pub name: String,
    /// The version of the text. Records and cache keep scores of different versions apart. Defaults
    /// to a hash of the text, also if a file edits a shipped rubric and keeps its version.
    #[serde(default)]
    pub version: u32,
    /// Whether a higher or a lower score is better.
    #[serde(default, skip_serializing_if = "Better::is_more")]
    pub better: Better,
    /// Whether its mean is a column of the methods table. A rubric that belongs to no objective
    /// always is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub column: bool,
    /// The scale on which a model answers. Defaults to that of the judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// The directory of the preference model with which an offline judge answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The question.
    pub criterion: String,
    /// What the lowest score means.
    pub low: String,
    /// What the middle of the scale means.
    pub middle: String,
    /// What the highest score means.
    pub high: String,
}

impl Rubric {
    /// Returns the name in prose: `epistemic honesty` for `epistemic_honesty`.
    pub fn label(&self) -> String {
        self.name.replace('_', " ")
    }

    /// Returns whether its name and version are those of a shipped rubric and its text is not.
    fn is_edited(&self) -> bool {
        let mut shipped = [Objectives::hhh(), Objectives::offline()].into_iter().flat_map(|shipped| &shipped.rubrics);
        let named = |own: &Rubric| own.name == self.name && own.version == self.version;
        shipped.any(|own| named(own) && own.fingerprint() != self.fingerprint())
    }

    /// Returns 32 bits of the SHA-256 of everything that a judge is shown.
    fn fingerprint(&self) -> u32 {
        let scale = self.scale.map_or_else(String::new, |scale| scale.to_string());
        let text = [&self.criterion, &self.low, &self.middle, &self.high, &scale].map(String::as_str).join("\n");
        Sha256::digest(text).iter().take(4).fold(0, |number, &byte| number << 8 | u32::from(byte))
    }
}

/// Which end of a rubric's scale is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// High scores are better.
    #[default]
    More,
    /// Low scores are better.
    Less,
}

impl Better {
    fn is_more(&self) -> bool {
        *self == Self::More
    }
}

/// The scores of one response.
#[derive(Debug, Clone, PartialEq)]
pub struct Scores {
    /// The judge's scores, in the order of [`Objectives::rubrics`]; `None` for a rubric without an
    /// answer.
    pub rubrics: Vec<Option<f64>>,
    /// The objective scores, in the order of [`Objectives::objectives`]; NaN for an objective
    /// without an answer.
    pub objectives: Vec<f64>,
}

impl Scores {
    /// Returns whether at least one rubric was answered.
    pub fn is_judged(&self) -> bool {
        self.rubrics.iter().any(Option::is_some)
    }

    /// Returns the objective scores, or `None` if one of them is missing.
    pub fn complete(&self) -> Option<&[f64]> {
        self.objectives.iter().all(|score| !score.is_nan()).then_some(&self.objectives)
    }
}

impl Objectives {
    /// Returns the objectives of the paper: quality, safety and honesty over eight rubrics. Refusal
    /// is a separate rubric, since refusing everything would maximise safety.
    pub fn hhh() -> &'static Self {
        static HHH: LazyLock<Objectives> = LazyLock::new(|| shipped(include_str!("../objectives/hhh.toml")));
        &HHH
    }

    /// Returns the objectives that the shipped preference models answer: one rubric for each
    /// objective of [`hhh`](Self::hhh).
    pub fn offline() -> &'static Self {
        static OFFLINE: LazyLock<Objectives> = LazyLock::new(|| shipped(include_str!("../objectives/offline.toml")));
        &OFFLINE
    }

    /// Reads an objectives file.
    ///
    /// # Errors
    /// If the file cannot be read or does not describe objectives. The error names the file and the
    /// line or entry.
    pub fn read(path: &Path) -> Result<Self, ObjectivesError> {
        let text = sk_scheme::text::read(path).map_err(|source| ObjectivesError::Read { path: path.to_owned(), source })?;
        Self::of_file(path, &text)
    }

    /// As [`read`](Self::read), for the text of the file.
    ///
    /// # Errors
    /// If the text does not describe objectives. The error names the file and the line or entry.
    pub fn of_file(path: &Path, text: &str) -> Result<Self, ObjectivesError> {
        let read = Self::located(text);
        let mut read = read.map_err(|(line, reason)| ObjectivesError::Invalid { path: path.to_owned(), line, reason })?;
        for rubric in read.rubrics.iter_mut().filter(|rubric| rubric.is_edited()) {
            rubric.version = rubric.fingerprint();
        }
        Ok(read)
    }

    /// Reads objectives from TOML.
    ///
    /// # Errors
    /// If the text is not TOML or has no objective or rubric, or if an entry lacks a field, has an
    /// unknown or empty one, shares its name with another entry or a column of tables, or refers to an
    /// entry twice or to one that does not exist. The error names the line or the entry.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::located(text).map_err(|(line, reason)| if line == 0 { reason } else { format!("line {line}: {reason}") })
    }

    /// Reads objectives from TOML. An error has the line, or 0 if it is of the file as a whole.
    fn located(text: &str) -> Result<Self, (usize, String)> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = |start: usize| text.bytes().take(start).filter(|&byte| byte == b'\n').count();
            (error.span().map_or(0, |span| 1 + before(span.start)), fault(error.message()))
        })
    }

    fn check(&self) -> Result<(), String> {
        if self.objectives.is_empty() {
            return Err("it has no objective; add [[objectives]] with a name".to_owned());
        }
        if self.rubrics.is_empty() {
            return Err("it has no rubric; add [[rubrics]] with the name of the objective and a text".to_owned());
        }
        let blades: Vec<&str> =
            self.blades.iter().flat_map(|blade| std::iter::once(&blade.name).chain(&blade.aliases)).map(String::as_str).collect();
        let rubrics: Vec<&str> = self.rubrics.iter().map(|rubric| rubric.name.as_str()).collect();
        let objectives: Vec<&str> = self.objectives.iter().map(|objective| objective.name.as_str()).collect();
        for (entry, names) in [("blades", &blades), ("objectives", &objectives), ("rubrics", &rubrics)] {
            for (i, name) in names.iter().enumerate() {
                if name.is_empty() {
                    return Err(format!("[[{entry}]] has an empty name"));
                }
                if names[..i].contains(name) {
                    return Err(format!("[[{entry}]] names \"{name}\" twice; give each a name of its own"));
                }
            }
        }
        if let Some(name) = rubrics.iter().find(|name| is_column(name)) {
            return Err(format!(
                "[[rubrics]] names \"{name}\", which is a column of the table of judgements; choose another name"
            ));
        }
        for Rubric { name, criterion, low, middle, high, .. } in &self.rubrics {
            for (field, text) in [("criterion", criterion), ("low", low), ("middle", middle), ("high", high)] {
                if text.trim().is_empty() {
                    return Err(format!("{field} of rubric \"{name}\" is empty; the judge needs its text"));
                }
            }
        }
        let is_heading = |name: &&&str| HEADINGS.contains(name) || name.to_lowercase().starts_with("f1");
        if let Some(name) = objectives.iter().find(is_heading) {
            return Err(format!("[[objectives]] names \"{name}\", which is a heading in the report; choose another name"));
        }
        let by_itself = |name: &&str| self.objective_of(name).is_none();
        let by_itself: Vec<&str> = rubrics.iter().copied().filter(by_itself).collect();
        if let Some(name) = objectives.iter().chain(&by_itself).find(|name| SUMMARY.contains(name)) {
            return Err(format!("\"{name}\" is a field of the summary of judgements; choose another name"));
        }
        if let Some(name) = by_itself.iter().find(|name| objectives.contains(name)) {
            return Err(format!("[[rubrics]] names \"{name}\", an objective that does not include it; choose another name"));
        }
        let columns = self.rubrics.iter().filter(|rubric| rubric.column);
        if let Some(rubric) =
            columns.clone().find(|rubric| rubric.label() != rubric.name && objectives.contains(&&*rubric.label()))
        {
            let (name, label) = (&rubric.name, rubric.label());
            return Err(format!(
                "[[rubrics]] \"{name}\" and the objective \"{label}\" have one heading in the report; choose another name"
            ));
        }
        for objective in &self.objectives {
            for (i, name) in objective.rubrics.iter().enumerate() {
                if !rubrics.contains(&name.as_str()) {
                    let hint = suggest::hint(name, &rubrics);
                    return Err(format!("objective \"{}\" names an unknown rubric \"{name}\"; {hint}", objective.name));
                }
                if objective.rubrics[..i].contains(name) {
                    return Err(format!("objective \"{}\" names rubric \"{name}\" twice", objective.name));
                }
            }
        }
        Ok(())
    }

    /// Returns the index of the named rubric in [`rubrics`](Self::rubrics).
    pub fn rubric(&self, name: &str) -> Option<usize> {
        self.rubrics.iter().position(|rubric| rubric.name == name)
    }

    /// Returns the objectives that include the named rubric.
    pub fn of_rubric<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Objective> {
        self.objectives.iter().filter(move |objective| objective.rubrics.iter().any(|own| own == name))
    }

    /// Returns the first objective that includes the named rubric.
    pub fn objective_of<'a>(&'a self, rubric: &'a str) -> Option<&'a Objective> {
        self.of_rubric(rubric).next()
    }

    /// Returns the first objective that the named blade steers.
    pub fn of_blade(&self, name: &str) -> Option<&Objective> {
        let blade = self.blades.iter().find(|blade| blade.is_called(name))?;
        self.objectives.iter().find(|objective| objective.blade() == blade.name)
    }

    /// Computes the scores of a response from its rubric scores, given in the order of
    /// [`rubrics`](Self::rubrics).
    ///
    /// An objective is the mean of its rubrics, where s is replaced by 1 − s for a rubric of which
    /// less is better. Rubrics without an answer are left out of the mean; nothing is imputed.
    pub fn scores(&self, rubrics: Vec<Option<f64>>) -> Scores {
        let of = |better: Better, names: &[String]| {
            let mean = |(sum, n): (f64, usize), score: f64| (sum + score, n + 1);
            let own = self.rubrics.iter().zip(&rubrics).filter(|(rubric, _)| rubric.better == better);
            let own = own.filter(|(rubric, _)| names.contains(&rubric.name));
            own.filter_map(|(_, score)| *score).fold((0.0, 0), mean)
        };
        let objective = |objective: &Objective| {
            let (more, n) = of(Better::More, &objective.rubrics);
            let (less, m) = of(Better::Less, &objective.rubrics);
            match (n, m) {
                (_, 0) => more / n as f64,
                (0, _) => 1.0 - less / m as f64,
                _ => (more + (m as f64 - less)) / (n + m) as f64,
            }
        };
        let objectives = self.objectives.iter().map(objective).collect();
        Scores { rubrics, objectives }
    }

    /// Returns the formula of each objective: `safety = 1 − mean(toxicity, harmfulness)`.
    pub fn definitions(&self) -> Vec<String> {
        let define = |objective: &Objective| {
            let own = || self.rubrics.iter().filter(|rubric| objective.rubrics.contains(&rubric.name));
            let all_less = own().all(|rubric| rubric.better == Better::Less);
            let term = |rubric: &Rubric| match rubric.better {
                Better::Less if !all_less => format!("1 − {}", rubric.label()),
                _ => rubric.label(),
            };
            let terms = own().map(term).collect::<Vec<_>>().join(", ");
            format!("{} = {}mean({terms})", objective.name, if all_less { "1 − " } else { "" })
        };
        self.objectives.iter().map(define).collect()
    }

    /// Returns whether the rubric at this index is the only rubric of the objective of its name.
    pub(crate) fn is_objective(&self, place: usize) -> bool {
        let name = &self.rubrics[place].name;
        self.objectives.iter().any(|objective| objective.name == *name && objective.rubrics == [name.as_str()])
    }

    /// Returns the indices of the rubrics whose means are columns of the methods table. A rubric
    /// that is an objective by itself is none of them: the table has the objective.
    pub fn columns(&self) -> Vec<usize> {
        let shown = |&place: &usize| {
            let rubric = &self.rubrics[place];
            !self.is_objective(place) && (rubric.column || self.objective_of(&rubric.name).is_none())
        };
        (0..self.rubrics.len()).filter(shown).collect()
    }

    /// Returns the names of the objectives.
    pub fn names(&self) -> Vec<&str> {
        self.objectives.iter().map(|objective| objective.name.as_str()).collect()
    }
}

/// Returns the message of a TOML error with a hint, on one line.
fn fault(message: &str) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.rsplit_once("`, expected "));
    match unknown {
        // The known fields are in backquotes.
        Some((name, known)) => {
            format!("unknown field \"{name}\"; {}", suggest::hint(name, known.split('`').skip(1).step_by(2)))
        }
        None if message == "invalid type: map, expected a sequence" => {
            "a single table where a list belongs; write double brackets, such as [[objectives]]".to_owned()
        }
        None => message.replace("expected u32", "expected a whole number"),
    }
}

/// Reads names of which there is at least one.
fn names<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::deserialize(deserializer)?;
    let none = "rubrics is empty; leave it out for the rubric of the same name";
    if names.is_empty() { Err(serde::de::Error::custom(none)) } else { Ok(names) }
}

/// The reason why an objectives file was rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum ObjectivesError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The file does not describe objectives. Line 0 stands for the file as a whole.
    #[error("{}{}: {reason}", path.display(), if *line == 0 { String::new() } else { format!(":{line}") })]
    Invalid { path: PathBuf, line: usize, reason: String },
}
