//! Numbers as sums of bf16 numbers. Tiles multiply bf16 many times as fast as vectors multiply f32.
//!
//! An f32 has 24 significant bits and a bf16 has eight, so `x = x₀ + x₁ + x₂` exactly; each term is
//! the rounding of the remainder that the terms before it leave. Of the nine products of two such
//! sums, three are below 2⁻²⁴ of the whole and are skipped. An entry of a product is then exact
//! within the rounding of f32, but its terms are added in another order than in a chain of
//! multiply-adds. Rows that are multiplied with bf16 weights are sums of two terms, which have
//! sixteen bits.

use std::cell::RefCell;
use std::num::NonZero;
use std::ops::Range;

use half::bf16;

use super::amx::{Configured, HEIGHT, Line, SIDE, Tiles};
use super::grid::Grid;
use super::tile::{Strided, WIDTH};
use crate::team::{SharedSlice, Team};

/// Rows of B in a tile: sixteen pairs.
pub(super) const DEPTH: usize = 32;

/// Terms of an f32 number.
pub(crate) const THREE: usize = 3;

/// Terms of a number in a row that is multiplied with weights in bf16.
pub(crate) const TWO: usize = 2;

/// Runs products of tiles in registers and returns the number of multiply-adds with weights of
/// `bytes` bytes, or `None` without tiles. Weights in f32 take six bf16 products, weights in bf16
/// two, and weights of one byte one product of bytes.
pub(crate) fn products(bytes: usize, rounds: usize) -> Option<usize> {
    let each = match bytes {
        1 => 1,
        2 => TWO,
        _ => 2 * THREE,
    };
    Tiles::get().map(|tiles| tiles.configure().products(rounds, bytes == 1) / each)
}

/// Rows of numbers as sums of bf16 numbers.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// `[squares, blocks, terms, 2]` tiles: [`SIDE`] rows, [`DEPTH`] columns at a time. The
    /// contents beyond the last row are unspecified.
    lines: Vec<Line>,
    rows: usize,
    terms: usize,
    blocks: usize,
}

impl Terms {
    /// Splits the first `width` columns of a grid into `terms` terms.
    pub(crate) fn fill(&mut self, tiles: Tiles, grid: &Grid, width: usize, terms: usize) {
        let rows = grid.rows();
        let square = self.reshape([rows, width], terms);
        let lines = SharedSlice::of(&mut self.lines);
        Team::global().run(rows.div_ceil(SIDE), &|index| {
            // SAFETY: each task owns one square.
            let lines = unsafe { lines.slice(index * square, square) };
            for (place, row) in (index * SIDE..rows.min((index + 1) * SIDE)).enumerate() {
                let (x, lines) = (&grid.row(row)[..width], &mut lines[place..]);
                match terms {
                    TWO => tiles.split_row::<TWO>(x, lines),
                    _ => tiles.split_row::<THREE>(x, lines),
                }
            }
        });
    }

