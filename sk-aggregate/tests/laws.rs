//! The laws of the axioms on cases worked out by hand: which operators each law rejects, both sides
//! of its equation, and which operators it accepts.

use sk_aggregate::axioms::{Axiom, Case, Violation};
use sk_core::{Aggregator, Batch};

/// An operator given by a function from scores and dispersions to ratings.
struct By<F>(F);

impl<F: Fn(&[f64], &[f64]) -> Vec<f64> + Send + Sync> Aggregator for By<F> {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        ratings.copy_from_slice(&(self.0)(batch.mu(), batch.sigma()));
    }
}

/// An operator that rates each candidate on its own.
fn each(f: impl Fn(f64, f64) -> f64 + Send + Sync) -> impl Aggregator {
    By(move |mu: &[f64], sigma: &[f64]| mu.iter().zip(sigma).map(|(&m, &s)| f(m, s)).collect())
}

/// An operator that rates the first candidate, and all others 0.
fn first(f: impl Fn(f64, f64) -> f64 + Send + Sync) -> impl Aggregator {
    By(move |mu: &[f64], sigma: &[f64]| {
        let mut ratings = vec![0.0; mu.len()];
        ratings[0] = f(mu[0], sigma[0]);
        ratings
    })
}

/// R_i = Σ_j ψ(i; j).
fn pairwise(psi: impl Fn(f64, f64, f64) -> f64 + Send + Sync) -> impl Aggregator {
    By(move |mu: &[f64], sigma: &[f64]| {
        let worth = |i: usize, j: usize| psi(mu[i] - mu[j], sigma[i], sigma[j]);
        (0..mu.len()).map(|i| (0..mu.len()).filter(|&j| j != i).map(|j| worth(i, j)).sum()).collect()
    })
}

fn case(mu: &[f64], sigma: &[f64]) -> Case {
    let rival = usize::from(mu.len() > 1);
    Case { mu: mu.to_vec(), sigma: sigma.to_vec(), who: 0, rival, shift: 1.0, scale: 2.0, step: 0.5, widen: 2.0 }
}

/// Scores 0 and 3, dispersions 1 and 2.
fn two() -> Case {
    case(&[0.0, 3.0], &[1.0, 2.0])
}

/// Fails unless the law is broken, with these two sides and this reason.
#[track_caller]
fn broken(law: Result<(), Violation>, left: f64, right: f64, reason: &str) {
    let violation = law.expect_err("broken");
    assert_eq!((violation.left, violation.right, violation.reason.as_str()), (left, right, reason));
}

#[test]
fn ratings_are_numbers() {
    let spoiled = By(|_: &[f64], _: &[f64]| vec![1.0, f64::INFINITY]);
    broken(Axiom::A2.law(&spoiled, &two()), f64::INFINITY, 0.0, "rating 1 should be finite");
}

/// Batches that the other laws do not cover: 0/0 between two certain candidates that tie, 3/0
/// between two that do not, and only certain candidates.
#[test]
fn totality() {
    let broken = |operator: &dyn Aggregator, case: &Case, reason: &str| {
        assert_eq!(Axiom::A0.law(operator, case).unwrap_err().reason, reason);
    };
    let three = case(&[0.0, 3.0, 1.0], &[1.0; 3]);
    let ties = pairwise(|d, a, b| (d / (a + b)).atan());
    broken(&ties, &three, "rating 0 should be finite where candidates 0 and 1 are certain and tie");
    let all = By(|mu: &[f64], sigma: &[f64]| mu.iter().map(|m| m / sigma.iter().sum::<f64>()).collect());
    broken(&all, &three, "rating 0 should be finite where all are certain");
    let far = pairwise(|d, a, b| if d == 0.0 { 0.0 } else { d / (a + b) });
    broken(&far, &three, "rating 0 should be finite where candidates 0 and 1 are certain");
    broken(&each(|_, s| 1.0 / s), &case(&[0.0, 3.0], &[0.0, 1.0]), "rating 0 should be finite");
    broken(&each(|_, s| 1.0 / s), &case(&[0.0], &[1.0]), "rating 0 should be finite where all are certain");
    assert_eq!(Axiom::A0.law(&each(|m, s| m - s), &three), Ok(()));
}

