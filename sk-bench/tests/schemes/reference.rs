//! The reference instantiation, its round robins and its ablations, written out from their
//! definitions: drafts, scores, ratings, choice.
//!
//! Nothing here calls a slot of the engine. Models read whole sequences (see [`Brute`]), and
//! statistics are plain sums. The draws are those of the definitions: one uniform number per
//! drafted token, row by row, and one per choice.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::TokenId;

use crate::brute::{Brute, log_softmax};
use crate::{WEIGHTS, argmax};

/// Tokens that end a response of the tiny models.
const END_OF_TEXT: [TokenId; 2] = [256, 258];
const BETA: f64 = 0.1;
const ALPHA: f64 = 0.5;

/// The convention: the paper's equations, or the published runs where they differ.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Accidents {
    None,
    Published,
}

/// The dispersion σ of a blade.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Sigma {
    /// The mean min-entropy of its policy.
    MinEntropy,
    /// The same values, permuted over the candidates.
    Shuffled,
    Zero,
}

/// The aggregator 𝓐.
#[derive(Clone, Copy)]
pub(crate) enum Rating {
    Tournament {
        rounds: usize,
    },
    /// A round robin: the sum over opponents of g(Δ / s).
    Pairs {
        g: fn(f64) -> f64,
        s: fn(f64, f64) -> f64,
    },
    /// μ itself.
    Score,
}

/// The selector 𝓢.
#[derive(Clone, Copy)]
pub(crate) enum Choice {
    Champion { temperature: f64, w_tour: f64, w_blade: f64, lambda: f64 },
    Softmax,
    Uniform,
}

/// The definition of a scheme over drafted spans.
#[derive(Clone, Copy)]
pub(crate) struct Definition {
    pub(crate) accidents: Accidents,
    pub(crate) candidates: usize,
    pub(crate) sigma: Sigma,
    /// Whether the blades, the inputs of the rating, and the champion's terms are standardised.
    pub(crate) standardized: [bool; 3],
    pub(crate) rating: Rating,
    pub(crate) choice: Choice,
}

/// The published operating point for all three objectives, under the paper's equations.
pub(crate) const REFERENCE: Definition = Definition {
    accidents: Accidents::None,
    candidates: 7,
    sigma: Sigma::MinEntropy,
    standardized: [true; 3],
    rating: Rating::Tournament { rounds: 5 },
    choice: Choice::Champion { temperature: 0.25, w_tour: 1.1, w_blade: 1.75, lambda: 0.2 },
};

/// The reference instantiation as published, at the paper's operating point.
pub(crate) const PUBLISHED: Definition = Definition {
    accidents: Accidents::Published,
    choice: Choice::Champion { temperature: 8.0, w_tour: 1.1, w_blade: 1.75, lambda: 0.2 },
    ..REFERENCE
};

/// A span that the drafter drew.
#[derive(Clone, Default)]
struct Draft {
    tokens: Vec<TokenId>,
    /// log π_S of each token.
    log_probs: Vec<f64>,
}

impl Draft {
    fn cut(&self, tokens: usize) -> Self {
        let tokens = tokens.min(self.tokens.len());
        Self { tokens: self.tokens[..tokens].to_vec(), log_probs: self.log_probs[..tokens].to_vec() }
    }
}

/// The result of one step.
pub(crate) struct Step {
    pub(crate) candidates: Vec<Vec<TokenId>>,
    pub(crate) mu: Vec<f64>,
    pub(crate) sigma: Vec<f64>,
    pub(crate) ratings: Vec<f64>,
    pub(crate) probabilities: Vec<f64>,
    pub(crate) chosen: usize,
}

impl Definition {
    /// A step of at most `limit` tokens after `context`, with the draws of `rng`.
    pub(crate) fn step(&self, brute: &Brute, context: &[TokenId], limit: usize, rng: &mut ChaCha8Rng) -> Step {
        let drafts = self.draft(brute, context, limit, rng);
        self.decide(brute, context, &drafts, rng.random())
    }

