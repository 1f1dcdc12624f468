use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::{DataOptions, Excluded, HELD, Tally};
use crate::train::{encoder::Encoder, error::TrainError};

/// Encoded documents with their weights, split into training and held-out ones.
#[derive(Debug, Clone, Default)]
pub struct Corpus {
    train: Vec<(Vec<u32>, f64)>,
    held_out: Vec<Vec<u32>>,
}

impl Corpus {
    /// Reads, splits and encodes the rows that are not excluded.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or encoded, or no row is left for training.
    pub fn load(data: &DataOptions, encoder: &Encoder) -> Result<Self, TrainError> {
        let mut corpus = Self::default();
        let excluded = Excluded::load(&data.exclude)?;
        let mut tally = Tally::default();
        for source in &data.sources {
            for row in excluded.rows(&source.path, &mut tally)? {
                let ids = encoder.document(&row.document())?;
                if row.is_held_out(data.held_out) {
                    tally.count(HELD);
                    corpus.held_out.push(ids);
                } else {
                    corpus.train.push((ids, source.weight));
                }
            }
        }
        tally.check("documents to train on", corpus.train.is_empty())?;
        Ok(corpus)
    }

    /// Returns the expected number of tokens of one epoch.
    pub(in crate::train) fn epoch_tokens(&self) -> u64 {
        self.train.iter().map(|(ids, weight)| ids.len() as f64 * weight).sum::<f64>() as u64
    }

    /// Returns at most `limit` held-out windows of `length + 1` tokens, in file order.
    pub(in crate::train) fn held_out_windows(&self, length: usize, limit: usize) -> Vec<Vec<u32>> {
        let stream: Vec<u32> = self.held_out.iter().flatten().copied().collect();
        let windows: Vec<&[u32]> = stream.chunks_exact(length + 1).collect();
        // Windows are taken at equal distances, so that every source is represented.
        let count = limit.min(windows.len());
        (0..count).map(|index| windows[index * windows.len() / count].to_vec()).collect()
    }
}

/// The position of a run in its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Completed passes over the corpus.
    pub epoch: u64,
    /// Windows used in the current pass.
    pub window: u64,
}

/// An endless sequence of training windows of `length + 1` tokens.
///
/// Each epoch repeats every document `weight` times (a fraction is a chance), shuffles them with a
/// seed made of the run's seed and the epoch's number, lays them end to end and cuts. A cursor is
/// enough to resume.
#[derive(Debug)]
pub struct Windows<'a> {
    corpus: &'a Corpus,
    seed: u64,
    length: usize,
    cursor: Cursor,
    stream: Vec<u32>,
}

impl<'a> Windows<'a> {
    /// Starts at a cursor.
    ///
    /// # Errors
    ///
    /// If one epoch does not fill a single window.
    pub fn new(corpus: &'a Corpus, seed: u64, length: usize, cursor: Cursor) -> Result<Self, TrainError> {
        let stream = Self::lay_out(corpus, seed, cursor.epoch);
        if stream.len() <= length {
            return Err(TrainError::NoData {
                reason: format!(
                    "an epoch has {} tokens, less than one window of {}: give more data or a shorter --length",
                    stream.len(),
                    length + 1
                ),
            });
        }
        Ok(Self { corpus, seed, length, cursor, stream })
    }

    fn lay_out(corpus: &Corpus, seed: u64, epoch: u64) -> Vec<u32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(epoch);
        let mut order = Vec::new();
        for (index, (_, weight)) in corpus.train.iter().enumerate() {
            let whole = weight.floor();
            let copies = whole as usize + usize::from(rng.random::<f64>() < weight - whole);
            order.extend(std::iter::repeat_n(index, copies));
        }
        order.shuffle(&mut rng);
        order.into_iter().flat_map(|index| corpus.train[index].0.iter().copied()).collect()
    }

    /// Returns the position of the next window.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Returns the next window.
    pub fn next_window(&mut self) -> Vec<u32> {
        let mut start = self.cursor.window as usize * self.length;
        while start + self.length + 1 > self.stream.len() {
            self.cursor = Cursor { epoch: self.cursor.epoch + 1, window: 0 };
            self.stream = Self::lay_out(self.corpus, self.seed, self.cursor.epoch);
            start = 0;
        }
        self.cursor.window += 1;
        self.stream[start..start + self.length + 1].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_out_windows_are_spread_over_all_documents() {
        let corpus = Corpus { train: Vec::new(), held_out: vec![vec![0; 20], (0..60_000).collect(), vec![1; 130]] };
        let windows = corpus.held_out_windows(64, 64);
        assert_eq!(windows.len(), 64);
        assert!(windows.iter().all(|window| window.len() == 65));
        let starts: Vec<u32> = windows.iter().map(|window| window[20]).collect();
        assert_eq!(starts[0], 0);
        // There are 925 windows, so one of every 14 or 15 is taken.
        assert!(starts.windows(2).all(|pair| [14 * 65, 15 * 65].contains(&(pair[1] - pair[0]))), "{starts:?}");
        assert!(starts[63] > 58_000, "{starts:?}");
        // All are taken if there are no more.
        assert_eq!(corpus.held_out_windows(64, 1000).len(), 925);
        assert!(corpus.held_out_windows(70_000, 1).is_empty());
    }
}
