use serde::Serialize;

/// The record of a tournament. Candidates are known by their index in the batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bracket<F = f64> {
    /// The rounds, in order.
    pub rounds: Vec<Round<F>>,
    /// Final ratings, one per candidate.
    pub ratings: Vec<F>,
}

/// One round of a tournament.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round<F = f64> {
    /// K_r.
    pub k: F,
    /// The matches, from the top of the standings down.
    pub matches: Vec<Match<F>>,
    /// Who was left over and kept its rating, where the candidates are odd in number.
    pub bye: Option<usize>,
    /// Ratings after the round, one per candidate.
    pub ratings: Vec<F>,
}

/// One match: candidate `i` stood above candidate `j`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Match<F = f64> {
    /// The higher in the standings.
    pub i: usize,
    /// Its opponent.
    pub j: usize,
    /// S_ij, the probability that i beats j on scores and dispersions.
    pub score: F,
    /// E_ij, the score expected of their ratings.
    pub expected: F,
}
