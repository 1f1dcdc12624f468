//! Judging of the candidates of recorded steps, and the informativeness of blade scores and
//! dispersions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sk_blades::spearman;
use sk_core::{Deviation, Moments, ScoreTrace};
use sk_report::objectives::{Better, Objective};
use sk_report::record::{RecordError, read_records, read_steps, traces_beside};
use sk_report::stats::{Bootstrap, Clusters};

use super::run::Answer;
use super::{JudgeError, Objectives, Response, Rubric};

/// Minimum number of candidates of a step for rank correlations.
const FEWEST: usize = 3;

/// Number of bootstrap resamples of the prompts, and their seed.
const RESAMPLES: usize = 10_000;
const SEED: u64 = 42;

/// The fields of a recorded step that are used.
#[derive(Deserialize)]
struct StepLine {
    id: String,
    step: usize,
    /// Number of candidates of the step, including those that were not recorded.
    n: usize,
    candidates: Vec<Text>,
    blades: Vec<ScoreTrace>,
    chosen: usize,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

/// The candidates of a step.
#[derive(Debug)]
pub struct StepCandidates {
    scheme: String,
    prompt_id: String,
    /// The positions of its candidates among the responses.
    responses: std::ops::Range<usize>,
    blades: Vec<ScoreTrace>,
}

/// Reads the candidates of the steps of a sweep. Each candidate becomes a response: the text so
/// far, followed by the candidate. Also returns the steps.
///
/// Skips steps with fewer than three candidates, and steps of which only some candidates were
/// recorded.
///
/// # Errors
/// If a file cannot be read, a line is invalid, or no step is left.
pub fn read_candidates(path: &Path) -> Result<(Vec<Response>, Vec<StepCandidates>), JudgeError> {
    let records = read_records(path)?;
    let without = |path: &Path, reason: &str| {
        let cure = "run a sweep that keeps its traces, with at least three candidates a step";
        JudgeError::Invalid(format!("{}: {reason}; {cure}", path.display()))
    };
    let traces = traces_beside(path)?.ok_or_else(|| without(path, "there is no file of traces beside it"))?;
    let mut written: HashMap<String, String> = HashMap::new();
    let (mut responses, mut steps) = (Vec::new(), Vec::new());
    for read in read_steps::<StepLine>(&traces, &records)? {
        let (line, record, step) = read?;
        let wrong = |reason: String| RecordError::line(&traces, line, reason);
        if step.id != record.id {
            continue;
        }
        let chosen = step.candidates.get(step.chosen).ok_or_else(|| wrong(format!("it has no candidate {}", step.chosen)))?;
        let of_step = |scores: &Vec<f64>| scores.len() == step.candidates.len();
        if step.blades.iter().any(|blade| !of_step(&blade.mu) || !of_step(&blade.sigma)) {
            return Err(wrong("a blade has not as many scores as there are candidates".to_owned()).into());
        }
        let before = written.entry(step.id.clone()).or_default();
        if step.n == step.candidates.len() && step.n >= FEWEST {
            let first = responses.len();
            responses.extend(step.candidates.iter().enumerate().map(|(i, candidate)| Response {
                id: format!("{}#{}.{i}", step.id, step.step),
                response: format!("{before}{}", candidate.text),
                ..Response::from(record)
            }));
            let (scheme, prompt_id) = (record.scheme.clone(), record.prompt_id.clone());
            steps.push(StepCandidates { scheme, prompt_id, responses: first..responses.len(), blades: step.blades });
        }
        before.push_str(&chosen.text);
    }
    if steps.is_empty() {
        return Err(without(&traces, "no step has at least three candidates that were all recorded"));
    }
    Ok((responses, steps))
}

/// A mean over steps, with its 95 % bootstrap interval over prompts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The interval: percentiles of 10,000 resamples of the prompts. `None` if there is only one
    /// prompt.
    pub interval: Option<[f64; 2]>,
}

