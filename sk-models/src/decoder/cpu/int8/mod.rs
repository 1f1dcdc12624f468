//! Products with weights of eight bits.
//!
//! Weights and activations are divided into groups of [`GROUP`] consecutive k. A group of a weight
//! column is `s_w·w` and a group of a row is `s_x·x`, with w and x in −127…127; the largest number
//! of a group sets its scale. Sums within a group are exact integers, and the groups are added in
//! f32 in the order of k. So a number is off by at most 1/254 of the largest of its group.

#[cfg(target_arch = "x86_64")]
mod square;
mod strip;

use strip::{Numbers, Strip};

use super::amx::{HEIGHT, Line, SIDE, Tiles};
use super::grid::{Grid, Slab};
use super::tile::{self, Strided, WIDTH};
use crate::kernels::simd::widened;
use crate::precision::INT8_GROUP as GROUP;
use crate::team::{SharedSlice, for_each_mut};

/// Consecutive k whose bytes lie side by side: one instruction of AVX-512 VNNI multiplies and adds
/// them.
const QUAD: usize = 4;

/// Rows of the largest tile: with two vectors each, sums in integers and in f32 fill the registers of
/// AVX-512.
const ROWS: usize = 6;

/// The fewest rows that are multiplied in tiles. Vectors are as fast for fewer rows.
const LOWEST_SQUARE: usize = SIDE / 2;

/// Bytes of a group of a panel.
const PANEL: usize = GROUP * WIDTH;

const _: () = assert!(GROUP == 4 * HEIGHT, "a group of a row is a line of a tile");

/// Numbers of a group of a strip.
const STRIP: usize = GROUP * ROWS;

/// The largest absolute value of a rounded number.
const LARGEST: f32 = 127.0;

/// What is added to weights, since AVX-512 VNNI multiplies signed with unsigned bytes.
const SHIFT: i32 = 128;

/// Proof that the processor has AVX-512 VNNI, whose instruction multiplies four pairs of bytes and adds
/// the products.
#[derive(Debug, Clone, Copy)]
pub(super) struct Vnni(());

impl Vnni {
    pub(super) fn get() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
            return Some(Self(()));
        }
        None
    }
}

/// Returns the name of the instructions that multiply bytes in vectors.
pub(super) fn instructions() -> &'static str {
    if Vnni::get().is_some() {
        return "AVX-512 VNNI";
    }
    #[cfg(target_arch = "x86_64")]
    if tile::has_avx2() {
        return "AVX2";
    }
    tile::instructions()
}

/// Rounds a group and returns its scale, which is finite if all numbers are.
#[inline(always)]
fn round(group: &[f32; GROUP], out: &mut [i8; GROUP]) -> f32 {
    /// Adding 1.5·2²³ rounds to the nearest integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // Without their sign, numbers are in the order of their bits, and NaN is the largest.
    let largest = f32::from_bits(group.iter().fold(0, |largest, x| largest.max(x.abs().to_bits())));
    let rate = if largest > 0.0 { LARGEST / largest } else { 0.0 };
    for (out, x) in out.iter_mut().zip(group) {
        *out = (x * rate + ROUND).to_bits() as i8;
    }
    largest / LARGEST
}

/// A weight `[input, output]` in panels of [`WIDTH`] columns: per panel, group and four rows, the
/// four bytes of each column.
#[derive(Debug)]
pub(crate) struct Int8Weights {
    /// w + [`SHIFT`], `[panels, groups, quads, WIDTH, QUAD]`.
    panels: Slab<u8>,
    /// s_w, `[panels, groups, WIDTH]`.
    scales: Vec<f32>,
    groups: usize,
}

