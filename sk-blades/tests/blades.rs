//! Each blade against its formula, on single cases and on random readings.

use proptest::prelude::*;
use sk_blades::{
    BladeError, Discriminator, Dispersion, DivergenceRatio, Ensemble, ExpertAmateur, Fluency, Guided, ImplicitReward, Ingredient,
    LabelSpread, Length, Likelihood, RewardHead,
};
use sk_core::{
    Blade, BoxError, Candidate, Candidates, Divergence, Observation, Policy, Reading, Readings, ReadingsError, Score, ScoreError,
    SpanEnd,
};

/// Rounding of sums in `f64` over at most 40 tokens.
const TOLERANCE: f64 = 1e-12;
const BETA: f64 = 0.1;

fn variant(name: &str) -> Policy {
    Policy::Variant(name.into())
}

/// The log-probabilities of one candidate under the proposal, the backbone and two adapters, and
/// the min-entropies under the first adapter.
type Row = (Vec<f32>, Vec<f32>, Vec<f32>, Vec<f32>, Vec<f32>);

fn step(rows: &[Row]) -> (Candidates, Readings) {
    let candidates =
        rows.iter().map(|row| Candidate { tokens: vec![3; row.0.len()], log_probs: row.0.clone(), end: SpanEnd::Complete });
    let read = |pick: fn(&Row) -> &Vec<f32>| {
        let reading = |row: &Row| Reading { log_probs: pick(row).clone(), min_entropy: row.4.clone(), ..Reading::default() };
        rows.iter().map(reading).collect::<Vec<_>>()
    };
    let mut readings = Readings::new();
    readings.insert(Policy::Backbone, read(|row| &row.1));
    readings.insert(variant("honest"), read(|row| &row.2));
    readings.insert(variant("honest-2"), read(|row| &row.3));
    (Candidates::new(candidates.collect()).unwrap(), readings)
}

fn scores(blade: &dyn Blade, candidates: &Candidates, readings: &Readings) -> Result<Vec<(f64, f64)>, BoxError> {
    let mut out = vec![Score::new(-7.0, 7.0).unwrap(); candidates.len()];
    blade.score(&Observation { context: &[1], candidates, readings }, &mut out)?;
    Ok(out.iter().map(|s| (s.mu(), s.sigma())).collect())
}

fn error(blade: &dyn Blade, candidates: &Candidates, readings: &Readings) -> BladeError {
    *scores(blade, candidates, readings).unwrap_err().downcast::<BladeError>().unwrap()
}

fn close(got: (f64, f64), expected: (f64, f64)) -> bool {
    (got.0 - expected.0).abs() < TOLERANCE && (got.1 - expected.1).abs() < TOLERANCE
}

#[test]
fn worked_by_hand() {
    let rows = [(vec![-1.0, -3.0], vec![-2.0, -2.0], vec![-1.5, -0.5], vec![-2.5, -2.5], vec![0.25, 1.0])];
    let (candidates, readings) = step(&rows);
    let score = |blade: &dyn Blade| scores(blade, &candidates, &readings).unwrap()[0];
    let reward = |dispersion| ImplicitReward::new("honest", BETA, dispersion).unwrap();
    // An ingredient acts through the proposal, so its own score is zero and overwrites the buffer.
    assert_eq!(score(&Ingredient), (0.0, 0.0));
    // log-ratios .5 and 1.5: mean 1, sample std √.5, standard error √.25.
    assert!(close(score(&reward(Dispersion::MinEntropy)), (0.1, 0.625)));
    assert!(close(score(&reward(Dispersion::StandardError)), (0.1, 0.05)));
    assert!(close(score(&reward(Dispersion::Zero)), (0.1, 0.0)));
    assert!(close(score(&Fluency), (-2.0, 0.0)));
    assert!(close(score(&ExpertAmateur), (0.0, 0.0)));
    assert!(close(score(&Likelihood::new(variant("honest"), Dispersion::MinEntropy)), (-1.0, 0.625)));
    assert!(close(score(&Likelihood::new(variant("honest"), Dispersion::StandardError)), (-1.0, 0.5)));
    // Rewards .1 and −.05: mean .025, sample std .15/√2.
    assert!(close(score(&Ensemble::new(["honest", "honest-2"], BETA).unwrap()), (0.025, 0.15 / 2f64.sqrt())));
    // With one of them twice: mean .05, deviations .05 .05 −.1, sample variance .015/2.
    assert!(close(score(&Ensemble::new(["honest", "honest-2", "honest"], BETA).unwrap()), (0.05, 0.0075f64.sqrt())));
}

