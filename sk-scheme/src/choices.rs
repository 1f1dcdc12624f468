//! The named choices of a scheme file.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sk_core::{OperatingPoint, Standardize};

/// Defines an enum whose variants are written in kebab case, with its conversion into a type of a
/// library crate.
macro_rules! choices {
    ($(#[$doc:meta])* $name:ident => $into:ty { $($(#[$variant_doc:meta])* $variant:ident => $target:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl From<$name> for $into {
            fn from(choice: $name) -> Self {
                match choice { $($name::$variant => $target),* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    };
}

choices! {
    /// Which behaviour fills in what the paper leaves open.
    Convention => Standardize {
        /// The paper's equations, without the accidents of the published runs: no dependence on the
        /// order of candidates, σ divided by the spread of μ and not by its own, end-of-text kept,
        /// spans capped.
        #[default]
        Sound => Standardize::EXACT,
        /// What the published runs did.
        Paper => Standardize::PAPER,
    }
}

choices! {
    /// Operating points: one whose choices follow the weights, and the published ones.
    Preset => OperatingPoint {
        /// As hhh, but T 0.25: the choice follows the weights.
        #[default]
        Responsive => OperatingPoint::RESPONSIVE,
        /// Helpful, honest and harmless together: N 7, R 5, T 8.
        Hhh => OperatingPoint::HHH,
        /// Harmlessness alone: N 11, R 4, T 11.2.
        Harmlessness => OperatingPoint::HARMLESSNESS,
        /// Helpfulness alone: N 7, R 3, T 1.69.
        Helpfulness => OperatingPoint::HELPFULNESS,
        /// Honesty alone: N 3, R 7, T 21.
        Honesty => OperatingPoint::HONESTY,
    }
}

choices! {
    /// How a soup is made of the adapters.
    Merge => sk_core::Merge {
        /// ΔW = Σ_k w_k s_k A_k B_k.
        #[default]
        Exact => sk_core::Merge::Exact,
        /// A and B are averaged separately, as PEFT's linear merge does.
        PeftLinear => sk_core::Merge::PeftLinear,
    }
}

choices! {
    /// Whose log-probabilities the tokens of a vocabulary carry.
    Prior => sk_core::Prior {
        /// All tokens are equally probable.
        Uniform => sk_core::Prior::Uniform,
        /// The backbone's.
        #[default]
        Backbone => sk_core::Prior::Backbone,
        /// The drafter's.
        Drafter => sk_core::Prior::Drafter,
    }
}

choices! {
    /// Where the σ of a blade comes from.
    Dispersion => sk_blades::Dispersion {
        /// The mean min-entropy of the policy's next-token distributions.
        #[default]
        MinEntropy => sk_blades::Dispersion::MinEntropy,
        /// The standard error of μ as a mean over tokens.
        StandardError => sk_blades::Dispersion::StandardError,
        /// The distance of μ from its mean over the candidates of the step.
        Deviation => sk_blades::Dispersion::Deviation,
        /// σ = 0.
        Zero => sk_blades::Dispersion::Zero,
    }
}

choices! {
    /// Where the σ of a discriminator comes from.
    LabelSpread => sk_blades::LabelSpread {
        /// σ = 0.
        #[default]
        Zero => sk_blades::LabelSpread::Zero,
        /// √(p(1−p)), the standard deviation of the label.
        Bernoulli => sk_blades::LabelSpread::Bernoulli,
    }
}

choices! {
    /// What an ablation makes of the σ of a blade.
    DispersionArm => sk_blades::DispersionArm {
        /// σ as it is.
        #[default]
        Real => sk_blades::DispersionArm::Real,
        /// σ permuted among the candidates of a batch.
        Shuffled => sk_blades::DispersionArm::Shuffled,
        /// σ = 0.
        Zero => sk_blades::DispersionArm::Zero,
    }
}

choices! {
    /// How the backbone's log-probability counts beside a blade's own score.
    Length => sk_blades::Length {
        /// The sum over the tokens of the candidate.
        #[default]
        Summed => sk_blades::Length::Summed,
        /// The mean over the tokens of the candidate.
        PerToken => sk_blades::Length::PerToken,
        /// The sum minus the sum under the proposal.
        Ratio => sk_blades::Length::Ratio,
    }
}

choices! {
    /// The divisor of a variance.
    Deviation => sk_core::Deviation {
        /// N − 1.
        #[default]
        Sample => sk_core::Deviation::Sample,
        /// N.
        Population => sk_core::Deviation::Population,
    }
}

choices! {
    /// What candidate-batch normalisation divides σ by.
    DispersionUnit => sk_normalize::DispersionUnit {
        /// The spread of μ.
        #[default]
        Score => sk_normalize::DispersionUnit::Score,
        /// The spread of σ, as published.
        Own => sk_normalize::DispersionUnit::Own,
    }
}

choices! {
    /// What a gate does if no candidate passes.
    GateFallback => sk_select::GateFallback {
        /// Takes the candidate that comes closest.
        #[default]
        Best => sk_select::GateFallback::Best,
        /// Selects as if there were no gate.
        Open => sk_select::GateFallback::Open,
    }
}

impl Convention {
    /// The conventions by name.
    pub const ALL: [(&'static str, Self); 2] = [("sound", Self::Sound), ("paper", Self::Paper)];
}

impl Preset {
    /// The operating points by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("responsive", Self::Responsive),
        ("hhh", Self::Hhh),
        ("harmlessness", Self::Harmlessness),
        ("helpfulness", Self::Helpfulness),
        ("honesty", Self::Honesty),
    ];

    /// Returns the default operating point under a convention: the published one under the paper's.
    pub(crate) fn of_convention(convention: Convention) -> Self {
        match convention {
            Convention::Sound => Self::Responsive,
            Convention::Paper => Self::Hhh,
        }
    }
}
