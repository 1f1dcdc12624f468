use burn::tensor::{Device, Tensor, TensorData};

use super::cache::Prefix;
use super::{Cache, Group};
use crate::config::Qwen2Config;
use crate::model::quarter_turn;

/// Added to the score of a key that must not be seen. Finite, so that a fully masked block stays free of NaN.
const HIDDEN: f32 = -1e30;

/// What the layers of one pass share: rotations and masks.
#[derive(Debug)]
pub(super) struct Pass {
    lanes: usize,
    /// `[1, M, Hq + 2·Hkv, D]`: what each number is multiplied by, and what its quarter turn. Queries are scaled by 1/√D, values stay.
    cos: Tensor<4>,
    sin: Tensor<4>,
    /// `[D, D]`.
    turn: Tensor<2>,
    parts: Vec<Part>,
    /// Query heads of a key head, and key heads.
    groups: usize,
    heads: usize,
    width: usize,
}

/// What turns heads, whatever their positions.
#[derive(Debug)]
pub(super) struct Rotation {
    /// `[D, D]`: the quarter turn.
    turn: Tensor<2>,
    /// `[1, 1, Hq + 2·Hkv, 1]`: how much of a head is turned, and how much of it stays: 1/√D of queries, all of keys, none of values.
    turned: Tensor<4>,
    still: Tensor<4>,
}

impl Rotation {
    pub(super) fn new(config: &Qwen2Config, device: &Device) -> Self {
        let (queries, keys) = (config.num_attention_heads, config.num_key_value_heads);
        let scale = (config.head_dim as f64).sqrt().recip() as f32;
        let per_head = |parts: [f32; 3]| {
            let values: Vec<f32> = parts.into_iter().zip([queries, keys, keys]).flat_map(|(x, n)| vec![x; n]).collect();
            let heads = values.len();
            Tensor::from_data(TensorData::new(values, [1, 1, heads, 1]), device)
        };
        Self {
            turn: quarter_turn(config.head_dim, device),
            turned: per_head([scale, 1.0, 0.0]),
            still: per_head([0.0, 0.0, 1.0]),
        }
    }
}

/// What one group sees.
#[derive(Debug)]
struct Part {
    /// Its places in a lane.
    places: usize,
    /// Where its keys go.
    at: usize,
    /// `[1, 1, places, at + places]`; none where everything is seen.
    mask: Option<Tensor<4>>,
}

impl Group<'_> {
    fn prefix(&mut self) -> &mut Prefix {
        match &mut self.cache {
            Cache::Prefill(prefix) | Cache::Extend { prefix, .. } => prefix,
        }
    }

    /// Tokens of its prefix, and those that each row has added since.
    fn lengths(&self) -> (usize, usize) {
        match &self.cache {
            Cache::Prefill(prefix) => (prefix.len(), 0),
            Cache::Extend { prefix, suffix } => (prefix.len(), suffix.len()),
        }
    }
}

impl Pass {
    pub(super) fn new(config: &Qwen2Config, lanes: usize, groups: &[Group<'_>], rotation: &Rotation) -> Self {
        let device = rotation.turn.device();
        let (width, heads, queries) = (config.head_dim, config.num_key_value_heads, config.queries_per_key());
        let half = width / 2;
        // Angles are computed in f64 and rounded once, for every token of a group.
        let mut angles = Vec::new();
        let mut places = 0;
        for group in groups {
            let (length, earlier) = group.lengths();
            places += group.places();
            for step in 0..group.width() {
                let position = (length + earlier + step) as f64;
                let line: Vec<[f32; 2]> = (0..half)
                    .map(|j| {
                        let (sin, cos) = (position * config.rope_theta.powf(-2.0 * j as f64 / width as f64)).sin_cos();
                        [cos as f32, sin as f32]
                    })
                    .collect();
                angles.extend(std::iter::repeat_n(line, group.rows.len()));
            }
        }
        let table = |which: usize| {
            let values: Vec<f32> = angles.iter().flat_map(|line| (0..width).map(move |j| line[j % half][which])).collect();
            Tensor::<4>::from_data(TensorData::new(values, [1, places, 1, width]), &device)
        };
        Self {
            lanes,
            cos: table(0) * rotation.turned.clone() + rotation.still.clone(),
            sin: table(1) * rotation.turned.clone(),
            turn: rotation.turn.clone(),
            parts: groups.iter().map(|group| Part::new(group, &device)).collect(),
            groups: queries,
            heads,
            width,
        }
    }
}

impl Part {
    fn new(group: &Group<'_>, device: &Device) -> Self {
        let (length, earlier) = group.lengths();
        let (rows, places) = (group.rows.len(), group.places());
        let at = length + earlier * rows;
        let mask = (places > 1).then(|| {
            // Place t·N + n sees what its own row has added, up to itself.
            let own = (earlier * rows) + places;
            let mut mask = vec![HIDDEN; places * own];
            for (place, line) in mask.chunks_exact_mut(own).enumerate() {
                let (step, row) = (earlier + place / rows, place % rows);
                line.iter_mut().skip(row).step_by(rows).take(step + 1).for_each(|cell| *cell = 0.0);
            }
            let own = Tensor::<4>::from_data(TensorData::new(mask, [1, 1, places, own]), device);
            if length == 0 { own } else { Tensor::cat(vec![Tensor::zeros([1, 1, places, length], device), own], 3) }
        });
        Self { places, at, mask }
    }
}

/// Attention of all groups: projections `[G·M, (Hq + 2·Hkv)·D]` to `[G·M, Hq·D]`.
pub(super) fn attend(projected: Tensor<2>, layer: usize, pass: &Pass, groups: &mut [Group<'_>]) -> Tensor<2> {
    let Pass { lanes, groups: queries, heads, width, .. } = *pass;
    let [rows, columns] = projected.dims();
    let count = columns / width;
    let turned = projected.clone().reshape([rows * count, width]).matmul(pass.turn.clone());
    let shape = [lanes, rows / lanes, count, width];
    let rotated = projected.reshape(shape) * pass.cos.clone() + turned.reshape(shape) * pass.sin.clone();

    let mut start = 0;
    let mut mixed = Vec::with_capacity(groups.len());
    for (group, part) in groups.iter_mut().zip(&pass.parts) {
        let Part { places, at, mask } = part;
        let own = start..start + places;
        start += places;
        let take = |heads: std::ops::Range<usize>| rotated.clone().slice([0..lanes, own.clone(), heads, 0..width]);
        let new = take(queries * heads..count).swap_dims(1, 2);
        let (keys, values) = group.prefix().write(layer, *at, new);
        let query = take(0..queries * heads).reshape([lanes, *places, heads, queries, width]).permute([0, 2, 3, 1, 4]);
        let query = query.reshape([lanes, heads, queries * places, width]);
        let scores = query.matmul(keys.swap_dims(2, 3));
        let scores = match mask {
            None => scores,
            Some(mask) => {
                let seen = at + places;
                let all = scores.reshape([lanes * heads, queries, *places, seen]) + mask.clone();
                all.reshape([lanes, heads, queries * places, seen])
            }
        };
        let max = scores.clone().max_dim(3);
        let weights = (scores - max).exp();
        let total = weights.clone().sum_dim(3);
        let out = weights.matmul(values) / total;
        let out = out.reshape([lanes, heads, queries, *places, width]).permute([0, 3, 1, 2, 4]);
        mixed.push(out.reshape([lanes * places, heads * queries * width]));
    }
    super::together(mixed, lanes)
}
