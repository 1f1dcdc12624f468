//! Draws tokens for several rows at once, from logits on the host or on a device.
//!
//! [`Sampler`] needs whole rows of logits. From a device, only the few blocks of the vocabulary
//! that decide a draw are copied; the mass of every block determines which ones. If they do not
//! decide the draw, whole rows are copied. Both ways agree up to the rounding of sums.

use sk_core::TokenId;

use super::Sampling;
use super::sampling::{Drawn, Sampler, log_sum_exp};
use crate::decoder::{BLOCK, Blocks, HostLogits, Logits, Outline};
use crate::device::DeviceFailure;
use crate::kernels::logits::are_numbers;
use crate::team::for_each_mut;

/// A token to draw for one row.
pub(super) struct RowDraw<'a> {
    /// The row.
    pub(super) row: usize,
    pub(super) sampler: &'a mut Sampler,
    /// The tokens for the repetition penalty: the context, and the tokens after it.
    pub(super) history: [&'a [TokenId]; 2],
    /// A uniform number in [0, 1).
    pub(super) uniform: f64,
    /// The result; `None` if a logit is NaN or +∞.
    pub(super) drawn: Option<Drawn>,
}

impl RowDraw<'_> {
    fn history(&self) -> impl Iterator<Item = TokenId> {
        self.history.into_iter().flatten().copied()
    }
}

