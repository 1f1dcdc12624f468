//! The links of `links.json`, which has values to 40 digits.

use sk_aggregate::{Asinh, Laplace, Link, Logistic, Probit, SignedLog, StudentT, Tanh};
use sk_core::Real;

/// The relative error that `Link::apply` and `Spread::apply` guarantee: some ten roundings, none of
/// them magnified. The largest observed is 9e-16.
pub(crate) const ELEMENTARY: f64 = 2e-15;

/// The largest relative error of Student's t. With few degrees of freedom, a small g is ½ minus a
/// tail.
pub(crate) const STUDENT: f64 = 2e-14;

/// The degrees of freedom in the table. They include the smallest that is allowed, and values on
/// both sides of the end of the continued fraction.
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

pub(crate) fn student(nu: f64) -> StudentT {
    StudentT::new(nu).expect("positive and finite")
}

/// Every link of the table: its name there, the link, and its largest relative error.
pub(crate) fn links<F: Real>() -> Vec<(&'static str, Box<dyn Link<F>>, f64)> {
    let mut links: Vec<(&'static str, Box<dyn Link<F>>, f64)> = vec![
        ("probit", Box::new(Probit), ELEMENTARY),
        ("logistic", Box::new(Logistic), ELEMENTARY),
        ("tanh", Box::new(Tanh), ELEMENTARY),
        ("laplace", Box::new(Laplace), ELEMENTARY),
        ("asinh", Box::new(Asinh), ELEMENTARY),
        ("signed_log", Box::new(SignedLog), ELEMENTARY),
    ];
    links.extend(STUDENTS.map(|(name, nu)| (name, Box::new(student(nu)) as Box<dyn Link<F>>, STUDENT)));
    links
}
