#![doc = include_str!("../README.md")]
#![warn(missing_debug_implementations)]

mod arm;
mod discriminator;
mod dispersion;
mod divergence_ratio;
mod ensemble;
mod error;
mod expert_amateur;
mod fluency;
mod guided;
mod implicit_reward;
mod informativeness;
mod ingredient;
mod likelihood;
mod reading;
mod reward_head;

pub use arm::{Ablated, DispersionArm, arm_generator};
pub use discriminator::{Discriminator, LabelSpread};
pub use dispersion::Dispersion;
pub use divergence_ratio::DivergenceRatio;
pub use ensemble::Ensemble;
pub use error::BladeError;
pub use expert_amateur::ExpertAmateur;
pub use fluency::Fluency;
pub use guided::{Guided, Length};
pub use implicit_reward::ImplicitReward;
pub use informativeness::{InformativenessError, informativeness, spearman};
pub use ingredient::Ingredient;
pub use likelihood::Likelihood;
pub use reward_head::RewardHead;

/// The examples of the book, compiled and run.
#[cfg(doctest)]
mod examples {
    #[doc = include_str!("../../docs/src/write-a-blade.md")]
    struct WriteABlade;
}
