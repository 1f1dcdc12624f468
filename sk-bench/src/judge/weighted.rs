//! Scores weighted by the model's own probabilities, as in G-Eval.

use serde::{Deserialize, Deserializer};

use super::Scale;
use super::answer::whole;

/// Minimum total probability of the scores of the scale. Below it, the model most likely meant to
/// write something else, and the mean is meaningless.
const LEAST_MASS: f64 = 0.5;

/// Amount by which probabilities may exceed one because of rounding in the server.
const ROUNDING: f64 = 0.01;

/// A token of an answer, with its most likely alternatives.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TokenLogprob {
    pub(super) token: String,
    #[serde(deserialize_with = "log_prob")]
    pub(super) logprob: f64,
    /// `None` is as good as an empty list.
    pub(super) top_logprobs: Option<Vec<Alternative>>,
}

/// A token and its log-probability in nats.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Alternative {
    pub(super) token: String,
    #[serde(deserialize_with = "log_prob")]
    pub(super) logprob: f64,
}

/// Deserializes a log-probability. Servers whose JSON has no infinity write null for −∞.
fn log_prob<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NEG_INFINITY))
}

/// Returns the mean score Σ s·p(s) / Σ p(s) over the scores s of the scale, at the token of the
/// score, and the total probability Σ p(s). Tokens that differ only in white space are added up.
///
/// The answer must be one whole number on the scale, in one token. Scores that are not among the
/// server's alternatives have probability zero.
///
/// # Errors
/// If the answer has no valid score. The error is the reason.
pub(super) fn expectation(tokens: &[TokenLogprob], scale: Scale) -> Result<(f64, f64), String> {
    let said: String = tokens.iter().map(|token| token.token.as_str()).collect();
    let off = || format!("it says \"{}\", not a whole number on the scale {scale}", said.trim());
    let mut numbers = tokens.iter().filter(|token| token.token.contains(|c: char| c.is_ascii_digit()));
    let (Some(token), None) = (numbers.next(), numbers.next()) else { return Err(off()) };
    score(&token.token, scale).ok_or_else(off)?;

    let others = token.top_logprobs.as_deref().unwrap_or_default();
    let own = (!others.iter().any(|other| other.token == token.token)).then_some((&token.token, token.logprob));
    let listed = others.iter().map(|other| (&other.token, other.logprob));
    let (mut mass, mut sum) = (0.0, 0.0);
    let probabilities: Vec<(&String, f64)> = listed.chain(own).map(|(text, logprob)| (text, logprob.exp())).collect();
    for &(text, probability) in &probabilities {
        if let Some(score) = score(text, scale) {
            mass += probability;
            sum += probability * score as f64;
        }
    }
    let sum_of_all: f64 = probabilities.iter().map(|(_, probability)| probability).sum();
    if sum_of_all.is_nan() || sum_of_all > 1.0 + ROUNDING {
        return Err(format!("its log-probabilities are invalid: the probabilities sum to {sum_of_all:.3}"));
    }
    if mass >= LEAST_MASS {
        Ok((sum / mass, mass))
    } else {
        Err(format!("only {mass:.3} of its probability is on the scale {scale}"))
    }
}

fn score(token: &str, scale: Scale) -> Option<u64> {
    whole(token).filter(|&score| scale.contains(score))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounding of a handful of exponentials and logarithms.
    const ROUNDING: f64 = 1e-12;

    fn token(token: &str, top: &[(&str, f64)]) -> TokenLogprob {
        let top_logprobs = top.iter().map(|(token, p)| Alternative { token: (*token).to_owned(), logprob: p.ln() }).collect();
        TokenLogprob {
            token: token.to_owned(),
            logprob: top.first().map_or(0.0, |(_, p)| p.ln()),
            top_logprobs: Some(top_logprobs),
        }
    }

    #[test]
    fn worked_by_hand() {
        // 4 with .5 + .1 (a space before it), 5 with .3; 9 and a word are off the scale: (.6·4 +
        // .3·5)/.9 = 4.3333.
        let answer = token("4", &[("4", 0.5), ("5", 0.3), (" 4", 0.1), ("9", 0.05), ("four", 0.05)]);
        let (mean, mass) = expectation(&[token(" ", &[]), answer, token("\n", &[])], Scale::ONE_TO_FIVE).unwrap();
        assert!((mean - 3.9 / 0.9).abs() < ROUNDING && (mass - 0.9).abs() < ROUNDING, "{mean} {mass}");
    }

    #[test]
    fn a_token_that_is_not_listed_among_its_own_alternatives_counts() {
        let mut answer = token("2", &[("1", 0.25)]);
        answer.logprob = 0.5_f64.ln();
        let (mean, mass) = expectation(&[answer], Scale::ONE_TO_FIVE).unwrap();
        // (.25·1 + .5·2)/.75
        assert!((mean - 1.25 / 0.75).abs() < ROUNDING && (mass - 0.75).abs() < ROUNDING);
    }

    #[test]
    fn invalid_distributions_give_no_score() {
        let with = |own: f64, listed: &[f64]| {
            let top_logprobs =
                (1..).zip(listed).map(|(score, &logprob)| Alternative { token: format!("{score}"), logprob }).collect();
            expectation(
                &[TokenLogprob { token: "5".to_owned(), logprob: own, top_logprobs: Some(top_logprobs) }],
                Scale::ONE_TO_FIVE,
            )
        };
        for (own, listed) in [(1000.0, &[][..]), (f64::NAN, &[]), (f64::INFINITY, &[]), (0.1, &[]), (0.0, &[0.0, 0.0])] {
            let error = with(own, listed).unwrap_err();
            assert!(error.contains("log-probabilities"), "{error}");
        }
        // Servers with low-precision arithmetic may report a probability above one for a certain
        // token.
        assert_eq!(with(1e-3, &[f64::NEG_INFINITY]).unwrap().0, 5.0);
    }

    #[test]
    fn other_tokens_and_low_masses_give_no_score() {
        let refused = |tokens: &[TokenLogprob]| expectation(tokens, Scale::ONE_TO_FIVE).unwrap_err();
        assert!(refused(&[token("7", &[("7", 0.9)])]).contains("\"7\""));
        assert!(refused(&[token("1", &[("1", 0.9)]), token("0", &[("0", 0.9)])]).contains("\"10\""));
        assert!(refused(&[token("+4", &[("+4", 0.9)])]).contains("\"+4\""));
        assert!(refused(&[token("good", &[("good", 0.9)])]).contains("good"));
        assert!(refused(&[]).contains("not a whole number"));
        assert!(refused(&[token("3", &[("3", 0.3), ("well", 0.6)])]).contains("0.300"));
    }
}
