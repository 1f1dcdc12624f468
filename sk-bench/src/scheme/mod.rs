//! Schemes as data: each slot of 𝔸 = ⟨π_B, Π_prop, ρ, 𝓑, 𝓝, 𝓐, 𝓢⟩ by name and number.
//!
//! A [`SchemeConfig`] starts as a published operating point under a convention, takes what a TOML file says slot by slot, then what the
//! command line says, and is [built](SchemeConfig::build) on loaded models.

mod aggregator;
mod blades;
mod divergence;
pub(crate) mod document;
mod error;
mod gate;
mod granularity;
mod library;
mod normalizer;
mod proposal;
mod selector;
mod stability;
mod summary;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use sk_core::{AlignmentSpec, Arm, OperatingPoint, Scheme, Seat, Simplex, SpecHandle};
use sk_models::device::free_memory;
use sk_models::engine::{AdapterRack, SharedVerifier, Verifier};
use sk_models::head::{Head, HeadKind};
use sk_normalize::Propagation;

pub use aggregator::{AggregatorConfig, AggregatorKind, LinkKind};
pub use blades::{BladeConfig, BladeKind, Guidance};
pub use error::SchemeError;
pub use gate::GateConfig;
pub use granularity::{GranularityConfig, Rule};
pub use library::{SHIPPED, Shipped};
pub use normalizer::{NormalizerConfig, NormalizerKind};
pub use proposal::{PriorKind, ProposalConfig, ProposalKind};
pub use selector::{SelectorConfig, SelectorKind};
pub use stability::{Stability, Uncertified};
pub use summary::{Passes, Summary};

use crate::models::Models;
use crate::suggest;
use crate::weights::NamedWeights;
use document::Document;

/// Which behaviour fills in what the paper leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Convention {
    /// The paper's equations and operating point, without the accidents: no dependence on the order of candidates, σ divided by the spread
    /// of μ and not by its own, end-of-text kept, spans capped.
    #[default]
    Sound,
    /// What the published runs did.
    Paper,
}

impl Convention {
    pub(crate) const NAMES: [(&str, Self); 2] = [("sound", Self::Sound), ("paper", Self::Paper)];
}

/// What the blades of a text do to those that are there.
#[derive(Clone, Copy, PartialEq)]
enum Blades {
    /// Take their place.
    Listed,
    /// Change them field by field.
    Amended,
}

/// The slots a scheme file may name.
const SLOTS: [&str; 7] = ["about", "proposal", "granularity", "blades", "normalizer", "aggregator", "selector"];

/// The section of `[blades]` that stands for every adapter without one of its own.
const TEMPLATE: &str = "*";

/// The `[about]` section: what a scheme is called, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The method.
    pub method: String,
    /// Who published it.
    pub source: String,
}

impl About {
    fn read(&mut self, mut section: document::Section<'_, '_>) -> Result<(), SchemeError> {
        self.method = section.string("method")?.unwrap_or_default();
        self.source = section.string("source")?.unwrap_or_default();
        section.finish()
    }
}

/// A scheme, slot by slot. π_B is the model it is built on.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemeConfig {
    /// What it is called.
    pub about: About,
    /// Π_prop.
    pub proposal: ProposalConfig,
    /// ρ.
    pub granularity: GranularityConfig,
    /// 𝓑, in the order of their weights.
    pub blades: Vec<BladeConfig>,
    /// How adapters that no blade names are seated; `None` where a file lists its blades and no template is among them.
    pub template: Option<BladeConfig>,
    /// β of implicit rewards that do not say.
    pub beta: f64,
    /// Weights in place of those of the blades.
    pub weights: Option<NamedWeights>,
    /// 𝓝.
    pub normalizer: NormalizerConfig,
    /// 𝓐.
    pub aggregator: AggregatorConfig,
    /// 𝓢.
    pub selector: SelectorConfig,
}

