//! Links against a reference of 40 digits, and the properties that the family requires of them.

mod reference;

use std::collections::BTreeMap;

use proptest::prelude::*;
use reference::{ELEMENTARY, links as referenced, student};
use sk_aggregate::{Asinh, Identity, Laplace, Link, Logistic, Probit, SignedLog, StudentT, Tanh};

/// The pairs (u, g(u)) of each link, by name.
fn table() -> BTreeMap<String, Vec<(f64, f64)>> {
    serde_json::from_str(include_str!("reference/links.json")).expect("the reference is a table of pairs")
}

#[test]
fn links_agree_with_forty_digits() {
    let table = table();
    assert_eq!(table.len(), referenced::<f64>().len());
    for (name, link, tolerance) in referenced::<f64>() {
        let mut worst = (0.0, 0.0);
        for &(u, expected) in &table[name] {
            let error = (link.g(u) / expected - 1.0).abs();
            assert!(error <= tolerance, "{name}: g({u:e}) = {:e} is not {expected:e}, relative error {error:e}", link.g(u));
            worst = if error > worst.0 { (error, u) } else { worst };
            assert_eq!(link.g(-u), -link.g(u), "{name} at {u}");
        }
        println!("{name}: worst relative error {:.2e} at u = {:e}", worst.0, worst.1);
    }
}

#[test]
fn single_precision_is_the_rounded_double() {
    let table = table();
    for (name, link, _) in referenced::<f32>() {
        for &(u, expected) in table[name].iter().filter(|(u, _)| (1e-20..1e30).contains(u)) {
            // The argument is rounded too.
            assert!((f64::from(link.g(u as f32)) / expected - 1.0).abs() < 4e-7, "{name} at {u}");
        }
    }
}

/// Every link, with a bound on |u| below which it is not saturated.
fn links() -> Vec<(&'static str, Box<dyn Link>, f64)> {
    vec![
        ("probit", Box::new(Probit), 5.0),
        ("logistic", Box::new(Logistic), 20.0),
        ("tanh", Box::new(Tanh), 10.0),
        ("laplace", Box::new(Laplace), 20.0),
        ("student", Box::new(student(3.5)), 30.0),
        ("student, of many degrees", Box::new(student(100.0)), 8.0),
        ("cauchy", Box::new(student(1.0)), 1e3),
        ("asinh", Box::new(Asinh), 1e300),
        ("signed log", Box::new(SignedLog), 1e300),
        ("identity", Box::new(Identity), 1e300),
    ]
}

proptest! {
    #[test]
    fn links_are_odd_and_increase(u in -1.0f64..1.0, v in -1.0f64..1.0, decades in 0.0f64..8.0) {
        for (name, link, bound) in links() {
            // From the bound down to values many decades smaller.
            let (u, v) = (u * bound * 10f64.powf(-decades), v * bound * 10f64.powf(-decades));
            prop_assert_eq!(link.g(-u), -link.g(u), "{}", name);
            let gap = (u - v).abs();
            // A gap larger than the rounding of g.
            prop_assume!(gap > 1e-3 * u.abs().max(v.abs()));
            if gap > 1e-6 * bound {
                prop_assert!((link.g(u) - link.g(v)) * (u - v) > 0.0, "{name}: {u} {v}");
            } else {
                prop_assert!((link.g(u) - link.g(v)) * (u - v) >= 0.0, "{name}: {u} {v}");
            }
        }
    }

    #[test]
    fn the_lipschitz_constant_bounds_the_slope_and_is_reached_at_zero(u in -20.0f64..20.0, v in -20.0f64..20.0) {
        for (name, link, _) in links() {
            let l = link.lipschitz().unwrap();
            let rise = (link.g(u) - link.g(v)).abs();
            prop_assert!(rise <= l * (u - v).abs() * (1.0 + 1e-9) + 1e-15, "{name}: {rise} {u} {v}");
            let h = 1e-6;
            // g′(0) as a one-sided difference; the curvature of the Laplace link at 0 adds an error
            // of h/2.
            prop_assert!((link.g(h) / h / l - 1.0).abs() < 2e-6, "{name}");
        }
    }

    #[test]
    fn attenuation_is_exact_where_u_times_the_slope_rises(u in 1e-3f64..1e6, factor in 1.01f64..10.0) {
        // The equivalent form of A5: u·g′(u) never decreases. Computed by central differences.
        let weight = |link: &dyn Link, u: f64| (link.g(u * 1.0001) - link.g(u / 1.0001)) / 2e-4;
        for link in [&Asinh as &dyn Link, &SignedLog, &Identity] {
            prop_assert!(weight(link, u * factor) >= weight(link, u) * (1.0 - 1e-6));
        }
        // No bounded link has this property: beyond u* (1 for the probit, 1.5434 for the logistic)
        // the product decreases.
        for (link, threshold) in [(&Probit as &dyn Link, 1.0), (&Logistic, 1.5434)] {
            let (inside, outside) = (threshold * (1.0 - 0.5 / factor), threshold * factor.min(3.0));
            prop_assert!(weight(link, inside) <= weight(link, threshold) * (1.0 + 1e-6));
            prop_assert!(weight(link, outside) < weight(link, threshold));
        }
    }
}

