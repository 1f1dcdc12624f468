//! Grids: plans with their schemes resolved, their prompts read and their cells listed.

use std::collections::HashMap;
use std::fmt::Display;

use super::plan::blades_of;
use sk_report::settings::KeptSettings;

use super::{Cell, Digests, Plan, PlannedScheme, Weights, settings};
use crate::Error;
use crate::models::{PartSources, sources_of};
use crate::prompt_sets::Prompt;
use crate::scheme::{Convention, SchemeSpec};
use crate::suggest;

/// A scheme of the plan, resolved against its models.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Its name in records.
    pub name: String,
    /// The scheme, with its blades seated.
    pub config: SchemeSpec,
    /// The convention for settings that the paper does not specify.
    pub convention: Convention,
    /// The sources of the adapters and heads of its blades.
    pub(super) parts: PartSources,
    /// Whether the weights of the plan apply to its blades.
    pub steered: bool,
    /// The blades that it seats.
    pub(crate) seated: Vec<String>,
    /// Everything that its responses depend on, except for scheme name, weights, prompt and seed.
    pub settings: KeptSettings,
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
    /// The cells, grouped by prompt, so that an interrupted sweep has complete results for the
    /// first prompts.
    pub cells: Vec<Cell>,
    places: HashMap<String, usize>,
}

impl Grid {
    /// Builds the grid of a plan. Reads the weights of the models to compute their digests.
    ///
    /// # Errors
    /// If the output is a file of prompts, prompts or models cannot be read, or a scheme does not
    /// fit the models or the weights.
    pub fn new(plan: Plan, digests: &Digests) -> Result<Self, Error> {
        if let Some(output) = plan.files().into_iter().find(|file| plan.questions.reads(file)) {
            let output = output.display();
            let reason = "holds prompts of the plan, and records would go there too; give [sweep] another output";
            return Err(Error::Input(format!("{output} {reason}")));
        }
        let prompts = plan.questions.load()?;
        Self::over(plan, prompts, digests)
    }

    /// Builds the grid of a plan with the given prompts.
    pub fn over(plan: Plan, prompts: Vec<Prompt>, digests: &Digests) -> Result<Self, Error> {
        let arms: Vec<Arm> = plan.schemes.iter().map(|scheme| Arm::new(scheme, &plan, digests)).collect::<Result<_, _>>()?;
        check_weighed(&plan, &arms)?;
        let mut cells = Vec::new();
        for &seed in &plan.seeds {
            for (prompt, Prompt { id, .. }) in prompts.iter().enumerate() {
                for (index, arm) in arms.iter().enumerate() {
                    let cell = |weights: Option<usize>, of: &dyn Display| Cell {
                        id: format!("{}/{of}/{id}/{seed}", arm.name),
                        arm: index,
                        weights,
                        prompt,
                        seed,
                    };
                    if arm.steered || arm.at_every_weight {
                        cells.extend(plan.weights.iter().enumerate().map(|(place, weights)| cell(Some(place), weights)));
                    } else {
                        cells.push(cell(None, &"-"));
                    }
                }
            }
        }
        let places = cells.iter().enumerate().map(|(place, cell)| (cell.id.clone(), place)).collect();
        Ok(Self { plan, arms, prompts, cells, places })
    }

    /// Returns the position of the cell with this id.
    pub fn find(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// Returns the weights of a cell.
    pub fn weights(&self, cell: &Cell) -> Option<&Weights> {
        cell.weights.and_then(|position| self.plan.weights.get(position))
    }
}

/// Checks that every blade with a weight is known to a scheme or seated by the models: with a
/// misspelt name, all schemes would run unsteered. The check is skipped if all schemes are
/// baselines that are repeated at every weight, since then no scheme uses the weights.
fn check_weighed(plan: &Plan, arms: &[Arm]) -> Result<(), Error> {
    if arms.iter().all(|arm| arm.at_every_weight && !arm.steered) {
        return Ok(());
    }
    let mut known = blades_of(&plan.models);
    known.extend(arms.iter().flat_map(|arm| arm.seated.iter().cloned()));
    known.sort_unstable();
    known.dedup();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let mut weighed = plan.weights.iter().flat_map(|weights| weights.by_name().keys());
    match weighed.find(|name| !known.contains(&name.as_str())) {
        Some(blade) => {
            let hint = suggest::hint(blade, &known);
            let reason = format!("the blade \"{blade}\", which no scheme of the plan and no model seats; {hint}");
            Err(Error::Input(format!("the weights name {reason}")))
        }
        None => Ok(()),
    }
}

impl Arm {
    fn new(scheme: &PlannedScheme, plan: &Plan, digests: &Digests) -> Result<Self, Error> {
        let PlannedScheme { name, convention, at_every_weight, .. } = scheme;
        let mut config = scheme.config.clone();
        let blamed = |error: Error| error.within(format!("scheme \"{name}\""));
        let parts = sources_of(&plan.models, &mut config).map_err(blamed)?;
        let spec = config.check_start().map_err(|error| blamed(error.into()))?;

        let seated: Vec<String> = spec.seats().iter().map(|seat| seat.name().to_string()).collect();
        let weighed = plan.weights.iter().flat_map(|weights| weights.by_name().keys());
        let (there, missing): (Vec<&String>, Vec<&String>) = weighed.partition(|name| seated.contains(name));
        let steered = !there.is_empty();
        if let (true, Some(&blade)) = (steered, missing.first()) {
            let seated = seated.join(", ");
            return Err(Error::Input(format!("scheme \"{name}\" has no blade \"{blade}\" to weigh; it has {seated}")));
        }
        let settings = settings::keep(plan, scheme, &config, &parts, digests)?;
        let (name, convention, at_every_weight) = (name.clone(), *convention, *at_every_weight);
        Ok(Self { name, config, convention, parts, steered, seated, settings, at_every_weight })
    }
}
