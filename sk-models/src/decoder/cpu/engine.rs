//! The [`Engine`] implementation on a CPU.

use std::sync::{Arc, PoisonError, Weak};

use burn::tensor::{DType, Device};
use sk_core::TokenId;

use super::adapter::PackedAdapter;
use super::grid::Grid;
use super::kv::{KvCache, KvPrefix};
use super::linear::{linear, lower};
use super::matrix::Matrix;
use super::pace::Pace;
use super::plan::{LaneRows, PackedSeats, Places};
use super::{CpuEngine, EmbeddingTable, Room, portion};
use crate::config::Qwen2Config;
use crate::decoder::engine::{Engine, EngineProperties, Formats, Group};
use crate::decoder::logits::{HostLogits, Logits};
use crate::decoder::scheduler::PassKey;
use crate::device::DeviceFailure;
use crate::kernels::simd::{dot, widened};
use crate::lora::{AdapterError, LoraAdapter};
use crate::precision::Precision;

/// The states of a pass, lanes outermost, and the place of each token's state in its lane.
#[derive(Debug, Default)]
pub(crate) struct StateGrid {
    pub(super) grid: Grid,
    pub(super) places: Places,
}

impl EngineProperties for CpuEngine {
    fn config(&self) -> &Qwen2Config {
        &self.config
    }

    fn device(&self) -> Device {
        Device::flex()
    }

    fn formats(&self) -> Formats {
        let weights = match self.precision {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::Int8 => DType::I8,
        };
        Formats { weights, keys: DType::F32, states: DType::F32 }
    }

    fn is_cpu(&self) -> bool {
        true
    }

    fn free_buffers(&self) {
        // Copies of adapters that were dropped.
        self.adapters.lock().unwrap_or_else(PoisonError::into_inner).retain(|(origin, _)| origin.strong_count() > 0);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn bytes(&self) -> usize {
        let matrices = self.layers.iter().flat_map(|layer| &layer.matrices).chain([&self.head]);
        matrices.map(Matrix::bytes).sum::<usize>() + self.embedding.as_ref().map_or(0, EmbeddingTable::bytes)
    }
}

impl Engine for CpuEngine {
    type Prefix = KvPrefix;
    type Suffix = KvCache;
    type Seats = PackedSeats;
    type States = StateGrid;

    fn prefix(&self, lanes: usize) -> KvPrefix {
        KvPrefix::new(&self.config, lanes)
    }

    fn suffix(&self, lanes: usize, rows: usize) -> KvCache {
        KvCache::new(&self.config, lanes * rows)
    }

    fn seat(&self, lanes: &[Option<Arc<LoraAdapter>>]) -> Result<Self::Seats, AdapterError> {
        let pack = |(lane, adapter): (usize, &Option<Arc<LoraAdapter>>)| {
            adapter.as_ref().map(|adapter| self.pack(lane, adapter)).transpose()
        };
        lanes.iter().enumerate().map(pack).collect()
    }

    fn forward_key(&self, group: &Group<'_, Self>, states: bool) -> PassKey {
        let reads = group.pace(states) == Pace::Read;
        PassKey { seats: 0, kind: 2 * usize::from(reads) + usize::from(states) }
    }

    fn forward(&self, mut groups: Vec<Group<'_, Self>>, states: bool, _joined: bool) -> Vec<StateGrid> {
        let mut all = Vec::with_capacity(groups.len());
        let mut rest = &mut groups[..];
        while !rest.is_empty() {
            let (first, after) = rest.split_at_mut(portion(rest.iter().map(Group::positions)));
            all.extend(self.run_pass(first, states));
            rest = after;
        }
        all
    }

    fn logits_key(&self, _seats: &Self::Seats) -> PassKey {
        PassKey { seats: 0, kind: 0 }
    }

    fn logits(&self, of: &[(&StateGrid, &Self::Seats)]) -> Vec<Logits> {
        let counts: Vec<usize> = of.iter().map(|(states, _)| states.grid.rows()).collect();
        let lanes = LaneRows::of_each(of.iter().zip(&counts).map(|((_, seats), rows)| (seats.len(), rows / seats.len())));
        let states = Grid::join(of.iter().map(|(states, _)| &states.grid));
        let mut head = self.head(of.iter().flat_map(|(_, seats)| *seats));
        let mut logits = Grid::new(states.rows(), self.config.vocab_size);
        let mut room = Room::default();
        let input = self.input(&states, self.config.hidden_size, Pace::Step, &mut room);
        lower(&mut [&mut head], input, &lanes);
        linear(&[(&head, 0)], input, &lanes, &mut logits, false);
        let host = |grid| Logits::Host(HostLogits::new(grid, self.config.vocab_size));
        logits.split(&counts).into_iter().map(host).collect()
    }

    fn place(states: &StateGrid, lane: usize, lanes: usize, row: usize, step: usize) -> usize {
        lane * (states.grid.rows() / lanes) + states.places.at(row, step)
    }

    fn read(&self, states: &StateGrid, seats: &Self::Seats, at: &[(usize, TokenId)]) -> Result<Vec<[f32; 2]>, DeviceFailure> {
        let lane_rows = states.grid.rows() / seats.len();
        let mut selected = Grid::new(seats.len() * at.len(), self.config.hidden_size);
        let rows = (0..seats.len()).flat_map(|lane| at.iter().map(move |(place, _)| lane * lane_rows + place));
        for (out, row) in selected.rows_mut().zip(rows) {
            out.copy_from_slice(states.grid.row(row));
        }
        let targets: Vec<TokenId> = at.iter().map(|(_, target)| *target).collect();
        Ok(self.read_pairs(&selected, seats, &targets.repeat(seats.len())))
    }

    fn project(states: &StateGrid, places: &[usize], heads: &[(&[f32], f32)]) -> Result<Vec<f32>, DeviceFailure> {
        let mut values = Vec::with_capacity(places.len() * heads.len());
        for &place in places {
            let state = states.grid.row(place);
            values.extend(heads.iter().map(|(weight, bias)| bias + widened!(dot(weight, &state[..weight.len()]))));
        }
        Ok(values)
    }
}

impl CpuEngine {
    /// Returns the packed adapter. Packs it the first time.
    fn pack(&self, lane: usize, adapter: &Arc<LoraAdapter>) -> Result<Arc<PackedAdapter>, AdapterError> {
        let place = {
            // Every change is one insertion or removal, so the list is consistent even after a
            // panic.
            let mut known = self.adapters.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|(origin, _)| origin.strong_count() > 0);
            match known.iter().find(|(origin, _)| Weak::as_ptr(origin) == Arc::as_ptr(adapter)) {
                Some((_, place)) => Arc::clone(place),
                None => {
                    let place = Arc::default();
                    known.push((Arc::downgrade(adapter), Arc::clone(&place)));
                    place
                }
            }
        };
        // Only those that need this adapter wait while it is packed.
        let mut packed = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(packed) = &*packed {
            return Ok(Arc::clone(packed));
        }
        let new = Arc::new(PackedAdapter::new(adapter, lane, &self.config, self.precision)?);
        Ok(Arc::clone(packed.insert(new)))
    }
}
