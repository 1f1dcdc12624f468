//! The pairwise family: the axioms of its members, the limits, and the named counterexamples.

use proptest::prelude::*;
use sk_aggregate::{
    Asinh, Copeland, DivergenceMixture, Entry, Fluent, Identity, Laplace, Link, Logistic, PNorm, Probit, RoundRobin, Scores,
    SignedLog, Spread, StudentT, Tanh,
};
use sk_core::{Aggregator, Batch, Divergence, Real};

/// Rounding of a sum of at most 12 bounded links, whose arguments are accurate to a few units in
/// the last place.
const TOLERANCE: f64 = 1e-9;

fn rate<F: Real>(aggregator: &dyn Aggregator<F>, mu: &[F], sigma: &[F]) -> Vec<F> {
    let mut ratings = vec![F::nan(); mu.len()];
    aggregator.rate(&Batch::trusted(mu, sigma), &mut ratings);
    ratings
}

fn spreads() -> Vec<(&'static str, PNorm)> {
    let p = |p| PNorm::new(p).unwrap();
    vec![("1", PNorm::SUM), ("1.5", p(1.5)), ("2", PNorm::EUCLIDEAN), ("7", p(7.0)), ("1e6", p(1e6)), ("∞", PNorm::MAXIMUM)]
}

/// Every link with every spread, or only the bounded links.
fn members(bounded_only: bool) -> Vec<(String, Box<dyn Aggregator>)> {
    let mut members: Vec<(String, Box<dyn Aggregator>)> = Vec::new();
    for (p, spread) in spreads() {
        let mut add = |name: &str, aggregator: Box<dyn Aggregator>| members.push((format!("{name}, p = {p}"), aggregator));
        add("probit", Box::new(RoundRobin::new(Probit, spread)));
        add("logistic", Box::new(RoundRobin::new(Logistic, spread)));
        add("tanh", Box::new(RoundRobin::new(Tanh, spread)));
        add("laplace", Box::new(RoundRobin::new(Laplace, spread)));
        add("student", Box::new(RoundRobin::new(StudentT::new(3.0).unwrap(), spread)));
        if !bounded_only {
            add("asinh", Box::new(RoundRobin::new(Asinh, spread)));
            add("signed log", Box::new(RoundRobin::new(SignedLog, spread)));
            add("identity", Box::new(RoundRobin::new(Identity, spread)));
        }
    }
    members
}

/// Scores whose standardised differences saturate no link: |Δ| ≤ 4, σ ≥ 1.
fn batches() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
    (2usize..12).prop_flat_map(|n| (proptest::collection::vec(-2.0f64..2.0, n), proptest::collection::vec(1.0f64..5.0, n)))
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= TOLERANCE * a.abs().max(1.0))
}

