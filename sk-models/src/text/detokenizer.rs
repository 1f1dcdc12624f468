//! Streaming conversion of token ids to text, in whole characters.

use super::{TextError, Tokenizer};

/// Converts a stream of token ids to text.
///
/// A token may end inside a UTF-8 character. Its bytes are then held back until the character is
/// complete or cannot become complete. The joined pieces are the lossy UTF-8 of all bytes, for any
/// division into tokens. Special tokens are skipped.
#[derive(Debug, Clone)]
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    /// The start of a character: at most three bytes between calls.
    pending: Vec<u8>,
}

impl<'a> Detokenizer<'a> {
    /// Returns a detokenizer at the start of a text.
    #[must_use]
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new() }
    }

    /// Takes one more token and returns the characters that are now complete.
    ///
    /// # Errors
    ///
    /// If the id is outside the vocabulary.
    pub fn push(&mut self, id: u32) -> Result<String, TextError> {
        let bytes = self.tokenizer.token_bytes(id)?;
        if self.tokenizer.is_special(id) {
            // A special token ends an incomplete character.
            return Ok(self.finish());
        }
        self.pending.extend_from_slice(bytes);
        Ok(take_whole(&mut self.pending))
    }

    /// Returns the number of bytes that are held back.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Ends the text. Bytes that are held back are returned as U+FFFD.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }
}

/// Removes and returns the part of `bytes` that later bytes cannot change.
fn take_whole(bytes: &mut Vec<u8>) -> String {
    let (mut text, mut passed, mut kept) = (String::new(), 0, 0);
    for chunk in bytes.utf8_chunks() {
        let broken = chunk.invalid();
        text.push_str(chunk.valid());
        passed += chunk.valid().len() + broken.len();
        match std::str::from_utf8(broken) {
            // Only the last chunk has no broken character.
            Ok(_) => {}
            // The text ends inside a character that may still become complete.
            Err(error) if error.error_len().is_none() && passed == bytes.len() => kept = broken.len(),
            Err(_) => text.push(char::REPLACEMENT_CHARACTER),
        }
    }
    bytes.drain(..bytes.len() - kept);
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds the pieces one after another.
    fn stream(pieces: &[&[u8]]) -> Vec<String> {
        let mut pending = Vec::new();
        let mut out: Vec<String> = pieces
            .iter()
            .map(|piece| {
                pending.extend_from_slice(piece);
                take_whole(&mut pending)
            })
            .collect();
        out.push(String::from_utf8_lossy(&pending).into_owned());
        out
    }

    #[test]
    fn a_character_is_held_back_until_it_is_complete() {
        // U+1F600 is F0 9F 98 80.
        assert_eq!(stream(&[b"a\xF0", b"\x9F\x98", b"\x80b"]), ["a", "", "😀b", ""]);
    }

    #[test]
    fn a_broken_character_is_replaced_as_soon_as_it_is_certain() {
        assert_eq!(stream(&[b"\xF0\x9F", b"x"]), ["", "\u{FFFD}x", ""]);
        assert_eq!(stream(&[b"\xFF"]), ["\u{FFFD}", ""]);
        assert_eq!(stream(&[b"\xE2\x82"]), ["", "\u{FFFD}"]);
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_lossy_text(bytes: Vec<u8>, cuts in prop::collection::vec(0_usize..6, 0..40)) {
            let mut pieces = Vec::new();
            let mut rest = bytes.as_slice();
            for cut in cuts {
                let (piece, tail) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = tail;
            }
            pieces.push(rest);
            prop_assert_eq!(stream(&pieces).concat(), String::from_utf8_lossy(&bytes));
        }
    }
}
