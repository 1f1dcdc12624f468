//! All studies at their standard sizes.

use sk_aggregate::{Certify, Modulus, NoCertificate, RoundRobin};
use sk_core::{Aggregator, Batch, Normalizer};
use sk_normalize::{CandidateBatch, Rank, Raw};

use super::contamination::{self, ContaminationSettings};
use super::dispersion::{self, DispersionSettings};
use super::figures::{self, Exhibit};
use super::frontier::{self, FrontierSettings};
use super::influence::{self, InfluenceSettings, PUBLISHED_SPREADS};
use super::{Contradiction, SimulationError};

/// The names of the studies.
pub const STUDIES: [&str; 4] = ["contamination", "influence", "dispersion", "frontier"];

/// The defects that can be substituted for a correct part, which the checks must detect: the name,
/// the description, and the study whose part it replaces.
pub const DEFECTS: [(&str, &str, &str); 4] = [
    ("bound", "A sharpened bound of half its size (Theorem 2)", "contamination"),
    ("cbn", "CBN with the ε of the published runs (Theorem 3 ii)", "influence"),
    (
        "dispersion",
        "Dispersions that go with the sign of the error, taken for exchangeable ones (the decomposition)",
        "dispersion",
    ),
    ("hull", "Ranks in the place of CBN (Theorem 3 iii)", "frontier"),
];

/// Runs the studies whose name is `wanted`, the study `broken` with its defect. Each study seeds its
/// own generator with `seed`, so that its results do not depend on which others run.
///
/// # Errors
/// Returns the first contradiction of a theorem, or the first study that fails.
pub fn exhibits(seed: u64, wanted: impl Fn(&str) -> bool, broken: Option<&str>) -> Result<Vec<Exhibit>, SimulationError> {
    let study = |name: &str| {
        let broken = broken == Some(name);
        match name {
            "contamination" => contamination(seed, broken),
            "influence" => Ok(influence(seed, broken)?),
            "dispersion" => dispersion(seed, broken),
            _ => Ok(frontier(seed, broken)?),
        }
    };
    STUDIES.into_iter().filter(|name| wanted(name)).map(study).collect()
}

/// The study of Theorem 2.
fn contamination(seed: u64, broken: bool) -> Result<Exhibit, SimulationError> {
    let radii = vec![0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
    let settings = ContaminationSettings { candidates: 7, batches: 12, radii, temperature: 1.0, evaluations: 1500, seed };
    let batches = contamination::batches(&settings);
    let (thurstone, bradley_terry) = (RoundRobin::thurstone(), RoundRobin::bradley_terry());
    let (weakest_link, asinh) = (RoundRobin::weakest_link(), RoundRobin::asinh());
    let halved = Claiming(&thurstone, 0.5);
    let members: [(&str, &dyn Certify); 4] = [
        ("Thurstone", if broken { &halved } else { &thurstone }),
        ("Bradley–Terry", &bradley_terry),
        ("weakest link", &weakest_link),
        ("asinh", &asinh),
    ];
    let flips = contamination::argmax(&batches, &settings)?;
    let read = |(name, operator)| Ok((name, contamination::member(name, operator, &batches, &settings)?));
    let members = members.into_iter().map(read).collect::<Result<Vec<_>, SimulationError>>()?;
    Ok(figures::contamination::exhibit(&settings, &flips, &members))
}

/// The study of Theorem 3 (i) and (ii).
fn influence(seed: u64, broken: bool) -> Result<Exhibit, Contradiction> {
    // Factors from 10⁻² to 10³, four per power of ten.
    let scales = (-8..=12).map(|step| 10.0_f64.powf(f64::from(step) / 4.0)).collect();
    let honesty = PUBLISHED_SPREADS.len() - 1;
    let spreads = PUBLISHED_SPREADS.to_vec();
    let settings = InfluenceSettings { candidates: 7, batches: 400, spreads, rescaled: honesty, scales, seed };
    let cbn = if broken { CandidateBatch::paper() } else { CandidateBatch::sound() };
    let raw = influence::raw(&Raw::default(), &settings)?;
    let normalized = influence::normalized(&cbn, &settings)?;
    Ok(figures::influence::exhibit(&settings, &raw, &normalized))
}

/// The study of the decomposition.
fn dispersion(seed: u64, broken: bool) -> Result<Exhibit, SimulationError> {
    let couplings = vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
    let settings = DispersionSettings { candidates: 7, worlds: 40_000, couplings, temperature: 0.3, seed };
    let thurstone = RoundRobin::thurstone();
    let draw = if broken { dispersion::signed } else { dispersion::honest };
    let worths = dispersion::study(&thurstone, draw, &settings)?;
    // Worlds in which σ depends on the sign of the error and not on its size.
    let signed = dispersion::at(&thurstone, dispersion::signed, 0.0, &settings)?;
    Ok(figures::dispersion::exhibit(&settings, &worths, &signed))
}

/// The study of Theorem 3 (iii), with two objectives and with three.
fn frontier(seed: u64, broken: bool) -> Result<Exhibit, Contradiction> {
    let (cbn, rank) = (CandidateBatch::sound(), Rank::default());
    let normalizer: &dyn Normalizer = if broken { &rank } else { &cbn };
    let study = |spreads: Vec<f64>, candidates, density| {
        let settings = FrontierSettings { candidates, spreads, density, seed };
        frontier::study(&Raw::default(), normalizer, &settings).map(|found| (settings, found))
    };
    let two = study(vec![1.0, 0.005], 200, 40)?;
    let three = study(PUBLISHED_SPREADS.map(|spread| 1000.0 * spread).to_vec(), 40, 20)?;
    Ok(figures::frontier::exhibit(&[two, three]))
}

/// A member that claims this multiple of its sharpened modulus.
pub(super) struct Claiming<'a>(pub(super) &'a dyn Certify, pub(super) f64);

impl Aggregator for Claiming<'_> {
    fn rate(&self, batch: &Batch<'_>, ratings: &mut [f64]) {
        self.0.rate(batch, ratings);
    }
}

impl Certify for Claiming<'_> {
    fn modulus(&self, batch: &Batch<'_>) -> Result<Modulus, NoCertificate> {
        let Modulus { published, uniform, sharpened } = self.0.modulus(batch)?;
        Ok(Modulus { published, uniform, sharpened: self.1 * sharpened })
    }
}
