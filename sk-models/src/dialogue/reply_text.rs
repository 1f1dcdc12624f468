//! The text of a response as its tokens arrive: whole characters only, up to the stop text.

use crate::text::{Detokenizer, Tokenizer};
use sk_core::TokenId;

/// Turns the tokens of a response into the text to show.
///
/// Characters are whole, and white space before the first word is left out unless the response
/// continues a text. No part of a stop text is shown: text that may be the beginning of one is held
/// back until this is known.
pub(super) struct ReplyText<'t> {
    detokenizer: Detokenizer<'t>,
    stops: Vec<String>,
    continues: bool,
    /// The text of all tokens.
    raw: String,
    /// Length of `raw` after each token.
    ends: Vec<usize>,
    /// The length of the part of `raw` that was returned or left out.
    passed: usize,
    stopped: bool,
    text: String,
}

impl<'t> ReplyText<'t> {
    /// Returns the empty text of a response that ends before the first occurrence of a text in
    /// `stops`. A stop text of white space alone is ignored before the first word, where white
    /// space is left out. `continues` is true if the response continues a text, which may end
    /// within a line or a word.
    pub(super) fn new(tokenizer: &'t Tokenizer, stops: &[&str], continues: bool) -> Self {
        Self {
            detokenizer: Detokenizer::new(tokenizer),
            stops: stops.iter().filter(|stop| !stop.is_empty()).map(|&stop| stop.to_owned()).collect(),
            continues,
            raw: String::new(),
            ends: Vec::new(),
            passed: 0,
            stopped: false,
            text: String::new(),
        }
    }

    /// Takes more tokens and returns the text that can be shown now. A token that the tokenizer
    /// lacks (an embedding may have spare rows) has no text.
    pub(super) fn push(&mut self, tokens: &[TokenId]) -> String {
        for &token in tokens {
            self.raw.push_str(&self.detokenizer.push(token).unwrap_or_default());
            self.ends.push(self.raw.len());
        }
        self.advance(false)
    }

    /// Ends the response and returns what was held back.
    pub(super) fn finish(&mut self) -> String {
        let rest = self.detokenizer.finish();
        self.raw.push_str(&rest);
        self.advance(true)
    }

    /// Returns whether a stop text occurred.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns the number of tokens that belong to the response: all, or those that end before the
    /// stop text.
    pub(super) fn kept_tokens(&self) -> usize {
        if self.stopped { self.ends.partition_point(|&end| end <= self.passed) } else { self.ends.len() }
    }

    /// Returns all text that was returned so far.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    fn advance(&mut self, last: bool) -> String {
        if self.stopped {
            return String::new();
        }
        let rest = &self.raw[self.passed..];
        let begins = self.text.is_empty() && !self.continues;
        let first_word = if begins { rest.len() - rest.trim_start().len() } else { 0 };
        // White space that is left out does not end the response.
        let from = |stop: &str| if stop.trim_start().is_empty() { first_word } else { 0 };
        let place = |stop: &String| Some(from(stop) + rest[from(stop)..].find(stop.as_str())?);
        let clear = match self.stops.iter().filter_map(place).min() {
            Some(at) => {
                self.stopped = true;
                at
            }
            None if last => rest.len(),
            None => rest.len() - self.stops.iter().map(|stop| beginning_of(stop, &rest[from(stop)..])).max().unwrap_or(0),
        };
        let piece = &rest[..clear];
        let shown = if begins { piece.trim_start() } else { piece }.to_owned();
        self.passed += clear;
        self.text.push_str(&shown);
        shown
    }
}

/// Returns the length of the longest suffix of `text` that is a prefix of `stop`.
fn beginning_of(stop: &str, text: &str) -> usize {
    stop.char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .filter(|&length| length < stop.len() && text.ends_with(&stop[..length]))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the tokens of [`Tokenizer::bytes`].
    fn tokens(text: &str) -> Vec<TokenId> {
        text.bytes().map(TokenId::from).collect()
    }

    #[test]
    fn characters_are_whole_and_leading_space_is_left_out() {
        let tokenizer = Tokenizer::bytes();
        let mut reply = ReplyText::new(&tokenizer, &[], false);
        let ids = tokens("  \n é☃");
        let pieces: Vec<String> = ids.iter().map(|&id| reply.push(&[id])).collect();
        assert_eq!(pieces, ["", "", "", "", "", "é", "", "", "☃"]);
        assert_eq!((reply.finish().as_str(), reply.text(), reply.kept_tokens()), ("", "é☃", ids.len()));
        let mut continued = ReplyText::new(&tokenizer, &[], true);
        assert_eq!(continued.push(&tokens(" is")), " is");
    }

    #[test]
    fn an_incomplete_character_is_replaced_at_the_end() {
        let tokenizer = Tokenizer::bytes();
        let mut reply = ReplyText::new(&tokenizer, &[], false);
        assert_eq!(reply.push(&tokens("a☃")[..3]), "a");
        assert_eq!(reply.finish(), "\u{fffd}");
    }

    #[test]
    fn no_part_of_the_stop_text_is_shown() {
        let tokenizer = Tokenizer::bytes();
        let ids = tokens("Hi.\n\nHow\n\nHuman: more");
        for cut in 1..ids.len() {
            let mut reply = ReplyText::new(&tokenizer, &["\n\nHuman:"], false);
            let mut shown = String::new();
            for piece in ids.chunks(cut) {
                shown += &reply.push(piece);
            }
            shown += &reply.finish();
            assert_eq!(shown, "Hi.\n\nHow", "{cut}");
            assert!(reply.is_stopped());
            assert_eq!(reply.kept_tokens(), "Hi.\n\nHow".len());
        }
    }

    #[test]
    fn leading_white_space_does_not_end_the_response() {
        let tokenizer = Tokenizer::bytes();
        let ids = tokens("\n\n Hi you.\n\nHuman:");
        for (stops, expected) in
            [(&["\n", "\n\nHuman:"][..], "Hi you."), (&[" "], "Hi"), (&["\n\n"], "Hi you."), (&["\n\n Hi"], "")]
        {
            for cut in 1..=ids.len() {
                let mut reply = ReplyText::new(&tokenizer, stops, false);
                let shown = ids.chunks(cut).map(|piece| reply.push(piece)).collect::<String>() + &reply.finish();
                assert_eq!((shown.as_str(), reply.is_stopped()), (expected, true), "{stops:?} {cut}");
            }
        }
        let mut continued = ReplyText::new(&tokenizer, &[" "], true);
        assert_eq!((continued.push(&tokens(" is")).as_str(), continued.is_stopped()), ("", true));
    }

    #[test]
    fn a_partial_stop_text_is_shown_at_the_end() {
        let tokenizer = Tokenizer::bytes();
        let mut reply = ReplyText::new(&tokenizer, &["\n\nHuman:"], false);
        assert_eq!(reply.push(&tokens("Hi.\n\nHum")), "Hi.");
        assert_eq!(reply.finish(), "\n\nHum");
        assert!(!reply.is_stopped());
    }
}
