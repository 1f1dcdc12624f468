//! The groups of rows of a pass, and how their hidden states are joined within each lane.

use burn::tensor::Tensor;

use super::GpuEngine;
use super::shape::Visibility;
use crate::decoder::engine::{Group, PrefixCache, SuffixCache};

impl Group<'_, GpuEngine> {
    /// Returns the number of places in each lane. Short rows are padded to the longest.
    pub(super) fn places(&self) -> usize {
        self.width() * self.rows.len()
    }

    pub(super) fn visibility(&self) -> Visibility {
        // Tokens of the prefix, and tokens that each row has added since.
        let (shared, earlier) = (self.cache.prefix.len(), self.cache.suffix.as_ref().map_or(0, |suffix| suffix.len()));
        Visibility { places: self.places(), shared, earlier, rows: self.rows.len() }
    }
}

/// Joins `[G·mᵢ, W]` of each i within each lane: `[G·Σmᵢ, W]`.
pub(super) fn join_lanes(mut parts: Vec<Tensor<2>>, lanes: usize) -> Tensor<2> {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let width = parts[0].dims()[1];
    let total: usize = parts.iter().map(|part| part.dims()[0]).sum();
    let by_lane = |part: Tensor<2>| {
        let rows = part.dims()[0];
        part.reshape([lanes, rows / lanes, width])
    };
    Tensor::cat(parts.into_iter().map(by_lane).collect(), 1).reshape([total, width])
}

/// Reverses [`join_lanes`].
pub(super) fn split_lanes(joined: Tensor<2>, lanes: usize, places: &[usize]) -> Vec<Tensor<2>> {
    if places.len() == 1 {
        return vec![joined];
    }
    let [total, width] = joined.dims();
    let parts = joined.reshape([lanes, total / lanes, width]).split_with_sizes(places.to_vec(), 1);
    parts.into_iter().zip(places).map(|(part, places)| part.reshape([lanes * places, width])).collect()
}
