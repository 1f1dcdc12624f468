use sk_core::TokenId;

use super::EngineError;
use super::error::proceed;
use crate::decoder::{Decoder, Hidden, NODE_TOKENS, Prefix, Seats, Suffix};
use crate::device::is_cpu;

/// Positions of a prefill pass, over all lanes: half of a full pass, so that other requests are
/// served in between.
const CHUNK: usize = 256;

/// Returns the number of tokens of a chunk on a CPU, which is a whole number of blocks.
pub(crate) fn chunk(lanes: usize) -> usize {
    (CHUNK / lanes).max(1).next_multiple_of(NODE_TOKENS)
}

/// Tokens of a chunk on a GPU, where each chunk reads the weights again and launches all kernels.
const CHUNK_ON_GPU: usize = 512;

/// A prefix that is updated to each new context. It holds all tokens but the last, which is the
/// first input of every candidate.
pub(super) struct Follower {
    tokens: Vec<TokenId>,
    pub(super) prefix: Prefix,
    /// The number of tokens whose whole blocks are in the prefix tree already.
    shared: usize,
}

impl Follower {
    pub(super) fn new(model: &Decoder, lanes: usize) -> Self {
        Self { tokens: Vec::new(), prefix: model.prefix(lanes), shared: 0 }
    }

    /// Makes the prefix hold `context` without its last token. The common beginning is kept. The
    /// rest is computed or, if the prefix was empty, taken from the prefix tree as far as
    /// possible.
    ///
    /// On a CPU, the keys and values that are read here are bit-identical for any division of the
    /// context into passes if those before them are canonical.
    ///
    /// # Errors
    ///
    /// If the request was stopped.
    pub(super) fn follow(&mut self, model: &Decoder, seats: &Seats, context: &[TokenId]) -> Result<(), EngineError> {
        let target = &context[..context.len().saturating_sub(1)];
        let common = self.tokens.iter().zip(target).take_while(|(a, b)| a == b).count();
        self.tokens.truncate(common);
        self.prefix.truncate(common);
        self.shared = self.shared.min(common - common % NODE_TOKENS);
        let is_new = self.tokens.is_empty();
        if is_new {
            let recalled = model.recall(target, seats, &mut self.prefix);
            self.tokens.extend_from_slice(&target[..recalled]);
            self.shared = recalled;
        }
        self.read(model, seats, &target[self.tokens.len()..])
    }

    /// Returns whether the prefix holds `context` without its last token.
    pub(super) fn holds(&self, context: &[TokenId]) -> bool {
        context.split_last().is_some_and(|(_, rest)| rest == self.tokens)
    }

    /// Appends tokens in passes of bounded memory. Other requests' passes can run in between. Whole
    /// blocks are shared after each pass, so that few tokens are held twice while they are moved.
    fn read(&mut self, model: &Decoder, seats: &Seats, mut rest: &[TokenId]) -> Result<(), EngineError> {
        let size = if is_cpu(&model.device()) { chunk(seats.count()) } else { CHUNK_ON_GPU };
        while !rest.is_empty() {
            proceed()?;
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            model.prefill(chunk, seats, &mut self.prefix);
            self.tokens.extend_from_slice(chunk);
            self.share(model, seats);
            rest = after;
        }
        Ok(())
    }

    /// Adds the whole blocks of canonical tokens to the prefix tree; see [`Prefix::canonical_len`].
    fn share(&mut self, model: &Decoder, seats: &Seats) {
        let canonical = self.prefix.canonical_len();
        let whole = canonical - canonical % NODE_TOKENS;
        if self.shared < whole {
            model.keep(&self.tokens[..whole], self.shared, seats, &mut self.prefix);
            self.shared = whole;
        }
    }

    /// Appends row `row` of `suffix`, whose input was `inputs`.
    pub(super) fn adopt(&mut self, model: &Decoder, seats: &Seats, (suffix, row): (&Suffix, usize), inputs: &[TokenId]) {
        self.prefix.adopt(suffix, row, inputs.len());
        self.tokens.extend_from_slice(inputs);
        self.share(model, seats);
    }

    /// Reads one more token in every lane and returns the states after it.
    pub(super) fn advance(&mut self, model: &Decoder, seats: &Seats, token: TokenId) -> Hidden {
        self.tokens.push(token);
        model.advance(token, seats, &mut self.prefix)
    }

    /// Appends the lanes of another prefix that follows the same context.
    pub(super) fn join_lanes(&mut self, other: Self) {
        debug_assert_eq!(self.tokens, other.tokens, "both follow one context");
        self.prefix.join_lanes(other.prefix);
        self.shared = self.shared.min(other.shared);
    }
}

