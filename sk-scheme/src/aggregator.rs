//! 𝓐: the rating of candidates against one another.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sk_aggregate::{
    Asinh, Certify, Copeland, DivergenceMixture, Entry, Fluent, Identity, Laplace, Link, Logistic, PNorm, Probit, RoundRobin,
    Scores, Seeding, SignedLog, StudentT, SwissElo, Tanh,
};
use sk_core::ParameterError;

use crate::choices::Convention;
use crate::divergence::DivergenceSpec;
use crate::number;
use crate::spec::text_of;

/// The `[aggregator]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AggregatorSpec {
    /// The Swiss-system Elo tournament.
    SwissElo(SwissEloSpec),
    /// Every pair is compared: the exact member of the pairwise family with link g and spread
    /// exponent p.
    RoundRobin(RoundRobinSpec),
    /// Wins minus losses.
    Copeland(EntrySpec),
    /// The composite scores themselves.
    Scores,
    /// The log-probability that composite scores of a divergence stand for, with b₀ as prior.
    DivergenceMixture(DivergenceSpec),
}

/// How scores enter a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EntrySpec {
    /// How scores are standardised on entry, and how a tournament is seeded.
    pub convention: Convention,
    /// Whether scores are standardised on entry: the second of the three standardisations.
    pub standardize: bool,
    /// α, coefficient of the fluency blade in a comparison.
    pub alpha: f64,
}

/// A tournament.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SwissEloSpec {
    /// R, rounds of the tournament.
    pub rounds: usize,
    /// K of the first round.
    pub k_max: f64,
    /// K of the last round.
    pub k_min: f64,
    /// How scores enter a match.
    #[serde(flatten)]
    pub entry: EntrySpec,
}

/// A round robin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RoundRobinSpec {
    /// g.
    #[serde(flatten)]
    pub link: LinkSpec,
    /// p, exponent of the spread, at least 1; may be inf.
    #[serde(with = "number")]
    #[schemars(schema_with = "number::or_inf")]
    pub p: f64,
    /// How scores enter a comparison.
    #[serde(flatten)]
    pub entry: EntrySpec,
}

/// g: what a difference of scores, in units of the spread, counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "link", rename_all = "kebab-case")]
pub enum LinkSpec {
    /// Φ − ½.
    Probit,
    /// Logistic − ½.
    Logistic,
    /// Hyperbolic tangent.
    Tanh,
    /// Laplace distribution function − ½.
    Laplace,
    /// Distribution function of Student's t with ν degrees of freedom − ½.
    StudentT {
        /// ν, degrees of freedom.
        nu: f64,
    },
    /// asinh.
    Asinh,
    /// sign(u)·log(1 + |u|).
    SignedLog,
    /// u.
    Identity,
}

/// Members of the round-robin family that have a `kind` of their own.
pub(crate) const MEMBERS: [(&str, LinkSpec, f64); 4] = [
    ("thurstone", LinkSpec::Probit, 2.0),
    ("bradley-terry", LinkSpec::Logistic, 1.0),
    ("weakest-link", LinkSpec::Probit, f64::INFINITY),
    ("asinh", LinkSpec::Asinh, 2.0),
];

impl EntrySpec {
    fn build(&self) -> Result<Entry, ParameterError> {
        match self.convention {
            _ if !self.standardize => Entry::plain(self.alpha),
            Convention::Paper => Entry::paper(self.alpha),
            Convention::Sound => Entry::sound(self.alpha),
        }
    }
}

impl LinkSpec {
    /// Returns its name in a scheme file.
    pub fn name(self) -> String {
        text_of(&self, "link")
    }

    fn build(self) -> Result<Box<dyn Link>, ParameterError> {
        Ok(match self {
            Self::Probit => Box::new(Probit),
            Self::Logistic => Box::new(Logistic),
            Self::Tanh => Box::new(Tanh),
            Self::Laplace => Box::new(Laplace),
            Self::StudentT { nu } => Box::new(StudentT::new(nu)?),
            Self::Asinh => Box::new(Asinh),
            Self::SignedLog => Box::new(SignedLog),
            Self::Identity => Box::new(Identity),
        })
    }
}

impl AggregatorSpec {
    /// Returns its `kind` in a scheme file. A member of the round-robin family that has its own
    /// name returns that name.
    pub fn kind(&self) -> String {
        if let Self::RoundRobin(RoundRobinSpec { link, p, .. }) = self
            && let Some((name, ..)) = MEMBERS.iter().find(|(_, known, exponent)| known == link && exponent == p)
        {
            return (*name).to_owned();
        }
        text_of(self, "kind")
    }

    /// Returns how scores enter a comparison; `None` if candidates are not compared.
    pub fn entry(&self) -> Option<&EntrySpec> {
        match self {
            Self::SwissElo(SwissEloSpec { entry, .. })
            | Self::RoundRobin(RoundRobinSpec { entry, .. })
            | Self::Copeland(entry) => Some(entry),
            Self::Scores | Self::DivergenceMixture(_) => None,
        }
    }

    /// Builds the aggregator.
    ///
    /// # Errors
    /// If a number is out of range. The error names it.
    pub fn build(&self) -> Result<Arc<dyn Certify>, ParameterError> {
        Ok(match self {
            Self::SwissElo(SwissEloSpec { rounds, k_max, k_min, entry }) => {
                let seeding = match entry.convention {
                    Convention::Paper => Seeding::Score,
                    Convention::Sound => Seeding::Canonical,
                };
                Arc::new(SwissElo::new(*rounds, entry.build()?, seeding)?.with_schedule(*k_max, *k_min)?)
            }
            Self::RoundRobin(RoundRobinSpec { link, p, entry }) => {
                Arc::new(Fluent::new(entry.build()?, RoundRobin::new(link.build()?, PNorm::new(*p)?)))
            }
            Self::Copeland(entry) => Arc::new(Fluent::new(entry.build()?, Copeland)),
            Self::Scores => Arc::new(Scores),
            Self::DivergenceMixture(divergence) => Arc::new(DivergenceMixture::new(divergence.build()?)),
        })
    }
}
