//! Small value types, field by field.

use std::sync::Arc;

use sk_core::{
    Blade, BoxError, Candidate, Candidates, CandidatesError, Observation, OperatingPoint, ParameterError, Policy, Reading,
    Readings, Real, Score, Seat, SpanEnd,
};

#[test]
fn reals_are_converted() {
    assert_eq!((f32::of(0.1), 0.5f32.widen()), (0.1f32, 0.5));
    assert_eq!((f64::of(0.1), 0.1f64.widen()), (0.1, 0.1));
}

/// N, R, T, w_tour, w_blade, λ, as published.
#[test]
fn the_published_points_number_by_number() {
    let numbers = |p: OperatingPoint| (p.candidates, p.rounds, [p.temperature, p.w_tour, p.w_blade, p.lambda]);
    assert_eq!(numbers(OperatingPoint::HHH), (7, 5, [8.0, 1.1, 1.75, 0.2]));
    assert_eq!(numbers(OperatingPoint::HARMLESSNESS), (11, 4, [11.219, 0.504, 1.483, 0.109]));
    assert_eq!(numbers(OperatingPoint::HELPFULNESS), (7, 3, [1.69, 1.170, 1.707, 0.158]));
    assert_eq!(numbers(OperatingPoint::HONESTY), (3, 7, [21.03, 1.587, 2.088, 0.395]));
    for point in [OperatingPoint::HHH, OperatingPoint::HARMLESSNESS, OperatingPoint::HELPFULNESS, OperatingPoint::HONESTY] {
        assert_eq!((point.beta, point.alpha, point.k_max, point.k_min), (0.1, 0.5, 40.0, 10.0));
    }
}

#[test]
fn a_parameter_is_passed_on_or_refused() {
    assert_eq!(ParameterError::check(true, "x", 0.25, "small"), Ok(0.25));
    let refused = ParameterError::check(false, "x", 7.5, "small").unwrap_err();
    assert_eq!(refused.to_string(), "x is 7.5; it must be small");
}

#[test]
fn readings_are_kept_by_policy() {
    let reading = |p: f32| vec![Reading { log_probs: vec![p], min_entropy: vec![0.5], ..Reading::default() }];
    let mut readings = Readings::new();
    let variant = Policy::Variant("calm".into());
    assert_eq!(readings.policies().count(), 0);
    readings.insert(variant.clone(), reading(-1.0));
    readings.insert(Policy::Backbone, reading(-2.0));
    assert_eq!(readings.get(&variant), Some(&reading(-1.0)[..]));
    assert_eq!(readings.get(&Policy::Variant("wild".into())), None);
    assert_eq!(readings.policies().cloned().collect::<Vec<_>>(), [Policy::Backbone, variant]);
}

#[test]
fn candidates_keep_their_order() {
    let candidate = |token, p: f32| Candidate { tokens: vec![token], log_probs: vec![p], end: SpanEnd::Limit };
    let all = vec![candidate(1, -1.0), candidate(2, -2.0), candidate(3, 0.0)];
    let candidates = Candidates::new(all.clone()).unwrap();
    assert_eq!((candidates.len(), &candidates[..]), (3, &all[..]));
    assert!(candidates.iter().eq(&all) && (&candidates).into_iter().eq(&all));
    assert_eq!(candidates[1], all[1]);
    // Rounding may lift a log-probability slightly above zero; more is refused.
    assert!(Candidates::new(vec![candidate(1, 1e-3)]).is_ok());
    let positive = Candidates::new(vec![candidate(8, -1.0), candidate(9, 2e-3)]).unwrap_err();
    assert!(matches!(positive, CandidatesError::LogProb { index: 1, position: 0, token: 9, .. }));
    let infinite = Candidates::new(vec![candidate(1, f32::INFINITY)]).unwrap_err();
    assert_eq!(
        infinite.to_string(),
        "token 1 at position 0 of candidate 0 has log-probability inf; it must be a number and at most 0"
    );
    // Another model's truncation may exclude a token, so −∞ is a valid log-probability.
    assert!(Candidates::new(vec![candidate(1, f32::NEG_INFINITY)]).is_ok());
}

struct Silent;

impl Blade for Silent {
    fn score(&self, _: &Observation<'_>, _: &mut [Score]) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn a_seat_shows_its_name() {
    let seat = Seat::new("calm", Arc::new(Silent));
    assert_eq!(format!("{seat:?}"), "Seat(\"calm\")");
    assert_eq!(&**seat.name(), "calm");
    // By default, a blade reads no policies.
    assert_eq!(seat.blade().policies(), []);
}
