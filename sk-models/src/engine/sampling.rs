use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use sk_core::TokenId;

/// Below this temperature the most likely token is taken.
const GREEDY: f32 = 1e-5;

/// How a token is drawn from logits, in the order transformers applies it: repetition penalty, temperature, top-k, top-p.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawSampling", deny_unknown_fields)]
pub struct Sampling {
    temperature: f32,
    top_p: f32,
    top_k: usize,
    repetition_penalty: f32,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawSampling {
    temperature: f32,
    top_p: f32,
    top_k: usize,
    repetition_penalty: f32,
}

impl Default for RawSampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0, repetition_penalty: 1.0 }
    }
}

/// A sampling setting outside its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} is {value}; it must be {range}")]
pub struct SamplingError {
    field: &'static str,
    value: f32,
    range: &'static str,
}

impl Sampling {
    /// Checks and keeps the settings: `temperature` ≥ 0 (0 is greedy), `top_p` in (0, 1] (1 is off), `top_k` (0 is off),
    /// `repetition_penalty` > 0 (1 is off).
    ///
    /// # Errors
    /// Names the setting out of range.
    pub fn new(temperature: f32, top_p: f32, top_k: usize, repetition_penalty: f32) -> Result<Self, SamplingError> {
        let require = |ok: bool, field, value, range| if ok { Ok(()) } else { Err(SamplingError { field, value, range }) };
        require(temperature.is_finite() && temperature >= 0.0, "temperature", temperature, "finite and not negative")?;
        require(top_p > 0.0 && top_p <= 1.0, "top_p", top_p, "in (0, 1]")?;
        let positive = repetition_penalty.is_finite() && repetition_penalty > 0.0;
        require(positive, "repetition_penalty", repetition_penalty, "finite and positive")?;
        Ok(Self { temperature, top_p, top_k, repetition_penalty })
    }

    /// The most likely token, always.
    pub const fn greedy() -> Self {
        Self { temperature: 0.0, top_p: 1.0, top_k: 0, repetition_penalty: 1.0 }
    }

    /// Temperature 1, top-p 0.95: the paper's operating point.
    pub const fn nucleus() -> Self {
        Self { temperature: 1.0, top_p: 0.95, top_k: 0, repetition_penalty: 1.0 }
    }

    /// What the reference runs drew candidates with: temperature 1, top-p 0.95, top-k 50, repetition penalty 1.05.
    pub const fn reference_runs() -> Self {
        Self { temperature: 1.0, top_p: 0.95, top_k: 50, repetition_penalty: 1.05 }
    }

    /// Whether the outcome does not depend on the generator.
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY
    }
}

impl TryFrom<RawSampling> for Sampling {
    type Error = SamplingError;
    fn try_from(raw: RawSampling) -> Result<Self, SamplingError> {
        Self::new(raw.temperature, raw.top_p, raw.top_k, raw.repetition_penalty)
    }
}

/// A drawn token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Drawn {
    /// The token.
    pub(crate) token: TokenId,
    /// Its log-probability in nats under the logits as they came: temperature 1, nothing penalised or cut.
    pub(crate) log_prob: f32,
}

/// Draws tokens; keeps its buffers from call to call.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    ranked: Vec<(f32, TokenId)>,
    penalised: Vec<bool>,
}

impl Sampler {
    /// Draws a token from `logits` (one per token of the vocabulary) after `history`, which the repetition penalty looks at.
    ///
    /// Costs O(V), and O(m log m) in the number m of tokens kept.
    pub(crate) fn draw(
        &mut self,
        logits: &[f32],
        history: impl IntoIterator<Item = TokenId>,
        sampling: &Sampling,
        rng: &mut dyn Rng,
    ) -> Drawn {
        self.warp(logits, history, sampling);
        let drawn = |token: TokenId| Drawn { token, log_prob: logits[token as usize] - log_sum_exp(logits) };
        if sampling.is_greedy() {
            let best = self.ranked.iter().copied().reduce(|a, b| if before(&b, &a).is_lt() { b } else { a });
            return drawn(best.expect("a vocabulary is not empty").1);
        }
        let top_k = if sampling.top_k == 0 { usize::MAX } else { sampling.top_k };
        self.keep_first(top_k);
        let max = self.ranked.iter().map(|r| r.0).fold(f32::NEG_INFINITY, f32::max);
        for entry in &mut self.ranked {
            entry.0 = ((entry.0 - max) / sampling.temperature).exp();
        }
        if sampling.top_p < 1.0 {
            self.keep_nucleus(sampling.top_p);
        }
        drawn(self.choose(rng))
    }

    fn warp(&mut self, logits: &[f32], history: impl IntoIterator<Item = TokenId>, sampling: &Sampling) {
        self.ranked.clear();
        self.ranked.extend(logits.iter().copied().zip(0..));
        if sampling.repetition_penalty == 1.0 {
            return;
        }
        self.penalised.clear();
        self.penalised.resize(logits.len(), false);
        for token in history {
            let index = token as usize;
            // A token counts once however often it occurs.
            if index < logits.len() && !std::mem::replace(&mut self.penalised[index], true) {
                let logit = &mut self.ranked[index].0;
                *logit = if *logit < 0.0 { *logit * sampling.repetition_penalty } else { *logit / sampling.repetition_penalty };
            }
        }
    }

