//! The axioms of an aggregation operator as laws that can be broken (feature `axioms`).
//!
//! One plain function per axiom ([`laws`]) takes any operator and a [`Case`], a batch with the
//! moves that the laws make, and says with both sides of the equation where the operator breaks it.
//! [`Cases`] generates cases from a seed and goes where operators break: near and exact ties,
//! dispersions over six decades, one candidate without dispersion, saturated differences, one to
//! sixteen candidates. [`check`] looks for a counterexample and shrinks it, [`Report`] prints
//! operators × axioms, and [`axioms!`](crate::axioms!) writes the tests:
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
//! `Holds` says that no counterexample was found in so many cases, never that there is none.
//! Rounding is allowed for: the moves are exact in binary arithmetic, so that an operator of
//! differences sees the same differences to the last bit, and the laws compare to a relative 1e-9.
//! A4 asks for strict growth only where a probit over max(σ_i, σ_j) still grows in 64 bits (|Δ| up
//! to 7 max(σ_i, σ_j)); elsewhere a rating may stand still but not go back. At most one candidate
//! of a batch has no dispersion: the rating of two such is a limit that operators define for
//! themselves, and A0 asks no more of it than to be finite. Only differences of ratings have a
//! meaning, so A2, A3′ and A6 compare differences.
//!
//! # Kernels seen from outside
//! A6, A7 and A8 speak of the kernel ψ. If R_i = Σ_j ψ(i; j) holds for every N, then ψ(i; j) is the
//! first rating of the batch {i, j}: A6 asks that the ratings of N be the sums of the ratings of
//! twos, up to one constant for all, and A7 and A8 look at the twos.

mod axiom;
mod case;
pub mod counterexamples;
pub mod laws;
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
