//! Preference pairs as token ids.

use std::path::Path;

use super::{
    data::{DataOptions, Excluded, Row, Source, TRAINED, Tally},
    encoder::Encoder,
    error::TrainError,
};

/// An encoded completion after its prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Side {
    /// Prompt and completion.
    pub(super) ids: Vec<u32>,
    /// Tokens of the completion, its end-of-turn token included.
    pub(super) completion: usize,
    /// `log ρ` of the completion under the backbone, once it is measured.
    pub(super) reference: f32,
}

impl Side {
    /// Joins a prompt and a completion. If they are too long together, the prompt loses its
    /// beginning, down to half the length, and then the completion its end.
    fn new(prompt: &[u32], completion: &[u32], length: usize) -> Self {
        let kept = completion.len().min(length - prompt.len().min(length / 2));
        let room = length - kept;
        let prompt = &prompt[prompt.len().saturating_sub(room)..];
        let ids = prompt.iter().chain(&completion[..kept]).copied().collect();
        Self { ids, completion: kept, reference: 0.0 }
    }
}

/// Two completions of one prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    pub(super) chosen: Side,
    pub(super) rejected: Side,
}

/// Reads the pairs of a file that are not excluded, each with its row, without those whose sides
/// are equal up to `length` tokens.
pub(super) fn read_pairs(
    path: &Path,
    excluded: &Excluded,
    length: usize,
    encoder: &Encoder,
    tally: &mut Tally,
) -> Result<Vec<(Row, Pair)>, TrainError> {
    let mut pairs = Vec::new();
    for row in excluded.pairs(path, tally)? {
        let Row::Pair { prompt, chosen, rejected } = &row else { continue };
        let prompt = encoder.prompt(prompt)?;
        let side = |text: &str| Ok::<Side, TrainError>(Side::new(&prompt, &encoder.answer(text)?, length));
        let pair = Pair { chosen: side(chosen)?, rejected: side(rejected)? };
        // Completions that differ only beyond the length limit carry no preference.
        if pair.chosen == pair.rejected {
            tally.count("equal up to the longest length");
        } else {
            pairs.push((row, pair));
        }
    }
    Ok(pairs)
}

/// The pairs of a run, each with the row it was made from.
#[derive(Default)]
pub(super) struct SplitPairs {
    /// The training pairs, in the order of the files.
    pub(super) train: Vec<(Row, Pair)>,
    /// The held-out pairs, each once, without those with a question of a training pair.
    pub(super) held_out: Vec<(Row, Pair)>,
    /// The questions of the training pairs.
    pub(super) asked: Excluded,
    /// Why other pairs were left out, each reason with their number.
    pub(super) left_out: Vec<(&'static str, usize)>,
}

impl SplitPairs {
    /// Reads and encodes the pairs of a run, of at most `length` tokens. Training pairs are
    /// repeated by the weight of their source, which must be whole.
    pub(super) fn load(data: &DataOptions, length: usize, encoder: &Encoder) -> Result<Self, TrainError> {
        for Source { path, weight } in &data.sources {
            let is_whole = *weight >= 1.0 && weight.fract() == 0.0;
            let value = format!("{}={weight}", path.display());
            TrainError::check("data", value, is_whole, "must repeat pairs a whole number of times, at least once")?;
        }
        let mut loaded = Self::default();
        let excluded = Excluded::load(&data.exclude)?;
        let (mut tally, mut held_out) = (Tally::default(), Vec::new());
        for source in &data.sources {
            for (row, pair) in read_pairs(&source.path, &excluded, length, encoder, &mut tally)? {
                if row.is_held_out(data.held_out) {
                    held_out.push((row, pair));
                } else {
                    tally.count(TRAINED);
                    loaded.asked.add([&row]);
                    loaded.train.extend(std::iter::repeat_n((row, pair), source.weight as usize));
                }
            }
        }
        loaded.held_out = loaded.asked.independent(held_out, &mut tally);
        tally.check("pairs to train on", loaded.train.is_empty())?;
        tally.check("held-out pairs", loaded.held_out.is_empty())?;
        loaded.left_out = tally.left_out().collect();
        Ok(loaded)
    }

    /// Returns the training and the held-out pairs without their rows.
    pub(super) fn without_rows(self) -> (Vec<Pair>, Vec<Pair>) {
        let pairs = |pairs: Vec<(Row, Pair)>| pairs.into_iter().map(|(_, pair)| pair).collect();
        (pairs(self.train), pairs(self.held_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_completion_is_cut_only_where_it_does_not_fit() {
        let of = |prompt: u32, completion: u32| {
            let [prompt, completion]: [Vec<u32>; 2] = [(0..prompt).collect(), (100..100 + completion).collect()];
            let side = Side::new(&prompt, &completion, 10);
            let (prompt, completion) = side.ids.split_at(side.ids.len() - side.completion);
            (prompt.to_vec(), completion.len())
        };
        assert_eq!(of(2, 8), (vec![0, 1], 8));
        assert_eq!(of(2, 12), (vec![0, 1], 8));
        assert_eq!(of(8, 2), ((0..8).collect(), 2));
        assert_eq!(of(12, 2), ((4..12).collect(), 2));
        // Both are too long: each has half of the room.
        assert_eq!(of(12, 12), ((7..12).collect(), 5));
    }
}
