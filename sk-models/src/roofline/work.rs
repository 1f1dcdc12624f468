//! The bytes and operations that a forward pass needs.

use std::ops::Range;

use crate::config::Qwen2Config;
use crate::decoder::Formats;

use super::Roof;

/// Bytes moved and operations done, where a multiplication and an addition are two operations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cost {
    /// Bytes read from and written to memory.
    pub bytes: f64,
    /// Operations.
    pub operations: f64,
}

impl Cost {
    /// Returns the least time under `roof`, in seconds: `max(bytes/bandwidth, operations/peak)`.
    #[must_use]
    pub fn floor(&self, roof: &Roof) -> f64 {
        (self.bytes / roof.bandwidth).max(self.operations / roof.peak)
    }
}

/// The sizes of one forward pass. They are the same for all lanes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ForwardPass {
    /// Policies read side by side.
    pub lanes: usize,
    /// Parameters of all their adapters together.
    pub adapters: usize,
    /// New positions of a lane.
    pub positions: usize,
    /// Pairs of a new position of a lane and a position that it attends to, itself included.
    pub pairs: usize,
    /// Positions of a lane whose keys and values are cached already.
    pub cached: usize,
    /// Positions of a lane whose logits are computed.
    pub heads: usize,
}

impl ForwardPass {
    /// Returns the cost of a model of shape `config` with numbers in `formats`.
    ///
    /// - operations `G·(2·M·positions + 2·V·H·heads + 4·Q·layers·pairs) + 2·A·positions`, with M
    ///   the entries of the layers' matrices, Q the width of all query heads and A the parameters
    ///   of the adapters;
    /// - bytes: layers, head and adapters once, the embedding by the row, keys and values of
    ///   `cached + positions` per lane. Logits are never written, since sums over them can be
    ///   computed on the fly.
    #[must_use]
    pub fn cost(&self, config: &Qwen2Config, formats: Formats) -> Cost {
        let count = |n: usize| n as f64;
        let head = config.vocab_size * config.hidden_size;
        let per_lane = 2.0 * count(config.matrix_entries()) * count(self.positions)
            + 2.0 * count(head) * count(self.heads)
            + 4.0 * count(config.query_size() * config.num_hidden_layers) * count(self.pairs);
        let operations = count(self.lanes) * per_lane + 2.0 * count(self.adapters) * count(self.positions);
        let read = config.body_parameters() + if self.heads > 0 { head } else { 0 };
        let embedded = count(self.lanes * self.positions * config.hidden_size);
        let kept = count(self.lanes * (self.cached + self.positions) * config.cache_numbers());
        let [weight, adapter, key] = [formats.weights, formats.states, formats.keys].map(|format| count(format.size()));
        let bytes = weight * (count(read) + embedded) + adapter * count(self.adapters) + key * kept;
        Cost { bytes, operations }
    }
}

/// Forward passes of one model, one after another.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    passes: Vec<ForwardPass>,
}

impl Work {
    /// Returns the work of reading `tokens` tokens of a new context under `lanes` policies, with or
    /// without the next token's logits.
    #[must_use]
    pub fn prefill(tokens: usize, lanes: usize, adapters: usize, logits: bool) -> Self {
        let pass = ForwardPass {
            lanes,
            adapters,
            positions: tokens,
            pairs: triangle(1..tokens + 1),
            cached: 0,
            heads: usize::from(logits),
        };
        Self { passes: vec![pass] }
    }

    /// Returns the work of one model that adds `tokens` tokens to a context of `context` tokens, of
    /// which all but the last are cached: one pass per token.
    #[must_use]
    pub fn decode(context: usize, tokens: usize) -> Self {
        let pass =
            |at: usize| ForwardPass { lanes: 1, adapters: 0, positions: 1, pairs: at, cached: at.saturating_sub(1), heads: 1 };
        Self { passes: (context..context + tokens).map(pass).collect() }
    }

