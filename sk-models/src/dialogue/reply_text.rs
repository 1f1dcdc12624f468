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
    /// Length of `raw` after each token, with the bytes of a character that is not complete yet.
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

    /// Takes the tokens that the response continues. A character that they begin and the response
    /// completes belongs to the response.
    pub(super) fn follow(&mut self, prompt: &[TokenId]) {
        for &token in prompt {
            let _ = self.detokenizer.push(token);
        }
    }

    /// Takes more tokens and returns the text that can be shown now. A token that the tokenizer
    /// lacks (an embedding may have spare rows) has no text.
    pub(super) fn push(&mut self, tokens: &[TokenId]) -> String {
        for &token in tokens {
            self.raw.push_str(&self.detokenizer.push(token).unwrap_or_default());
            self.ends.push(self.raw.len() + self.detokenizer.pending());
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

    /// Returns the text after the kept tokens: that of a token in which a stop text begins, up to
    /// the stop text.
    pub(super) fn rest(&self) -> &str {
        let kept = self.ends[..self.kept_tokens()].last().copied().unwrap_or(0);
        // A kept token may end within a character.
        if self.stopped { self.raw.get(kept..self.passed).unwrap_or_default() } else { "" }
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
        // The stop text that is complete first ends the response, wherever its tokens are divided.
        let place = |stop: &String| {
            let at = from(stop) + rest[from(stop)..].find(stop.as_str())?;
            Some((at + stop.len(), at))
        };
        let clear = match self.stops.iter().filter_map(place).min() {
            Some((_, at)) => {
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
    use std::path::Path;

    use crate::dialogue::TOKENIZER;

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
    fn of_overlapping_stop_texts_the_first_complete_one_counts() {
        let tokenizer = Tokenizer::bytes();
        let ids = tokens("ab cd ef");
        for cut in 1..=ids.len() {
            let mut reply = ReplyText::new(&tokenizer, &["ab cd ef", "cd", "b cd"], true);
            let shown = ids.chunks(cut).map(|piece| reply.push(piece)).collect::<String>() + &reply.finish();
            assert_eq!((shown.as_str(), reply.is_stopped()), ("a", true), "{cut}");
        }
    }

    #[test]
    fn no_byte_of_a_stop_text_is_kept() {
        let tokenizer = Tokenizer::bytes();
        let mut reply = ReplyText::new(&tokenizer, &["☃"], false);
        assert_eq!(reply.push(&tokens("aé☃")), "aé");
        assert_eq!((reply.kept_tokens(), reply.rest()), ("aé".len(), ""));
    }

    #[test]
    fn the_text_before_a_stop_text_within_a_token_is_the_rest() {
        let tokenizer = Tokenizer::from_file(Path::new(TOKENIZER)).unwrap();
        // A token of this tokenizer holds the full stop and both line breaks.
        let ids = tokenizer.encode("A day.\n\nHuman: more").unwrap();
        let mut reply = ReplyText::new(&tokenizer, &["\n\nHuman:"], false);
        assert_eq!(reply.push(&ids), "A day.");
        assert_eq!((tokenizer.decode(&ids[..reply.kept_tokens()]).unwrap().as_str(), reply.rest()), ("A day", "."));
    }

    #[test]
    fn a_character_that_the_prompt_begins_is_whole() {
        let tokenizer = Tokenizer::bytes();
        let ids = tokens("A☃B");
        for cut in 1..ids.len() {
            let mut reply = ReplyText::new(&tokenizer, &[], true);
            reply.follow(&ids[..cut]);
            let expected = if cut < "A☃".len() { "☃B" } else { "B" };
            assert_eq!(reply.push(&ids[cut..]), expected, "{cut}");
        }
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
