use std::sync::Arc;

use sk_core::{Real, ScoreTable, Scratch};

/// The tolerance for entries, and for negative eigenvalues, that are due to rounding.
const TOLERANCE: f64 = 1e-9;

/// A K×K correlation matrix of blade errors: symmetric, with ones on the diagonal, entries in [−1,
/// 1], and positive semidefinite.
///
/// If it has names, its rows belong to the blades of these names, whatever the order of a table and
/// whichever blades it has. A blade that is reweighted to zero, unseated or seated again keeps its
/// correlations. A blade without a row counts as fully correlated with all others, which is the
/// upper bound. Without names, row k belongs to the k-th blade of a table of K blades, and a table
/// of another size is treated as if no blade had a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Correlation {
    size: usize,
    entries: Vec<f64>,
    /// The names of the rows; empty if they have none.
    names: Vec<Arc<str>>,
}

/// The reason why a matrix is not a correlation matrix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum CorrelationError {
    /// The matrix has no rows, or the length of a row differs from the number of rows.
    #[error("row {row} of the correlation matrix has {got} entries where {expected} are needed")]
    Shape { row: usize, expected: usize, got: usize },
    /// An entry is outside [−1, 1] or NaN.
    #[error("correlation of blades {row} and {column} is {value}; it must be in [-1, 1]")]
    Entry { row: usize, column: usize, value: f64 },
    /// A diagonal entry is not one.
    #[error("correlation of blade {row} with itself is {value}; it must be 1")]
    Diagonal { row: usize, value: f64 },
    /// Two mirrored entries differ.
    #[error("correlations of blades {row} and {column} differ across the diagonal: {value} and {mirrored}")]
    Asymmetric { row: usize, column: usize, value: f64, mirrored: f64 },
    /// A name is not valid in its place.
    #[error("blade \"{name}\" is {problem}")]
    Name { name: String, problem: &'static str },
    /// Names and rows differ in number.
    #[error("{got} names for a correlation matrix of {expected} rows")]
    Names { expected: usize, got: usize },
    /// No joint distribution has these correlations.
    #[error("the correlation matrix is not positive semidefinite: blades 0 to {row} cannot be correlated like this")]
    Indefinite { row: usize },
}

impl Correlation {
    /// Creates a matrix from its rows; row and column k belong to the k-th blade.
    ///
    /// # Errors
    /// If it is not square, has an entry outside [−1, 1], is not symmetric with ones on the
    /// diagonal, or is indefinite.
    pub fn new<R: AsRef<[f64]>>(rows: &[R]) -> Result<Self, CorrelationError> {
        let size = rows.len();
        let mut entries = Vec::with_capacity(size * size);
        for (row, values) in rows.iter().map(AsRef::as_ref).enumerate() {
            if values.len() != size {
                return Err(CorrelationError::Shape { row, expected: size, got: values.len() });
            }
            entries.extend_from_slice(values);
        }
        if size == 0 {
            return Err(CorrelationError::Shape { row: 0, expected: 1, got: 0 });
        }
        let matrix = Self { size, entries, names: Vec::new() };
        matrix.check_entries()?;
        matrix.check_definite()?;
        Ok(matrix)
    }

    /// Adds the names of the blades, in the order of the rows.
    ///
    /// # Errors
    /// If the number of names differs from that of rows, or if a name is used twice.
    pub fn with_names<N: Into<Arc<str>>>(self, names: impl IntoIterator<Item = N>) -> Result<Self, CorrelationError> {
        let names: Vec<Arc<str>> = names.into_iter().map(Into::into).collect();
        if names.len() != self.size {
            return Err(CorrelationError::Names { expected: self.size, got: names.len() });
        }
        if let Some(name) = names.iter().enumerate().find_map(|(k, name)| names[..k].contains(name).then_some(name)) {
            return Err(CorrelationError::Name { name: name.to_string(), problem: "named twice" });
        }
        Ok(Self { names, ..self })
    }

