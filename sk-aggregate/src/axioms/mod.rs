//! The axioms of an aggregation operator as executable laws (feature `axioms`).
//!
//! [`Axiom::law`] takes any operator and a [`Case`], a batch with the changes that the laws apply,
//! and returns both sides of the relation if the operator violates it. [`Cases`] generates cases
//! from a seed, with emphasis on where operators fail: near and exact ties, dispersions over six
//! decades, one candidate without dispersion, saturated differences, one to sixteen candidates.
//! [`check`] searches for a counterexample and shrinks it, [`Report`] prints operators × axioms,
//! and [`axioms!`](crate::axioms!) generates the tests:
//!
//! ```
//! use sk_aggregate::{Kernel, Pairwise, axioms};
//!
//! /// asinh(Δ/(2σ_i + σ_j)): my own dispersion counts double.
//! struct Wary;
//! impl Kernel for Wary {
//!     fn psi(&self, own: (f64, f64), rival: (f64, f64)) -> f64 {
//!         ((own.0 - rival.0) / (2.0 * own.1 + rival.1)).asinh()
//!     }
//! }
//!
//! // A test module `wary` with one test per axiom. A7 is declared broken, and so is A0: two candidates without dispersion that tie are
//! // rated 0/0. A declaration is a test too.
//! axioms!(wary => Pairwise(Wary), fails A0 A7);
//!
//! use sk_aggregate::axioms::{Axiom, DEFAULT_CASES, Verdict, check};
//! let Verdict::Violated { counterexample, .. } = check(Axiom::A7, &Pairwise(Wary), DEFAULT_CASES, 1) else { panic!() };
//! assert_eq!(counterexample.mu.len(), 2);
//! ```
//!
//! # What a verdict means
//! `Holds` means that no counterexample was found in the stated number of cases, not that none
//! exists. Cases have no fluency, so an operator with an [`Entry`](crate::Entry) is tested as if α
//! were zero. Rounding is allowed for. The changes are exact in binary arithmetic, so that an
//! operator on differences sees bit-identical differences, and the laws compare with a relative
//! tolerance of 1e-9. A4 requires strict growth only where a probit over max(σ_i, σ_j) still grows
//! in f64 (|Δ| up to 7 max(σ_i, σ_j)); elsewhere a rating may be constant but not decrease. At most
//! one candidate of a batch has no dispersion. The rating of two such candidates is a limit that
//! operators define themselves, and A0 only requires it to be finite. Only differences of ratings
//! are meaningful, so A2, A3′ and A6 compare differences.
//!
//! # Kernels seen from outside
//! A6, A7 and A8 are about the kernel ψ. If R_i = Σ_j ψ(i; j) holds for every N, then ψ(i; j) is
//! the first rating of the batch {i, j}. A6 requires that the ratings of N candidates be the sums
//! of the ratings of pairs, up to a common constant. A7 and A8 test the pairs.

mod axiom;
mod case;
pub mod counterexamples;
mod laws;
mod report;
mod shrink;
mod suite;
mod verdict;

pub use axiom::Axiom;
pub use case::{Case, Cases};
pub use laws::Violation;
pub use report::{Finding, Report, Row};
pub use suite::assert_declared;
pub use verdict::{DEFAULT_CASES, DEFAULT_SEED, Verdict, check};
