//! The output of `certify`, as text and as JSON.

use std::fmt;

use indexmap::IndexMap;
use serde::Serialize;
use sk_aggregate::{Jump, StabilityCertificate};
use sk_core::ParameterError;
use sk_report::grid::{Grid, wrap};

use crate::batches::RecordedBatch;
use crate::scheme::Uncertified;
use crate::terminal;

/// The certificates and audits of all batches.
#[derive(Debug, Serialize)]
pub(super) struct CertifyReport {
    pub(super) aggregator: String,
    pub(super) selector: String,
    pub(super) temperature: Option<f64>,
    pub(super) delta: Option<f64>,
    pub(super) tolerance: Option<f64>,
    pub(super) batches: Vec<CertifiedStep>,
}

/// The certificate and audit of one batch.
#[derive(Debug, Serialize)]
pub(super) struct CertifiedStep {
    /// Position in the file, from 1.
    batch: usize,
    /// Turn of a trace, from 0 as in the trace.
    turn: Option<usize>,
    /// Step of a trace, from 0 as in the trace.
    step: Option<usize>,
    candidates: usize,
    certificate: Certification,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<Jump>,
    /// The violation that the audit found.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    #[serde(skip)]
    label: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Certification {
    Certified(Certified),
    Refused { refused: String },
}

/// The numbers of a certificate. An infinite radius is `null` in JSON.
#[derive(Debug, Serialize)]
pub(super) struct Certified {
    /// Bound on TV for ‖δ‖_∞ ≤ D, if D is given.
    bound: Option<Forms>,
    /// Radius D for TV ≤ τ, if τ is given.
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

impl CertifiedStep {
    pub(super) fn new(recorded: &RecordedBatch, certified: Result<Certified, Uncertified>) -> Self {
        Self {
            batch: recorded.position,
            turn: recorded.at.map(|(turn, _)| turn),
            step: recorded.at.map(|(_, step)| step),
            candidates: recorded.batch().len(),
            certificate: match certified {
                Ok(certified) => Certification::Certified(certified),
                Err(reason) => Certification::Refused { refused: reason.to_string() },
            },
            audit: None,
            fault: None,
            label: recorded.label(),
        }
    }

    /// Adds the result of an audit within `delta`, and checks it against the certificate.
    pub(super) fn audited(&mut self, jump: Jump, delta: f64, certificate: Option<&StabilityCertificate>) {
        self.fault = fault(&jump, delta, certificate);
        self.audit = Some(jump);
    }

    /// Returns the reason why there is no certificate, if there is none.
    pub(super) fn refused(&self) -> Option<&str> {
        match &self.certificate {
            Certification::Certified(_) => None,
            Certification::Refused { refused } => Some(refused),
        }
    }
}

/// Returns the fault of a jump as text, if any: numbers that are not probabilities, or a change
/// beyond the certificate.
fn fault(jump: &Jump, delta: f64, certificate: Option<&StabilityCertificate>) -> Option<String> {
    /// Rounding of a probability.
    const ROUNDING: f64 = 1e-12;
    let probabilities = jump.probabilities_before.iter().chain(&jump.probabilities_after);
    if let Some(p) = probabilities.copied().find(|p| !(0.0..=1.0 + ROUNDING).contains(p)) {
        return Some(format!("a candidate is chosen with a probability of {p}"));
    }
    let certificate = certificate?;
    // Allow for rounding errors of the scores, and of ratings of order N.
    let units = 8.0 * jump.before.len() as f64 * f64::EPSILON;
    let peak = jump.before.iter().chain(&jump.after).fold(0.0f64, |peak, score| peak.max(score.abs()));
    let allowed = certificate.bound(delta + units * peak) + units / certificate.temperature() + ROUNDING;
    let found = jump.total_variation;
    // NaN is not within the bound either.
    (found > allowed || found.is_nan())
        .then(|| format!("a jump of {} where the certificate allows {}", short(found), short(certificate.bound(delta))))
}

impl fmt::Display for CertifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} under {}", self.aggregator, self.selector)?;
        if let Some(temperature) = self.temperature {
            write!(f, " at T = {}", full(temperature))?;
        }
        writeln!(f)?;
        if self.batches.iter().any(|row| row.refused().is_none()) {
            self.certificates(f)?;
        }
        let mut refused: IndexMap<&str, (&str, usize)> = IndexMap::new();
        for (row, reason) in self.batches.iter().filter_map(|row| Some((row, row.refused()?))) {
            refused.entry(reason).or_insert((&row.label, 0)).1 += 1;
        }
        for (reason, (label, count)) in refused {
            let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            writeln!(f, "\n{label}{others}: no certificate: {reason}")?;
        }
        for (row, jump) in self.batches.iter().filter_map(|row| Some((row, row.audit.as_ref()?))) {
            self.audit(f, row, jump)?;
        }
        Ok(())
    }
}

impl CertifyReport {
    /// Returns the first fault that an audit found.
    pub(super) fn fault(&self) -> Option<String> {
        self.batches.iter().find_map(|row| Some(format!("{}: {}", row.label, row.fault.as_ref()?)))
    }

