//! `swiss-knife axioms`: which axioms each aggregation operator satisfies.

use std::io::Write;

use clap::{Args, ValueEnum};
use sk_aggregate::axioms::counterexamples::{Cubic, DegreeMinusOne, DoubleDefeats, DoubleOwn, TwoChannels};
use sk_aggregate::axioms::{Axiom, DEFAULT_CASES, DEFAULT_SEED, Report};
use sk_aggregate::{
    Copeland, DivergenceMixture, Entry, Fluent, Identity, Laplace, PNorm, Pairwise, RoundRobin, Scores, Seeding, SignedLog,
    StudentT, SwissElo, Tanh,
};
use sk_core::{Aggregator, OperatingPoint, ParameterError};
use sk_report::grid::{Grid, wrap};

use crate::args::positive;
use crate::{Error, terminal};

const EXAMPLES: &str = "\
Examples:
  # Every operator that ships, and the counterexamples to Theorem 1 as published
  swiss-knife axioms

  # Two of them, on many cases, as JSON
  swiss-knife axioms thurstone asinh --cases 100000 --json

A counterexample is shrunken: few candidates, short numbers. That none was found does not prove
that there is none.
To check an operator of your own, use the feature `axioms` of the crate sk-aggregate.";

/// Options of `axioms`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct AxiomsArgs {
    /// The operators to check; all of them unless any is named.
    #[arg(value_name = "OPERATOR", hide_possible_values = true)]
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

/// An operator that ships, or one that shows what Theorem 1 needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Operator {
    Thurstone,
    BradleyTerry,
    WeakestLink,
    Laplace,
    Tanh,
    StudentT,
    Asinh,
    SignedLog,
    Identity,
    Copeland,
    Scores,
    DivergenceMixture,
    FluentThurstone,
    SwissEloPaper,
    SwissEloSound,
    SwissEloByIndex,
    DoubleOwn,
    DoubleDefeats,
    DegreeMinusOne,
    TwoChannels,
    Cubic,
}

impl Operator {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn build(self) -> Result<Box<dyn Aggregator>, ParameterError> {
        let OperatingPoint { rounds, alpha, .. } = OperatingPoint::HHH;
        Ok(match self {
            Self::Thurstone => Box::new(RoundRobin::thurstone()),
            Self::BradleyTerry => Box::new(RoundRobin::bradley_terry()),
            Self::WeakestLink => Box::new(RoundRobin::weakest_link()),
            Self::Laplace => Box::new(RoundRobin::new(Laplace, PNorm::EUCLIDEAN)),
            Self::Tanh => Box::new(RoundRobin::new(Tanh, PNorm::EUCLIDEAN)),
            Self::StudentT => Box::new(RoundRobin::new(StudentT::new(3.0)?, PNorm::EUCLIDEAN)),
            Self::Asinh => Box::new(RoundRobin::asinh()),
            Self::SignedLog => Box::new(RoundRobin::new(SignedLog, PNorm::EUCLIDEAN)),
            Self::Identity => Box::new(RoundRobin::new(Identity, PNorm::EUCLIDEAN)),
            Self::Copeland => Box::new(Copeland),
            Self::Scores => Box::new(Scores),
            // Under the reverse KL divergence: the means of the others' derivatives are not the
            // whole line.
            Self::DivergenceMixture => Box::new(DivergenceMixture::default()),
            Self::FluentThurstone => Box::new(Fluent::new(Entry::sound(alpha)?, RoundRobin::thurstone())),
            Self::SwissEloPaper => Box::new(SwissElo::paper(rounds, alpha)?),
            Self::SwissEloSound => Box::new(SwissElo::sound(rounds, alpha)?),
            Self::SwissEloByIndex => Box::new(SwissElo::new(rounds, Entry::sound(alpha)?, Seeding::Index)?),
            Self::DoubleOwn => Box::new(Pairwise(DoubleOwn)),
            Self::DoubleDefeats => Box::new(Pairwise(DoubleDefeats)),
            Self::DegreeMinusOne => Box::new(Pairwise(DegreeMinusOne)),
            Self::TwoChannels => Box::new(Pairwise(TwoChannels)),
            Self::Cubic => Box::new(RoundRobin::new(Cubic, PNorm::EUCLIDEAN)),
        })
    }
}

/// Checks the operators and prints the report on standard output.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &AxiomsArgs) -> Result<(), Error> {
    let chosen = if args.operators.is_empty() { Operator::value_variants() } else { &args.operators };
    let mut operators = Vec::with_capacity(chosen.len());
    for &operator in chosen {
        let built = operator.build().map_err(|error| Error::Usage(error.to_string()))?;
        operators.push((operator.name(), built));
    }
    let report = Report::new(operators.iter().map(|(name, built)| (name.as_str(), &**built)), args.cases, args.seed);
    let mut out = anstream::stdout().lock();
    let written = if args.json { writeln!(out, "{:#}", report.to_json()) } else { out.write_all(table(&report).as_bytes()) };
    written.map_err(Error::Output)
}

/// The verdicts as a table, and the counterexamples.
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
