use serde::{Deserialize, Serialize};

use crate::{CandidatesError, DraftRequest, TokenId};

/// The most by which rounding may lift a log-probability above zero, or a min-entropy below, in
/// nats.
pub(crate) const ROUNDING: f32 = 1e-3;

/// The reason why a candidate span ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanEnd {
    /// ρ, or a dropped end-of-text token, ended the span.
    Complete,
    /// The last token ends the response.
    EndOfText,
    /// The token limit was reached first.
    Limit,
}

/// A candidate continuation: its tokens, their log-probabilities under the proposal, and why it
/// ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The tokens of the span, at least one. An end-of-text token is included as the last one.
    pub tokens: Vec<TokenId>,
    /// log π_S(y_t | x, y_<t) in nats at temperature 1 and before any truncation, one per token.
    pub log_probs: Vec<f32>,
    /// The reason why it ends.
    pub end: SpanEnd,
}

/// A candidate that is being drafted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PartialSpan {
    /// The tokens so far.
    pub tokens: Vec<TokenId>,
    /// Their log-probabilities, as in [`Candidate`].
    pub log_probs: Vec<f32>,
    /// The reason why the span ends, once it does.
    pub end: Option<SpanEnd>,
}

impl PartialSpan {
    /// Appends a token, unless the span has ended. A token of `end_of_text` ends it. If not
    /// `keep_end_of_text`, that token is dropped and the span is complete; it must not be the first
    /// token, since a candidate has at least one. Any other token ends the span if ρ completes it, or
    /// at the limit of `request`.
    pub fn push(
        &mut self,
        token: TokenId,
        log_prob: f32,
        request: &DraftRequest<'_>,
        end_of_text: &[TokenId],
        keep_end_of_text: bool,
    ) {
        if self.end.is_some() {
            return;
        }
        let ends_text = end_of_text.contains(&token);
        if ends_text && !keep_end_of_text {
            self.end = Some(SpanEnd::Complete);
            return;
        }
        self.tokens.push(token);
        self.log_probs.push(log_prob);
        if ends_text {
            self.end = Some(SpanEnd::EndOfText);
        } else if request.granularity.completes(&self.tokens) {
            self.end = Some(SpanEnd::Complete);
        } else if self.tokens.len() >= request.limit {
            self.end = Some(SpanEnd::Limit);
        }
    }

    /// Returns the candidate. A span that has not ended ends at a limit.
    pub fn into_candidate(self) -> Candidate {
        Candidate { tokens: self.tokens, log_probs: self.log_probs, end: self.end.unwrap_or(SpanEnd::Limit) }
    }
}

/// N ≥ 1 candidates of at least one token each.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidates {
    all: Vec<Candidate>,
    head: Option<usize>,
}

impl Candidates {
    /// Creates the batch after validation.
    ///
    /// # Errors
    /// If there is no candidate, a candidate has no tokens, or log-probabilities are missing, NaN
    /// or above 1e-3, the most by which rounding may lift one above zero.
    pub fn new(candidates: Vec<Candidate>) -> Result<Self, CandidatesError> {
        if candidates.is_empty() {
            return Err(CandidatesError::None);
        }
        for (index, candidate) in candidates.iter().enumerate() {
            let (tokens, log_probs) = (candidate.tokens.len(), candidate.log_probs.len());
            if tokens == 0 {
                return Err(CandidatesError::Empty { index });
            }
            if tokens != log_probs {
                return Err(CandidatesError::Length { index, tokens, log_probs });
            }
            // A log-probability can round to slightly above zero if one token has all the
            // probability.
            if let Some(position) = candidate.log_probs.iter().position(|&p| p.is_nan() || p > ROUNDING) {
                return Err(CandidatesError::LogProb {
                    index,
                    position,
                    token: candidate.tokens[position],
                    value: candidate.log_probs[position].to_string(),
                });
            }
        }
        Ok(Self { all: candidates, head: None })
    }

