//! The links of `links.json` and their values to 40 digits.

use std::collections::BTreeMap;

use sk_aggregate::{Asinh, Laplace, Link, Logistic, Probit, SignedLog, StudentT, Tanh};
use sk_core::Real;

/// What Student's t may be off by, relative: of the fewest degrees of freedom a small g is what a
/// tail leaves of ½.
pub(crate) const STUDENT: f64 = 2e-14;

/// Degrees of freedom of the table, the fewest among them, and on either side of where the
/// continued fraction ends.
const STUDENTS: [(&str, f64); 21] = [
    ("student_0.1", 0.1),
    ("student_0.3", 0.3),
    ("student_1", 1.0),
    ("student_2", 2.0),
    ("student_3.5", 3.5),
    ("student_8", 8.0),
    ("student_14.5", 14.5),
    ("student_19.9", 19.9),
    ("student_20", 20.0),
    ("student_21.5", 21.5),
    ("student_30", 30.0),
    ("student_64", 64.0),
    ("student_100", 100.0),
    ("student_1000", 1000.0),
    ("student_10000", 10_000.0),
    ("student_1e6", 1e6),
    ("student_1e9", 1e9),
    ("student_1e12", 1e12),
    ("student_1e16", 1e16),
    ("student_1e100", 1e100),
    ("student_1e300", 1e300),
];

/// (u, g(u)) of each link, by name.
pub(crate) fn table() -> BTreeMap<String, Vec<(f64, f64)>> {
    serde_json::from_str(include_str!("links.json")).expect("the reference is a table of pairs")
}

pub(crate) fn student(nu: f64) -> StudentT {
    StudentT::new(nu).expect("positive and finite")
}

/// Every link of the table by its name there, and how far it may be from the table, relative:
/// `elementary` for those made of one elementary function.
pub(crate) fn links<F: Real>(elementary: f64) -> Vec<(&'static str, Box<dyn Link<F>>, f64)> {
    let mut links: Vec<(&'static str, Box<dyn Link<F>>, f64)> = vec![
        ("probit", Box::new(Probit), elementary),
        ("logistic", Box::new(Logistic), elementary),
        ("tanh", Box::new(Tanh), elementary),
        ("laplace", Box::new(Laplace), elementary),
        ("asinh", Box::new(Asinh), elementary),
        ("signed_log", Box::new(SignedLog), elementary),
    ];
    links.extend(STUDENTS.map(|(name, nu)| (name, Box::new(student(nu)) as Box<dyn Link<F>>, STUDENT)));
    links
}