/// Log-ratios of ½ and 1½. Their mean for the reverse KL divergence is 1. For the forward one, f′
/// is −e^−u.
#[test]
fn ratios_of_a_divergence_worked_by_hand() {
    let rows = [(vec![-1.0, -3.0], vec![-2.0, -2.0], vec![-1.5, -0.5], vec![-2.5, -2.5], vec![0.25, 1.0])];
    let (candidates, readings) = step(&rows);
    let score = |divergence| scores(&DivergenceRatio::new("honest", divergence), &candidates, &readings).unwrap()[0];
    assert_eq!(score(Divergence::ReverseKl), (1.0, 0.0));
    assert!(close(score(Divergence::ForwardKl), (-0.5 * ((-0.5f64).exp() + (-1.5f64).exp()), 0.0)));
    assert_eq!(DivergenceRatio::new("honest", Divergence::ReverseKl).policies(), [Policy::Backbone, variant("honest")]);
}

fn head(name: &str) -> Policy {
    Policy::Head(name.into())
}

/// Two candidates, of two tokens and of one token, with the given values of the heads "kind" and
/// "fair".
fn headed(kind: [&[f32]; 2], fair: [&[f32]; 2]) -> (Candidates, Readings) {
    let row = |p: &[f32]| -> Row { (p.to_vec(), p.to_vec(), p.to_vec(), p.to_vec(), vec![0.5; p.len()]) };
    let (candidates, mut readings) = step(&[row(&[-1.0, -2.0]), row(&[-0.5])]);
    for (name, values) in [("kind", kind), ("fair", fair)] {
        let read = values.map(|values| Reading { values: values.to_vec(), ..Reading::default() });
        readings.insert(head(name), read.to_vec());
    }
    (candidates, readings)
}

#[test]
fn heads_worked_by_hand() {
    // Odds of 3 to 1 and 1 to 4 after the last token; earlier values of the head do not count.
    let (three, quarter) = (3f32.ln(), 0.25f32.ln());
    let (candidates, readings) = headed([&[-9.0, three], &[quarter]], [&[0.0, 1.5], &[-2.0]]);
    let all = |blade: &dyn Blade| scores(blade, &candidates, &readings).unwrap();
    // The values of a head are f32 of order one.
    let near = |got: (f64, f64), expected: (f64, f64)| {
        assert!((got.0 - expected.0).abs() < 1e-6 && (got.1 - expected.1).abs() < 1e-6, "{got:?} against {expected:?}");
    };
    let kind = |spread| Discriminator::new("kind", spread);
    near(all(&kind(LabelSpread::Zero))[0], (0.75f64.ln(), 0.0));
    near(all(&kind(LabelSpread::Zero))[1], (0.2f64.ln(), 0.0));
    near(all(&kind(LabelSpread::Bernoulli))[0], (0.75f64.ln(), 0.1875f64.sqrt()));
    near(all(&kind(LabelSpread::Bernoulli))[1], (0.2f64.ln(), 0.4));
    assert_eq!(all(&RewardHead::new("fair")), [(1.5, 0.0), (-2.0, 0.0)]);

    // ARGS: log π_B is −3 and −.5, and the reward is 1.5 and −2.
    let args = |lambda, length| Guided::new(RewardHead::new("fair"), lambda, length).unwrap();
    assert_eq!(all(&args(2.0, Length::Summed)), [(0.0, 0.0), (-4.5, 0.0)]);
    assert_eq!(all(&args(2.0, Length::PerToken)), [(1.5, 0.0), (-4.5, 0.0)]);
    assert_eq!(all(&args(0.0, Length::Summed)), [(-3.0, 0.0), (-0.5, 0.0)]);
    let fudge = Guided::new(kind(LabelSpread::Bernoulli), 2.0, Length::Summed).unwrap();
    near(all(&fudge)[1], (-0.5 + 2.0 * 0.2f64.ln(), 0.8));
    // The implicit reward is zero here, because the variants equal the backbone.
    let implicit = ImplicitReward::new("honest", BETA, Dispersion::MinEntropy).unwrap();
    assert_eq!(all(&Guided::new(implicit, 3.0, Length::Summed).unwrap()), [(-3.0, 1.5), (-0.5, 1.5)]);
}

