//! Test–retest agreement: how much a judge's score of the same response varies between passes.

use std::collections::HashMap;

use serde::Serialize;

use super::Objectives;
use super::run::Answer;
use sk_report::stats::pearson;

/// Agreement of two passes on one rubric.
///
/// A response counts if both passes gave it a score; abstentions are excluded pairwise and counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agreement {
    /// The rubric.
    pub rubric: String,
    /// Responses with two scores.
    pub pairs: usize,
    /// Responses that lack a score in at least one pass.
    pub excluded: usize,
    /// Pearson correlation; `None` if a pass gave all responses the same score, or there are fewer
    /// than two pairs.
    pub pearson: Option<f64>,
    /// Mean of |second − first|; `None` without pairs.
    pub mean_absolute_change: Option<f64>,
    /// Mean of second − first; `None` without pairs.
    pub mean_change: Option<f64>,
    /// Share of pairs with exactly the same score; `None` without pairs.
    pub unchanged: Option<f64>,
}

impl Agreement {
    /// Returns the agreement of paired scores.
    pub fn of(rubric: &str, pairs: &[(f64, f64)], excluded: usize) -> Self {
        let mean = |value: &dyn Fn(&(f64, f64)) -> f64| {
            (!pairs.is_empty()).then(|| pairs.iter().map(value).sum::<f64>() / pairs.len() as f64)
        };
        let (first, second): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        Self {
            rubric: rubric.to_owned(),
            pairs: pairs.len(),
            excluded,
            pearson: pearson(&first, &second),
            mean_absolute_change: mean(&|(first, second)| (second - first).abs()),
            mean_change: mean(&|(first, second)| second - first),
            unchanged: mean(&|(first, second)| f64::from(u8::from(first == second))),
        }
    }
}

/// Returns the agreement of the first two passes on each rubric, in the order of `objectives`,
/// followed by other rubrics sorted by name.
pub fn agreement(objectives: &Objectives, answers: &[Answer<'_>]) -> Vec<Agreement> {
    let mut rubrics: Vec<&str> = Vec::new();
    let mut cells: HashMap<(&str, &str), [Option<f64>; 2]> = HashMap::new();
    for Answer { response, rubric, pass, score } in answers.iter().filter(|answer| answer.pass < 2) {
        if !rubrics.contains(&rubric.name.as_str()) {
            rubrics.push(&rubric.name);
        }
        cells.entry((&rubric.name, &response.id)).or_default()[*pass as usize] = *score;
    }
    let row = |rubric: &str| {
        let (mut pairs, mut excluded) = (Vec::new(), 0);
        for (_, scores) in cells.iter().filter(|((of, _), _)| *of == rubric) {
            match scores {
                [Some(first), Some(second)] => pairs.push((*first, *second)),
                _ => excluded += 1,
            }
        }
        // Sort, so that sums do not depend on the order of the hash table.
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        Agreement::of(rubric, &pairs, excluded)
    };
    rubrics.sort_unstable_by_key(|name| (objectives.rubric(name).unwrap_or(usize::MAX), *name));
    rubrics.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Response, Rubric};

    /// Rounding of sums of a few numbers near one.
    const ROUNDING: f64 = 1e-12;

    #[test]
    fn worked_by_hand() {
        // x̄ = .5, ȳ = .5; dx = (−.5, 0, .5), dy = (−.5, .25, .25): xy = .375, xx = .5, yy = .375;
        // r = .375/√.1875 = .8660.
        let agreement = Agreement::of("toxicity", &[(0.0, 0.0), (0.5, 0.75), (1.0, 0.75)], 2);
        assert!((agreement.pearson.unwrap() - 0.75_f64.sqrt()).abs() < ROUNDING);
        assert!((agreement.mean_absolute_change.unwrap() - 0.5 / 3.0).abs() < ROUNDING);
        assert!(agreement.mean_change.unwrap().abs() < ROUNDING);
        assert!((agreement.unchanged.unwrap() - 1.0 / 3.0).abs() < ROUNDING);
        assert_eq!((agreement.pairs, agreement.excluded), (3, 2));
    }

    #[test]
    fn rubrics_are_in_the_order_of_the_objectives() {
        let response: Response = serde_json::from_str(r#"{"id": "a", "prompt": "", "response": ""}"#).unwrap();
        let named = |name: &str| Rubric { name: name.to_owned(), ..Objectives::hhh().rubrics[0].clone() };
        let rubrics = ["fluency", "harmfulness", "brevity", "relevance"].map(named);
        let answer = |rubric| [0, 1].map(|pass| Answer { response: &response, rubric, pass, score: Some(0.5) });
        let mut answers: Vec<Answer<'_>> = rubrics.iter().flat_map(answer).collect();
        let order =
            |answers: &[Answer<'_>]| agreement(Objectives::hhh(), answers).into_iter().map(|row| row.rubric).collect::<Vec<_>>();
        assert_eq!(order(&answers), ["relevance", "harmfulness", "brevity", "fluency"]);
        answers.reverse();
        assert_eq!(order(&answers), ["relevance", "harmfulness", "brevity", "fluency"]);
    }

    #[test]
    fn undefined_figures_are_none() {
        assert_eq!(Agreement::of("refusal", &[(0.1, 0.2), (0.1, 0.3)], 0).pearson, None);
        assert_eq!(Agreement::of("refusal", &[(0.1, 0.2)], 0).pearson, None);
        let empty = Agreement::of("refusal", &[], 3);
        assert_eq!((empty.pearson, empty.mean_absolute_change, empty.unchanged), (None, None, None));
    }
}