proptest! {
    #[test]
    fn ratings_are_the_sum_of_the_definition((mu, sigma) in batches()) {
        for (p, spread) in spreads() {
            for link in [&Probit as &dyn Link, &Logistic, &Asinh, &Identity] {
                let expected: Vec<f64> = (0..mu.len())
                    .map(|i| (0..mu.len()).filter(|&j| j != i).map(|j| link.g((mu[i] - mu[j]) / spread.s(sigma[i], sigma[j]))).sum())
                    .collect();
                prop_assert!(close(&rate(&RoundRobin::new(link, spread), &mu, &sigma), &expected), "p = {p}");
            }
        }
    }

    #[test]
    fn a1_ratings_follow_their_candidates((mu, sigma) in batches(), turn in 0usize..12) {
        let turned = |v: &[f64]| { let mut v = v.to_vec(); v.rotate_left(turn % mu.len()); v.reverse(); v };
        for (name, member) in members(false) {
            let expected = turned(&rate(&member, &mu, &sigma));
            prop_assert!(close(&rate(&member, &turned(&mu), &turned(&sigma)), &expected), "{name}");
        }
    }

    #[test]
    fn a2_a3_shifting_and_rescaling_change_no_rating((mu, sigma) in batches(), shift in -1e3f64..1e3, decade in -9i32..9) {
        let a = 10f64.powi(decade);
        let moved: Vec<f64> = mu.iter().map(|m| a * (m + shift)).collect();
        let scaled: Vec<f64> = sigma.iter().map(|s| a * s).collect();
        for (name, member) in members(false) {
            prop_assert!(close(&rate(&member, &moved, &scaled), &rate(&member, &mu, &sigma)), "{name}");
        }
    }

    #[test]
    fn a4_a_higher_score_helps_its_candidate_and_hurts_every_rival(
        (mu, sigma) in batches(), who: prop::sample::Index, step in 0.01f64..1.0,
    ) {
        let i = who.index(mu.len());
        let mut raised = mu.clone();
        raised[i] += step;
        for (name, member) in members(false) {
            let (before, after) = (rate(&member, &mu, &sigma), rate(&member, &raised, &sigma));
            for j in 0..mu.len() {
                prop_assert!(if i == j { after[j] > before[j] } else { after[j] < before[j] }, "{name}");
            }
        }
    }

    #[test]
    fn ratings_sum_to_zero((mu, sigma) in batches()) {
        for (name, member) in members(false) {
            prop_assert!(rate(&member, &mu, &sigma).iter().sum::<f64>().abs() < TOLERANCE, "{name}");
        }
    }

    #[test]
    fn the_envelope_of_sensitivity_holds_and_falls_with_dispersion((mu, sigma) in batches(), more in 1.0f64..4.0) {
        // A5′: |ΔR_0| ≤ L_g Σ_j |Δμ_0| / s_0j, and this bound falls as σ_0 grows.
        let h = 0.01;
        let mut raised = mu.clone();
        raised[0] += h;
        let mut wider = sigma.clone();
        wider[0] *= more;
        let links: [&dyn Link; 4] = [&Probit, &Logistic, &Asinh, &Laplace];
        for (_, spread) in spreads() {
            for link in links {
                let envelope = |sigma: &[f64]| {
                    link.lipschitz().unwrap() * (1..mu.len()).map(|j| 1.0 / spread.s(sigma[0], sigma[j])).sum::<f64>()
                };
                let member = RoundRobin::new(link, spread);
                let moved = rate(&member, &raised, &sigma)[0] - rate(&member, &mu, &sigma)[0];
                prop_assert!(moved <= envelope(&sigma) * h + TOLERANCE);
                prop_assert!(envelope(&wider) <= envelope(&sigma) * (1.0 + TOLERANCE));
            }
        }
    }

    #[test]
    fn a5_is_exact_for_the_slow_links((mu, sigma) in batches(), more in 1.0f64..10.0) {
        let h = 1e-4;
        let sensitivity = |member: &dyn Aggregator, sigma: &[f64]| {
            let at = |shift: f64| {
                let mut mu = mu.clone();
                mu[0] += shift;
                rate(member, &mu, sigma)[0]
            };
            (at(h) - at(-h)) / (2.0 * h)
        };
        let mut wider = sigma.clone();
        wider[0] *= more;
        for (_, spread) in spreads() {
            let slow: [&dyn Aggregator; 2] = [&RoundRobin::new(Asinh, spread), &RoundRobin::new(Identity, spread)];
            for member in slow {
                // Central differences of ratings that are accurate to 1e-15, divided by h.
                prop_assert!(sensitivity(member, &wider) <= sensitivity(member, &sigma) + 1e-7);
            }
        }
    }

    #[test]
    fn the_limit_of_certainty_is_the_copeland_score(mu in proptest::collection::vec(-4i32..4, 1..10)) {
        let mu: Vec<f64> = mu.into_iter().map(f64::from).collect();
        let zeros = vec![0.0; mu.len()];
        let copeland = rate(&Copeland, &mu, &zeros);
        for (name, member) in members(true) {
            let at_zero = rate(&member, &mu, &zeros);
            let height = if name.starts_with("tanh") { 1.0 } else { 0.5 };
            let expected: Vec<f64> = copeland.iter().map(|c| height * c).collect();
            prop_assert!(close(&at_zero, &expected), "{name}: {at_zero:?} {expected:?}");
            // Continuity: dispersions of 1e-12 give the same ratings within the tolerance.
            let near = rate(&member, &mu, &vec![1e-12; mu.len()]);
            prop_assert!(close(&near, &expected), "{name}: {near:?} {expected:?}");
        }
        // Unbounded links give the same order of candidates, ties included.
        for member in [&RoundRobin::asinh() as &dyn Aggregator, &RoundRobin::new(SignedLog, PNorm::SUM)] {
            let ratings = rate(member, &mu, &zeros);
            for i in 0..mu.len() {
                for j in 0..mu.len() {
                    prop_assert!(mu[i] <= mu[j] || ratings[i] > ratings[j]);
                    prop_assert!(mu[i] != mu[j] || (ratings[i] - ratings[j]).abs() < TOLERANCE * ratings[i].abs().max(1.0));
                }
            }
        }
    }

    /// The Borda count gives 1 for each lower candidate and ½ for each tie. It is the limit of
    /// expected wins as dispersions vanish: half the Copeland score plus (N − 1)/2, and Thurstone's
    /// ratings plus ½ per rival.
    #[test]
    fn the_limit_of_expected_wins_is_the_borda_count(mu in proptest::collection::vec(-4i32..4, 1..10)) {
        let mu: Vec<f64> = mu.into_iter().map(f64::from).collect();
        let half = 0.5 * (mu.len() as f64 - 1.0);
        let points = |m: &f64, other: &f64| if other < m { 1.0 } else if other == m { 0.5 } else { 0.0 };
        // Subtract the tie of a candidate with itself.
        let borda: Vec<f64> = mu.iter().map(|m| mu.iter().map(|other| points(m, other)).sum::<f64>() - 0.5).collect();
        let of_copeland: Vec<f64> = rate(&Copeland, &mu, &vec![0.0; mu.len()]).iter().map(|c| 0.5 * c + half).collect();
        prop_assert_eq!(&of_copeland, &borda);
        for dispersion in [0.0, 1e-12] {
            for member in [&RoundRobin::thurstone() as &dyn Aggregator, &RoundRobin::bradley_terry()] {
                let wins: Vec<f64> = rate(member, &mu, &vec![dispersion; mu.len()]).iter().map(|r| r + half).collect();
                prop_assert!(close(&wins, &borda), "{wins:?} {borda:?}");
            }
        }
    }

    #[test]
    fn any_finite_scores_have_finite_ratings(players in proptest::collection::vec(
        (prop_oneof![-1e308f64..1e308, -1.0f64..1.0, -1e-300f64..1e-300, Just(0.0), Just(f64::MAX), Just(f64::MIN), Just(5e-324)],
         prop_oneof![0.0f64..1e308, 0.0f64..1e-300, Just(0.0), Just(f64::MAX), Just(5e-324)]), 1..9)) {
        let (mu, sigma): (Vec<f64>, Vec<f64>) = players.into_iter().unzip();
        for (name, member) in members(false) {
            let ratings = rate(&member, &mu, &sigma);
            prop_assert!(ratings.iter().all(|r| r.is_finite()), "{name}: {ratings:?}");
        }
    }

    #[test]
    fn spreads_fall_from_the_sum_to_the_maximum(a in 0.0f64..10.0, b in 0.0f64..10.0, p in 1.0f64..50.0, q in 0.0f64..50.0) {
        let s = |p: f64| PNorm::new(p).unwrap().s(a, b);
        let slack = 1.0 + 1e-12;
        prop_assert!(s(p) <= PNorm::SUM.s(a, b) * slack && s(p) * slack >= PNorm::MAXIMUM.s(a, b));
        prop_assert!(s(p + q) <= s(p) * slack);
        prop_assert_eq!(PNorm::new(p).unwrap().s(b, a), s(p));
        prop_assert!((PNorm::new(2.0).unwrap().s(a, b) - a.hypot(b)).abs() <= 1e-14 * a.hypot(b));
    }

    #[test]
    fn single_precision_follows_double((mu, sigma) in batches()) {
        let narrow = |v: &[f64]| v.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let single = rate(&RoundRobin::thurstone(), &narrow(&mu), &narrow(&sigma));
        for (a, b) in single.iter().zip(rate(&RoundRobin::thurstone(), &mu, &sigma)) {
            // A sum of a dozen links, whose arguments are accurate to 1e-6.
            prop_assert!((f64::from(*a) - b).abs() < 2e-5, "{a} {b}");
        }
    }
}

