//! What `certify` prints, for people and for programs.

use std::fmt;

use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use sk_aggregate::{Jump, StabilityCertificate};
use sk_core::ParameterError;

use crate::batches::RecordedBatch;
use crate::explain::RULED;
use crate::scheme::Uncertified;

/// What was certified and found, batch by batch.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) aggregator: &'static str,
    pub(super) selector: &'static str,
    pub(super) temperature: Option<f64>,
    pub(super) delta: Option<f64>,
    pub(super) tolerance: Option<f64>,
    pub(super) batches: Vec<Row>,
}

/// One batch.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Position in the file, from 1.
    batch: usize,
    /// Turn of a trace, from 0 as there.
    turn: Option<usize>,
    /// Step of a trace, from 0 as there.
    step: Option<usize>,
    candidates: usize,
    certificate: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) audit: Option<Jump>,
    #[serde(skip)]
    label: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Verdict {
    Certified(Certified),
    Refused { refused: String },
}

/// The numbers of a certificate. An infinite radius is `null` in JSON.
#[derive(Debug, Serialize)]
pub(super) struct Certified {
    /// TV for ‖δ‖_∞ ≤ D, where D is given.
    bound: Option<Forms>,
    /// D for TV ≤ τ, where τ is given.
    radius: Option<Forms>,
}

/// One number from each form of the theorem.
#[derive(Debug, Clone, Copy, Serialize)]
struct Forms {
    published: f64,
    uniform: f64,
    sharpened: f64,
}

impl Forms {
    fn each(self) -> [f64; 3] {
        [self.published, self.uniform, self.sharpened]
    }
}

impl Certified {
    pub(super) fn new(
        certificate: &StabilityCertificate,
        delta: Option<f64>,
        tolerance: Option<f64>,
    ) -> Result<Self, ParameterError> {
        let bound = delta.map(|delta| Forms {
            published: certificate.published(delta),
            uniform: certificate.uniform(delta),
            sharpened: certificate.bound(delta),
        });
        let radius = tolerance.map(|tolerance| {
            Ok(Forms {
                published: certificate.published_radius(tolerance)?,
                uniform: certificate.uniform_radius(tolerance)?,
                sharpened: certificate.radius(tolerance)?,
            })
        });
        Ok(Self { bound, radius: radius.transpose()? })
    }
}

impl Row {
    pub(super) fn new(recorded: &RecordedBatch, certified: Result<Certified, Uncertified>) -> Self {
        Self {
            batch: recorded.position,
            turn: recorded.at.map(|(turn, _)| turn),
            step: recorded.at.map(|(_, step)| step),
            candidates: recorded.batch().len(),
            certificate: match certified {
                Ok(certified) => Verdict::Certified(certified),
                Err(reason) => Verdict::Refused { refused: reason.to_string() },
            },
            audit: None,
            label: recorded.label(),
        }
    }

    /// Why there is no certificate, if there is none.
    pub(super) fn refused(&self) -> Option<&str> {
        match &self.certificate {
            Verdict::Certified(_) => None,
            Verdict::Refused { refused } => Some(refused),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under {}", self.aggregator, self.selector)?;
        if let Some(temperature) = self.temperature {
            write!(f, " at T = {temperature}")?;
        }
        writeln!(f)?;
        if self.batches.iter().any(|row| row.refused().is_none()) {
            self.certificates(f)?;
        }
        for row in &self.batches {
            if let Some(refused) = row.refused() {
                writeln!(f, "\n{}: no certificate: {refused}", row.label)?;
            }
            if let Some(jump) = &row.audit {
                self.audit(f, row, jump)?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn certificates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = ruled();
        let forms = |what: &str| ["published", "uniform", "sharpened"].map(|form| format!("{what}, {form}"));
        let mut header = vec!["batch".to_owned(), "N".to_owned()];
        header.extend(self.delta.into_iter().flat_map(|_| forms("bound")));
        header.extend(self.tolerance.into_iter().flat_map(|_| forms("radius")));
        table.set_header(header);
        for row in &self.batches {
            let Verdict::Certified(Certified { bound, radius }) = &row.certificate else { continue };
            let mut cells = vec![row.label.clone(), row.candidates.to_string()];
            cells.extend(bound.iter().chain(radius).flat_map(|forms| forms.each()).map(short));
            table.add_row(cells);
        }
        align(&mut table, 1);
        writeln!(f, "\n{}\n", table.trim_fmt())?;
        if let Some(delta) = self.delta {
            writeln!(
                f,
                "bound: what the choice moves by, in total variation, when no score moves by more than {delta}; 1 or more says nothing"
            )?;
        }
        if let Some(tolerance) = self.tolerance {
            writeln!(f, "radius: when no score moves by more, the choice moves by at most {tolerance} in total variation")?;
        }
        Ok(())
    }

    fn audit(&self, f: &mut fmt::Formatter<'_>, row: &Row, jump: &Jump) -> fmt::Result {
        let (label, found, delta) = (&row.label, short(jump.total_variation), short(self.delta.unwrap_or(0.0)));
        let evaluations = jump.evaluations;
        writeln!(
            f,
            "\n{label}: a jump of {found} in total variation, for a change of at most {delta} ({evaluations} evaluations)"
        )?;
        if let Verdict::Certified(Certified { bound: Some(bound), .. }) = &row.certificate {
            let share = if bound.sharpened > 0.0 { 100.0 * jump.total_variation / bound.sharpened } else { 100.0 };
            writeln!(f, "the certificate allows {}; the search reaches {share:.1}% of it", short(bound.sharpened))?;
        }
        let mut table = ruled();
        let mut header = vec!["#", "μ before", "μ after", "change", "σ"];
        header.extend(jump.fluency.is_some().then_some("ℓ_S"));
        header.extend(["P before", "P after"]);
        table.set_header(header);
        for i in 0..jump.before.len() {
            let (before, after) = (jump.before[i], jump.after[i]);
            // In full: what differs may be the last digit.
            let mut cells =
                vec![(i + 1).to_string(), before.to_string(), after.to_string(), short(after - before), short(jump.sigma[i])];
            cells.extend(jump.fluency.as_ref().map(|fluency| short(fluency[i])));
            cells.extend([jump.probabilities_before[i], jump.probabilities_after[i]].map(|p| format!("{p:.4}")));
            table.add_row(cells);
        }
        align(&mut table, 0);
        writeln!(f, "{}", table.trim_fmt())
    }
}

fn ruled() -> Table {
    let mut table = Table::new();
    table.load_style(RULED);
    table
}

fn align(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Four digits after the point where they say something, else an exponent.
fn short(x: f64) -> String {
    let size = x.abs();
    if x.is_infinite() {
        "∞".to_owned()
    } else if x == 0.0 || (1e-3..1e6).contains(&size) {
        format!("{x:.4}")
    } else {
        format!("{x:.3e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        let cases = [
            (0.0, "0.0000"),
            (0.25, "0.2500"),
            (-12.34567, "-12.3457"),
            (1.5e-7, "1.500e-7"),
            (2e9, "2.000e9"),
            (f64::INFINITY, "∞"),
        ];
        for (number, text) in cases {
            assert_eq!(short(number), text);
        }
    }
}
