//! Which axioms does your operator satisfy? `cargo run -p sk-aggregate --example axioms [--
//! --json]`

use sk_aggregate::axioms::{DEFAULT_CASES, DEFAULT_SEED, Report};
use sk_aggregate::{Kernel, Pairwise, RoundRobin, SwissElo};
use sk_core::{Aggregator, Batch};

/// ψ = Δ/(1 + |Δ|) · 1/(1 + σ_i + σ_j): uncertainty reduces the weight of a comparison, whatever
/// the difference.
struct Discounted;

impl Kernel for Discounted {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        let delta = own.0 - rival.0;
        delta / (1.0 + delta.abs()) / (1.0 + own.1 + rival.1)
    }
}

/// R_i = μ_i − σ_i: a lower confidence bound, without any comparison.
struct LowerBound;

impl Aggregator for LowerBound {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        for ((rating, mu), sigma) in ratings.iter_mut().zip(batch.mu()).zip(batch.sigma()) {
            *rating = mu - sigma;
        }
    }
}

fn main() -> Result<(), sk_core::ParameterError> {
    let operators: [(&str, &dyn Aggregator); 5] = [
        ("discounted", &Pairwise(Discounted)),
        ("lower bound", &LowerBound),
        ("thurstone", &RoundRobin::thurstone()),
        ("asinh", &RoundRobin::asinh()),
        ("swiss-elo", &SwissElo::sound(5, 0.5)?),
    ];
    let report = Report::new(operators, DEFAULT_CASES, DEFAULT_SEED);
    if std::env::args().any(|argument| argument == "--json") {
        println!("{:#}", serde_json::json!(report));
    } else {
        print!("{report}");
    }
    Ok(())
}
