//! Replay of a trace with other arms, without a model.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use sk_core::{ArmTrace, Batch, Decision, ScoreError, ScoreTable, ScoreTrace, Selector, SpanEnd, StepError, TokenId};

use super::PlannedArm;
use super::step::{Distributions, PoolStep};
use crate::Error;
use crate::explain::shorten;
use crate::scheme::{BladeSpec, DispersionArm, NamedWeights, SchemeSpec};
use sk_report::record::{RecordError, json_lines};

/// Tolerance for the sum of recorded probabilities, which were rounded to decimal notation.
const MASS: f64 = 1e-6;

/// The steps of a trace.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    steps: Vec<(u64, RecordedStep)>,
}

#[derive(Debug, Deserialize)]
struct RecordedStep {
    /// The cell in the trace of a sweep, which begins with the name of its scheme.
    id: Option<String>,
    #[serde(default)]
    turn: usize,
    step: usize,
    position: Option<usize>,
    candidates: Vec<RecordedCandidate>,
    blades: Vec<ScoreTrace>,
    fluency: Option<Vec<f64>>,
    #[serde(flatten)]
    decision: Decision,
    /// Number of candidates before truncation, if not all were recorded.
    n: Option<usize>,
}

#[derive(Debug, Deserialize)]
struct RecordedCandidate {
    text: String,
    /// Every candidate of a trace has tokens, although a replay does not need them.
    #[serde(rename = "tokens")]
    _tokens: Vec<TokenId>,
    end: SpanEnd,
    scored: Option<usize>,
}

impl Recording {
    /// Reads a trace.
    ///
    /// # Errors
    /// If the file cannot be read, or a line is not a complete step. The error gives the line.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |line, reason: String| RecordError::line(path, line, reason);
        let mut steps = Vec::new();
        for read in json_lines::<RecordedStep>(path, "it is not a step of a trace: ")? {
            let (line, step) = read?;
            step.check().map_err(|reason| wrong(line, reason))?;
            steps.push((line, step));
        }
        if steps.is_empty() {
            return Err(wrong(1, "the trace has no steps".to_owned()).into());
        }
        let schemes = || steps.iter().filter_map(|(line, step)| Some((line, step.id.as_ref()?.split('/').next()?)));
        let first = schemes().next();
        if let Some((line, other)) = schemes().find(|(_, scheme)| first.is_some_and(|(_, first)| first != *scheme)) {
            let first = first.map_or("", |(_, first)| first);
            let reason = format!("it has steps of the schemes \"{first}\" and \"{other}\"; replay those of one scheme");
            return Err(wrong(*line, reason).into());
        }
        Ok(Self { path: path.to_owned(), steps })
    }

    /// Returns, for each step, the recorded choice of `driver` and the choices of the arms, with
    /// the distributions of all arms over all candidates.
    ///
    /// The arms draw with the midpoint of the uniform numbers that lead to the recorded choice. The
    /// weights are the given ones, or else those of the arm's file, or else the recorded ones.
    ///
    /// # Errors
    /// If an arm needs data that the trace does not have.
    pub fn replay(
        &self,
        driver: &str,
        arms: &[PlannedArm],
        weights: Option<&NamedWeights>,
    ) -> Result<Vec<(PoolStep, Distributions)>, Error> {
        let mut choices: Vec<Vec<ArmTrace>> = vec![Vec::new(); self.steps.len()];
        for arm in arms {
            let operators = arm.config.operators().map_err(|error| Error::from(error).within(format!("arm \"{}\"", arm.name)))?;
            for ((line, step), choices) in self.steps.iter().zip(&mut choices) {
                let wrong = |reason: String| RecordError::line(&self.path, *line, reason);
                let (blades, fluency) = step.scores(arm, weights, &*operators.selector).map_err(wrong)?;
                let decided = || {
                    let table = table(&blades).map_err(StepError::Scores)?;
                    let weights: Vec<f64> = blades.iter().map(|blade| blade.weight).collect();
                    operators.decide(&table, &weights, fluency.as_deref(), step.uniform(), None)
                };
                let decision = decided().map_err(|error| {
                    let what = format!("{}:{line}: arm \"{}\"", self.path.display(), arm.name);
                    Error::from(error).within(what)
                })?;
                choices.push(ArmTrace { name: arm.name.clone(), blades, fluency, decision });
            }
        }
        let steps = self.steps.iter().zip(&choices).map(|((_, step), choices)| {
            PoolStep::of((step.turn, step.step), driver, &step.decision, choices, |index| {
                let candidate = &step.candidates[index];
                (shorten(&candidate.text, candidate.end), candidate.text.clone())
            })
        });
        Ok(steps.collect())
    }
}

