//! `swiss-knife axioms`: which axioms each aggregation operator satisfies.

use clap::Args;
use sk_aggregate::axioms::counterexamples::{Cubic, DegreeMinusOne, DoubleDefeats, DoubleOwn, TwoChannels};
use sk_aggregate::axioms::{Axiom, DEFAULT_CASES, DEFAULT_SEED, Report};
use sk_aggregate::{
    Copeland, DivergenceMixture, Entry, Fluent, Identity, Laplace, PNorm, Pairwise, RoundRobin, Scores, Seeding, SignedLog,
    StudentT, SwissElo, Tanh,
};
use sk_core::{Aggregator, OperatingPoint, ParameterError};
use sk_report::grid::{Grid, wrap};

use crate::args::{one_of, positive};
use crate::{Error, output, terminal};

const EXAMPLES: &str = "\
Examples:
  # Every operator that ships, and the counterexamples to Theorem 1 as published
  swiss-knife axioms

  # Two of them, on many cases, as JSON
  swiss-knife axioms thurstone asinh --cases 100000 --json

A counterexample is shrunken: few candidates, short numbers. That none was found does not prove
that there is none.
To check your own operator, use the feature `axioms` of the crate sk-aggregate.";

/// Options of `axioms`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct AxiomsArgs {
    /// The operators to check; all of them unless any is named.
    #[arg(value_name = "OPERATOR", hide_possible_values = true,
        value_parser = one_of(OPERATORS.map(|operator| (operator.0.into(), operator))))]
    operators: Vec<Operator>,
    /// Cases tried for each operator and axiom.
    #[arg(long, value_name = "CASES", default_value_t = DEFAULT_CASES, value_parser = positive)]
    cases: usize,
    /// Seed of the cases.
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// The name and the constructor of an operator.
type Operator = (&'static str, fn() -> Result<Box<dyn Aggregator>, ParameterError>);

/// The operating point that gives R and α of the tournaments.
const POINT: OperatingPoint = OperatingPoint::HHH;

/// The bundled operators, and operators that show which assumptions Theorem 1 needs.
const OPERATORS: [Operator; 21] = [
    ("thurstone", || Ok(Box::new(RoundRobin::thurstone()))),
    ("bradley-terry", || Ok(Box::new(RoundRobin::bradley_terry()))),
    ("weakest-link", || Ok(Box::new(RoundRobin::weakest_link()))),
    ("laplace", || Ok(Box::new(RoundRobin::new(Laplace, PNorm::EUCLIDEAN)))),
    ("tanh", || Ok(Box::new(RoundRobin::new(Tanh, PNorm::EUCLIDEAN)))),
    ("student-t", || Ok(Box::new(RoundRobin::new(StudentT::new(3.0)?, PNorm::EUCLIDEAN)))),
    ("asinh", || Ok(Box::new(RoundRobin::asinh()))),
    ("signed-log", || Ok(Box::new(RoundRobin::new(SignedLog, PNorm::EUCLIDEAN)))),
    ("identity", || Ok(Box::new(RoundRobin::new(Identity, PNorm::EUCLIDEAN)))),
    ("copeland", || Ok(Box::new(Copeland))),
    ("scores", || Ok(Box::new(Scores))),
    // Uses the reverse KL divergence. For the other divergences, a mean of derivatives cannot be
    // every real number.
    ("divergence-mixture", || Ok(Box::new(DivergenceMixture::default()))),
    ("fluent-thurstone", || Ok(Box::new(Fluent::new(Entry::sound(POINT.alpha)?, RoundRobin::thurstone())))),
    ("swiss-elo-paper", || Ok(Box::new(SwissElo::paper(POINT.rounds, POINT.alpha)?))),
    ("swiss-elo-sound", || Ok(Box::new(SwissElo::sound(POINT.rounds, POINT.alpha)?))),
    ("swiss-elo-by-index", || Ok(Box::new(SwissElo::new(POINT.rounds, Entry::sound(POINT.alpha)?, Seeding::Index)?))),
    ("double-own", || Ok(Box::new(Pairwise(DoubleOwn)))),
    ("double-defeats", || Ok(Box::new(Pairwise(DoubleDefeats)))),
    ("degree-minus-one", || Ok(Box::new(Pairwise(DegreeMinusOne)))),
    ("two-channels", || Ok(Box::new(Pairwise(TwoChannels)))),
    ("cubic", || Ok(Box::new(RoundRobin::new(Cubic, PNorm::EUCLIDEAN)))),
];

/// Checks the operators and prints the report on standard output.
pub(crate) fn run(args: &AxiomsArgs) -> Result<(), Error> {
    let chosen = if args.operators.is_empty() { &OPERATORS[..] } else { &args.operators };
    let mut operators = Vec::with_capacity(chosen.len());
    for (name, build) in chosen {
        operators.push((*name, build().map_err(|error| Error::Input(error.to_string()))?));
    }
    let report = Report::new(operators.iter().map(|(name, built)| (*name, &**built)), args.cases, args.seed);
    if args.json { output::print(output::pretty_json(&report)?) } else { output::print_lines(&table(&report)) }
}

/// Formats the verdicts as a table, followed by the counterexamples.
fn table(report: &Report) -> String {
    let width = terminal::columns();
    let mut grid = Grid::new(std::iter::once(String::new()).chain(Axiom::ALL.map(|axiom| axiom.to_string())));
    for row in &report.rows {
        let verdict = |axiom| if row.verdict(axiom).holds() { "holds" } else { "violated" };
        grid.row(std::iter::once(row.operator.as_str()).chain(Axiom::ALL.map(verdict)));
    }
    let mut text = grid.render(width) + "\n\n";
    for line in report.details().lines() {
        let indent = &line[..line.len() - line.trim_start().len()];
        text += indent;
        text += &wrap(line, width.saturating_sub(indent.len()), indent.len() + 2);
        text += "\n";
    }
    text
}
