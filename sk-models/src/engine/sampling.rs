use rand::{Rng, RngExt};
use sk_core::{Sampling, TokenId};

use crate::kernels::logits::argmax;
use crate::kernels::simd::{exp, max, sum, widened};

/// A drawn token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drawn {
    /// The token.
    pub(crate) token: TokenId,
    /// Its log-probability in nats under the raw logits: temperature 1, no penalty, no cut.
    pub(crate) log_prob: f32,
}

/// Draws tokens. Buffers are reused from call to call.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    /// The penalised logits, if there is a penalty.
    logits: Vec<f32>,
    penalised: Vec<bool>,
    /// e^{(z − max)/T} of each token.
    weights: Vec<f32>,
    /// The weights by size.
    buckets: Buckets,
}

impl Sampler {
    /// Draws a token from `logits` (one per token of the vocabulary) after `history`, to which the
    /// repetition penalty applies.
    ///
    /// `uniform` in [0, 1) determines the draw: with the kept tokens in descending order of
    /// probability, the token at that share of their mass is drawn. O(V) in a few vector passes,
    /// and O(m log m) in the number m of tokens about as probable as the last kept one and the
    /// drawn one.
    pub(crate) fn draw(
        &mut self,
        logits: &[f32],
        history: impl IntoIterator<Item = TokenId>,
        sampling: &Sampling,
        uniform: f64,
    ) -> Drawn {
        let Self { logits: own, penalised, weights, buckets } = self;
        let plain = sampling.repetition_penalty() == 1.0;
        if !plain {
            own.clear();
            own.extend_from_slice(logits);
            penalise(own, penalised, history, sampling);
        }
        let rated = if plain { logits } else { own };
        if sampling.is_greedy() {
            let token = argmax(rated);
            return Drawn { token, log_prob: logits[token as usize] - log_sum_exp(logits) };
        }
        let (max, mass) = softmax_weights(rated, sampling.temperature(), weights);
        let token = choose(weights, buckets, sampling, uniform);
        // Without penalty and temperature, the weights are those of the raw logits.
        let total = if plain && sampling.temperature() == 1.0 { max + mass.ln() as f32 } else { log_sum_exp(logits) };
        Drawn { token, log_prob: logits[token as usize] - total }
    }
}

fn penalise(logits: &mut [f32], penalised: &mut Vec<bool>, history: impl IntoIterator<Item = TokenId>, sampling: &Sampling) {
    penalised.clear();
    penalised.resize(logits.len(), false);
    for token in history {
        let index = token as usize;
        // A token counts once, however often it occurs.
        if index < logits.len() && !std::mem::replace(&mut penalised[index], true) {
            logits[index] = sampling.penalise(logits[index]);
        }
    }
}

fn choose(weights: &[f32], buckets: &mut Buckets, sampling: &Sampling, uniform: f64) -> TokenId {
    buckets.fill(weights);
    let mut kept = buckets.all();
    if sampling.top_k() > 0 && sampling.top_k() < weights.len() {
        kept = buckets.first(weights, sampling.top_k());
    }
    if sampling.top_p() < 1.0 {
        kept = buckets.nucleus(weights, kept, f64::from(sampling.top_p()) * kept.mass);
    }
    buckets.at(weights, uniform * kept.mass, kept)
}

/// Terms of a partial sum in f32.
const PIECE: usize = 512;

/// Computes `out[i] = e^{(z_i − max)/T}`. Returns max and the sum.
fn softmax_weights(logits: &[f32], temperature: f32, out: &mut Vec<f32>) -> (f32, f64) {
    out.resize(logits.len(), 0.0);
    widened!({
        let max = max(logits);
        let rate = temperature.recip();
        let mut total = 0.0_f64;
        for (weights, piece) in out.chunks_mut(PIECE).zip(logits.chunks(PIECE)) {
            for (weight, z) in weights.iter_mut().zip(piece) {
                // Keep the weight of an impossible token at zero: the fast exponential does not go
                // below e^−87.
                let value = exp((z - max) * rate);
                *weight = if *z == f32::NEG_INFINITY { 0.0 } else { value };
            }
            total += f64::from(sum(weights));
        }
        (max, total)
    })
}

/// A number of most probable tokens, and their mass.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kept {
    count: usize,
    mass: f64,
}

impl Kept {
    const NONE: Self = Self { count: 0, mass: 0.0 };

    #[inline(always)]
    fn take(&mut self, weight: f32) {
        self.count += 1;
        self.mass += f64::from(weight);
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, mass: self.mass + other.mass }
    }
}

