//! A plan laid out: schemes resolved, prompts read, cells named.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Cell, Plan, PlannedScheme, SweepError, Weights};
use crate::args::{FramingArg, ModelArgs};
use crate::models::{adapter_sources, head_sources};
use crate::prompt_sets::Prompt;
use crate::scheme::{Convention, SchemeConfig};

/// Hexadecimal digits of a digest of settings.
const DIGITS: usize = 16;

/// A scheme of the plan on its models.
#[derive(Debug, Clone)]
pub struct Arm {
    /// What records call it.
    pub name: String,
    /// What it is, its blades seated.
    pub config: SchemeConfig,
    /// What fills in where the paper is silent.
    pub convention: Convention,
    /// The adapters of its blades: name and source.
    pub adapters: Vec<(String, String)>,
    /// The heads of its blades: name and directory.
    pub heads: Vec<(String, PathBuf)>,
    /// Whether its blades are those that are weighed.
    pub steered: bool,
    /// Digest of everything but scheme name, weights, prompt and seed that its responses depend on.
    pub settings: String,
    at_every_weight: bool,
}

/// Every cell of a plan.
#[derive(Debug, Clone)]
pub struct Grid {
    /// The plan.
    pub plan: Plan,
    /// The schemes, in the order of the plan.
    pub arms: Vec<Arm>,
    /// The prompts.
    pub prompts: Vec<Prompt>,
    /// The cells, prompt by prompt, so that a sweep that is stopped has answered some prompts under everything.
    pub cells: Vec<Cell>,
    places: HashMap<String, usize>,
}

impl Grid {
    /// Lays out a plan.
    ///
    /// # Errors
    /// When prompts cannot be read, or a scheme does not go with the models or the weights.
    pub fn new(plan: Plan) -> Result<Self, SweepError> {
        let prompts = plan.questions.load()?;
        Self::over(plan, prompts)
    }

    /// Lays out a plan over prompts that were read already.
    ///
    /// # Errors
    /// When a scheme does not go with the models or the weights.
    pub fn over(plan: Plan, prompts: Vec<Prompt>) -> Result<Self, SweepError> {
        let arms: Vec<Arm> = plan.schemes.iter().map(|scheme| Arm::new(scheme, &plan)).collect::<Result<_, _>>()?;
        let mut cells = Vec::new();
        for &seed in &plan.seeds {
            for (prompt, Prompt { id, .. }) in prompts.iter().enumerate() {
                for (index, arm) in arms.iter().enumerate() {
                    if !arm.steered && !arm.at_every_weight {
                        let id = format!("{}/-/{id}/{seed}", arm.name);
                        cells.push(Cell { id, arm: index, weights: None, prompt, seed });
                        continue;
                    }
                    cells.extend(plan.weights.iter().enumerate().map(|(position, weights)| Cell {
                        id: format!("{}/{weights}/{id}/{seed}", arm.name),
                        arm: index,
                        weights: Some(position),
                        prompt,
                        seed,
                    }));
                }
            }
        }
        let places = cells.iter().enumerate().map(|(place, cell)| (cell.id.clone(), place)).collect();
        Ok(Self { plan, arms, prompts, cells, places })
    }

    /// The position of the cell of that name.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// The weights that a cell asks for.
    pub fn weights(&self, cell: &Cell) -> Option<&Weights> {
        cell.weights.and_then(|position| self.plan.weights.get(position))
    }
}

impl Arm {
    fn new(scheme: &PlannedScheme, plan: &Plan) -> Result<Self, SweepError> {
        let PlannedScheme { name, convention, at_every_weight, .. } = scheme;
        let mut config = scheme.config.clone();
        let blamed = |source| SweepError::Scheme { scheme: name.clone(), source: Box::new(source) };
        // The models' blades are for the schemes that seat whatever there is, or name them; a scheme that lists its blades has only those.
        let mut models = plan.models.clone();
        models.blades.retain(|given| config.template.is_some() || config.blades.iter().any(|blade| blade.name == given.name));
        let heads = head_sources(&models, &mut config).map_err(blamed)?;
        let adapters = adapter_sources(&models, &mut config).map_err(blamed)?;
        let spec = config.spec().map_err(|error| blamed(error.into()))?;

        let seated: Vec<String> = spec.seats().iter().map(|seat| seat.name().to_string()).collect();
        let weighed = plan.weights.iter().flat_map(|weights| weights.by_name().keys());
        let (there, missing): (Vec<&String>, Vec<&String>) = weighed.partition(|name| seated.contains(name));
        let steered = !there.is_empty();
        if let (true, Some(&blade)) = (steered, missing.first()) {
            return Err(SweepError::Unseated { scheme: name.clone(), blade: blade.clone(), seated: seated.join(", ") });
        }
        let settings = settings(plan, &config, *convention, &adapters, &heads);
        let (name, convention, at_every_weight) = (name.clone(), *convention, *at_every_weight);
        Ok(Self { name, config, convention, adapters, heads, steered, settings, at_every_weight })
    }
}

/// SHA-256 over what is common to the cells of a scheme: the program's version, models, scheme and how responses are made. Paths count as
/// they are from the plan, so that a folder can be moved.
fn settings(
    plan: &Plan,
    config: &SchemeConfig,
    convention: Convention,
    adapters: &[(String, String)],
    heads: &[(String, PathBuf)],
) -> String {
    let from_plan = |path: &Path| path.strip_prefix(&plan.folder).unwrap_or(path).to_owned();
    let mut config = config.clone();
    for blade in &mut config.blades {
        blade.adapter = None;
        blade.head = None;
        blade.members.clear();
    }
    config.template = None;
    config.about = Default::default();
    let ModelArgs { backbone, drafter, .. } = &plan.models;
    let models = [backbone, drafter].map(|source| source.as_ref().map(|source| from_plan(Path::new(source))));
    let adapters: Vec<_> = adapters.iter().map(|(name, source)| (name, from_plan(Path::new(source)))).collect();
    let generation = &plan.generation;
    let framing = match (generation.framing, convention) {
        (FramingArg::Hh, Convention::Sound) => "hh, with a stop text",
        (FramingArg::Hh, Convention::Paper) => "hh",
        (FramingArg::Chat, _) => "chat",
        (FramingArg::None, _) => "none",
    };
    let all = (env!("CARGO_PKG_VERSION"), models, adapters, config, framing, &generation.system, generation.max_new_tokens);
    let mut all = format!("{all:?}");
    // Schemes without heads keep the digest they had before plans knew heads.
    if !heads.is_empty() {
        let heads: Vec<_> = heads.iter().map(|(name, source)| (name, from_plan(source))).collect();
        all += &format!("{heads:?}");
    }
    let digest = Sha256::digest(all);
    let mut text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(DIGITS);
    text
}
