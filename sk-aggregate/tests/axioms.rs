//! The axioms of every shipped operator, of the counterexamples to necessity, and of a third-party
//! operator.

use sk_aggregate::axioms::counterexamples::{Cubic, DegreeMinusOne, DoubleDefeats, DoubleOwn, TwoChannels};
use sk_aggregate::axioms::{Axiom, Cases, Report, Verdict, assert_declared, check};
use sk_aggregate::{
    Copeland, Entry, Identity, Laplace, Link, PNorm, Pairwise, RoundRobin, Scores, Seeding, SignedLog, Spread, StudentT,
    SwissElo, Tanh, axioms,
};
use sk_core::{Aggregator, Batch};

/// A Student-t link over the Euclidean spread.
fn student() -> RoundRobin<StudentT, PNorm> {
    RoundRobin::new(StudentT::new(3.0).unwrap(), PNorm::EUCLIDEAN)
}

// `thm:rep`, sufficiency as corrected: every member satisfies all axioms but A5, and A5 as well if
// u·g′(u) never decreases.
axioms!(thurstone => RoundRobin::thurstone(), fails A5);
axioms!(bradley_terry => RoundRobin::bradley_terry(), fails A5);
axioms!(weakest_link => RoundRobin::weakest_link(), fails A5);
axioms!(laplace => RoundRobin::new(Laplace, PNorm::EUCLIDEAN), fails A5);
axioms!(tanh => RoundRobin::new(Tanh, PNorm::new(7.0).unwrap()), fails A5);
axioms!(student_t => student(), fails A5);
axioms!(asinh => RoundRobin::asinh());
axioms!(signed_log => RoundRobin::new(SignedLog, PNorm::new(3.0).unwrap()));
axioms!(identity => RoundRobin::new(Identity, PNorm::SUM));

// `thm:rep`, necessity: these operators satisfy the paper's A1 to A6 and do not have the stated
// form. A3′, A7 or A8 excludes each of them.
axioms!(double_own_dispersion => Pairwise(DoubleOwn), fails A7);
axioms!(double_defeats => Pairwise(DoubleDefeats), fails A7);
axioms!(degree_minus_one => Pairwise(DegreeMinusOne), fails A3Prime);
axioms!(two_channels => Pairwise(TwoChannels), fails A8);

// Sufficiency again: an odd and increasing link is not enough for A5′, which needs a uniformly
// continuous one. This link satisfies A5.
axioms!(cubic => RoundRobin::new(Cubic, PNorm::EUCLIDEAN), fails A5Prime);

// Operators outside the family.
axioms!(copeland => Copeland, fails A4 A5 A5Prime);
axioms!(scores => Scores, fails A3Prime A4 A5 A5Prime A6 A7);
axioms!(swiss_elo_paper => SwissElo::paper(5, 0.5).unwrap(), fails A1 A3 A3Prime A4 A5 A6 A8);
axioms!(swiss_elo_sound => SwissElo::sound(5, 0.5).unwrap(), fails A4 A5 A6);
axioms!(swiss_elo_by_index => SwissElo::new(5, Entry::plain(0.0).unwrap(), Seeding::Index).unwrap(), fails A1 A3 A3Prime A4 A5 A6);

// A uniformly continuous link without a finite slope at a tie: moves vanish like a fifth root.
axioms!(fifth_root => RoundRobin::new(FifthRoot, PNorm::EUCLIDEAN));

// A uniformly continuous link that swings about a line, so that moves far from the rivals rise and
// fall with the distance.
axioms!(swinging => RoundRobin::new(Swinging, PNorm::EUCLIDEAN), fails A5);

/// g(u) = u + 0.9 sin u.
struct Swinging;

impl Link for Swinging {
    fn g(&self, u: f64) -> f64 {
        u + 0.9 * u.sin()
    }
}

/// g(u) = sign(u)·|u|^⅕.
struct FifthRoot;

impl Link for FifthRoot {
    fn g(&self, u: f64) -> f64 {
        u.signum() * u.abs().powf(0.2)
    }
}

// An operator known only at run time, and one with a third-party link and spread.
axioms!(boxed => Box::new(RoundRobin::asinh()) as Box<dyn Aggregator>);
axioms!(third_party => RoundRobin::new(Softsign, Halfway), fails A5);

// Ratings that are offsets from an origin, as Elo's are, and are rounded at its magnitude. Only
// differences of ratings count.
axioms!(from_an_origin => FromAnOrigin);

/// The ratings of asinh plus 1e6.
struct FromAnOrigin;

impl Aggregator for FromAnOrigin {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        RoundRobin::asinh().rate(batch, ratings);
        ratings.iter_mut().for_each(|rating| *rating += 1e6);
    }
}

// An operator without comparisons: the rating depends on σ directly, which must not hide that its
// move with μ never shrinks.
axioms!(lower_bound => LowerBound, fails A3Prime A4 A5 A5Prime A6 A7 A8);

