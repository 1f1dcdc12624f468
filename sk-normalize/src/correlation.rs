/// How far from its exact value an entry may be, and how negative an eigenvalue, to be read as rounding.
const TOLERANCE: f64 = 1e-9;

/// A K×K correlation matrix of blade errors: symmetric, ones on the diagonal, entries in [−1, 1], positive semidefinite.
#[derive(Debug, Clone, PartialEq)]
pub struct Correlation {
    size: usize,
    entries: Vec<f64>,
}

/// A matrix that is not a correlation matrix.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CorrelationError {
    /// No row, or a row of another length than there are rows.
    #[error("row {row} of the correlation matrix has {got} entries where {expected} are needed")]
    Shape {
        /// Index of the row.
        row: usize,
        /// Number of rows.
        expected: usize,
        /// Length of the row.
        got: usize,
    },
    /// An entry outside [−1, 1], or not a number.
    #[error("correlation of blades {row} and {column} is {value}; it must be in [-1, 1]")]
    Entry {
        /// Row.
        row: usize,
        /// Column.
        column: usize,
        /// The entry.
        value: f64,
    },
    /// A diagonal entry that is not one.
    #[error("correlation of blade {row} with itself is {value}; it must be 1")]
    Diagonal {
        /// Row.
        row: usize,
        /// The entry.
        value: f64,
    },
    /// Two mirrored entries that differ.
    #[error("correlations of blades {row} and {column} differ across the diagonal: {value} and {mirrored}")]
    Asymmetric {
        /// Row.
        row: usize,
        /// Column.
        column: usize,
        /// The entry.
        value: f64,
        /// Its mirror image.
        mirrored: f64,
    },
    /// No joint distribution has these correlations.
    #[error("the correlation matrix is not positive semidefinite: blades 0 to {row} cannot be correlated like this")]
    Indefinite {
        /// The first row at which this shows.
        row: usize,
    },
}

impl Correlation {
    /// A matrix given by its rows, row and column k for the k-th blade.
    ///
    /// # Errors
    /// When it is not square, has an entry outside [−1, 1], is not symmetric with ones on the diagonal, or is indefinite.
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
        let matrix = Self { size, entries };
        matrix.check_entries()?;
        matrix.check_definite()?;
        Ok(matrix)
    }

    /// K.
    pub fn size(&self) -> usize {
        self.size
    }

    /// ρ of the errors of blades `row` and `column`.
    ///
    /// # Panics
    /// When an index is not below [`size`](Self::size).
    pub fn get(&self, row: usize, column: usize) -> f64 {
        assert!(column < self.size);
        self.entries[row * self.size + column]
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

    /// Cholesky factorisation of the matrix plus a tolerance on the diagonal: it succeeds iff no eigenvalue is below minus the tolerance.
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
        // Three errors cannot each be opposed to the two others.
        let opposed: [&[f64]; 3] = [&[1.0, -0.6, -0.6], &[-0.6, 1.0, -0.6], &[-0.6, -0.6, 1.0]];
        assert_eq!(refuse(&opposed), CorrelationError::Indefinite { row: 2 });
    }

    #[test]
    fn the_singular_extremes_are_accepted() {
        assert!(Correlation::new(&[[1.0; 3]; 3]).is_ok());
        assert!(Correlation::new(&[[1.0, -1.0], [-1.0, 1.0]]).is_ok());
        assert!(Correlation::new(&[[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]]).is_ok());
        assert_eq!(Correlation::new(&[[1.0]]).unwrap().size(), 1);
    }
}
