use burn::tensor::{DType, Device, Tensor, TensorData};

use super::cache::Prefix;
use super::ops::{self, Changed, Heads, Own, Sight, turn};
use super::{Cache, Group};
use crate::config::Qwen2Config;

/// What the layers of one pass share.
#[derive(Debug)]
pub(super) struct Pass {
    lanes: usize,
    /// `[M, D]`: of each place, cosines and sines.
    angles: Tensor<2>,
    heads: Heads,
    parts: Vec<Part>,
}

/// What one group sees.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// Where its keys go.
    at: usize,
    sight: Sight,
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
    pub(super) fn new(config: &Qwen2Config, lanes: usize, groups: &[Group<'_>], device: &Device) -> Self {
        let heads = Heads { queries: config.num_attention_heads, keys: config.num_key_value_heads, width: config.head_dim };
        let half = heads.width / 2;
        // Angles are computed in f64 and rounded once, for every token of a group.
        let mut angles: Vec<f32> = Vec::new();
        let mut parts = Vec::with_capacity(groups.len());
        for group in groups {
            let (shared, earlier) = group.lengths();
            let rows = group.rows.len();
            for step in 0..group.width() {
                let position = (shared + earlier + step) as f64;
                let turns = (0..half).map(|j| position * config.rope_theta.powf(-2.0 * j as f64 / heads.width as f64));
                let line: Vec<f32> = turns.clone().map(|x| x.cos() as f32).chain(turns.map(|x| x.sin() as f32)).collect();
                angles.extend(std::iter::repeat_n(line, rows).flatten());
            }
            let sight = Sight { places: group.places(), shared, earlier, rows };
            parts.push(Part { at: shared + earlier * rows, sight });
        }
        let places = angles.len() / heads.width;
        let angles = Tensor::from_data(TensorData::new(angles, [places, heads.width]), device);
        Self { lanes, angles, heads, parts }
    }
}

/// Attention of all groups: projections `[G·M, (Hq + 2·Hkv)·D]`, without their bias, to `[G·M, Hq·D]` in `format`.
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
    for (group, &Part { at, sight }) in groups.iter_mut().zip(&pass.parts) {
        let places = sight.places;
        let own = Own { lanes, start, places };
        start += places;
        let cache = group.prefix().reserve(layer, at, places);
        let mut queries = None;
        cache.inplace(|cache| {
            let (query, cache) = turn(projected.clone(), bias.clone(), pass.angles.clone(), heads, own, cache, at);
            queries = Some(query);
            cache
        });
        let queries = queries.expect("what was turned");
        mixed.push(ops::attend(queries, cache, heads, lanes, sight, format));
    }
    super::together(mixed, lanes)
}
