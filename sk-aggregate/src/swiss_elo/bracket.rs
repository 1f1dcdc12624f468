use serde::Serialize;

/// The record of a tournament. Candidates are identified by their index in the batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bracket<F = f64> {
    /// The rounds, in order.
    pub rounds: Vec<Round<F>>,
    /// The final ratings, one per candidate.
    pub ratings: Vec<F>,
}

/// One round of a tournament.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round<F = f64> {
    /// K_r.
    pub k: F,
    /// The matches, from the top of the standings down.
    pub matches: Vec<Match<F>>,
    /// The candidate without an opponent, which keeps its rating, if their number is odd.
    pub bye: Option<usize>,
    /// The ratings after the round, one per candidate.
    pub ratings: Vec<F>,
}

/// A match: candidate `i` was above candidate `j` in the standings.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Match<F = f64> {
    /// The candidate higher in the standings.
    pub i: usize,
    /// Its opponent.
    pub j: usize,
    /// S_ij, the probability that i beats j by scores and dispersions.
    pub score: F,
    /// E_ij, the expected result by ratings.
    pub expected: F,
}
