use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{Blade, BoxError, Observation, Policy, Score, Scratch};

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
    ///
    /// Generators in the same state permute all blades of a step alike. This is equivalent to
    /// permuting the composite dispersion, whatever the normaliser and the propagation.
    pub fn apply(self, sigma: &mut [f64], rng: &mut dyn Rng) {
        match self {
            Self::Real => {}
            Self::Shuffled => sigma.shuffle(rng),
            Self::Zero => sigma.fill(0.0),
        }
    }
}

/// Returns the generator of a step's permutation: the stream of ChaCha8 whose number is the length of
/// the context. Contexts only grow, so no two steps of a response share a stream.
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
        for (candidate, (score, &sigma)) in out.iter_mut().zip(&*sigma).enumerate() {
            *score = Score::of(candidate, score.mu(), sigma)?;
        }
        Ok(())
    }

    fn policies(&self) -> Vec<Policy> {
        self.blade.policies()
    }
}