/// Draws a token for every row; none of `forbidden` is drawn.
///
/// Log-probabilities are those of the original logits, including the mass of forbidden tokens.
///
/// # Errors
///
/// If the device fails.
pub(super) fn draw(
    logits: Logits,
    vocabulary: usize,
    sampling: &Sampling,
    forbidden: &[TokenId],
    draws: &mut [RowDraw<'_>],
) -> Result<(), DeviceFailure> {
    let mut logits = match logits {
        Logits::Host(logits) => logits,
        Logits::Device(logits) => {
            let blocks = Blocks::new(*logits);
            if (DeviceLogits { blocks: &blocks.forbid(forbidden), vocabulary, sampling }).draw(draws)? {
                return Ok(());
            }
            HostLogits::copied(&blocks.whole()?, vocabulary)
        }
    };
    // log Σ e^z of each original row, if tokens are forbidden; `None` for a row with NaN or +∞.
    let mut totals: Vec<Option<f32>> = Vec::new();
    if !forbidden.is_empty() {
        for row in logits.rows_mut() {
            totals.push(are_numbers(row).then(|| log_sum_exp(row)));
            for &token in forbidden {
                if let Some(logit) = row.get_mut(token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
    }
    for_each_mut(draws, |_, draw| {
        let row = logits.row(draw.row);
        let history = draw.history.into_iter().flatten().copied();
        let total = totals.get(draw.row).copied();
        let whole = total.map_or_else(|| are_numbers(row), |total| total.is_some());
        draw.drawn = whole.then(|| draw.sampler.draw(row, history, sampling, draw.uniform));
        if let (Some(drawn), Some(Some(total))) = (&mut draw.drawn, total) {
            drawn.log_prob = row[drawn.token as usize] - total;
        }
    });
    Ok(())
}

/// The smallest number of blocks to copy.
const LEAST: usize = 16;

/// The largest share of the mass that penalties may remove. Beyond it, a difference of sums in f32
/// is too inexact.
const TAKEN: f64 = 0.9;

/// Logits on a device.
struct DeviceLogits<'a> {
    blocks: &'a Blocks,
    vocabulary: usize,
    sampling: &'a Sampling,
}

/// One row of logits on a device.
struct LogitsRow<'a, 'b> {
    outline: &'a Outline,
    draw: &'a mut RowDraw<'b>,
    /// The blocks. The first `ordered` blocks have the largest maxima, in descending order.
    order: Vec<u32>,
    ordered: usize,
    /// The number of blocks that will probably decide the draw.
    wanted: usize,
}

impl LogitsRow<'_, '_> {
    /// Sorts the first `count` blocks. The other thousands stay unsorted, since they are hardly
    /// ever needed.
    fn arrange(&mut self, count: usize) {
        let largest = &self.outline.largest;
        let before = |a: &u32, b: &u32| largest[*b as usize].total_cmp(&largest[*a as usize]).then(a.cmp(b));
        let missing = count.min(self.order.len()).saturating_sub(self.ordered);
        let rest = &mut self.order[self.ordered..];
        if missing < rest.len() && missing > 0 {
            rest.select_nth_unstable_by(missing, before);
        }
        rest[..missing].sort_unstable_by(before);
        self.ordered += missing;
    }
}

impl DeviceLogits<'_> {
    /// Draws for all rows. Returns whether every draw was decided.
    fn draw<'a, 'b>(&self, draws: &'a mut [RowDraw<'b>]) -> Result<bool, DeviceFailure> {
        let mut seen: Vec<TokenId> = Vec::new();
        if self.sampling.repetition_penalty() != 1.0 {
            seen.extend(draws.iter().flat_map(RowDraw::history).filter(|&token| (token as usize) < self.vocabulary));
            seen.sort_unstable();
            seen.dedup();
        }
        let outlines = self.blocks.outline(self.sampling.rate(), &seen)?;
        let row = |draw: &'a mut RowDraw<'b>| LogitsRow {
            outline: &outlines[draw.row],
            draw,
            order: Vec::new(),
            ordered: 0,
            wanted: 0,
        };
        let mut rows: Vec<LogitsRow<'_, '_>> = draws.iter_mut().map(row).collect();
        for_each_mut(&mut rows, |_, row| self.plan(row));
        // The same count for all rows, rounded up to a power of two: a device compiles and tunes
        // kernels per shape.
        let count = rows.iter().map(|row| row.wanted).max().unwrap_or(0).max(LEAST).next_power_of_two();
        if 2 * count >= self.vocabulary.div_ceil(BLOCK) {
            return Ok(false);
        }
        // Sort one block more: the first that is not copied.
        rows.iter_mut().for_each(|row| row.arrange(count + 1));
        let places =
            |row: &LogitsRow<'_, '_>| row.order[..count].iter().map(|&block| (row.draw.row, block as usize)).collect::<Vec<_>>();
        let values = self.blocks.copy_blocks(&rows.iter().flat_map(places).collect::<Vec<_>>())?;
        for_each_mut(&mut rows, |index, row| {
            let looked_into = &values[index * count * BLOCK..][..count * BLOCK];
            row.draw.drawn = if row.outline.is_broken() { None } else { self.settle(row, looked_into, &seen) };
        });
        Ok(rows.iter().all(|row| row.outline.is_broken() || row.draw.drawn.is_some()))
    }

    /// Chooses the blocks to copy.
    fn plan(&self, row: &mut LogitsRow<'_, '_>) {
        let Outline { largest, masses, .. } = row.outline;
        row.order = (0..largest.len() as u32).collect();
        row.arrange(2 * LEAST);
        if self.sampling.is_greedy() || row.outline.is_broken() {
            return;
        }
        if let Some(top_k) = self.top_k() {
            // The k largest logits lie in the k blocks with the largest maxima.
            row.wanted = top_k;
            return;
        }
        // Up to half of the mass below the cut may lie in blocks above it.
        let top_p = f64::from(self.sampling.top_p());
        let share = if top_p < 1.0 { 1.0 - top_p } else { 1.0 - row.draw.uniform };
        let enough = masses.iter().sum::<f64>() * (1.0 - share / 2.0);
        let mut mass = 0.0;
        while mass < enough && row.wanted < row.order.len() {
            if row.wanted == row.ordered {
                row.arrange(2 * row.ordered);
            }
            mass += masses[row.order[row.wanted] as usize];
            row.wanted += 1;
        }
    }

    fn top_k(&self) -> Option<usize> {
        (1..self.vocabulary).contains(&self.sampling.top_k()).then(|| self.sampling.top_k())
    }

    /// Draws from the logits of the copied blocks if they decide the draw. `seen` are the tokens
    /// whose logits are in the outline.
    fn settle(&self, row: &LogitsRow<'_, '_>, looked_into: &[f32], seen: &[TokenId]) -> Option<Drawn> {
        let Outline { largest, masses, plain, asked, forbidden } = row.outline;
        let (inside, outside) = row.order.split_at(looked_into.len() / BLOCK);
        let beyond = outside.first().map_or(f32::NEG_INFINITY, |&block| largest[block as usize]);
        let max = largest[row.order[0] as usize];
        let rate = f64::from(self.sampling.rate());
        let weight = |logit: f32| (f64::from(logit - max) * rate).exp();

        // Indices into `seen` of the row's own history.
        let mut own: Vec<usize> = row.draw.history().filter_map(|token| seen.binary_search(&token).ok()).collect();
        own.sort_unstable();
        own.dedup();
        let is_penalised = |token: TokenId| own.binary_search_by(|&place| seen[place].cmp(&token)).is_ok();

        let total: f64 = masses.iter().sum();
        let mut left = total;
        // The tokens whose logits exceed all logits of the other blocks, with their penalised and
        // raw logits.
        let mut known: Vec<Known> = Vec::new();
        for &place in &own {
            let logit = asked[place];
            let lower = self.sampling.penalise(logit);
            left += weight(lower) - weight(logit);
            known.push(Known { token: seen[place], rated: lower, logit });
        }
        if left < total * (1.0 - TAKEN) {
            return None;
        }
        for (&block, logits) in inside.iter().zip(looked_into.chunks_exact(BLOCK)) {
            for (token, &logit) in (block as usize * BLOCK..).zip(logits) {
                let token = token as TokenId;
                if logit > beyond && !is_penalised(token) {
                    known.push(Known { token, rated: logit, logit });
                }
            }
        }
        known.retain(|known| known.rated > beyond);
        known.sort_unstable_by(|a, b| b.rated.total_cmp(&a.rated).then(a.token.cmp(&b.token)));
        let chosen = self.choose(&known, left, weight, row.draw.uniform)?;
        let lost: f64 = forbidden.iter().map(|logit| f64::from(logit - max).exp()).sum();
        let log_sum = f64::from(max) + (plain + lost).ln();
        Some(Drawn { token: chosen.token, log_prob: (f64::from(chosen.logit) - log_sum) as f32 })
    }

    /// Draws from the known tokens, the most probable first, if they decide the draw; `mass` is the
    /// mass of all tokens.
    fn choose<'a>(&self, known: &'a [Known], mass: f64, weight: impl Fn(f32) -> f64, uniform: f64) -> Option<&'a Known> {
        if self.sampling.is_greedy() {
            return known.first();
        }
        // The shortest prefix whose mass is enough, and that mass.
        let fewest = |known: &'a [Known], enough: &dyn Fn(f64) -> bool| {
            let mut mass = 0.0;
            let place = known.iter().position(|known| {
                mass += weight(known.rated);
                enough(mass)
            });
            place.map(|place| (&known[..=place], mass))
        };
        // `whole` is true if every token that can be drawn is known.
        let (mut kept, mut mass, mut whole) = (known, mass, false);
        if let Some(top_k) = self.top_k() {
            kept = known.get(..top_k)?;
            (mass, whole) = (kept.iter().map(|known| weight(known.rated)).sum(), true);
        }
        let top_p = f64::from(self.sampling.top_p());
        if top_p < 1.0 {
            match fewest(kept, &|sum| sum >= top_p * mass) {
                Some(nucleus) => (kept, mass, whole) = (nucleus.0, nucleus.1, true),
                None if whole => {}
                None => return None,
            }
        }
        match fewest(kept, &|sum| sum > uniform * mass) {
            Some((passed, _)) => passed.last(),
            // Rounding may leave the target at the total itself.
            None if whole => kept.last(),
            None => None,
        }
    }
}