    /// Splits rows of `width` columns into two terms, on the calling thread.
    pub(super) fn fill_here<'a>(&mut self, tiles: Tiles, rows: impl ExactSizeIterator<Item = &'a [f32]>, width: usize) {
        let square = self.reshape([rows.len(), width], TWO);
        for (row, x) in rows.enumerate() {
            tiles.split_row::<TWO>(x, &mut self.lines[row / SIDE * square + row % SIDE..]);
        }
    }

    /// Makes room for `[rows, width]` numbers, whose values are unspecified. Returns the lines of a
    /// square.
    fn reshape(&mut self, [rows, width]: [usize; 2], terms: usize) -> usize {
        let blocks = width.div_ceil(DEPTH);
        let square = blocks * terms * 2 * HEIGHT;
        let lines = rows.div_ceil(SIDE) * square;
        if self.lines.len() < lines {
            self.lines.resize(lines, Line::default());
        }
        (self.rows, self.terms, self.blocks) = (rows, terms, blocks);
        square
    }

    /// Returns the bytes of a number.
    pub(crate) fn bytes(&self) -> usize {
        self.terms * size_of::<bf16>()
    }

    /// Returns the number of blocks of [`DEPTH`] columns.
    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns the smallest depth of a sweep. Between sweeps, the sums are in memory.
    pub(super) fn sweep(&self) -> usize {
        DEPTH * if self.terms == THREE { GROUP } else { 8 }
    }

    /// Divides the depth into sweeps in each of which `rows` rows take about `bytes` bytes. Sweeps
    /// of sums of three end at a [`GROUP`], so some take nearly twice as much and the last may be
    /// short. The order in which a row's products are added does not depend on other rows.
    pub(super) fn sweeps(&self, rows: usize, bytes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let blocks = self.blocks;
        let most = (bytes / (rows * DEPTH * self.bytes()).max(1)).max(self.sweep() / DEPTH);
        let whole = if self.terms == THREE { GROUP } else { 1 };
        let each = blocks.div_ceil(blocks.div_ceil(most).max(1)).next_multiple_of(whole).max(1);
        (0..blocks).step_by(each).map(move |from| from..blocks.min(from + each))
    }

    /// Computes `C = A·B` or `C += A·B` for rows `first..first + rows`, which begin at a square,
    /// over the blocks of `sweep`.
    ///
    /// # Safety
    ///
    /// C holds that many rows of [`WIDTH`] columns, and nothing else uses them.
    pub(super) unsafe fn multiply(
        &self,
        panel: &mut impl Panel,
        [first, rows]: [usize; 2],
        sweep: Range<usize>,
        c: Strided<*mut f32>,
        add: bool,
    ) {
        assert!(first.is_multiple_of(SIDE) && first + rows <= self.rows && sweep.end <= self.blocks);
        assert_eq!(panel.shape(), (self.blocks, self.terms));
        let block = self.terms * 2 * HEIGHT;
        let mut part = PartialSquare::default();
        for from in sweep.clone().step_by(BLOCKS) {
            let Some(blocks) = NonZero::new(BLOCKS.min(sweep.end - from)) else { continue };
            let count = blocks.get();
            let b = panel.ready(from..from + count);
            // The first block to prefetch: the next one of this panel, or the first of the sweep in
            // the next panel.
            let next = if from + count < sweep.end { from + count } else { self.blocks + sweep.start };
            for row in (0..rows).step_by(SIDE) {
                let a = self.lines[((first + row) / SIDE * self.blocks + from) * block..][..count * block].as_ptr().cast();
                // Each of the first eight squares prefetches an eighth of the next blocks.
                let ahead = if row < 8 * SIDE { panel.ahead(next * 8 + row / SIDE * count) } else { a };
                let c = Strided { start: c.start.wrapping_add(row * c.stride), ..c };
                let add = add || from > sweep.start;
                // SAFETY: A holds the square, the panel the blocks, and C the rows, by the caller's
                // promise.
                unsafe {
                    if rows - row >= SIDE {
                        panel.multiply([a, b, ahead], blocks, c, add);
                    } else {
                        part.with(rows - row, c, |c| panel.multiply([a, b, ahead], blocks, c, add));
                    }
                }
            }
        }
    }
}

/// Blocks of a panel that are prepared at a time and stay in the second-level cache.
const BLOCKS: usize = 48;

/// Blocks of a sum of three whose small products are added before their large ones.
const GROUP: usize = 16;

/// A panel that is multiplied with squares of rows.
pub(super) trait Panel {
    /// Returns the number of blocks, and the number of terms of the rows that it is multiplied
    /// with.
    fn shape(&self) -> (usize, usize);

    /// Prepares at most [`BLOCKS`] blocks and returns their address.
    fn ready(&mut self, blocks: Range<usize>) -> *const u8;

    /// Returns the address at `eighths` eighths of a block from the beginning of the panel. It may
    /// lie beyond the end.
    fn ahead(&self, eighths: usize) -> *const u8;

