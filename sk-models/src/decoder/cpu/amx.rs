//! Products in the tile registers of AMX, which recent Intel processors have. A tile holds sixteen
//! rows of 64 bytes; one instruction multiplies two tiles and adds the product to a third.
//!
//! The standard library has no stable intrinsics for AMX, so each kernel is one block of assembly.
//! The compiler itself never uses tile registers.

use std::arch::asm;
use std::arch::x86_64::{
    __cpuid_count, __m256i, __m512, __m512i, _mm512_add_epi32, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps,
    _mm512_cvtepi32_epi16, _mm512_loadu_ps, _mm512_maskz_loadu_ps, _mm512_or_si512, _mm512_set1_epi32, _mm512_srli_epi32,
    _mm512_sub_ps,
};
use std::marker::PhantomData;
use std::num::NonZero;
use std::sync::LazyLock;

use super::tile::{Strided, WIDTH};

/// Rows and columns of the sums of one call: two tiles by two.
pub(super) const SIDE: usize = 32;

/// Rows of a tile.
pub(super) const HEIGHT: usize = 16;

/// A row of a tile, one cache line: pairs of bf16, the first of each pair in the lower half.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Line([u32; HEIGHT]);

impl Line {
    pub(super) fn of_bytes(bytes: [i8; 4 * HEIGHT]) -> Self {
        Self(bytemuck::cast(bytes))
    }
}

/// A square of sums.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Sums<T>(pub(super) [[T; WIDTH]; SIDE]);

/// Proof that this process may use tiles.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiles(());

/// Proof that this thread has configured its tiles. Dropping it releases them.
#[derive(Debug)]
pub(super) struct Configured(PhantomData<*mut ()>);

/// The configuration of eight tiles of sixteen rows of 64 bytes.
#[repr(C, align(64))]
struct Shapes([u8; 64]);

static SHAPES: Shapes = {
    let mut shapes = [0; 64];
    // The palette; then two bytes per tile for the bytes of a row, and one byte per tile for its
    // rows.
    shapes[0] = 1;
    let mut tile = 0;
    while tile < 8 {
        shapes[16 + 2 * tile] = 64;
        shapes[48 + tile] = 16;
        tile += 1;
    }
    Shapes(shapes)
};

macro_rules! lines {
    ($($line:literal)*) => { concat!($($line, "\n"),*) };
}

/// Loads C into tiles 0 to 3, or zeroes them.
macro_rules! begin {
    () => {
        lines!(
            "test {add:e}, {add:e}"
            "jz 3f"
            "tileloadd tmm0, [{c} + {stride}]"
            "tileloadd tmm1, [{c} + {stride} + 64]"
            "tileloadd tmm2, [{lower} + {stride}]"
            "tileloadd tmm3, [{lower} + {stride} + 64]"
            "jmp 2f"
            "3:"
            "tilezero tmm0"
            "tilezero tmm1"
            "tilezero tmm2"
            "tilezero tmm3"
            "2:"
        )
    };
}

/// Stores tiles 0 to 3 to C.
macro_rules! end {
    () => {
        lines!(
            "tilestored [{c} + {stride}], tmm0"
            "tilestored [{c} + {stride} + 64], tmm1"
            "tilestored [{lower} + {stride}], tmm2"
            "tilestored [{lower} + {stride} + 64], tmm3"
        )
    };
}

/// Multiplies the rows in tiles 4 and 5 with the columns in tiles 6 and 7.
macro_rules! multiply {
    () => {
        lines!("tdpbf16ps tmm0, tmm4, tmm6" "tdpbf16ps tmm1, tmm4, tmm7" "tdpbf16ps tmm2, tmm5, tmm6" "tdpbf16ps tmm3, tmm5, tmm7")
    };
}

/// Multiplies the signed bytes of the rows in tiles 4 and 5 with the unsigned bytes of the columns
/// in tiles 6 and 7.
macro_rules! multiply_bytes {
    () => {
        lines!("tdpbsud tmm0, tmm4, tmm6" "tdpbsud tmm1, tmm4, tmm7" "tdpbsud tmm2, tmm5, tmm6" "tdpbsud tmm3, tmm5, tmm7")
    };
}

/// Prefetches lines into the second-level cache.
macro_rules! fetch {
    ($($at:literal)*) => { concat!($("prefetcht1 [{ahead} + ", $at, "]\n"),*) };
}

/// Loads two consecutive tiles of rows. Each is read once per panel, so the load must not evict the
/// panel from the first-level cache.
macro_rules! rows {
    ($at:literal, $next:literal) => {
        concat!("tileloaddt1 tmm4, [{a} + {line} + ", $at, "]\n", "tileloaddt1 tmm5, [{a} + {line} + ", $next, "]\n")
    };
}

