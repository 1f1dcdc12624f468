//! `prop:cost` as counted operations: what a step reads, and what an edit of Ω touches.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Aggregator, AlignmentSpec, Arm, Backbone, Batch, Blade, BoxError, Candidate, Candidates, Capped, Composite, Context,
    DraftRequest, Fixed, Normalizer, Observation, Operators, Policy, Proposal, Reading, Readings, Response, Scheme, Score,
    ScoreTable, Search, Seat, Selector, Simplex, SpanEnd, SpecHandle, TokenId,
};

/// The calls that the slots received.
#[derive(Debug, Default)]
struct Counts {
    proposals: AtomicUsize,
    readings: AtomicUsize,
    /// Candidate tokens read, counted once per policy: the product NKL of the proposition.
    scored: AtomicUsize,
    blades: AtomicUsize,
    ratings: AtomicUsize,
}

impl Counts {
    fn take(&self) -> [usize; 5] {
        [&self.proposals, &self.readings, &self.scored, &self.blades, &self.ratings].map(|count| count.swap(0, Relaxed))
    }
}

/// Proposes `n` candidates of `length` tokens.
struct Drafts {
    n: usize,
    length: usize,
    counts: Arc<Counts>,
}

impl Proposal for Drafts {
    fn propose(&mut self, _: DraftRequest<'_>, _: &mut dyn Rng) -> Result<Candidates, BoxError> {
        self.counts.proposals.fetch_add(1, Relaxed);
        let candidate = Candidate { tokens: vec![1; self.length], log_probs: vec![-1.0; self.length], end: SpanEnd::Complete };
        Ok(Candidates::new(vec![candidate; self.n])?)
    }
}

struct Reader(Arc<Counts>);

impl Backbone for Reader {
    fn read(&mut self, _: &[TokenId], candidates: &Candidates, policies: &[Policy]) -> Result<Readings, BoxError> {
        self.0.readings.fetch_add(1, Relaxed);
        let mut readings = Readings::new();
        for policy in policies {
            let read = |c: &Candidate| {
                self.0.scored.fetch_add(c.tokens.len(), Relaxed);
                Reading { log_probs: vec![-1.0; c.tokens.len()], min_entropy: vec![1.0; c.tokens.len()], ..Reading::default() }
            };
            readings.insert(policy.clone(), candidates.iter().map(read).collect());
        }
        Ok(readings)
    }
}

struct Seated(String, Arc<Counts>);

impl Blade for Seated {
    fn score(&self, _: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        self.1.blades.fetch_add(1, Relaxed);
        out.fill(Score::new(0.0, 1.0)?);
        Ok(())
    }
    fn policies(&self) -> Vec<Policy> {
        vec![Policy::Variant(self.0.as_str().into()), Policy::Backbone]
    }
}

struct Rest(Arc<Counts>);

impl Normalizer for Rest {
    fn combine(&self, scores: &ScoreTable, _: &Simplex, out: &mut Composite) {
        out.reset(scores.candidates());
    }
}

impl Aggregator for Rest {
    fn rate(&self, _: &Batch<'_>, ratings: &mut [f64]) {
        self.0.ratings.fetch_add(1, Relaxed);
        ratings.fill(0.0);
    }
}

impl Selector for Rest {
    fn distribution(&self, _: &[f64], _: &Batch<'_>, probabilities: &mut [f64]) {
        let share = 1.0 / probabilities.len() as f64;
        probabilities.fill(share);
    }
}

fn seat(k: usize, counts: &Arc<Counts>) -> Seat {
    let name = format!("blade {k}");
    Seat::new(name.as_str(), Arc::new(Seated(name.clone(), Arc::clone(counts))))
}

fn scheme(n: usize, length: usize, blades: usize) -> (Scheme, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let seats = (0..blades).map(|k| seat(k, &counts)).collect();
    let scheme = Scheme {
        backbone: Box::new(Reader(Arc::clone(&counts))),
        proposal: Box::new(Drafts { n, length, counts: Arc::clone(&counts) }),
        granularity: Arc::new(Capped { rule: Response, tokens: NonZeroUsize::new(length).unwrap() }),
        search: Search::Full,
        fallback: None,
        arm: Arm {
            name: "own".into(),
            spec: SpecHandle::new(AlignmentSpec::new(seats, Simplex::uniform(blades).unwrap()).unwrap()),
            fluency: None,
            operators: Operators {
                weighting: Arc::new(Fixed),
                normalizer: Arc::new(Rest(Arc::clone(&counts))),
                aggregator: Arc::new(Rest(Arc::clone(&counts))),
                selector: Arc::new(Rest(Arc::clone(&counts))),
            },
        },
        others: Vec::new(),
    };
    (scheme, counts)
}

fn step(scheme: &mut Scheme) {
    let mut context = Context::new([1]).unwrap();
    scheme.step(&mut context, 1000, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
}

/// A step scores N·(K + 1)·L tokens: under K blades, and once under the backbone to which all of
/// them are compared.
#[test]
fn a_step_scores_every_candidate_once_under_every_blade() {
    for (n, length, blades) in [(1, 1, 1), (7, 12, 3), (16, 5, 8), (3, 40, 2)] {
        let (mut scheme, counts) = scheme(n, length, blades);
        step(&mut scheme);
        assert_eq!(counts.take(), [1, 1, n * (blades + 1) * length, blades, 1], "N {n}, L {length}, K {blades}");
    }
}

/// An edit copies K pointers, whatever N, L and the models are. It calls no slot, and the blades
/// that stay seated are the same objects.
#[test]
fn an_edit_asks_nothing_of_any_slot_and_moves_no_blade() {
    for (n, length) in [(1, 1), (64, 1000)] {
        let (mut scheme, counts) = scheme(n, length, 3);
        let handle = scheme.arm.spec.clone();
        let before = handle.snapshot();
        let reweighted = handle.edit(|spec| spec.with_weights(Simplex::new([0.5, 0.5, 0.0])?)).unwrap();
        let swapped = handle.edit(|spec| spec.swap("blade 1", seat(7, &counts))).unwrap();
        let seated = handle.edit(|spec| spec.seat(seat(8, &counts), 0.1)).unwrap();
        handle.edit(|spec| spec.unseat("blade 8")).unwrap();
        assert_eq!(counts.take(), [0; 5]);
        let same = |a: usize, b: (&AlignmentSpec, usize)| Arc::ptr_eq(before.seats()[a].blade(), b.0.seats()[b.1].blade());
        assert!((0..3).all(|k| same(k, (&reweighted, k))));
        assert!(same(0, (&swapped, 0)) && !same(1, (&swapped, 1)) && same(2, (&swapped, 2)));
        assert!(same(0, (&seated, 0)) && same(2, (&seated, 2)));
        // The next step evaluates only the blades that now have a positive weight.
        step(&mut scheme);
        assert_eq!(counts.take(), [1, 1, n * 3 * length, 2, 1]);
    }
}
