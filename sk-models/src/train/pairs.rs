//! Preference pairs as token ids.

use std::path::{Path, PathBuf};

use tokenizers::Tokenizer;

use super::{
    data::{Excluded, Marks, Row, Source, encode, encode_prompt, read_rows},
    error::TrainError,
};

/// An encoded completion after its prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Side {
    /// Prompt and completion.
    pub(super) ids: Vec<u32>,
    /// Tokens of the completion, its end-of-turn token included.
    pub(super) completion: usize,
    /// Bits of `log ρ` of the completion under the backbone, if measured. Bits keep sides
    /// comparable.
    pub(super) reference: u32,
}

impl Side {
    /// Joins a prompt and a completion. A prompt that is too long loses its beginning, and a
    /// completion beyond half the length loses its end.
    fn new(prompt: &[u32], completion: &[u32], length: usize) -> Self {
        let kept = completion.len().min(length / 2);
        let room = length - kept;
        let prompt = &prompt[prompt.len().saturating_sub(room)..];
        let ids = prompt.iter().chain(&completion[..kept]).copied().collect();
        Self { ids, completion: kept, reference: 0 }
    }

    pub(super) fn reference(&self) -> f32 {
        f32::from_bits(self.reference)
    }
}

/// Two completions of one prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) chosen: Side,
    pub(super) rejected: Side,
}

/// The files and settings of the pairs of a run.
pub(super) struct PairFiles<'a> {
    /// The files.
    pub(super) sources: &'a [Source],
    /// Files whose questions are left out.
    pub(super) exclude: &'a [PathBuf],
    /// Share of the prompts held out.
    pub(super) held_out: f64,
    /// Longest prompt and completion together, in tokens.
    pub(super) length: usize,
}

impl PairFiles<'_> {
    /// Returns the pairs of a file, each with its row, without those whose sides are equal up to
    /// `length` tokens.
    pub(super) fn encode(
        path: &Path,
        excluded: &Excluded,
        length: usize,
        tokenizer: &Tokenizer,
        marks: Marks,
    ) -> Result<Vec<(Row, Pair)>, TrainError> {
        let mut pairs = Vec::new();
        for row in read_rows(path)? {
            if excluded.contains(&row) {
                continue;
            }
            let Row::Pair { prompt, chosen, rejected } = &row else {
                return Err(TrainError::not_pairs(path));
            };
            let prompt = encode_prompt(tokenizer, marks, prompt)?;
            let side = |text: &str| -> Result<Side, TrainError> {
                let mut completion = encode(tokenizer, text)?;
                completion.push(marks.end_of_turn);
                Ok(Side::new(&prompt, &completion, length))
            };
            let pair = Pair { chosen: side(chosen)?, rejected: side(rejected)? };
            // Completions that differ only beyond the length limit carry no preference.
            if pair.chosen != pair.rejected {
                pairs.push((row, pair));
            }
        }
        Ok(pairs)
    }

    /// Returns the encoded training and held-out pairs. Training pairs are repeated by the weight
    /// of their source, rounded up.
    pub(super) fn load(&self, tokenizer: &Tokenizer, marks: Marks) -> Result<(Vec<Pair>, Vec<Pair>), TrainError> {
        let loaded = self.load_rows(tokenizer, marks)?;
        let pairs = |kept: Vec<(Row, Pair)>| kept.into_iter().map(|(_, pair)| pair).collect();
        Ok((pairs(loaded.train), pairs(loaded.held_out)))
    }

    /// As [`load`](Self::load), each pair with the row it was made from.
    pub(super) fn load_rows(&self, tokenizer: &Tokenizer, marks: Marks) -> Result<Loaded, TrainError> {
        let mut loaded = Loaded::default();
        let excluded = Excluded::load(self.exclude)?;
        for source in self.sources {
            for (row, pair) in Self::encode(&source.path, &excluded, self.length, tokenizer, marks)? {
                if row.is_held_out(self.held_out) {
                    loaded.held_out.push((row, pair));
                } else {
                    loaded.train.extend(std::iter::repeat_n((row, pair), source.weight.ceil() as usize));
                }
            }
        }
        let missing = |what: &str| TrainError::NoData { reason: format!("no pairs {what}: give more data or change --held-out") };
        if loaded.train.is_empty() {
            return Err(missing("to train on"));
        }
        if loaded.held_out.is_empty() {
            return Err(missing("are held out"));
        }
        Ok(loaded)
    }
}

/// Pairs and the rows they were made from.
#[derive(Default)]
pub(super) struct Loaded {
    /// The training pairs, in the order of the files.
    pub(super) train: Vec<(Row, Pair)>,
    /// The held-out pairs.
    pub(super) held_out: Vec<(Row, Pair)>,
}
