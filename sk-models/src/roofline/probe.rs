//! Measurements of a device: bandwidth over a working set, and peak arithmetic.

use std::hint::black_box;
use std::time::Instant;

use burn::tensor::{DType, Device, Tensor};

#[cfg(target_arch = "x86_64")]
use crate::decoder::PairProducts;
use crate::decoder::{FUSED, multiply, products};
use crate::device::DeviceName;
use crate::kernels::simd::widened;
use crate::team::{Team, for_each_mut};

/// The two roofs of the roofline model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Roof {
    /// Bytes per second.
    pub bandwidth: f64,
    /// Operations per second.
    pub peak: f64,
}

/// Bytes per second over a working set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bandwidth {
    /// Reads and sums: one byte per byte read, as for weights.
    pub read: f64,
    /// STREAM's triad `a = b + s·c` (McCalpin 1995): 24 bytes per element of eight. Additional
    /// traffic of writes in hardware is not counted.
    pub triad: f64,
}

impl Bandwidth {
    /// Returns the faster of the two, which is the stricter roof.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.read.max(self.triad)
    }
}

/// Operations per second, in the format of the weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// A large square matrix product on the device.
    pub product: f64,
    /// Multiplications and additions in the registers of every core; `None` on a GPU.
    pub registers: Option<f64>,
}

impl Peak {
    /// Returns the faster of the two, which is the stricter roof.
    #[must_use]
    pub fn best(&self) -> f64 {
        self.registers.map_or(self.product, |registers| registers.max(self.product))
    }
}

/// Returns the number of threads that share work on the CPU, here and in the models.
#[must_use]
pub fn threads() -> usize {
    Team::global().threads()
}

/// The smallest working set on a CPU. Below it, starting a parallel loop takes longer than reading
/// the bytes.
const SMALLEST_SET: usize = 1 << 20;
/// The largest working set: larger than any cache, and small for a machine that holds a model of
/// that size.
const LARGEST_SET: usize = 1 << 30;
/// Bytes of a task: large enough to hide its start, small enough that cores finish together.
const BLOCK: usize = 1 << 18;
/// Bytes that are read per measurement, so that it takes milliseconds for any working set.
const BYTES_TIMED: usize = 1 << 28;

/// The working set on a GPU, whose caches hold no model. Reading it takes much longer than a
/// launch.
const GPU_SET: usize = 1 << 31;
/// The working set on WebGPU: as much as one buffer of any adapter holds.
const WEBGPU_SET: usize = 1 << 27;

/// Measures the bandwidth over a working set of `bytes` bytes. If the caches hold the working set,
/// this is their bandwidth, as it is for weights that they hold.
///
/// On the CPU, all [`threads`] read, and the working set is limited to between 1 MiB and 1 GiB. On
/// a GPU, `bytes` is ignored, and the decoder's product of one row and its backend's triads read
/// memory.
///
/// # Panics
///
/// If a GPU fails; it has run the models by now.
#[must_use]
pub fn bandwidth(name: DeviceName, device: &Device, bytes: usize) -> Bandwidth {
    match name {
        DeviceName::Cpu => {
            let bytes = bytes.clamp(SMALLEST_SET, LARGEST_SET);
            Bandwidth { read: read_on_cpu(bytes), triad: triad_on_cpu(bytes) }
        }
        DeviceName::Wgpu(_) => on_gpu(device, WEBGPU_SET),
        _ => on_gpu(device, GPU_SET),
    }
}

fn read_on_cpu(bytes: usize) -> f64 {
    // Ones, since the kernel maps zeros to one page until they are written.
    let words = vec![1_u64; bytes / size_of::<u64>()];
    let mut parts: Vec<(&[u64], u64)> = words.chunks(BLOCK / size_of::<u64>()).map(|part| (part, 0)).collect();
    rate(size_of_val(&words[..]), BYTES_TIMED.div_ceil(bytes), || {
        for_each_mut(black_box(&mut parts), |_, (part, sum)| {
            // Integers, since their sum may be taken in any order and so in any number of
            // registers.
            *sum = widened!(part.iter().fold(0_u64, |sum, &word| sum.wrapping_add(word)));
        });
    })
}

