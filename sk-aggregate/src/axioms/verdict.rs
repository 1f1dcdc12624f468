use serde::Serialize;
use sk_core::Aggregator;

use super::shrink::shrink;
use super::{Axiom, Case, Cases, Violation};

/// Cases that [`axioms!`](crate::axioms!) tries for each axiom: enough to catch every broken
/// operator of this crate's tests from any of 20 seeds.
pub const DEFAULT_CASES: usize = 2000;

/// The seed that [`axioms!`](crate::axioms!) takes.
pub const DEFAULT_SEED: u64 = 20;

/// What a search for a counterexample came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// None was found.
    Holds {
        /// How many cases were tried.
        cases: usize,
    },
    /// One was found.
    Violated {
        /// The case, shrunken.
        counterexample: Case,
        /// What goes wrong there.
        violation: Violation,
        /// How many cases it took, this one included.
        found_after: usize,
    },
}

impl Verdict {
    /// Whether no counterexample was found.
    pub fn holds(&self) -> bool {
        matches!(self, Self::Holds { .. })
    }
}

/// Looks for a case on which `operator` breaks `axiom`, and shrinks the first it finds.
///
/// The same seed tries the same cases in the same order.
pub fn check(axiom: Axiom, operator: &dyn Aggregator, cases: usize, seed: u64) -> Verdict {
    for (index, case) in Cases::new(seed).take(cases).enumerate() {
        if let Err(violation) = axiom.law(operator, &case) {
            let (counterexample, violation) = shrink(axiom, operator, case, violation);
            return Verdict::Violated { counterexample, violation, found_after: index + 1 };
        }
    }
    Verdict::Holds { cases }
}
