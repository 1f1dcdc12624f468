use sk_core::Aggregator;

use super::{Axiom, DEFAULT_CASES, DEFAULT_SEED, Verdict, check};

/// Asserts that the axiom holds, or is violated as declared. Used by the tests of
/// [`axioms!`](crate::axioms!).
///
/// # Panics
/// If the result differs from the declaration.
#[track_caller]
pub fn assert_declared(axiom: Axiom, operator: &dyn Aggregator, fails: &[Axiom]) {
    let (symbol, name) = (axiom.symbol(), axiom.name());
    match (check(axiom, operator, DEFAULT_CASES, DEFAULT_SEED), fails.contains(&axiom)) {
        (Verdict::Violated { counterexample, violation, found_after }, false) => {
            panic!("{symbol} ({name}) is broken, case {found_after}\n  {violation}\n  at {counterexample}");
        }
        (Verdict::Holds { cases }, true) => {
            panic!(
                "{symbol} ({name}) is declared broken, but no counterexample was found in {cases} cases: take it off the list"
            );
        }
        _ => {}
    }
}

/// Generates a test module with one test per axiom for an operator.
///
/// The module is compiled for tests only, as with `cargo test`. Elsewhere, including documentation
/// examples, the macro expands to nothing. If the feature `axioms` is in the dev-dependencies only,
/// call the macro inside a `#[cfg(test)]` module.
///
/// Violated axioms are declared with `fails`, separated by spaces. The test of a declared axiom
/// fails if no counterexample is found, so that the declaration stays correct. A3′ and A5′ are
/// written `A3Prime` and `A5Prime`.
///
/// ```
/// use sk_aggregate::{RoundRobin, axioms};
///
/// axioms!(asinh => RoundRobin::asinh());
/// axioms!(thurstone => RoundRobin::thurstone(), fails A5);
/// ```
#[macro_export]
macro_rules! axioms {
    ($name:ident => $operator:expr $(, fails $($axiom:ident)+)? $(;)?) => {
        #[cfg(test)]
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            const FAILS: &[$crate::axioms::Axiom] = &[$($($crate::axioms::Axiom::$axiom),+)?];

            $crate::axioms! { @tests $operator;
                a0_totality A0,
                a1_anonymity A1,
                a2_translation A2,
                a3_scale_of_ranking A3,
                a3_prime_scale_of_ratings A3Prime,
                a4_monotonicity A4,
                a5_attenuation A5,
                a5_prime_envelope A5Prime,
                a6_decomposability A6,
                a7_constant_sum A7,
                a8_single_channel A8,
            }
        }
    };
    (@tests $operator:expr; $($test:ident $axiom:ident,)+) => {$(
        #[test]
        fn $test() {
            $crate::axioms::assert_declared($crate::axioms::Axiom::$axiom, &$operator, FAILS);
        }
    )+};
}