    /// A step with a race. All candidates are scored on their first `tokens` tokens. The most
    /// probable ones that together hold `mass` are then scored on all their tokens.
    pub(crate) fn race(
        &self,
        brute: &Brute,
        context: &[TokenId],
        limit: usize,
        (tokens, mass): (usize, f64),
        rng: &mut ChaCha8Rng,
    ) -> (Step, Vec<Option<usize>>) {
        let mut drafts = self.draft(brute, context, limit, rng);
        let uniform = rng.random();
        let heads: Vec<Draft> = drafts.iter().map(|draft| draft.cut(tokens)).collect();
        let first = self.decide(brute, context, &heads, uniform);
        if drafts.iter().all(|draft| draft.tokens.len() <= tokens) {
            return (first, vec![None; drafts.len()]);
        }
        let mut order: Vec<usize> = (0..drafts.len()).collect();
        order.sort_by(|&a, &b| first.probabilities[b].total_cmp(&first.probabilities[a]));
        let enough = (1..=order.len()).find(|&n| order[..n].iter().map(|&i| first.probabilities[i]).sum::<f64>() >= mass);
        let survivors = &order[..enough.unwrap_or(order.len())];
        let mut scored = vec![None; drafts.len()];
        let whole: Vec<Vec<TokenId>> = drafts.iter().map(|draft| draft.tokens.clone()).collect();
        for i in (0..drafts.len()).filter(|i| !survivors.contains(i) && whole[*i].len() > tokens) {
            drafts[i] = heads[i].clone();
            scored[i] = Some(tokens);
        }
        let mut step = self.decide(brute, context, &drafts, uniform);
        for (i, p) in step.probabilities.iter_mut().enumerate() {
            *p *= f64::from(u8::from(survivors.contains(&i)));
        }
        let sum: f64 = step.probabilities.iter().sum();
        step.probabilities.iter_mut().for_each(|p| *p /= sum);
        step.chosen = drawn(&step.probabilities, uniform);
        (Step { candidates: whole, ..step }, scored)
    }

    /// A step in waves: `first` candidates, then `wave` more at a time, until one has probability
    /// `enough`.
    pub(crate) fn waves(
        &self,
        brute: &Brute,
        context: &[TokenId],
        limit: usize,
        (first, wave, enough): (usize, usize, f64),
        rng: &mut ChaCha8Rng,
    ) -> Step {
        let drafts = self.draft(brute, context, limit, rng);
        let uniform = rng.random();
        let mut count = first;
        loop {
            let step = self.decide(brute, context, &drafts[..count], uniform);
            if count == drafts.len() || step.probabilities.iter().any(|&p| p >= enough) {
                return step;
            }
            count = (count + wave).min(drafts.len());
        }
    }

    /// Scores, rates and chooses among drafts.
    fn decide(&self, brute: &Brute, context: &[TokenId], drafts: &[Draft], uniform: f64) -> Step {
        let candidates: Vec<Vec<TokenId>> = drafts.iter().map(|draft| draft.tokens.clone()).collect();
        let fluency: Vec<f64> = drafts.iter().map(|draft| mean(&draft.log_probs)).collect();
        let blades = self.scores(brute, context, &candidates);
        let (mu, sigma) = self.composite(&blades);
        let ratings = self.rate(&mu, &sigma, &fluency);
        let probabilities = self.choose(&ratings, &mu, &sigma);
        let chosen = drawn(&probabilities, uniform);
        Step { candidates, mu, sigma, ratings, probabilities, chosen }
    }

    /// Draws N spans from the drafter, at T = 1 from the nucleus of mass 0.95. The published runs
    /// differ: they first cut to the fifty most probable tokens, divide the logits of tokens seen
    /// before by 1.05 (multiply negative ones), drop the end-of-text token from a span, and forbid
    /// it as a span's first token.
    fn draft(&self, brute: &Brute, context: &[TokenId], limit: usize, rng: &mut ChaCha8Rng) -> Vec<Draft> {
        let published = self.accidents == Accidents::Published;
        let mut spans = vec![(Draft::default(), false); self.candidates];
        while spans.iter().any(|(_, whole)| !whole) {
            for (Draft { tokens, log_probs: drawn }, whole) in spans.iter_mut().filter(|(_, whole)| !whole) {
                let history: Vec<TokenId> = context.iter().chain(&*tokens).copied().collect();
                let mut logits = brute.amateur_logits(&history);
                if published && tokens.is_empty() {
                    END_OF_TEXT.iter().for_each(|&end| logits[end as usize] = f64::NEG_INFINITY);
                }
                let log_probs = log_softmax(&logits);
                if published {
                    let seen: std::collections::BTreeSet<TokenId> = history.iter().copied().collect();
                    for token in seen {
                        let logit = &mut logits[token as usize];
                        *logit = if *logit < 0.0 { *logit * 1.05 } else { *logit / 1.05 };
                    }
                }
                let token = nucleus_draw(&logits, if published { 50 } else { usize::MAX }, rng.random());
                let ends = END_OF_TEXT.contains(&token);
                if ends && published {
                    *whole = true;
                    continue;
                }
                tokens.push(token);
                drawn.push(log_probs[token as usize]);
                *whole = ends || tokens.len() == limit || tokens.ends_with(&[10, 10]);
            }
        }
        spans.into_iter().map(|(draft, _)| draft).collect()
    }

