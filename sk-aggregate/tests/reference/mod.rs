//! The links of `links.json` and their values to 40 digits.

use std::collections::BTreeMap;

use sk_aggregate::{Asinh, Laplace, Link, Logistic, Probit, SignedLog, StudentT, Tanh};
use sk_core::Real;

/// What the continued fraction of Student's t may be off by, relative, one at a time and by its forward recurrence.
pub(crate) const INCOMPLETE_BETA: f64 = 2e-13;

/// (u, g(u)) of each link, by name.
pub(crate) fn table() -> BTreeMap<String, Vec<(f64, f64)>> {
    serde_json::from_str(include_str!("links.json")).expect("the reference is a table of pairs")
}

pub(crate) fn student(nu: f64) -> StudentT {
    StudentT::new(nu).expect("positive and finite")
}

/// Every link of the table by its name there, and how far it may be from the table, relative: `elementary` for those made of one
/// elementary function.
pub(crate) fn links<F: Real>(elementary: f64) -> Vec<(&'static str, Box<dyn Link<F>>, f64)> {
    vec![
        ("probit", Box::new(Probit), elementary),
        ("logistic", Box::new(Logistic), elementary),
        ("tanh", Box::new(Tanh), elementary),
        ("laplace", Box::new(Laplace), elementary),
        ("asinh", Box::new(Asinh), elementary),
        ("signed_log", Box::new(SignedLog), elementary),
        ("student_0.1", Box::new(student(0.1)), INCOMPLETE_BETA),
        ("student_1", Box::new(student(1.0)), INCOMPLETE_BETA),
        ("student_2", Box::new(student(2.0)), INCOMPLETE_BETA),
        ("student_3.5", Box::new(student(3.5)), INCOMPLETE_BETA),
        ("student_30", Box::new(student(30.0)), INCOMPLETE_BETA),
        ("student_10000", Box::new(student(10_000.0)), INCOMPLETE_BETA),
    ]
}
