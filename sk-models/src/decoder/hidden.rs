use burn::tensor::{Int, Tensor, TensorData};
use sk_core::TokenId;

use crate::device::is_processor;
use crate::kernels::simd::{dot, widened};
use crate::lora::Lanes;
use crate::packed::{Grid, Places};
use crate::tensors::{Tensors, ops};

/// Logits held at once while states are read. Larger batches are read in pieces.
const LOGITS_AT_ONCE: usize = 16 << 20;

/// The same on a GPU, where each piece reads the whole head again: 512 MiB of f32, what 7 spans of 24 tokens take under four policies and the
/// vocabulary of Qwen2.5.
const LOGITS_ON_GPU: usize = 128 << 20;

/// Final-norm states of the tokens of one pass.
#[derive(Debug)]
pub struct Hidden {
    pub(super) states: States,
    places: Where,
}

#[derive(Debug)]
pub(super) enum States {
    /// `[M, H]`, lanes outermost.
    Tensors(Box<Tensor<2>>),
    Packed(Grid),
}

/// Where a token's state is among those of a lane.
#[derive(Debug)]
enum Where {
    /// So many rows, token by token.
    Even(usize),
    Shared(Places),
}

impl Hidden {
    /// The states of `rows` rows.
    pub(super) fn tensors(states: Tensor<2>, rows: usize) -> Self {
        Self { states: States::Tensors(Box::new(states)), places: Where::Even(rows) }
    }

    /// The states of one group of a pass.
    pub(super) fn packed((grid, places): (Grid, Places)) -> Self {
        Self { states: States::Packed(grid), places: Where::Shared(places) }
    }

    /// The state of token `step` of a row, among those of a lane.
    pub(super) fn place(&self, row: usize, step: usize) -> usize {
        match &self.places {
            Where::Even(rows) => step * rows + row,
            Where::Shared(places) => places.at(row, step),
        }
    }
}

/// A device did not return a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DeviceFailure {
    /// What it said.
    pub message: String,
}

/// A float tensor's values on the host.
pub(super) fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, DeviceFailure> {
    tensor.try_into_vec_as::<f32>().map_err(|e| DeviceFailure { message: e.to_string() })
}

/// The rows at `places` of each lane.
pub(super) fn select(states: &Grid, lanes: usize, places: &[usize], width: usize) -> Grid {
    let lane_rows = states.rows() / lanes;
    let mut selected = Grid::new(lanes * places.len(), width);
    let rows = (0..lanes).flat_map(|lane| places.iter().map(move |place| lane * lane_rows + place));
    for (out, row) in selected.rows_mut().zip(rows) {
        out.copy_from_slice(states.row(row));
    }
    selected
}

/// The first of the largest of each row `[M, V]`, where none is NaN or +∞.
pub(super) fn likeliest(logits: Tensor<2>) -> Result<Vec<Option<TokenId>>, DeviceFailure> {
    let pairs = read(ops::likeliest(logits))?;
    Ok(pairs.chunks_exact(2).map(|pair| (pair[1] == 0.0).then_some(pair[0] as TokenId)).collect())
}

/// [`Decoder::read`](super::Decoder::read) on tensors: the places of the first lane, then those of the next.
pub(super) fn read_pairs(
    model: &Tensors,
    hidden: Tensor<2>,
    lanes: Lanes<'_>,
    places: &[usize],
    targets: &[TokenId],
) -> Result<Vec<[f32; 2]>, DeviceFailure> {
    let device = model.device();
    let count = lanes.count();
    let [total, size] = hidden.dims();
    let hidden = hidden.reshape([count, total / count, size]);
    let at_once = if is_processor(&device) { LOGITS_AT_ONCE } else { LOGITS_ON_GPU };
    let piece = (at_once / (model.config().vocab_size * count)).max(1);
    // A device is waited for once.
    let mut pieces = Vec::new();
    for (places, targets) in places.chunks(piece).zip(targets.chunks(piece)) {
        let m = places.len();
        let states = hidden.clone().select(1, indices(places, &device)).reshape([count * m, size]);
        let logits = model.logits(&states, lanes);
        let targets: Vec<i64> = targets.iter().map(|&t| i64::from(t)).collect();
        let targets = Tensor::<1, Int>::from_data(TensorData::new(targets.repeat(count), [count * m]), &device);
        pieces.push(ops::read(logits, targets).reshape([count, m, 2]));
    }
    if pieces.is_empty() {
        return Ok(Vec::new());
    }
    let pairs = read(Tensor::cat(pieces, 1))?;
    Ok(pairs.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
}

/// [`Decoder::project`](super::Decoder::project) on tensors: one product `[M, H]·[H, heads]`.
pub(super) fn project_tensors(
    hidden: &Tensor<2>,
    (lane, lanes): (usize, usize),
    places: &[usize],
    heads: &[(&[f32], f32)],
) -> Result<Vec<f32>, DeviceFailure> {
    let device = hidden.device();
    let [total, size] = hidden.dims();
    let first = lane * (total / lanes);
    let places: Vec<usize> = places.iter().map(|place| first + place).collect();
    let weights: Vec<f32> = heads.iter().flat_map(|(weight, _)| weight.iter().copied()).collect();
    let biases: Vec<f32> = heads.iter().map(|(_, bias)| *bias).collect();
    let weights = Tensor::<2>::from_data(TensorData::new(weights, [heads.len(), size]), &device).transpose();
    let biases = Tensor::<2>::from_data(TensorData::new(biases, [1, heads.len()]), &device);
    let states = hidden.clone().select(0, indices(&places, &device));
    // Heads are in f32, and read in it.
    let values = ops::product(states.unsqueeze::<4>(), weights.unsqueeze::<4>());
    read(values.reshape([places.len(), heads.len()]) + biases)
}

/// [`Decoder::project`](super::Decoder::project) in panels.
pub(super) fn project_packed(
    hidden: &Grid,
    (lane, lanes): (usize, usize),
    places: &[usize],
    heads: &[(&[f32], f32)],
) -> Vec<f32> {
    let first = lane * (hidden.rows() / lanes);
    let mut values = Vec::with_capacity(places.len() * heads.len());
    for place in places {
        let state = hidden.row(first + place);
        values.extend(heads.iter().map(|(weight, bias)| {
            bias + widened(
                #[inline(always)]
                || dot(weight, &state[..weight.len()]),
            )
        }));
    }
    values
}

/// Places as a tensor.
pub(super) fn indices(places: &[usize], device: &burn::tensor::Device) -> Tensor<1, Int> {
    let places: Vec<i64> = places.iter().map(|&place| place as i64).collect();
    let count = places.len();
    Tensor::from_data(TensorData::new(places, [count]), device)
}
