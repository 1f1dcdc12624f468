//! A custom operator in a crate of its own, which depends on `sk-core` and `sk-aggregate` only.
//!
//! Its tests have one line per operator, which declares the axioms that the operator breaks.

use sk_aggregate::{Kernel, Link, Spread};
use sk_core::{Aggregator, Batch};

/// g(u) = u/√(1 + u²): a bounded link, written with one method.
#[derive(Debug, Clone, Copy, Default)]
pub struct Algebraic;

impl Link for Algebraic {
    fn g(&self, u: f64) -> f64 {
        u / 1f64.hypot(u)
    }
}

/// s(a, b) = (√a + √b)²: the p-norm with p = ½, outside the p-norms with p ≥ 1.
#[derive(Debug, Clone, Copy, Default)]
pub struct HalfNorm;

impl Spread for HalfNorm {
    fn s(&self, a: f64, b: f64) -> f64 {
        (a.sqrt() + b.sqrt()).powi(2)
    }
}

/// ψ = Δ/(1 + σ_i + σ_j): the fixed unit 1 beside the dispersions makes the ratings depend on
/// scale.
#[derive(Debug, Clone, Copy, Default)]
pub struct Damped;

impl Kernel for Damped {
    fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
        (own.0 - rival.0) / (1.0 + own.1 + rival.1)
    }
}

/// R_i is the number of candidates with a lower score; of two equal candidates, the earlier counts
/// as lower. This operator has no kernel, and it depends on the order of its input.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place;

impl Aggregator for Place {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        let mu = batch.mu();
        for (i, rating) in ratings.iter_mut().enumerate() {
            let below = (0..mu.len()).filter(|&j| mu[j] < mu[i] || (mu[j] == mu[i] && j < i));
            *rating = below.count() as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use sk_aggregate::axioms::{Axiom, DEFAULT_CASES, Report, Verdict, assert_declared, check};
    use sk_aggregate::{Pairwise, RoundRobin, axioms};

    use super::*;

    axioms!(algebraic => RoundRobin::new(Algebraic, HalfNorm), fails A5);
    axioms!(damped => Pairwise(Damped), fails A3 A3Prime);
    axioms!(place => Place, fails A1 A4 A5 A5Prime);

    /// Operators that are known at run time only.
    fn by_name(name: &str) -> Box<dyn Aggregator> {
        match name {
            "algebraic" => Box::new(RoundRobin::new(Algebraic, HalfNorm)),
            "damped" => Box::new(Pairwise(Damped)),
            _ => Box::new(Place),
        }
    }

    axioms!(boxed => by_name("damped"), fails A3 A3Prime);

    #[test]
    #[should_panic(expected = "A3 (scale (ranking)) is broken, case")]
    fn what_is_not_declared_is_found_out() {
        assert_declared(Axiom::A3, &by_name("damped"), &[Axiom::A3Prime]);
    }

    #[test]
    fn a_counterexample_is_small() {
        let Verdict::Violated { counterexample, .. } = check(Axiom::A1, &*by_name("place"), DEFAULT_CASES, 1) else {
            panic!("ties are told apart by their order");
        };
        assert_eq!((counterexample.mu, counterexample.sigma.len()), (vec![0.0, 0.0], 2));
    }

    #[test]
    fn a_report_compares_operators_by_name() {
        let operators = ["algebraic", "damped", "place"].map(|name| (name, by_name(name)));
        let report = Report::new(operators.iter().map(|(name, operator)| (*name, &**operator)), DEFAULT_CASES, 1);
        let kept = |row: usize| report.rows[row].findings.iter().filter(|finding| finding.verdict.holds()).count();
        assert_eq!([kept(0), kept(1), kept(2)], [10, 9, 7], "{report}");
        assert!(report.to_string().contains("damped breaks A3′, scale (ratings) (case"));
    }
}