#[test]
fn anonymity() {
    // The first candidate of the batch gets 1 more.
    let favoured = By(|mu: &[f64], _: &[f64]| mu.iter().enumerate().map(|(i, m)| if i == 0 { m + 1.0 } else { *m }).collect());
    let reason = "rating of candidate 1 before and after exchanging two candidates should agree";
    broken(Axiom::A1.law(&favoured, &two()), 3.0, 4.0, reason);
    // If the exchange does not involve the first, rotating the batch finds the violation.
    let others = Case { who: 1, rival: 2, ..case(&[0.0, 3.0, 5.0], &[1.0; 3]) };
    broken(Axiom::A1.law(&favoured, &others), 3.0, 4.0, "rating of candidate 1 before and after rotating should agree");
    assert_eq!(Axiom::A1.law(&each(|m, s| m / s), &others), Ok(()));
}

#[test]
fn translation() {
    // 0 and 9 differ from their mean by 4.5, 1 and 16 by 7.5.
    let reason = "rating 0 over the mean, before and after adding 1 to every score, should agree";
    broken(Axiom::A2.law(&each(|m, _| m * m), &two()), -4.5, -7.5, reason);
    assert_eq!(Axiom::A2.law(&each(|m, _| 3.0 * m), &two()), Ok(()));
}

#[test]
fn scale_of_ratings() {
    let reason = "rating 0 over the mean, before and after multiplying scores and dispersions by 2, should agree";
    broken(Axiom::A3Prime.law(&each(|m, _| m), &two()), -1.5, -3.0, reason);
    assert_eq!(Axiom::A3Prime.law(&each(|m, s| m / s), &two()), Ok(()));
}

#[test]
fn scale_of_ranking() {
    let reversed = each(|m, s| if s >= 2.5 { -m } else { m });
    let both = Case { scale: 4.0, ..case(&[1.0, 4.0], &[1.0, 2.0]) };
    broken(Axiom::A3.law(&reversed, &both), 3.0, -12.0, "R_1 − R_0 before and after multiplying by 4 should have one sign");
    // Ratings that round to the same number are not a reversal.
    assert_eq!(Axiom::A3.law(&each(|m, s| if s >= 2.5 { 1e6 } else { m }), &both), Ok(()));
}

/// m + σ² gives 4, 3 and −3. At a score of −1 the first candidate ties with the second. At twice
/// the scale they have −2 + 16 and 4 + 4, which is no tie.
#[test]
fn a_tie_should_survive_a_change_of_scale() {
    let squared = each(|m, s| m + s * s);
    let three = case(&[0.0, 2.0, -4.0], &[2.0, 1.0, 1.0]);
    let reason = "R_0 and R_1 tie to 0e0 at μ_0 = -1.0; after multiplying by 2 they should too";
    broken(Axiom::A3.law(&squared, &three), 14.0, 8.0, reason);
    assert_eq!(Axiom::A3.law(&each(|m, s| m + s), &three), Ok(()));
    // With two candidates, a tie of ratings is a tie of scores, and the law does not check it.
    assert_eq!(Axiom::A3.law(&squared, &case(&[0.0, 2.0], &[2.0, 1.0])), Ok(()));
    // A jump past the second's rating is no tie: the first never gets exactly that rating.
    let jump = By(|mu: &[f64], _: &[f64]| {
        mu.iter()
            .enumerate()
            .map(|(i, m)| {
                m + if i > 0 {
                    5.0
                } else if *m > 0.0 {
                    10.0
                } else {
                    0.0
                }
            })
            .collect()
    });
    assert_eq!(Axiom::A3.law(&jump, &case(&[1.0, 2.0, -4.0], &[1.0; 3])), Ok(()));
    // There is no tie if the first is always behind or always ahead.
    for ahead in [-100.0, 100.0] {
        let apart = By(move |mu: &[f64], sigma: &[f64]| {
            mu.iter().zip(sigma).enumerate().map(|(i, (m, s))| m + s * s + if i == 0 { ahead } else { 0.0 }).collect()
        });
        assert_eq!(Axiom::A3.law(&apart, &three), Ok(()));
    }
}

