//! All studies at their standard sizes.

use sk_aggregate::{Certify, Modulus, NoCertificate, RoundRobin};
use sk_core::{Aggregator, Batch, Normalizer};
use sk_normalize::{CandidateBatch, Rank, Raw};

use super::Contradiction;
use super::contamination::{self, ContaminationError, Flip, Reading, Subject};
use super::dispersion::{self, DispersionError, Worth};
use super::frontier::{self, Frontier};
use super::influence::{self, PUBLISHED_SPREADS, Voice};

/// The names of the studies.
pub const STUDIES: [&str; 4] = ["contamination", "influence", "dispersion", "frontier"];

/// Theorem 2.
#[derive(Debug, Clone, PartialEq)]
pub struct ContaminationStudy {
    /// What was drawn.
    pub settings: contamination::ContaminationSettings,
    /// Argmax.
    pub flips: Vec<Flip>,
    /// Members of the family.
    pub members: Vec<(String, Vec<Reading>)>,
}

/// Theorem 3 (i) and (ii).
#[derive(Debug, Clone, PartialEq)]
pub struct InfluenceStudy {
    /// What was drawn.
    pub settings: influence::InfluenceSettings,
    /// Without CBN.
    pub raw: Vec<Voice>,
    /// With it, in the same order.
    pub normalized: Vec<Voice>,
}

/// The decomposition.
#[derive(Debug, Clone, PartialEq)]
pub struct DispersionStudy {
    /// What was drawn.
    pub settings: dispersion::DispersionSettings,
    /// By coupling.
    pub worths: Vec<Worth>,
    /// Where σ tells the sign of the error and not its size.
    pub signed: Worth,
}

/// Theorem 3 (iii).
#[derive(Debug, Clone, PartialEq)]
pub struct FrontierStudy {
    /// What was drawn of two objectives.
    pub two_settings: frontier::FrontierSettings,
    /// Two objectives.
    pub two: Frontier,
    /// What was drawn of three.
    pub three_settings: frontier::FrontierSettings,
    /// Three objectives.
    pub three: Frontier,
}

/// The studies that were done.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Simulation {
    /// Theorem 2.
    pub contamination: Option<ContaminationStudy>,
    /// Theorem 3 (i) and (ii).
    pub influence: Option<InfluenceStudy>,
    /// The decomposition.
    pub dispersion: Option<DispersionStudy>,
    /// Theorem 3 (iii).
    pub frontier: Option<FrontierStudy>,
}

/// Something broken, to be put in place of what holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breakage {
    /// A sharpened bound of half its size (Theorem 2).
    Bound,
    /// CBN with the ε of the published runs (Theorem 3 ii).
    Cbn,
    /// Dispersions that go with the sign of the error, taken for exchangeable ones (the
    /// decomposition).
    Dispersion,
    /// Ranks in the place of CBN (Theorem 3 iii).
    Hull,
}

impl Breakage {
    /// All of them, with their names and what each puts in place.
    pub const ALL: [(&str, &str, Self); 4] = [
        ("bound", "A sharpened bound of half its size (Theorem 2)", Self::Bound),
        ("cbn", "CBN with the ε of the published runs (Theorem 3 ii)", Self::Cbn),
        (
            "dispersion",
            "Dispersions that go with the sign of the error, taken for exchangeable ones (the decomposition)",
            Self::Dispersion,
        ),
        ("hull", "Ranks in the place of CBN (Theorem 3 iii)", Self::Hull),
    ];

    /// The study whose checks should see it.
    pub fn study(self) -> &'static str {
        match self {
            Self::Bound => "contamination",
            Self::Cbn => "influence",
            Self::Dispersion => "dispersion",
            Self::Hull => "frontier",
        }
    }
}

/// Why a simulation ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A datum against a theorem.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// The study of Theorem 2.
    #[error(transparent)]
    Contamination(ContaminationError),
    /// The study of the decomposition.
    #[error(transparent)]
    Dispersion(DispersionError),
}

impl From<ContaminationError> for SimulationError {
    fn from(error: ContaminationError) -> Self {
        match error {
            ContaminationError::Contradiction(found) => Self::Contradiction(found),
            other => Self::Contamination(other),
        }
    }
}

impl From<DispersionError> for SimulationError {
    fn from(error: DispersionError) -> Self {
        match error {
            DispersionError::Contradiction(found) => Self::Contradiction(found),
            other => Self::Dispersion(other),
        }
    }
}