    /// Creates a matrix from pairs of named blades. Pairs that are not given are uncorrelated.
    ///
    /// ```
    /// use sk_normalize::Correlation;
    /// let errors = Correlation::of_pairs([("helpful", "harmless", -0.4), ("helpful", "honest", 0.2)]).unwrap();
    /// assert_eq!((errors.get(1, 0), errors.get(1, 2)), (-0.4, 0.0));
    /// ```
    ///
    /// # Errors
    /// If there is no pair, a pair is given twice or pairs a blade with itself, an entry is outside
    /// [−1, 1], or the matrix is indefinite.
    pub fn of_pairs<'n>(pairs: impl IntoIterator<Item = (&'n str, &'n str, f64)>) -> Result<Self, CorrelationError> {
        let pairs: Vec<_> = pairs.into_iter().collect();
        let mut names: Vec<&str> = Vec::new();
        for &(a, b, _) in &pairs {
            for name in [a, b] {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let mut rows = vec![vec![0.0; names.len()]; names.len()];
        for (k, row) in rows.iter_mut().enumerate() {
            row[k] = 1.0;
        }
        let at = |name: &str| names.iter().position(|known| *known == name).expect("every name of a pair was kept");
        for (index, &(a, b, value)) in pairs.iter().enumerate() {
            let refuse = |problem| CorrelationError::Name { name: a.to_owned(), problem };
            if a == b {
                return Err(refuse("paired with itself"));
            }
            if pairs[..index].iter().any(|&(c, d, _)| (c, d) == (a, b) || (d, c) == (a, b)) {
                return Err(refuse("paired twice with the same blade"));
            }
            rows[at(a)][at(b)] = value;
            rows[at(b)][at(a)] = value;
        }
        Self::new(&rows)?.with_names(names)
    }

    /// Returns ρ of the errors of blades `row` and `column`.
    ///
    /// # Panics
    /// If an index is not below K.
    pub fn get(&self, row: usize, column: usize) -> f64 {
        assert!(column < self.size);
        self.entries[row * self.size + column]
    }

    /// Returns the row of this matrix for each blade of a table; `None` if it has no row.
    pub(crate) fn rows<F: Real>(&self, scores: &ScoreTable<F>) -> Scratch<Vec<Option<usize>>> {
        let row = |k: usize| {
            if self.names.is_empty() {
                return (scores.blades() == self.size).then_some(k);
            }
            scores.name(k).and_then(|name| self.names.iter().position(|known| &**known == name))
        };
        (0..scores.blades()).map(row).collect()
    }

    fn check_entries(&self) -> Result<(), CorrelationError> {
        for row in 0..self.size {
            for column in 0..self.size {
                let value = self.get(row, column);
                if value.is_nan() || value.abs() > 1.0 + TOLERANCE {
                    return Err(CorrelationError::Entry { row, column, value });
                }
                if row == column && (value - 1.0).abs() > TOLERANCE {
                    return Err(CorrelationError::Diagonal { row, value });
                }
                let mirrored = self.get(column, row);
                if (value - mirrored).abs() > TOLERANCE {
                    return Err(CorrelationError::Asymmetric { row, column, value, mirrored });
                }
            }
        }
        Ok(())
    }

    /// Computes the Cholesky factorisation of the matrix plus a tolerance on the diagonal, which
    /// succeeds if and only if no eigenvalue is below minus the tolerance.
    fn check_definite(&self) -> Result<(), CorrelationError> {
        let mut lower = vec![0.0; self.size * self.size];
        for row in 0..self.size {
            for column in 0..=row {
                let dot: f64 = (0..column).map(|k| lower[row * self.size + k] * lower[column * self.size + k]).sum();
                let residue = self.get(row, column) - dot;
                lower[row * self.size + column] = if row != column {
                    residue / lower[column * self.size + column]
                } else if residue + TOLERANCE > 0.0 {
                    (residue + TOLERANCE).sqrt()
                } else {
                    return Err(CorrelationError::Indefinite { row });
                };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_correlation_is_refused() {
        let refuse = |rows: &[&[f64]]| Correlation::new(rows).unwrap_err();
        assert_eq!(refuse(&[]), CorrelationError::Shape { row: 0, expected: 1, got: 0 });
        assert_eq!(refuse(&[&[1.0, 0.0], &[0.0]]), CorrelationError::Shape { row: 1, expected: 2, got: 1 });
        assert!(matches!(refuse(&[&[1.0, f64::NAN], &[f64::NAN, 1.0]]), CorrelationError::Entry { row: 0, column: 1, .. }));
        assert!(matches!(refuse(&[&[1.0, 1.5], &[1.5, 1.0]]), CorrelationError::Entry { .. }));
        assert_eq!(refuse(&[&[1.0, 0.0], &[0.0, 0.9]]), CorrelationError::Diagonal { row: 1, value: 0.9 });
        assert!(matches!(refuse(&[&[1.0, 0.5], &[0.4, 1.0]]), CorrelationError::Asymmetric { row: 0, column: 1, .. }));
        // Three errors cannot all be strongly anticorrelated with one another.
        let opposed: [&[f64]; 3] = [&[1.0, -0.6, -0.6], &[-0.6, 1.0, -0.6], &[-0.6, -0.6, 1.0]];
        assert_eq!(refuse(&opposed), CorrelationError::Indefinite { row: 2 });
    }

    #[test]
    fn the_singular_extremes_are_accepted() {
        assert!(Correlation::new(&[[1.0; 3]; 3]).is_ok());
        assert!(Correlation::new(&[[1.0, -1.0], [-1.0, 1.0]]).is_ok());
        assert!(Correlation::new(&[[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]).is_ok());
        assert!(Correlation::new(&[[1.0]]).is_ok());
    }

    #[test]
    fn rounding_is_not_an_error_and_more_than_rounding_is() {
        let (small, large) = (0.9 * TOLERANCE, 3.0 * TOLERANCE);
        let pair = |diagonal: f64, upper: f64, lower: f64| Correlation::new(&[[diagonal, upper], [lower, 1.0]]);
        // An entry slightly above one, with an eigenvalue slightly below zero.
        assert!(pair(1.0, 1.0 + small, 1.0 + small).is_ok());
        assert!(matches!(pair(1.0, 1.0 + large, 1.0 + large), Err(CorrelationError::Entry { .. })));
        assert!(pair(1.0 - small, 0.5, 0.5 + small).is_ok());
        assert!(matches!(pair(1.0 - large, 0.5, 0.5), Err(CorrelationError::Diagonal { row: 0, .. })));
        assert!(matches!(pair(1.0, 0.5, 0.5 + large), Err(CorrelationError::Asymmetric { .. })));
        // Eigenvalue 1 − 2ρ = −2·large.
        let opposed = |rho: f64| Correlation::new(&[[1.0, rho, rho], [rho, 1.0, rho], [rho, rho, 1.0]]);
        assert!(opposed(-0.5 - 0.4 * TOLERANCE).is_ok());
        assert_eq!(opposed(-0.5 - large), Err(CorrelationError::Indefinite { row: 2 }));
    }

    #[test]
    fn names_are_checked() {
        let identity = || Correlation::new(&[[1.0, 0.0], [0.0, 1.0]]).unwrap();
        assert_eq!(identity().with_names(["a"]), Err(CorrelationError::Names { expected: 2, got: 1 }));
        assert!(matches!(identity().with_names(["a", "a"]), Err(CorrelationError::Name { name, .. }) if name == "a"));
        assert!(identity().with_names(["a", "b"]).is_ok());

        let refuse = |pairs: &[(&str, &str, f64)]| Correlation::of_pairs(pairs.iter().copied()).unwrap_err();
        assert_eq!(refuse(&[]), CorrelationError::Shape { row: 0, expected: 1, got: 0 });
        assert_eq!(refuse(&[("a", "b", 0.1), ("c", "c", 1.0)]).to_string(), "blade \"c\" is paired with itself");
        let twice = "blade \"b\" is paired twice with the same blade";
        assert_eq!(refuse(&[("a", "b", 0.1), ("b", "a", 0.1)]).to_string(), twice);
        assert_eq!(refuse(&[("b", "a", 0.1), ("c", "a", 0.1), ("b", "a", 0.2)]).to_string(), twice);
        assert!(matches!(refuse(&[("a", "b", 1.5)]), CorrelationError::Entry { row: 0, column: 1, .. }));
        assert!(matches!(
            refuse(&[("a", "b", -0.6), ("b", "c", -0.6), ("c", "a", -0.6)]),
            CorrelationError::Indefinite { row: 2 }
        ));
    }
}