impl SchemeConfig {
    /// The reference instantiation at an operating point.
    pub fn reference(convention: Convention, point: &OperatingPoint) -> Self {
        Self {
            about: About::default(),
            proposal: ProposalConfig::published(convention, point.candidates),
            granularity: GranularityConfig::published(convention),
            blades: vec![BladeConfig::fluency()],
            template: Some(BladeConfig::implicit_reward(TEMPLATE, point.beta)),
            beta: point.beta,
            weights: None,
            normalizer: NormalizerConfig::published(convention),
            aggregator: AggregatorConfig::published(convention, point),
            selector: SelectorConfig::published(convention, point),
        }
    }

    /// Takes what a TOML file says; slots and fields it leaves out stay as they are.
    ///
    /// # Errors
    /// When it cannot be read, or names a slot, kind or field that does not exist, or a value out of range: with the line.
    pub fn read(&mut self, path: &Path) -> Result<(), SchemeError> {
        let text = std::fs::read_to_string(path).map_err(|source| SchemeError::Read { path: path.to_owned(), source })?;
        let directory = path.parent().unwrap_or(Path::new(""));
        self.overlay(&path.display().to_string(), &text, directory)
    }

    /// [`read`](Self::read) from a text; `name` stands for it in errors, and paths in it are relative to `directory`.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn overlay(&mut self, name: &str, text: &str, directory: &Path) -> Result<(), SchemeError> {
        self.take(name, text, directory, Blades::Listed)
    }

    /// [`overlay`](Self::overlay), but blades that the text names are changed where they stand, and the others stay. One that has no section
    /// of its own is seated after the template.
    ///
    /// # Errors
    /// As [`read`](Self::read), or when the template itself is named and there is none.
    pub fn amend(&mut self, name: &str, text: &str) -> Result<(), SchemeError> {
        self.take(name, text, Path::new(""), Blades::Amended)
    }

    fn take(&mut self, name: &str, text: &str, directory: &Path, mode: Blades) -> Result<(), SchemeError> {
        let document = if mode == Blades::Amended { Document::of_field(name, text) } else { Document::new(name, text) };
        for section in document.sections("slot")? {
            match section.name() {
                "about" => self.about.read(section)?,
                "proposal" => self.proposal.read(section)?,
                "granularity" => self.granularity.read(section)?,
                "normalizer" => self.normalizer.read(section)?,
                "aggregator" => self.aggregator.read(section)?,
                "selector" => self.selector.read(section)?,
                "blades" if mode == Blades::Amended => {
                    for section in section.sections("blade")? {
                        self.amend_blade(section, directory)?;
                    }
                }
                "blades" => {
                    let beta = self.beta;
                    let blades = section.sections("blade")?.into_iter().map(|s| BladeConfig::read(s, beta, directory));
                    let (templates, blades): (Vec<_>, Vec<_>) =
                        blades.collect::<Result<Vec<_>, _>>()?.into_iter().partition(|blade| blade.name == TEMPLATE);
                    (self.template, self.blades) = (templates.into_iter().next(), blades);
                }
                _ => return Err(section.refuse("slot", &SLOTS)),
            }
        }
        let mut fluency = self.blades.iter().filter(|blade| blade.kind == BladeKind::Fluency);
        match (fluency.next(), fluency.next()) {
            (Some(first), Some(second)) => {
                Err(SchemeError::TwoFluencyBlades { first: first.name.clone(), second: second.name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn amend_blade(&mut self, section: document::Section<'_, '_>, directory: &Path) -> Result<(), SchemeError> {
        if section.name() == TEMPLATE {
            let Some(template) = &mut self.template else {
                return Err(section.fault("the scheme lists its blades, and has none for all others"));
            };
            return template.update(section, directory);
        }
        let name = section.name().to_owned();
        match (self.blades.iter_mut().find(|blade| blade.name == name), &self.template) {
            (Some(blade), _) => blade.update(section, directory),
            (None, Some(template)) => {
                let mut blade = BladeConfig { name, ..template.clone() };
                blade.update(section, directory)?;
                self.blades.push(blade);
                Ok(())
            }
            (None, None) => {
                let seated: Vec<&str> = self.blades.iter().map(|blade| blade.name.as_str()).collect();
                Err(section.refuse("blade", &seated))
            }
        }
    }

    /// Seats the adapter `name` after the template, or as an implicit reward where there is none, unless a blade of that name is there
    /// already.
    pub fn seat(&mut self, name: &str) {
        if !self.blades.iter().any(|blade| blade.name == name) {
            let template = self.template.as_ref().filter(|template| template.kind.head().is_none());
            let seated = template.map(|template| BladeConfig { name: name.to_owned(), ..template.clone() });
            self.blades.push(seated.unwrap_or_else(|| BladeConfig::implicit_reward(name, self.beta)));
        }
    }

    /// Seats the head `name` after the template where that reads heads of its kind, or as what its kind says, unless a blade of that name is
    /// there already.
    pub fn seat_head(&mut self, name: &str, kind: HeadKind) {
        if !self.blades.iter().any(|blade| blade.name == name) {
            let template = self.template.as_ref().filter(|template| template.kind.head() == Some(kind));
            let seated = template.map(|template| BladeConfig { name: name.to_owned(), ..template.clone() });
            self.blades.push(seated.unwrap_or_else(|| BladeConfig::of_head(name, kind)));
        }
    }

    /// The adapters that blades read with: the name the backbone knows each by, which is that of its blade, or followed by a number in an
    /// ensemble; and the directory where the file gives one.
    pub fn adapters(&self) -> impl Iterator<Item = (String, Option<&PathBuf>)> {
        self.blades.iter().flat_map(BladeConfig::adapters)
    }

    /// Ω: the seated blades with their weights, or with equal ones where none is given.
    ///
    /// # Errors
    /// When there is no blade, β is out of range, a weight is not one, weights, correlations or gates name no blade, or all weights are zero.
    pub fn spec(&self) -> Result<AlignmentSpec, SchemeError> {
        let weighed: Vec<&BladeConfig> = self.blades.iter().filter(|blade| blade.kind != BladeKind::Fluency).collect();
        if weighed.is_empty() {
            return Err(SchemeError::NoBlade);
        }
        if let Propagation::Correlated(correlation) = &self.normalizer.propagation {
            let seated: Vec<&str> = weighed.iter().map(|blade| blade.name.as_str()).collect();
            if let Some(name) = correlation.names().find(|name| !seated.contains(name)) {
                let hint = suggest::hint(name, &seated);
                let reason = format!("correlations name blade \"{name}\", which is not seated; {hint}");
                return Err(SchemeError::Parameter { slot: "normalizer", reason });
            }
        }
        let unseated = self.selector.gated_blades().find(|name| !weighed.iter().any(|blade| blade.name == *name));
        if let Some(name) = unseated {
            let seated = weighed.iter().map(|blade| blade.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(SchemeError::Gate { name: name.to_owned(), seated });
        }
        let seat = |blade: &&BladeConfig| {
            blade.build().map(|built| Seat::new(blade.name.as_str(), built)).map_err(|e| parameter("blades", &e))
        };
        let seats: Vec<Seat> = weighed.iter().map(seat).collect::<Result<_, _>>()?;
        let weights = if weighed.iter().any(|blade| blade.weight.is_some()) {
            // A blade without a weight beside blades with one counts for nothing, as on the command line.
            Simplex::normalized(weighed.iter().map(|blade| blade.weight.unwrap_or(0.0)).collect::<Vec<_>>())
        } else {
            Simplex::uniform(seats.len())
        };
        let spec = AlignmentSpec::new(seats, weights.map_err(sk_core::SpecError::from)?)?;
        Ok(match &self.weights {
            Some(weights) => weights.apply(&spec)?,
            None => spec,
        })
    }

    /// The scheme on `models`, with the heads that its blades read, and the rack of its backbone's adapters, which is empty.
    ///
    /// # Errors
    /// When a parameter is out of range, or no blade is seated.
    pub fn build(&self, models: &Models, heads: &[(String, Head)]) -> Result<(Scheme, AdapterRack), SchemeError> {
        let spec = SpecHandle::new(self.spec()?);
        if let Some(model) = self.proposal.drafting(models) {
            let span = self.granularity.span_tokens.map_or(usize::MAX, NonZeroUsize::get);
            models.check_candidates(model, self.proposal.candidates, span, free_memory())?;
        }
        let verifier = Verifier::new(Arc::clone(&models.backbone));
        let adapters = verifier.adapters();
        heads.iter().for_each(|(name, head)| verifier.heads().insert(name.as_str(), head.clone()));
        let backbone = SharedVerifier::new(verifier);
        let fluency = self.blades.iter().find(|blade| blade.kind == BladeKind::Fluency);
        let scheme = Scheme {
            proposal: self.proposal.build(models, &backbone, adapters.clone(), spec.clone())?,
            backbone: Box::new(backbone),
            granularity: self.granularity.build(&models.token_bytes()),
            spec,
            fluency: fluency.map(BladeConfig::build).transpose().map_err(|e| parameter("blades", &e))?,
            normalizer: self.normalizer.build(),
            aggregator: self.aggregator.build().map_err(|e| parameter("aggregator", &e))?,
            selector: self.selector.build().map_err(|e| parameter("selector", &e))?,
            arms: Vec::new(),
        };
        Ok((scheme, adapters))
    }

    /// The scheme as an arm of another, which makes and reads the candidates.
    ///
    /// # Errors
    /// When a parameter is out of range, or no blade is seated.
    pub fn arm(&self, name: &str) -> Result<Arm, SchemeError> {
        let fluency = self.blades.iter().find(|blade| blade.kind == BladeKind::Fluency);
        Ok(Arm {
            name: name.into(),
            spec: SpecHandle::new(self.spec()?),
            fluency: fluency.map(BladeConfig::build).transpose().map_err(|e| parameter("blades", &e))?,
            normalizer: self.normalizer.build(),
            aggregator: self.aggregator.build().map_err(|e| parameter("aggregator", &e))?,
            selector: self.selector.build().map_err(|e| parameter("selector", &e))?,
        })
    }

    /// Forgets the weights in place of those of the blades if they name none of them: they are for other schemes.
    pub(crate) fn forget_foreign_weights(&mut self) {
        let named = |name: &str| self.blades.iter().any(|blade| blade.name == name && blade.kind != BladeKind::Fluency);
        if self.weights.as_ref().is_some_and(|weights| !weights.names().any(named)) {
            self.weights = None;
        }
    }

    /// Checks every number without a model at hand.
    ///
    /// # Errors
    /// Names the slot and the parameter out of range.
    pub fn check(&self) -> Result<(), SchemeError> {
        self.proposal.check()?;
        if !self.proposal.kind.draws() && self.granularity.rule != Rule::Token {
            let reason = format!(
                "is \"{}\", but the proposal \"vocabulary\" makes candidates of one token; use \"token\"",
                self.granularity.rule.name()
            );
            return Err(SchemeError::Parameter { slot: "granularity", reason });
        }
        for blade in self.blades.iter().chain(&self.template) {
            blade.build().map_err(|e| parameter("blades", &e))?;
        }
        BladeConfig::implicit_reward("", self.beta).build().map_err(|e| parameter("blades", &e))?;
        self.aggregator.build().map_err(|e| parameter("aggregator", &e))?;
        self.selector.build().map_err(|e| parameter("selector", &e))?;
        Ok(())
    }
}

fn parameter(slot: &'static str, error: &sk_core::ParameterError) -> SchemeError {
    SchemeError::Parameter { slot, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(convention: Convention) -> SchemeConfig {
        SchemeConfig::reference(convention, &OperatingPoint::HHH)
    }

    fn overlaid(text: &str) -> Result<SchemeConfig, SchemeError> {
        let mut config = reference(Convention::Sound);
        config.overlay("test.toml", text, Path::new("schemes"))?;
        Ok(config)
    }

    #[test]
    fn what_a_file_leaves_out_stays_as_it_was() {
        assert_eq!(overlaid("").unwrap(), reference(Convention::Sound));
        let config = overlaid("[selector]\ntemperature = 2\n[aggregator]\nkind = \"round-robin\"\np = inf\n").unwrap();
        assert_eq!((config.selector.temperature, config.selector.w_blade), (2.0, OperatingPoint::HHH.w_blade));
        assert_eq!(config.aggregator.kind, AggregatorKind::RoundRobin { link: LinkKind::Probit, p: f64::INFINITY });
        assert_eq!(config.proposal, reference(Convention::Sound).proposal);
    }

    #[test]
    fn every_link_of_the_library_has_a_name() {
        let rated = |link: &str| {
            let config = overlaid(&format!("[aggregator]\nkind = \"round-robin\"\n{link}\nstandardize = false\n"))?;
            let mut ratings = [f64::NAN; 2];
            config.aggregator.build().unwrap().rate(&sk_core::Batch::trusted(&[2.0, 0.0], &[0.6, 0.8]), &mut ratings);
            Ok::<_, SchemeError>((ratings[0], config.summary().aggregator))
        };
        // Σσ² = 1, so u = 2: each link at 2.
        for (text, g, words) in [
            ("link = \"probit\"", 0.477_249_868_051_820_8, "thurstone, raw"),
            ("link = \"logistic\"", 1.0 / (1.0 + (-2.0_f64).exp()) - 0.5, "round-robin (logistic, p = 2), raw"),
            ("link = \"tanh\"", 2.0_f64.tanh(), "round-robin (tanh, p = 2), raw"),
            ("link = \"laplace\"", 0.5 * (1.0 - (-2.0_f64).exp()), "round-robin (laplace, p = 2), raw"),
            // F(u) − ½ = atan(u)/π at one degree of freedom, u/(2√(2 + u²)) at two.
            ("link = \"student-t\"\nnu = 1", 2.0_f64.atan() / std::f64::consts::PI, "round-robin (student-t 1, p = 2), raw"),
            ("link = \"student-t\"\nnu = 2", 1.0 / 6.0_f64.sqrt(), "round-robin (student-t 2, p = 2), raw"),
            ("link = \"asinh\"", 2.0_f64.asinh(), "asinh, raw"),
            ("link = \"signed-log\"", 3.0_f64.ln(), "round-robin (signed-log, p = 2), raw"),
            ("link = \"identity\"", 2.0, "round-robin (identity, p = 2), raw"),
        ] {
            let (rating, said) = rated(text).unwrap();
            assert!((rating - g).abs() < 1e-12, "{text}: {rating}");
            assert_eq!(said, words);
        }
        for (text, said) in [
            ("link = \"studentt\"", "test.toml:3: unknown link \"studentt\"; did you mean \"student-t\"?"),
            ("link = \"student-t\"\nnu = 0", "degrees of freedom is 0; it must be finite and at least 0.1"),
            ("link = \"probit\"\nnu = 3", "test.toml:4: unknown field of [aggregator] \"nu\""),
            ("p = 0.5", "p is 0.5; it must be at least 1"),
        ] {
            let error = rated(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    /// Ratings 3, 2, 1 and raw scores of two blades, of which the first is weighed.
    fn selected(config: &SchemeConfig) -> Vec<f64> {
        let table = sk_core::ScoreTable::new([([0.3, 0.2, 0.1], [0.0; 3]), ([-1.0, 0.0, 1.0], [0.5, 0.5, 0.1])]).unwrap();
        let table = table.with_names(["calm", "safe"]).unwrap();
        let batch = sk_core::Batch::trusted(table.mu(0), table.sigma(0)).with_blades(&table);
        let mut p = vec![f64::NAN; 3];
        config.selector.build().unwrap().distribution(&[3.0, 2.0, 1.0], &batch, &mut p);
        p
    }

    #[test]
    fn gates_are_named_after_blades_and_stand_before_the_selection() {
        let gated = |gates: &str| selected(&overlaid(&format!("[selector]\nkind = \"argmax\"\n{gates}")).unwrap());
        assert_eq!(gated(""), [1.0, 0.0, 0.0]);
        assert_eq!(gated("[selector.gates.safe]\nthreshold = -0.2\n"), [0.0, 1.0, 0.0]);
        assert_eq!(gated("[selector.gates.safe]\nthreshold = -0.2\nkappa = 1\n"), [0.0, 0.0, 1.0]);
        assert_eq!(gated("[selector.gates.safe]\nthreshold = 5\n"), [0.0, 0.0, 1.0]);
        assert_eq!(gated("[selector.gates.safe]\nthreshold = 5\nfallback = \"open\"\n"), [1.0, 0.0, 0.0]);
        let both = "[selector.gates.floor]\non = \"score\"\nthreshold = 0.15\n[selector.gates.safe]\nthreshold = -0.2\n";
        assert_eq!(gated(both), [0.0, 1.0, 0.0]);
        assert_eq!(gated("[selector.gates.low]\non = \"rating\"\nthreshold = 3\n"), [1.0, 0.0, 0.0]);
        assert_eq!(overlaid(both).unwrap().selector.build().unwrap().blades(), ["safe".into()]);
        for (text, said) in [
            ("[selector.gates.safe]\nkappa = 1\n", "a gate needs a threshold"),
            ("[selector.gates.safe]\nthreshold = nan\n", "threshold is NaN; it must be a number"),
            ("[selector]\ngates = 3\n", "expected tables by name"),
            ("[selector.gates.safe]\nthreshold = 1\non = \"rating\"\nkappa = 1\n", "kappa"),
        ] {
            let error = overlaid(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn each_standardisation_is_switched_alone() {
        let mut published = reference(Convention::Sound);
        let scores =
            sk_core::ScoreTable::new([([6.0, 2.0, 1.0], [1.0, 2.0, 0.0]), ([-30.0, 0.0, 50.0], [5.0, 5.0, 1.0])]).unwrap();
        let fluency = [-2.0, -1.0, -4.0];
        // Composite, rating, probability: what each standardisation changes, and what comes before it and does not.
        let run = |config: &SchemeConfig| {
            let (mut composite, mut ratings, mut p) = (sk_core::Composite::default(), vec![0.0; 3], vec![0.0; 3]);
            config.normalizer.build().combine(&scores, &Simplex::uniform(2).unwrap(), &mut composite);
            let batch = sk_core::Batch::trusted(&composite.mu, &composite.sigma).with_trusted_fluency(&fluency);
            config.aggregator.build().unwrap().rate(&batch, &mut ratings);
            config.selector.build().unwrap().distribution(&ratings, &batch, &mut p);
            (composite.mu.clone(), ratings, p)
        };
        published.overlay("kind.toml", "[aggregator]\nkind = \"thurstone\"\n", Path::new("")).unwrap();
        let switched = |text: &str| {
            let mut config = published.clone();
            config.overlay("off.toml", text, Path::new("")).unwrap();
            run(&config)
        };
        let (mu, ratings, p) = run(&published);
        let first = switched("[normalizer]\nkind = \"raw\"\n");
        assert_eq!(first.0, [-12.0, 1.0, 25.5]);
        let second = switched("[aggregator]\nstandardize = false\n");
        assert!(second.0 == mu && second.1 != ratings);
        let third = switched("[selector]\nstandardize = false\n");
        assert!(third.0 == mu && third.1 == ratings && third.2 != p);
        assert_eq!(switched("[aggregator]\nstandardize = true\n[selector]\nstandardize = true\n"), (mu, ratings, p));
    }

    #[test]
    fn normalisation_is_set_number_by_number() {
        use sk_core::{Deviation, Standardize};
        use sk_normalize::{Correlation, DispersionUnit, Propagation};
        let text = "[normalizer]\nconvention = \"paper\"\ndeviation = \"population\"\ncorrelations = [[\"a\", \"b\", -0.5]]\n";
        let normalizer = overlaid(text).unwrap().normalizer;
        assert_eq!(normalizer.standardize, Standardize::new(Deviation::Population, 1e-6, 0.0).unwrap());
        assert_eq!(normalizer.unit, DispersionUnit::Own);
        assert_eq!(normalizer.propagation, Propagation::Correlated(Correlation::of_pairs([("a", "b", -0.5)]).unwrap()));
        let normalizer = overlaid("[normalizer]\nepsilon = 0.5\ndispersion_unit = \"own\"\n").unwrap().normalizer;
        assert_eq!(normalizer.standardize, Standardize::new(Deviation::Sample, 0.5, 0.0).unwrap());
        assert_eq!((normalizer.unit, normalizer.propagation), (DispersionUnit::Own, Propagation::Linear));
        for (text, said) in [
            ("epsilon = -1\n", "epsilon is -1"),
            ("correlations = [[\"a\", \"b\"]]\n", "expected a list such as"),
            ("correlations = [[\"a\", \"a\", 0]]\n", "blade \"a\" is paired with itself"),
            ("correlations = [[\"a\", \"b\", 2]]\n", "it must be in [-1, 1]"),
            ("kind = \"raw\"\nepsilon = 1\n", "epsilon"),
        ] {
            let error = overlaid(&format!("[normalizer]\n{text}")).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn the_conventions_differ_where_the_published_runs_do() {
        let (paper, sound) = (reference(Convention::Paper), reference(Convention::Sound));
        assert_eq!((paper.proposal.top_k, paper.proposal.repetition_penalty), (50, 1.05));
        assert!(!paper.proposal.keep_end_of_text && sound.proposal.keep_end_of_text);
        assert_eq!(paper.granularity.span_tokens.map(std::num::NonZeroUsize::get), Some(512));
        assert_eq!((paper.granularity.rule, sound.granularity.rule), (Rule::BlankLine, Rule::BlankLine));
        paper.aggregator.build().unwrap();
        paper.selector.build().unwrap();
    }

    #[test]
    fn listed_blades_replace_the_default_ones_in_the_order_of_the_file() {
        let text = "[blades.z]\nadapter = \"z\"\nweight = 3\n[blades.a]\nadapter = \"/a\"\nweight = 1\nbeta = 0.5\n[blades.b0]\nkind = \"fluency\"\n";
        let mut config = overlaid(text).unwrap();
        assert!(config.template.is_none());
        let adapters: Vec<_> = config.adapters().map(|(name, path)| (name, path.cloned())).collect();
        assert_eq!(adapters, [("z".to_owned(), Some(PathBuf::from("schemes/z"))), ("a".to_owned(), Some(PathBuf::from("/a")))]);
        let spec = config.spec().unwrap();
        assert_eq!((spec.weight("z"), spec.weight("a"), spec.weight("b0")), (Some(0.75), Some(0.25), None));
        config.seat("late");
        assert_eq!(config.spec().unwrap().weight("late"), Some(0.0));
        assert!(matches!(overlaid("[blades]\n").unwrap().spec(), Err(SchemeError::NoBlade)));
    }

    #[test]
    fn blades_are_amended_field_by_field() {
        let amended = |scheme: &str, text: &str| {
            let mut config = Shipped::named(scheme).unwrap().config().unwrap();
            config.amend("--set", text).map(|()| config)
        };
        let lambda = |blade: &BladeConfig| blade.guided.unwrap().lambda;
        let mut args = amended("args", "[blades.\"*\"]\nguided = 0.5\n").unwrap();
        ["a", "b"].iter().for_each(|name| args.seat(name));
        assert_eq!(args.blades.iter().map(lambda).collect::<Vec<_>>(), [0.5, 0.5]);
        assert_eq!(args.blades[0].dispersion, sk_blades::Dispersion::ZERO, "what is not named stays");
        // One blade of a template, and one with a section of its own.
        let mut args = amended("args", "[blades.b]\nguided = 2\n").unwrap();
        ["a", "b"].iter().for_each(|name| args.seat(name));
        let named = |name: &str| lambda(args.blades.iter().find(|blade| blade.name == name).unwrap());
        assert_eq!((named("a"), named("b")), (0.1, 2.0));
        let mixture = amended("mod-alpha", "[blades.\"*\"]\ndivergence_alpha = 0.25\n").unwrap();
        assert_eq!(mixture.template.unwrap().divergence, sk_core::Divergence::alpha(0.25).unwrap());
        let base = amended("base", "[blades.backbone]\ndispersion = \"min-entropy\"\n").unwrap();
        assert_eq!((base.blades.len(), base.blades[0].weight), (1, Some(1.0)));
        for (scheme, text, said) in [
            ("base", "[blades.backbon]\nweight = 1\n", "unknown blade \"backbon\"; did you mean \"backbone\"?"),
            ("base", "[blades.\"*\"]\nweight = 1\n", "has none for all others"),
            ("args", "[blades.\"*\"]\nguide = 1\n", "unknown field of [blades.*] \"guide\"; did you mean \"guided\"?"),
            ("args", "[blades.\"*\"]\nguided = -1\n", "lambda is -1"),
        ] {
            let error = amended(scheme, text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_ensemble_has_adapters_of_its_own() {
        let config = overlaid("[blades.calm]\nkind = \"ensemble\"\nadapters = [\"a\", \"/b\"]\nbeta = 0.2\n").unwrap();
        let adapters: Vec<_> = config.adapters().map(|(name, path)| (name, path.cloned())).collect();
        let expected =
            [("calm/0".to_owned(), Some(PathBuf::from("schemes/a"))), ("calm/1".to_owned(), Some(PathBuf::from("/b")))];
        assert_eq!(adapters, expected);
        let read = config.blades[0].build().unwrap().policies();
        assert_eq!(read[1..], ["calm/0", "calm/1"].map(|name| sk_core::Policy::Variant(name.into())));
        for (text, said) in
            [("adapters = [\"a\"]\n", "at least 2"), ("", "at least 2"), ("adapter = \"a\"\nadapters = []\n", "at least 2")]
        {
            let error = overlaid(&format!("[blades.calm]\nkind = \"ensemble\"\n{text}")).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let both = overlaid("[blades.calm]\nkind = \"ensemble\"\nadapters = [\"a\", \"b\"]\nadapter = \"c\"\n").unwrap_err();
        assert!(both.to_string().contains("unknown field of [blades.calm] \"adapter\""), "{both}");
    }

    #[test]
    fn correlations_are_of_blades_that_are_seated() {
        let mut config = overlaid("[normalizer]\ncorrelations = [[\"calm\", \"sfae\", -0.5]]\n").unwrap();
        ["calm", "safe"].iter().for_each(|name| config.seat(name));
        let said = "normalizer: correlations name blade \"sfae\", which is not seated; did you mean \"safe\"?";
        assert_eq!(config.spec().unwrap_err().to_string(), said);
        config.seat("sfae");
        assert!(config.spec().is_ok());
        // A blade of no weight is seated, and the fluency of candidates is no blade that errs with others.
        let two = "[blades.calm]\nweight = 1\n[blades.safe]\nweight = 0\n[blades.b0]\nkind = \"fluency\"\n[normalizer]\n";
        assert!(overlaid(&format!("{two}correlations = [[\"calm\", \"safe\", 0.2]]\n")).unwrap().spec().is_ok());
        let error = overlaid(&format!("{two}correlations = [[\"calm\", \"b0\", 0.2]]\n")).unwrap().spec().unwrap_err();
        assert!(error.to_string().contains("blade \"b0\", which is not seated; known: calm, safe"), "{error}");
    }

    #[test]
    fn unseated_defaults_share_the_weight() {
        let mut config = reference(Convention::Sound);
        assert!(matches!(config.spec(), Err(SchemeError::NoBlade)));
        ["a", "b", "a"].iter().for_each(|name| config.seat(name));
        assert_eq!(config.spec().unwrap().weights().as_slice(), [0.5, 0.5]);
    }
}
