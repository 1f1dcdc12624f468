//! The search for the worst perturbation: it never exceeds a certificate, comes close to tight
//! ones, and reaches large jumps where there is no certificate.

use proptest::collection::vec;
use proptest::prelude::*;
use sk_aggregate::{
    Audit, Certify, Copeland, Entry, Fluent, Identity, Jump, PNorm, RoundRobin, Scores, SignedLog, StabilityCertificate, SwissElo,
};
use sk_core::{Aggregator, Batch, OperatingPoint, Selector};
use sk_select::{Argmax, Champion, Softmax, TopK, Uniform};

/// Rounding of a softmax of ratings known to 1e-14.
const ROUNDING: f64 = 1e-12;

/// Enough for seven candidates in a test.
const BRIEF: usize = 3000;

fn audit(radius: f64) -> Audit {
    Audit::new(radius).unwrap().with_evaluations(BRIEF)
}

fn certified() -> Vec<(&'static str, Box<dyn Certify>)> {
    vec![
        ("thurstone", Box::new(RoundRobin::thurstone())),
        ("bradley-terry", Box::new(RoundRobin::bradley_terry())),
        ("weakest link", Box::new(RoundRobin::weakest_link())),
        ("asinh", Box::new(RoundRobin::asinh())),
        ("signed log", Box::new(RoundRobin::new(SignedLog, PNorm::SUM))),
        ("identity", Box::new(RoundRobin::new(Identity, PNorm::EUCLIDEAN))),
        ("fluent", Box::new(Fluent::new(Entry::plain(0.3).unwrap(), RoundRobin::thurstone()))),
        ("scores", Box::new(Scores)),
    ]
}