    /// Multiplies a square of A with prepared blocks. The addresses are those of A, of the
    /// blocks, and of the memory to prefetch.
    ///
    /// # Safety
    ///
    /// As [`Configured::two_by_one`].
    unsafe fn multiply(&self, addresses: [*const u8; 3], blocks: NonZero<usize>, c: Strided<*mut f32>, add: bool);
}

/// A panel of f32, `[depth, WIDTH]`, whose numbers are split as they are needed.
pub(super) struct F32Panel<'a> {
    panel: &'a [f32],
    tiles: Tiles,
    configured: Configured,
    lines: &'a mut [Line],
}

impl F32Panel<'_> {
    /// Calls `work` with a panel and this thread's buffer of 288 KiB.
    pub(super) fn with<R>(tiles: Tiles, panel: &[f32], work: impl FnOnce(&mut F32Panel<'_>) -> R) -> R {
        thread_local! {
            static READY: RefCell<Vec<Line>> = RefCell::new(vec![Line::default(); BLOCKS * THREE * 2 * HEIGHT]);
        }
        READY.with_borrow_mut(|lines| work(&mut F32Panel { panel, tiles, configured: tiles.configure(), lines }))
    }
}

impl Panel for F32Panel<'_> {
    fn shape(&self) -> (usize, usize) {
        (self.panel.len().div_ceil(DEPTH * WIDTH), THREE)
    }

    fn ready(&mut self, blocks: Range<usize>) -> *const u8 {
        let end = self.panel.len().min(blocks.end * DEPTH * WIDTH);
        self.tiles.split_panel(&self.panel[blocks.start * DEPTH * WIDTH..end], self.lines);
        self.lines.as_ptr().cast()
    }

    fn ahead(&self, eighths: usize) -> *const u8 {
        self.panel.as_ptr().wrapping_add(eighths * DEPTH * WIDTH / 8).cast()
    }

    /// # Safety
    ///
    /// As the trait says. [`Terms::multiply`] checks with assertions that A and the panel hold the
    /// blocks; its callers vouch for C.
    unsafe fn multiply(&self, [a, b, ahead]: [*const u8; 3], blocks: NonZero<usize>, c: Strided<*mut f32>, add: bool) {
        for start in (0..blocks.get()).step_by(GROUP) {
            let Some(count) = NonZero::new(GROUP.min(blocks.get() - start)) else { continue };
            let tiles = start * THREE * 2 * size_of::<[Line; HEIGHT]>();
            let addresses = [a.wrapping_add(tiles), b.wrapping_add(tiles), ahead.wrapping_add(start * DEPTH * WIDTH / 2)];
            // SAFETY: the promise holds for all blocks, so for these `count` from `start` on.
            unsafe { self.configured.three_by_three(addresses, count, c, add || start > 0) }
        }
    }
}

/// A panel of bf16, `[16·blocks, WIDTH]` pairs.
pub(super) struct Bf16Panel<'a> {
    panel: &'a [bf16],
    configured: Configured,
}

impl<'a> Bf16Panel<'a> {
    pub(super) fn new(tiles: Tiles, panel: &'a [bf16]) -> Self {
        assert!(panel.len().is_multiple_of(DEPTH * WIDTH));
        Self { panel, configured: tiles.configure() }
    }
}

impl Panel for Bf16Panel<'_> {
    fn shape(&self) -> (usize, usize) {
        (self.panel.len() / (DEPTH * WIDTH), TWO)
    }

    fn ready(&mut self, blocks: Range<usize>) -> *const u8 {
        self.panel[blocks.start * DEPTH * WIDTH..blocks.end * DEPTH * WIDTH].as_ptr().cast()
    }

    fn ahead(&self, eighths: usize) -> *const u8 {
        self.panel.as_ptr().wrapping_add(eighths * DEPTH * WIDTH / 8).cast()
    }

    unsafe fn multiply(&self, addresses: [*const u8; 3], blocks: NonZero<usize>, c: Strided<*mut f32>, add: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.configured.two_by_one(addresses, blocks, c, add) }
    }
}