/// Checks that the context is not empty, leaves room for `new` more tokens and holds only tokens of
/// the vocabulary.
pub(super) fn check_context(model: &Decoder, role: &'static str, context: &[TokenId], new: usize) -> Result<(), EngineError> {
    if context.is_empty() {
        return Err(EngineError::EmptyContext { role });
    }
    let (limit, tokens) = (model.config().max_position_embeddings, context.len() + new);
    if tokens > limit {
        return Err(EngineError::ContextFull { role, tokens, limit });
    }
    check_vocabulary(model, role, context)
}

/// Checks that the tokens are in the model's vocabulary.
pub(super) fn check_vocabulary(model: &Decoder, role: &'static str, tokens: &[TokenId]) -> Result<(), EngineError> {
    let vocab_size = model.config().vocab_size;
    match tokens.iter().find(|&&t| t as usize >= vocab_size) {
        Some(&token) => Err(EngineError::Vocabulary { role, token, vocab_size }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::Qwen2Config;
    use crate::decoder::{Precision, instructions};

    #[test]
    fn chunks_on_a_cpu_are_whole_blocks() {
        assert_eq!([1, 2, 3, 4, 5, 9, 300].map(chunk), [256, 128, 128, 64, 64, 64, 64]);
    }

    #[test]
    fn adopted_tokens_are_shared_if_reading_them_gives_the_same_bits() {
        let config = Qwen2Config { tie_word_embeddings: true, ..Qwen2Config::small([100, 64, 96, 2, 4, 2]) };
        let text: Vec<TokenId> = (0..700).map(|at| at * 37 % 101 % 100).collect();
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let decoder = || Decoder::random(&config, 5, &Device::flex(), precision).unwrap();
            let logits = |model: &Decoder| {
                let (seats, mut follower) = (model.alone(), Follower::new(model, 1));
                follower.follow(model, &seats, &text).unwrap();
                let hidden = follower.advance(model, &seats, text[text.len() - 1]);
                model.logits(&hidden, &seats).unwrap()
            };
            let expected = logits(&decoder());
            for at_a_time in [1, 590] {
                let model = decoder().sharing_prefixes(1 << 22);
                let (seats, mut follower) = (model.alone(), Follower::new(&model, 1));
                follower.follow(&model, &seats, &text[..51]).unwrap();
                let mut suffix = model.suffix(1, 2);
                for tokens in text[50..640].chunks(at_a_time) {
                    let rows = [&text[..tokens.len()], tokens];
                    let _ = model.extend(&rows, &seats, &mut follower.prefix, &mut suffix);
                }
                follower.adopt(&model, &seats, (&suffix, 1), &text[50..640]);
                let shared = model.recall(&text, &seats, &mut model.prefix(1));
                // Tiles add in another order than vectors, which passes of few tokens use.
                let differs = at_a_time == 1 && instructions(precision).contains("AMX");
                assert_eq!(shared, if differs { 0 } else { 640 }, "{precision:?}");
                assert_eq!(logits(&model), expected, "{precision:?}, {at_a_time} at a time");
            }
        }
    }

    #[test]
    fn a_context_may_be_read_in_any_passes() {
        let config = Qwen2Config { tie_word_embeddings: true, ..Qwen2Config::small([100, 64, 96, 2, 4, 2]) };
        let text: Vec<TokenId> = (0..700).map(|at| at * 37 % 101 % 100).collect();
        for precision in [Precision::F32, Precision::Bf16, Precision::Int8] {
            let model = Decoder::random(&config, 5, &Device::flex(), precision).unwrap().sharing_prefixes(1 << 22);
            let seats = model.alone();
            let logits = |ends: &[usize]| {
                model.forget_prefixes();
                let mut follower = Follower::new(&model, 1);
                ends.iter().for_each(|&end| follower.follow(&model, &seats, &text[..end]).unwrap());
                assert_eq!(model.recall(&text, &seats, &mut model.prefix(1)), 640, "{precision:?}");
                let hidden = follower.advance(&model, &seats, text[text.len() - 1]);
                model.logits(&hidden, &seats).unwrap()
            };
            assert_eq!(logits(&[1, 8, 9, 51, 64, 200, 333, 700]), logits(&[700]), "{precision:?}");
        }
    }

    #[test]
    fn blocks_after_a_replaced_token_are_shared() {
        let config = Qwen2Config::small([100, 32, 48, 1, 2, 2]);
        let model = Decoder::random(&config, 5, &Device::flex(), Precision::Int8).unwrap().sharing_prefixes(1 << 20);
        let (seats, mut follower) = (model.alone(), Follower::new(&model, 1));
        let text: Vec<TokenId> = (0..200).map(|at| at * 37 % 100).collect();
        let mut other = text.clone();
        other[100] = 3;
        for text in [&text, &other] {
            follower.follow(&model, &seats, text).unwrap();
            assert_eq!(model.recall(text, &seats, &mut model.prefix(1)), 192);
        }
    }
}
