//! ρ: the rule by which a candidate span is complete.

use std::num::NonZeroUsize;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sk_core::{Capped, Delimited, Granularity, ParameterError, Response, Token, Uncertain};

/// The `[granularity]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum GranularitySpec {
    /// Every token is a span.
    Token,
    /// A fixed number of tokens.
    FixedLength {
        /// Tokens of a span.
        span_tokens: usize,
    },
    /// The end of a sentence or line.
    Sentence {
        /// Maximum number of tokens of a span.
        span_tokens: Cap,
    },
    /// The first blank line, which belongs to the span.
    BlankLine {
        /// Maximum number of tokens of a span.
        span_tokens: Cap,
    },
    /// The first of some texts, which belongs to the span.
    Delimiters {
        /// The texts.
        #[schemars(length(min = 1))]
        delimiters: Vec<String>,
        /// Maximum number of tokens of a span.
        span_tokens: Cap,
    },
    /// Before a token that the drafting model is unsure of.
    Entropy {
        /// The entropy of its distribution, in nats, that ends a span.
        entropy: f64,
        /// Maximum number of tokens of a span.
        span_tokens: Cap,
    },
    /// The end of the response.
    Response {
        /// Maximum number of tokens of a span.
        span_tokens: Cap,
    },
}

/// The most tokens of a span, or "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Cap {
    /// At most so many.
    Tokens(usize),
    /// Any number.
    Unlimited(Unlimited),
}

/// The word for no cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unlimited {
    /// Any number.
    Unlimited,
}

impl GranularitySpec {
    /// Returns the most tokens of a span; `None` if there is no limit.
    pub fn span_tokens(&self) -> Option<NonZeroUsize> {
        self.cap().and_then(NonZeroUsize::new)
    }

    fn cap(&self) -> Option<usize> {
        match self {
            Self::Token => Some(1),
            Self::FixedLength { span_tokens } => Some(*span_tokens),
            Self::Sentence { span_tokens }
            | Self::BlankLine { span_tokens }
            | Self::Delimiters { span_tokens, .. }
            | Self::Entropy { span_tokens, .. }
            | Self::Response { span_tokens } => match span_tokens {
                Cap::Tokens(tokens) => Some(*tokens),
                Cap::Unlimited(_) => None,
            },
        }
    }

    /// Rejects spans of zero tokens and empty delimiters.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            _ if self.cap() == Some(0) => Err("span_tokens is 0; a span needs a token".to_owned()),
            Self::Delimiters { delimiters, .. } if delimiters.iter().all(String::is_empty) => {
                Err("kind \"delimiters\" needs delimiters = [\"…\"], at least one text".to_owned())
            }
            Self::Entropy { entropy, .. } => {
                ParameterError::not_negative("entropy", *entropy).map(drop).map_err(|error| error.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Builds the rule for a vocabulary whose tokens have these bytes. [`check`](Self::check) must have
    /// accepted the rule.
    pub(crate) fn build(&self, token_bytes: &Arc<[Box<[u8]>]>) -> Arc<dyn Granularity> {
        let bytes = Arc::clone(token_bytes);
        let rule: Arc<dyn Granularity> = match self {
            Self::Token => return Arc::new(Token),
            Self::Sentence { .. } => Arc::new(Delimited::sentence(bytes)),
            Self::BlankLine { .. } => Arc::new(Delimited::blank_line(bytes)),
            Self::Delimiters { delimiters, .. } => Arc::new(Delimited::new(bytes, delimiters)),
            Self::Entropy { entropy, .. } => Arc::new(Uncertain(*entropy)),
            Self::FixedLength { .. } | Self::Response { .. } => Arc::new(Response),
        };
        match self.span_tokens() {
            Some(tokens) => Arc::new(Capped { rule, tokens }),
            None => rule,
        }
    }
}
