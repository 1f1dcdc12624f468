//! The features of a response that a preference model reads.

use std::collections::{BTreeMap, HashSet};

use regex::Regex;

use crate::text::HUMAN;
use crate::train::data::hash;

/// The number of features that are not words: see [`Features::manner`].
pub(crate) const MANNERS: usize = 4;
/// The shortest length of a word that counts as repeated from the user's turn.
const SUBJECT: usize = 4;
/// Scales the manners, which are shares, to the size of the word features, so that one penalty fits
/// both.
const MANNER_SCALE: f32 = 0.3;

/// The features of a response to a prompt.
///
/// They are the words and pairs of adjacent words that occur, by hash. Each counts once, as 1/√(1 +
/// n) for n words, so that responses of any length have about the same norm and length itself is
/// not a feature.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Features {
    /// Bucket and value, by ascending bucket.
    pub(crate) words: Vec<(u32, f32)>,
    /// Four shares: words repeated from the user's last turn, words repeated from the response
    /// itself, whether there is a question, and words that are numbers.
    pub(crate) manner: [f32; MANNERS],
    /// log(1 + n): a covariate of the fit that scores ignore.
    pub(crate) length: f32,
}

/// Splits text into words and punctuation marks, in lower case.
#[derive(Debug, Clone)]
pub(crate) struct Splitter(Regex);

impl Splitter {
    pub(crate) fn new() -> Self {
        Self(Regex::new(r"[\p{Alphabetic}\p{N}']+|[.,!?;:]").expect("the pattern is a constant"))
    }

    fn words(&self, text: &str) -> Vec<String> {
        let lower = text.to_lowercase().replace('’', "'");
        self.0.find_iter(&lower).map(|found| found.as_str().to_owned()).collect()
    }
}

impl Features {
    /// Returns the features over 2^`bits` buckets; `None` for a response without words.
    pub(crate) fn of(splitter: &Splitter, prompt: &str, response: &str, bits: u32) -> Option<Self> {
        let words = splitter.words(response);
        if !words.iter().any(|word| word.starts_with(char::is_alphanumeric)) {
            return None;
        }
        let singles = words.iter().map(|word| bucket(&[word], bits));
        let pairs = words.windows(2).map(|pair| bucket(&[&pair[0], &pair[1]], bits));
        let value = 1.0 / (1.0 + words.len() as f32).sqrt();
        // Words in the same bucket add up, as in any hashed model.
        let mut grams: BTreeMap<u32, HashSet<u64>> = BTreeMap::new();
        for gram in singles.chain(pairs) {
            grams.entry(gram.0).or_default().insert(gram.1);
        }
        let sparse = grams.into_iter().map(|(bucket, distinct)| (bucket, value * distinct.len() as f32)).collect();

        let last_turn = prompt.rsplit(HUMAN).next().unwrap_or(prompt);
        let subject = |words: Vec<String>| -> HashSet<String> {
            words.into_iter().filter(|word| word.chars().count() >= SUBJECT).collect()
        };
        let asked = subject(splitter.words(last_turn.trim_end().trim_end_matches("Assistant:")));
        let distinct: HashSet<&String> = words.iter().collect();
        let share = |count: usize, of: usize| count as f32 / (1.0 + of as f32);
        let manner = [
            share(subject(words.clone()).intersection(&asked).count(), asked.len()),
            share(words.len() - distinct.len(), words.len()),
            f32::from(response.contains('?')),
            share(words.iter().filter(|word| word.chars().all(char::is_numeric)).count(), words.len()),
        ];
        Some(Self { words: sparse, manner: manner.map(|x| MANNER_SCALE * x), length: (words.len() as f32).ln_1p() })
    }
}

/// Returns the bucket and the full hash of a sequence of words.
fn bucket(words: &[&str], bits: u32) -> (u32, u64) {
    let mixed = hash(words.iter().flat_map(|word| word.bytes().chain([0])));
    ((mixed >> (64 - bits)) as u32, mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: u32 = 16;

    fn of(prompt: &str, response: &str) -> Features {
        Features::of(&Splitter::new(), prompt, response, BITS).unwrap()
    }

    #[test]
    fn words_count_once_and_length_divides() {
        let features = of("", "Yes, yes, yes");
        // yes and the comma; "yes ," and ", yes".
        assert_eq!(features.words.len(), 4);
        assert!(features.words.iter().all(|(bucket, value)| *bucket < 1 << BITS && *value == 1.0 / 6f32.sqrt()));
        assert_eq!(features.length, 6f32.ln());
        assert_eq!(features.manner[1], MANNER_SCALE * 3.0 / 6.0);
    }

    #[test]
    fn manners_worked_by_hand() {
        let features =
            of("\n\nHuman: Old\n\nAssistant: x\n\nHuman: Where do penguins live?\n\nAssistant:", "Penguins live at 90 south?");
        // where, penguins, live: two of three come back.
        assert_eq!(features.manner, [2.0 / 4.0, 0.0, 1.0, 1.0 / 7.0].map(|x| MANNER_SCALE * x));
    }

    #[test]
    fn case_and_apostrophes_do_not_matter() {
        assert_eq!(of("", "I don’t KNOW"), of("", "i don't know"));
    }

    #[test]
    fn a_response_without_words_has_no_features() {
        for empty in ["", "  ", "?!", "…"] {
            assert!(Features::of(&Splitter::new(), "", empty, BITS).is_none(), "{empty:?}");
        }
    }

    #[test]
    fn hashes_are_those_of_the_weights_on_disk() {
        // A change of these numbers would invalidate every trained judge.
        assert_eq!(of("", "penguins").words, [(BUCKET_OF_PENGUINS, 1.0 / 2f32.sqrt())]);
    }

    const BUCKET_OF_PENGUINS: u32 = 25584;
}