fn triad_on_cpu(bytes: usize) -> f64 {
    let length = bytes / (3 * size_of::<f64>());
    let (b, c) = (vec![1.0_f64; length], vec![2.0_f64; length]);
    let mut a = vec![0.5_f64; length];
    let block = BLOCK / (3 * size_of::<f64>());
    let mut parts: Vec<_> = a.chunks_mut(block).zip(b.chunks(block)).zip(c.chunks(block)).collect();
    rate(3 * length * size_of::<f64>(), BYTES_TIMED.div_ceil(bytes), || {
        for_each_mut(black_box(&mut parts), |_, ((a, b), c)| {
            widened!({
                for ((a, b), c) in a.iter_mut().zip(*b).zip(*c) {
                    *a = b + 3.0 * c;
                }
            });
        });
    })
}

fn on_gpu(device: &Device, bytes: usize) -> Bandwidth {
    let row = 1 << 12;
    let ones = |bytes: usize| Tensor::<2>::ones([bytes.div_ceil(4 * row), row], device);
    let size = |tensor: &Tensor<2>| tensor.dims().iter().product::<usize>() * tensor.dtype().size();
    // One row times a matrix, with the decoder's kernel, takes as long as reading the matrix.
    // Burn's sums read half as fast on an H200.
    let (one, all) = (Tensor::ones([1, row], device), ones(bytes).transpose());
    let read = rate(size(&all), 1, || finish(device, multiply(&one, &all)));
    drop(all);
    let (b, c) = (ones(bytes / 3), ones(bytes / 3));
    let triad = rate(3 * size(&b), 1, || finish(device, b.clone() + c.clone() * 3.0));
    Bandwidth { read, triad }
}

/// Waits for a result before it is dropped. Otherwise, the backend could skip the work.
fn finish(device: &Device, result: Tensor<2>) {
    device.sync().expect("the device that ran the models answers");
    drop(black_box(result));
}

/// Widths of the square matrices whose product is timed: doubled until a product takes long enough,
/// or up to the largest.
const SMALLEST_WIDTH: usize = 1 << 10;
const LARGEST_WIDTH: usize = 1 << 13;
/// Seconds compared to which the start of a product is negligible.
const LONG_ENOUGH: f64 = 2e-3;

/// Measures the peak of `device` on weights of `format`. If the format is not a float, the matrix
/// product is in f32.
///
/// # Panics
///
/// If a GPU fails; it has run the models by now.
#[must_use]
pub fn peak(name: DeviceName, device: &Device, format: DType) -> Peak {
    let mut width = SMALLEST_WIDTH;
    let product = loop {
        let matrix = Tensor::<2>::ones([width, width], device).cast(if format.is_float() { format } else { DType::F32 });
        let operations = 2 * width * width * width;
        let product = rate(operations, 1, || finish(device, multiply(&matrix, &matrix)));
        if width >= LARGEST_WIDTH || operations as f64 / product >= LONG_ENOUGH {
            break product;
        }
        width *= 2;
    };
    Peak { product, registers: (name == DeviceName::Cpu).then(|| registers(format.size())) }
}

/// Independent sums in [`registers`]: more than the latency of an addition times the additions that
/// start per cycle.
const CHAINS: usize = 12;
/// Numbers of a sum: the widest vector of f32.
#[cfg(target_arch = "x86_64")]
const VECTOR: usize = 16;
/// Numbers of a sum without instructions chosen at run time: the registers of the target hold them.
const PORTABLE: usize = if FUSED { 8 } else { 4 };
/// Rounds of a task of [`registers`].
const ROUNDS: usize = 1 << 18;