/// The informativeness of a blade's scores about a rubric, over the steps of a scheme.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Informativeness {
    /// The scheme.
    pub scheme: String,
    /// The blade.
    pub blade: String,
    /// The rubric.
    pub rubric: String,
    /// Number of steps in which ranks can be compared.
    pub steps: usize,
    /// Number of prompts of those steps.
    pub prompts: usize,
    /// Spearman's r_s(μ, q) within a step.
    pub score: Estimate,
    /// Spearman's r_s(σ, |μ̂ − q̂|) within a step, where the hat standardises within the step: its
    /// magnitude is 𝓘(σ).
    pub dispersion: Estimate,
}

/// A scheme, a blade and a rubric.
type Combination<'a> = (&'a str, &'a str, &'a str);

/// The rank correlations of a blade's scores with a rubric in one step.
struct Ranks<'a> {
    prompt: &'a str,
    score: f64,
    dispersion: f64,
}

/// Computes 𝓘(σ) of each scheme's blades against the judge's scores (`def:info`).
///
/// q is the judge's score, negated if less of the rubric is better. q and μ have different units,
/// so both are standardised within the step before they are compared. A blade is compared with the
/// rubrics of its name, of the objectives that it steers or that have its name, and of the model of
/// its name, or with all rubrics if there is none. A step counts for a rubric if the judge scored
/// all of its candidates and none of μ, σ, q and the error is constant.
pub fn informativeness(
    steps: &[StepCandidates],
    responses: &[Response],
    answers: &[Answer<'_>],
    objectives: &Objectives,
) -> Vec<Informativeness> {
    let sign = |rubric: &Rubric| if rubric.better == Better::Less { -1.0 } else { 1.0 };
    let mut scores: HashMap<(&str, &str), f64> = HashMap::new();
    for Answer { response, rubric, score, .. } in answers {
        if let Some(score) = score {
            scores.insert((&response.id, &rubric.name), sign(rubric) * score);
        }
    }
    let rubrics: BTreeSet<&str> = answers.iter().map(|answer| answer.rubric.name.as_str()).collect();
    let mut found: BTreeMap<Combination<'_>, Vec<Ranks<'_>>> = BTreeMap::new();
    for step in steps {
        for blade in &step.blades {
            for rubric in of_blade(&blade.name, &rubrics, objectives) {
                let quality =
                    responses[step.responses.clone()].iter().map(|response| scores.get(&(response.id.as_str(), rubric)).copied());
                let Some(quality) = quality.collect::<Option<Vec<f64>>>() else { continue };
                if let Some((score, dispersion)) = ranks(blade, &quality) {
                    let ranks = Ranks { prompt: &step.prompt_id, score, dispersion };
                    found.entry((&step.scheme, &blade.name, rubric)).or_default().push(ranks);
                }
            }
        }
    }
    let row = |((scheme, blade, rubric), steps): (Combination<'_>, Vec<Ranks<'_>>)| {
        let prompts: Vec<&str> = steps.iter().map(|ranks| ranks.prompt).collect();
        let scores: Vec<f64> = steps.iter().map(|ranks| ranks.score).collect();
        let dispersions: Vec<f64> = steps.iter().map(|ranks| ranks.dispersion).collect();
        Informativeness {
            scheme: scheme.to_owned(),
            blade: blade.to_owned(),
            rubric: rubric.to_owned(),
            steps: steps.len(),
            prompts: Clusters::of(&scores, &prompts).len(),
            score: Estimate::by_prompt(&scores, &prompts),
            dispersion: Estimate::by_prompt(&dispersions, &prompts),
        }
    };
    found.into_iter().map(row).collect()
}

impl Estimate {
    fn by_prompt(values: &[f64], prompts: &[&str]) -> Self {
        let bootstrap = Bootstrap::of_clustered_mean(&Clusters::of(values, prompts), RESAMPLES, SEED);
        let interval = bootstrap.percentile(0.95);
        let interval = (!interval.low.is_nan()).then_some([interval.low, interval.high]);
        Self { mean: bootstrap.estimate(), interval }
    }
}

/// Returns the rubrics that a blade is compared with.
fn of_blade<'r>(blade: &str, rubrics: &BTreeSet<&'r str>, objectives: &Objectives) -> Vec<&'r str> {
    let steers = |objective: &Objective| {
        let mut own = objectives.blades.iter().filter(|known| known.name == objective.blade());
        objective.name == blade || own.any(|known| known.is_called(blade))
    };
    let is_called = |rubric: &str| {
        let model = |known: &&Rubric| known.name == rubric && known.model.as_deref() == Some(blade);
        rubric == blade || objectives.of_rubric(rubric).any(steers) || objectives.rubrics.iter().any(|known| model(&known))
    };
    let named: Vec<&str> = rubrics.iter().copied().filter(|rubric| is_called(rubric)).collect();
    if named.is_empty() { rubrics.iter().copied().collect() } else { named }
}

