//! The power of the axiom kit. Operators that are broken on purpose, each in one axiom and as few
//! others as possible, are caught from each of twenty seeds. Sound operators pass a hundred
//! thousand cases.

mod broken;

use sk_aggregate::axioms::{Axiom, DEFAULT_CASES, Verdict, check};
use sk_aggregate::{Asinh, Identity, Laplace, Logistic, PNorm, Probit, RoundRobin, SignedLog, StudentT, Tanh};
use sk_core::Aggregator;

use broken::{Broken, all};

const SEEDS: std::ops::Range<u64> = 0..20;

/// The number of cases that each seed needs to catch `broken`. Panics if a seed does not.
fn cases_needed(broken: &Broken) -> Vec<usize> {
    let needed = |seed| match check(broken.axiom, &*broken.operator, DEFAULT_CASES, seed) {
        Verdict::Violated { found_after, .. } => found_after,
        Verdict::Holds { cases } => panic!("{} {} survives {cases} cases of seed {seed}", broken.axiom, broken.how),
    };
    SEEDS.map(needed).collect()
}

/// Compares the power of the kit with the table in `report.txt`: the number of cases, and the
/// counterexamples.
#[test]
fn every_broken_operator_is_caught_from_every_seed() {
    let seeds = SEEDS.end - SEEDS.start;
    let mut report =
        format!("Cases until the axiom was found broken, median and worst of {seeds} seeds, and a counterexample.\n");
    report += "\naxiom  median  worst  how it is broken\n";
    for broken in all() {
        let mut needed = cases_needed(&broken);
        needed.sort_unstable();
        let (median, worst) = (needed[needed.len() / 2], needed[needed.len() - 1]);
        report += &format!("{:5}  {median:6}  {worst:5}  {}\n", broken.axiom, broken.how);
        let Verdict::Violated { counterexample, violation, .. } = check(broken.axiom, &*broken.operator, DEFAULT_CASES, 0) else {
            panic!("{} {} was caught from seed 0 a moment ago", broken.axiom, broken.how);
        };
        // Print only digits that do not depend on the mathematical library; a difference of
        // rounding size is zero.
        let (left, right) = (violation.left, violation.right);
        let by = if violation.difference().abs() < 1e-12 * left.abs() { 0.0 } else { violation.difference() };
        report += &format!("{:22}{}: {left:.3e} against {right:.3e}, by {by:.1e}\n", "", violation.reason);
        report += &format!("{:22}at {counterexample}\n", "");
        // The shrunk case must still violate the law.
        assert!(broken.axiom.law(&*broken.operator, &counterexample).is_err());
    }
    println!("{report}");
    let kept = include_str!("report.txt");
    for (line, (new, old)) in report.lines().zip(kept.lines()).enumerate() {
        assert_eq!(new, old, "line {} of report.txt is no longer what is found; the whole is printed above", line + 1);
    }
    assert_eq!(report.lines().count(), kept.lines().count());
}

/// Three operators for each axiom break it alone. Those of A3 break A3′ too, since a change of the
/// ranking is a change of the ratings.
#[test]
fn three_for_each_axiom_break_it_alone() {
    for axiom in Axiom::ALL {
        let must: &[Axiom] = if axiom == Axiom::A3 { &[Axiom::A3Prime] } else { &[] };
        assert!(all().iter().filter(|broken| broken.axiom == axiom && broken.also == must).count() >= 3, "{axiom}");
    }
}

/// A broken operator breaks its own axiom, the axioms in `also`, and no other.
#[test]
fn what_is_broken_is_what_is_said() {
    let mut wrong = Vec::new();
    for broken in all() {
        let found: Vec<Axiom> =
            Axiom::ALL.into_iter().filter(|&axiom| !check(axiom, &*broken.operator, DEFAULT_CASES, 1).holds()).collect();
        let mut said = broken.also.to_vec();
        said.push(broken.axiom);
        said.sort_unstable();
        if found != said {
            wrong.push(format!("{} {}: said {said:?}, found {found:?}", broken.axiom, broken.how));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The name of an operator, the operator, and the axioms that it breaks.
type Member = (&'static str, Box<dyn Aggregator>, &'static [Axiom]);

fn sound() -> Vec<Member> {
    let p = |p| PNorm::new(p).expect("an exponent above 1");
    vec![
        ("thurstone", Box::new(RoundRobin::thurstone()), &[Axiom::A5]),
        ("bradley-terry", Box::new(RoundRobin::bradley_terry()), &[Axiom::A5]),
        ("weakest link", Box::new(RoundRobin::weakest_link()), &[Axiom::A5]),
        ("asinh", Box::new(RoundRobin::asinh()), &[]),
        ("signed log, p = 3", Box::new(RoundRobin::new(SignedLog, p(3.0))), &[]),
        ("identity, p = 1.5", Box::new(RoundRobin::new(Identity, p(1.5))), &[]),
        ("tanh, p = 1", Box::new(RoundRobin::new(Tanh, PNorm::SUM)), &[Axiom::A5]),
        ("laplace, p = 7", Box::new(RoundRobin::new(Laplace, p(7.0))), &[Axiom::A5]),
        ("student", Box::new(RoundRobin::new(StudentT::new(3.0).expect("positive"), PNorm::EUCLIDEAN)), &[Axiom::A5]),
    ]
}

/// Every link over spreads from the sum to the maximum.
fn family() -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for p in [1.0, 1.1, 1.5, 2.0, 3.0, 7.0, 100.0, 1e6, f64::INFINITY] {
        let spread = PNorm::new(p).expect("at least 1");
        let student = |nu| StudentT::new(nu).expect("positive");
        let mut add = |name, operator: Box<dyn Aggregator>, breaks| members.push((name, operator, breaks));
        add("probit", Box::new(RoundRobin::new(Probit, spread)), &[Axiom::A5]);
        add("logistic", Box::new(RoundRobin::new(Logistic, spread)), &[Axiom::A5]);
        add("tanh", Box::new(RoundRobin::new(Tanh, spread)), &[Axiom::A5]);
        add("laplace", Box::new(RoundRobin::new(Laplace, spread)), &[Axiom::A5]);
        add("cauchy", Box::new(RoundRobin::new(student(1.0), spread)), &[Axiom::A5]);
        add("student, 30", Box::new(RoundRobin::new(student(30.0), spread)), &[Axiom::A5]);
        add("asinh", Box::new(RoundRobin::new(Asinh, spread)), &[]);
        add("signed log", Box::new(RoundRobin::new(SignedLog, spread)), &[]);
        add("identity", Box::new(RoundRobin::new(Identity, spread)), &[]);
    }
    members
}

fn pass(members: Vec<Member>, cases: usize) {
    let axioms = |breaks: &[Axiom]| Axiom::ALL.into_iter().filter(|axiom| !breaks.contains(axiom)).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        for (name, operator, breaks) in members {
            scope.spawn(move || {
                for axiom in axioms(breaks) {
                    let verdict = check(axiom, &*operator, cases, 99);
                    assert!(verdict.holds(), "{name}: {verdict:?}");
                }
            });
        }
    });
}

#[test]
fn sound_operators_pass() {
    pass(sound(), 1000);
    pass(family(), 100);
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation")]
fn sound_operators_pass_a_hundred_thousand_cases() {
    pass(sound(), 100_000);
}

#[test]
#[ignore = "ten minutes of two cores, with optimisation"]
fn the_whole_family_passes_a_hundred_thousand_cases() {
    pass(family(), 100_000);
}