/// Recomputes every value that a jump reports.
fn check(jump: &Jump, aggregator: &dyn Aggregator, selector: &dyn Selector, radius: f64) {
    let choice = |mu: &[f64]| {
        let (mut ratings, mut probabilities) = (vec![f64::NAN; mu.len()], vec![f64::NAN; mu.len()]);
        let mut batch = Batch::trusted(mu, &jump.sigma);
        if let Some(fluency) = &jump.fluency {
            batch = batch.with_trusted_fluency(fluency);
        }
        aggregator.rate(&batch, &mut ratings);
        selector.distribution(&ratings, &batch, &mut probabilities);
        probabilities
    };
    assert_eq!(
        (choice(&jump.before), choice(&jump.after)),
        (jump.probabilities_before.clone(), jump.probabilities_after.clone())
    );
    let apart = jump.probabilities_before.iter().zip(&jump.probabilities_after).map(|(p, q)| (p - q).abs()).sum::<f64>();
    assert_eq!(jump.total_variation, 0.5 * apart);
    for (before, after) in jump.before.iter().zip(&jump.after) {
        assert!((after - before).abs() <= radius, "{before} {after} {radius}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whether the search varies the change only or the scores too, no bound is exceeded:
    /// published, uniform or sharpened.
    #[test]
    fn a_certificate_is_never_exceeded(
        batch in vec((-2.0f64..2.0, -1.0f64..1.0, -3.0f64..0.0), 1..9),
        decade in -6.0f64..1.0, temperature in 0.05f64..4.0, seed in any::<u64>(),
    ) {
        let mu: Vec<f64> = batch.iter().map(|c| c.0).collect();
        let sigma: Vec<f64> = batch.iter().map(|c| 10f64.powf(c.1)).collect();
        let fluency: Vec<f64> = batch.iter().map(|c| c.2).collect();
        let batch = Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency);
        let (radius, softmax) = (10f64.powf(decade), Softmax::new(temperature).unwrap());
        let audit = audit(radius).with_seed(seed).with_evaluations(600);
        for (name, member) in certified() {
            let certificate = StabilityCertificate::new(&*member, &batch, temperature).unwrap();
            for jump in [audit.around(&*member, &softmax, &batch), audit.anywhere(&*member, &softmax, &batch)] {
                check(&jump, &*member, &softmax, radius);
                let found = jump.total_variation;
                for bound in [certificate.bound(radius), certificate.uniform(radius), certificate.published(radius)] {
                    prop_assert!(found <= bound + ROUNDING, "{name}: {found} > {bound}");
                }
            }
        }
    }

    /// Theorem 2 (i): with the argmax, the search finds a flip whenever the radius allows one.
    #[test]
    fn the_flip_of_the_argmax_is_found(mu in vec(-2.0f64..2.0, 2..9), part in 0.01f64..0.9) {
        let sigma = vec![1.0; mu.len()];
        let mut sorted = mu.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let half = 0.5 * (sorted[0] - sorted[1]);
        prop_assume!(half > 1e-9);
        let batch = Batch::trusted(&mu, &sigma);
        let found = |radius: f64| audit(radius).around(&Scores, &Argmax, &batch).total_variation;
        prop_assert_eq!(found(half * (1.0 + part)), 1.0);
        prop_assert_eq!(found(half * (1.0 - part)), 0.0);
    }
}

/// The search attains the bound where it is attained: an even number of tied candidates with equal
/// dispersions.
#[test]
fn the_search_reaches_what_can_be_reached() {
    for n in [2, 4, 6] {
        let (mu, sigma) = (vec![0.0; n], vec![1.0; n]);
        let batch = Batch::trusted(&mu, &sigma);
        let certificate = StabilityCertificate::new(&RoundRobin::thurstone(), &batch, 1.0).unwrap();
        let softmax = Softmax::new(1.0).unwrap();
        for jump in [
            audit(1e-3).around(&RoundRobin::thurstone(), &softmax, &batch),
            audit(1e-3).anywhere(&RoundRobin::thurstone(), &softmax, &batch),
        ] {
            let reached = jump.total_variation / certificate.bound(1e-3);
            // The rest is the curvature of the link at D = 1e-3.
            assert!(reached > 0.999, "{n}: {reached}");
        }
    }
}

/// E8: without a certificate, a change of 1e-9 moves the choice as much as one of 1e-3. The
/// tournament changes its pairing, and the champion's z-scores magnify the change.
#[test]
fn what_has_no_certificate_jumps_however_small_the_change() {
    let mu = [0.4, 0.1, -0.3, 0.2, -0.1, 0.05, 0.0];
    let sigma = [0.6, 0.9, 0.4, 0.7, 0.5, 0.8, 0.3];
    let fluency = [-1.2, -0.8, -1.5, -2.0, -1.1, -0.9, -1.4];
    let batch = Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency);
    let softmax = Softmax::new(1.0).unwrap();
    let champion = |temperature| Champion::sound(&OperatingPoint { temperature, ..OperatingPoint::HHH }).unwrap();
    let (cold, published) = (champion(0.5), champion(8.0));
    let thurstone = RoundRobin::thurstone();
    let standardized = Fluent::new(Entry::sound(0.5).unwrap(), RoundRobin::thurstone());
    let tournament = SwissElo::sound(5, 0.0).unwrap();
    let top = TopK::new(3, Softmax::new(1.0).unwrap()).unwrap();
    let cases: [(&str, &dyn Aggregator, &dyn Selector, f64); 8] = [
        ("tournament, softmax", &tournament, &softmax, 0.8),
        ("published tournament, softmax", &SwissElo::paper(5, 0.0).unwrap(), &softmax, 0.8),
        ("tournament, champion at T = 8", &tournament, &published, 0.25),
        ("thurstone, champion at T = 1/2", &thurstone, &cold, 0.9),
        ("thurstone of z-scores, softmax", &standardized, &softmax, 0.5),
        ("copeland, softmax", &Copeland, &softmax, 0.9),
        ("thurstone, argmax", &thurstone, &Argmax, 1.0),
        ("thurstone, top 3", &thurstone, &top, 0.9),
    ];
    for (name, aggregator, selector, least) in cases {
        for radius in [1e-3, 1e-6, 1e-9] {
            let jump = audit(radius).anywhere(aggregator, selector, &batch);
            check(&jump, aggregator, selector, radius);
            println!("{name}, {radius:e}: {:.3}", jump.total_variation);
            assert!(jump.total_variation >= least, "{name}, {radius:e}: {}", jump.total_variation);
        }
    }
    // With a certificate, what the same search finds falls with the radius.
    assert!(audit(1e-9).anywhere(&thurstone, &softmax, &batch).total_variation < 1e-8);
}

#[test]
fn around_a_batch_its_own_near_ties_are_what_counts() {
    let softmax = Softmax::new(1.0).unwrap();
    let sigma = [1.0; 4];
    let found = |mu: &[f64; 4]| audit(1e-6).around(&Copeland, &softmax, &Batch::trusted(mu, &sigma));
    assert_eq!(found(&[3.0, 2.0, 1.0, 0.0]).total_variation, 0.0);
    let jump = found(&[3.0, 1.0 + 1e-6, 1.0, 0.0]);
    assert!(jump.total_variation > 0.1 && jump.before == [3.0, 1.0 + 1e-6, 1.0, 0.0]);
}