#[test]
fn monotonicity() {
    let still = each(|_, _| 0.0);
    broken(Axiom::A4.law(&still, &two()), 0.0, 0.0, "R_1, before and after adding 0.5 to μ_0, should fall");
    // The rival falls from 0 to −½, but the candidate does not rise.
    let unmoved = By(|mu: &[f64], _: &[f64]| vec![0.0, -mu[0]]);
    broken(Axiom::A4.law(&unmoved, &two()), 0.0, 0.0, "R_0, before and after adding 0.5 to μ_0, should rise");
    let fallen = By(|mu: &[f64], _: &[f64]| vec![-mu[0], -mu[0]]);
    broken(Axiom::A4.law(&fallen, &two()), 0.0, -0.5, "R_0, before and after adding 0.5 to μ_0, should rise");
    assert_eq!(Axiom::A4.law(&By(|mu: &[f64], _: &[f64]| vec![mu[0], -mu[0]]), &two()), Ok(()));
    assert_eq!(Axiom::A4.law(&still, &case(&[1.0], &[1.0])), Ok(()));
}

/// A function that increases within 1e-3 of a tie and is constant elsewhere.
fn slight(d: f64) -> f64 {
    d.clamp(-1e-3, 1e-3)
}

/// A rating may be constant where a probit saturates: beyond seven dispersions, and before that
/// where the probit increases by less than 1e-13.
#[test]
fn strict_growth_is_asked_for_where_a_probit_climbs() {
    let still = pairwise(|d, _, _| slight(d));
    let at = |mu: [f64; 2], sigma: [f64; 2], step: f64| Axiom::A4.law(&still, &Case { step, ..case(&mu, &sigma) });
    assert!(at([6.5, 0.0], [1.0, 1.0], 0.5).is_err());
    assert!(at([6.5, 0.0], [1.0, 1.0], 0.5 + 1.0 / 64.0).is_ok());
    assert!(at([0.0, 7.0], [1.0, 1.0], 0.5).is_err());
    assert!(at([0.0, 7.125], [1.0, 1.0], 0.5).is_ok());
    assert!(at([106.5, 100.0], [1.0, 1.0], 0.5).is_err());
    // From 7 to 6 the probit increases by more than 1e-13, but the law uses the lower bound e^−½(7
    // + 1)² = 1.3e-14.
    assert!(at([0.0, 7.0], [1.0, 1.0], 1.0).is_ok());
    assert!(at([13.0, 0.0], [0.5, 2.0], 1.0).is_err());
    assert!(at([13.0, 0.0], [2.0, 0.5], 1.0).is_err());
    assert!(at([13.0, 0.0], [0.5, 2.0], 1.125).is_ok());
    // e^−24.5 = 2.3e-11, multiplied by a step of 1/128 or 1/256.
    for scale in [1.0, 4.0] {
        let near = |step: f64| at([scale * (7.0 - step), 0.0], [scale, 0.5 * scale], scale * step);
        assert!(near(1.0 / 128.0).is_err());
        assert!(near(1.0 / 256.0).is_ok());
    }
}

/// A draw for differences up to 1e-5 dispersions is found by a small step from a tie. A step that
/// vanishes in the rounding of a large origin is not taken for a draw.
#[test]
fn slight_steps_are_taken_from_a_tie() {
    let draws = pairwise(|d, a: f64, b: f64| (d.signum() * (d.abs() / a.hypot(b) - 1e-5).max(0.0)).asinh());
    let violation = Axiom::A4.law(&draws, &two()).expect_err("a draw");
    assert_eq!(violation.reason, "R_1, before and after adding 0.00000762939453125 to μ_0, from a tie with μ_1, should fall");
    let from_an_origin = pairwise(|d, a: f64, b: f64| 1e8 + (d / a.hypot(b)).asinh());
    let slight = Case { step: 1.0 / 1024.0, ..two() };
    assert_eq!(Axiom::A4.law(&from_an_origin, &slight), Ok(()));
}

