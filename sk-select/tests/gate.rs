//! Gates on the scores of single blades.

use sk_core::{Batch, OperatingPoint, ScoreTable, Selector};
use sk_select::{Argmax, Champion, Criterion, Gate, GateFallback, Nucleus, TopK};

const MU: [f64; 4] = [2.0, 1.0, 0.5, -1.0];
const SIGMA: [f64; 4] = [0.4, 0.3, 0.2, 0.1];
const RATINGS: [f64; 4] = [9.0, 7.0, 5.0, 3.0];

/// Candidate 0 is the most helpful and the least harmless.
fn blades() -> ScoreTable {
    let helpful = ([3.0, 2.0, 1.0, 0.0], [0.0; 4]);
    let harmless = ([-0.9, -0.2, 0.1, 0.3], [0.1, 0.5, 0.1, 0.9]);
    ScoreTable::new([helpful, harmless]).unwrap().with_names(["helpful", "harmless"]).unwrap()
}

fn select(rule: &dyn Selector, batch: &Batch<'_>) -> Vec<f64> {
    let mut probabilities = vec![f64::NAN; batch.len()];
    rule.distribution(&RATINGS[..batch.len()], batch, &mut probabilities);
    probabilities
}

fn gate<S>(name: &str, kappa: f64, threshold: f64, fallback: GateFallback, inner: S) -> Gate<S> {
    Gate::new(Criterion::Blade { name: name.into(), kappa }, threshold, fallback, inner).unwrap()
}

#[test]
fn what_a_blade_puts_below_its_threshold_cannot_be_drawn() {
    let table = blades();
    let batch = Batch::trusted(&MU, &SIGMA).with_blades(&table);
    let harmless = |threshold| {
        Gate::new(Criterion::Blade { name: "harmless".into(), kappa: 0.0 }, threshold, GateFallback::Best, Argmax).unwrap()
    };
    assert_eq!(select(&harmless(-0.5), &batch), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(select(&harmless(-0.2), &batch), [0.0, 1.0, 0.0, 0.0]);
    assert_eq!(select(&harmless(0.0), &batch), [0.0, 0.0, 1.0, 0.0]);
    // With κ = 1 the values are −1, −0.7, 0 and −0.6.
    assert_eq!(select(&gate("harmless", 1.0, -0.65, GateFallback::Best, Argmax), &batch), [0.0, 0.0, 1.0, 0.0]);
    // If no candidate passes: the least harmful one, or the choice without the gate.
    assert_eq!(select(&harmless(0.5), &batch), [0.0, 0.0, 0.0, 1.0]);
    assert_eq!(select(&gate("harmless", 0.0, 0.5, GateFallback::Open, Argmax), &batch), [1.0, 0.0, 0.0, 0.0]);
}

#[test]
fn a_boundary_that_cannot_be_checked_selects_nothing() {
    let table = blades();
    let without = Batch::trusted(&MU, &SIGMA);
    let batches = [without, without.with_blades(&table)];
    for batch in batches {
        for fallback in [GateFallback::Best, GateFallback::Open] {
            let rule = gate("honest", 0.0, f64::NEG_INFINITY, fallback, Argmax);
            assert!(select(&rule, &batch).iter().all(|p| p.is_nan()), "{fallback:?}");
        }
    }
}

#[test]
fn gates_nest_and_the_inner_one_sees_those_that_passed() {
    let table = blades();
    let batch = Batch::trusted(&MU, &SIGMA).with_blades(&table);
    let champion = Champion::sound(&OperatingPoint::HHH).unwrap();
    let inner = gate("helpful", 0.0, 0.5, GateFallback::Best, champion);
    let p = select(&gate("harmless", 0.0, -0.5, GateFallback::Best, inner), &batch);
    // 1, 2 and 3 are harmless enough. Of those, 1 and 2 are helpful enough.
    let alone = {
        let mut p = [f64::NAN; 2];
        champion.distribution(&RATINGS[1..3], &Batch::trusted(&MU[1..3], &SIGMA[1..3]), &mut p);
        p
    };
    assert_eq!(p, [0.0, alone[0], alone[1], 0.0]);
}

#[test]
fn rules_name_the_blades_they_look_at() {
    let named = |rule: &dyn Selector| rule.blades().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(named(&Argmax).is_empty());
    assert!(named(&Gate::new(Criterion::LowerBound { kappa: 0.0 }, 0.0, GateFallback::Best, Argmax).unwrap()).is_empty());
    let nested = gate("a", 0.0, 0.0, GateFallback::Best, gate("b", 0.0, 0.0, GateFallback::Best, Argmax));
    assert_eq!(named(&nested), ["b", "a"]);
    assert_eq!(named(&TopK::new(2, nested.clone()).unwrap()), ["b", "a"]);
    assert_eq!(named(&Nucleus::new(0.5, Box::new(nested) as Box<dyn Selector>).unwrap()), ["b", "a"]);
}

#[test]
fn impossible_bounds_are_refused() {
    let refuse = |kappa, threshold| {
        let criterion = Criterion::Blade { name: "a".into(), kappa };
        Gate::new(criterion, threshold, GateFallback::Best, Argmax).unwrap_err().to_string()
    };
    assert_eq!(refuse(f64::INFINITY, 0.0), "kappa is inf; it must be finite");
    assert_eq!(refuse(0.0, f64::NAN), "threshold is NaN; it must be a number");
}
