/// The number of pairs in which the first is larger, equal or smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WinRate {
    /// The number of differences above zero.
    pub wins: usize,
    /// The number of differences equal to zero.
    pub ties: usize,
    /// The number of differences below zero.
    pub losses: usize,
}

impl WinRate {
    /// Counts the signs of `differences`. NaN is left out.
    ///
    /// The caller decides which differences count as ties: see [`snap`].
    pub fn of(differences: &[f64]) -> Self {
        let count = |keep: fn(f64) -> bool| differences.iter().filter(|&&difference| keep(difference)).count();
        Self { wins: count(|d| d > 0.0), ties: count(|d| d == 0.0), losses: count(|d| d < 0.0) }
    }

    /// Returns wins/n: a tie counts as a loss. The paper's *Win%*. NaN without pairs.
    pub fn of_all(self) -> f64 {
        self.wins as f64 / (self.wins + self.ties + self.losses) as f64
    }

    /// Returns ties/n. NaN without pairs.
    pub fn of_ties(self) -> f64 {
        self.ties as f64 / (self.wins + self.ties + self.losses) as f64
    }

    /// Returns (wins + ties/2)/n: a tie counts half. NaN without pairs.
    pub fn halving_ties(self) -> f64 {
        (self.wins as f64 + 0.5 * self.ties as f64) / (self.wins + self.ties + self.losses) as f64
    }

    /// Returns wins/(wins + losses): ties are left out. NaN if every pair ties.
    pub fn of_decided(self) -> f64 {
        self.wins as f64 / (self.wins + self.losses) as f64
    }
}

/// Rounds to multiples of 1e-9, so that mathematically equal differences tie, and those of zero are
/// zero.
///
/// Rubric scores are tenths and their means thirds. Distinct differences of F1 are further apart
/// than the rounding step, and rounding errors are smaller than it.
pub fn snap(difference: f64) -> f64 {
    const GRID: f64 = 1e9;
    (difference * GRID).round() / GRID
}
