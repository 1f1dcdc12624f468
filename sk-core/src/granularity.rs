use crate::TokenId;

/// ρ: the rule that terminates a candidate span (token, step or response).
pub trait Granularity: Send + Sync {
    /// Whether `span`, whose last token was just drawn, is whole. Called after each token; `span`
    /// is never empty.
    fn completes(&self, span: &[TokenId]) -> bool;
}

const _: Option<&dyn Granularity> = None;

/// Every token is a span: what ARGS, FUDGE, MOD and contrastive decoding work on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Token;

impl Granularity for Token {
    fn completes(&self, _: &[TokenId]) -> bool {
        true
    }
}

/// The whole response is one span: what Best-of-N works on. Only the end of text or the limit ends
/// it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Response;

impl Granularity for Response {
    fn completes(&self, _: &[TokenId]) -> bool {
        false
    }
}

/// Spans of a fixed number of tokens.
#[derive(Debug, Clone, Copy)]
pub struct FixedLength(pub std::num::NonZeroUsize);

impl Granularity for FixedLength {
    fn completes(&self, span: &[TokenId]) -> bool {
        span.len() >= self.0.get()
    }
}

/// Another rule, with a cap on the tokens of a span.
#[derive(Debug, Clone, Copy)]
pub struct Capped<G> {
    /// The rule.
    pub rule: G,
    /// The cap, in tokens.
    pub tokens: std::num::NonZeroUsize,
}

impl<G: Granularity> Granularity for Capped<G> {
    fn completes(&self, span: &[TokenId]) -> bool {
        span.len() >= self.tokens.get() || self.rule.completes(span)
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
        assert!(!FixedLength(four).completes(&[1; 3]) && FixedLength(four).completes(&[1; 4]));
        let capped = Capped { rule: Response, tokens: four };
        assert!(!capped.completes(&[1; 3]) && capped.completes(&[1; 4]));
    }
}
