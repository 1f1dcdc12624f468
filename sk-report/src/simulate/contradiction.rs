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