/// Where a rating may be constant, it may also fall by rounding, but not by more.
#[test]
fn a_rating_may_go_back_by_rounding() {
    let far = case(&[100.0, 0.0], &[1.0, 1.0]);
    // The ratings are ±1, and the step of 0.5 changes them by half of `back`.
    let own =
        |back: f64| By(move |mu: &[f64], _: &[f64]| vec![1.0 + slight(mu[0]) - back * (mu[0] - 100.0), -1.0 - slight(mu[0])]);
    let rivals =
        |back: f64| By(move |mu: &[f64], _: &[f64]| vec![1.0 + slight(mu[0]), -1.0 - slight(mu[0]) + back * (mu[0] - 100.0)]);
    assert_eq!(Axiom::A4.law(&own(1e-12), &far), Ok(()));
    assert_eq!(Axiom::A4.law(&rivals(1e-12), &far), Ok(()));
    // Ratings around an origin round at its magnitude: 64 roundings of 1e6 are 1.4e-8.
    let origin =
        |back: f64| By(move |mu: &[f64], _: &[f64]| vec![1e6 + slight(mu[0]) - back * (mu[0] - 100.0), 1e6 - slight(mu[0])]);
    assert_eq!(Axiom::A4.law(&origin(1e-8), &far), Ok(()));
    assert!(Axiom::A4.law(&origin(8e-8), &far).is_err());
    assert!(Axiom::A4.law(&own(4e-12), &far).unwrap_err().reason.starts_with("R_0"));
    assert!(Axiom::A4.law(&rivals(4e-12), &far).unwrap_err().reason.starts_with("R_1"));
}

#[test]
fn attenuation() {
    // The move is ½ at any dispersion. The two largest dispersions that the law tries are 2^15 and
    // 2^30 times the largest number of the case.
    let reason = "the move of R_0 for a step of 0.5 should go on falling as σ_0 goes from 98304.0 to 3221225472.0";
    broken(Axiom::A5.law(&each(|m, _| m), &two()), 0.5, 0.5, reason);
    broken(Axiom::A5Prime.law(&each(|m, _| m), &two()), 0.5, 0.5, reason);
    // The move is ½σ.
    let reason = "the move of R_0 for a step of 0.5 should not grow as σ_0 goes from 1.0 to 2.0";
    broken(Axiom::A5.law(&first(|m, s| m * s), &two()), 0.5, 1.0, reason);
    broken(Axiom::A5Prime.law(&first(|m, s| m * s), &two()), 0.5, 1.0, reason);
    // The law raises the score from its present value and compares the ratings before and after.
    broken(Axiom::A5.law(&first(|m, s| m.max(0.0) * s), &two()), 0.5, 1.0, reason);
    broken(Axiom::A5.law(&first(|m, s| m * s), &Case { mu: vec![2.5, 3.0], ..two() }), 0.5, 1.0, reason);
    // The dispersion goes from 0 to (widen − 1) times the largest one.
    let certain = Case { widen: 3.0, ..case(&[0.0, 3.0], &[0.0, 2.0]) };
    let reason = "the move of R_0 for a step of 0.5 should not grow as σ_0 goes from 0.0 to 4.0";
    broken(Axiom::A5.law(&first(|m, s| m * s), &certain), 0.0, 2.0, reason);
    assert_eq!(Axiom::A5.law(&first(|m, s| m / (1.0 + s)), &two()), Ok(()));
    assert_eq!(Axiom::A5Prime.law(&first(|m, s| m / (1.0 + s)), &two()), Ok(()));
    // A move that is always zero does not grow.
    let still = each(|_, _| 0.0);
    assert_eq!((Axiom::A5.law(&still, &two()), Axiom::A5Prime.law(&still, &two())), (Ok(()), Ok(())));
    // A single candidate has no rival to be compared with.
    let alone = case(&[1.0], &[1.0]);
    assert_eq!((Axiom::A5.law(&each(|m, _| m), &alone), Axiom::A5Prime.law(&each(|m, _| m), &alone)), (Ok(()), Ok(())));
}

