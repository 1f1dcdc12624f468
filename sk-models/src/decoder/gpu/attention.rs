use burn::tensor::{DType, Int, Tensor};

use super::group::{Group, join_lanes};
use super::ops::{self, Changed, Place, rotate};
use super::shape::{Heads, Own, Sight};
use crate::config::Qwen2Config;

/// The input that all layers of a pass share.
#[derive(Debug)]
pub(super) struct Pass {
    lanes: usize,
    /// The tokens, then the position of each group.
    numbers: Tensor<1, Int>,
    /// `[positions, D]`: cosines and sines of each position.
    angles: Tensor<2>,
    heads: Heads,
    parts: Vec<Part>,
}

/// One group of the pass.
#[derive(Debug, Clone, Copy)]
struct Part {
    sight: Sight,
    /// The largest number of keys as the numbers of the pass change.
    room: usize,
}

/// Returns the heads of a layer.
pub(super) fn heads(config: &Qwen2Config) -> Heads {
    Heads { queries: config.num_attention_heads, keys: config.num_key_value_heads, width: config.head_dim }
}

/// Returns the input of a pass: the tokens of all groups once per lane, then the position of each
/// group.
pub(super) fn numbers(groups: &[Group<'_>], lanes: usize) -> Vec<i32> {
    let mut tokens = Vec::new();
    for group in groups {
        for step in 0..group.width() {
            // Padding of short rows; its states are never read.
            tokens.extend(group.rows.iter().map(|row| row.get(step).copied().unwrap_or(0) as i32));
        }
    }
    let mut numbers = tokens.repeat(lanes);
    numbers.extend(groups.iter().flat_map(|group| group.sight().place()));
    numbers
}

impl Pass {
    /// Prepares a pass over groups whose [`numbers`] are on the device. `angles` covers all
    /// positions. `room` is the largest number of keys as the numbers change; the default is the
    /// present number.
    pub(super) fn new(
        config: &Qwen2Config,
        lanes: usize,
        groups: &[Group<'_>],
        numbers: Tensor<1, Int>,
        angles: Tensor<2>,
        room: Option<usize>,
    ) -> Self {
        let part = |group: &Group<'_>| {
            let sight = group.sight();
            Part { sight, room: room.unwrap_or(sight.keys()) }
        };
        Self { lanes, numbers, angles, heads: heads(config), parts: groups.iter().map(part).collect() }
    }

    /// Returns the tokens `[G, M]`.
    pub(super) fn tokens(&self) -> Tensor<2, Int> {
        let places: usize = self.parts.iter().map(|part| part.sight.places).sum();
        self.numbers.clone().narrow(0, 0, self.lanes * places).reshape([self.lanes, places])
    }
}

/// Computes the attention of all groups: projections `[G·M, (Hq + 2·Hkv)·D]` without their bias to
/// `[G·M, Hq·D]` in `format`.
pub(super) fn attend(
    projected: &Changed,
    bias: &Tensor<1>,
    layer: usize,
    pass: &Pass,
    groups: &mut [Group<'_>],
    format: DType,
) -> Tensor<2> {
    let Pass { lanes, heads, .. } = *pass;
    let mut start = 0;
    let mut mixed = Vec::with_capacity(groups.len());
    // Two numbers per group follow the tokens.
    let mut at = pass.numbers.dims()[0] - 2 * groups.len();
    for (group, &Part { sight, room }) in groups.iter_mut().zip(&pass.parts) {
        let own = Own { lanes, start, places: sight.places };
        start += sight.places;
        let place = Place { numbers: pass.numbers.clone(), at, room };
        at += 2;
        let cache = group.cache.prefix.reserve(layer, sight.keys() - sight.places, sight.places);
        let mut queries = None;
        cache.inplace(|cache| {
            let (query, cache) = rotate(projected.clone(), bias.clone(), pass.angles.clone(), heads, own, sight, &place, cache);
            queries = Some(query);
            cache
        });
        let queries = queries.expect("the rotation returns the queries");
        mixed.push(ops::attend(queries, cache, heads, lanes, sight, &place, format));
    }
    join_lanes(mixed, lanes)
}
