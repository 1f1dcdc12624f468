//! After the first step of a given size, 𝓝, 𝓐 and 𝓢 allocate nothing, for the published size and
//! for hundreds of candidates. Covers every normaliser with every propagation, every operator,
//! link, spread and entry, and every selector that ships. 𝓑 is tested in `sk-blades`.
//!
//! Not counted: the caller's buffers (scores, ratings, probabilities), and what the thread pool of
//! the feature `parallel` allocates to wake its threads.

#[path = "../../sk-core/tests/counting/mod.rs"]
mod counting;

use counting::warm;
use sk_aggregate::{
    Asinh, Copeland, DivergenceMixture, Entry, Fluent, Identity, Kernel, Laplace, Link, Logistic, PNorm, Pairwise, Probit,
    RoundRobin, Scores, Seeding, SignedLog, StudentT, SwissElo, Tanh,
};
use sk_core::{Aggregator, Batch, Composite, Divergence, Normalizer, OperatingPoint, Real, ScoreTable, Selector, Simplex};
use sk_normalize::{CandidateBatch, Correlation, Propagation, Rank, Raw, Robust};
use sk_select::{Argmax, Champion, Criterion, EpsilonArgmax, Gate, GateFallback, Nucleus, PlackettLuce, Softmax, TopK, Uniform};

/// The published number of candidates, one more than a vector holds, and several blocks of a round
/// robin, which a single thread plays.
const SIZES: [usize; 3] = [7, 33, 300];

const NAMES: [&str; 3] = ["helpful", "honest", "harmless"];

fn scores<F: Real>(n: usize) -> ScoreTable<F> {
    let row = |k: usize| (0..n).map(|i| F::of(((i * 7 + k * 3) % n) as f64)).collect::<Vec<F>>();
    ScoreTable::new((0..3).map(|k| (row(k), row(k + 5)))).unwrap().with_names(NAMES).unwrap()
}

#[test]
fn a_step_allocates_nothing_after_the_first() {
    for n in SIZES {
        normalizers::<f64>(n);
        normalizers::<f32>(n);
        aggregators::<f64>(n);
        aggregators::<f32>(n);
        selectors::<f64>(n);
        selectors::<f32>(n);
    }
}

fn normalizers<F: Real>(n: usize) {
    let (scores, weights) = (scores::<F>(n), Simplex::uniform(3).unwrap());
    let errors = Correlation::of_pairs([("honest", "helpful", 0.5), ("honest", "harmless", -0.5)]).unwrap();
    let rules = [Propagation::Linear, Propagation::Independent, Propagation::Correlated(errors)];
    let mut composite = Composite::default();
    for rule in rules {
        let normalizers: [&dyn Normalizer<F>; 5] = [
            &CandidateBatch { propagation: rule.clone(), ..CandidateBatch::paper() },
            &CandidateBatch { propagation: rule.clone(), ..CandidateBatch::sound() },
            &Raw { propagation: rule.clone() },
            &Rank { propagation: rule.clone() },
            &Robust { propagation: rule.clone() },
        ];
        for (k, normalizer) in normalizers.into_iter().enumerate() {
            warm(&format!("normaliser {k}, {rule:?}, N = {n}"), || normalizer.combine(&scores, &weights, &mut composite));
        }
    }
}