#[test]
fn degrees_of_freedom_are_checked() {
    for nu in [0.0, -1.0, 0.0999, f64::NAN, f64::INFINITY] {
        assert!(StudentT::new(nu).is_err());
    }
    let refused = StudentT::new(0.05).unwrap_err().to_string();
    assert_eq!(refused, "nu is 0.05; it must be finite and at least 0.1");
    assert!([4.0, 0.1, 25.0, f64::MAX].iter().all(|&nu| StudentT::new(nu).is_ok()));
}

/// For all degrees of freedom, Student's t increases everywhere, with at most its slope at 0: its
/// formulas join without a jump.
#[test]
fn students_t_has_its_slope_at_any_degrees_of_freedom() {
    /// Rounding of g ≤ ½, and of a tail subtracted from ½.
    const ROUNDING: f64 = 2e-15;
    let grid: Vec<f64> = (0..=1024).map(|k| f64::from(k) / 64.0).collect();
    // Seven values per decade from 0.1 to 1e16, fewer up to 1e300, and values where the formula
    // changes.
    let decades = (0..120).map(|k| f64::from(k) / 7.0).chain((18..=300).step_by(6).map(f64::from));
    for nu in decades.map(|decade| StudentT::FEWEST * 10f64.powf(decade)).chain([19.999_999, 20.0, 20.000_001]) {
        let link = student(nu);
        let slope: f64 = link.lipschitz().unwrap();
        assert!((link.g(1e-9) / (1e-9 * slope) - 1.0).abs() < ROUNDING, "{nu}: L_g = {slope} is not the slope at 0");
        let mut g = grid.clone();
        link.apply(&mut g);
        for (k, step) in g.windows(2).enumerate() {
            let rise = step[1] - step[0];
            let allowed = slope / 64.0 + ROUNDING;
            assert!((-ROUNDING..=allowed).contains(&rise), "{nu}: by {rise} of {allowed} from u = {}", grid[k]);
        }
    }
}

/// With many degrees of freedom Student's t tends to the probit, and equals it to rounding from
/// 1e16 on. The formulas below and above 20 agree.
#[test]
fn students_t_is_one_function_of_its_degrees_of_freedom() {
    for u in [1e-300f64, 1e-3, 0.7, 1.7, 1.8, 3.0, 6.0, 1e3, 1e300] {
        for nu in [1e16, 1e100, f64::MAX] {
            assert!((student(nu).g(u) / Probit.g(u) - 1.0).abs() < 2.0 * ELEMENTARY, "{nu} at {u}");
        }
        let (below, above): (f64, f64) = (student(20f64.next_down()).g(u), student(20.0).g(u));
        assert!((below / above - 1.0).abs() < 4e-15, "{u}: {below} {above}");
    }
}

#[test]
fn links_work_through_pointers() {
    let boxed: Box<dyn Link> = Box::new(Identity);
    let shared: std::sync::Arc<dyn Link> = std::sync::Arc::new(Identity);
    assert_eq!((boxed.g(2.0), shared.g(2.0), Link::<f64>::g(&&Identity, 2.0)), (2.0, 2.0, 2.0));
    assert_eq!(boxed.lipschitz(), Some(1.0));
}
