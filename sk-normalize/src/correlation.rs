use sk_core::{Real, ScoreTable, Scratch};

/// The tolerance for negative eigenvalues that are due to rounding.
const TOLERANCE: f64 = 1e-9;

/// The correlation matrix of the errors of named blades: symmetric, with ones on the diagonal,
/// entries in [−1, 1], and positive semidefinite.
///
/// Its rows belong to the blades of these names, whatever the order of a table and whichever blades
/// it has. A blade that is reweighted to zero, unseated or seated again keeps its correlations. A
/// blade without a row counts as fully correlated with all others, which is the upper bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Correlation {
    /// The names of the rows.
    names: Vec<String>,
    entries: Vec<f64>,
}

/// The reason why correlations are refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum CorrelationError {
    /// A correlation is outside [−1, 1] or NaN.
    #[error("the correlation of \"{one}\" and \"{other}\" is {value}; it must be in [-1, 1]")]
    Range { one: String, other: String, value: f64 },
    /// A blade is paired with itself.
    #[error("blade \"{name}\" is paired with itself")]
    Itself { name: String },
    /// Two blades are paired twice.
    #[error("blade \"{name}\" is paired twice with the same blade")]
    Twice { name: String },
    /// No joint distribution has these correlations.
    #[error("the errors of blades {} cannot all be correlated like this; move the correlations towards 0", names.join(", "))]
    Indefinite { names: Vec<String> },
}

impl Correlation {
    /// Creates the matrix from pairs of named blades. Pairs that are not given are uncorrelated.
    ///
    /// ```
    /// use sk_normalize::Correlation;
    /// assert!(Correlation::of_pairs([("helpful", "harmless", -0.4), ("helpful", "honest", 0.2)]).is_ok());
    /// // Three errors cannot all be strongly anticorrelated with one another.
    /// assert!(Correlation::of_pairs([("a", "b", -0.6), ("b", "c", -0.6), ("c", "a", -0.6)]).is_err());
    /// ```
    ///
    /// # Errors
    /// If a correlation is outside [−1, 1], a pair is given twice or pairs a blade with itself, or
    /// the matrix is indefinite.
    pub fn of_pairs<'n>(pairs: impl IntoIterator<Item = (&'n str, &'n str, f64)>) -> Result<Self, CorrelationError> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let mut names: Vec<&str> = Vec::new();
        for (index, &(one, other, value)) in pairs.iter().enumerate() {
            if !(-1.0..=1.0).contains(&value) {
                return Err(CorrelationError::Range { one: one.to_owned(), other: other.to_owned(), value });
            }
            if one == other {
                return Err(CorrelationError::Itself { name: one.to_owned() });
            }
            if pairs[..index].iter().any(|&(a, b, _)| (a, b) == (one, other) || (b, a) == (one, other)) {
                return Err(CorrelationError::Twice { name: one.to_owned() });
            }
            for name in [one, other] {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let size = names.len();
        let at = |name: &str| names.iter().position(|known| *known == name).expect("every name of a pair was kept");
        let mut entries = vec![0.0; size * size];
        (0..size).for_each(|row| entries[row * size + row] = 1.0);
        for &(one, other, value) in &pairs {
            entries[at(one) * size + at(other)] = value;
            entries[at(other) * size + at(one)] = value;
        }
        let matrix = Self { names: names.into_iter().map(str::to_owned).collect(), entries };
        matrix.check_definite()?;
        Ok(matrix)
    }

    /// Returns ρ of the errors of the blades of two rows.
    pub(crate) fn get(&self, row: usize, column: usize) -> f64 {
        self.entries[row * self.names.len() + column]
    }

    /// Returns the row of this matrix for each blade of a table; `None` if it has no row.
    pub(crate) fn rows<F: Real>(&self, scores: &ScoreTable<F>) -> Scratch<Vec<Option<usize>>> {
        let row = |k: usize| scores.name(k).and_then(|name| self.names.iter().position(|known| known == name));
        (0..scores.blades()).map(row).collect()
    }

    /// Computes the Cholesky factorisation of the matrix plus a tolerance on the diagonal, which
    /// succeeds if and only if no eigenvalue is below minus the tolerance.
    fn check_definite(&self) -> Result<(), CorrelationError> {
        let size = self.names.len();
        let mut lower = vec![0.0; size * size];
        for row in 0..size {
            for column in 0..=row {
                let dot: f64 = (0..column).map(|k| lower[row * size + k] * lower[column * size + k]).sum();
                let residue = self.get(row, column) - dot;
                lower[row * size + column] = if row != column {
                    residue / lower[column * size + column]
                } else if residue + TOLERANCE > 0.0 {
                    (residue + TOLERANCE).sqrt()
                } else {
                    return Err(CorrelationError::Indefinite { names: self.names[..=row].to_vec() });
                };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pairs: &[(&str, &str, f64)]) -> String {
        Correlation::of_pairs(pairs.iter().copied()).unwrap_err().to_string()
    }

    /// The correlation ρ for each pair of three blades.
    fn all(rho: f64) -> [(&'static str, &'static str, f64); 3] {
        [("a", "b", rho), ("b", "c", rho), ("c", "a", rho)]
    }

    #[test]
    fn entries_are_those_of_the_pairs() {
        let matrix = Correlation::of_pairs([("helpful", "harmless", -0.4), ("helpful", "honest", 0.2)]).unwrap();
        assert_eq!(matrix.entries, [1.0, -0.4, 0.2, -0.4, 1.0, 0.0, 0.2, 0.0, 1.0]);
    }

    #[test]
    fn what_is_not_a_correlation_is_refused() {
        assert_eq!(refusal(&[("a", "b", 1.5)]), "the correlation of \"a\" and \"b\" is 1.5; it must be in [-1, 1]");
        assert!(refusal(&[("a", "b", 0.1), ("b", "c", f64::NAN)]).contains("\"b\" and \"c\" is NaN"));
        assert_eq!(refusal(&[("a", "b", 0.1), ("c", "c", 1.0)]), "blade \"c\" is paired with itself");
        let twice = "blade \"b\" is paired twice with the same blade";
        assert_eq!(refusal(&[("a", "b", 0.1), ("b", "a", 0.1)]), twice);
        assert_eq!(refusal(&[("b", "a", 0.1), ("c", "a", 0.1), ("b", "a", 0.2)]), twice);
        // Three errors cannot all be strongly anticorrelated with one another; a fourth blade is not
        // at fault.
        let opposed = [("a", "b", -0.6), ("a", "c", -0.6), ("c", "b", -0.6), ("d", "a", 0.0)];
        let said = "the errors of blades a, b, c cannot all be correlated like this; move the correlations towards 0";
        assert_eq!(refusal(&opposed), said);
    }

    #[test]
    fn the_singular_extremes_are_accepted() {
        assert!(Correlation::of_pairs(all(1.0)).is_ok());
        assert!(Correlation::of_pairs([("a", "b", -1.0)]).is_ok());
        assert!(Correlation::of_pairs(all(-0.5)).is_ok());
        assert!(Correlation::of_pairs([]).is_ok());
    }

    #[test]
    fn rounding_is_not_an_error_and_more_than_rounding_is() {
        // The least eigenvalue is 1 + 2ρ: −0.8 and −6 tolerances.
        assert!(Correlation::of_pairs(all(-0.5 - 0.4 * TOLERANCE)).is_ok());
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(Correlation::of_pairs(all(-0.5 - 3.0 * TOLERANCE)), Err(CorrelationError::Indefinite { names }));
    }
}
