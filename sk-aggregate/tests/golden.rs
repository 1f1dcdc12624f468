//! One selection step end to end, CBN → entry → tournament → champion, against
//! `reference/golden.py`, which was written from the paper independently of these crates; and two
//! batches worked out by hand.

use serde::Deserialize;
use sk_aggregate::{Bracket, Entry, SwissElo};
use sk_core::{Aggregator, Batch, Composite, Normalizer, OperatingPoint, ScoreTable, Selector, Simplex};
use sk_normalize::CandidateBatch;
use sk_select::Champion;

/// Both sides round some hundred operations on values of order 1 to 1e-16, in different orders.
/// Ratings, and dispersions where σ is constant, are larger, so the tolerance is relative to the
/// largest value.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
struct Case {
    name: String,
    point: Point,
    rounds: usize,
    weights: Vec<f64>,
    blades: Vec<Blade>,
    fluency: Vec<f64>,
    paper: Expected,
    sound: Expected,
}

#[derive(Deserialize)]
#[allow(non_snake_case)] // the paper's symbol
struct Point {
    T: f64,
    w_tour: f64,
    w_blade: f64,
    lam: f64,
}

#[derive(Deserialize)]
struct Blade {
    mu: Vec<f64>,
    sigma: Vec<f64>,
}

#[derive(Deserialize)]
struct Expected {
    mu: Vec<f64>,
    sigma: Vec<f64>,
    d: Vec<f64>,
    s: Vec<f64>,
    bracket: Vec<ExpectedRound>,
    ratings: Vec<f64>,
    probabilities: Vec<f64>,
}

#[derive(Deserialize)]
struct ExpectedRound {
    k: f64,
    matches: Vec<ExpectedMatch>,
    bye: Option<usize>,
    ratings: Vec<f64>,
}

#[derive(Deserialize)]
struct ExpectedMatch {
    i: usize,
    j: usize,
    score: f64,
    expected: f64,
}

#[track_caller]
fn assert_close(what: &str, got: &[f64], expected: &[f64]) {
    let scale = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    let close = got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() <= TOLERANCE * scale);
    assert!(close, "{what}: {got:?} is not {expected:?}");
}

fn check(
    what: &str,
    case: &Case,
    expected: &Expected,
    normalizer: &CandidateBatch,
    (entry, tournament): (&Entry, &SwissElo),
    champion: &Champion,
) {
    let scores = ScoreTable::new(case.blades.iter().map(|b| (&b.mu, &b.sigma))).unwrap();
    let mut composite = Composite::default();
    normalizer.combine(&scores, &Simplex::new(case.weights.as_slice()).unwrap(), &mut composite);
    assert_close(&format!("{what}: composite μ"), &composite.mu, &expected.mu);
    assert_close(&format!("{what}: composite σ"), &composite.sigma, &expected.sigma);

    let batch = Batch::trusted(&composite.mu, &composite.sigma).with_trusted_fluency(&case.fluency);
    let n = batch.len();
    let (mut d, mut s) = (vec![f64::NAN; n], vec![f64::NAN; n]);
    entry.apply(&batch, &mut d, &mut s);
    assert_close(&format!("{what}: d"), &d, &expected.d);
    assert_close(&format!("{what}: s"), &s, &expected.s);

    let Bracket { rounds, ratings } = tournament.bracket(&batch);
    assert_eq!(rounds.len(), expected.bracket.len(), "{what}");
    for (r, (round, expected)) in rounds.iter().zip(&expected.bracket).enumerate() {
        let what = format!("{what}: round {r}");
        assert_close(&what, &[round.k], &[expected.k]);
        assert_eq!(round.bye, expected.bye, "{what}");
        let got: Vec<_> = round.matches.iter().map(|m| (m.i, m.j)).collect();
        let wanted: Vec<_> = expected.matches.iter().map(|m| (m.i, m.j)).collect();
        assert_eq!(got, wanted, "{what}");
        for (m, e) in round.matches.iter().zip(&expected.matches) {
            assert_close(&what, &[m.score, m.expected], &[e.score, e.expected]);
        }
        assert_close(&what, &round.ratings, &expected.ratings);
    }
    assert_close(&format!("{what}: ratings"), &ratings, &expected.ratings);
    let mut rated = vec![f64::NAN; n];
    tournament.rate(&batch, &mut rated);
    assert_eq!(rated, ratings, "{what}: the record and the ratings are one");

    let mut probabilities = vec![f64::NAN; n];
    champion.distribution(&ratings, &batch, &mut probabilities);
    assert_close(&format!("{what}: probabilities"), &probabilities, &expected.probabilities);
}

