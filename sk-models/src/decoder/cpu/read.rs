//! Log-probabilities and min-entropies without logits.

use std::cell::RefCell;

use sk_core::TokenId;

use super::aligned_vec::AlignedVec;
use super::amx::SIDE;
use super::grid::Grid;
use super::linear::{Linear, lower};
use super::matrix::Input;
use super::pace::Pace;
use super::plan::{LaneRows, PackedSeats};
use super::tile::{ROWS, Strided, WIDTH};
use super::{CpuEngine, Room};
use crate::kernels::simd::{exp, max, sum, widened};
use crate::team::{SharedSlice, Team};

/// Panels whose logits are in memory at a time.
const PANELS: usize = 8;

/// Panels whose logits form one partial sum, so that the order of a row's sums depends neither on
/// other rows nor on threads.
const UNIT: usize = 2 * PANELS;

/// Rows whose logits are in memory at a time.
const PIECE: usize = 2 * ROWS;

/// Rows of a task, which share a sweep over the head. Their states stay in the cache.
const BLOCK: usize = 168;

/// Rows of a task where products run in tiles.
const WIDE_BLOCK: usize = 384;

thread_local! {
    /// Logits of a piece.
    static LOGITS: RefCell<AlignedVec> = RefCell::default();
}

/// The rows of a pass and the head that reads them.
struct HeadRows<'a> {
    head: Linear<'a>,
    states: Input<'a>,
    lanes: LaneRows,
    targets: &'a [TokenId],
    vocabulary: usize,
}

/// The running softmax of a row.
#[derive(Debug, Clone, Copy)]
struct Partial {
    max: f32,
    /// `Σ e^{z − max}`.
    sum: f32,
    /// The target's logit, once found.
    target: Option<f32>,
}

impl Partial {
    const NONE: Self = Self { max: f32::NEG_INFINITY, sum: 0.0, target: None };

    /// Adds logits to the running softmax.
    #[inline(always)]
    fn extend(&mut self, logits: &[f32], scratch: &mut [f32]) {
        let peak = max(logits).max(self.max);
        for (out, z) in scratch.iter_mut().zip(logits) {
            *out = exp(z - peak);
        }
        self.sum = self.sum * exp(self.max - peak) + sum(&scratch[..logits.len()]);
        self.max = peak;
    }

    fn join(self, other: Self) -> Self {
        let max = self.max.max(other.max);
        let scaled = |part: Self| if part.sum == 0.0 { 0.0 } else { part.sum * (part.max - max).exp() };
        Self { max, sum: scaled(self) + scaled(other), target: self.target.or(other.target) }
    }
}

impl CpuEngine {
    /// Returns `[log p(target), logsumexp − max]` in nats for each row of `states`, whose rows
    /// divide into the lanes in order.
    ///
    /// O(M·V·H) operations and M·V/512 partial sums.
    pub(super) fn read_pairs(&self, states: &Grid, seats: &PackedSeats, targets: &[TokenId]) -> Vec<[f32; 2]> {
        let rows = states.rows();
        assert_eq!(rows, targets.len());
        if rows == 0 {
            return Vec::new();
        }
        let lanes = LaneRows::even(seats.len(), rows / seats.len());
        let mut head = self.head(seats.iter());
        let mut room = Room::default();
        let pace = Pace::of(rows / seats.len());
        let states = self.input(states, self.config.hidden_size, pace, &mut room);
        lower(&mut [&mut head], states, &lanes);

        let threads = Team::global().threads();
        let height = states.form.height();
        let most = if height == SIDE { WIDE_BLOCK } else { BLOCK };
        // If a panel is prepared once per piece, a block is one piece.
        let piece = if states.form.prepares_panels() { most } else { PIECE.next_multiple_of(height) };
        let block = most.min(rows.div_ceil(threads).next_multiple_of(height));
        let piece = piece.min(block);
        let blocks = rows.div_ceil(block);
        // If there are few rows, threads share the vocabulary.
        let panels = head.weight.count();
        let all = HeadRows { head, states, lanes, targets, vocabulary: self.config.vocab_size };
        let parts = if blocks >= 2 * threads { 1 } else { (4 * threads).div_ceil(blocks) };
        let share = panels.div_ceil(parts).next_multiple_of(UNIT);
        let (shares, units) = (panels.div_ceil(share), panels.div_ceil(UNIT));
        let mut partials = vec![Partial::NONE; rows * units];
        let found = SharedSlice::of(&mut partials);
        Team::global().run(blocks * shares, &|task| {
            let (first, part) = (task / shares * block, task % shares);
            let rows_here = block.min(rows - first);
            LOGITS.with_borrow_mut(|logits| {
                logits.reach(piece * PANELS * WIDTH);
                for panel in (part * share..((part + 1) * share).min(panels)).step_by(PANELS) {
                    let end = (panel + PANELS).min(panels);
                    // SAFETY: one task owns the rows of a block under one share, and a unit belongs
                    // to one share.
                    let partials = unsafe { found.slice(panel / UNIT * rows + first, rows_here) };
                    for at in (0..rows_here).step_by(piece) {
                        let count = piece.min(rows_here - at);
                        all.extend(&mut partials[at..at + count], first + at, [panel, end], logits);
                    }
                }
            });
        });
        (0..rows)
            .map(|row| {
                let whole = (0..units).map(|unit| partials[unit * rows + row]).fold(Partial::NONE, Partial::join);
                let entropy = whole.sum.ln();
                [whole.target.unwrap_or(f32::NAN) - whole.max - entropy, entropy]
            })
            .collect()
    }
}

impl HeadRows<'_> {
    /// Adds panels `panel..end` to the partial sums of the rows from `first` on.
    fn extend(&self, partials: &mut [Partial], first: usize, [panel, end]: [usize; 2], logits: &mut [f32]) {
        const STRIDE: usize = PANELS * WIDTH;
        assert!(partials.len() * STRIDE <= logits.len() && end - panel <= PANELS);
        let start = logits.as_mut_ptr();
        for at in panel..end {
            // SAFETY: by the assertion there is room for the rows and eight panels, which no other
            // task sees.
            unsafe {
                let c = Strided { start: start.add((at - panel) * WIDTH), stride: STRIDE };
                self.head.tile(at, [first, partials.len()], &self.lanes, self.states, c, false);
            }
        }
        // The last panel may be wider than the vocabulary.
        let (from, to) = (panel * WIDTH, (end * WIDTH).min(self.vocabulary));
        let mut scratch = [0.0_f32; STRIDE];
        for (row, partial) in partials.iter_mut().enumerate() {
            let line = &logits[row * STRIDE..][..to - from];
            widened!(partial.extend(line, &mut scratch));
            let target = self.targets[first + row] as usize;
            if (from..to).contains(&target) {
                partial.target = Some(line[target - from]);
            }
        }
    }
}
