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
    /// Composite scores of the candidates; `None` where the records say NaN, as they do of some batches of one.
    pub candidate_mus: Vec<Option<f64>>,
    /// Per blade of positive weight, the standard deviation (n − 1) of its raw scores in the batch.
    pub raw_blade_mu_stds: BTreeMap<String, f64>,
    /// Scale of the tournament term of the champion's logit over that of the blade term.
    pub logit_scale_ratio: f64,
    /// The candidate that was drawn.
    pub selected_idx: usize,
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