#[test]
fn every_number_agrees_with_the_independent_reference() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("reference/golden.json")).unwrap();
    // Even and odd batches, one candidate, more rounds than distinct pairings.
    let sizes: Vec<(usize, usize)> = cases.iter().map(|c| (c.fluency.len(), c.rounds)).collect();
    assert!(sizes.contains(&(1, 5)) && sizes.contains(&(7, 5)) && sizes.contains(&(8, 1)) && sizes.contains(&(6, 9)));
    for case in &cases {
        let Point { T: temperature, w_tour, w_blade, lam: lambda } = case.point;
        let point = OperatingPoint { temperature, w_tour, w_blade, lambda, ..OperatingPoint::HHH };
        let alpha = point.alpha;
        let paper = (&Entry::paper(alpha).unwrap(), &SwissElo::paper(case.rounds, alpha).unwrap());
        let name = format!("{} (paper)", case.name);
        check(&name, case, &case.paper, &CandidateBatch::paper(), paper, &Champion::paper(&point).unwrap());
        let sound = (&Entry::sound(alpha).unwrap(), &SwissElo::sound(case.rounds, alpha).unwrap());
        let name = format!("{} (sound)", case.name);
        check(&name, case, &case.sound, &CandidateBatch::sound(), sound, &Champion::sound(&point).unwrap());
    }
}

/// By hand, one blade, three candidates, two rounds, in the `paper` convention at the HHH point.
/// Its epsilons change the sixth decimal, so they are left out of the table and the tolerance is
/// 1e-5 (1e-3 for ratings, which K = 40 magnifies).
///
/// | quantity | c0 | c1 | c2 | how |
/// |---|---|---|---|---|
/// | μ | 3 | 1 | 2 | mean 2, deviations 1 −1 0, sample std √(2/2) = 1 |
/// | σ | 1 | 2 | 3 | sample std 1 |
/// | composite μ | 1 | −1 | 0 | (μ − 2)/1 |
/// | composite σ | 1 | 2 | 3 | σ/1 |
/// | ℓ_S | −1 | −3 | −2 | z: 1 −1 0 |
/// | d = ½ z(ℓ) + ½ z(μ) | 1 | −1 | 0 | |
/// | s = ½ σ / std(μ) | .5 | 1 | 1.5 | std of the composite is 1 |
///
/// Round 0, K = 40: all at 1500, so by μ: c0, c2, c1. c0 meets c2, c1 sits out. Δ = 1, s₂ = √(.25 +
/// 2.25) = 1.581139, S = Φ(.632456) = .736455, E = ½, gain 40 · .236455 = 9.4582: ratings
/// 1509.4582, 1500, 1490.5418.
///
/// Round 1, K = 10: c0, c1, c2. c0 meets c1, whom it has not met; c2 sits out. Δ = 2,
/// s₂ = √(.25 + 1) = 1.118034, S = Φ(1.788854) = .963181, E = 1/(1 + 10^(−9.4582/400)) = .513608,
/// gain 10 · .449573 = 4.4957: ratings 1513.9539, 1495.5043, 1490.5418.
///
/// Champion: ratings have mean 1500, deviations 13.9539, −4.4957, −9.4582, sample std
/// √(304.380/2) = 12.3365, so z(R) = 1.131104 −.364422 −.766682; z(μ) = 1 −1 0; z(σ) = −1 0 1.
/// Logits times 8: 1.1·1.131104 + 1.75·(1 + .2) = 3.344214; 1.1·(−.364422) − 1.75 = −2.150864;
/// 1.1·(−.766682) − 1.75·.2 = −1.193350. Over 8: .418027, −.268858, −.149169; exponentials
/// 1.518961, .764252, .861424, sum 3.144637: P = .483032, .243033, .273934.
#[test]
fn three_candidates_by_hand() {
    const BY_HAND: f64 = 1e-5;
    const RATING_BY_HAND: f64 = 1e-3;
    #[track_caller]
    fn near(got: &[f64], by_hand: &[f64], tolerance: f64) {
        assert!(got.iter().zip(by_hand).all(|(a, b)| (a - b).abs() < tolerance), "{got:?} is not {by_hand:?}");
    }
    let point = OperatingPoint::HHH;
    let scores = ScoreTable::new([([3.0, 1.0, 2.0], [1.0, 2.0, 3.0])]).unwrap();
    let mut composite = Composite::default();
    CandidateBatch::paper().combine(&scores, &Simplex::new([1.0]).unwrap(), &mut composite);
    near(&composite.mu, &[1.0, -1.0, 0.0], BY_HAND);
    near(&composite.sigma, &[1.0, 2.0, 3.0], BY_HAND);
    let batch = Batch::trusted(&composite.mu, &composite.sigma).with_trusted_fluency(&[-1.0, -3.0, -2.0]);
    let tournament = SwissElo::paper(2, point.alpha).unwrap();
    let (mut d, mut s) = ([0.0; 3], [0.0; 3]);
    Entry::paper(point.alpha).unwrap().apply(&batch, &mut d, &mut s);
    near(&d, &[1.0, -1.0, 0.0], BY_HAND);
    near(&s, &[0.5, 1.0, 1.5], BY_HAND);

    let bracket = tournament.bracket(&batch);
    let [first, second] = &bracket.rounds[..] else { panic!("two rounds") };
    assert_eq!((first.k, second.k), (40.0, 10.0));
    assert_eq!((first.matches[0].i, first.matches[0].j, first.bye), (0, 2, Some(1)));
    near(&[first.matches[0].score, first.matches[0].expected], &[0.736455, 0.5], BY_HAND);
    near(&first.ratings, &[1509.4582, 1500.0, 1490.5418], RATING_BY_HAND);
    assert_eq!((second.matches[0].i, second.matches[0].j, second.bye), (0, 1, Some(2)));
    near(&[second.matches[0].score, second.matches[0].expected], &[0.963181, 0.513608], BY_HAND);
    near(&bracket.ratings, &[1513.9539, 1495.5043, 1490.5418], RATING_BY_HAND);

    let mut probabilities = [0.0; 3];
    Champion::paper(&point).unwrap().distribution(&bracket.ratings, &batch, &mut probabilities);
    near(&probabilities, &[0.483032, 0.243033, 0.273934], BY_HAND);
}