/// The law detects that a certain candidate has a spread wider by a millionth than a candidate with
/// a tiny dispersion.
#[test]
fn slight_widenings_are_looked_at() {
    let wide = |by: f64| pairwise(move |d, a: f64, b: f64| d / if a == 0.0 || b == 0.0 { by * a.hypot(b) } else { a.hypot(b) });
    let certain = case(&[0.0, 3.0], &[0.0, 1.0]);
    for axiom in [Axiom::A5, Axiom::A5Prime] {
        let violation = axiom.law(&wide(1.0 + 1e-6), &certain).expect_err("wider at zero");
        assert!(violation.reason.ends_with("as σ_0 goes from 0.0 to 0.0009765625"), "{violation}");
        assert_eq!(axiom.law(&wide(1.0), &certain), Ok(()));
    }
    // The slope rises by 1% just above a dispersion of 1. The smallest generated widening, ⅟₁₆,
    // goes past that rise to a lower slope, so the law must try smaller widenings.
    let stepped = pairwise(|d, a, b| d / (a + b) * if a.max(b) > 1.0 { 1.01 } else { 1.0 });
    assert!(Axiom::A5.law(&stepped, &Case { widen: 1.0625, ..case(&[0.0, 3.0], &[1.0, 1.0]) }).is_err());
}

/// A move that falls like 1/log σ or like a fifth root vanishes. One that tends to a ten-thousandth
/// does not.
#[test]
fn slow_moves_vanish_and_small_ones_need_not() {
    let slow = first(|m, s| m / (2.0 + s).ln());
    let root = first(|m, s| m / s.powf(0.2));
    for falls in [&slow as &dyn Aggregator, &root] {
        assert_eq!((Axiom::A5.law(falls, &two()), Axiom::A5Prime.law(falls, &two())), (Ok(()), Ok(())));
    }
    let floor = first(|m, s| m * (1e-4 + 1.0 / s));
    assert!(Axiom::A5.law(&floor, &two()).is_err() && Axiom::A5Prime.law(&floor, &two()).is_err());
}

/// The slopes of u·log u and of u to the power 1.01 have no supremum. The slope of 2u − atan(u) has
/// one, though it increases for ever.
#[test]
fn the_envelope_has_an_end() {
    let of = |g: fn(f64) -> f64| pairwise(move |d, a: f64, b: f64| g(d / a.hypot(b)));
    let endless: [fn(f64) -> f64; 4] =
        [|u| u * u * u, |u| u * (1.0 + u.abs().ln_1p()), |u| u * u.abs().powf(0.01), |u| if u > 0.0 { u } else { u - u * u }];
    for g in endless {
        let violation = Axiom::A5Prime.law(&of(g), &two()).expect_err("no supremum");
        assert!(violation.reason.contains("should not keep growing up to"), "{violation}");
        assert_eq!(Axiom::A5.law(&of(g), &two()), Ok(()));
    }
    let bounded: [fn(f64) -> f64; 5] =
        [|u| u, |u| 2.0 * u - u.atan(), f64::cbrt, f64::atan, |u| u * (1.0 - 1.0 / (3.0 + u.abs().ln_1p()))];
    for g in bounded {
        assert_eq!(Axiom::A5Prime.law(&of(g), &two()), Ok(()));
    }
}

/// A5 compares moves at the given scores; A5′ compares the largest move anywhere. Here the largest
/// move lies away from the given scores at the first dispersion and at them at a wider one, where
/// it is smaller by a thousandth.
#[test]
fn the_envelope_is_searched_for() {
    let barely = Case { widen: 1.001, ..case(&[0.0, 0.0], &[1.0, 1.0]) };
    for (unit, peak) in [1.0, 128.0].into_iter().flat_map(|unit| [4.4, -4.4, 0.7, -33.0, 600.0].map(|peak| (unit, peak))) {
        let moving = first(move |m, s| {
            let centre = if s <= unit { unit * peak } else { 0.0 };
            1.0 / (1.0 + (-(m - centre) / s).exp())
        });
        let barely = Case { sigma: vec![unit; 2], step: 0.5 * unit, ..barely.clone() };
        assert_eq!(Axiom::A5Prime.law(&moving, &barely), Ok(()), "{unit} {peak}");
        assert!(Axiom::A5.law(&moving, &barely).is_err(), "{unit} {peak}");
    }
    // The largest move at the wider dispersion is larger by a thousandth.
    let higher = first(|m, s| if s > 1.0 && s < 1.1 { 1.002 } else { 1.0 } * (m / s).tanh());
    assert!(Axiom::A5Prime.law(&higher, &barely).is_err());
}