/// Weights in (0, 1] sorted coarsely, by exponent and the first bits of the fraction, the largest
/// first.
///
/// One pass finds the bucket of a cut, and only the tokens of that bucket are sorted.
#[derive(Debug, Default)]
struct Buckets {
    each: Vec<Kept>,
    /// Sums over the buckets of each factor of two.
    octaves: Vec<Kept>,
    /// The bucket that was sorted last.
    sorted: Vec<(f32, TokenId)>,
    looked_into: Option<usize>,
}

/// Buckets for each factor of two.
const PER_OCTAVE: usize = 64;
/// Factors of two; the last bucket holds everything below e^−44 too.
const OCTAVES: usize = 64;
/// The number of buckets.
const BUCKETS: usize = OCTAVES * PER_OCTAVE;

#[inline(always)]
fn bucket(weight: f32) -> u32 {
    const ONE: u32 = 1.0_f32.to_bits();
    // Rounding may leave a weight slightly above one.
    let below = ONE.saturating_sub(weight.to_bits()) >> (23 - PER_OCTAVE.trailing_zeros());
    below.min(BUCKETS as u32 - 1)
}

impl Buckets {
    fn fill(&mut self, weights: &[f32]) {
        /// Weights whose buckets are computed at a time.
        const SIDE: usize = 64;
        self.each.clear();
        self.each.resize(BUCKETS, Kept::NONE);
        self.looked_into = None;
        let mut buckets = [0_u32; SIDE];
        for weights in weights.chunks(SIDE) {
            widened!(buckets.iter_mut().zip(weights).for_each(|(index, weight)| *index = bucket(*weight)));
            for (index, &weight) in buckets.iter().zip(weights) {
                self.each[*index as usize].take(weight);
            }
        }
        self.octaves.clear();
        self.octaves.extend(self.each.chunks_exact(PER_OCTAVE).map(|own| own.iter().copied().fold(Kept::NONE, Kept::and)));
    }

    fn all(&self) -> Kept {
        self.octaves.iter().copied().fold(Kept::NONE, Kept::and)
    }

    /// Returns the tokens of a bucket, the largest first; of equals, the lower id first.
    fn sorted(&mut self, weights: &[f32], index: usize) -> &[(f32, TokenId)] {
        /// Weights that are skipped at once if none is in the bucket.
        const SIDE: usize = 64;
        if self.looked_into != Some(index) {
            self.sorted.clear();
            for (own, first) in weights.chunks(SIDE).zip((0..).step_by(SIDE)) {
                let any = widened!(own.iter().fold(false, |any, weight| any | (bucket(*weight) == index as u32)));
                if any {
                    self.sorted.extend(own.iter().copied().zip(first..).filter(|(weight, _)| bucket(*weight) == index as u32));
                }
            }
            self.sorted.sort_unstable_by(before);
            self.looked_into = Some(index);
        }
        &self.sorted
    }

    /// Returns the `count` largest weights.
    fn first(&mut self, weights: &[f32], count: usize) -> Kept {
        self.walk(weights, Kept { count: weights.len(), ..Kept::NONE }, |kept| kept.count >= count)
            .map_or(self.all(), |(kept, _)| kept)
    }

    /// Returns the shortest prefix of `kept` whose mass reaches `target`.
    fn nucleus(&mut self, weights: &[f32], kept: Kept, target: f64) -> Kept {
        self.walk(weights, kept, |kept| kept.mass >= target).map_or(kept, |(found, _)| found)
    }

    /// Returns the token at which the mass of `kept`, from the largest on, passes `target`.
    fn at(&mut self, weights: &[f32], target: f64, kept: Kept) -> TokenId {
        let found = self.walk(weights, kept, |kept| kept.mass > target);
        // Rounding may leave the target at the total itself.
        let found = found.or_else(|| self.walk(weights, kept, |found| found.mass >= kept.mass * (1.0 - f64::EPSILON * 16.0)));
        found.map_or_else(|| argmax(weights), |(_, token)| token)
    }

    /// Returns the first token of `kept` up to which the number and mass of the tokens are
    /// `enough`, and that number and mass.
    fn walk(&mut self, weights: &[f32], kept: Kept, enough: impl Fn(Kept) -> bool) -> Option<(Kept, TokenId)> {
        let mut passed = Kept::NONE;
        // Whether a whole bucket or octave can be skipped.
        let whole = |with: Kept| with.count <= kept.count && !enough(with);
        for octave in 0..OCTAVES {
            let with = passed.and(self.octaves[octave]);
            if whole(with) {
                passed = with;
                continue;
            }
            for index in octave * PER_OCTAVE..(octave + 1) * PER_OCTAVE {
                let with = passed.and(self.each[index]);
                if whole(with) {
                    passed = with;
                    continue;
                }
                for &(weight, token) in self.sorted(weights, index) {
                    if passed.count == kept.count {
                        return None;
                    }
                    passed.take(weight);
                    if weight > 0.0 && enough(passed) {
                        return Some((passed, token));
                    }
                }
            }
        }
        None
    }
}