    fn keep_first(&mut self, count: usize) {
        if count < self.ranked.len() {
            self.ranked.select_nth_unstable_by(count - 1, before);
            self.ranked.truncate(count);
        }
    }

    /// Keeps the smallest set of most likely tokens whose mass reaches `top_p`. Sorts no more than it needs.
    fn keep_nucleus(&mut self, top_p: f32) {
        let target = f64::from(top_p) * self.ranked.iter().map(|r| f64::from(r.0)).sum::<f64>();
        let mut sorted = 64;
        loop {
            let head = sorted.min(self.ranked.len());
            if head < self.ranked.len() {
                self.ranked.select_nth_unstable_by(head - 1, before);
            }
            self.ranked[..head].sort_unstable_by(before);
            let mut mass = 0.0;
            let reached = self.ranked[..head].iter().position(|r| {
                mass += f64::from(r.0);
                mass >= target
            });
            if let Some(last) = reached {
                return self.ranked.truncate(last + 1);
            }
            if head == self.ranked.len() {
                return;
            }
            sorted *= 4;
        }
    }

    fn choose(&mut self, rng: &mut dyn Rng) -> TokenId {
        let weights = self.ranked.iter().map(|r| f64::from(r.0));
        let target = rng.random::<f64>() * weights.clone().sum::<f64>();
        let mut mass = 0.0;
        for (weight, &(_, token)) in weights.zip(&self.ranked) {
            mass += weight;
            if target < mass {
                return token;
            }
        }
        // Rounding may leave the target at the total itself.
        self.ranked.iter().rev().find(|r| r.0 > 0.0).expect("the most likely token has weight 1").1
    }
}

/// Larger first; of equals, the lower id: a total order, so that a cut never depends on how ties were laid out.
fn before(a: &(f32, TokenId), b: &(f32, TokenId)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// log softmax, in nats.
pub(super) fn log_softmax(logits: &[f32]) -> Vec<f32> {
    let total = log_sum_exp(logits);
    logits.iter().map(|z| z - total).collect()
}

fn log_sum_exp(logits: &[f32]) -> f32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&z| f64::from((z - max).exp())).sum();
    max + sum.ln() as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const LOGITS: [f32; 6] = [1.0, 3.0, -2.0, 3.0, 0.5, -8.0];

    fn draws(sampling: &Sampling, history: &[TokenId], count: usize) -> Vec<Drawn> {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let mut sampler = Sampler::default();
        (0..count).map(|_| sampler.draw(&LOGITS, history.iter().copied(), sampling, &mut rng)).collect()
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
        for sampling in [Sampling::reference_runs(), Sampling::new(0.3, 0.5, 2, 2.0).unwrap()] {
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

    #[test]
    fn settings_out_of_range_are_named() {
        for (sampling, field) in [
            (Sampling::new(-1.0, 1.0, 0, 1.0), "temperature"),
            (Sampling::new(f32::NAN, 1.0, 0, 1.0), "temperature"),
            (Sampling::new(1.0, 0.0, 0, 1.0), "top_p"),
            (Sampling::new(1.0, 1.5, 0, 1.0), "top_p"),
            (Sampling::new(1.0, 1.0, 0, 0.0), "repetition_penalty"),
        ] {
            assert!(sampling.unwrap_err().to_string().starts_with(field));
        }
        assert!(serde_json::from_str::<Sampling>(r#"{"top_p": 2.0}"#).is_err());
        assert!(serde_json::from_str::<Sampling>(r#"{"topp": 0.5}"#).is_err());
    }

    proptest! {
        /// The nucleus found by partial sorting is the one found by sorting everything.
        #[test]
        fn nucleus_is_minimal(logits in proptest::collection::vec(-6.0f32..6.0, 1..600), top_p in 0.01f32..1.0) {
            let mut sampler = Sampler { ranked: logits.iter().map(|z| z.exp()).zip(0..).collect(), penalised: Vec::new() };
            let mut all = sampler.ranked.clone();
            sampler.keep_nucleus(top_p);
            all.sort_unstable_by(before);
            let total: f64 = all.iter().map(|r| f64::from(r.0)).sum();
            let mass = |n: usize| all[..n].iter().map(|r| f64::from(r.0)).sum::<f64>();
            let kept = sampler.ranked.len();
            prop_assert_eq!(&sampler.ranked[..], &all[..kept]);
            // f64 rounding of a sum of at most 600 terms.
            let slack = 1e-9 * total;
            prop_assert!(mass(kept) >= f64::from(top_p) * total - slack);
            prop_assert!(mass(kept - 1) < f64::from(top_p) * total + slack);
        }
    }
}