#[test]
fn named_members_by_hand() {
    // N = 2: Φ(3/5) − ½, the logistic of 3/7, Φ(3/4) − ½, asinh(3/5).
    let (mu, sigma) = ([3.0, 0.0], [3.0, 4.0]);
    let first = |member: &dyn Aggregator| rate(member, &mu, &sigma)[0];
    assert!((first(&RoundRobin::thurstone()) - 0.225_746_882_249_926_4).abs() < 1e-15);
    assert!((first(&RoundRobin::bradley_terry()) - (1.0 / (1.0 + (-3.0f64 / 7.0).exp()) - 0.5)).abs() < 1e-15);
    assert!((first(&RoundRobin::weakest_link()) - 0.273_372_647_623_131_8).abs() < 1e-15);
    assert!((first(&RoundRobin::asinh()) - 0.6f64.asinh()).abs() < 1e-15);
    assert_eq!(first(&Scores), 3.0);
    assert_eq!(rate(&Copeland, &[1.0, 5.0, 1.0, -2.0], &[0.0; 4]), [0.0, 3.0, 0.0, -3.0]);
    for member in [&RoundRobin::thurstone() as &dyn Aggregator, &Copeland] {
        assert_eq!(rate(member, &[7.0], &[1.0]), [0.0]);
    }
}