impl Int8Weights {
    /// Packs and rounds the weight that `get` returns for each row and column.
    pub(crate) fn new([input, output]: [usize; 2], get: impl Fn(usize, usize) -> f32 + Sync) -> Self {
        let (count, groups) = (output.div_ceil(WIDTH), input.div_ceil(GROUP));
        let mut panels = Slab::new(count * groups * PANEL);
        let mut scales = vec![0.0; count * groups * WIDTH];
        let mut parts: Vec<_> = panels.chunks_exact_mut(PANEL).zip(scales.chunks_exact_mut(WIDTH)).collect();
        for_each_mut(&mut parts, |index, (bytes, scales)| {
            let (panel, from) = (index / groups, index % groups * GROUP);
            for (place, column) in (panel * WIDTH..output.min((panel + 1) * WIDTH)).enumerate() {
                let numbers = std::array::from_fn(|k| if from + k < input { get(from + k, column) } else { 0.0 });
                let mut rounded = [0; GROUP];
                scales[place] = round(&numbers, &mut rounded);
                for (k, weight) in rounded.into_iter().enumerate() {
                    bytes[(k / QUAD * WIDTH + place) * QUAD + k % QUAD] = (i32::from(weight) + SHIFT) as u8;
                }
            }
        });
        Self { panels, scales, groups }
    }

    /// Returns the bytes of weights and scales.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[u8]>(&self.panels) + size_of_val::<[f32]>(&self.scales)
    }

    /// Copies column `column`, as rounded when packed, to `out`.
    pub(crate) fn column(&self, column: usize, out: &mut [f32]) {
        let (first, place) = (column / WIDTH * self.groups, column % WIDTH);
        for (group, out) in (first..).zip(out.chunks_mut(GROUP)) {
            let (bytes, scale) = (&self.panels[group * PANEL..][..PANEL], self.scales[group * WIDTH + place]);
            for (k, value) in out.iter_mut().enumerate() {
                *value = scale * (i32::from(bytes[(k / QUAD * WIDTH + place) * QUAD + k % QUAD]) - SHIFT) as f32;
            }
        }
    }

    /// Computes `C = A·B` or `C += A·B` for rows `first..first + rows` of A and the first one or
    /// two vectors of 16 columns of a panel.
    ///
    /// # Safety
    ///
    /// C holds that many rows and columns, and nothing else uses them.
    pub(crate) unsafe fn multiply(
        &self,
        panel: usize,
        [first, rows, vectors]: [usize; 3],
        x: &Quantized,
        c: Strided<*mut f32>,
        add: bool,
    ) {
        assert!(x.groups == self.groups && first + rows <= x.rows);
        let (mut row, end) = (first, first + rows);
        let bytes = &self.panels[panel * self.groups * PANEL..][..self.groups * PANEL];
        let scales = &self.scales[panel * self.groups * WIDTH..][..self.groups * WIDTH];
        #[cfg(target_arch = "x86_64")]
        if let Some(tiles) = x.tiles
            && vectors == 2
            && first.is_multiple_of(SIDE)
        {
            let configured = tiles.configure();
            while end - row >= LOWEST_SQUARE {
                let (height, of_square) = (SIDE.min(end - row), row / SIDE * x.groups * SIDE);
                let square = square::Square {
                    lines: &x.squares.lines[of_square..][..x.groups * SIDE],
                    row_scales: &x.squares.scales[of_square..][..x.groups * SIDE],
                    shifts: &x.squares.shifts[of_square..][..x.groups * SIDE],
                    bytes,
                    scales,
                };
                let c = Strided { start: c.start.wrapping_add((row - first) * c.stride), ..c };
                // SAFETY: rows `row..row + height` of C.
                unsafe { square.multiply(&configured, height, c, add) };
                row += height;
            }
        }
        while row < end {
            let (from, of_strip) = (row % ROWS, row / ROWS * x.groups * ROWS);
            let height = (ROWS - from).min(end - row);
            let of_numbers = of_strip * GROUP..of_strip * GROUP + x.groups * STRIP;
            let strip = Strip {
                rows: [from, height],
                numbers: match &x.strips {
                    Strips::Bytes(numbers, proof) => Numbers::Bytes(&numbers[of_numbers], *proof),
                    Strips::Words(numbers) => Numbers::Words(&numbers[of_numbers]),
                },
                row_scales: &x.scales[of_strip..][..x.groups * ROWS],
                shifts: &x.shifts[of_strip..][..x.groups * ROWS],
                bytes,
                scales,
            };
            let c = Strided { start: c.start.wrapping_add((row - first) * c.stride), ..c };
            // SAFETY: rows `row..row + height` of C.
            unsafe { strip.multiply(vectors, c, add) };
            row += height;
        }
    }
}

