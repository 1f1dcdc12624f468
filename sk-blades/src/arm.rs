use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{Blade, BoxError, Observation, Policy, Score, ScoreTable, Scratch};

/// Which dispersions reach the comparison: the three arms that split what σ is worth into its
/// pairing with the candidates (real less shuffled) and its scale (shuffled less zero)
/// (`app:cor:decomp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DispersionArm {
    /// σ as it is.
    #[default]
    Real,
    /// σ permuted across the candidates of a step: the same multiset, and so the same guarantees
    /// (`cor:multiset`), in other hands.
    Shuffled,
    /// σ = 0: a plain scorer.
    Zero,
}

impl DispersionArm {
    /// All three, in the order of the decomposition.
    pub const ALL: [Self; 3] = [Self::Real, Self::Shuffled, Self::Zero];

    /// The dispersions `sigma` under this arm, in place. Only [`Shuffled`](Self::Shuffled) draws
    /// from `rng`.
    pub fn apply(self, sigma: &mut [f64], rng: &mut dyn Rng) {
        match self {
            Self::Real => {}
            Self::Shuffled => sigma.shuffle(rng),
            Self::Zero => sigma.fill(0.0),
        }
    }

    /// The table under this arm; scores and names stay.
    ///
    /// Shuffling permutes the candidates alike for every blade, which is to permute the composite
    /// dispersion, whatever the normaliser and the propagation.
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

/// What a step deals dispersions out with: a stream of draws of its own. Contexts only grow, so no
/// two steps of a response share one.
pub fn arm_generator(seed: u64, context_tokens: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(context_tokens);
    rng
}

/// A blade whose dispersions are those of an arm: what an experiment seats in place of the blade.
///
/// The permutation of a step follows from the seed, the length of the context and N, so a step that
/// is scored again is shuffled alike. Blades that share a seed are permuted alike; give them
/// different seeds to part their dispersions from one another as well.
///
/// A score then depends on the other candidates of its batch, which a blade otherwise never does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ablated<B> {
    /// The blade.
    pub blade: B,
    /// Which of its dispersions count.
    pub arm: DispersionArm,
    /// What the permutations follow from.
    pub seed: u64,
}

impl<B> Ablated<B> {
    /// `blade` under `arm`.
    pub fn new(blade: B, arm: DispersionArm, seed: u64) -> Self {
        Self { blade, arm, seed }
    }
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
