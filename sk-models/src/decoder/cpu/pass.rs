//! A pass over the layers.

use std::sync::{Arc, PoisonError};

use super::adapter::PackedAdapter;
use super::amx::Tiles;
use super::attention::{append, attend};
use super::bf16::PairProducts;
use super::engine::StateGrid;
use super::grid::Grid;
use super::linear::{Linear, gated, linear, lower};
use super::matrix::{Input, InputForm};
use super::pace::Pace;
use super::plan::Plan;
use super::terms::{THREE, TWO};
use super::{Buffers, CpuEngine, Room};
use crate::decoder::engine::Group;
use crate::decoder::heads::Heads;
use crate::lora::Target;
use crate::precision::Precision;
use crate::team::for_each_mut;

/// Maximum size of the buffers that a pass leaves to the next one, in f32 numbers (256 MiB). Larger
/// buffers are freed.
const MOST_KEPT: usize = 64 << 20;

impl CpuEngine {
    /// Converts rows to the form that the weights need; `room` holds the result.
    pub(super) fn input<'a>(&self, grid: &'a Grid, width: usize, pace: Pace, room: &'a mut Room) -> Input<'a> {
        let tiles = if pace == Pace::Read { Tiles::get() } else { None };
        let form = match (self.precision, tiles) {
            // Bytes have the same bits in tiles and in vectors, so the number of rows decides.
            (Precision::Int8, _) => {
                room.bytes.fill(grid, width, Tiles::get());
                InputForm::Int8(&room.bytes)
            }
            (Precision::Bf16, None) if let Some(proof) = PairProducts::get() => {
                room.rounded.fill(proof, grid, width);
                InputForm::Bf16(&room.rounded)
            }
            (Precision::F32 | Precision::Bf16, None) => InputForm::F32,
            (precision, Some(tiles)) => {
                room.terms.fill(tiles, grid, width, if precision == Precision::F32 { THREE } else { TWO });
                InputForm::of_terms(&room.terms, tiles)
            }
        };
        Input { grid, form }
    }

    /// Runs one pass over all rows of all groups. Returns the final-norm states of each group.
    ///
    /// Without `states`, the last layer stops after keys and values, and the states are empty.
    pub(super) fn run_pass(&self, groups: &mut [Group<'_, Self>], states: bool) -> Vec<StateGrid> {
        let config = &self.config;
        let plan = Plan::new(groups, states);
        let lanes = &plan.lanes;
        let heads = Heads::new(config);
        let table = self.rotations.reach(plan.reach);
        let mut x = self.embed(&plan);
        let mut buffers = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let Buffers { normed, projected, mixed, inner, room } = &mut buffers;
        let pace = plan.pace;
        // In f32, the six products for one would take as long in tiles as in vectors.
        let tiles = if pace == Pace::Read && self.precision != Precision::F32 { Tiles::get() } else { None };
        if pace == Pace::Step && Tiles::get().is_some() {
            // Tiles and vectors add in different orders.
            groups.iter_mut().for_each(|group| group.cache.mark());
        }
        let total = plan.tokens.len();
        let [key_column, value_column, columns] = heads.columns();
        normed.reshape(total, config.hidden_size);
        projected.reshape(total, columns);
        mixed.reshape(total, config.query_size());
        inner.reshape(total, config.intermediate_size);

        for (index, layer) in self.layers.iter().enumerate() {
            let linear_of = |target: Target| {
                let changes = plan.seats.iter().map(|seat| seat.as_ref().and_then(|adapter| adapter.get(index, target)));
                Linear::new(&layer.matrices[target as usize], changes.collect())
            };
            let [mut query, mut key, mut value] = [Target::Query, Target::Key, Target::Value].map(linear_of);
            layer.input_norm.apply(&x, normed);
            let input = self.input(normed, config.hidden_size, pace, room);
            lower(&mut [&mut query, &mut key, &mut value], input, lanes);
            linear(&[(&query, 0), (&key, key_column), (&value, value_column)], input, lanes, projected, false);
            let mut keys: Vec<_> = groups.iter_mut().map(|group| group.cache.layer_mut(index)).collect();
            if index + 1 == self.layers.len() && !states {
                append(&plan, heads, projected, &table, &mut keys);
                break;
            }
            attend(&plan, heads, projected, &table, &mut keys, tiles, mixed);
            let mut output = linear_of(Target::Output);
            let input = self.input(mixed, config.query_size(), pace, room);
            lower(&mut [&mut output], input, lanes);
            linear(&[(&output, 0)], input, lanes, &mut x, true);

            let [mut gate, mut up, mut down] = [Target::Gate, Target::Up, Target::Down].map(linear_of);
            layer.inner_norm.apply(&x, normed);
            let input = self.input(normed, config.hidden_size, pace, room);
            lower(&mut [&mut gate, &mut up], input, lanes);
            gated(&gate, &up, input, lanes, inner);
            let input = self.input(inner, config.intermediate_size, pace, room);
            lower(&mut [&mut down], input, lanes);
            linear(&[(&down, 0)], input, lanes, &mut x, true);
        }
        if total * (config.hidden_size + columns + config.query_size() + config.intermediate_size) <= MOST_KEPT {
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(buffers);
        }
        if !states {
            return groups.iter().map(|_| StateGrid::default()).collect();
        }
        let mut hidden = Grid::new(total, config.hidden_size);
        self.norm.apply(&x, &mut hidden);
        let counts: Vec<usize> =
            groups.iter().zip(&plan.places).map(|(group, places)| group.seats.len() * places.states()).collect();
        hidden.split(&counts).into_iter().zip(plan.places).map(|(grid, places)| StateGrid { grid, places }).collect()
    }

    fn embed(&self, plan: &Plan) -> Grid {
        let mut x = Grid::new(plan.tokens.len(), self.config.hidden_size);
        let mut rows: Vec<_> = x.rows_mut().collect();
        for_each_mut(&mut rows, |row, x| {
            let token = plan.tokens[row] as usize;
            let x = &mut x[..self.config.hidden_size];
            match &self.embedding {
                Some(table) => table.row(token, x),
                None => self.head.column(token, x),
            }
            if let Some(adapter) = &plan.seats[plan.lanes.of(row)] {
                adapter.embed(token, x);
            }
        });
        x
    }

    /// Returns the head with the low-rank update of each lane.
    pub(super) fn head<'a>(&'a self, seats: impl Iterator<Item = &'a Option<Arc<PackedAdapter>>>) -> Linear<'a> {
        Linear::new(&self.head, seats.map(|seat| seat.as_ref().and_then(|adapter| adapter.head.as_ref())).collect())
    }
}