/// Rows of rounded numbers, in strips of [`ROWS`] rows whose quads lie side by side, so that a tile
/// reads them as it reads a panel. Unused memory may follow the strips.
#[derive(Debug, Default)]
pub(crate) struct Quantized {
    /// x, `[strips, groups, quads, ROWS, QUAD]`.
    strips: Strips,
    /// s_x, `[strips, groups, ROWS]`.
    scales: Vec<f32>,
    /// −[`SHIFT`]·Σx, `[strips, groups, ROWS]`, which makes up for the shift of the weights.
    shifts: Vec<i32>,
    groups: usize,
    rows: usize,
    /// The rows in squares as well, if products run in tiles.
    squares: Squares,
    tiles: Option<Tiles>,
}

/// The rounded numbers of strips, in the type that the processor multiplies.
#[derive(Debug)]
enum Strips {
    Bytes(Vec<i8>, Vnni),
    /// A quad is in the order 0, 2, 1, 3. An instruction of AVX2 multiplies the two words of each
    /// lane of 32 bits and adds the products. A mask turns bytes 0 and 2 of a column's quad of
    /// weights into words, and a shift turns bytes 1 and 3.
    Words(Vec<i16>),
}

impl Default for Strips {
    fn default() -> Self {
        Vnni::get().map_or(Self::Words(Vec::new()), |proof| Self::Bytes(Vec::new(), proof))
    }
}

impl Strips {
    /// Makes room for this many numbers.
    fn reach(&mut self, count: usize) {
        match self {
            Self::Bytes(numbers, _) if numbers.len() < count => numbers.resize(count, 0),
            Self::Words(numbers) if numbers.len() < count => numbers.resize(count, 0),
            _ => {}
        }
    }

    fn parts(&mut self) -> StripParts {
        match self {
            Self::Bytes(numbers, _) => StripParts::Bytes(SharedSlice::of(numbers)),
            Self::Words(numbers) => StripParts::Words(SharedSlice::of(numbers)),
        }
    }
}

/// The strips of several tasks.
#[derive(Clone, Copy)]
enum StripParts {
    Bytes(SharedSlice<i8>),
    Words(SharedSlice<i16>),
}

impl StripParts {
    /// Writes a group of the row at `place` in its strip.
    ///
    /// # Safety
    ///
    /// The parts are alive and hold the group, and nothing else uses it.
    #[inline(always)]
    unsafe fn write(self, group: usize, place: usize, numbers: &[i8; GROUP]) {
        /// Writes to every quad of a group.
        #[inline(always)]
        fn each<T: Copy>(strip: &mut [T], place: usize, numbers: &[i8; GROUP], form: impl Fn([i8; QUAD]) -> [T; QUAD]) {
            for (quads, quad) in strip.chunks_exact_mut(ROWS * QUAD).zip(numbers.as_chunks().0) {
                quads[place * QUAD..][..QUAD].copy_from_slice(&form(*quad));
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Bytes(parts) => each(parts.slice(group * STRIP, STRIP), place, numbers, |quad| quad),
                Self::Words(parts) => {
                    each(parts.slice(group * STRIP, STRIP), place, numbers, |[a, b, c, d]| [a, c, b, d].map(i16::from));
                }
            }
        }
    }
}

/// Rows of rounded numbers in squares of [`SIDE`]. Unused memory may follow them.
#[derive(Debug, Default)]
struct Squares {
    /// x, `[squares, groups, 2]` tiles.
    lines: Vec<Line>,
    /// s_x, `[squares, groups, SIDE]`.
    scales: Vec<f32>,
    /// As [`Quantized::shifts`], `[squares, groups, SIDE]`.
    shifts: Vec<i32>,
}

impl Squares {
    fn reshape(&mut self, count: usize) {
        if self.lines.len() < count * SIDE {
            self.lines.resize(count * SIDE, Line::default());
            self.scales.resize(count * SIDE, 0.0);
            self.shifts.resize(count * SIDE, 0);
        }
    }
}

impl Quantized {
    /// Returns the bytes of a number in strips.
    pub(super) fn bytes_of_number(&self) -> usize {
        match self.strips {
            Strips::Bytes(..) => size_of::<i8>(),
            Strips::Words(_) => size_of::<i16>(),
        }
    }