/// Measures the operations per second in registers: two per multiply-add. Weights of two bytes use
/// pairs of bf16 if these are faster than f32. Weights of one byte use products of bytes if the
/// processor has them, or else of words if its vectors are AVX2. All others use f32. If the processor
/// has tiles, their rate is measured too, and the higher one is returned. A multiply-add in tiles
/// counts once, whatever the number of products that it takes.
fn registers(bytes: usize) -> f64 {
    let (chains, multiply_adds) = widest(bytes);
    let tasks = threads();
    let mut sums = vec![0.0; tasks];
    let vectors = rate(2 * tasks * multiply_adds, 1, || for_each_mut(black_box(&mut sums), |_, sum| *sum = chains()));
    let Some(multiply_adds) = products(bytes, ROUNDS) else { return vectors };
    let mut counts = vec![None; tasks];
    let pass = || for_each_mut(black_box(&mut counts), |_, count| *count = products(bytes, ROUNDS));
    let tiles = rate(2 * tasks * multiply_adds, 1, pass);
    vectors.max(tiles)
}

/// Returns the widest multiply-adds of this processor on numbers of `bytes` bytes, and how many a
/// call runs.
fn widest(bytes: usize) -> (fn() -> f32, usize) {
    let of_width = |width: usize| ROUNDS * CHAINS * width;
    #[cfg(target_arch = "x86_64")]
    {
        if bytes == 1 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the processor has the features that the function is compiled for.
            return (|| unsafe { vnni_chains() }, of_width(4 * VECTOR));
        }
        if bytes == 2 && PairProducts::get().is_some() {
            // SAFETY: the value is the proof that the processor has the features.
            return (|| unsafe { bf16_chains() }, of_width(2 * VECTOR));
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: as above.
            return (|| unsafe { avx512_chains() }, of_width(VECTOR));
        }
        if bytes == 1 && is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return (|| unsafe { word_chains() }, of_width(VECTOR));
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return (|| unsafe { avx2_chains() }, of_width(VECTOR / 2));
        }
    }
    let _ = bytes;
    (portable_chains, of_width(PORTABLE))
}

/// The repeated computation of each chain: x ← x/2 + 1, whose limit is 2.
const FACTOR: f32 = 0.5;
const TERM: f32 = 1.0;

fn portable_chains() -> f32 {
    let (factor, term) = (black_box(FACTOR), black_box(TERM));
    let mut sums = [[0.0_f32; PORTABLE]; CHAINS];
    for _ in 0..ROUNDS {
        for sum in sums.iter_mut().flatten() {
            *sum = if FUSED { sum.mul_add(factor, term) } else { *sum * factor + term };
        }
    }
    sums.iter().flatten().sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512_chains() -> f32 {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps, _mm512_setzero_ps};
    let (factor, term) = (_mm512_set1_ps(black_box(FACTOR)), _mm512_set1_ps(black_box(TERM)));
    let mut sums = [_mm512_setzero_ps(); CHAINS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, term);
        }
    }
    sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2_chains() -> f32 {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps};
    let (factor, term) = (_mm256_set1_ps(black_box(FACTOR)), _mm256_set1_ps(black_box(TERM)));
    let mut sums = [_mm256_setzero_ps(); CHAINS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, factor, term);
        }
    }
    let mut lanes = [0.0; VECTOR / 2];
    let mut total = 0.0;
    for sum in sums {
        // SAFETY: there is room for the eight numbers.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
        total += lanes.iter().sum::<f32>();
    }
    total
}

/// Repeatedly adds two products of ones to each of the chains' numbers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn bf16_chains() -> f32 {
    use std::arch::x86_64::{__m512bh, _mm512_dpbf16_ps, _mm512_reduce_add_ps, _mm512_set1_epi16, _mm512_setzero_ps};
    // SAFETY: both types are 512 bits without padding or invalid values.
    let ones: __m512bh = unsafe { std::mem::transmute(_mm512_set1_epi16(black_box(0x3f80))) };
    let mut sums = [_mm512_setzero_ps(); CHAINS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, ones, ones);
        }
    }
    sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
}