    /// Marks the candidates as the most probable tokens of a vocabulary that is not fully
    /// available, with probabilities divided by their sum.
    #[must_use]
    pub fn of_head(self) -> Self {
        Self { head: Some(self.all.len()), ..self }
    }

    /// Returns the number of tokens if the candidates are a [head](Self::of_head) of the
    /// vocabulary.
    pub fn head(&self) -> Option<usize> {
        self.head
    }

    /// Returns the candidates at these indices, at least one. Part of a head keeps its mark.
    pub(crate) fn pick(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        Self { all: indices.into_iter().map(|i| self.all[i].clone()).collect(), head: self.head }
    }

    /// Replaces the candidates at `indices` by `others`.
    pub(crate) fn with(mut self, indices: &[usize], others: &Self) -> Self {
        indices.iter().zip(others).for_each(|(&i, other)| self.all[i].clone_from(other));
        self
    }
}

/// The candidates in the order of the proposal.
impl std::ops::Deref for Candidates {
    type Target = [Candidate];
    fn deref(&self) -> &[Candidate] {
        &self.all
    }
}

impl<'a> IntoIterator for &'a Candidates {
    type Item = &'a Candidate;
    type IntoIter = std::slice::Iter<'a, Candidate>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Granularity, Response, Token};

    fn candidate(tokens: &[TokenId], log_probs: &[f32]) -> Candidate {
        Candidate { tokens: tokens.to_vec(), log_probs: log_probs.to_vec(), end: SpanEnd::Complete }
    }

    #[test]
    fn candidates_are_checked() {
        assert_eq!(Candidates::new(vec![]), Err(CandidatesError::None));
        assert_eq!(Candidates::new(vec![candidate(&[], &[])]), Err(CandidatesError::Empty { index: 0 }));
        let short = Candidates::new(vec![candidate(&[1], &[-1.0]), candidate(&[1, 2], &[-1.0])]);
        assert_eq!(short, Err(CandidatesError::Length { index: 1, tokens: 2, log_probs: 1 }));
        assert!(matches!(Candidates::new(vec![candidate(&[7], &[f32::NAN])]), Err(CandidatesError::LogProb { token: 7, .. })));
        assert_eq!(Candidates::new(vec![candidate(&[1], &[-1.0])]).unwrap().len(), 1);
    }

    #[test]
    fn a_span_ends_at_the_end_of_text_where_it_is_complete_or_at_the_limit() {
        fn drafted(granularity: &dyn Granularity, end_of_text: &[TokenId], keep_end_of_text: bool) -> (Vec<TokenId>, SpanEnd) {
            let request = DraftRequest { context: &[0], granularity, limit: 3 };
            let mut span = PartialSpan::default();
            for token in 1..=4 {
                span.push(token, -1.0, &request, end_of_text, keep_end_of_text);
            }
            assert_eq!(span.tokens.len(), span.log_probs.len());
            let Candidate { tokens, end, .. } = span.into_candidate();
            (tokens, end)
        }
        assert_eq!(drafted(&Response, &[], true), (vec![1, 2, 3], SpanEnd::Limit));
        assert_eq!(drafted(&Response, &[3], true), (vec![1, 2, 3], SpanEnd::EndOfText));
        assert_eq!(drafted(&Response, &[2], false), (vec![1], SpanEnd::Complete));
        assert_eq!(drafted(&Token, &[], true), (vec![1], SpanEnd::Complete));
        assert_eq!(drafted(&Token, &[1], true), (vec![1], SpanEnd::EndOfText));
        assert_eq!(PartialSpan::default().into_candidate().end, SpanEnd::Limit);
    }

    #[test]
    fn part_of_a_head_is_of_that_head() {
        let head = Candidates::new(vec![candidate(&[1], &[-1.0]), candidate(&[2], &[-2.0])]).unwrap().of_head();
        assert_eq!((head.head(), head.pick([1]).head()), (Some(2), Some(2)));
    }
}