impl RecordedStep {
    fn check(&self) -> Result<(), String> {
        let n = self.candidates.len();
        if let Some(all) = self.n.filter(|all| *all != n) {
            return Err(format!(
                "{n} of {all} candidates were kept, and arms cannot choose among the rest; a trace of `arms` keeps all of them"
            ));
        }
        if let Some(index) = self.candidates.iter().position(|candidate| candidate.scored.is_some()) {
            return Err(format!("candidate {index} was dropped in a race, and arms cannot choose it"));
        }
        let Decision { mu, sigma, ratings, probabilities, chosen, .. } = &self.decision;
        let columns = [("mu", mu), ("sigma", sigma), ("ratings", ratings), ("probabilities", probabilities)];
        let scores =
            self.blades.iter().flat_map(|blade| [("scores of a blade", &blade.mu), ("dispersions of a blade", &blade.sigma)]);
        let fluency = self.fluency.iter().map(|fluency| ("fluency", fluency));
        if let Some((what, values)) = columns.into_iter().chain(scores).chain(fluency).find(|(_, values)| values.len() != n) {
            return Err(format!("{} {what} for {n} candidates", values.len()));
        }
        if *chosen >= n {
            return Err(format!("candidate {chosen} is chosen of {n}"));
        }
        let batch = Batch::new(mu, sigma).map_err(|error| error.to_string())?;
        if self.blades.is_empty() {
            return Err("the step has no scores of blades".to_owned());
        }
        if let Some(ScoreTrace { name, weight, .. }) = self.blades.iter().find(|blade| blade.weight < 0.0) {
            return Err(format!("blade \"{name}\" has the weight {weight}; weights are not negative"));
        }
        table(&self.blades).map_err(|error| error.to_string())?;
        if let Some(fluency) = &self.fluency {
            batch.with_fluency(fluency).map_err(|error| error.to_string())?;
        }
        let mass: f64 = probabilities.iter().sum();
        if probabilities.iter().any(|p| !(0.0..=1.0 + MASS).contains(p)) || (mass - 1.0).abs() > MASS {
            return Err(format!("probabilities sum to {mass}, and replay needs all candidates; record the trace with `arms`"));
        }
        Ok(())
    }

    /// Returns the midpoint of the uniform numbers that lead to the recorded choice.
    fn uniform(&self) -> f64 {
        let Decision { probabilities, chosen, .. } = &self.decision;
        let before: f64 = probabilities[..*chosen].iter().sum();
        (before + 0.5 * probabilities[*chosen]) / probabilities.iter().sum::<f64>()
    }

    /// Returns the recorded scores, adapted to the blades of an arm.
    fn scores(
        &self,
        arm: &PlannedArm,
        weights: Option<&NamedWeights>,
        selector: &dyn Selector,
    ) -> Result<(Vec<ScoreTrace>, Option<Vec<f64>>), String> {
        let config = &arm.config;
        let recorded = || self.blades.iter().map(|blade| blade.name.as_str()).collect::<Vec<_>>().join(", ");
        let lacks = |name: &str| {
            format!("arm \"{}\" looks at blade \"{name}\", which has no scores here; there are: {}", arm.name, recorded())
        };
        let is_recorded = |name: &str| self.blades.iter().any(|blade| blade.name == name);
        let weighed = config.blades.iter();
        let looked_at = selector.blades();
        let named = weights.iter().flat_map(|weights| weights.names().filter(|name| weights.of(name) > 0.0));
        let names = weighed.map(|blade| blade.name.as_str()).chain(looked_at.iter().map(|name| &**name)).chain(named);
        if let Some(missing) = names.into_iter().find(|name| !is_recorded(name)) {
            return Err(lacks(missing));
        }
        let own_weights = config.blades.iter().any(|blade| blade.weight.is_some());
        let mut blades = Vec::new();
        for blade in &self.blades {
            let Some(seated) = seated(config, &blade.name) else { continue };
            let weight = match weights {
                Some(weights) => weights.of(&blade.name),
                None if own_weights => seated.weight.unwrap_or(0.0),
                None => blade.weight,
            };
            let dealt = seated.arm == DispersionArm::Shuffled && !seated.is_certain();
            let position = match self.position {
                Some(position) => position,
                None if dealt => {
                    return Err(format!(
                        "arm \"{}\" shuffles dispersions depending on the context length, which the trace lacks; record a new trace",
                        arm.name
                    ));
                }
                None => 0,
            };
            let sigma = seated.ablated(&blade.sigma, position as u64);
            blades.push(ScoreTrace { name: blade.name.clone(), weight, mu: blade.mu.clone(), sigma });
        }
        if !blades.iter().any(|blade| blade.weight > 0.0) {
            return Err(format!("arm \"{}\" has no blade of positive weight here; there are: {}", arm.name, recorded()));
        }
        blades.retain(|blade| blade.weight > 0.0 || looked_at.iter().any(|name| **name == *blade.name));
        let fluent = config.fluency.is_some();
        match (&self.fluency, fluent) {
            (None, true) => Err(format!("arm \"{}\" looks at the fluency of candidates, which is not recorded", arm.name)),
            (fluency, _) => Ok((blades, fluency.clone().filter(|_| fluent))),
        }
    }
}

/// Returns the scores of the blades, with their names.
fn table(blades: &[ScoreTrace]) -> Result<ScoreTable, ScoreError> {
    let table = ScoreTable::new(blades.iter().map(|blade| (&blade.mu, &blade.sigma)))?;
    table.with_names(blades.iter().map(|blade| blade.name.as_str()))
}

/// Returns the blade with this name, or else the template.
fn seated<'c>(config: &'c SchemeSpec, name: &str) -> Option<&'c BladeSpec> {
    config.blades.iter().find(|blade| blade.name == name).or(config.template.as_ref())
}