    fn certificates(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = terminal::columns();
        let forms = |what: &str| ["published", "uniform", "sharpened"].map(|form| format!("{what}, {form}"));
        let mut header = vec!["batch".to_owned(), "N".to_owned()];
        header.extend(self.delta.into_iter().flat_map(|_| forms("bound")));
        header.extend(self.tolerance.into_iter().flat_map(|_| forms("radius")));
        let mut grid = Grid::new(header).numbers(1..);
        for row in &self.batches {
            let Certification::Certified(Certified { bound, radius }) = &row.certificate else { continue };
            let mut cells = vec![row.label.clone(), row.candidates.to_string()];
            cells.extend(bound.iter().chain(radius).flat_map(|forms| forms.each()).map(short));
            grid.row(cells);
        }
        writeln!(f, "\n{}\n", grid.render(width))?;
        if let Some(delta) = self.delta {
            let bound = format!(
                "bound: what the choice moves by, in total variation, when no score moves by more than {}; 1 or more says nothing",
                full(delta)
            );
            writeln!(f, "{}", wrap(&bound, width, 2))?;
        }
        if let Some(tolerance) = self.tolerance {
            let radius =
                format!("radius: when no score moves by more, the choice moves by at most {tolerance} in total variation");
            writeln!(f, "{}", wrap(&radius, width, 2))?;
        }
        Ok(())
    }

    fn audit(&self, f: &mut fmt::Formatter<'_>, row: &CertifiedStep, jump: &Jump) -> fmt::Result {
        let (label, found, delta) = (&row.label, short(jump.total_variation), short(self.delta.unwrap_or(0.0)));
        let evaluations = jump.evaluations;
        writeln!(
            f,
            "\n{label}: a jump of {found} in total variation,\n  for a change of at most {delta} ({evaluations} evaluations)"
        )?;
        if let Certification::Certified(Certified { bound: Some(bound), .. }) = &row.certificate {
            write!(f, "the certificate allows {}", short(bound.sharpened))?;
            match &row.fault {
                Some(_) => writeln!(f, ": it does not hold")?,
                None if bound.sharpened > 0.0 => {
                    writeln!(f, "; the search reaches {:.1}% of it", 100.0 * jump.total_variation / bound.sharpened)?;
                }
                None => writeln!(f)?,
            }
        }
        let mut header = vec!["#", "μ before", "μ after", "change", "σ"];
        header.extend(jump.fluency.is_some().then_some("ℓ_S"));
        header.extend(["P before", "P after"]);
        let mut grid = Grid::new(header).numbers(..);
        for i in 0..jump.before.len() {
            let (before, after) = (jump.before[i], jump.after[i]);
            // Show all digits, because only the last one may differ.
            let mut cells = vec![(i + 1).to_string(), full(before), full(after), short(after - before), short(jump.sigma[i])];
            cells.extend(jump.fluency.as_ref().map(|fluency| short(fluency[i])));
            cells.extend([jump.probabilities_before[i], jump.probabilities_after[i]].map(|p| format!("{p:.4}")));
            grid.row(cells);
        }
        writeln!(f, "{}", grid.render(terminal::columns()))
    }
}

/// Formats a number with four decimals, or with an exponent if they would not suffice.
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

/// Formats a number with all significant digits, with an exponent if it is very large or very
/// small.
fn full(x: f64) -> String {
    if x == 0.0 || (1e-5..1e16).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}

#[cfg(test)]
mod tests {
    use sk_aggregate::Modulus;

    use super::*;

    fn jump(found: f64, probabilities: [f64; 2]) -> Jump {
        Jump {
            total_variation: found,
            before: vec![0.0, 1.0],
            after: vec![1.0, 0.0],
            sigma: vec![1.0; 2],
            fluency: None,
            probabilities_before: vec![0.5; 2],
            probabilities_after: probabilities.into(),
            evaluations: 1,
        }
    }

    /// At a slope of 4 and T = 1 a change by 1 may move the choice by tanh 1 = .7616.
    #[test]
    fn a_change_beyond_the_certificate_is_a_fault() {
        let modulus = Modulus { published: 4.0, uniform: 4.0, sharpened: 4.0 };
        let certificate = StabilityCertificate::of(modulus, 1.0).unwrap();
        let of = |jump: Jump| fault(&jump, 1.0, Some(&certificate));
        assert_eq!(of(jump(0.7615, [0.0, 1.0])), None);
        assert_eq!(of(jump(0.7617, [0.0, 1.0])).unwrap(), "a jump of 0.7617 where the certificate allows 0.7616");
        assert_eq!(of(jump(0.0, [f64::NAN, 0.5])).unwrap(), "a candidate is chosen with a probability of NaN");
        assert_eq!(of(jump(0.0, [-0.5, 1.5])).unwrap(), "a candidate is chosen with a probability of -0.5");
        assert!(of(jump(f64::NAN, [0.0, 1.0])).is_some());
        // Without a certificate, the choice only has to be a distribution.
        assert_eq!(fault(&jump(1.0, [0.0, 1.0]), 1.0, None), None);
        assert!(fault(&jump(1.0, [f64::NAN; 2]), 1.0, None).is_some());
    }

    #[test]
    fn numbers_in_full_are_no_longer_than_their_digits() {
        for (number, text) in
            [(0.0, "0"), (0.01, "0.01"), (-0.30000000000000004, "-0.30000000000000004"), (1e308, "1e308"), (1e-9, "1e-9")]
        {
            assert_eq!(full(number), text);
        }
    }

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
