//! Weights in panels and their products with many rows.

use super::amx::{SIDE, Tiles};
use super::bf16::{Bf16Weights, Rounded};
use super::grid::{Grid, Slab};
use super::int8::{Int8Weights, Quantized};
use super::terms::Terms;
use super::tile::{self, ROWS, Strided, WIDTH, multiply};
use crate::precision::Precision;
use crate::team::for_each_mut;

/// Bytes of a block for tiles and one sweep over the depth. A panel is prepared once per block, so
/// few large blocks are better.
pub(super) const TILED_BYTES: usize = 5 << 18;

/// A weight `[input, output]` in panels of [`WIDTH`] columns, zero beyond the last one.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(super) input: usize,
    pub(super) output: usize,
    pub(super) panels: Panels,
    /// Padded to whole panels.
    pub(super) bias: Option<Vec<f32>>,
}

#[derive(Debug)]
pub(super) enum Panels {
    F32(Slab<f32>),
    Bf16(Bf16Weights),
    Int8(Int8Weights),
}

impl Matrix {
    /// Packs values whose rows and columns are `strides` apart: `[output, 1]` if they are row-major.
    pub(crate) fn new(
        values: &[f32],
        [input, output]: [usize; 2],
        strides: [usize; 2],
        bias: Option<&[f32]>,
        precision: Precision,
    ) -> Self {
        assert_eq!(values.len(), input * output);
        let get = |k: usize, column: usize| values[k * strides[0] + column * strides[1]];
        let panels = match precision {
            Precision::F32 => Panels::F32(fill([input, output], get)),
            Precision::Bf16 => Panels::Bf16(Bf16Weights::new([input, output], get)),
            Precision::Int8 => Panels::Int8(Int8Weights::new([input, output], get)),
        };
        let bias = bias.map(|bias| {
            let mut padded = bias.to_vec();
            padded.resize(output.next_multiple_of(WIDTH), 0.0);
            padded
        });
        Self { input, output, panels, bias }
    }

    /// Computes `C = x·W` or `C += x·W` without the bias, for rows `first..first + rows` and the
    /// first `vectors` vectors of 16 columns of a panel. Only products of bytes run in tiles.
    ///
    /// # Safety
    ///
    /// C holds that many rows of [`WIDTH`] columns, and nothing else uses them.
    pub(super) unsafe fn multiply(
        &self,
        panel: usize,
        [first, rows, vectors]: [usize; 3],
        x: Input<'_>,
        c: Strided<*mut f32>,
        add: bool,
    ) {
        assert!(first + rows <= x.grid.rows() && self.input <= x.grid.stride());
        let a = x.grid.rows_from(first);
        // SAFETY: `x` has these rows and columns, the panel belongs to the weight, and C is valid
        // by the caller's promise.
        unsafe {
            match (&self.panels, x.form) {
                (Panels::F32(panels), _) => {
                    multiply([rows, self.input, vectors], a, tile::panel(panels, self.input, panel), c, add);
                }
                (Panels::Bf16(weights), InputForm::Bf16(x)) => {
                    weights.multiply_rounded(panel, [first, rows, vectors], x, c, add);
                }
                (Panels::Bf16(weights), _) => weights.multiply(panel, rows, a, c, add),
                (Panels::Int8(bytes), InputForm::Int8(x)) => bytes.multiply(panel, [first, rows, vectors], x, c, add),
                // If the rows were not converted for this weight, they are rounded here.
                (Panels::Int8(bytes), _) => {
                    let mut rounded = Quantized::default();
                    rounded.fill(x.grid, self.input, None);
                    bytes.multiply(panel, [first, rows, vectors], &rounded, c, add);
                }
            }
        }
    }

    /// Returns the number of panels.
    pub(crate) fn count(&self) -> usize {
        self.output.div_ceil(WIDTH)
    }

    /// Copies column `column` to `out`.
    pub(crate) fn column(&self, column: usize, out: &mut [f32]) {
        match &self.panels {
            Panels::Bf16(weights) => weights.column(column, out),
            Panels::Int8(bytes) => bytes.column(column, out),
            Panels::F32(panels) => {
                let panel = &panels[column / WIDTH * self.input * WIDTH..][..self.input * WIDTH];
                for (value, line) in out.iter_mut().zip(panel.chunks_exact(WIDTH)) {
                    *value = line[column % WIDTH];
                }
            }
        }
    }

    /// Returns the bytes of the weight.
    pub(crate) fn bytes(&self) -> usize {
        match &self.panels {
            Panels::F32(panels) => size_of_val::<[f32]>(panels),
            Panels::Bf16(weights) => weights.bytes(),
            Panels::Int8(bytes) => bytes.bytes(),
        }
    }
}

/// Packs the weight that `get` returns for each row and column in f32.
fn fill([input, output]: [usize; 2], get: impl Fn(usize, usize) -> f32 + Sync) -> Slab<f32> {
    let (count, size) = (output.div_ceil(WIDTH), input * WIDTH);
    let mut panels = Slab::new(count * size);
    let mut parts: Vec<&mut [f32]> = panels.chunks_exact_mut(size.max(1)).take(count).collect();
    for_each_mut(&mut parts, |panel, numbers| {
        for (k, line) in numbers.chunks_exact_mut(WIDTH).enumerate() {
            line.iter_mut().zip(panel * WIDTH..output).for_each(|(number, column)| *number = get(k, column));
        }
    });
    panels
}

/// The input rows of a product.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    pub(crate) grid: &'a Grid,
    pub(crate) form: InputForm<'a>,
}

/// The form in which input rows are multiplied with a frozen weight.
#[derive(Clone, Copy)]
pub(crate) enum InputForm<'a> {
    /// As f32.
    F32,
    /// Rounded to eight bits, for weights of eight bits.
    Int8(&'a Quantized),
    /// Rounded to bf16, for weights in bf16.
    Bf16(&'a Rounded),
    /// As sums of bf16 numbers, in tiles, with the first column block of the current sweep and its
    /// end (see [`sweeps`](Self::sweeps)).
    Terms(&'a Terms, Tiles, [usize; 2]),
}

impl<'a> InputForm<'a> {
    /// Returns sums of bf16 numbers in one sweep over all columns.
    pub(crate) fn of_terms(terms: &'a Terms, tiles: Tiles) -> Self {
        Self::Terms(terms, tiles, [0, terms.blocks()])
    }

    /// Returns whether each panel is prepared for products in AMX tiles, so that many rows should
    /// share it.
    pub(crate) fn prepares_panels(self) -> bool {
        matches!(self, Self::Terms(..))
    }

    /// Returns the number of rows of which blocks should be multiples.
    pub(super) fn height(self) -> usize {
        match self {
            Self::Terms(..) => SIDE,
            Self::Int8(rows) if rows.is_tiled() => SIDE,
            _ => ROWS,
        }
    }

    /// Divides the depth of a product of `rows` rows into sweeps, each of which adds to the result of
    /// the one before it.
    pub(super) fn sweeps(self, rows: usize) -> Vec<Self> {
        match self {
            Self::Terms(terms, tiles, _) => {
                let sweeps = terms.sweeps(rows, TILED_BYTES);
                sweeps.map(|sweep| Self::Terms(terms, tiles, [sweep.start, sweep.end])).collect()
            }
            whole => vec![whole],
        }
    }
}