    /// Returns the work of drafting `candidates` spans of `span` tokens after a context of
    /// `context` tokens, of which all but the last are cached: `span` passes.
    ///
    /// All spans begin with the context's last token, which the first pass reads once.
    #[must_use]
    pub fn draft(context: usize, candidates: usize, span: usize) -> Self {
        let pass = |step: usize| {
            let rows = if step == 0 { 1 } else { candidates };
            ForwardPass {
                lanes: 1,
                adapters: 0,
                positions: rows,
                pairs: rows * (context + step),
                cached: if step == 0 { context.saturating_sub(1) } else { context + candidates * (step - 1) },
                heads: rows,
            }
        };
        Self { passes: (0..span).map(pass).collect() }
    }

    /// Returns the work of reading `candidates` spans of `span` tokens after a context of `context`
    /// tokens, of which all but the last are cached, under `lanes` policies: one pass.
    ///
    /// A span's last token predicts nothing, and its first is predicted by the context's last
    /// token, which is one position for all spans of a policy: `1 + N·(L − 1)` positions.
    #[must_use]
    pub fn score(context: usize, candidates: usize, span: usize, lanes: usize, adapters: usize) -> Self {
        let own = candidates * span.saturating_sub(1);
        let pass = ForwardPass {
            lanes,
            adapters,
            positions: 1 + own,
            pairs: context + candidates * triangle(context + 1..context + span.max(1)),
            cached: context.saturating_sub(1),
            heads: 1 + own,
        };
        Self { passes: vec![pass] }
    }

    /// Returns the least time of all passes one after another, in seconds.
    #[must_use]
    pub fn floor(&self, config: &Qwen2Config, formats: Formats, roof: &Roof) -> f64 {
        self.passes.iter().map(|pass| pass.cost(config, formats).floor(roof)).sum()
    }
}

/// Returns the sum of the integers in a range.
fn triangle(range: Range<usize>) -> usize {
    if range.is_empty() { 0 } else { (range.start + range.end - 1) * range.len() / 2 }
}

#[cfg(test)]
mod tests {
    use burn::tensor::DType;

    use super::*;

    /// H 4, I 6, two layers, two query heads and one key head of width 2, V 10.
    fn config(tied: bool) -> Qwen2Config {
        Qwen2Config { tie_word_embeddings: tied, ..Qwen2Config::small([10, 4, 6, 2, 2, 1]) }
    }

    /// Every number in four bytes.
    const WHOLE: Formats = Formats { weights: DType::F32, keys: DType::F32, states: DType::F32 };

    /// q 4·4, k and v 4·2 each, o 4·4, gate, up and down 4·6 each: 120 a layer.
    const MATRICES: usize = 2 * 120;
    /// Biases 4 + 2 + 2 and two norms of 4 in each layer, and the final norm.
    const VECTORS: usize = 2 * 16 + 4;

    #[test]
    fn numbers_by_hand() {
        assert_eq!(config(true).matrix_entries(), MATRICES);
        assert_eq!(config(true).parameters(), MATRICES + VECTORS + 40);
        assert_eq!(config(false).parameters(), MATRICES + VECTORS + 80);
        // Two layers, a key and a value of one head of width 2.
        assert_eq!(config(true).cache_numbers(), 8);
    }

    #[test]
    fn parameters_and_formats_are_those_of_a_model() {
        use crate::decoder::{Decoder, Precision};
        use crate::model::Qwen2;
        use burn::module::Module;
        for tied in [true, false] {
            let config = config(tied);
            let model = Qwen2::random(&config, 1, &burn::tensor::Device::flex());
            assert_eq!(config.parameters(), model.num_params());
            assert_eq!(Decoder::new(model, Precision::F32).unwrap().formats(), WHOLE);
        }
    }

    #[test]
    fn a_pass_by_hand() {
        let pass = ForwardPass { lanes: 2, adapters: 100, positions: 3, pairs: 15, cached: 5, heads: 2 };
        let formats = Formats { weights: DType::BF16, keys: DType::I8, states: DType::F32 };
        let cost = pass.cost(&config(false), formats);
        // Per lane 2·240·3 for the matrices, 2·40·2 for the head, 4·4·2·15 for attention; 2·100·3
        // for the adapters.
        assert_eq!(cost.operations, 2.0 * (1440.0 + 160.0 + 480.0) + 600.0);
        // Layers and head once, six rows of the embedding; the adapters; eight keys and values a
        // lane.
        assert_eq!(cost.bytes, 2.0 * (276.0 + 40.0 + 24.0) + 4.0 * 100.0 + 2.0 * 8.0 * 8.0);
        let headless = ForwardPass { heads: 0, ..pass }.cost(&config(false), formats);
        assert_eq!(cost.bytes - headless.bytes, 2.0 * 40.0);
    }

