use std::sync::Arc;

use crate::{ParameterError, Real, ScoreError, Scratch};

/// The score of a blade for one candidate: μ and a dispersion σ ≥ 0, both finite.
///
/// σ should have the unit of μ, like the standard error of a mean. The min-entropy of the reference
/// method does not; the convention of the normaliser then determines their relative scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    mu: f64,
    sigma: f64,
}

impl Score {
    /// The score of each candidate before a blade writes it. It is not valid.
    pub(crate) const UNSET: Self = Self { mu: f64::NAN, sigma: f64::NAN };

    /// Creates a score with dispersion `sigma`.
    ///
    /// # Errors
    /// If `mu` is not finite, or if `sigma` is negative or not finite.
    pub fn new(mu: f64, sigma: f64) -> Result<Self, ParameterError> {
        ParameterError::check(mu.is_finite(), "score", mu, "finite")?;
        ParameterError::not_negative("dispersion", sigma)?;
        Ok(Self { mu, sigma })
    }

    /// As [`new`](Self::new), for the candidate with this index.
    ///
    /// # Errors
    /// As [`new`](Self::new). The error names the candidate.
    pub fn of(candidate: usize, mu: f64, sigma: f64) -> Result<Self, ScoreError> {
        check(candidate, mu, sigma)?;
        Ok(Self { mu, sigma })
    }

    /// μ.
    pub fn mu(self) -> f64 {
        self.mu
    }

    /// σ ≥ 0.
    pub fn sigma(self) -> f64 {
        self.sigma
    }
}

/// Validates a score. The error names `candidate`.
pub(crate) fn check<F: Real>(candidate: usize, mu: F, sigma: F) -> Result<(), ScoreError> {
    let refuse = |quantity, value: F, expected| Err(ScoreError::Value { quantity, candidate, value: value.widen(), expected });
    if !mu.is_finite() {
        return refuse("score", mu, "scores must be finite");
    }
    if !sigma.is_finite() || sigma < F::zero() {
        return refuse("dispersion", sigma, "dispersions must be finite and not negative");
    }
    Ok(())
}

/// The scores of N candidates by K blades: two K×N tables, with row k for blade k. K and N are at
/// least 1.
///
/// Rows may have the names of their blades, so that a blade can be found by name.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreTable<F = f64> {
    candidates: usize,
    mu: Vec<F>,
    sigma: Vec<F>,
    /// The names of the rows; empty if they have none.
    names: Vec<Arc<str>>,
}

impl<F: Real> ScoreTable<F> {
    /// Creates a table from one pair of rows `(mu, sigma)` per blade.
    ///
    /// # Errors
    /// If there is no row, a row is empty, rows differ in length, or a value is not a valid score.
    /// The error names blade and candidate.
    pub fn new<M, S>(rows: impl IntoIterator<Item = (M, S)>) -> Result<Self, ScoreError>
    where
        M: AsRef<[F]>,
        S: AsRef<[F]>,
    {
        let mut table = Self { candidates: 0, mu: Vec::new(), sigma: Vec::new(), names: Vec::new() };
        for (blade, (mu, sigma)) in rows.into_iter().enumerate() {
            let (mu, sigma) = (mu.as_ref(), sigma.as_ref());
            if blade == 0 {
                table.candidates = mu.len();
            }
            let expected = table.candidates.max(1);
            if let Some(got) = [mu.len(), sigma.len()].into_iter().find(|&got| got != expected) {
                return Err(ScoreError::Shape { blade, expected, got });
            }
            for (candidate, (&m, &s)) in mu.iter().zip(sigma).enumerate() {
                check(candidate, m, s).map_err(|source| ScoreError::Blade { blade, source: Box::new(source) })?;
            }
            table.mu.extend_from_slice(mu);
            table.sigma.extend_from_slice(sigma);
        }
        if table.candidates == 0 {
            return Err(ScoreError::NoBlade);
        }
        Ok(table)
    }

    /// Adds the names of the blades, in the order of the rows.
    ///
    /// # Errors
    /// If the number of names differs from that of rows, or if two names are equal.
    pub fn with_names<S: Into<Arc<str>>>(self, names: impl IntoIterator<Item = S>) -> Result<Self, ScoreError> {
        let names: Vec<Arc<str>> = names.into_iter().map(Into::into).collect();
        if names.len() != self.blades() {
            return Err(ScoreError::Names { expected: self.blades(), got: names.len() });
        }
        for (k, name) in names.iter().enumerate() {
            if names[..k].contains(name) {
                return Err(ScoreError::SameName { name: name.to_string() });
            }
        }
        Ok(Self { names, ..self })
    }

