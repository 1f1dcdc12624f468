//! Draws tokens for several rows at once, from logits on the host or on a device.
//!
//! Both ways agree up to the rounding of sums.

use sk_core::TokenId;

use super::Sampling;
use super::sampling::{Drawn, Sampler, log_sum_exp};
use crate::decoder::{DeviceDraw, Logits, draw_on_device};
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
    /// The result; `None` if a logit is NaN or +∞, or if all are −∞.
    pub(super) drawn: Option<Drawn>,
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
    sampling: &Sampling,
    forbidden: &[TokenId],
    draws: &mut [RowDraw<'_>],
) -> Result<(), DeviceFailure> {
    let mut logits = match logits {
        Logits::Host(logits) => logits,
        Logits::Device(logits) => {
            let asked: Vec<_> =
                draws.iter().map(|&RowDraw { row, history, uniform, .. }| DeviceDraw { row, history, uniform }).collect();
            let drawn = draw_on_device(&logits, sampling, forbidden, &asked)?;
            for (draw, drawn) in draws.iter_mut().zip(drawn) {
                draw.drawn = drawn.map(|(token, log_prob)| Drawn { token, log_prob });
            }
            return Ok(());
        }
    };
    // log Σ e^z of each original row, if tokens are forbidden; `None` for a row with NaN or +∞.
    let mut totals: Vec<Option<f32>> = Vec::new();
    if !forbidden.is_empty() {
        let mut rows: Vec<(&mut [f32], Option<f32>)> = logits.rows_mut().map(|row| (row, None)).collect();
        for_each_mut(&mut rows, |_, (row, total)| {
            *total = are_numbers(row).then(|| log_sum_exp(row));
            for &token in forbidden {
                if let Some(logit) = row.get_mut(token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        });
        totals.extend(rows.into_iter().map(|(_, total)| total));
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
        draw.drawn = draw.drawn.filter(|drawn| drawn.log_prob.is_finite());
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::HostLogits;
    use burn::tensor::{Device, Tensor, TensorData};
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const VOCABULARY: usize = 3001;

    /// Returns rows of exponentially distributed logits with mean `spread`.
    fn logits(rows: usize, spread: f32, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..rows * VOCABULARY).map(|_| -spread * (1.0 - rng.random::<f32>()).ln()).collect()
    }

    struct Case<'a> {
        logits: &'a [f32],
        sampling: Sampling,
        forbidden: &'a [TokenId],
        context: &'a [TokenId],
    }

    /// The tokens of a row after the context; a row has the first few.
    const OWN: [TokenId; 2] = [7, 11];

    impl Case<'_> {
        /// Returns the logit of a token after the penalty.
        fn rated(&self, row: usize, token: TokenId) -> f32 {
            let logit = self.logits[row * VOCABULARY + token as usize];
            let seen = self.context.contains(&token) || OWN[..row % 3].contains(&token);
            if seen { self.sampling.penalise(logit) } else { logit }
        }

        /// Returns the draw for each of `uniforms`, from logits on a device if `far`. Rows are in
        /// reverse order.
        fn draw(&self, uniforms: &[f64], far: bool) -> Vec<Option<Drawn>> {
            let mut samplers: Vec<Sampler> = uniforms.iter().map(|_| Sampler::default()).collect();
            let row = |(row, (sampler, &uniform))| RowDraw {
                row,
                sampler,
                history: [self.context, &OWN[..row % 3]],
                uniform,
                drawn: None,
            };
            let mut draws: Vec<RowDraw<'_>> = samplers.iter_mut().zip(uniforms).enumerate().map(row).rev().collect();
            let logits = if far {
                let shape = [uniforms.len(), VOCABULARY];
                Logits::Device(Box::new(Tensor::from_data(TensorData::new(self.logits.to_vec(), shape), &Device::flex())))
            } else {
                Logits::Host(HostLogits::copied(self.logits, VOCABULARY))
            };
            draw(logits, &self.sampling, self.forbidden, &mut draws).unwrap();
            draws.iter().map(|draw| draw.drawn).collect()
        }
    }

    /// Log-probabilities reach −40, and a sum in f32 is rounded at each of its terms.
    const TOLERANCE: f32 = 1e-5;

    /// Weights e^{(z − max)/T} in f32 are equal where (z − max)/T, at most about 10 for a token that is
    /// drawn, differs by less than a few units of its last place.
    const TIE: f32 = 2e-6;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Draws on a device equal draws on the host, for all cuts, penalties and forbidden tokens.
        #[test]
        fn draws_on_a_device_equal_draws_on_the_host(
            seed in any::<u64>(),
            spread in 0.01f32..3.0,
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
            let (near, far) = (case.draw(&uniforms, false), case.draw(&uniforms, true));
            for (at, ((near, far), uniform)) in near.iter().zip(&far).zip(uniforms.iter().rev()).enumerate() {
                let (near, far) = (near.unwrap(), far.unwrap());
                prop_assert_ne!(far.token, best);
                // A draw at the boundary between two tokens may give either. Tokens whose logits differ by
                // a rounding error are in either order.
                let edge = [-1e-6, 1e-6]
                    .map(|step| case.draw(&vec![(uniform + step).clamp(0.0, 1.0 - 1e-9); uniforms.len()], false)[at].unwrap().token);
                let rated = |token| case.rated(uniforms.len() - 1 - at, token);
                let same = |token| token == far.token || (rated(token) - rated(far.token)).abs() < TIE * temperature;
                prop_assert!([near.token, edge[0], edge[1]].into_iter().any(same), "{far:?}, not {near:?}");
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
                // Rows are in the reverse order.
                for (row, drawn) in logits.chunks_exact(VOCABULARY).rev().zip(case.draw(&[0.1, 0.5, 0.9], far)) {
                    let drawn = drawn.unwrap();
                    let total: f64 = row.iter().map(|&z| f64::from(z).exp()).sum();
                    let expected = f64::from(row[drawn.token as usize]) - total.ln();
                    assert!((f64::from(drawn.log_prob) - expected).abs() < f64::from(TOLERANCE), "{sampling:?}, {far}");
                }
            }
        }
    }

    #[test]
    fn rows_with_nan_or_infinity_are_not_drawn_from() {
        for broken in [f32::NAN, f32::INFINITY] {
            let mut logits = logits(3, 2.5, 1);
            logits[VOCABULARY + 300] = broken;
            let case = Case { logits: &logits, sampling: Sampling::nucleus(), forbidden: &[], context: &[] };
            for far in [false, true] {
                let drawn = case.draw(&[0.5; 3], far);
                assert_eq!(drawn.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true], "{broken}, {far}");
            }
        }
        let nothing = [f32::NEG_INFINITY; VOCABULARY];
        for (temperature, forbidden) in [(0.0, &[][..]), (1.0, &[]), (1.0, &[3])] {
            let sampling = Sampling::new(temperature, 1.0, 0, 1.0).unwrap();
            let case = Case { logits: &nothing, sampling, forbidden, context: &[] };
            for far in [false, true] {
                assert_eq!(case.draw(&[0.5], far), [None], "{temperature}, {far}");
            }
        }
    }
}