/// A panel of f32 of a context, which is rounded to bf16 as it is needed.
pub(super) struct RoundedPanel<'a, F> {
    /// Returns the rows of a block, of which those after [`DEPTH`] are ignored and missing ones are
    /// zero, and the distance between them.
    rows: F,
    blocks: usize,
    tiles: Tiles,
    configured: &'a Configured,
    lines: &'a mut [Line],
}

impl<'a, F: Fn(usize) -> (&'a [f32], usize)> RoundedPanel<'_, F> {
    /// Calls `work` with a panel and this thread's buffer of 96 KiB.
    pub(super) fn with<R>(
        (tiles, configured): (Tiles, &Configured),
        blocks: usize,
        rows: F,
        work: impl FnOnce(&mut RoundedPanel<'_, F>) -> R,
    ) -> R {
        thread_local! {
            static READY: RefCell<Vec<Line>> = RefCell::new(vec![Line::default(); BLOCKS * 2 * HEIGHT]);
        }
        READY.with_borrow_mut(|lines| work(&mut RoundedPanel { rows, blocks, tiles, configured, lines }))
    }
}

impl<'a, F: Fn(usize) -> (&'a [f32], usize)> Panel for RoundedPanel<'_, F> {
    fn shape(&self) -> (usize, usize) {
        (self.blocks, TWO)
    }

    fn ready(&mut self, blocks: Range<usize>) -> *const u8 {
        for (block, lines) in blocks.zip(self.lines.chunks_exact_mut(2 * HEIGHT)) {
            let (rows, stride) = (self.rows)(block);
            self.tiles.round_block(rows, stride, lines);
        }
        self.lines.as_ptr().cast()
    }

    /// Nothing is worth prefetching: the blocks are in the cache once they are rounded.
    fn ahead(&self, _: usize) -> *const u8 {
        self.lines.as_ptr().cast()
    }

    unsafe fn multiply(&self, addresses: [*const u8; 3], blocks: NonZero<usize>, c: Strided<*mut f32>, add: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.configured.two_by_one(addresses, blocks, c, add) }
    }
}

/// A buffer for the sums of the last rows, if they do not fill a square.
#[derive(Default)]
#[repr(align(64))]
struct PartialSquare([[f32; WIDTH]; SIDE]);