/// Repeatedly adds four products of ones to each of the chains' numbers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
fn vnni_chains() -> f32 {
    use std::arch::x86_64::{_mm512_dpbusd_epi32, _mm512_reduce_add_epi32, _mm512_set1_epi32, _mm512_setzero_si512};
    let ones = _mm512_set1_epi32(black_box(0x0101_0101));
    let mut sums = [_mm512_setzero_si512(); CHAINS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, ones, ones);
        }
    }
    sums.into_iter().map(|sum| _mm512_reduce_add_epi32(sum) as f32).sum()
}

/// Repeatedly replaces each of the chains' numbers by one plus the products of its two words with
/// zero, so the numbers stay one. Each product depends on the one before it, so the compiler cannot
/// move it out of the loop.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn word_chains() -> f32 {
    use std::arch::x86_64::{
        _mm256_add_epi32, _mm256_madd_epi16, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256, _mm256_storeu_si256,
    };
    let (zeros, ones) = (_mm256_set1_epi16(black_box(0)), _mm256_set1_epi32(black_box(1)));
    let mut sums = [_mm256_setzero_si256(); CHAINS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            *sum = _mm256_add_epi32(_mm256_madd_epi16(*sum, zeros), ones);
        }
    }
    let mut lanes = [0_i32; VECTOR / 2];
    let mut total = 0;
    for sum in sums {
        // SAFETY: there is room for the eight numbers.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        total += lanes.iter().sum::<i32>();
    }
    total as f32
}

/// Returns the best rate of three measurements over `times` passes of `amount` each, per second,
/// after an untimed pass.
fn rate(amount: usize, times: usize, mut pass: impl FnMut()) -> f64 {
    pass();
    let best = (0..3)
        .map(|_| {
            let start = Instant::now();
            (0..times).for_each(|_| pass());
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    amount as f64 * times as f64 / best.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Generous bounds for any machine that runs the test.
    const BYTES: std::ops::Range<f64> = 1e8..1e15;
    const OPERATIONS: std::ops::Range<f64> = 1e7..1e17;

    #[test]
    fn bandwidth_and_peak_are_plausible() {
        let device = Device::flex();
        let measured = bandwidth(DeviceName::Cpu, &device, 0);
        assert!(BYTES.contains(&measured.read) && BYTES.contains(&measured.triad), "{measured:?}");
        assert_eq!(measured.best(), measured.read.max(measured.triad));
        let measured = peak(DeviceName::Cpu, &device, DType::F32);
        assert!(OPERATIONS.contains(&measured.product), "{measured:?}");
        assert!(measured.registers.is_some_and(|peak| OPERATIONS.contains(&peak)), "{measured:?}");
        assert!(measured.best() >= measured.product);
    }

    #[test]
    fn chains_return_the_expected_sums() {
        let limit = |numbers: usize| (2 * numbers) as f32;
        assert_eq!(portable_chains(), limit(CHAINS * PORTABLE));
        let (chains, multiply_adds) = widest(4);
        assert_eq!(chains(), limit(multiply_adds / ROUNDS));
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: the processor has the features that the function is compiled for.
                assert_eq!(unsafe { avx2_chains() }, limit(CHAINS * VECTOR / 2));
            }
            if is_x86_feature_detected!("avx2") {
                // SAFETY: as above.
                assert_eq!(unsafe { word_chains() }, (CHAINS * VECTOR / 2) as f32);
            }
            if is_x86_feature_detected!("avx2") && !is_x86_feature_detected!("avx512f") {
                // Two products of words for each number.
                let (chains, multiply_adds) = widest(1);
                assert_eq!(2.0 * chains(), (multiply_adds / ROUNDS) as f32);
            }
            if PairProducts::supported().is_some() {
                // Two products of ones in each round and number.
                // SAFETY: the value is the proof that the processor has the features.
                assert_eq!(unsafe { bf16_chains() }, (ROUNDS * CHAINS * 2 * VECTOR) as f32);
            }
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni") {
                // Four products of ones in each round and number.
                let (chains, multiply_adds) = widest(1);
                assert_eq!(chains(), multiply_adds as f32);
            }
        }
    }
}
