/// How often the first of a pair is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WinRate {
    /// Differences above zero.
    pub wins: usize,
    /// Differences of zero.
    pub ties: usize,
    /// Differences below zero.
    pub losses: usize,
}

impl WinRate {
    /// Counts the signs of `differences`.
    ///
    /// What is a tie is decided by the caller: see [`snap`].
    pub fn of(differences: &[f64]) -> Self {
        let count = |keep: fn(f64) -> bool| differences.iter().filter(|&&difference| keep(difference)).count();
        Self { wins: count(|d| d > 0.0), ties: count(|d| d == 0.0), losses: count(|d| d < 0.0) }
    }

    /// wins/n: a tie counts against. The paper's *Win%*. NaN of no pairs.
    pub fn of_all(self) -> f64 {
        self.wins as f64 / (self.wins + self.ties + self.losses) as f64
    }

    /// (wins + ties/2)/n: a tie counts half. NaN of no pairs.
    pub fn halving_ties(self) -> f64 {
        (self.wins as f64 + 0.5 * self.ties as f64) / (self.wins + self.ties + self.losses) as f64
    }

    /// wins/(wins + losses): ties are left out. NaN where every pair ties.
    pub fn of_decided(self) -> f64 {
        self.wins as f64 / (self.wins + self.losses) as f64
    }
}

/// Rounds to multiples of 1e-9, so that differences equal on paper are equal in rank and zero where
/// they should be.
///
/// Rubric scores are tenths and their means thirds: distinct differences of F1 lie further apart
/// than that, and rounding errors are smaller.
pub fn snap(difference: f64) -> f64 {
    const GRID: f64 = 1e9;
    (difference * GRID).round() / GRID
}