    /// Returns the name of blade `k`, if the rows have names.
    pub fn name(&self, k: usize) -> Option<&str> {
        self.names.get(k).map(|name| &**name)
    }

    /// Returns the row of the blade called `name`.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| &**known == name)
    }

    /// Returns the scores of the given blades, in the given order.
    ///
    /// # Panics
    /// If `blades` is empty, or one of them is not below [`blades`](Self::blades).
    #[must_use]
    pub(crate) fn select(&self, blades: &[usize]) -> Self {
        assert!(!blades.is_empty(), "a table has at least one blade");
        let rows =
            |values: &[F]| blades.iter().flat_map(|&k| values[k * self.candidates..][..self.candidates].to_vec()).collect();
        let names = if self.names.is_empty() { Vec::new() } else { blades.iter().map(|&k| Arc::clone(&self.names[k])).collect() };
        Self { candidates: self.candidates, mu: rows(&self.mu), sigma: rows(&self.sigma), names }
    }

    /// Returns the scores of the given candidates, at least one, in the given order.
    pub(crate) fn pick(&self, candidates: &[usize]) -> Scratch<Self> {
        let mut picked = Scratch::lend(|| self.clone());
        let out = &mut *picked;
        for (picked, values) in [(&mut out.mu, &self.mu), (&mut out.sigma, &self.sigma)] {
            picked.clear();
            picked.extend(values.chunks_exact(self.candidates).flat_map(|row| candidates.iter().map(|&i| row[i])));
        }
        out.names.clone_from(&self.names);
        out.candidates = candidates.len();
        picked
    }

    /// Returns K, the number of blades.
    pub fn blades(&self) -> usize {
        self.mu.len() / self.candidates
    }

    /// Returns N, the number of candidates.
    pub fn candidates(&self) -> usize {
        self.candidates
    }

    /// Returns the scores of blade `k`, one per candidate.
    ///
    /// # Panics
    /// If `k >= self.blades()`.
    pub fn mu(&self, k: usize) -> &[F] {
        &self.mu[k * self.candidates..(k + 1) * self.candidates]
    }

    /// Returns the dispersions of blade `k`, one per candidate.
    ///
    /// # Panics
    /// If `k >= self.blades()`.
    pub fn sigma(&self, k: usize) -> &[F] {
        &self.sigma[k * self.candidates..(k + 1) * self.candidates]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_checked_at_entry() {
        assert!(Score::new(0.0, 0.0).is_ok());
        assert!(matches!(Score::new(f64::NAN, 0.0), Err(ParameterError { name: "score", .. })));
        assert!(matches!(Score::new(f64::INFINITY, 0.0), Err(ParameterError { name: "score", .. })));
        assert!(matches!(Score::new(0.0, -1e-9), Err(ParameterError { name: "dispersion", .. })));
        let score = Score::new(1.0, 0.5).unwrap();
        assert_eq!((score.mu(), score.sigma()), (1.0, 0.5));
    }

    #[test]
    fn tables_are_rectangular() {
        let table = ScoreTable::new([([1.0, 2.0], [0.0, 0.1]), ([3.0, 4.0], [0.2, 0.3])]).unwrap();
        assert_eq!((table.blades(), table.candidates()), (2, 2));
        assert_eq!(table.mu(1), [3.0, 4.0]);
        assert_eq!(table.sigma(0), [0.0, 0.1]);
        assert_eq!((table.mu(0), table.sigma(1)), (&[1.0, 2.0][..], &[0.2, 0.3][..]));
        let ragged = ScoreTable::new([(vec![1.0, 2.0], vec![0.0, 0.1]), (vec![3.0], vec![0.2])]);
        assert_eq!(ragged, Err(ScoreError::Shape { blade: 1, expected: 2, got: 1 }));
        let short_sigma = ScoreTable::new([(vec![1.0, 2.0], vec![0.0])]);
        assert_eq!(short_sigma, Err(ScoreError::Shape { blade: 0, expected: 2, got: 1 }));
        assert!(ScoreTable::<f64>::new(Vec::<(Vec<f64>, Vec<f64>)>::new()).is_err());
        assert!(ScoreTable::<f64>::new([(vec![], vec![])]).is_err());
    }
}