impl Simulation {
    /// Does the studies for which `wanted` holds, from a seed. Each draws from the seed by itself:
    /// a study shows the same alone.
    ///
    /// # Errors
    /// At the first datum that contradicts a theorem.
    pub fn run(seed: u64, wanted: impl Fn(&str) -> bool, broken: Option<Breakage>) -> Result<Self, SimulationError> {
        let mut simulation = Self::default();
        if wanted("contamination") {
            simulation.contamination = Some(contamination(seed, broken == Some(Breakage::Bound))?);
        }
        if wanted("influence") {
            simulation.influence = Some(influence(seed, broken == Some(Breakage::Cbn))?);
        }
        if wanted("dispersion") {
            simulation.dispersion = Some(dispersion(seed, broken == Some(Breakage::Dispersion))?);
        }
        if wanted("frontier") {
            simulation.frontier = Some(frontier(seed, broken == Some(Breakage::Hull))?);
        }
        Ok(simulation)
    }
}

fn contamination(seed: u64, broken: bool) -> Result<ContaminationStudy, ContaminationError> {
    let radii = vec![0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
    let settings =
        contamination::ContaminationSettings { candidates: 7, batches: 12, radii, temperature: 1.0, evaluations: 1500, seed };
    let batches = contamination::batches(&settings);
    let (thurstone, bradley_terry) = (RoundRobin::thurstone(), RoundRobin::bradley_terry());
    let (weakest_link, asinh) = (RoundRobin::weakest_link(), RoundRobin::asinh());
    let halved = HalfBound(&thurstone);
    let members: [(&str, &dyn Certify); 4] = [
        ("Thurstone", if broken { &halved } else { &thurstone }),
        ("Bradley–Terry", &bradley_terry),
        ("weakest link", &weakest_link),
        ("asinh", &asinh),
    ];
    let flips = contamination::argmax(&batches, &settings)?;
    let read = |(name, operator): (&str, &dyn Certify)| {
        let subject = Subject { name: name.to_owned(), operator };
        Ok((name.to_owned(), contamination::member(&subject, &batches, &settings)?))
    };
    let members = members.into_iter().map(read).collect::<Result<_, ContaminationError>>()?;
    Ok(ContaminationStudy { settings, flips, members })
}

fn influence(seed: u64, broken: bool) -> Result<InfluenceStudy, Contradiction> {
    // From a hundredth to a thousandfold, four steps per power of ten.
    let scales = (-8..=12).map(|step| 10.0_f64.powf(f64::from(step) / 4.0)).collect();
    let honesty = PUBLISHED_SPREADS.len() - 1;
    let settings = influence::InfluenceSettings {
        candidates: 7,
        batches: 400,
        spreads: PUBLISHED_SPREADS.to_vec(),
        rescaled: honesty,
        scales,
        seed,
    };
    let cbn = if broken { CandidateBatch::paper() } else { CandidateBatch::sound() };
    let raw = influence::raw(&Raw::default(), &settings)?;
    let normalized = influence::normalized(&cbn, &settings)?;
    Ok(InfluenceStudy { settings, raw, normalized })
}

fn dispersion(seed: u64, broken: bool) -> Result<DispersionStudy, DispersionError> {
    let couplings = vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
    let settings = dispersion::DispersionSettings { candidates: 7, worlds: 40_000, couplings, temperature: 0.3, seed };
    let thurstone = RoundRobin::thurstone();
    let draw = if broken { dispersion::signed } else { dispersion::honest };
    let worths = dispersion::study(&thurstone, draw, &settings)?;
    let signed = dispersion::at(&thurstone, dispersion::signed, 0.0, &settings)?;
    Ok(DispersionStudy { settings, worths, signed })
}

fn frontier(seed: u64, broken: bool) -> Result<FrontierStudy, Contradiction> {
    let (cbn, rank) = (CandidateBatch::sound(), Rank::default());
    let normalizer: &dyn Normalizer = if broken { &rank } else { &cbn };
    let settings = |spreads: &[f64], candidates, density| frontier::FrontierSettings {
        candidates,
        spreads: spreads.to_vec(),
        density,
        seed,
    };
    let two_settings = settings(&[1.0, 0.005], 200, 40);
    let three_settings = settings(&PUBLISHED_SPREADS.map(|spread| 1000.0 * spread), 40, 20);
    let two = frontier::study(&Raw::default(), normalizer, &two_settings)?;
    let three = frontier::study(&Raw::default(), normalizer, &three_settings)?;
    Ok(FrontierStudy { two_settings, two, three_settings, three })
}

/// A member that claims half of its sharpened modulus.
struct HalfBound<'a>(&'a dyn Certify);

impl Aggregator for HalfBound<'_> {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        self.0.rate(batch, ratings);
    }
}

impl Certify for HalfBound<'_> {
    fn modulus(&self, batch: &Batch<'_>) -> Result<Modulus, NoCertificate> {
        let Modulus { published, uniform, sharpened } = self.0.modulus(batch)?;
        Ok(Modulus { published, uniform, sharpened: 0.5 * sharpened })
    }
}