/// R_i = μ_i − σ_i.
struct LowerBound;

impl Aggregator for LowerBound {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        for ((rating, mu), sigma) in ratings.iter_mut().zip(batch.mu()).zip(batch.sigma()) {
            *rating = mu - sigma;
        }
    }
}

/// g(u) = u / (1 + |u|).
struct Softsign;

impl Link for Softsign {
    fn g(&self, u: f64) -> f64 {
        u / (1.0 + u.abs())
    }
}

/// s(a, b) = (a + b)/2 + max(a, b)/2.
struct Halfway;

impl Spread for Halfway {
    fn s(&self, a: f64, b: f64) -> f64 {
        0.5 * (a + b + a.max(b))
    }
}

#[test]
#[should_panic(expected = "A5 (attenuation) is broken, case")]
fn an_undeclared_violation_fails() {
    assert_declared(Axiom::A5, &RoundRobin::thurstone(), &[]);
}

#[test]
#[should_panic(expected = "A4 (monotonicity) is declared broken, but no counterexample was found in 2000 cases")]
fn a_declaration_that_is_not_true_fails() {
    assert_declared(Axiom::A4, &RoundRobin::thurstone(), &[Axiom::A4, Axiom::A5]);
}

#[test]
fn an_operator_that_leaves_a_rating_unwritten_satisfies_nothing() {
    struct Forgetful;
    impl Aggregator for Forgetful {
        fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
            ratings[0] = batch.mu()[0];
        }
    }
    for case in Cases::new(1).filter(|case| case.len() > 1).take(20) {
        for axiom in Axiom::ALL {
            assert!(axiom.law(&Forgetful, &case).is_err_and(|violation| violation.left.is_nan()), "{axiom}");
        }
    }
}

/// E2 by hand: with σ_j = 0 a Thurstone rating is Φ(Δ/σ_i) − ½. Its increase from Δ = 1 to 2 is
/// larger for σ_i = 2 than for σ_i = 1.
#[test]
fn counterexamples_are_small_enough_to_check_by_hand() {
    let Verdict::Violated { counterexample, .. } = check(Axiom::A5, &RoundRobin::thurstone(), 2000, 1) else { panic!() };
    assert_eq!(counterexample.len(), 2);
    let numbers = counterexample.mu.iter().chain(&counterexample.sigma).chain([&counterexample.step, &counterexample.widen]);
    assert!(numbers.copied().all(|x| x.fract() == 0.0 && x.abs() <= 4.0), "{counterexample}");
}

/// Shrinking what a seed finds first could stop at a batch with more candidates than necessary.
#[test]
fn a_counterexample_has_no_more_candidates_than_it_takes() {
    let operators: [(&str, Box<dyn Aggregator>, Axiom, usize); 7] = [
        ("thurstone", Box::new(RoundRobin::thurstone()), Axiom::A5, 2),
        ("bradley-terry", Box::new(RoundRobin::bradley_terry()), Axiom::A5, 2),
        ("tanh", Box::new(RoundRobin::new(Tanh, PNorm::EUCLIDEAN)), Axiom::A5, 2),
        ("scores", Box::new(Scores), Axiom::A4, 2),
        ("scores", Box::new(Scores), Axiom::A6, 3),
        ("copeland", Box::new(Copeland), Axiom::A5, 2),
        ("two channels", Box::new(Pairwise(TwoChannels)), Axiom::A8, 2),
    ];
    for (name, operator, axiom, candidates) in operators {
        for seed in 0..60 {
            let Verdict::Violated { counterexample, .. } = check(axiom, &operator, 2000, seed) else { panic!("{name} {axiom}") };
            assert_eq!(counterexample.len(), candidates, "{name} {axiom}, seed {seed}: {counterexample}");
        }
    }
}

#[test]
fn a_report_says_who_breaks_what_and_where() {
    let operators: [(&str, &dyn Aggregator); 3] =
        [("asinh", &RoundRobin::asinh()), ("thurstone", &RoundRobin::thurstone()), ("scores", &Scores)];
    let report = Report::new(operators, 300, 1);
    let text = report.to_string();
    println!("{text}");
    let expected = ["asinh: holds all", "thurstone: breaks A5", "scores: breaks A3′, A4, A5, A5′, A6, A7"];
    assert_eq!(text.lines().take(3).collect::<Vec<_>>(), expected);
    assert!(text.contains("thurstone breaks A5, attenuation (case"));
    let json = serde_json::json!(report);
    assert_eq!(json["rows"][1]["findings"][6]["axiom"], "A5");
    assert_eq!(json["rows"][1]["findings"][6]["verdict"], "violated");
    assert_eq!(json["rows"][1]["findings"][6]["counterexample"]["mu"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["rows"][0]["findings"][0]["cases"], 300);
}
