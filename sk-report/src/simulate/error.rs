use sk_aggregate::NoCertificate;
use sk_blades::InformativenessError;
use sk_core::ParameterError;

use super::Mean;
use super::dispersion::{FEWEST_WORLDS, LIMIT, told};

/// A datum that a theorem says cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the data contradict {theorem}: {datum}")]
pub struct Contradiction {
    /// The theorem, by its label in the paper or its name in the book.
    pub theorem: &'static str,
    /// What was found, where, and what would have had to be.
    pub datum: String,
}

impl Contradiction {
    /// Refuses `datum` in the name of `theorem` unless `holds`.
    pub(super) fn unless(holds: bool, theorem: &'static str, datum: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self { theorem, datum: datum() }) }
    }
}

/// A study that cannot be done, whose data contradict a theorem, or whose worlds are too few to show
/// what they should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A datum against a theorem.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// A member of the family without a certificate.
    #[error("{operator}: {source}")]
    Uncertified {
        /// The operator.
        operator: String,
        /// Why it has none.
        source: NoCertificate,
    },
    /// A bound that an operator does not have.
    #[error(transparent)]
    NoBound(#[from] NoCertificate),
    /// A difference that a claim implies, and that the worlds neither show nor exclude.
    #[error(
        "{worlds} worlds do not resolve {claim}: at a coupling of {coupling}, {what} is {}, and a difference shows from {:.5} on",
        told(*.difference), LIMIT * .difference.error
    )]
    Unresolved {
        /// The claim.
        claim: &'static str,
        /// The coupling of the worlds.
        coupling: f64,
        /// Which difference.
        what: &'static str,
        /// As far as it is known.
        difference: Mean,
        /// Worlds.
        worlds: usize,
    },
    /// Too few worlds for a standard error to go by.
    #[error("{worlds} worlds are too few to know a standard error by; draw {FEWEST_WORLDS} or more")]
    TooFewWorlds {
        /// Worlds.
        worlds: usize,
    },
    /// A temperature or a radius that is none.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// Too few worlds to tell 𝓘.
    #[error(transparent)]
    Informativeness(#[from] InformativenessError),
}
