//! After the first of its size a step allocates nothing in 𝓝, 𝓐 and 𝓢, be it of the published size or of hundreds of candidates.
//!
//! Not counted: what the caller owns (scores, ratings, probabilities), and what the thread pool of the feature `parallel` does to wake its
//! threads. Excepted are the rules that say in their documentation that they allocate: rank and robust normalisation, and past 32 candidates
//! those selectors that sort.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sk_aggregate::{Copeland, Entry, Fluent, Kernel, PNorm, Pairwise, RoundRobin, Scores, SignedLog, StudentT, SwissElo};
use sk_core::{Aggregator, Batch, Composite, Normalizer, OperatingPoint, ScoreTable, Selector, Simplex};
use sk_normalize::{CandidateBatch, Propagation};
use sk_select::{Argmax, Champion, Criterion, Fallback, Gate, Nucleus, Softmax, TopK};

/// Counts the allocations of the current thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(mut work: impl FnMut()) -> usize {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// The published number of candidates, one past the stack, and many: as many as one thread rates alone.
const SIZES: [usize; 3] = [7, 64, if cfg!(feature = "parallel") { 500 } else { 1024 }];

fn rows(n: usize) -> Vec<(Vec<f64>, Vec<f64>)> {
    let row = |k: usize| (0..n).map(|i| ((i * 7 + k * 3) % n) as f64).collect::<Vec<f64>>();
    (0..3).map(|k| (row(k), row(k + 5))).collect()
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 64]))), 1);
}

#[test]
fn a_step_allocates_nothing_after_the_first() {
    SIZES.into_iter().for_each(step);
}

/// Fails when the second run of a slot allocates.
fn warm(what: &str, n: usize, mut work: impl FnMut()) {
    work();
    assert_eq!(allocations(work), 0, "{what} of {n} candidates");
}

fn step(n: usize) {
    let scores = ScoreTable::new(rows(n)).unwrap();
    let weights = Simplex::uniform(3).unwrap();
    let mut composite = Composite::default();
    let normalizers =
        [CandidateBatch::paper(), CandidateBatch::sound(), CandidateBatch::sound().with_propagation(Propagation::Independent)];
    for normalizer in &normalizers {
        warm(&format!("{normalizer:?}"), n, || normalizer.combine(&scores, &weights, &mut composite));
    }

    let fluency = vec![-1.5; n];
    let batch = Batch::new(&composite.mu, &composite.sigma).with_fluency(&fluency);
    let mut ratings = vec![0.0; n];
    let aggregators: [(&str, &dyn Aggregator); 10] = [
        ("scores", &Scores),
        ("copeland", &Copeland),
        ("thurstone", &RoundRobin::thurstone()),
        ("asinh", &RoundRobin::asinh()),
        ("p = 3", &RoundRobin::new(SignedLog, PNorm::new(3.0).unwrap())),
        ("student", &RoundRobin::new(StudentT::new(3.5).unwrap(), PNorm::EUCLIDEAN)),
        ("pairwise", &Pairwise(Difference)),
        ("fluent", &Fluent::new(Entry::sound(0.5).unwrap(), RoundRobin::bradley_terry())),
        ("paper", &SwissElo::paper(7, 0.5).unwrap()),
        ("sound", &SwissElo::sound(7, 0.5).unwrap()),
    ];
    for (name, aggregator) in aggregators {
        warm(name, n, || aggregator.rate(&batch, &mut ratings));
    }

    let mut p = vec![0.0; n];
    let champion = Champion::sound(&OperatingPoint::HHH).unwrap();
    let selectors: [(&str, &dyn Selector); 5] = [
        ("argmax", &Argmax),
        ("softmax", &Softmax::new(1.0).unwrap()),
        ("champion", &champion),
        ("nucleus", &Nucleus::new(0.95, TopK::new(5, Softmax::new(1.0).unwrap()).unwrap()).unwrap()),
        ("gate", &Gate::new(Criterion::Score, 0.0, Fallback::Best, champion).unwrap()),
    ];
    // The last two work on copies, which lie on the stack up to 32 candidates.
    let copies = if n <= 32 { 5 } else { 3 };
    for (name, selector) in &selectors[..copies] {
        warm(name, n, || selector.distribution(&ratings, &batch, &mut p));
    }
}

/// ψ = μ_i − μ_j.
struct Difference;

impl Kernel for Difference {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        own.0 - rival.0
    }
}
