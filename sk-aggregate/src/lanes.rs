//! Loops over many values at once.

use sk_core::Real;

/// Values per step: one vector register of AVX-512, two of AVX2, four of SSE2 or NEON.
pub(crate) const LANES: usize = 8;

/// A loop over slices that benefits from the widest vectors of the processor.
///
/// `run` and everything it calls must be `#[inline(always)]`. Otherwise it is compiled for the
/// narrowest vectors.
pub(crate) trait Wide {
    fn run(self);
}

/// Runs `work`, compiled for the widest vectors of this processor.
///
/// The operations and their order are the same for every width, without contraction, so results do
/// not depend on it.
#[inline]
pub(crate) fn widest(work: impl Wide) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512dq,avx512vl")]
        fn avx512(work: impl Wide) {
            work.run();
        }
        #[target_feature(enable = "avx2")]
        fn avx2(work: impl Wide) {
            work.run();
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has the features that the function is compiled for.
            return unsafe { avx512(work) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2(work) };
        }
    }
    work.run();
}

/// A function of N numbers in double precision, without branches or calls. `at` must be
/// `#[inline(always)]`, as for [`Wide`].
pub(crate) trait Function<const N: usize> {
    fn at(&self, x: [f64; N]) -> f64;
}

/// Replaces each x by f(x), with the widest vectors.
pub(crate) fn map<F: Real>(x: &mut [F], f: &impl Function<1>) {
    widest(Map { x, f });
}

/// Replaces each x by f(x, y), with the widest vectors.
pub(crate) fn zip<F: Real>(x: &mut [F], y: &[F], f: &impl Function<2>) {
    assert_eq!(x.len(), y.len(), "one for each");
    widest(Zip { x, y, f });
}

struct Map<'a, F, K> {
    x: &'a mut [F],
    f: &'a K,
}

impl<F: Real, K: Function<1>> Wide for Map<'_, F, K> {
    #[inline(always)]
    fn run(self) {
        let (chunks, rest) = self.x.as_chunks_mut();
        for xs in chunks {
            map_lanes(self.f, xs);
        }
        // The remainder is padded to full lanes: a scalar step costs as much as eight lanes.
        if !rest.is_empty() {
            let mut xs = padded(rest);
            map_lanes(self.f, &mut xs);
            rest.copy_from_slice(&xs[..rest.len()]);
        }
    }
}

#[inline(always)]
fn map_lanes<F: Real>(f: &impl Function<1>, xs: &mut [F; LANES]) {
    for x in xs {
        *x = F::of(f.at([x.widen()]));
    }
}

struct Zip<'a, F, K> {
    x: &'a mut [F],
    y: &'a [F],
    f: &'a K,
}

impl<F: Real, K: Function<2>> Wide for Zip<'_, F, K> {
    #[inline(always)]
    fn run(self) {
        let (xs, rest_x) = self.x.as_chunks_mut();
        let (ys, rest_y) = self.y.as_chunks();
        for (xs, ys) in xs.iter_mut().zip(ys) {
            zip_lanes(self.f, xs, ys);
        }
        if !rest_x.is_empty() {
            let mut xs = padded(rest_x);
            zip_lanes(self.f, &mut xs, &padded(rest_y));
            rest_x.copy_from_slice(&xs[..rest_x.len()]);
        }
    }
}

#[inline(always)]
fn zip_lanes<F: Real>(f: &impl Function<2>, xs: &mut [F; LANES], ys: &[F; LANES]) {
    // All values are read before one is written, so that the compiler need not prove that the
    // slices do not alias.
    let (left, right) = (*xs, *ys);
    let mut values = [F::zero(); LANES];
    for k in 0..LANES {
        values[k] = F::of(f.at([left[k].widen(), right[k].widen()]));
    }
    *xs = values;
}

/// Returns fewer than [`LANES`] values, padded with ones.
#[inline(always)]
fn padded<F: Real>(values: &[F]) -> [F; LANES] {
    let mut lanes = [F::one(); LANES];
    for (lane, &value) in lanes.iter_mut().zip(values) {
        *lane = value;
    }
    lanes
}

/// The number of candidates from which a batch is split among threads. Its pairs then take about a
/// millisecond, while distributing the rounds takes some tens of microseconds.
#[cfg(feature = "parallel")]
const SHARED_FROM: usize = 512;

/// Returns whether the pairs of `n` candidates are split among threads.
#[cfg(feature = "parallel")]
fn shared(n: usize) -> bool {
    n >= SHARED_FROM && rayon::current_num_threads() > 1
}

/// Calls `work` with the index of each item and the item, which together have the pairs of `n`
/// candidates.
#[cfg_attr(not(feature = "parallel"), expect(unused_variables, reason = "all on one thread"))]
pub(crate) fn each<T: Send>(items: &mut [T], n: usize, work: impl Fn(usize, &mut T) + Sync) {
    #[cfg(feature = "parallel")]
    if shared(n) {
        use rayon::prelude::*;
        return items.par_iter_mut().enumerate().for_each(|(k, item)| work(k, item));
    }
    items.iter_mut().enumerate().for_each(|(k, item)| work(k, item));
}

/// Returns Σ x, computed as [`LANES`] partial sums that are then added in pairs.
pub(crate) fn sum<F: Real>(values: &[F]) -> F {
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut lanes = [F::zero(); LANES];
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = *lane + x;
        }
    }
    for (lane, &x) in lanes.iter_mut().zip(rest) {
        *lane = *lane + x;
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

#[cfg(all(test, feature = "parallel"))]
mod tests {
    use super::*;

    #[test]
    fn many_candidates_are_shared_among_more_than_one_thread() {
        let shared_by = |threads: usize, n: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a few threads");
            pool.install(|| shared(n))
        };
        let found =
            [(1, SHARED_FROM), (2, SHARED_FROM - 1), (2, SHARED_FROM), (3, 10 * SHARED_FROM)].map(|(t, n)| shared_by(t, n));
        assert_eq!(found, [false, false, true, true]);
    }
}