#[test]
fn some_certain_candidates_among_uncertain_ones() {
    // c0 and c1 are certain and 1 apart; c2 is uncertain. The pair (0, 1) is at the limit, the
    // other pairs are not.
    let ratings = rate(&RoundRobin::thurstone(), &[1.0, 0.0, 0.0], &[0.0, 0.0, 1.0]);
    let phi_1 = 0.341_344_746_068_542_9;
    assert!(close(&ratings, &[0.5 + phi_1, -0.5, -phi_1]), "{ratings:?}");
    // An exact tie of certain candidates is a draw.
    assert_eq!(rate(&RoundRobin::thurstone(), &[2.0, 2.0], &[0.0, 0.0]), [0.0, 0.0]);
}

/// For a bounded link, `u · g′(u)` falls beyond a threshold. There, a score with a larger
/// dispersion moves its rating *more*.
#[test]
fn thurstone_violates_attenuation() {
    let sensitivity = |sigma: f64| {
        let h = 1e-4;
        let at = |mu: f64| rate(&RoundRobin::thurstone(), &[mu, 0.0], &[sigma, 0.1])[0];
        (at(1.0 + h) - at(1.0 - h)) / (2.0 * h)
    };
    assert!(sensitivity(0.1) < 1e-9, "{}", sensitivity(0.1));
    assert!((sensitivity(1.0) - 0.242).abs() < 1e-3, "{}", sensitivity(1.0));
}

/// As all dispersions vanish together, the identity link may still rank another candidate above the
/// highest score.
#[test]
fn the_identity_link_need_not_tend_to_the_argmax() {
    let first = |member: &dyn Aggregator, t: f64| {
        let ratings = rate(member, &[1.0, 0.9, 0.0], &[10.0 * t, 0.1 * t, 0.1 * t]);
        (0..3).max_by(|&a, &b| ratings[a].total_cmp(&ratings[b])).unwrap()
    };
    for t in [1.0, 1e-3, 1e-9, 1e-100] {
        assert_eq!(first(&RoundRobin::new(Identity, PNorm::EUCLIDEAN), t), 1);
    }
    for member in [&RoundRobin::thurstone() as &dyn Aggregator, &RoundRobin::asinh()] {
        assert_eq!(first(member, 1e-9), 0);
    }
}

/// Slowly growing links tend to the argmax along rays σ = t·σ⁰, but not along every path to zero:
/// with σ = (t, e^(−1/t), e^(−1/t)), and with σ = (t, 0, 0), the certain win of the second
/// candidate outweighs its loss to the first at every t. Bounded links tend to the argmax along any
/// path.
#[test]
fn slow_links_tend_to_the_argmax_along_rays_only() {
    let mu = [1.0, 0.9, 0.0];
    let first = |member: &dyn Aggregator, sigma: &[f64]| {
        let ratings = rate(member, &mu, sigma);
        (0..3).max_by(|&a, &b| ratings[a].total_cmp(&ratings[b])).unwrap()
    };
    let slow: [&dyn Aggregator; 2] = [&RoundRobin::asinh(), &RoundRobin::new(SignedLog, PNorm::SUM)];
    let bounded: [&dyn Aggregator; 3] = [&RoundRobin::thurstone(), &RoundRobin::bradley_terry(), &RoundRobin::weakest_link()];
    for t in [1e-2f64, 5e-3, 2e-3] {
        let curved = [t, (-1.0 / t).exp(), (-1.0 / t).exp()];
        for member in slow {
            assert_eq!((first(member, &curved), first(member, &[t, 0.0, 0.0])), (1, 1), "t = {t}");
            assert_eq!(first(member, &[t * t, 1e-3 * t * t, 1e-3 * t * t]), 0, "t = {t}");
        }
        for member in bounded {
            assert_eq!((first(member, &curved), first(member, &[t, 0.0, 0.0])), (0, 0), "t = {t}");
        }
    }
}