/// Returns the uniform number of a draw; greedy draws take none from the generator.
pub(super) fn uniform(sampling: &Sampling, rng: &mut dyn Rng) -> f64 {
    if sampling.is_greedy() { 0.0 } else { rng.random() }
}

/// Larger weights first; of equals, the lower id. A total order, so a cut does not depend on the
/// layout.
fn before(a: &(f32, TokenId), b: &(f32, TokenId)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Returns the log softmax, in nats.
pub(super) fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let total = log_sum_exp(logits);
    logits.iter().map(|z| z - total).collect()
}

/// Returns the entropy of the softmax, in nats.
pub(super) fn entropy(logits: &[f32]) -> f64 {
    let total = f64::from(log_sum_exp(logits));
    // Skip logits of −∞: they contribute nothing, but 0 · ∞ is NaN.
    let share = |&z: &f32| (z > f32::NEG_INFINITY).then(|| (f64::from(z) - total).exp() * (total - f64::from(z)));
    logits.iter().filter_map(share).sum()
}

pub(super) fn log_sum_exp(logits: &[f32]) -> f32 {
    widened!({
        let max = max(logits);
        let mut terms = [0.0_f32; PIECE];
        let mut total = 0.0_f64;
        for piece in logits.chunks(PIECE) {
            for (term, z) in terms.iter_mut().zip(piece) {
                *term = exp(z - max);
            }
            total += f64::from(sum(&terms[..piece.len()]));
        }
        max + total.ln() as f32
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const LOGITS: [f32; 6] = [1.0, 3.0, -2.0, 3.0, 0.5, -8.0];

    fn draws(sampling: &Sampling, history: &[TokenId], count: usize) -> Vec<Drawn> {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut sampler = Sampler::default();
        (0..count).map(|_| sampler.draw(&LOGITS, history.iter().copied(), sampling, rng.random())).collect()
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        assert!(draws(&Sampling::greedy(), &[], 5).iter().all(|d| d.token == 1));
        let penalised = Sampling::new(0.0, 1.0, 0, 4.0).unwrap();
        // 3 / 4 < 1, so both large tokens fall behind token 0.
        assert!(draws(&penalised, &[1, 3, 3], 5).iter().all(|d| d.token == 0));
    }

    #[test]
    fn log_probabilities_are_those_of_the_raw_logits() {
        let total: f32 = LOGITS.iter().map(|z| z.exp()).sum();
        for sampling in [Sampling::new(1.0, 0.95, 50, 1.05).unwrap(), Sampling::new(0.3, 0.5, 2, 2.0).unwrap()] {
            for drawn in draws(&sampling, &[1], 50) {
                let expected = LOGITS[drawn.token as usize] - total.ln();
                // A few units in the last place of numbers near 10.
                assert!((drawn.log_prob - expected).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn frequencies_follow_the_truncated_distribution() {
        let count = 20_000;
        let tempered: Vec<f64> = LOGITS.iter().map(|&z| (f64::from(z) / 0.7).exp()).collect();
        // top-k 4 keeps tokens 0, 1, 3, 4; of their mass top-p 0.98 needs all but token 4.
        let sampling = Sampling::new(0.7, 0.98, 4, 1.0).unwrap();
        let kept = tempered[0] + tempered[1] + tempered[3];
        assert!((tempered[1] + tempered[3]) / (kept + tempered[4]) < 0.98 && kept / (kept + tempered[4]) > 0.98);
        let drawn = draws(&sampling, &[], count);
        for token in 0..6u32 {
            let expected = if [0, 1, 3].contains(&token) { tempered[token as usize] / kept } else { 0.0 };
            let seen = drawn.iter().filter(|d| d.token == token).count() as f64 / count as f64;
            // Six standard errors of a proportion, at most.
            let tolerance = 6.0 * (expected * (1.0 - expected) / count as f64).sqrt();
            assert!((seen - expected).abs() <= tolerance, "token {token}: {seen} against {expected}");
        }
    }

    /// Returns the number of kept tokens, the drawn token and its margin, computed by sorting all
    /// weights.
    fn plainly(logits: &[f32], sampling: &Sampling, uniform: f64) -> (usize, TokenId, f64) {
        let mut all = Vec::new();
        softmax_weights(logits, sampling.temperature(), &mut all);
        let mut all: Vec<(f32, TokenId)> = all.into_iter().zip(0..).collect();
        all.sort_unstable_by(before);
        if sampling.top_k() > 0 {
            all.truncate(sampling.top_k());
        }
        let mass = |kept: &[(f32, TokenId)]| kept.iter().map(|entry| f64::from(entry.0)).sum::<f64>();
        let target = f64::from(sampling.top_p()) * mass(&all);
        let reached = (1..all.len()).find(|&count| mass(&all[..count]) >= target).unwrap_or(all.len());
        all.truncate(if sampling.top_p() < 1.0 { reached } else { all.len() });
        let target = uniform * mass(&all);
        let place = (1..all.len()).find(|&count| mass(&all[..count]) > target).unwrap_or(all.len());
        // How near the target is to a boundary, as a share of the mass.
        let margin = (1..=all.len()).map(|count| (mass(&all[..count]) - target).abs()).fold(f64::INFINITY, f64::min);
        (all.len(), all[place - 1].1, margin / mass(&all))
    }

    #[test]
    fn impossible_tokens_are_never_drawn() {
        let logits = [f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY, -100.0];
        let mut sampler = Sampler::default();
        for uniform in [0.0, 0.5, 1.0 - f64::EPSILON] {
            for sampling in [Sampling::new(1.0, 1.0, 0, 1.0).unwrap(), Sampling::nucleus(), Sampling::greedy()] {
                let token = sampler.draw(&logits, [], &sampling, uniform).token;
                assert!(token == 1 || token == 3, "{token}");
            }
        }
    }

    #[test]
    fn equal_weights_are_laid_out_by_id() {
        let mut sampler = Sampler::default();
        let logits = [2.0_f32; 10];
        for (place, expected) in [(0.05, 0), (0.45, 2), (0.95, 4)] {
            let sampling = Sampling::new(0.7, 1.0, 5, 1.0).unwrap();
            assert_eq!(sampler.draw(&logits, [], &sampling, place).token, expected);
        }
        let half = Sampling::new(0.7, 0.5, 0, 1.0).unwrap();
        assert!((0..100).all(|i| sampler.draw(&logits, [], &half, f64::from(i) / 100.0).token < 5));
    }

    proptest! {
        /// Cutting and choosing by buckets gives the same result as after sorting all weights.
        #[test]
        fn buckets_equal_a_sort(
            logits in proptest::collection::vec(prop_oneof![-6.0f32..6.0, -60.0f32..0.0, Just(1.5f32)], 1..600),
            temperature in 0.1f32..4.0,
            top_p in prop_oneof![0.01f32..1.0, Just(1.0f32)],
            top_k in prop_oneof![Just(0usize), 1usize..700],
            uniform in 0.0f64..1.0,
        ) {
            let sampling = Sampling::new(temperature, top_p, top_k, 1.0).unwrap();
            let (count, token, margin) = plainly(&logits, &sampling, uniform);
            // Sums of at most 600 terms in two orders differ by a few units in the last place of
            // f64.
            prop_assume!(margin > 1e-12);
            let mut sampler = Sampler::default();
            let drawn = sampler.draw(&logits, [], &sampling, uniform);
            prop_assert_eq!(drawn.token, token, "of {} kept", count);
        }

        /// −Σ p ln p, by the probabilities.
        #[test]
        fn entropy_is_that_of_the_probabilities(logits in proptest::collection::vec(-9.0f32..9.0, 1..200)) {
            let sum: f64 = logits.iter().map(|&z| f64::from(z).exp()).sum();
            let plain: f64 = logits.iter().map(|&z| f64::from(z).exp() / sum).map(|p| -p * p.ln()).sum();
            // A rounding of log Σ e^z in f32 shifts every logarithm alike.
            prop_assert!((entropy(&logits) - plain).abs() < 2e-6);
        }

        /// Vector sums agree with a plain one.
        #[test]
        fn log_sum_exp_is_accurate(logits in proptest::collection::vec(-40.0f32..40.0, 1..2000)) {
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let plain = f64::from(max) + logits.iter().map(|&z| f64::from(z - max).exp()).sum::<f64>().ln();
            // Two units in the last place of f32 at the size of the result.
            prop_assert!((f64::from(log_sum_exp(&logits)) - plain).abs() <= 2.4e-7 * plain.abs().max(1.0));
        }
    }
}
