//! A step of the published size allocates nothing in 𝓝, 𝓐 and 𝓢.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sk_aggregate::{Copeland, Entry, Fluent, RoundRobin, Scores, SwissElo};
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

const N: usize = 11;

fn rows() -> Vec<(Vec<f64>, Vec<f64>)> {
    let row = |k: usize| (0..N).map(|i| ((i * 7 + k * 3) % N) as f64).collect::<Vec<f64>>();
    (0..3).map(|k| (row(k), row(k + 5))).collect()
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 64]))), 1);
}

#[test]
fn a_step_allocates_nothing_after_the_first() {
    let scores = ScoreTable::new(rows()).unwrap();
    let weights = Simplex::uniform(3).unwrap();
    let mut composite = Composite::default();
    let normalizers =
        [CandidateBatch::paper(), CandidateBatch::sound(), CandidateBatch::sound().with_propagation(Propagation::Independent)];
    for normalizer in &normalizers {
        normalizer.combine(&scores, &weights, &mut composite);
        assert_eq!(allocations(|| normalizer.combine(&scores, &weights, &mut composite)), 0, "{normalizer:?}");
    }

    let fluency = [-1.5; N];
    let batch = Batch::new(&composite.mu, &composite.sigma).with_fluency(&fluency);
    let mut ratings = [0.0; N];
    let aggregators: [(&str, &dyn Aggregator); 7] = [
        ("scores", &Scores),
        ("copeland", &Copeland),
        ("thurstone", &RoundRobin::thurstone()),
        ("asinh", &RoundRobin::asinh()),
        ("fluent", &Fluent::new(Entry::sound(0.5).unwrap(), RoundRobin::bradley_terry())),
        ("paper", &SwissElo::paper(7, 0.5).unwrap()),
        ("sound", &SwissElo::sound(7, 0.5).unwrap()),
    ];
    for (name, aggregator) in aggregators {
        assert_eq!(allocations(|| aggregator.rate(&batch, &mut ratings)), 0, "{name}");
    }

    let mut p = [0.0; N];
    let champion = Champion::sound(&OperatingPoint::HHH).unwrap();
    let selectors: [(&str, &dyn Selector); 4] = [
        ("argmax", &Argmax),
        ("champion", &champion),
        ("nucleus", &Nucleus::new(0.95, TopK::new(5, Softmax::new(1.0).unwrap()).unwrap()).unwrap()),
        ("gate", &Gate::new(Criterion::Score, 0.0, Fallback::Best, champion).unwrap()),
    ];
    for (name, selector) in selectors {
        assert_eq!(allocations(|| selector.distribution(&ratings, &batch, &mut p)), 0, "{name}");
    }
}