    /// For each blade, μ = β/L Σ log(π_k/π_B) and σ of every candidate.
    fn scores(&self, brute: &Brute, context: &[TokenId], candidates: &[Vec<TokenId>]) -> Vec<(Vec<f64>, Vec<f64>)> {
        let prior: Vec<f64> = candidates.iter().map(|tokens| brute.read(None, context, tokens).0).collect();
        let blade = |k: usize| {
            let score = |(tokens, prior): (&Vec<TokenId>, &f64)| {
                let (log_prob, entropy) = brute.read(Some(k), context, tokens);
                (BETA * (log_prob - prior), entropy)
            };
            let (mu, mut sigma): (Vec<f64>, Vec<f64>) = candidates.iter().zip(&prior).map(score).unzip();
            match self.sigma {
                Sigma::MinEntropy => {}
                Sigma::Zero => sigma.fill(0.0),
                Sigma::Shuffled => {
                    // One permutation per step, the same for all blades.
                    let mut rng = ChaCha8Rng::seed_from_u64(42);
                    rng.set_stream(context.len() as u64);
                    sigma.shuffle(&mut rng);
                }
            }
            (mu, sigma)
        };
        (0..WEIGHTS.len()).map(blade).collect()
    }

    /// Σ w_k μ̂_k and Σ w_k σ̂_k (`eq:cbn`), with σ in units of the standard deviation of μ. The
    /// published runs add 1e-6 to each deviation and divide σ by its own.
    fn composite(&self, blades: &[(Vec<f64>, Vec<f64>)]) -> (Vec<f64>, Vec<f64>) {
        let n = blades[0].0.len();
        let (mut mu, mut sigma) = (vec![0.0; n], vec![0.0; n]);
        for ((m, s), w) in blades.iter().zip(WEIGHTS) {
            let (centre, scale, unit) = match (self.standardized[0], self.accidents) {
                (false, _) => (0.0, 1.0, 1.0),
                (true, Accidents::None) => (mean(m), deviation(m), deviation(m)),
                (true, Accidents::Published) => (mean(m), deviation(m) + 1e-6, deviation(s) + 1e-6),
            };
            for i in 0..n {
                mu[i] += w * (m[i] - centre) / scale;
                sigma[i] += w * s[i] / unit;
            }
        }
        (mu, sigma)
    }

    fn rate(&self, mu: &[f64], sigma: &[f64], fluency: &[f64]) -> Vec<f64> {
        // The inputs of a match: d_i = α z(ℓ_S) + (1 − α) z(μ) and s_i = (1 − α) σ_i / std(μ).
        let (dm, df) = if self.standardized[1] { (self.z(mu), self.z(fluency)) } else { (mu.to_vec(), fluency.to_vec()) };
        let d: Vec<f64> = dm.iter().zip(&df).map(|(m, f)| ALPHA * f + (1.0 - ALPHA) * m).collect();
        let unit = match (self.standardized[1], self.accidents) {
            (false, _) => 1.0,
            (true, Accidents::None) => deviation(mu),
            (true, Accidents::Published) => deviation(mu) + 1e-8,
        };
        let s: Vec<f64> = sigma.iter().map(|sigma| (1.0 - ALPHA) * sigma / unit).collect();
        match self.rating {
            Rating::Score => mu.to_vec(),
            Rating::Pairs { g, s: spread } => {
                let rate = |i: usize| (0..d.len()).filter(|&j| j != i).map(|j| g((d[i] - d[j]) / spread(s[i], s[j]))).sum();
                (0..d.len()).map(rate).collect()
            }
            Rating::Tournament { rounds } => {
                // Ties of μ are broken by fluency, then by smaller σ. The published runs break them
                // by position in the batch.
                let key = |i: usize| match self.accidents {
                    Accidents::None => [-mu[i], -fluency[i], sigma[i]],
                    Accidents::Published => [-mu[i], 0.0, 0.0],
                };
                let mut seeds: Vec<usize> = (0..mu.len()).collect();
                seeds.sort_by(|&a, &b| key(a).partial_cmp(&key(b)).unwrap());
                let ratings = tournament(rounds, &seeds, &d, &s);
                if self.accidents == Accidents::Published {
                    return ratings;
                }
                // Candidates with equal keys share the mean of their ratings.
                let alike = |i: usize| (0..mu.len()).filter(|&j| key(j) == key(i)).map(|j| ratings[j]).collect::<Vec<_>>();
                (0..mu.len()).map(|i| mean(&alike(i))).collect()
            }
        }
    }