#[test]
fn decomposability() {
    let three = case(&[0.0, 3.0, 1.0], &[1.0; 3]);
    // The ratings 0, 9 and 3 have the mean 4; the sums 0, 18 and 6 have the mean 8.
    let violation = Axiom::A6.law(&each(|m, _| 3.0 * m), &three).unwrap_err();
    assert_eq!((violation.left, violation.right), (-4.0, -8.0));
    let reason = "R_0 over the mean should be the sum of its ratings in batches of two, over the mean of the sums";
    assert_eq!(violation.reason, reason);
    assert_eq!(Axiom::A6.law(&pairwise(|d, a, b| d / (a + 2.0 * b)), &three), Ok(()));
    // An origin is no gain from a comparison, and it hides none: a relative difference of 1e-6
    // shows beside 1500.
    let from_an_origin = |more: f64| {
        By(move |mu: &[f64], sigma: &[f64]| {
            let by = 1.0 + more * (mu.len() as f64 - 2.0);
            let worth = |i: usize, j: usize| ((mu[i] - mu[j]) / (sigma[i] + sigma[j])).asinh();
            (0..mu.len()).map(|i| 1500.0 + by * (0..mu.len()).filter(|&j| j != i).map(|j| worth(i, j)).sum::<f64>()).collect()
        })
    };
    assert_eq!(Axiom::A6.law(&from_an_origin(0.0), &three), Ok(()));
    assert!(Axiom::A6.law(&from_an_origin(1e-6), &three).is_err());
    assert_eq!(Axiom::A6.law(&each(|m, _| m), &case(&[5.0], &[1.0])), Ok(()));
}

#[test]
fn constant_sum() {
    // −6 + 3, where two equal candidates get 0 + 0.
    let double_defeats = pairwise(|d, _, _| if d > 0.0 { d } else { 2.0 * d });
    broken(Axiom::A7.law(&double_defeats, &two()), -3.0, 0.0, "ψ(0; 1) + ψ(1; 0) should be what two even candidates share");
    // The sum is 1 + 1 in every pair.
    assert_eq!(Axiom::A7.law(&pairwise(|d, _, _| 1.0 + d), &two()), Ok(()));
    // The rounding that the law allows is proportional to the ratings.
    let large = |short: f64| pairwise(move |d, _, _| if d > 0.0 { 1e6 * d } else { 1e6 * d * (1.0 - short) });
    assert_eq!(Axiom::A7.law(&large(1e-10), &two()), Ok(()));
    assert!(Axiom::A7.law(&large(1e-8), &two()).is_err());
    // An origin of 1500 does not hide a violation of a millionth.
    let from_1500 = |win: f64| pairwise(move |d, _, _| 1500.0 + if d > 0.0 { win * d } else { d });
    assert_eq!(Axiom::A7.law(&from_1500(1.0), &two()), Ok(()));
    assert!(Axiom::A7.law(&from_1500(1.0 + 1e-6), &two()).is_err());
    let shares = pairwise(|d, a, _| a + d);
    broken(Axiom::A7.law(&shares, &two()), 3.0, 2.0, "ψ(0; 1) + ψ(1; 0) should be what two even candidates share");
    assert_eq!(Axiom::A7.law(&each(|m, _| m), &case(&[1.0], &[1.0])), Ok(()));
}

