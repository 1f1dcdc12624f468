use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{Blade, BoxError, Observation, Policy, Score, ScoreTable, Scratch};

/// The dispersions that an ablation uses. Comparing the three arms splits the value of σ into that
/// of its pairing with the candidates (real minus shuffled) and that of its scale (shuffled minus
/// zero) (`app:cor:decomp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DispersionArm {
    /// σ as it is.
    #[default]
    Real,
    /// σ permuted across the candidates of a step: the same multiset with the same guarantees
    /// (`cor:multiset`), but assigned to other candidates.
    Shuffled,
    /// σ = 0: scores without dispersion.
    Zero,
}

impl DispersionArm {
    /// All three arms, in the order of the decomposition.
    pub const ALL: [Self; 3] = [Self::Real, Self::Shuffled, Self::Zero];

    /// Changes the dispersions `sigma` in place. Only [`Shuffled`](Self::Shuffled) uses `rng`.
    pub fn apply(self, sigma: &mut [f64], rng: &mut dyn Rng) {
        match self {
            Self::Real => {}
            Self::Shuffled => sigma.shuffle(rng),
            Self::Zero => sigma.fill(0.0),
        }
    }

    /// Returns the table with changed dispersions. Scores and names stay.
    ///
    /// Shuffling uses the same permutation for every blade. This is equivalent to permuting the
    /// composite dispersion, whatever the normaliser and the propagation.
    #[must_use]
    pub fn table(self, scores: &ScoreTable, rng: &mut dyn Rng) -> ScoreTable {
        let mut from: Vec<usize> = (0..scores.candidates()).collect();
        if self == Self::Shuffled {
            from.shuffle(rng);
        }
        let scale = if self == Self::Zero { 0.0 } else { 1.0 };
        let row = |k| {
            let sigma = scores.sigma(k);
            (scores.mu(k), from.iter().map(|&i| scale * sigma[i]).collect::<Vec<_>>())
        };
        let table =
            ScoreTable::new((0..scores.blades()).map(row)).expect("the entries of a table are scores wherever they stand");
        match (0..scores.blades()).map(|k| scores.name(k)).collect::<Option<Vec<_>>>() {
            Some(names) => table.with_names(names).expect("the names of a table are as many as its rows, and different"),
            None => table,
        }
    }
}

/// Returns the generator of a step's permutation: a stream of its own. Contexts only grow, so no
/// two steps of a response share a stream.
pub fn arm_generator(seed: u64, context_tokens: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(context_tokens);
    rng
}

/// A blade with the dispersions of an ablation arm, for experiments.
///
/// The permutation of a step depends on the seed, the length of the context and N, so that scoring
/// a step again gives the same result. Blades with the same seed use the same permutation. Give
/// them different seeds to also decouple their dispersions from one another.
///
/// Unlike other blades, its score depends on the other candidates of the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ablated<B> {
    /// The blade.
    pub blade: B,
    /// The arm of its dispersions.
    pub arm: DispersionArm,
    /// The seed of the permutations.
    pub seed: u64,
}

impl<B: Blade> Blade for Ablated<B> {
    fn score(&self, step: &Observation<'_>, out: &mut [Score]) -> Result<(), BoxError> {
        self.blade.score(step, out)?;
        let mut rng = arm_generator(self.seed, step.context.len() as u64);
        let mut sigma: Scratch<Vec<f64>> = out.iter().map(|score| score.sigma()).collect();
        self.arm.apply(&mut sigma, &mut rng);
        for (score, &sigma) in out.iter_mut().zip(&*sigma) {
            *score = Score::new(score.mu(), sigma)?;
        }
        Ok(())
    }

    fn policies(&self) -> Vec<Policy> {
        self.blade.policies()
    }
}