    fn choose(&self, ratings: &[f64], mu: &[f64], sigma: &[f64]) -> Vec<f64> {
        let logits: Vec<f64> = match self.choice {
            Choice::Uniform => vec![0.0; mu.len()],
            Choice::Softmax => ratings.to_vec(),
            Choice::Champion { temperature, w_tour, w_blade, lambda } => {
                let z = |values: &[f64]| if self.standardized[2] { self.z(values) } else { values.to_vec() };
                let terms = z(ratings).into_iter().zip(z(mu)).zip(z(sigma));
                terms.map(|((r, m), s)| (w_tour * r + w_blade * (m - lambda * s)) / temperature).collect()
            }
        };
        log_softmax(&logits).into_iter().map(f64::exp).collect()
    }

    /// (x − mean) / std, or zero if all values are equal. The published runs add 1e-6 to std, and
    /// only subtract the mean where std is below 1e-8.
    fn z(&self, values: &[f64]) -> Vec<f64> {
        let (centre, spread) = (mean(values), deviation(values));
        let scale = match self.accidents {
            Accidents::Published if spread < 1e-8 => 1.0,
            Accidents::Published => spread + 1e-6,
            Accidents::None if spread == 0.0 => f64::INFINITY,
            Accidents::None => spread,
        };
        values.iter().map(|value| (value - centre) / scale).collect()
    }
}

/// Elo ratings after `rounds` rounds of a Swiss-system tournament. The score of a match is Φ(Δ /
/// √(s_i² + s_j² + 1e-8)).
fn tournament(rounds: usize, seeds: &[usize], d: &[f64], s: &[f64]) -> Vec<f64> {
    let n = d.len();
    let mut rating = vec![1500.0_f64; n];
    let mut met = vec![vec![false; n]; n];
    for round in 0..rounds {
        let k = if rounds == 1 { 40.0 } else { 40.0 * (10.0_f64 / 40.0).powf(round as f64 / (rounds - 1) as f64) };
        let mut waiting = seeds.to_vec();
        // A stable sort: equal ratings stay in the order of seeds.
        waiting.sort_by(|&a, &b| rating[b].total_cmp(&rating[a]));
        let mut gains = vec![0.0; n];
        while waiting.len() > 1 {
            let i = waiting.remove(0);
            let opponent = waiting.iter().position(|&j| !met[i][j]).unwrap_or(0);
            let j = waiting.remove(opponent);
            (met[i][j], met[j][i]) = (true, true);
            let won = normal_cdf((d[i] - d[j]) / (s[i] * s[i] + s[j] * s[j] + 1e-8).sqrt());
            let expected = 1.0 / (1.0 + 10_f64.powf((rating[j] - rating[i]) / 400.0));
            gains[i] = k * (won - expected);
            gains[j] = -gains[i];
        }
        rating.iter_mut().zip(gains).for_each(|(rating, gain)| *rating += gain);
    }
    rating
}

/// Φ by Simpson's rule on the density, from 0. Accurate to 1e-10; constant beyond ±12.
pub(crate) fn normal_cdf(u: f64) -> f64 {
    const PIECES: usize = 2000;
    let end = u.clamp(-12.0, 12.0);
    let step = end / PIECES as f64;
    let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let weight = |i: usize| {
        if i == 0 || i == PIECES {
            1.0
        } else if i % 2 == 1 {
            4.0
        } else {
            2.0
        }
    };
    0.5 + step / 3.0 * (0..=PIECES).map(|i| weight(i) * density(i as f64 * step)).sum::<f64>()
}

/// The token that `uniform` selects from the nucleus: the `k` most probable tokens, cut to mass
/// 0.95, in order of decreasing probability.
fn nucleus_draw(logits: &[f64], k: usize, uniform: f64) -> TokenId {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(k);
    let weights: Vec<f64> = order.iter().map(|&token| (logits[token] - logits[order[0]]).exp()).collect();
    let target = 0.95 * weights.iter().sum::<f64>();
    let kept = (1..weights.len()).find(|&count| weights[..count].iter().sum::<f64>() >= target).unwrap_or(weights.len());
    order[drawn(&weights[..kept], uniform)] as TokenId
}

/// The first index where the running sum of the shares exceeds `uniform` times their total.
fn drawn(shares: &[f64], uniform: f64) -> usize {
    let target = uniform * shares.iter().sum::<f64>();
    let sums = shares.iter().scan(0.0, |sum, share| {
        *sum += share;
        Some(*sum)
    });
    sums.map(|sum| sum > target).position(|past| past).unwrap_or_else(|| argmax(shares))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample standard deviation.
fn deviation(values: &[f64]) -> f64 {
    let centre = mean(values);
    (values.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / (values.len() - 1) as f64).sqrt()
}
