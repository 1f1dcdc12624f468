use std::fmt;

use serde::{Serialize, Serializer};
use sk_core::Aggregator;

use super::Case;
use super::laws::{self, Law, Trial, Violation};

/// A property that an aggregation operator may have.
///
/// A1 to A6 are the paper's. A3′, A5′, A7 and A8 are those under which its representation theorem
/// holds (`thm:rep`). A0 is a precondition of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Axiom {
    /// Totality: ratings are finite, even if several or all candidates have no dispersion.
    A0,
    /// Anonymity: ratings follow their candidates under any permutation.
    A1,
    /// Translation invariance: adding a constant to every score changes no difference of ratings.
    A2,
    /// Scale invariance of the ranking: multiplying every score and dispersion by a > 0 keeps order
    /// and ties of the ratings.
    A3,
    /// A3′, scale invariance of the ratings: multiplying every score and dispersion by a > 0
    /// changes no difference of ratings.
    A3Prime,
    /// Monotonicity: raising μ_i raises R_i and lowers every other rating.
    A4,
    /// Attenuation: a larger σ_i makes R_i move less for the same step of μ_i, and not at all in
    /// the limit.
    A5,
    /// A5′, attenuation of the envelope: a larger σ_i lowers the most that R_i can move for a step
    /// of μ_i, to nothing in the limit.
    A5Prime,
    /// Decomposability: a difference of ratings is the difference of two sums, over the rivals, of
    /// what each candidate gets in a batch with that rival alone.
    A6,
    /// Constant sum: the two ratings of a pair have the same sum in every pair.
    A7,
    /// Single channel: dispersions only set the scale of the difference, ψ(Δ, a, b) = g(Δ/s(a, b)).
    A8,
}

/// Checks the law of an axiom on one case.
type Check = fn(&Trial<'_>, &Case) -> Law;

/// Symbol, name and law of each axiom, in the order of [`Axiom::ALL`].
const TABLE: [(&str, &str, Check); Axiom::ALL.len()] = [
    ("A0", "totality", laws::totality),
    ("A1", "anonymity", laws::anonymity),
    ("A2", "translation", laws::translation),
    ("A3", "scale (ranking)", laws::scale_of_ranking),
    ("A3′", "scale (ratings)", laws::scale_of_ratings),
    ("A4", "monotonicity", laws::monotonicity),
    ("A5", "attenuation", laws::attenuation),
    ("A5′", "attenuation (envelope)", laws::envelope),
    ("A6", "decomposability", laws::decomposability),
    ("A7", "constant sum", laws::constant_sum),
    ("A8", "single channel", laws::single_channel),
];

impl Axiom {
    /// All of them, in order.
    pub const ALL: [Self; 11] =
        [Self::A0, Self::A1, Self::A2, Self::A3, Self::A3Prime, Self::A4, Self::A5, Self::A5Prime, Self::A6, Self::A7, Self::A8];

    /// Returns the symbol, such as "A3′".
    pub fn symbol(self) -> &'static str {
        TABLE[self as usize].0
    }

    /// Returns the name in a word or two.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Checks whether `operator` satisfies the axiom on one case.
    ///
    /// # Errors
    /// If it does not, with both sides of the relation.
    ///
    /// # Panics
    /// May panic if the case is not [valid](Case::is_valid).
    pub fn law(self, operator: &dyn Aggregator, case: &Case) -> Result<(), Violation> {
        TABLE[self as usize].2(&Trial { axiom: self, operator }, case)
    }
}

impl fmt::Display for Axiom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.symbol())
    }
}

impl Serialize for Axiom {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.symbol())
    }
}