#[test]
fn single_channel() {
    // 1 + 1 under (1, 2). Under (2, 2) it is r + 2, which is above that for every positive r.
    let shifted = pairwise(|d, a, _| d + a);
    broken(Axiom::A8.law(&shifted, &two()), 2.0, 3.0, "ψ of a difference of 1 under σ = (1, 2) should be reached under (2, 2)");
    // 2 under (1, 2). Under (2, 2), r/2 + r³ = 2 at r = 1.1282, and at a quarter of that r it is
    // .1634.
    let bent = pairwise(|d, a, _| d / a + d.powi(3));
    let violation = Axiom::A8.law(&bent, &two()).unwrap_err();
    assert_eq!(violation.left, 0.265_625);
    assert!((violation.right - 0.1634).abs() < 1e-3, "{violation}");
    assert!(violation.reason.starts_with("ψ of 0.25 under σ = (1, 2) should be ψ of 1.128"), "{violation}");
    let channels: [fn(f64, f64, f64) -> f64; 3] =
        [|d, a, b| (d / (a + b)).atan(), |d, a, b| d / (a * b), |d, a, b| (7.0 * d / a.min(b)).cbrt()];
    for channel in channels {
        assert_eq!(Axiom::A8.law(&pairwise(channel), &two()), Ok(()));
        assert_eq!(Axiom::A8.law(&pairwise(channel), &case(&[0.0, 3.0], &[2.0, 2.0])), Ok(()));
    }
    assert_eq!(Axiom::A8.law(&shifted, &case(&[1.0], &[1.0])), Ok(()));
}

/// A kernel with one channel may decrease with the difference, and may have an origin.
#[test]
fn a_channel_may_fall_and_have_an_origin() {
    let channels: [fn(f64, f64, f64) -> f64; 3] = [
        |d, a, b| -(d / a.hypot(b)).asinh(),
        |d, a, b| 1500.0 + (d / (a + b)).asinh(),
        |d, a, b| 1500.0 - 40.0 * (d / a.max(b)).tanh(),
    ];
    for channel in channels {
        for case in [two(), case(&[0.0, 3.0], &[2.0, 2.0]), case(&[0.0, 3.0], &[0.0, 2.0])] {
            assert_eq!(Axiom::A8.law(&pairwise(channel), &case), Ok(()));
        }
    }
    // A second channel of a thousandth shows beside an origin.
    let second = pairwise(|d, a, b| 1500.0 + (d / a.hypot(b)).asinh() + 1e-3 * (d / a.max(b)).asinh());
    assert!(Axiom::A8.law(&second, &two()).is_err());
}

/// If small differences are draws, the law determines the factor at a larger difference, and a
/// violation there counts.
#[test]
fn a_channel_may_begin_with_draws() {
    let draws = |within: f64| move |u: f64| u.signum() * (u.abs() - within).max(0.0);
    for within in [1.0, 6.0] {
        let g = draws(within);
        assert_eq!(Axiom::A8.law(&pairwise(move |d, a: f64, b: f64| g(d / a.hypot(b)).asinh()), &two()), Ok(()));
        let second = pairwise(move |d, a: f64, b: f64| g(d / a.hypot(b)).asinh() + 1e-3 * g(d / a.max(b)));
        assert!(Axiom::A8.law(&second, &two()).is_err());
    }
    assert_eq!(Axiom::A8.law(&each(|_, _| 7.0), &two()), Ok(()));
}

/// A kernel that favours the candidate with less dispersion at a tie only, or close to one.
#[test]
fn channels_are_compared_at_ties_and_near_them() {
    let bonus = |within: f64| {
        pairwise(move |d: f64, a: f64, b: f64| {
            let u = d / a.hypot(b);
            u.asinh() + if u.abs() <= within { 1e-6 * (b - a) / (a + b) } else { 0.0 }
        })
    };
    let near = |within: f64| {
        pairwise(move |d: f64, a: f64, b: f64| (d / a.hypot(b)).asinh() + 1e-6 * (d / a.max(b)).clamp(-within, within))
    };
    for within in [1e-3, 1e-5, 0.0] {
        assert!(Axiom::A8.law(&bonus(within), &two()).is_err(), "{within}");
    }
    for within in [1e-2, 1e-3, 1e-4, 1e-6] {
        assert!(Axiom::A8.law(&near(within), &two()).is_err(), "{within}");
    }
}
