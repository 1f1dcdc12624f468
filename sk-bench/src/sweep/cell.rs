//! Cells: the single responses of a sweep.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest, Sha256};
use sk_core::{Simplex, SimplexError};

/// A weight vector on the simplex, by blade name.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights(BTreeMap<String, f64>);

impl Weights {
    /// Returns the weights, scaled to sum to one.
    ///
    /// # Errors
    /// If there is no weight, a weight is negative or not finite, or all weights are zero.
    pub fn normalized(weights: impl IntoIterator<Item = (String, f64)>) -> Result<Self, SimplexError> {
        let (names, values): (Vec<String>, Vec<f64>) = weights.into_iter().unzip();
        let simplex = Simplex::normalized(values)?;
        Ok(Self(names.into_iter().zip(simplex.as_slice().iter().copied()).collect()))
    }

    /// Returns the weights by name, sorted by name.
    pub fn by_name(&self) -> &BTreeMap<String, f64> {
        &self.0
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, weight)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={weight}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// One response to generate: its positions in the [`Grid`](super::Grid), and its id.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// `SCHEME/WEIGHTS/PROMPT/SEED`.
    pub id: String,
    /// Position of the scheme.
    pub arm: usize,
    /// Position of the weight vector; `None` if the scheme does not depend on the weights.
    pub weights: Option<usize>,
    /// Position of the prompt.
    pub prompt: usize,
    /// The seed of the plan.
    pub seed: u64,
}

impl Cell {
    /// Returns the seed of the cell's random draws: the first eight bytes of the SHA-256 digest of
    /// its id, which consists of scheme, weights, prompt and seed. The position of the cell in the
    /// plan has no effect on it.
    pub fn draws(&self) -> u64 {
        let digest = Sha256::digest(&self.id);
        digest[..size_of::<u64>()].iter().fold(0, |seed, &byte| seed << 8 | u64::from(byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(pairs: &[(&str, f64)]) -> Result<Weights, SimplexError> {
        Weights::normalized(pairs.iter().map(|&(name, weight)| (name.to_owned(), weight)))
    }

    #[test]
    fn equal_weights_have_one_name() {
        let twice = weights(&[("honest", 2.0), ("helpful", 6.0)]).unwrap();
        assert_eq!(twice, weights(&[("helpful", 0.75), ("honest", 0.25)]).unwrap());
        assert_eq!(twice.to_string(), "helpful=0.75,honest=0.25");
        assert!(weights(&[("a", 0.0)]).is_err() && weights(&[]).is_err() && weights(&[("a", -1.0)]).is_err());
    }

    #[test]
    fn draws_follow_from_the_name() {
        let cell = |id: &str, prompt| Cell { id: id.to_owned(), arm: 0, weights: None, prompt, seed: 1 };
        assert_eq!(cell("a/-/p/1", 0).draws(), cell("a/-/p/1", 7).draws());
        assert_ne!(cell("a/-/p/1", 0).draws(), cell("a/-/p/2", 0).draws());
        // `printf abc | sha256sum`
        assert_eq!(cell("abc", 0).draws(), 0xba78_16bf_8f01_cfea);
    }
}