#[test]
fn fluency_is_mixed_in_by_hand() {
    let batch = Batch::trusted(&[1.0, 2.0, 3.0], &[2.0, 2.0, 4.0]).with_trusted_fluency(&[-1.0, -3.0, -5.0]);
    let entered = |entry: Entry| {
        let (mut d, mut s) = ([f64::NAN; 3], [f64::NAN; 3]);
        entry.apply(&batch, &mut d, &mut s);
        (d, s)
    };
    // z(μ) = −1 0 1, z(ℓ) = 1 0 −1, std(μ) = 1.
    assert_eq!(entered(Entry::sound(0.25).unwrap()), ([-0.5, 0.0, 0.5], [1.5, 1.5, 3.0]));
    assert_eq!(entered(Entry::plain(0.25).unwrap()), ([0.5, 0.75, 1.0], [1.5, 1.5, 3.0]));
    assert_eq!(entered(Entry::sound(1.0).unwrap()), ([1.0, 0.0, -1.0], [0.0; 3]));

    let mut fluent = [f64::NAN; 3];
    Fluent::new(Entry::plain(0.25).unwrap(), RoundRobin::thurstone()).rate(&batch, &mut fluent);
    assert_eq!(fluent.to_vec(), rate(&RoundRobin::thurstone(), &[0.5, 0.75, 1.0], &[1.5, 1.5, 3.0]));
    Fluent::new(Entry::plain(0.5).unwrap(), Scores).rate(&batch, &mut fluent);
    assert_eq!(fluent, [0.0, -0.5, -1.0]);
}

/// Forward KL has f′(x) = −1/x. Ratios of 2 and ½ at equal weights have the mean derivative −1.25,
/// which is the derivative at a ratio of 0.8.
#[test]
fn a_mixture_brings_the_mean_of_the_derivatives_back_by_hand() {
    let means = [-1.25, -0.5];
    let sigma = [3.0, 0.0];
    let mixture = DivergenceMixture::new(Divergence::ForwardKl);
    let bare = rate(&mixture, &means, &sigma);
    assert!((bare[0] - 0.8f64.ln()).abs() < 1e-15 && (bare[1] - 2f64.ln()).abs() < 1e-15, "{bare:?}");
    let mut ratings = [f64::NAN; 2];
    mixture.rate(&Batch::trusted(&means, &sigma).with_trusted_fluency(&[-1.5, -4.0]), &mut ratings);
    assert_eq!(ratings, [bare[0] - 1.5, bare[1] - 4.0]);
    // Single precision gives the rounded double-precision result.
    assert_eq!(rate(&mixture, &[-1.25f32, -0.5], &[3.0, 0.0]), [bare[0] as f32, bare[1] as f32]);
    // At and beyond the end of f′'s range, and where f′ is flat, ratings are the largest and
    // finite.
    for divergence in [Divergence::ForwardKl, Divergence::JensenShannon, Divergence::alpha(0.5).unwrap()] {
        let (flat, mixture) = (divergence.gradient(1e3), DivergenceMixture::new(divergence));
        let mut ratings = [f64::NAN; 3];
        mixture.rate(
            &Batch::trusted(&[flat, flat + 1.0, -1.0], &[0.0; 3]).with_trusted_fluency(&[f64::MIN / 4.0, 0.0, 0.0]),
            &mut ratings,
        );
        assert!(
            ratings.iter().all(|rating| rating.is_finite()) && ratings[1] >= ratings[0] && ratings[1] > ratings[2],
            "{ratings:?}"
        );
        let single = rate(&mixture, &[flat as f32 + 1.0, -1.0], &[0.0, 0.0]);
        assert!(single.iter().all(|rating: &f32| rating.is_finite()), "{single:?}");
    }
    // The default, reverse KL, is the identity.
    assert_eq!(rate(&DivergenceMixture::default(), &means, &sigma), means);
}

/// Operators work as trait objects, and so do links and spreads.
#[test]
fn third_party_links_and_spreads_need_one_method() {
    struct Cube;
    impl<F: Real> Link<F> for Cube {
        fn g(&self, u: F) -> F {
            u * u * u
        }
    }
    struct Mean;
    impl<F: Real> Spread<F> for Mean {
        fn s(&self, a: F, b: F) -> F {
            F::of(0.5) * (a + b)
        }
    }
    assert_eq!(rate(&RoundRobin::new(Cube, Mean), &[2.0f32, 0.0], &[1.0, 1.0]), [8.0, -8.0]);
    assert_eq!(Link::<f64>::lipschitz(&Cube), None);
    let dynamic = RoundRobin::new(Box::new(Cube) as Box<dyn Link>, Box::new(Mean) as Box<dyn Spread>);
    assert_eq!(rate(&dynamic, &[2.0, 0.0], &[1.0, 1.0]), [8.0, -8.0]);
}