/// Loads two consecutive tiles of columns.
macro_rules! columns {
    ($at:literal, $next:literal) => {
        concat!("tileloadd tmm6, [{b} + {line} + ", $at, "]\n", "tileloadd tmm7, [{b} + {line} + ", $next, "]\n")
    };
}

/// Computes `C = A·B` or `C += A·B` in tiles 0 to 3. The given lines step through A, B and the
/// prefetched memory.
macro_rules! square {
    ([$a:expr, $b:expr, $ahead:expr], $blocks:expr, $c:expr, $add:expr, [$($lines:expr),* $(,)?] $(, $name:ident = $value:expr)*) => {
        asm!(
            begin!(),
            $($lines,)*
            end!(),
            add = in(reg) u32::from($add),
            a = inout(reg) $a => _,
            b = inout(reg) $b => _,
            ahead = inout(reg) $ahead => _,
            blocks = inout(reg) $blocks => _,
            line = in(reg) size_of::<Line>(),
            c = in(reg) $c.start,
            lower = in(reg) $c.start.wrapping_add(SIDE / 2 * $c.stride),
            stride = in(reg) $c.stride * size_of::<f32>(),
            $($name = in(reg) $value,)*
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// Returns whether the processor has tiles, even if the system does not grant their use.
fn exists() -> bool {
    // Bits of leaf 7: products of bf16, tiles, products of bytes.
    const BITS: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    __cpuid_count(7, 0).edx & BITS == BITS
}

impl Tiles {
    /// Returns tiles if the processor has them and the system lets this process use them.
    pub(super) fn get() -> Option<Self> {
        static GRANTED: LazyLock<bool> = LazyLock::new(|| exists() && is_x86_feature_detected!("avx512f") && granted());
        GRANTED.then_some(Self(()))
    }

    pub(super) fn configure(self) -> Configured {
        // SAFETY: the processor has tiles, and the first palette has these shapes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const SHAPES, options(nostack, preserves_flags, readonly)) };
        Configured(PhantomData)
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: the processor has tiles.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}

impl Configured {
    /// Computes `C = A·B` or `C += A·B` for [`SIDE`] rows and columns, each entry a sum of three
    /// bf16 numbers. Products below the rounding of f32 are skipped. The small terms `a₀b₂ + a₀b₁ +
    /// a₁b₁ + a₁b₀ + a₂b₀` of all blocks come first, then `a₀b₀`, so that the small terms are added
    /// while the sum is small.
    ///
    /// A is `[blocks, 3, 2]` tiles: per 32 columns, the three numbers of two times sixteen rows. B
    /// is `[blocks, 3, 2]` tiles: per 32 rows, the three numbers of two times sixteen columns, in
    /// pairs of rows.
    ///
    /// For each block, the kernel prefetches an eighth of the bytes of an f32 panel from `ahead`
    /// on.
    ///
    /// # Safety
    ///
    /// A and B hold that many tiles, C holds the rows and columns, and nothing else uses C.
    pub(super) unsafe fn three_by_three(
        &self,
        [a, b, ahead]: [*const u8; 3],
        blocks: NonZero<usize>,
        c: Strided<*mut f32>,
        add: bool,
    ) {
        // SAFETY: tiles are set up; memory by the caller's promise.
        unsafe {
            square!(
                [a, b, ahead],
                blocks.get(),
                c,
                add,
                [
                    rows!("0", "1024"),
                    columns!("4096", "5120"),
                    multiply!(),
                    columns!("2048", "3072"),
                    multiply!(),
                    fetch!("0" "64" "128" "192"),
                    rows!("2048", "3072"),
                    multiply!(),
                    columns!("0", "1024"),
                    multiply!(),
                    fetch!("256" "320" "384" "448"),
                    rows!("4096", "5120"),
                    multiply!(),
                    lines!("add {a}, 6144" "add {b}, 6144" "add {ahead}, 512" "dec {blocks}" "jnz 2b"),
                    lines!("mov {blocks}, {count}" "sub {a}, {bytes}" "sub {b}, {bytes}" "4:"),
                    rows!("0", "1024"),
                    columns!("0", "1024"),
                    multiply!(),
                    lines!("add {a}, 6144" "add {b}, 6144" "dec {blocks}" "jnz 4b"),
                ],
                count = blocks.get(),
                bytes = blocks.get() * 6144
            );
        }
    }

    /// Computes `C = A·B` or `C += A·B` for [`SIDE`] rows that are sums of two bf16 numbers and
    /// [`SIDE`] columns of one.
    ///
    /// A is `[blocks, 2, 2]` tiles and B is `[16·blocks, 32]` pairs of rows. The kernel prefetches
    /// an eighth of the bytes of B from `ahead` on.
    ///
    /// # Safety
    ///
    /// As [`three_by_three`](Self::three_by_three).
    pub(super) unsafe fn two_by_one(
        &self,
        [a, b, ahead]: [*const u8; 3],
        blocks: NonZero<usize>,
        c: Strided<*mut f32>,
        add: bool,
    ) {
        // SAFETY: as above.
        unsafe {
            square!(
                [a, b, ahead],
                blocks.get(),
                c,
                add,
                [
                    lines!("tileloadd tmm6, [{b} + 2 * {line}]" "tileloadd tmm7, [{b} + 2 * {line} + 64]"),
                    rows!("2048", "3072"),
                    multiply!(),
                    fetch!("0" "64" "128" "192"),
                    rows!("0", "1024"),
                    multiply!(),
                    lines!("add {a}, 4096" "add {b}, 2048" "add {ahead}, 256" "dec {blocks}" "jnz 2b"),
                ]
            );
        }
    }
}

impl Configured {
    /// Computes `A·B` for [`SIDE`] rows of signed bytes and [`SIDE`] columns of unsigned ones.
    ///
    /// A is two tiles of rows, and B is sixteen lines of the next four bytes of each column.
    #[inline]
    pub(super) fn byte_products(&self, a: &[Line; SIDE], b: &[u8; 4 * HEIGHT * WIDTH], sums: &mut Sums<i32>) {
        // SAFETY: tiles are set up, and A, B and the sums have the lengths that are read and written.
        unsafe {
            asm!(
                lines!("tilezero tmm0" "tilezero tmm1" "tilezero tmm2" "tilezero tmm3"),
                lines!("tileloadd tmm4, [{a} + {line}]" "tileloadd tmm6, [{b} + 2 * {line}]"),
                lines!("tileloadd tmm7, [{b} + 2 * {line} + 64]" "tileloadd tmm5, [{a} + {line} + 1024]"),
                multiply_bytes!(),
                lines!("tilestored [{c} + 2 * {line}], tmm0" "tilestored [{c} + 2 * {line} + 64], tmm1"),
                lines!("tilestored [{c} + 2 * {line} + 2048], tmm2" "tilestored [{c} + 2 * {line} + 2112], tmm3"),
                a = in(reg) a.as_ptr(),
                b = in(reg) b.as_ptr(),
                c = in(reg) std::ptr::from_mut(sums),
                line = in(reg) size_of::<Line>(),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Products of bf16 numbers in one round of [`Configured::products`].
const ROUND: usize = 4 * 16 * 16 * 32;

impl Configured {
    /// Multiplies zeros in registers for at least one round, as bf16 numbers or as bytes. Other
    /// numbers would take the same time. Returns the number of products.
    pub(super) fn products(&self, rounds: usize, bytes: bool) -> usize {
        let rounds = rounds.max(1);
        macro_rules! run {
            ($multiply:expr) => {
                // SAFETY: tiles are set up, and no memory is touched.
                unsafe {
                    asm!(
                        lines!("tilezero tmm4" "tilezero tmm5" "tilezero tmm6" "tilezero tmm7"),
                        lines!("tilezero tmm0" "tilezero tmm1" "tilezero tmm2" "tilezero tmm3" "2:"),
                        $multiply,
                        lines!("dec {rounds}" "jnz 2b"),
                        rounds = inout(reg) rounds => _,
                        out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                        out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                        options(nostack, nomem),
                    )
                }
            };
        }
        if bytes {
            run!(multiply_bytes!());
            // A tile holds twice as many bytes.
            return 2 * rounds * ROUND;
        }
        run!(multiply!());
        rounds * ROUND
    }
}

/// Returns the upper eight significant bits of each number, rounded, and leaves the rest in `x`.
///
/// If a number is infinite or NaN, the rest is NaN.
#[inline]
#[target_feature(enable = "avx512f")]
fn take(x: &mut __m512) -> __m512i {
    let bits = _mm512_add_epi32(_mm512_castps_si512(*x), _mm512_set1_epi32(0x8000));
    let first = _mm512_and_si512(bits, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
    *x = _mm512_sub_ps(*x, _mm512_castsi512_ps(first));
    first
}

impl Tiles {
    /// Splits the numbers of a row into sums of TERMS bf16 numbers: `[blocks, TERMS, 2]` tiles,
    /// where `lines` starts at the row's line in the first tile. Zeros fill the last block.
    pub(super) fn split_row<const TERMS: usize>(self, x: &[f32], lines: &mut [Line]) {
        #[target_feature(enable = "avx512f")]
        fn split<const TERMS: usize>(x: &[f32], lines: &mut [Line]) {
            // No closures: the compiler would not build them with AVX-512.
            for (block, x) in x.chunks(2 * HEIGHT).enumerate() {
                let there = x.len().min(HEIGHT);
                let beyond = x.len() - there;
                // SAFETY: the mask limits the load to the slice.
                let (mut first, mut second) = unsafe {
                    let mask = |count: usize| ((1_u32 << count) - 1) as u16;
                    let second = x.as_ptr().wrapping_add(HEIGHT);
                    (_mm512_maskz_loadu_ps(mask(there), x.as_ptr()), _mm512_maskz_loadu_ps(mask(beyond), second))
                };
                for term in 0..TERMS {
                    let lower = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(take(&mut first)));
                    let upper = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(take(&mut second)));
                    let line = std::ptr::from_mut(&mut lines[(block * TERMS + term) * 2 * HEIGHT]).cast::<__m256i>();
                    // SAFETY: a line is two 256-bit vectors.
                    unsafe {
                        line.write(lower);
                        line.add(1).write(upper);
                    }
                }
            }
        }
        // SAFETY: every processor with AMX has AVX-512 F.
        unsafe { split::<TERMS>(x, lines) }
    }

    /// Splits the rows of a panel into sums of three: `[blocks, 3, 2]` tiles, in pairs of rows.
    /// Zeros fill the last block.
    pub(super) fn split_panel(self, panel: &[f32], lines: &mut [Line]) {
        #[target_feature(enable = "avx512f")]
        fn split(panel: &[f32], lines: &mut [Line]) {
            let zero = [0.0; WIDTH];
            for (tiles, block) in lines.chunks_exact_mut(3 * 2 * HEIGHT).zip(panel.chunks(2 * HEIGHT * WIDTH)) {
                let (rows, _) = block.as_chunks::<WIDTH>();
                for height in 0..HEIGHT {
                    let (first, second) = (rows.get(2 * height).unwrap_or(&zero), rows.get(2 * height + 1).unwrap_or(&zero));
                    for half in 0..2 {
                        // SAFETY: half a row is sixteen numbers.
                        let (mut first, mut second) = unsafe {
                            (
                                _mm512_loadu_ps(first.as_ptr().add(half * HEIGHT)),
                                _mm512_loadu_ps(second.as_ptr().add(half * HEIGHT)),
                            )
                        };
                        for term in 0..3 {
                            let both = _mm512_or_si512(_mm512_srli_epi32::<16>(take(&mut first)), take(&mut second));
                            let line = std::ptr::from_mut(&mut tiles[(term * 2 + half) * HEIGHT + height]).cast::<__m512i>();
                            // SAFETY: a line is one 512-bit vector.
                            unsafe { line.write(both) };
                        }
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe { split(panel, lines) }
    }
}

impl Tiles {
    /// Rounds at most [`SIDE`] rows of [`WIDTH`] columns that are `stride` apart to bf16:
    /// `[16, 32]` pairs of rows, as [`two_by_one`](Configured::two_by_one) reads them. Zeros fill
    /// the block.
    pub(super) fn round_block(self, rows: &[f32], stride: usize, lines: &mut [Line]) {
        #[target_feature(enable = "avx512f")]
        fn round(rows: &[f32], stride: usize, lines: &mut [Line]) {
            const ZERO: &[f32] = &[0.0; WIDTH];
            let rows = |row: usize| rows.get(row * stride..row * stride + WIDTH);
            for (pair, lines) in lines.chunks_exact_mut(WIDTH / HEIGHT).enumerate() {
                let (first, second) = (rows(2 * pair).unwrap_or(ZERO), rows(2 * pair + 1).unwrap_or(ZERO));
                for (half, line) in lines.iter_mut().enumerate() {
                    // SAFETY: half a row is sixteen numbers, and a line is one 512-bit vector.
                    unsafe {
                        let mut first = _mm512_loadu_ps(first.as_ptr().add(half * HEIGHT));
                        let mut second = _mm512_loadu_ps(second.as_ptr().add(half * HEIGHT));
                        let both = _mm512_or_si512(_mm512_srli_epi32::<16>(take(&mut first)), take(&mut second));
                        std::ptr::from_mut(line).cast::<__m512i>().write(both);
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe { round(rows, stride, lines) }
    }
}

/// Asks Linux for permission to use tiles, which every process needs.
#[cfg(target_os = "linux")]
fn granted() -> bool {
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    // SAFETY: the system call grants this process the use of registers; it touches no memory of the
    // process.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0 }
}

/// Other systems are not known to save tiles on a context switch.
#[cfg(not(target_os = "linux"))]
fn granted() -> bool {
    false
}