    /// Returns whether products run in tiles.
    pub(super) fn is_tiled(&self) -> bool {
        self.tiles.is_some()
    }

    /// Rounds the first `width` columns of a grid, for products in vectors, or in `tiles` from
    /// [`LOWEST_SQUARE`] rows on. Both give the same bits.
    pub(crate) fn fill(&mut self, grid: &Grid, width: usize, tiles: Option<Tiles>) {
        /// Strips of a task. Rounding a few rows takes less time than sharing them among threads.
        const PIECE: usize = 6;
        (self.rows, self.groups) = (grid.rows(), width.div_ceil(GROUP));
        let groups = self.rows.div_ceil(ROWS) * self.groups;
        self.strips.reach(groups * STRIP);
        if self.scales.len() < groups * ROWS {
            self.scales.resize(groups * ROWS, 0.0);
            self.shifts.resize(groups * ROWS, 0);
        }
        self.tiles = tiles.filter(|_| self.rows >= LOWEST_SQUARE);
        let tiled = self.is_tiled();
        if tiled {
            self.squares.reshape(self.rows.div_ceil(SIDE) * self.groups);
        }
        let Squares { lines, scales: square_scales, shifts: square_shifts } = &mut self.squares;
        let squares = (SharedSlice::of(lines), SharedSlice::of(square_scales), SharedSlice::of(square_shifts));
        let strips = self.strips.parts();
        let of_piece = (PIECE * self.groups).max(1);
        let scales = self.scales[..groups * ROWS].chunks_mut(of_piece * ROWS);
        let shifts = self.shifts[..groups * ROWS].chunks_mut(of_piece * ROWS);
        let mut pieces: Vec<_> = scales.zip(shifts).collect();
        for_each_mut(&mut pieces, |piece, (scales, shifts)| {
            for row in piece * PIECE * ROWS..self.rows.min((piece + 1) * PIECE * ROWS) {
                let (strip, place) = (row / ROWS - piece * PIECE, row % ROWS);
                let (whole, rest) = grid.row(row)[..width].as_chunks();
                let mut last = [0.0; GROUP];
                last[..rest.len()].copy_from_slice(rest);
                let groups = (strip * self.groups..).zip(whole.iter().chain((!rest.is_empty()).then_some(&last)));
                widened!(for (group, x) in groups {
                    let mut rounded = [0; GROUP];
                    let scale = round(x, &mut rounded);
                    let shift = -SHIFT * rounded.iter().map(|x| i32::from(*x)).sum::<i32>();
                    scales[group * ROWS + place] = scale;
                    shifts[group * ROWS + place] = shift;
                    // SAFETY: each task has strips of its own.
                    unsafe { strips.write(piece * of_piece + group, place, &rounded) };
                    if tiled {
                        let at = (row / SIDE * self.groups + group - strip * self.groups) * SIDE + row % SIDE;
                        // SAFETY: each task has rows of its own.
                        unsafe {
                            squares.0.slice(at, 1)[0] = Line::of_bytes(rounded);
                            squares.1.slice(at, 1)[0] = scale;
                            squares.2.slice(at, 1)[0] = shift;
                        }
                    }
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::noise::{grid, noise};
    use super::*;

    impl Quantized {
        /// Returns rows without VNNI.
        fn of_words() -> Self {
            Self { strips: Strips::Words(Vec::new()), ..Self::default() }
        }
    }

    /// Returns numbers as they are rounded: by group, to 1/127 of the group's largest.
    fn rounded(numbers: &[f32]) -> Vec<f64> {
        let group = |group: &[f32]| {
            let largest = group.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
            let step = f64::from(largest / LARGEST);
            group.iter().map(|x| f64::from((x * (LARGEST / largest)).round_ties_even()) * step).collect::<Vec<_>>()
        };
        numbers.chunks(GROUP).flat_map(group).collect()
    }

    #[test]
    fn only_the_documented_roundings_occur() {
        for (input, rows) in [(5, 1), (64, 6), (71, 13), (130, 75), (300, 4), (1408, 7)] {
            let output = 45;
            let weight = Int8Weights::new([input, output], noise);
            let grid = grid(rows, input, |row, k| 3.0 * noise(k + 7, row + 100));
            let mut quantized = Quantized::default();
            quantized.fill(&grid, input, None);
            for (panel, add) in [(0, false), (1, true)] {
                let mut found = vec![0.5_f32; rows * WIDTH];
                let c = Strided { start: found.as_mut_ptr(), stride: WIDTH };
                // SAFETY: the vector has the rows and columns.
                unsafe { weight.multiply(panel, [0, rows, 2], &quantized, c, add) };
                for place in 0..WIDTH.min(output - panel * WIDTH) {
                    let weights: Vec<f32> = (0..input).map(|k| noise(k, panel * WIDTH + place)).collect();
                    let mut packed = vec![0.0; input];
                    weight.column(panel * WIDTH + place, &mut packed);
                    let weights = rounded(&weights);
                    assert!(packed.iter().zip(&weights).all(|(a, b)| (f64::from(*a) - b).abs() <= f64::from(f32::EPSILON)));
                    for row in 0..rows {
                        let x = rounded(&grid.row(row)[..input]);
                        let products = || x.iter().zip(&weights).map(|(x, w)| x * w);
                        let expected = products().sum::<f64>() + if add { 0.5 } else { 0.0 };
                        // Per group, two scales, their product, a conversion and an addition.
                        let size = products().map(f64::abs).sum::<f64>() + 0.5;
                        let tolerance = f64::from(f32::EPSILON) * size * (4 + input.div_ceil(GROUP)) as f64;
                        let found = f64::from(found[row * WIDTH + place]);
                        assert!((found - expected).abs() <= tolerance, "{found} for {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_has_the_same_bits_in_any_tile() {
        let (input, rows) = (70, 15);
        let weight = Int8Weights::new([input, WIDTH], noise);
        let grid = grid(rows, input, |row, k| noise(k, row + 50));
        let mut x = Quantized::default();
        x.fill(&grid, input, None);
        let product = |first: usize, rows: usize| {
            let mut c = vec![1.0_f32; rows * WIDTH];
            // SAFETY: the vector has the rows and columns.
            unsafe { weight.multiply(0, [first, rows, 2], &x, Strided { start: c.as_mut_ptr(), stride: WIDTH }, true) };
            c
        };
        let whole = product(0, rows);
        assert_eq!((0..rows).flat_map(|row| product(row, 1)).collect::<Vec<_>>(), whole);
        assert_eq!([product(0, 4), product(4, 11)].concat(), whole);
        // The first vector has the same bits without the second, which stays as it was.
        let mut first = vec![1.0_f32; rows * WIDTH];
        // SAFETY: the vector has the rows and columns.
        unsafe { weight.multiply(0, [0, rows, 1], &x, Strided { start: first.as_mut_ptr(), stride: WIDTH }, true) };
        for (first, whole) in first.chunks_exact(WIDTH).zip(whole.chunks_exact(WIDTH)) {
            assert_eq!(first[..16], whole[..16]);
            assert_eq!(first[16..], [1.0; 16]);
        }
    }

    #[test]
    fn words_have_the_products_of_bytes() {
        let (input, rows) = (200, 15);
        let weight = Int8Weights::new([input, 2 * WIDTH], noise);
        let grid = grid(rows, input, |row, k| noise(k, row + 50));
        let [mut any, mut words] = [Quantized::default(), Quantized::of_words()];
        any.fill(&grid, input, None);
        words.fill(&grid, input, None);
        let product = |x: &Quantized, shape @ [_, rows, _]: [usize; 3], add: bool| {
            let mut c = vec![1.0_f32; rows * WIDTH];
            // SAFETY: the vector has the rows and columns.
            unsafe { weight.multiply(1, shape, x, Strided { start: c.as_mut_ptr(), stride: WIDTH }, add) };
            c
        };
        for first in 0..rows {
            for shape in (1..=rows - first).flat_map(|rows| [[first, rows, 1], [first, rows, 2]]) {
                for add in [false, true] {
                    assert_eq!(product(&words, shape, add), product(&any, shape, add), "{shape:?}");
                }
            }
        }
        // Any processor computes them, up to the rounding of a fused multiply-add.
        let Strips::Words(numbers) = &words.strips else { panic!("a form does not change") };
        let groups = words.groups;
        for (strip, first) in (0..rows).step_by(ROWS).enumerate() {
            let of_strip = strip * groups * ROWS;
            let numbers = &numbers[of_strip * GROUP..][..groups * STRIP];
            let strip = Strip {
                rows: [0, ROWS],
                numbers: Numbers::Words(numbers),
                row_scales: &words.scales[of_strip..][..groups * ROWS],
                shifts: &words.shifts[of_strip..][..groups * ROWS],
                bytes: &weight.panels[groups * PANEL..],
                scales: &weight.scales[groups * WIDTH..],
            };
            for row in first..rows.min(first + ROWS) {
                let mut plain = [1.0_f32; WIDTH];
                strip.plain(numbers, row - first, &mut plain, true);
                let vector = product(&words, [row, 1, 2], true);
                assert!(vector.iter().zip(&plain).all(|(a, b)| (a - b).abs() <= 4.0 * f32::EPSILON * a.abs().max(1.0)));
            }
        }
    }

    #[test]
    fn tiles_give_the_same_bits_as_vectors() {
        let Some(tiles) = Tiles::get() else { return };
        for (input, rows, first) in [(64, 32, 0), (70, 75, 0), (300, 75, 32), (300, 75, 7), (1408, 21, 0)] {
            let weight = Int8Weights::new([input, 2 * WIDTH], noise);
            let grid = grid(rows, input, |row, k| noise(k, row + 50));
            let [vectors, tiles] = [None, Some(tiles)].map(|tiles| {
                let mut x = Quantized::default();
                // The rows of an earlier product leave no trace.
                x.fill(&Grid::of_rows(&vec![f32::NAN; 96 * input], input), input, tiles);
                x.fill(&grid, input, tiles);
                let mut c = vec![1.0_f32; (rows - first) * WIDTH];
                for add in [false, true] {
                    let c = Strided { start: c.as_mut_ptr(), stride: WIDTH };
                    // SAFETY: the vector has the rows and columns.
                    unsafe { weight.multiply(1, [first, rows - first, 2], &x, c, add) };
                }
                c
            });
            assert_eq!(vectors, tiles, "{rows} rows of {input}");
        }
    }

    #[test]
    fn the_largest_numbers_do_not_wrap() {
        for sign in [1.0_f32, -1.0] {
            let weight = Int8Weights::new([3 * GROUP, 1], |_, _| sign);
            let mut grid = Grid::new(2, 3 * GROUP);
            grid.rows_mut().zip([1.0, -1.0]).for_each(|(line, x)| line.fill(x));
            for mut x in [Quantized::default(), Quantized::of_words()] {
                x.fill(&grid, 3 * GROUP, None);
                let mut c = vec![0.0_f32; 2 * WIDTH];
                // SAFETY: the vector has the rows and columns.
                unsafe { weight.multiply(0, [0, 2, 2], &x, Strided { start: c.as_mut_ptr(), stride: WIDTH }, false) };
                for (row, expected) in [sign, -sign].map(|sign| sign * 3.0 * GROUP as f32).into_iter().enumerate() {
                    assert!((c[row * WIDTH] - expected).abs() < 1e-4, "{} for {expected}", c[row * WIDTH]);
                }
            }
        }
    }

    #[test]
    fn nan_and_infinity_give_results_that_are_not_finite() {
        let mut grid = Grid::new(3, 8);
        grid.rows_mut().zip([0.0, f32::NAN, f32::INFINITY]).for_each(|(line, x)| line[3] = x);
        let mut x = Quantized::default();
        x.fill(&grid, 8, None);
        let product = |weight: &Int8Weights| {
            let mut c = vec![0.0_f32; 3 * WIDTH];
            // SAFETY: as above.
            unsafe { weight.multiply(0, [0, 3, 2], &x, Strided { start: c.as_mut_ptr(), stride: WIDTH }, false) };
            c
        };
        let c = product(&Int8Weights::new([8, 2], |_, _| 1.0));
        assert_eq!(c[0], 0.0);
        assert!(!c[WIDTH].is_finite() && !c[2 * WIDTH].is_finite());
        let c = product(&Int8Weights::new([8, 2], |k, column| if (k, column) == (2, 1) { f32::NAN } else { 1.0 }));
        assert!(c[0] == 0.0 && c[1].is_nan());
    }
}
