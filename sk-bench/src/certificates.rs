//! Stability certificates of steps, for tables and records.

use std::fmt;

use serde::Serialize;
use sk_core::StepTrace;

use crate::scheme::{SchemeSpec, Stability, Uncertified};

/// The default of τ.
pub(crate) const TOLERANCE: f64 = 0.1;

/// The certificates of a scheme's steps at a tolerance.
pub(crate) struct Certificates {
    stability: Result<Stability, Uncertified>,
    /// τ, an acceptable total variation in [0, 1).
    pub(crate) tolerance: f64,
}

/// The certificate of one step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum StepCertificate {
    /// If every composite score changes by less than the radius, the choice distribution changes by
    /// at most the tolerance, in total variation. A radius is infinite (`null` in a record) if no
    /// change of the scores affects the choice.
    Certified {
        /// τ.
        tolerance: f64,
        /// The radius computed from all dispersions of the step, the largest of the three.
        radius: f64,
        /// The radius computed from N and the smallest spread.
        uniform_radius: f64,
        /// The radius by the bound of the paper.
        published_radius: f64,
    },
    /// There is no certificate.
    Refused {
        /// The reason.
        refused: String,
    },
}

impl Certificates {
    /// Returns the certificates of `scheme` at a tolerance.
    pub(crate) fn new(scheme: &SchemeSpec, tolerance: f64) -> Self {
        Self { stability: scheme.stability(), tolerance }
    }

    /// Returns whether no step can have a certificate, because of the scheme.
    pub(crate) fn never(&self) -> bool {
        self.stability.is_err()
    }

    /// Returns the certificate of a step.
    pub(crate) fn of(&self, step: &StepTrace) -> StepCertificate {
        let refused = |reason: Uncertified| StepCertificate::Refused { refused: reason.to_string() };
        self.certified(step).unwrap_or_else(refused)
    }

    fn certified(&self, step: &StepTrace) -> Result<StepCertificate, Uncertified> {
        let tolerance = self.tolerance;
        let certificate = self.stability.as_ref().map_err(Clone::clone)?.certificate(&step.batch())?;
        Ok(StepCertificate::Certified {
            tolerance,
            radius: certificate.radius(tolerance)?,
            uniform_radius: certificate.uniform_radius(tolerance)?,
            published_radius: certificate.published_radius(tolerance)?,
        })
    }
}

impl fmt::Display for StepCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certified { radius, .. } if radius.is_infinite() => {
                write!(f, "certified: no change of the composite scores moves the choice")
            }
            Self::Certified { tolerance, radius, published_radius, .. } => write!(
                f,
                "certified radius {radius:.4} (published radius: {published_radius:.4}): no change of a composite score by less moves the \
                 choice by more than {tolerance} in total variation"
            ),
            Self::Refused { refused } => write!(f, "no certificate: {refused}"),
        }
    }
}
