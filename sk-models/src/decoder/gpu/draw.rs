//! Tokens drawn on a GPU, so that no row of logits is copied to the host.

use std::ptr;

use burn::tensor::{DType, Tensor, TensorData};
use sk_core::{Sampling, TokenId};

use super::operands::Selection;
use super::ops;
use crate::device::DeviceFailure;

/// The token to draw for a row of logits.
pub(crate) struct DeviceDraw<'a> {
    pub(crate) row: usize,
    /// The tokens for the repetition penalty: the context, and those drawn since.
    pub(crate) history: [&'a [TokenId]; 2],
    /// A uniform number in [0, 1).
    pub(crate) uniform: f64,
}

/// Draws from logits `[M, V]` for some of their rows; none of `forbidden` is drawn. Returns each
/// token with its log-probability, or `None` if a logit of its row is NaN or +∞, or no
/// token can be drawn.
///
/// The device selects the `top_k` most probable tokens, of these the nucleus, and of these the
/// tokens up to the drawn one. A selection takes eight passes over the logits; the host waits for
/// the last only.
///
/// # Errors
///
/// If the device fails.
pub(crate) fn draw(
    logits: &Tensor<2>,
    sampling: &Sampling,
    forbidden: &[TokenId],
    draws: &[DeviceDraw<'_>],
) -> Result<Vec<Option<(TokenId, f32)>>, DeviceFailure> {
    let [rows, vocabulary] = logits.dims();
    let logits = logits.clone().cast(DType::F32);
    let rated = rated(logits.clone(), sampling, forbidden, draws);
    let (mut selections, mut shares) = (Vec::new(), Vec::new());
    let mut select = |selection, share: &dyn Fn(&DeviceDraw<'_>) -> f32| {
        selections.push(selection);
        let mut all = vec![0.0; rows];
        draws.iter().for_each(|draw| all[draw.row] = share(draw));
        shares.extend(all);
    };
    if sampling.is_greedy() {
        select(Selection::Count, &|_| 1.0);
    } else {
        let rate = sampling.rate();
        if (1..vocabulary).contains(&sampling.top_k()) {
            select(Selection::Count, &|_| sampling.top_k() as f32);
        }
        if sampling.top_p() < 1.0 {
            select(Selection::Mass { rate }, &|_| sampling.top_p());
        }
        // Below one also in f32.
        select(Selection::Draw { rate }, &|draw| (draw.uniform as f32).min(1.0 - f32::EPSILON / 2.0));
    }
    let shares = Tensor::from_data(TensorData::new(shares, [selections.len(), rows]), &logits.device());
    let found = read(ops::select(logits, rated, &selections, shares))?;
    let drawn = |draw: &DeviceDraw<'_>| match found[3 * draw.row..][..3] {
        [token, log_prob, 0.0] => Some((token as TokenId, log_prob)),
        _ => None,
    };
    Ok(draws.iter().map(drawn).collect())
}

/// Returns the logits with penalties, and −∞ for forbidden tokens.
fn rated(logits: Tensor<2>, sampling: &Sampling, forbidden: &[TokenId], draws: &[DeviceDraw<'_>]) -> Tensor<2> {
    let ([rows, vocabulary], device) = (logits.dims(), logits.device());
    let known = |token: &TokenId| (*token as usize) < vocabulary;
    let mut rated = logits;
    if sampling.repetition_penalty() != 1.0 {
        let distinct = |tokens: &[TokenId]| {
            let mut tokens: Vec<TokenId> = tokens.iter().copied().filter(known).collect();
            tokens.sort_unstable();
            tokens.dedup();
            tokens
        };
        let mut seen = vec![Vec::new(); rows];
        // The rows of a draft share one context.
        let (mut shared, mut earlier): (&[TokenId], _) = (&[], Vec::new());
        for DeviceDraw { row, history: [context, own], .. } in draws {
            if !ptr::eq(*context, shared) {
                (shared, earlier) = (context, distinct(context));
            }
            let new = distinct(own).into_iter().filter(|token| earlier.binary_search(token).is_err());
            seen[*row] = earlier.iter().copied().chain(new).collect();
        }
        let most = seen.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let tokens: Vec<i32> =
            seen.iter().flat_map(|tokens| (0..most).map(|at| tokens.get(at).map_or(-1, |&token| token as i32))).collect();
        let tokens = Tensor::from_data(TensorData::new(tokens, [rows, most]), (&device, DType::I32));
        rated = ops::penalise(rated, tokens, sampling.repetition_penalty());
    }
    if !forbidden.is_empty() {
        let mut mask = vec![0.0_f32; vocabulary];
        forbidden.iter().filter(|token| known(token)).for_each(|&token| mask[token as usize] = f32::NEG_INFINITY);
        rated = rated + Tensor::<2>::from_data(TensorData::new(mask, [1, vocabulary]), &device);
    }
    rated
}

/// Copies a float tensor's values to the host.
pub(in crate::decoder) fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, DeviceFailure> {
    tensor.try_into_vec_as::<f32>().map_err(|e| DeviceFailure { message: e.to_string() })
}

/// Returns the argmax of each row of `[M, V]`, or `None` for a row with a NaN or +∞. Among equal
/// logits, the first wins.
pub(in crate::decoder) fn argmax(logits: Tensor<2>) -> Result<Vec<Option<TokenId>>, DeviceFailure> {
    let pairs = read(ops::argmax(logits))?;
    Ok(pairs.chunks_exact(2).map(|pair| (pair[1] == 0.0).then_some(pair[0] as TokenId)).collect())
}
