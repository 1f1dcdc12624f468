use serde::Serialize;
use sk_core::Aggregator;

use super::shrink::shrink;
use super::{Axiom, Case, Cases, Violation};

/// The number of cases that [`axioms!`](crate::axioms!) tries for each axiom: enough to detect
/// every broken operator in this crate's tests from any of 20 seeds.
pub const DEFAULT_CASES: usize = 2000;

/// The seed of [`axioms!`](crate::axioms!).
pub const DEFAULT_SEED: u64 = 20;

/// The result of a search for a counterexample.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// No counterexample was found.
    Holds {
        /// The number of cases tried.
        cases: usize,
    },
    /// A counterexample was found.
    Violated {
        /// The counterexample, shrunk.
        counterexample: Case,
        /// The violation there.
        violation: Violation,
        /// The number of cases tried, including this one.
        found_after: usize,
    },
}

impl Verdict {
    /// Returns whether no counterexample was found.
    pub fn holds(&self) -> bool {
        matches!(self, Self::Holds { .. })
    }
}

/// Searches for a case on which `operator` violates `axiom`, and shrinks the first one found.
///
/// Equal seeds give the same cases in the same order.
pub fn check(axiom: Axiom, operator: &dyn Aggregator, cases: usize, seed: u64) -> Verdict {
    for (index, case) in Cases::new(seed).take(cases).enumerate() {
        if let Err(violation) = axiom.law(operator, &case) {
            let (counterexample, violation) = shrink(axiom, operator, case, violation);
            return Verdict::Violated { counterexample, violation, found_after: index + 1 };
        }
    }
    Verdict::Holds { cases }
}