#[test]
fn weights_on_the_simplex_leave_the_likelihood_of_guided_blades_alone() {
    let (candidates, readings) = headed([&[0.0, 0.7], &[-0.2]], [&[0.0, 1.5], &[-2.0]]);
    let all = |blade: &dyn Blade| scores(blade, &candidates, &readings).unwrap();
    let kind = || Discriminator::new("kind", LabelSpread::Zero);
    let fair = || RewardHead::new("fair");
    let (w, lambda) = ([0.3, 0.7], 1.7);
    let (kind_guided, fair_guided) =
        (all(&Guided::new(kind(), lambda, Length::Summed).unwrap()), all(&Guided::new(fair(), lambda, Length::Summed).unwrap()));
    for (i, log_prob) in [-3.0, -0.5].into_iter().enumerate() {
        let mixed = w[0] * kind_guided[i].0 + w[1] * fair_guided[i].0;
        let expected = log_prob + lambda * (w[0] * all(&kind())[i].0 + w[1] * all(&fair())[i].0);
        assert!((mixed - expected).abs() < TOLERANCE, "{mixed} against {expected}");
    }
}

#[test]
fn heads_that_were_not_read_or_not_to_the_end_are_named() {
    let (candidates, readings) = headed([&[0.0, 1.0], &[1.0]], [&[1.0], &[f32::INFINITY]]);
    let unknown = error(&RewardHead::new("calm"), &candidates, &readings);
    assert_eq!(unknown.to_string(), "head \"calm\" was not read");
    let short = error(&Discriminator::new("fair", LabelSpread::Zero), &candidates, &readings);
    let tokens = ReadingsError::Tokens { policy: head("fair"), quantity: "values", candidate: 0, expected: 2, got: 1 };
    assert_eq!(short, BladeError::Readings(tokens));
    let (candidates, readings) = headed([&[0.0, 1.0], &[1.0]], [&[1.0, 1.0], &[f32::INFINITY]]);
    assert!(matches!(
        error(&RewardHead::new("fair"), &candidates, &readings),
        BladeError::Score(ScoreError::Value { quantity: "score", candidate: 1, .. })
    ));
    // A head has values, not log-probabilities.
    let likelihood = Likelihood::new(head("kind"), Dispersion::Zero);
    assert!(matches!(
        error(&likelihood, &candidates, &readings),
        BladeError::Readings(ReadingsError::Tokens { quantity: "log-probabilities", .. })
    ));
}

#[test]
fn blades_ask_for_what_they_read_and_no_more() {
    let reward = ImplicitReward::new("honest", BETA, Dispersion::MinEntropy).unwrap();
    assert_eq!(reward.policies(), [Policy::Backbone, variant("honest")]);
    assert_eq!(Ensemble::new(["a", "b"], BETA).unwrap().policies(), [Policy::Backbone, variant("a"), variant("b")]);
    assert_eq!(Likelihood::new(variant("a"), Dispersion::Zero).policies(), [variant("a")]);
    assert_eq!(ExpertAmateur.policies(), [Policy::Backbone]);
    assert_eq!(Fluency.policies(), []);
    assert_eq!(Discriminator::new("kind", LabelSpread::Zero).policies(), [head("kind")]);
    assert_eq!(RewardHead::new("kind").policies(), [head("kind")]);
    assert_eq!(Guided::new(RewardHead::new("kind"), 1.0, Length::Summed).unwrap().policies(), [Policy::Backbone, head("kind")]);
    assert_eq!(Guided::new(reward, 1.0, Length::Summed).unwrap().policies(), [Policy::Backbone, variant("honest")]);
}