/// Returns r_s(μ, q) and r_s(σ, |μ̂ − q̂|), if none of the four is constant.
fn ranks(blade: &ScoreTrace, quality: &[f64]) -> Option<(f64, f64)> {
    let (mu, standard) = (standardized(&blade.mu)?, standardized(quality)?);
    let error: Vec<f64> = mu.iter().zip(&standard).map(|(mu, quality)| (mu - quality).abs()).collect();
    Some((spearman(&blade.mu, quality).ok()?, spearman(&blade.sigma, &error).ok()?))
}

fn standardized(values: &[f64]) -> Option<Vec<f64>> {
    let moments = Moments::of(values, Deviation::Sample);
    (moments.std() > 0.0).then(|| values.iter().map(|value| (value - moments.mean()) / moments.std()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(mu: [f64; 4], sigma: [f64; 4]) -> ScoreTrace {
        ScoreTrace { name: "b".to_owned(), weight: 1.0, mu: mu.to_vec(), sigma: sigma.to_vec() }
    }

    #[test]
    fn a_blade_is_compared_with_the_rubrics_of_the_objectives_that_it_steers() {
        let entry = |name: &str, blade: &str, rubric: &str| {
            format!(
                "[[objectives]]\nname = {name:?}\nblade = {blade:?}\nrubrics = [{rubric:?}]\n[[rubrics]]\nname = {rubric:?}\n\
                 criterion = \"?\"\nlow = \"a\"\nmiddle = \"b\"\nhigh = \"c\"\n"
            )
        };
        let text = entry("quality", "helpful", "useful")
            + &entry("safety", "harmless", "danger")
            + "[[blades]]\nname = \"harmless\"\naliases = [\"safe\"]\n";
        let objectives = Objectives::parse(&text).unwrap();
        let rubrics = BTreeSet::from(["danger", "useful"]);
        let own = |blade| of_blade(blade, &rubrics, &objectives);
        assert_eq!(["helpful", "harmless", "safe", "quality"].map(own), [["useful"], ["danger"], ["danger"], ["useful"]]);
        assert_eq!(own("other"), ["danger", "useful"]);
    }

    #[test]
    fn a_dispersion_that_orders_the_errors_has_rank_correlation_one() {
        // Standardised, μ is (-1.16, -0.39, 0.39, 1.16) and q the same but for the first and the
        // last.
        let quality = [0.3, 0.2, 0.5, 0.9];
        let mu = [1.0, 2.0, 3.0, 4.0];
        let (hats, qualities) = (standardized(&mu).unwrap(), standardized(&quality).unwrap());
        let error: Vec<f64> = hats.iter().zip(&qualities).map(|(a, b)| (a - b).abs()).collect();
        let sigma: [f64; 4] = error.clone().try_into().unwrap();
        let (score, dispersion) = ranks(&scores(mu, sigma), &quality).unwrap();
        assert!((score - 0.8).abs() < 1e-12 && (dispersion - 1.0).abs() < 1e-12, "{score} {dispersion}");
        let (_, dispersion) = ranks(&scores(mu, sigma.map(|sigma| 1.0 - sigma / 4.0)), &quality).unwrap();
        assert!((dispersion + 1.0).abs() < 1e-12, "{dispersion}");
        assert_eq!(ranks(&scores(mu, [1.0; 4]), &quality), None);
        assert_eq!(ranks(&scores(mu, sigma), &[0.5; 4]), None);
    }
}
