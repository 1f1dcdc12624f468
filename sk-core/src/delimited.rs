use std::sync::Arc;

use crate::{Granularity, TokenId};

/// ρ by text: a span is complete when its last token completes one of several delimiters, which is
/// part of the span.
///
/// The rule works on the bytes of the tokens. A span may therefore end inside a multi-byte
/// character, and a delimiter may extend over several tokens. Text after the delimiter in the same
/// token is kept, since tokens are never split.
#[derive(Debug, Clone)]
pub struct Delimited {
    token_bytes: Arc<[Box<[u8]>]>,
    delimiters: Vec<Box<[u8]>>,
    longest: usize,
}

impl Delimited {
    /// Creates a rule for spans that end with one of `delimiters`. `token_bytes[t]` are the bytes
    /// of token `t`. Empty delimiters are left out; without any, no span is complete.
    pub fn new(token_bytes: Arc<[Box<[u8]>]>, delimiters: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        let delimiters: Vec<Box<[u8]>> =
            delimiters.into_iter().filter(|d| !d.as_ref().is_empty()).map(|d| d.as_ref().into()).collect();
        let longest = delimiters.iter().map(|d| d.len()).max().unwrap_or(0);
        Self { token_bytes, delimiters, longest }
    }

    /// Creates the rule for spans that end at the first blank line, as in the reference runs.
    pub fn blank_line(token_bytes: Arc<[Box<[u8]>]>) -> Self {
        Self::new(token_bytes, ["\n\n"])
    }

    /// Creates the rule for spans of one sentence or line.
    pub fn sentence(token_bytes: Arc<[Box<[u8]>]>) -> Self {
        Self::new(token_bytes, [".", "!", "?", "\n"])
    }

    fn bytes(&self, token: TokenId) -> &[u8] {
        self.token_bytes.get(token as usize).map_or(&[], |bytes| bytes)
    }
}

impl Granularity for Delimited {
    fn completes(&self, span: &[TokenId]) -> bool {
        let Some((&last, earlier)) = span.split_last() else { return false };
        // The bytes before the last token, backwards, among which a delimiter may begin.
        let bytes = earlier.iter().rev().flat_map(|&token| self.bytes(token).iter().rev());
        let mut text: Vec<u8> = bytes.take(self.longest.saturating_sub(1)).copied().collect();
        text.reverse();
        let before = text.len();
        text.extend(self.bytes(last));
        self.delimiters.iter().any(|delimiter| {
            // A delimiter that lies before the last token was not completed by it.
            let ends_in_last = &text[before.saturating_sub(delimiter.len() - 1)..];
            ends_in_last.windows(delimiter.len()).any(|window| window == &**delimiter)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(tokens: &[&[u8]]) -> Arc<[Box<[u8]>]> {
        tokens.iter().map(|t| Box::from(*t)).collect()
    }

    #[test]
    fn a_delimiter_counts_wherever_it_lies_but_only_once_the_last_token_completes_it() {
        let rule = Delimited::blank_line(vocabulary(&[b"a", b"\n", b".\n\n", b"\n\nHuman", b"b\n", b"\n\n"]));
        assert!(!rule.completes(&[0, 1]));
        assert!(rule.completes(&[0, 1, 1]));
        assert!(rule.completes(&[0, 4, 1]));
        assert!(rule.completes(&[2]));
        assert!(rule.completes(&[0, 3]));
        // The span was already complete at token 1; later tokens are not tested against it.
        assert!(!rule.completes(&[5, 0]));
        // An id outside the vocabulary has no bytes.
        assert!(!rule.completes(&[0, 99]));
        // A short delimiter before the last token, within the length of a long one.
        let rule = Delimited::new(vocabulary(&[b"a", b".", b"\n"]), [".", "\n\n\n"]);
        assert!(rule.completes(&[0, 1]) && rule.completes(&[2, 2, 2]) && !rule.completes(&[1, 0]));
    }

    #[test]
    fn spans_may_end_inside_a_character() {
        let snowman = "☃".as_bytes();
        let rule = Delimited::new(vocabulary(&[&snowman[..1], &snowman[1..2], &snowman[2..], b"x"]), [&snowman[..2]]);
        assert!(!rule.completes(&[0]));
        assert!(rule.completes(&[0, 1]));
        assert!(!rule.completes(&[0, 1, 2]));
        let sentence = Delimited::sentence(vocabulary(&[b" Hi", b"!", b"?\""]));
        assert!(sentence.completes(&[0, 1]) && sentence.completes(&[2]) && !sentence.completes(&[0]));
    }

    #[test]
    fn no_delimiter_never_ends_a_span() {
        assert!(!Delimited::new(vocabulary(&[b"a"]), [""; 1]).completes(&[0, 0]));
    }
}