/// A token whose rank is known.
#[derive(Debug, Clone, Copy)]
struct Known {
    token: TokenId,
    /// The penalised logit.
    rated: f32,
    logit: f32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tensor, TensorData};
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Enough blocks that copying only a few pays off. The last one is not full.
    const VOCABULARY: usize = 300 * BLOCK - 23;

    /// Returns rows of exponentially distributed logits with mean `spread`.
    fn logits(rows: usize, spread: f32, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..rows * VOCABULARY).map(|_| -spread * (1.0 - rng.random::<f32>()).ln()).collect()
    }

    fn tensor(logits: &[f32]) -> Tensor<2> {
        let shape = [logits.len() / VOCABULARY, VOCABULARY];
        Tensor::from_data(TensorData::new(logits.to_vec(), shape), &Device::flex())
    }

    struct Case<'a> {
        logits: &'a [f32],
        sampling: Sampling,
        forbidden: &'a [TokenId],
        context: &'a [TokenId],
    }

    impl Case<'_> {
        /// Returns the draw for each of `uniforms`, and whether copied blocks decided the draws.
        /// Rows are in reverse order.
        fn draw(&self, uniforms: &[f64], far: bool) -> (Vec<Option<Drawn>>, bool) {
            let mut samplers: Vec<Sampler> = uniforms.iter().map(|_| Sampler::default()).collect();
            let own: [TokenId; 2] = [7, 11];
            let row = |(row, (sampler, &uniform))| RowDraw {
                row,
                sampler,
                history: [self.context, &own[..row % 3]],
                uniform,
                drawn: None,
            };
            let mut draws: Vec<RowDraw<'_>> = samplers.iter_mut().zip(uniforms).enumerate().map(row).rev().collect();
            let settled = if far {
                let blocks = Blocks::new(tensor(self.logits)).forbid(self.forbidden);
                DeviceLogits { blocks: &blocks, vocabulary: VOCABULARY, sampling: &self.sampling }.draw(&mut draws).unwrap()
            } else {
                let near = Logits::Host(HostLogits::copied(self.logits, VOCABULARY));
                draw(near, VOCABULARY, &self.sampling, self.forbidden, &mut draws).unwrap();
                false
            };
            (draws.iter().map(|draw| draw.drawn).collect(), settled)
        }
    }

    /// Log-probabilities reach −40, and a sum in f32 is rounded at each of the terms of a block.
    const TOLERANCE: f32 = 1e-5;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Draws from blocks equal draws from whole rows, for all cuts, penalties and forbidden
        /// tokens.
        #[test]
        fn draws_from_blocks_equal_draws_from_rows(
            seed in any::<u64>(),
            spread in 0.5f32..3.0,
            temperature in prop_oneof![Just(0.0f32), Just(1.0f32), 0.3f32..1.5],
            top_p in prop_oneof![Just(1.0f32), 0.1f32..0.99],
            top_k in prop_oneof![Just(0usize), 1usize..60, Just(VOCABULARY)],
            penalty in prop_oneof![Just(1.0f32), 1.01f32..1.5, Just(0.9f32)],
            uniforms in proptest::collection::vec(0.0f64..1.0, 1..5),
        ) {
            let logits = logits(uniforms.len(), spread, seed);
            let sampling = Sampling::new(temperature, top_p, top_k, penalty).unwrap();
            let best = crate::kernels::logits::argmax(&logits[..VOCABULARY]);
            // Penalise probable tokens: of each row, every other one of the most probable.
            let likely = logits.chunks_exact(VOCABULARY).flat_map(|row| {
                let mut order: Vec<TokenId> = (0..VOCABULARY as TokenId).collect();
                order.sort_unstable_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]));
                order.into_iter().take(12).step_by(2)
            });
            let context: Vec<TokenId> = likely.chain([3, 5, 5, 70_000]).collect();
            let case = Case { logits: &logits, sampling, forbidden: &[best, 90_000], context: &context };
            let (near, _) = case.draw(&uniforms, false);
            let (far, settled) = case.draw(&uniforms, true);
            prop_assume!(settled);
            for ((near, far), uniform) in near.iter().zip(&far).zip(uniforms.iter().rev()) {
                let (near, far) = (near.unwrap(), far.unwrap());
                prop_assert_ne!(far.token, best);
                // A draw at the boundary between two tokens may give either.
                let edge = [-1e-6, 1e-6].map(|step| case.draw(&vec![(uniform + step).clamp(0.0, 1.0 - 1e-9); uniforms.len()], false).0);
                let tokens = edge.iter().flatten().map(|drawn| drawn.unwrap().token).collect::<Vec<_>>();
                prop_assert!(far.token == near.token || tokens.contains(&far.token), "{far:?}, not {near:?}");
                if far.token == near.token {
                    prop_assert!((far.log_prob - near.log_prob).abs() < TOLERANCE, "{far:?}, not {near:?}");
                }
            }
        }
    }

    /// Forbidding a token changes which tokens are drawn, and no log-probability.
    #[test]
    fn the_mass_of_forbidden_tokens_counts() {
        let logits = logits(3, 2.5, 2);
        let best = crate::kernels::logits::argmax(&logits[..VOCABULARY]);
        for sampling in [Sampling::nucleus(), Sampling::new(1.0, 0.95, 50, 1.05).unwrap(), Sampling::greedy()] {
            for far in [false, true] {
                let case = Case { logits: &logits, sampling, forbidden: &[best, best, 90_000], context: &[] };
                let (drawn, settled) = case.draw(&[0.1, 0.5, 0.9], far);
                assert_eq!(settled, far);
                // Rows are in the reverse order.
                for (row, drawn) in logits.chunks_exact(VOCABULARY).rev().zip(drawn) {
                    let drawn = drawn.unwrap();
                    let total: f64 = row.iter().map(|&z| f64::from(z).exp()).sum();
                    let expected = f64::from(row[drawn.token as usize]) - total.ln();
                    assert!((f64::from(drawn.log_prob) - expected).abs() < f64::from(TOLERANCE), "{sampling:?}, {far}");
                }
            }
        }
    }

    #[test]
    fn a_few_blocks_are_enough_where_few_tokens_have_most_of_the_mass() {
        let logits = logits(4, 2.5, 1);
        for sampling in [Sampling::nucleus(), Sampling::new(1.0, 0.95, 50, 1.05).unwrap(), Sampling::greedy()] {
            let case = Case { logits: &logits, sampling, forbidden: &[], context: &[] };
            assert!(case.draw(&[0.1, 0.5, 0.9, 0.99], true).1, "{sampling:?}");
        }
    }

    #[test]
    fn flat_rows_are_copied_whole() {
        let logits = logits(2, 0.01, 1);
        let case = Case { logits: &logits, sampling: Sampling::nucleus(), forbidden: &[], context: &[] };
        assert!(!case.draw(&[0.5, 0.999], true).1);
        let uniforms = [0.5, 0.999];
        let mut samplers = [Sampler::default(), Sampler::default()];
        let draw_of = |(row, sampler)| RowDraw { row, sampler, history: [&[], &[]], uniform: uniforms[row], drawn: None };
        let mut draws: Vec<RowDraw<'_>> = samplers.iter_mut().enumerate().map(draw_of).collect();
        draw(Logits::Device(Box::new(tensor(&logits))), VOCABULARY, &case.sampling, &[], &mut draws).unwrap();
        let mut near = case.draw(&uniforms, false).0;
        near.reverse();
        assert_eq!(draws.iter().map(|draw| draw.drawn).collect::<Vec<_>>(), near);
    }

    #[test]
    fn rows_with_nan_or_infinity_are_not_drawn_from() {
        for broken in [f32::NAN, f32::INFINITY] {
            let mut logits = logits(3, 2.5, 1);
            logits[VOCABULARY + 300] = broken;
            let case = Case { logits: &logits, sampling: Sampling::nucleus(), forbidden: &[], context: &[] };
            for far in [false, true] {
                let drawn = case.draw(&[0.5; 3], far).0;
                assert_eq!(drawn.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true], "{broken}, {far}");
            }
        }
    }
}
