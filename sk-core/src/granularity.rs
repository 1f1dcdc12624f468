use auto_impl::auto_impl;

use crate::TokenId;

/// ρ: the rule that terminates a candidate span (token, step or response).
#[auto_impl(&, Box, Arc)]
pub trait Granularity: Send + Sync {
    /// Returns whether `span` is complete. Called after each sampled token; `span` is never empty.
    fn completes(&self, span: &[TokenId]) -> bool;

    /// Returns whether the non-empty `span` is complete before the next token, whose distribution
    /// under the drafting model has the given entropy in nats. Called before each token is sampled,
    /// by proposals that know the entropy, if [`needs_entropy`](Self::needs_entropy) returns
    /// `true`.
    fn ends_before(&self, span: &[TokenId], entropy: f64) -> bool {
        let _ = (span, entropy);
        false
    }

    /// Returns whether [`ends_before`](Self::ends_before) must be called. A step fails if its
    /// proposal does not [know the entropy](crate::Proposal::knows_entropy).
    fn needs_entropy(&self) -> bool {
        false
    }
}

/// Every token is a span, as in ARGS, FUDGE, MOD and contrastive decoding.
#[derive(Debug, Clone, Copy, Default)]
pub struct Token;

impl Granularity for Token {
    fn completes(&self, _: &[TokenId]) -> bool {
        true
    }
}

/// The whole response is one span, as in Best-of-N. It ends only at the end of text or at the
/// limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Response;

impl Granularity for Response {
    fn completes(&self, _: &[TokenId]) -> bool {
        false
    }
}

/// Spans that end before a token at which the model is uncertain: one whose distribution has at
/// least this entropy in nats (the segments of CARDS, Li et al. 2025).
#[derive(Debug, Clone, Copy)]
pub struct Uncertain(pub f64);

impl Granularity for Uncertain {
    fn completes(&self, _: &[TokenId]) -> bool {
        false
    }
    fn ends_before(&self, _: &[TokenId], entropy: f64) -> bool {
        entropy >= self.0
    }
    fn needs_entropy(&self) -> bool {
        true
    }
}

/// A rule with a limit on the tokens of a span. With [`Response`], spans of a fixed length.
#[derive(Debug, Clone, Copy)]
pub struct Capped<G> {
    /// The rule.
    pub rule: G,
    /// The limit, in tokens.
    pub tokens: std::num::NonZeroUsize,
}

impl<G: Granularity> Granularity for Capped<G> {
    fn completes(&self, span: &[TokenId]) -> bool {
        span.len() >= self.tokens.get() || self.rule.completes(span)
    }
    fn ends_before(&self, span: &[TokenId], entropy: f64) -> bool {
        self.rule.ends_before(span, entropy)
    }
    fn needs_entropy(&self) -> bool {
        self.rule.needs_entropy()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_end_spans_where_they_say() {
        let four = std::num::NonZeroUsize::new(4).unwrap();
        assert!(Token.completes(&[1]));
        assert!(!Response.completes(&[1; 1000]));
        let unsure = Capped { rule: Uncertain(1.5), tokens: four };
        assert!(unsure.needs_entropy() && !unsure.ends_before(&[1], 1.4) && unsure.ends_before(&[1], 1.5));
        assert!(!unsure.completes(&[1; 3]) && unsure.completes(&[1; 4]));
        assert!(!Token.needs_entropy() && !Token.ends_before(&[1], f64::INFINITY));
        let capped = Capped { rule: Response, tokens: four };
        assert!(!capped.completes(&[1; 3]) && capped.completes(&[1; 4]));
    }
}
