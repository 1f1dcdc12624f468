//! Estimates of the memory that a generation takes.

use super::{Models, SHARED};
use crate::Qwen2Config;
use crate::decoder::{PANEL, QUERIES};
use crate::device::{Shortage, check_room, free_memory, is_processor};
use crate::engine::chunk;
use crate::lora::{LoraAdapter, LowRank};
use crate::team::Team;

/// The sizes that determine the memory of a generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Contexts that the backbone keeps: one per policy, and one if it drafts.
    pub lanes: usize,
    /// Whether the drafter keeps the context.
    pub drafter: bool,
    /// Tokens of the longest context: the instruction, the prompt and the response.
    pub context: usize,
    /// N, the candidates that are drafted; 0 where they are the tokens of the vocabulary.
    pub candidates: usize,
    /// The largest number of tokens of a candidate.
    pub span: usize,
    /// Tokens of the vocabulary that a head reads, each in a row of its own.
    pub ahead: usize,
}

impl Models {
    /// Returns an estimate from above of the bytes that a generation takes besides the weights: keys
    /// and values of the contexts and of the candidates, the states of a pass, the logits and the
    /// probabilities. It leaves out what generations share: the scores of attention on a CPU, and on
    /// a GPU what kernels keep.
    #[must_use]
    pub fn footprint(&self, extent: Extent) -> u64 {
        let Extent { lanes, drafter, context, candidates, span, ahead } = extent;
        let tokens = times(candidates, self.allocated(span)).saturating_add(context as u64);
        let others = self.others.iter().map(|(.., model)| model.bytes_per_token());
        let kept = others.fold(self.backbone.bytes_per_token(), usize::max);
        let drafted = if drafter { self.drafter.bytes_per_token() as u64 } else { 0 };
        // Each row of a pass has its states before and after the norms, q, k, v, the mixed values,
        // the inner activations, and their terms for products in tiles.
        let width = self.most(|config| {
            let widest = config.intermediate_size.max(config.hidden_size).max(config.query_size());
            let terms = (TERM_BYTES * widest).div_ceil(size_of::<f32>());
            4 * config.hidden_size + 2 * config.query_size() + 2 * config.key_value_size() + config.intermediate_size + terms
        });
        let read = lanes.max(usize::from(drafter));
        let rows = times(read, candidates.saturating_mul(span).max(chunk(read.max(1))));
        let logits = size_of::<f32>() * self.most(|config| config.vocab_size);
        // A row that reads one token more adds its keys, its values and its state in each lane.
        let row = times(self.allocated(2), kept).saturating_add(times(size_of::<f32>(), self.most(|config| config.hidden_size)));
        times(lanes, kept)
            .saturating_add(drafted)
            .saturating_mul(tokens)
            .saturating_add(rows.saturating_mul(times(width, size_of::<f32>())))
            .saturating_add(times(2 * candidates.max(lanes), logits))
            .saturating_add(row.saturating_mul(times(ahead, lanes)))
    }

    /// Returns the largest of a size over the models.
    fn most(&self, size: fn(&Qwen2Config) -> usize) -> usize {
        self.decoders().map(|model| size(model.config())).max().unwrap_or(0)
    }

    /// Returns the tokens for which the cache of a candidate of `tokens` tokens has memory. On a
    /// CPU, it is allocated in panels, and doubled to grow.
    fn allocated(&self, tokens: usize) -> usize {
        if is_processor(&self.device) { tokens.div_ceil(PANEL).next_power_of_two().saturating_mul(PANEL) } else { tokens }
    }

    /// Checks that the CPU's memory has room for `needed` bytes. The free memory of a GPU is
    /// unknown and not checked.
    pub(crate) fn check_room(&self, needed: u64) -> Result<(), Shortage> {
        check_room(&self.device, needed, free_memory())
    }

    /// Returns the bytes of the CPU's memory that generations can take together: the free memory
    /// less the room for keys and values of shared prefixes and for the scores of attention, for
    /// which contexts count as at most 32,768 tokens. Returns `None` if the models are not on the CPU
    /// or the system does not report its free memory.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        let free = free_memory().filter(|_| is_processor(&self.device))?;
        let context = self.most(|config| config.max_position_embeddings).min(1 << 15);
        Some(free.saturating_sub(times(self.decoders().count(), SHARED)).saturating_sub(scores(context)))
    }
}

impl LoraAdapter {
    /// Returns the most bytes that the adapter takes: those of its matrices and, on a CPU, those of a
    /// packed copy, in which the columns of A and of B are padded to whole panels.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let numbers = |update: &LowRank| {
            let ([input, rank], [_, output]) = (update.a.dims(), update.b.dims());
            let packed = input * rank.next_multiple_of(PANEL) + rank * output.next_multiple_of(PANEL);
            rank * (input + output) + packed
        };
        self.updates().map(|update| times(numbers(update), size_of::<f32>())).sum()
    }
}

/// Maximum size in bytes of an activation that is prepared for products in tiles: three bf16
/// numbers.
const TERM_BYTES: usize = 6;

/// Returns the bytes of the scores that the threads of all passes hold for a context of `tokens`.
fn scores(tokens: usize) -> u64 {
    // The memory doubles to grow.
    times(Team::global().threads() * QUERIES, 2 * size_of::<f32>()).saturating_mul(tokens as u64)
}

fn times(a: usize, b: usize) -> u64 {
    (a as u64).saturating_mul(b as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    #[test]
    fn an_adapter_counts_with_its_padded_copy() {
        let config = Qwen2Config::small([8, 4, 6, 2, 2, 2]);
        let adapter = LoraAdapter::random(&config, 3, 1, &Device::flex());
        // Of seven targets, four map 4 to 4, two 4 to 6 and one 6 to 4. Ranks and outputs are padded
        // to 32 columns.
        let layer = 3 * (4 * 8 + 3 * 10) + (6 * 4 + 6) * 32 + 3 * 7 * 32;
        assert_eq!(adapter.bytes(), 4 * 2 * layer);
    }
}