/// By hand, four candidates and more rounds than the three that avoid rematches: who meets whom.
///
/// Two blades at weights ¾ and ¼ give composites in the order c3, c2, c0, c1, and fluency favours
/// c0, then c1 and c2 alike, then c3.
///
/// | round | K | standings | pairs | why |
/// |---|---|---|---|---|
/// | 0 | 40 | c3 c2 c0 c1 | c3–c2, c0–c1 | tied at 1500: by composite μ |
/// | 1 | 28.2843 | c0 c3 c2 c1 | c0–c3, c2–c1 | c0 won by more; nobody has met |
/// | 2 | 20 | c0 c3 c2 c1 | c0–c2, c3–c1 | c0 has met c3, so the next |
/// | 3 | 14.1421 | c0 c3 c2 c1 | c0–c3, c2–c1 | c0 has met all: the next in the standings |
/// | 4 | 10 | c0 c3 c2 c1 | c0–c3, c2–c1 | the same |
#[test]
fn four_candidates_by_hand() {
    let scores =
        ScoreTable::new([([0.0, 1.0, 2.0, 5.0], [1.0, 1.0, 3.0, 3.0]), ([0.4, 0.0, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4])]).unwrap();
    let mut composite = Composite::default();
    CandidateBatch::paper().combine(&scores, &Simplex::new([0.75, 0.25]).unwrap(), &mut composite);
    let batch = Batch::trusted(&composite.mu, &composite.sigma).with_trusted_fluency(&[-1.0, -2.0, -2.0, -3.0]);
    let bracket: Bracket<f64> = SwissElo::paper(5, 0.5).unwrap().bracket(&batch);
    let pairs: Vec<Vec<(usize, usize)>> =
        bracket.rounds.iter().map(|round| round.matches.iter().map(|m| (m.i, m.j)).collect()).collect();
    assert_eq!(pairs, [[(3, 2), (0, 1)], [(0, 3), (2, 1)], [(0, 2), (3, 1)], [(0, 3), (2, 1)], [(0, 3), (2, 1)]]);
    for (round, k) in bracket.rounds.iter().zip([40.0, 28.2843, 20.0, 14.1421, 10.0]) {
        assert!((round.k - k).abs() < 1e-4 && round.bye.is_none());
    }
}