#[test]
fn bad_readings_name_the_policy_and_the_candidate() {
    let row: Row = (vec![-1.0; 2], vec![-2.0; 2], vec![-1.5; 2], vec![-2.5; 2], vec![0.25; 2]);
    let (candidates, readings) = step(&[row.clone(), row.clone()]);
    let reward = ImplicitReward::new("honest", BETA, Dispersion::MinEntropy).unwrap();

    let unknown = ImplicitReward::new("polite", BETA, Dispersion::Zero).unwrap();
    let missing = error(&unknown, &candidates, &readings);
    assert_eq!(missing, BladeError::Readings(ReadingsError::Missing { policy: variant("polite") }));
    assert_eq!(missing.to_string(), "policy \"polite\" was not read");
    let backbone = ReadingsError::Missing { policy: Policy::Backbone };
    assert_eq!(error(&reward, &candidates, &Readings::new()), BladeError::Readings(backbone));

    let (one, _) = step(std::slice::from_ref(&row));
    let two = ReadingsError::Candidates { policy: Policy::Backbone, expected: 1, got: 2 };
    assert_eq!(error(&reward, &one, &readings), BladeError::Readings(two));

    let damage = |edit: fn(&mut Reading)| {
        let mut damaged = readings.clone();
        let mut honest = readings.get(&variant("honest")).unwrap().to_vec();
        edit(&mut honest[1]);
        damaged.insert(variant("honest"), honest);
        damaged
    };
    let tokens = |quantity| {
        BladeError::Readings(ReadingsError::Tokens { policy: variant("honest"), quantity, candidate: 1, expected: 2, got: 1 })
    };
    let short = damage(|r| r.log_probs.truncate(1));
    assert_eq!(error(&reward, &candidates, &short), tokens("log-probabilities"));
    let short = damage(|r| r.min_entropy.truncate(1));
    assert_eq!(error(&reward, &candidates, &short), tokens("min-entropies"));
    // Min-entropies may be missing if the blade does not read them.
    let plain = ImplicitReward::new("honest", BETA, Dispersion::Zero).unwrap();
    assert!(scores(&plain, &candidates, &short).is_ok());

    let infinite = damage(|r| r.log_probs[0] = f32::NEG_INFINITY);
    assert!(matches!(
        error(&reward, &candidates, &infinite),
        BladeError::Score(ScoreError::Value { quantity: "score", candidate: 1, .. })
    ));
    let negative = damage(|r| r.min_entropy.fill(-1.0));
    assert!(matches!(
        error(&reward, &candidates, &negative),
        BladeError::Score(ScoreError::Value { quantity: "dispersion", candidate: 1, .. })
    ));
}

#[test]
fn impossible_parameters_are_refused() {
    for beta in [0.0, -0.1, f64::NAN, f64::INFINITY] {
        assert!(ImplicitReward::new("a", beta, Dispersion::Zero).is_err());
        assert!(Ensemble::new(["a", "b"], beta).is_err());
    }
    assert!(Ensemble::new(["alone"], BETA).is_err());
    for lambda in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(Guided::new(Fluency, lambda, Length::Summed).is_err());
    }
}

fn row() -> impl Strategy<Value = Row> {
    let log_probs = |n| proptest::collection::vec(-20f32..0.0, n);
    (1usize..40).prop_flat_map(move |n| {
        (log_probs(n), log_probs(n), log_probs(n), log_probs(n), proptest::collection::vec(0f32..10.0, n))
    })
}

fn blades() -> Vec<Box<dyn Blade>> {
    vec![
        Box::new(ImplicitReward::new("honest", BETA, Dispersion::MinEntropy).unwrap()),
        Box::new(ImplicitReward::new("honest", BETA, Dispersion::StandardError).unwrap()),
        Box::new(Likelihood::new(variant("honest"), Dispersion::StandardError)),
        Box::new(Ensemble::new(["honest", "honest-2"], BETA).unwrap()),
        Box::new(ExpertAmateur),
        Box::new(Fluency),
    ]
}

proptest! {
    #[test]
    fn a_score_does_not_depend_on_the_other_candidates(rows in proptest::collection::vec(row(), 1..6)) {
        let (candidates, readings) = step(&rows);
        for blade in blades() {
            let together = scores(&blade, &candidates, &readings).unwrap();
            for (i, row) in rows.iter().enumerate() {
                let (candidates, readings) = step(std::slice::from_ref(row));
                prop_assert_eq!(scores(&blade, &candidates, &readings).unwrap()[0], together[i]);
            }
        }
    }

    #[test]
    fn reward_and_its_standard_error_scale_with_beta(row in row(), factor in 0.1f64..10.0) {
        let (candidates, readings) = step(&[row]);
        let at = |beta| {
            let blade = ImplicitReward::new("honest", beta, Dispersion::StandardError).unwrap();
            scores(&blade, &candidates, &readings).unwrap()[0]
        };
        let (mu, sigma) = at(BETA);
        prop_assert!(close(at(BETA * factor), (mu * factor, sigma * factor)));
    }

    #[test]
    fn a_policy_equal_to_the_backbone_earns_nothing(row in row()) {
        let same = (row.0, row.1.clone(), row.1.clone(), row.1, row.4);
        let (candidates, readings) = step(&[same]);
        let reward = ImplicitReward::new("honest", BETA, Dispersion::StandardError).unwrap();
        prop_assert_eq!(scores(&reward, &candidates, &readings).unwrap()[0], (0.0, 0.0));
        let ensemble = Ensemble::new(["honest", "honest-2"], BETA).unwrap();
        prop_assert_eq!(scores(&ensemble, &candidates, &readings).unwrap()[0], (0.0, 0.0));
    }
}
