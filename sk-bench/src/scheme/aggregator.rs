//! 𝓐: how candidates are rated against one another.

use std::sync::Arc;

use sk_aggregate::{
    Asinh, Certify, Copeland, DivergenceMixture, Entry, Fluent, Identity, Laplace, Link, Logistic, PNorm, Probit, RoundRobin,
    Scores, Seeding, SignedLog, StudentT, SwissElo, Tanh,
};
use sk_core::{Divergence, OperatingPoint, ParameterError};

use super::document::Section;
use super::{Convention, SchemeError, divergence};
use crate::suggest;

/// The kinds of `[aggregator]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AggregatorKind {
    /// The Swiss-system Elo tournament.
    SwissElo,
    /// Everybody against everybody: the exact member of the pairwise family with link g and spread exponent p.
    RoundRobin {
        /// g.
        link: LinkKind,
        /// p of the spread; may be infinite.
        p: f64,
    },
    /// Wins less losses.
    Copeland,
    /// The composite scores themselves.
    Scores,
    /// The log-probability that composite scores of a divergence stand for.
    DivergenceMixture,
}

/// g.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinkKind {
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
        /// ν.
        nu: f64,
    },
    /// asinh.
    Asinh,
    /// sign(u)·log(1 + |u|).
    SignedLog,
    /// u.
    Identity,
}

impl AggregatorKind {
    /// Round robin of probits with p = 2.
    pub const THURSTONE: Self = Self::RoundRobin { link: LinkKind::Probit, p: 2.0 };
    const BRADLEY_TERRY: Self = Self::RoundRobin { link: LinkKind::Logistic, p: 1.0 };
    const WEAKEST_LINK: Self = Self::RoundRobin { link: LinkKind::Probit, p: f64::INFINITY };
    const ASINH: Self = Self::RoundRobin { link: LinkKind::Asinh, p: 2.0 };

    /// The kind of that name in a scheme file.
    ///
    /// # Errors
    /// Names the closest kind there is.
    pub fn named(name: &str) -> Result<Self, String> {
        suggest::choice("aggregator", name, &KINDS)
    }

    /// Whether it compares candidates, so that α and the standardisation on entry apply.
    pub fn compares(self) -> bool {
        !matches!(self, Self::Scores | Self::DivergenceMixture)
    }

    /// Its name in a scheme file.
    pub fn name(self) -> &'static str {
        let family = || KINDS.iter().find(|(_, kind)| std::mem::discriminant(kind) == std::mem::discriminant(&self));
        // A member with a name of its own goes by it.
        KINDS.iter().rev().find(|(_, kind)| *kind == self).or_else(family).map_or("", |(name, _)| name)
    }
}

/// The `[aggregator]` section.
#[derive(Debug, Clone, PartialEq)]
pub struct AggregatorConfig {
    /// Which one.
    pub kind: AggregatorKind,
    /// How scores enter a comparison, and how a tournament is seeded.
    pub convention: Convention,
    /// Whether scores are standardised on entry: the second of the three standardisations.
    pub standardize: bool,
    /// R of a tournament.
    pub rounds: usize,
    /// α, coefficient of the fluency blade in a comparison.
    pub alpha: f64,
    /// K of a tournament's first round.
    pub k_max: f64,
    /// K of its last.
    pub k_min: f64,
    /// The divergence of a mixture.
    pub divergence: Divergence,
}

const KINDS: [(&str, AggregatorKind); 9] = [
    ("swiss-elo", AggregatorKind::SwissElo),
    ("round-robin", AggregatorKind::RoundRobin { link: LinkKind::Probit, p: 2.0 }),
    ("thurstone", AggregatorKind::THURSTONE),
    ("bradley-terry", AggregatorKind::BRADLEY_TERRY),
    ("weakest-link", AggregatorKind::WEAKEST_LINK),
    ("asinh", AggregatorKind::ASINH),
    ("copeland", AggregatorKind::Copeland),
    ("scores", AggregatorKind::Scores),
    ("divergence-mixture", AggregatorKind::DivergenceMixture),
];

