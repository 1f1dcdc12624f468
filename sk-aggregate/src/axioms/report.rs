use std::fmt;

use serde::Serialize;
use sk_core::Aggregator;

use super::{Axiom, Verdict, check};

/// A table of operators × axioms.
///
/// Its text form has a line per operator with the violated axioms, followed by the counterexamples.
///
/// ```
/// use sk_aggregate::axioms::{Axiom, Report};
/// use sk_aggregate::{RoundRobin, Scores};
/// use sk_core::Aggregator;
///
/// let operators: [(&str, &dyn Aggregator); 2] = [("thurstone", &RoundRobin::thurstone()), ("scores", &Scores)];
/// let report = Report::new(operators, 500, 1);
/// assert!(report.rows[0].verdict(Axiom::A4).holds() && !report.rows[1].verdict(Axiom::A6).holds());
/// println!("{report}");
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The number of cases per operator and axiom.
    pub cases: usize,
    /// The seed of the cases.
    pub seed: u64,
    /// One row per operator.
    pub rows: Vec<Row>,
}

/// The findings for one operator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The operator's name.
    pub operator: String,
    /// One finding per axiom, in the order of [`Axiom::ALL`].
    pub findings: Vec<Finding>,
}

/// The finding for one axiom.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The axiom.
    pub axiom: Axiom,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl Report {
    /// Checks every operator against every axiom on the same cases.
    pub fn new<'a>(operators: impl IntoIterator<Item = (&'a str, &'a dyn Aggregator)>, cases: usize, seed: u64) -> Self {
        let row = |(name, operator): (&str, &dyn Aggregator)| {
            let find = |axiom| Finding { axiom, verdict: check(axiom, operator, cases, seed) };
            Row { operator: name.to_owned(), findings: Axiom::ALL.map(find).into() }
        };
        Self { cases, seed, rows: operators.into_iter().map(row).collect() }
    }

    /// Returns the meaning of `holds`, and the counterexamples, with a line for each part of one.
    pub fn details(&self) -> String {
        let mut text = format!("holds: no counterexample in {} cases (seed {})\n", self.cases, self.seed);
        for row in &self.rows {
            for Finding { axiom, verdict } in &row.findings {
                if let Verdict::Violated { counterexample, violation, found_after } = verdict {
                    text += &format!("\n{} breaks {axiom}, {} (case {found_after})\n", row.operator, axiom.name());
                    text += &format!("  {violation}\n  at {counterexample}\n");
                }
            }
        }
        text
    }
}

impl Row {
    /// Returns the verdict on `axiom`.
    ///
    /// # Panics
    /// If a row constructed by hand lacks it.
    pub fn verdict(&self, axiom: Axiom) -> &Verdict {
        let found = self.findings.iter().find(|finding| finding.axiom == axiom);
        &found.expect("a row has a finding for every axiom").verdict
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let broken = row.findings.iter().filter(|finding| !finding.verdict.holds());
            let broken: Vec<String> = broken.map(|finding| finding.axiom.to_string()).collect();
            let verdict = if broken.is_empty() { "holds all".to_owned() } else { format!("breaks {}", broken.join(", ")) };
            writeln!(f, "{}: {verdict}", row.operator)?;
        }
        write!(f, "\n{}", self.details())
    }
}
