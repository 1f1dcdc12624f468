//! ρ: when a candidate span is whole.

use std::num::NonZeroUsize;
use std::sync::Arc;

use sk_core::{Capped, FixedLength, Granularity, Response, Token};
use sk_models::engine::Delimited;

use super::document::Section;
use super::{Convention, SchemeError};

/// Tokens after which a published span is cut, blank line or not.
const PAPER_CAP: usize = 512;

/// Tokens after which a span is cut under the sound convention: a sentence or two, so that steering gets a say that often, where the
/// published cap drafts hundreds of tokens to discard most of them.
const SOUND_CAP: usize = 32;

/// What ends a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Every token is a span.
    Token,
    /// A fixed number of tokens: the cap alone.
    FixedLength,
    /// The end of a sentence or line.
    Sentence,
    /// The first blank line.
    BlankLine,
    /// The first of some texts.
    Delimiters(Vec<String>),
    /// The end of the response.
    Response,
}

/// The `[granularity]` section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GranularityConfig {
    /// What ends a span.
    pub rule: Rule,
    /// Most tokens of a span; `None` for no cap.
    pub span_tokens: Option<NonZeroUsize>,
}

impl Rule {
    /// Its name in a scheme file.
    pub fn name(&self) -> &'static str {
        let kind = match self {
            Self::Token => Kind::Token,
            Self::FixedLength => Kind::FixedLength,
            Self::Sentence => Kind::Sentence,
            Self::BlankLine => Kind::BlankLine,
            Self::Delimiters(_) => Kind::Delimiters,
            Self::Response => Kind::Response,
        };
        KINDS.iter().find(|(_, known)| *known == kind).map_or("", |(name, _)| name)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Token,
    FixedLength,
    Sentence,
    BlankLine,
    Delimiters,
    Response,
}

const KINDS: [(&str, Kind); 6] = [
    ("token", Kind::Token),
    ("fixed-length", Kind::FixedLength),
    ("sentence", Kind::Sentence),
    ("blank-line", Kind::BlankLine),
    ("delimiters", Kind::Delimiters),
    ("response", Kind::Response),
];

impl GranularityConfig {
    pub(super) fn published(convention: Convention) -> Self {
        let cap = match convention {
            Convention::Paper => PAPER_CAP,
            Convention::Sound => SOUND_CAP,
        };
        Self { rule: Rule::BlankLine, span_tokens: NonZeroUsize::new(cap) }
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_>) -> Result<(), SchemeError> {
        let kind = section.choice("kind", "granularity", &KINDS)?;
        let span_tokens = section.count("span_tokens")?;
        if let Some(kind) = kind {
            self.rule = match kind {
                Kind::Token => Rule::Token,
                Kind::FixedLength => Rule::FixedLength,
                Kind::Sentence => Rule::Sentence,
                Kind::BlankLine => Rule::BlankLine,
                Kind::Response => Rule::Response,
                Kind::Delimiters => match section.strings("delimiters")? {
                    Some(texts) if texts.iter().any(|t| !t.is_empty()) => Rule::Delimiters(texts),
                    _ => return Err(section.fault("kind \"delimiters\" needs delimiters = [\"…\"], at least one text")),
                },
            };
            // A cap belongs to the rule it came with.
            if matches!(self.rule, Rule::Response) {
                self.span_tokens = None;
            }
        }
        if let Some(tokens) = span_tokens {
            self.span_tokens =
                Some(NonZeroUsize::new(tokens).ok_or_else(|| section.fault("span_tokens is 0; a span needs a token"))?);
        }
        section.finish()
    }

    /// The fields that apply, by name and as a scheme file has them.
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("kind", format!("{:?}", self.rule.name()))];
        if let Rule::Delimiters(texts) = &self.rule {
            fields.push(("delimiters", format!("{texts:?}")));
        }
        if self.rule != Rule::Token {
            fields.push(("span_tokens", self.span_tokens.map_or_else(|| "unlimited".to_owned(), |tokens| tokens.to_string())));
        }
        fields
    }

    pub(super) fn build(&self, token_bytes: &Arc<[Box<[u8]>]>) -> Arc<dyn Granularity> {
        let bytes = Arc::clone(token_bytes);
        let rule: Arc<dyn Granularity> = match &self.rule {
            Rule::Token => return Arc::new(Token),
            Rule::FixedLength => match self.span_tokens {
                Some(tokens) => return Arc::new(FixedLength(tokens)),
                None => Arc::new(Response),
            },
            Rule::Sentence => Arc::new(Delimited::sentence(bytes)),
            Rule::BlankLine => Arc::new(Delimited::blank_line(bytes)),
            Rule::Delimiters(texts) => Arc::new(Delimited::new(bytes, texts)),
            Rule::Response => Arc::new(Response),
        };
        match self.span_tokens {
            Some(tokens) => Arc::new(Capped { rule, tokens }),
            None => rule,
        }
    }
}