    #[test]
    fn passes_by_hand() {
        let prefill = Work::prefill(3, 2, 7, true);
        assert_eq!(prefill.passes, [ForwardPass { lanes: 2, adapters: 7, positions: 3, pairs: 6, cached: 0, heads: 1 }]);

        // Three tokens after a context of five, four of which are kept: the fifth is read, and then
        // the first two of the new ones.
        let decode = Work::decode(5, 3);
        assert_eq!(decode.passes.iter().map(|pass| pass.pairs).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(decode.passes.iter().map(|pass| pass.cached).collect::<Vec<_>>(), [4, 5, 6]);

        // Two spans of three after a context of five, four of which are kept. The fifth is read
        // once; then both rows attend to it, to what was kept and to their own.
        let draft = Work::draft(5, 2, 3);
        let of = |f: fn(&ForwardPass) -> usize| draft.passes.iter().map(f).collect::<Vec<_>>();
        assert_eq!(of(|pass| pass.positions), [1, 2, 2]);
        assert_eq!(of(|pass| pass.pairs), [5, 2 * 6, 2 * 7]);
        assert_eq!(of(|pass| pass.cached), [4, 5, 5 + 2]);
        assert_eq!(of(|pass| pass.heads), [1, 2, 2]);

        // The same spans read in one pass: the same positions and pairs, and no key written before
        // it is needed.
        let score = Work::score(5, 2, 3, 4, 9);
        assert_eq!(
            score.passes,
            [ForwardPass { lanes: 4, adapters: 9, positions: 5, pairs: 5 + 2 * (6 + 7), cached: 4, heads: 5 }]
        );
        let one = Work::score(5, 2, 1, 4, 9);
        assert_eq!(one.passes, [ForwardPass { lanes: 4, adapters: 9, positions: 1, pairs: 5, cached: 4, heads: 1 }]);
    }

    #[test]
    fn a_floor_is_the_longer_of_the_two_times() {
        let cost = Cost { bytes: 12.0, operations: 30.0 };
        assert_eq!(cost.floor(&Roof { bandwidth: 4.0, peak: 100.0 }), 3.0);
        assert_eq!(cost.floor(&Roof { bandwidth: 100.0, peak: 5.0 }), 6.0);
        // Passes follow one another: their floors add up, also where one is bound by bytes and the
        // next by operations.
        let (config, roof) = (config(false), Roof { bandwidth: 1.0, peak: 3.0 });
        let work = Work { passes: [Work::prefill(50, 1, 0, false).passes, Work::decode(50, 2).passes].concat() };
        let costs: Vec<Cost> = work.passes.iter().map(|pass| pass.cost(&config, WHOLE)).collect();
        let each: f64 = costs.iter().map(|cost| cost.floor(&roof)).sum();
        assert_eq!(work.floor(&config, WHOLE, &roof), each);
        let sum = |of: fn(&Cost) -> f64| costs.iter().map(of).sum();
        assert!(each > Cost { bytes: sum(|cost| cost.bytes), operations: sum(|cost| cost.operations) }.floor(&roof));
    }

    #[test]
    fn costs_grow_with_the_prefix_and_with_lanes() {
        let config = config(false);
        let cost = |context, lanes| Work::score(context, 7, 24, lanes, 50 * (lanes - 1)).passes[0].cost(&config, WHOLE);
        let (near, far) = (cost(64, 4), cost(65, 4));
        // One key more for each of 162 positions of four lanes, in two layers of width 4; and one
        // more key and value read in each lane.
        assert_eq!(far.operations - near.operations, 4.0 * 4.0 * 8.0 * 162.0);
        assert_eq!(far.bytes - near.bytes, 4.0 * 4.0 * 8.0);
        let step = cost(64, 5).operations - near.operations;
        assert_eq!(step, cost(64, 6).operations - cost(64, 5).operations);
    }
}