#[test]
fn a_search_repeats_with_its_seed_and_keeps_to_its_limits() {
    let (mu, sigma, fluency) = ([0.3, 0.1, -0.2], [1.0, 0.5, 0.8], [-1.0, -2.0, -1.5]);
    let batch = Batch::trusted(&mu, &sigma).with_trusted_fluency(&fluency);
    let (tournament, softmax) = (SwissElo::sound(3, 0.5).unwrap(), Softmax::new(1.0).unwrap());
    let search = |seed, evaluations| {
        let jump = audit(0.01).with_seed(seed).with_evaluations(evaluations).anywhere(&tournament, &softmax, &batch);
        check(&jump, &tournament, &softmax, 0.01);
        assert_eq!(jump.fluency.as_deref(), Some(&fluency[..]));
        // Each start costs one evaluation more, and the last one is not counted.
        assert!(jump.evaluations <= evaluations.max(2) + 2, "{} of {evaluations}", jump.evaluations);
        jump
    };
    assert_eq!(search(1, BRIEF), search(1, BRIEF));
    assert!(search(1, BRIEF).total_variation >= search(1, 100).total_variation);
    for evaluations in [0, 1, 2, 10] {
        search(5, evaluations);
    }
    // Cases in which nothing can change.
    let still = |jump: Jump| assert_eq!((jump.total_variation, jump.before == jump.after), (0.0, true));
    still(audit(0.0).anywhere(&tournament, &softmax, &batch));
    still(audit(1.0).anywhere(&tournament, &softmax, &Batch::trusted(&[1.0], &[1.0])));
    assert_eq!(audit(1.0).anywhere(&tournament, &Uniform, &batch).total_variation, 0.0);
    for radius in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(Audit::new(radius).unwrap_err().to_string().contains("delta is"));
    }
    assert_eq!(Audit::new(0.5).unwrap().radius(), 0.5);
}

/// Scores at the ends of the floating-point range, where adding the radius rounds or overflows.
#[test]
fn extreme_scores_stay_finite_and_within_the_radius() {
    let softmax = Softmax::new(1.0).unwrap();
    for (mu, radius) in [
        ([1e308, -1e308, 0.0], 1e308),
        ([1e16, 1.0, -1e16], 0.3),
        ([f64::MAX, f64::MIN, 1.0], f64::MAX),
        ([1e-310, 0.0, 2e-310], 1e-311),
    ] {
        let batch = Batch::trusted(&mu, &[1.0, 0.0, 2.0]);
        for jump in [audit(radius).around(&Copeland, &softmax, &batch), audit(radius).anywhere(&Copeland, &softmax, &batch)] {
            check(&jump, &Copeland, &softmax, radius);
            assert!(jump.before.iter().chain(&jump.after).all(|x| x.is_finite()) && jump.total_variation.is_finite(), "{jump:?}");
        }
    }
}

/// A batch with too many candidates for all probes is still searched.
#[test]
fn many_candidates() {
    let mu: Vec<f64> = (0..300).map(|i| f64::from(i * 37 % 300) / 100.0).collect();
    let batch = Batch::trusted(&mu, &mu);
    let jump = audit(0.02).around(&Scores, &Argmax, &batch);
    assert_eq!(jump.total_variation, 1.0);
}

/// p_i ∝ R_i − min R + 1: a selector that calls no function of a mathematical library.
struct Linear;

impl Selector for Linear {
    fn distribution(&self, ratings: &[f64], _: &Batch<'_>, p: &mut [f64]) {
        let low = ratings.iter().copied().fold(f64::MAX, f64::min);
        let total: f64 = ratings.iter().map(|r| r - low + 1.0).sum();
        p.iter_mut().zip(ratings).for_each(|(p, r)| *p = (r - low + 1.0) / total);
    }
}

/// A seed always finds the same jumps: `reference/jumps.txt` records those of two operators.
#[test]
fn jumps_are_pinned_to_their_seed() {
    let mu = [0.5, 0.25, -0.375, 0.125, -0.0625, 0.0];
    let sigma = [0.5, 0.75, 1.0, 0.25, 0.5, 2.0];
    let mut found = String::new();
    for n in [2, 3, 6] {
        let batch = Batch::trusted(&mu[..n], &sigma[..n]);
        for (name, operator) in [("scores", &Scores as &dyn Aggregator), ("copeland", &Copeland)] {
            for (radius, evaluations) in [(0.25, 40), (0.25, 400), (1e-6, 1000)] {
                let audit = audit(radius).with_evaluations(evaluations);
                for (where_, jump) in
                    [("around", audit.around(operator, &Linear, &batch)), ("anywhere", audit.anywhere(operator, &Linear, &batch))]
                {
                    check(&jump, operator, &Linear, radius);
                    let numbers = |values: &[f64]| values.iter().map(|x| format!("{x:.4}")).collect::<Vec<_>>().join(" ");
                    found += &format!(
                        "{name}, N = {n}, D = {radius}, {evaluations} evaluations, {where_}: {:.6} in {}: {} -> {}\n",
                        jump.total_variation,
                        jump.evaluations,
                        numbers(&jump.before),
                        numbers(&jump.after)
                    );
                }
            }
        }
    }
    println!("{found}");
    for (new, old) in found.lines().zip(include_str!("reference/jumps.txt").lines()) {
        assert_eq!(new, old);
    }
    assert_eq!(found.lines().count(), include_str!("reference/jumps.txt").lines().count());
}