fn aggregators<F: Real>(n: usize) {
    let (scores, fluency) = (scores::<F>(n), vec![F::of(-1.5); n]);
    let batch = Batch::trusted(scores.mu(0), scores.sigma(0)).with_trusted_fluency(&fluency).with_blades(&scores);
    let mut ratings = vec![F::zero(); n];
    let mut rate = |what: &str, aggregator: &dyn Aggregator<F>| {
        warm(&format!("{what}, N = {n}"), || aggregator.rate(&batch, &mut ratings));
    };
    let student = |nu| StudentT::new(nu).unwrap();
    let links: [&dyn Link<F>; 9] = [
        &Probit,
        &Logistic,
        &Tanh,
        &Laplace,
        &Asinh,
        &SignedLog,
        &Identity,
        &student(3.5),
        // With so many degrees of freedom it is computed as the probit and a correction.
        &student(1e5),
    ];
    for p in [1.0, 2.0, 3.0, f64::INFINITY] {
        for (k, link) in links.into_iter().enumerate() {
            rate(&format!("link {k}, p = {p}"), &RoundRobin::new(link, PNorm::new(p).unwrap()));
        }
    }
    rate("scores", &Scores);
    rate("copeland", &Copeland);
    rate("pairwise", &Pairwise(Difference));
    for divergence in [Divergence::ReverseKl, Divergence::ForwardKl, Divergence::JensenShannon, Divergence::alpha(0.5).unwrap()] {
        rate(&format!("{divergence:?}"), &DivergenceMixture::new(divergence));
    }
    for entry in [Entry::paper(0.5), Entry::sound(0.5), Entry::plain(0.5)].map(Result::unwrap) {
        rate(&format!("fluent, {entry:?}"), &Fluent::new(entry, RoundRobin::bradley_terry()));
        for seeding in [Seeding::Canonical, Seeding::Score, Seeding::Index] {
            rate(&format!("tournament, {entry:?}, {seeding:?}"), &SwissElo::new(7, entry, seeding).unwrap());
        }
    }
}

fn selectors<F: Real>(n: usize) {
    let (scores, fluency) = (scores::<F>(n), vec![F::of(-1.5); n]);
    let batch = Batch::trusted(scores.mu(0), scores.sigma(0)).with_trusted_fluency(&fluency).with_blades(&scores);
    let (ratings, mut p) = (scores.mu(1), vec![F::zero(); n]);
    let mut distribute = |what: &str, selector: &dyn Selector<F>| {
        warm(&format!("{what}, N = {n}"), || selector.distribution(ratings, &batch, &mut p));
    };
    let softmax = || Softmax::new(1.0).unwrap();
    distribute("argmax", &Argmax);
    distribute("ε-argmax", &EpsilonArgmax::new(0.1).unwrap());
    distribute("uniform", &Uniform);
    distribute("softmax", &softmax());
    distribute("plackett-luce", &PlackettLuce::new(1.0).unwrap());
    distribute("published champion", &Champion::paper(&OperatingPoint::HHH).unwrap());
    distribute("champion", &Champion::sound(&OperatingPoint::HHH).unwrap());
    distribute("top 5", &TopK::new(5, softmax()).unwrap());
    distribute("nucleus of top 40", &Nucleus::new(0.95, TopK::new(40, softmax()).unwrap()).unwrap());
    // Half of the candidates are above the threshold.
    let middle = n as f64 / 2.0;
    let criteria = [
        Criterion::LowerBound { kappa: 0.0 },
        Criterion::LowerBound { kappa: 0.1 },
        Criterion::Blade { name: "harmless".into(), kappa: 0.0 },
        Criterion::Blade { name: "nobody".into(), kappa: 0.0 },
        Criterion::Fluency,
        Criterion::Rating,
    ];
    for criterion in criteria {
        for fallback in [GateFallback::Best, GateFallback::Open] {
            for threshold in [middle, f64::INFINITY] {
                let gate = Gate::new(criterion.clone(), threshold, fallback, softmax()).unwrap();
                distribute(&format!("gate on {criterion:?} at {threshold}, {fallback:?}"), &gate);
            }
        }
    }
    let inner =
        Gate::new(Criterion::Blade { name: "helpful".into(), kappa: 0.0 }, middle / 2.0, GateFallback::Open, softmax()).unwrap();
    distribute(
        "gates",
        &Gate::new(Criterion::Blade { name: "harmless".into(), kappa: 0.0 }, middle, GateFallback::Best, inner).unwrap(),
    );
}

/// ψ = μ_i − μ_j.
struct Difference;

impl<F: Real> Kernel<F> for Difference {
    fn psi(&self, own: (F, F), rival: (F, F)) -> F {
        own.0 - rival.0
    }
}
