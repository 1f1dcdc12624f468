use burn::tensor::{DType, Int, Tensor};

use super::GpuEngine;
use super::group::join_lanes;
use super::operands::{AttentionGroup, Changed};
use super::ops::{self, rotate};
use crate::decoder::engine::Group;
use crate::decoder::heads::Heads;
use crate::lora::Lanes;

/// The input that all layers of a pass share.
#[derive(Debug)]
pub(super) struct PassInput<'a> {
    pub(super) lanes: Lanes<'a>,
    pub(super) heads: Heads,
    /// The [`numbers`] of the groups.
    pub(super) numbers: Tensor<1, Int>,
    /// `[positions, D]`: cosines and sines of each position.
    pub(super) angles: Tensor<2>,
    /// The largest number of keys of a group over all values of `numbers`; `None` if they are
    /// fixed.
    pub(super) room: Option<usize>,
}

/// Returns the input of a pass: the tokens of all groups once per lane, then the position of each
/// group.
pub(super) fn numbers(groups: &[Group<'_, GpuEngine>], lanes: usize) -> Vec<i32> {
    let mut tokens = Vec::new();
    for group in groups {
        for step in 0..group.width() {
            // Padding of short rows; its states are never read.
            tokens.extend(group.rows.iter().map(|row| row.get(step).copied().unwrap_or(0) as i32));
        }
    }
    let mut numbers = tokens.repeat(lanes);
    numbers.extend(groups.iter().flat_map(|group| group.visibility().lengths()));
    numbers
}

/// Computes the attention of all groups: projections `[G·M, (Hq + 2·Hkv)·D]` without their bias to
/// `[G·M, Hq·D]` in `format`.
pub(super) fn attend(
    projected: &Changed,
    bias: &Tensor<1>,
    layer: usize,
    pass: &PassInput<'_>,
    groups: &mut [Group<'_, GpuEngine>],
    format: DType,
) -> Tensor<2> {
    let lanes = pass.lanes.count();
    let mut start = 0;
    let mut mixed = Vec::with_capacity(groups.len());
    // Two numbers per group follow the tokens.
    let mut at = pass.numbers.dims()[0] - 2 * groups.len();
    for group in groups {
        let visibility = group.visibility();
        let (numbers, room) = (pass.numbers.clone(), pass.room.unwrap_or(visibility.keys()));
        let own = AttentionGroup { heads: pass.heads, lanes, start, visibility, numbers, at, room };
        start += visibility.places;
        at += 2;
        let cache = group.cache.prefix.reserve(layer, visibility.keys() - visibility.places, visibility.places);
        let (queries, written) = rotate(projected.clone(), bias.clone(), pass.angles.clone(), &own, cache.clone());
        *cache = written;
        mixed.push(ops::attend(queries, cache, &own, format));
    }
    join_lanes(mixed, lanes)
}