impl PartialSquare {
    /// Calls `work` with a square whose first rows are those of C.
    ///
    /// # Safety
    ///
    /// C holds that many rows of [`WIDTH`] columns, and nothing else uses them.
    unsafe fn with(&mut self, rows: usize, c: Strided<*mut f32>, work: impl FnOnce(Strided<*mut f32>)) {
        // SAFETY: the caller's promise.
        let line = |row: usize| unsafe { &mut *c.start.add(row * c.stride).cast::<[f32; WIDTH]>() };
        self.0.iter_mut().take(rows).enumerate().for_each(|(row, part)| *part = *line(row));
        work(Strided { start: self.0.as_mut_ptr().cast(), stride: WIDTH });
        self.0.iter().take(rows).enumerate().for_each(|(row, part)| *line(row) = *part);
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::{self, numbers};
    use super::super::tile;
    use super::*;

    fn grid(rows: usize, width: usize, seed: u32) -> Grid {
        let values = numbers(rows * width, seed);
        noise::grid(rows, width, |row, column| values[row * width + column])
    }

    /// A panel of `depth` rows and the same as pairs of bf16, up to whole tiles.
    fn panels(depth: usize) -> (Vec<f32>, Vec<bf16>) {
        let whole = numbers(depth * WIDTH, 7);
        let mut pairs = vec![bf16::ZERO; depth.next_multiple_of(DEPTH) * WIDTH];
        for (k, row) in whole.chunks_exact(WIDTH).enumerate() {
            row.iter().enumerate().for_each(|(column, x)| pairs[(k / 2 * WIDTH + column) * 2 + k % 2] = bf16::from_f32(*x));
        }
        (whole, pairs)
    }

    /// Returns the product of rows of `depth` columns with a panel, in sums of `terms` terms.
    fn product(tiles: Tiles, x: &Grid, depth: usize, terms: usize) -> Vec<f32> {
        let (whole, pairs) = panels(depth);
        let mut sums = Terms::default();
        sums.fill(tiles, x, depth, terms);
        let mut c = vec![0.0; x.rows() * WIDTH];
        let place = Strided { start: c.as_mut_ptr(), stride: WIDTH };
        // SAFETY: C has the rows.
        unsafe {
            match terms {
                TWO => sums.multiply(&mut Bf16Panel::new(tiles, &pairs), [0, x.rows()], 0..sums.blocks, place, false),
                _ => F32Panel::with(tiles, &whole, |panel| sums.multiply(panel, [0, x.rows()], 0..sums.blocks, place, false)),
            }
        }
        c
    }

    /// Checks a product of rows `first..` against exact sums.
    ///
    /// An entry may be off by `split · Σ|ab|`, the part that sums of few bf16 numbers skip, and by
    /// a rounding for each addition.
    fn check(
        [rows, depth, first]: [usize; 3],
        add: bool,
        split: f64,
        weight: impl Fn(usize, usize) -> f32,
        work: impl Fn(&Grid, Strided<*mut f32>),
    ) {
        const STRIDE: usize = WIDTH + 3;
        let x = grid(rows, depth, 3);
        let start = numbers((rows - first) * STRIDE, 5);
        let mut c = start.clone();
        work(&x, Strided { start: c.as_mut_ptr(), stride: STRIDE });
        for row in first..rows {
            for column in 0..STRIDE {
                let at = (row - first) * STRIDE + column;
                if column >= WIDTH {
                    assert_eq!(c[at], start[at], "beyond the panel");
                    continue;
                }
                let before = if add { f64::from(start[at]) } else { 0.0 };
                let terms = || (0..depth).map(|k| f64::from(x.row(row)[k]) * f64::from(weight(k, column)));
                let (sum, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>() + before.abs());
                let tolerance = (split + depth as f64 * f64::from(f32::EPSILON)) * size;
                let found = f64::from(c[at]);
                assert!(
                    (found - before - sum).abs() <= tolerance,
                    "{found} for {} at {row}, {column} of depth {depth}",
                    before + sum
                );
            }
        }
    }

    /// Rows, depth and the first row: of one sweep over the depth, and of two.
    const SHAPES: [[usize; 3]; 8] = [
        [1, 1, 0],
        [31, 31, 0],
        [32, 32, 0],
        [33, 33, 32],
        [70, 64, 0],
        [70, 100, 32],
        [100, 520, 64],
        [40, BLOCKS * DEPTH + 164, 0],
    ];

    #[test]
    fn sums_of_three_are_as_good_as_f32() {
        /// `a₁b₂ + a₂b₁`: halves of units of 8, and of 16, bits.
        const SPLIT: f64 = 2.0 / (1 << 27) as f64;
        let Some(tiles) = Tiles::get() else { return };
        for shape @ [rows, depth, first] in SHAPES {
            let (panel, _) = panels(depth);
            for add in [false, true] {
                check(
                    shape,
                    add,
                    SPLIT,
                    |k, column| panel[k * WIDTH + column],
                    |x, c| {
                        let mut terms = Terms::default();
                        terms.fill(tiles, x, depth, THREE);
                        // SAFETY: C has the rows.
                        F32Panel::with(tiles, &panel, |panel| unsafe {
                            terms.multiply(panel, [first, rows - first], 0..terms.blocks, c, add);
                        });
                    },
                );
            }
        }
    }

    #[test]
    fn sums_of_two_keep_sixteen_bits() {
        /// Half a unit of the sixteenth bit, which is the last of two times eight.
        const SPLIT: f64 = 1.0 / (1 << 17) as f64;
        let Some(tiles) = Tiles::get() else { return };
        for shape @ [rows, depth, first] in SHAPES {
            let (_, panel) = panels(depth);
            let weight = |k: usize, column: usize| panel[(k / 2 * WIDTH + column) * 2 + k % 2].to_f32();
            for add in [false, true] {
                check(shape, add, SPLIT, weight, |x, c| {
                    let mut terms = Terms::default();
                    terms.fill(tiles, x, depth, TWO);
                    // SAFETY: C has the rows.
                    unsafe { terms.multiply(&mut Bf16Panel::new(tiles, &panel), [first, rows - first], 0..terms.blocks, c, add) };
                });
            }
        }
    }

    #[test]
    fn sweeps_cover_the_depth() {
        let Some(tiles) = Tiles::get() else { return };
        // The depth is 40 blocks of 32 columns and one of 4. The number of sweeps follows from the
        // bytes that 64 rows may take and from the smallest depth of a sweep.
        let [rows, depth] = [64, 40 * DEPTH + 4];
        let x = grid(rows, depth, 3);
        let mut terms = Terms::default();
        terms.fill(tiles, &x, depth, THREE);
        let room = |columns: usize| rows * columns * terms.bytes();
        let ends = |bytes: usize| {
            let sweeps: Vec<_> = terms.sweeps(rows, bytes).collect();
            assert!(sweeps[0].start == 0 && sweeps.windows(2).all(|pair| pair[0].end == pair[1].start), "{sweeps:?}");
            sweeps.into_iter().map(|sweep| sweep.end).collect::<Vec<_>>()
        };
        assert_eq!(ends(room(41 * DEPTH)), [41]);
        assert_eq!(ends(room(40 * DEPTH)), [32, 41]);
        for bytes in [room(20 * DEPTH), 1] {
            assert_eq!(ends(bytes), [16, 32, 41]);
        }
    }

    #[test]
    fn small_parts_of_a_number_count() {
        let Some(tiles) = Tiles::get() else { return };
        // (1 + 2⁻²³)(1 − 2⁻²⁴) − 1: the large parts cancel, so the result in eight or sixteen bits
        // is zero.
        let (a, b) = (1.0 + f32::EPSILON, 1.0 - f32::EPSILON / 2.0);
        let mut x = Grid::new(1, 2);
        x.rows_mut().next().unwrap()[..2].copy_from_slice(&[a, -1.0]);
        let panel: Vec<f32> = [[b; WIDTH], [1.0; WIDTH]].concat();
        let mut terms = Terms::default();
        terms.fill(tiles, &x, 2, THREE);
        let mut c = [0.0; WIDTH];
        F32Panel::with(tiles, &panel, |panel| {
            // SAFETY: C has a row.
            unsafe { terms.multiply(panel, [0, 1], 0..terms.blocks, Strided { start: c.as_mut_ptr(), stride: WIDTH }, false) };
        });
        // 2⁻²³ − 2⁻²⁴, and a rounding of one.
        assert!(c.iter().all(|c| (c - f32::EPSILON / 2.0).abs() <= f32::EPSILON / 2.0) && c[0] > 0.0, "{c:?}");
    }

    #[test]
    fn a_row_has_the_same_bits_in_any_batch() {
        let Some(tiles) = Tiles::get() else { return };
        let (rows, depth) = (90, 70);
        let x = grid(rows, depth, 11);
        for terms in [TWO, THREE] {
            let all = product(tiles, &x, depth, terms);
            for row in 0..rows {
                let mut alone = Grid::new(1, depth);
                alone.rows_mut().for_each(|line| line.copy_from_slice(x.row(row)));
                assert_eq!(product(tiles, &alone, depth, terms), all[row * WIDTH..(row + 1) * WIDTH]);
            }
        }
    }

    /// The depth of a sweep depends on the number of rows and the number of threads.
    #[test]
    fn a_row_has_the_same_bits_in_any_sweeps() {
        let Some(tiles) = Tiles::get() else { return };
        let (rows, depth) = (70, (BLOCKS + 21) * DEPTH + 4);
        let x = grid(rows, depth, 17);
        let (whole, pairs) = panels(depth);
        for terms in [TWO, THREE] {
            let expected = product(tiles, &x, depth, terms);
            let mut sums = Terms::default();
            sums.fill(tiles, &x, depth, terms);
            for bytes in [1, 12, 25, 40, 60].map(|blocks| rows * blocks * DEPTH * sums.bytes()) {
                let mut c = vec![f32::NAN; rows * WIDTH];
                let place = Strided { start: c.as_mut_ptr(), stride: WIDTH };
                for sweep in sums.sweeps(rows, bytes) {
                    let (of, add) = ([0, rows], sweep.start > 0);
                    // SAFETY: C has the rows.
                    unsafe {
                        match terms {
                            TWO => sums.multiply(&mut Bf16Panel::new(tiles, &pairs), of, sweep, place, add),
                            _ => F32Panel::with(tiles, &whole, |panel| sums.multiply(panel, of, sweep, place, add)),
                        }
                    }
                }
                assert_eq!(c, expected, "{terms} terms, {bytes} bytes");
            }
        }
    }

    #[test]
    fn nan_and_infinity_give_results_that_are_not_finite() {
        let Some(tiles) = Tiles::get() else { return };
        let mut x = grid(4, 40, 2);
        x.rows_mut().zip([0.0, f32::NAN, f32::INFINITY, f32::MAX]).for_each(|(line, value)| line[33] = value);
        for terms in [TWO, THREE] {
            let c = product(tiles, &x, 40, terms);
            assert!(c[..WIDTH].iter().all(|c| c.is_finite()));
            assert!(c[WIDTH..3 * WIDTH].iter().all(|c| !c.is_finite()), "{c:?}");
        }
    }

    #[test]
    fn tiles_are_as_exact_as_vectors() {
        let Some(tiles) = Tiles::get() else { return };
        let (rows, depth) = (200, 700);
        let (panel, _) = panels(depth);
        let x = grid(rows, depth, 13);
        let (mut fast, mut plain) = (vec![0.0_f32; rows * WIDTH], vec![0.0_f32; rows * WIDTH]);
        let mut terms = Terms::default();
        terms.fill(tiles, &x, depth, THREE);
        // SAFETY: both have the rows.
        unsafe {
            let place = Strided { start: fast.as_mut_ptr(), stride: WIDTH };
            F32Panel::with(tiles, &panel, |panel| terms.multiply(panel, [0, rows], 0..terms.blocks, place, false));
            let b = Strided { start: panel.as_ptr(), stride: WIDTH };
            tile::multiply([rows, depth, 2], x.rows_from(0), b, Strided { start: plain.as_mut_ptr(), stride: WIDTH }, false);
        }
        assert_ne!(fast, plain, "two orders of summation");
        let error = |found: &[f32]| {
            let off = (0..rows * WIDTH).map(|at| {
                let (row, column) = (x.row(at / WIDTH), at % WIDTH);
                let exact: f64 = (0..depth).map(|k| f64::from(row[k]) * f64::from(panel[k * WIDTH + column])).sum();
                (f64::from(found[at]) - exact).powi(2)
            });
            (off.sum::<f64>() / (rows * WIDTH) as f64).sqrt()
        };
        // Both add the large products one after the other, and no other error is of that size.
        let (fast, plain) = (error(&fast), error(&plain));
        println!("root mean square error of tiles {fast:.2e}, of vectors {plain:.2e}");
        assert!(fast <= 1.25 * plain, "{fast} for {plain}");
    }
}
