use sk_aggregate::NoCertificate;
use sk_blades::InformativenessError;
use sk_core::ParameterError;

use super::Mean;
use super::dispersion::{FEWEST_WORLDS, LIMIT, told};

/// A datum that contradicts a theorem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the data contradict {theorem}: {datum}")]
pub struct Contradiction {
    /// The theorem, by its label in the paper or its name in the book.
    pub theorem: &'static str,
    /// The datum: what was found, where, and the required value.
    pub datum: String,
}

impl Contradiction {
    /// Returns a contradiction of `theorem` by `datum` unless `holds`.
    pub(super) fn unless(holds: bool, theorem: &'static str, datum: impl FnOnce() -> String) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self { theorem, datum: datum() }) }
    }
}

/// The reason why a study failed: invalid settings, a contradiction of a theorem, or too few worlds
/// to decide.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum SimulationError {
    /// A datum contradicts a theorem.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// The operator has no bound.
    #[error(transparent)]
    NoBound(#[from] NoCertificate),
    /// The worlds neither confirm nor contradict a difference that a claim implies.
    #[error(
        "{worlds} worlds do not resolve {claim}: at a coupling of {coupling}, {what} is {}, and a difference shows from {:.5} on",
        told(*.difference), LIMIT * .difference.error
    )]
    Unresolved { claim: &'static str, coupling: f64, what: &'static str, difference: Mean, worlds: usize },
    /// The worlds are too few to estimate a standard error.
    #[error("{worlds} worlds are too few for a standard error; draw {FEWEST_WORLDS} or more")]
    TooFewWorlds { worlds: usize },
    /// A temperature or a radius is invalid.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The worlds are too few to estimate 𝓘.
    #[error(transparent)]
    Informativeness(#[from] InformativenessError),
}
