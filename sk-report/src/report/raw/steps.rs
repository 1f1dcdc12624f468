use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

use super::Source;
use crate::report::ReportError;

/// One generation step: a batch of candidates as the selection saw it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct CandidateStep {
    /// The arm of the normalisation ablation.
    pub arm: String,
    /// Composite scores of the candidates; `None` where the records say NaN, as they do of some
    /// batches of one.
    pub candidate_mus: Vec<Option<f64>>,
    /// Per blade of positive weight, the standard deviation (n − 1) of its raw scores in the batch.
    pub raw_blade_mu_stds: BTreeMap<String, f64>,
    /// Scale of the tournament term of the champion's logit over that of the blade term; none where
    /// it was not recorded.
    #[serde(default)]
    pub logit_scale_ratio: Option<f64>,
    /// The candidate that was drawn.
    pub selected_idx: usize,
    /// The probabilities it was drawn with; none where they were not recorded.
    #[serde(default)]
    pub probabilities: Option<Vec<f64>>,
    /// Tokens of all candidates; zero where they were not recorded.
    #[serde(default)]
    pub drafted: usize,
}

impl CandidateStep {
    /// Whether no candidate had a higher composite than the one drawn; `None` of a batch of one or
    /// without composites.
    pub fn drew_the_best(&self) -> Option<bool> {
        let composites = self.composites()?;
        let chosen = composites.get(self.selected_idx)?;
        Some(composites.iter().all(|mu| mu <= chosen))
    }

    /// How often a uniform draw would choose a candidate that no other exceeds; `None` as in
    /// [`drew_the_best`](Self::drew_the_best).
    pub fn best_by_chance(&self) -> Option<f64> {
        let composites = self.composites()?;
        let best = composites.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(composites.iter().filter(|&&mu| mu == best).count() as f64 / composites.len() as f64)
    }

    /// −Σ p ln p of the draw, in nats; `None` of a batch of one or without probabilities.
    pub fn entropy(&self) -> Option<f64> {
        let probabilities = self.probabilities.as_ref().filter(|all| all.len() > 1)?;
        Some(-probabilities.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln()).sum::<f64>())
    }

    /// The entropy over that of a uniform draw, ln N.
    pub fn relative_entropy(&self) -> Option<f64> {
        let n = self.probabilities.as_ref()?.len() as f64;
        self.entropy().map(|entropy| entropy / n.ln())
    }

    /// Composites of a batch with a choice, if all were recorded.
    fn composites(&self) -> Option<Vec<f64>> {
        self.candidate_mus.iter().copied().collect::<Option<Vec<f64>>>().filter(|all| all.len() > 1)
    }
}

/// Reads candidate steps: one JSON object per line.
pub(super) fn read(source: &Source) -> Result<Vec<CandidateStep>, ReportError> {
    let parse = |(i, line): (usize, &str)| {
        serde_json::from_str(&without_nan(line)).map_err(|error| ReportError::Json {
            path: source.path.clone(),
            line: i + 1,
            source: error,
        })
    };
    source.text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(parse).collect()
}

/// JSON has no NaN, but Python writes it; `null` stands for it here.
fn without_nan(line: &str) -> Cow<'_, str> {
    if !line.contains("NaN") {
        return Cow::Borrowed(line);
    }
    let mut clean = String::with_capacity(line.len());
    let mut quoted = false;
    for (i, part) in line.split('"').enumerate() {
        if i > 0 {
            clean.push('"');
        }
        // A quote behind a backslash does not end a string.
        clean.push_str(&if quoted { Cow::Borrowed(part) } else { Cow::Owned(part.replace("NaN", "null")) });
        quoted ^= !(quoted && part.ends_with('\\'));
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_becomes_null_outside_of_strings() {
        assert_eq!(
            without_nan(r#"{"a": NaN, "NaN": [NaN, 1], "b": "a \"NaN\" b", "c": NaN}"#),
            r#"{"a": null, "NaN": [null, 1], "b": "a \"NaN\" b", "c": null}"#
        );
        assert_eq!(without_nan("{}"), "{}");
    }
}