const LINKS: [(&str, LinkKind); 8] = [
    ("probit", LinkKind::Probit),
    ("logistic", LinkKind::Logistic),
    ("tanh", LinkKind::Tanh),
    ("laplace", LinkKind::Laplace),
    // Its parameter is a field of its own. At ν = 3, the fewest whole degrees with a variance, its tails are as heavy as they sensibly get.
    ("student-t", LinkKind::StudentT { nu: 3.0 }),
    ("asinh", LinkKind::Asinh),
    ("signed-log", LinkKind::SignedLog),
    ("identity", LinkKind::Identity),
];

impl AggregatorConfig {
    pub(super) fn published(convention: Convention, point: &OperatingPoint) -> Self {
        Self {
            kind: AggregatorKind::SwissElo,
            convention,
            standardize: true,
            rounds: point.rounds,
            alpha: point.alpha,
            k_max: point.k_max,
            k_min: point.k_min,
            divergence: Divergence::ReverseKl,
        }
    }

    pub(super) fn read(&mut self, mut section: Section<'_, '_>) -> Result<(), SchemeError> {
        self.kind = section.choice("kind", "aggregator", &KINDS)?.unwrap_or(self.kind);
        if let AggregatorKind::RoundRobin { link, p } = &mut self.kind {
            *link = section.choice("link", "link", &LINKS)?.unwrap_or(*link);
            if let LinkKind::StudentT { nu } = link {
                *nu = section.number("nu")?.unwrap_or(*nu);
            }
            *p = section.number("p")?.unwrap_or(*p);
        }
        if self.kind == AggregatorKind::SwissElo {
            self.rounds = section.count("rounds")?.unwrap_or(self.rounds);
            self.k_max = section.number("k_max")?.unwrap_or(self.k_max);
            self.k_min = section.number("k_min")?.unwrap_or(self.k_min);
        }
        if self.kind == AggregatorKind::DivergenceMixture {
            self.divergence = divergence::read(&mut section, self.divergence)?;
        }
        if self.kind.compares() {
            self.convention = section.choice("convention", "convention", &Convention::NAMES)?.unwrap_or(self.convention);
            self.standardize = section.flag("standardize")?.unwrap_or(self.standardize);
            self.alpha = section.number("alpha")?.unwrap_or(self.alpha);
        }
        let round_robin = matches!(self.kind, AggregatorKind::RoundRobin { .. });
        if let Some(field) = ["link", "p", "nu"].into_iter().find(|field| !round_robin && section.has(field)) {
            let kind = self.kind.name();
            let cure = if field == "nu" { "kind = \"round-robin\" and link = \"student-t\"" } else { "kind = \"round-robin\"" };
            return Err(section.fault(format!("kind \"{kind}\" has no {field}; use {cure}")));
        }
        self.build().map_err(|error| section.fault(error))?;
        section.finish()
    }

    pub(crate) fn build(&self) -> Result<Arc<dyn Certify>, ParameterError> {
        let entry = || match self.convention {
            _ if !self.standardize => Entry::plain(self.alpha),
            Convention::Paper => Entry::paper(self.alpha),
            Convention::Sound => Entry::sound(self.alpha),
        };
        Ok(match self.kind {
            AggregatorKind::SwissElo => {
                let seeding = match self.convention {
                    Convention::Paper => Seeding::Score,
                    Convention::Sound => Seeding::Canonical,
                };
                Arc::new(SwissElo::new(self.rounds, entry()?, seeding)?.with_schedule(self.k_max, self.k_min)?)
            }
            AggregatorKind::RoundRobin { link, p } => {
                Arc::new(Fluent::new(entry()?, RoundRobin::new(link.build()?, PNorm::new(p)?)))
            }
            AggregatorKind::Copeland => Arc::new(Fluent::new(entry()?, Copeland)),
            AggregatorKind::Scores => Arc::new(Scores),
            AggregatorKind::DivergenceMixture => Arc::new(DivergenceMixture::new(self.divergence)),
        })
    }
}

impl LinkKind {
    /// Its name in a scheme file.
    pub fn name(self) -> &'static str {
        let same = |known: &Self| std::mem::discriminant(known) == std::mem::discriminant(&self);
        LINKS.iter().find(|(_, known)| same(known)).map_or("", |(name, _)| name)
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
