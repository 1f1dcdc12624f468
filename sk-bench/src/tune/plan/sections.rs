//! The sections that only tuning plans have.

use std::path::Path;
use std::time::Duration;

use super::{JudgePlan, Mode, Objective, ScoreSource, SearchPlan, ServerPlan};
use crate::Error;
use crate::document::Section;
use crate::judge::run::MOST_AT_ONCE;
use crate::judge::{self, Objectives, Retry};
use crate::scheme::SchemeError;
use crate::sweep::Weights;
use crate::sweep::plan::{check_distinct, output, seeds};
use crate::tune::{Dimension, Space};

/// The name of the search for all objectives together.
const TOGETHER: &str = "together";
/// Default number of trials of a search.
const TRIALS: usize = 40;
/// Maximum number of trials of a search. A larger number is assumed to be a mistake.
const MOST_TRIALS: usize = 100_000;
/// Default number of trials drawn uniformly before the estimator is used.
const STARTUP: usize = 10;
/// Default seed of searches and responses, as in the paper.
const SEED: u64 = 42;
/// Defaults of a judge, the same as for the command `judge`: the environment variable of its key,
/// the number of concurrent requests, and the timeout of a request in seconds.
const API_KEY: &str = "SWISS_KNIFE_API_KEY";
const CONCURRENCY: usize = 8;
const TIMEOUT: usize = 120;

/// An objective, with the weights of its search if the plan gives them.
pub(super) type Placed = (Objective, Option<Vec<Weights>>);

/// The `[tune]` section.
pub(super) struct Head {
    pub(super) output: Option<String>,
    pub(super) mode: Mode,
    pub(super) trials: usize,
    pub(super) startup: usize,
    pub(super) seed: u64,
    pub(super) seeds: Vec<u64>,
}

pub(super) fn head(mut section: Section<'_>) -> Result<Head, SchemeError> {
    let head = Head {
        output: output(&mut section)?,
        mode: section.choice("search", "search", Mode::by_name())?.unwrap_or(Mode::Each),
        trials: section.count("trials")?.unwrap_or(TRIALS),
        startup: section.count("startup")?.unwrap_or(STARTUP),
        seed: section.count("seed")?.unwrap_or(SEED),
        seeds: seeds(&mut section)?.unwrap_or_else(|| vec![SEED]),
    };
    if head.trials == 0 || head.startup == 0 {
        return Err(section.fault("trials and startup are at least 1"));
    }
    if head.trials > MOST_TRIALS {
        return Err(section.fault(format!("trials is {}; it is at most {MOST_TRIALS}", head.trials)));
    }
    section.finish()?;
    Ok(head)
}

pub(super) fn space(mut section: Section<'_>, fits: impl Fn(&Dimension) -> Result<(), String>) -> Result<Space, SchemeError> {
    let fixed = section.strings("fixed")?.unwrap_or_default();
    let known: Vec<&str> = Dimension::all().map(|dimension| dimension.parameter.name).collect();
    if let Some(name) = fixed.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(section.fault(format!("fixed: unknown number \"{name}\"; {}", crate::suggest::hint(name, &known))));
    }
    let mut dimensions = Vec::new();
    for dimension in Dimension::all() {
        let name = dimension.parameter.name;
        let range = section.number_pair(name)?;
        match (fixed.iter().any(|fixed| fixed == name), range) {
            (true, Some(_)) => return Err(section.fault(format!("{name} is fixed and has a range; choose one"))),
            (true, None) => {}
            (false, Some((low, high))) => dimensions.push(dimension.within(low, high).map_err(|reason| section.fault(reason))?),
            (false, None) => dimensions.push(dimension),
        }
    }
    if let Some(reason) = dimensions.iter().find_map(|dimension| fits(dimension).err()) {
        return Err(section.fault(reason));
    }
    let space = Space::new(dimensions).map_err(|reason| section.fault(reason))?;
    section.finish()?;
    Ok(space)
}

pub(super) fn judge_section(mut section: Section<'_>, folder: &Path) -> Result<ScoreSource, SchemeError> {
    let offline = section.flag("offline")?.unwrap_or(false);
    let models = section.string("models")?;
    let file = section.string("objectives")?.map(|file| folder.join(file));
    let otherwise = if offline { Objectives::offline() } else { Objectives::hhh() };
    let objectives = file.map_or_else(|| Ok(otherwise.clone()), |file| Objectives::read(&file));
    let objectives = objectives.map_err(|error| section.fault(error.to_string()))?;
    if offline {
        section.finish()?;
        return Ok(ScoreSource::Judge { judge: JudgePlan::Offline(models.map(|models| folder.join(models))), objectives });
    }
    if models.is_some() {
        return Err(section.fault("models are those of an offline judge; add offline = true"));
    }
    let (endpoint, model) = (section.string("endpoint")?, section.string("model")?);
    let api_key_env = section.string("api_key_env")?.unwrap_or_else(|| API_KEY.to_owned());
    let scoring = section.choice("scoring", "scoring", judge::Scoring::by_name())?.unwrap_or(judge::Scoring::Integer);
    let concurrency = section.positive("concurrency")?.unwrap_or(CONCURRENCY);
    let timeout = Duration::from_secs(section.positive("timeout")?.unwrap_or(TIMEOUT) as u64);
    let attempts = section.positive("attempts")?.map_or(Retry::default().attempts, |n| n.try_into().unwrap_or(u32::MAX));
    if concurrency > MOST_AT_ONCE {
        return Err(section.fault(format!("concurrency is {concurrency}; it is at most {MOST_AT_ONCE}")));
    }
    let missing = section.fault("name an endpoint, such as \"http://localhost:8000/v1\", or offline = true");
    section.finish()?;
    let endpoint = endpoint.ok_or(missing)?;
    let judge = ServerPlan { endpoint, model, api_key_env, scoring, concurrency, timeout, attempts };
    Ok(ScoreSource::Judge { judge: JudgePlan::Server(judge), objectives })
}

/// The requirement of [`names_a_file`], for errors.
const NAME_OF_A_FILE: &str = "is part of a file name: it must not be empty, \"together\", start with \".\" or contain \"/\"";

/// Returns whether the name of an objective can be part of a file name.
fn names_a_file(name: &str) -> bool {
    !(name.is_empty() || name == TOGETHER || name.contains(['/', '\\', '\n', '\t']) || name.starts_with('.'))
}

pub(super) fn objectives(section: Section<'_>, scoring: &ScoreSource) -> Result<Vec<Placed>, SchemeError> {
    let objective = |mut section: Section<'_>| {
        let name = section.name().to_owned();
        if !names_a_file(&name) {
            return Err(section.fault(format!("an objective's name {NAME_OF_A_FILE}")));
        }
        let default = Objective::of_blade(&name, scoring);
        let (blade, axis) = (section.string("blade")?, section.string("axis")?);
        if scoring.is_judge() && blade.is_some() {
            return Err(section.fault("blade is for a plan without [judge]; a judge scores an axis"));
        }
        if !scoring.is_judge() && axis.is_some() {
            return Err(
                section.fault("axis is for a plan with a [judge]; blades score under their own names, or by blade = \"NAME\"")
            );
        }
        if let (Some(axis), ScoreSource::Judge { objectives, .. }) = (&axis, scoring)
            && !objectives.names().contains(&axis.as_str())
        {
            let hint = crate::suggest::hint(axis, objectives.names());
            return Err(section.fault(format!("unknown axis \"{axis}\"; {hint}")));
        }
        let objective = Objective {
            blade: blade.unwrap_or(default.blade),
            axis: axis.or(default.axis),
            prompts: section.string("prompts")?,
            name,
        };
        let weights = section.vectors("weights")?.map(|list| {
            let list: Result<Vec<Weights>, _> = list.into_iter().map(Weights::normalized).collect();
            let list = list.map_err(|error| error.to_string())?;
            check_distinct(&list).map(|()| list)
        });
        let weights = weights.transpose().map_err(|reason| section.fault(reason))?;
        if weights.as_ref().is_some_and(Vec::is_empty) {
            return Err(section.fault("list at least one weight vector, such as weights = [{ helpful = 1 }]"));
        }
        section.finish()?;
        Ok((objective, weights))
    };
    section.sections("objective")?.into_iter().map(objective).collect()
}

/// Returns the blade at whose vertex the search for an objective runs: with a judge, the blade of
/// its name, or else the one that its axis names; without, the blade that scores it.
fn vertex_of<'a>(objective: &'a Objective, scoring: &'a ScoreSource, blades: &'a [String]) -> &'a str {
    let ScoreSource::Judge { objectives: by, .. } = scoring else { return &objective.blade };
    let axis = by.objectives.iter().find(|axis| objective.axis.as_ref() == Some(&axis.name));
    let steers = axis.and_then(|axis| by.blades.iter().find(|blade| blade.name == axis.blade()));
    let of_axis = |name: &&String| steers.is_some_and(|blade| blade.is_called(name));
    if blades.contains(&objective.name) { &objective.name } else { blades.iter().find(of_axis).unwrap_or(&objective.name) }
}

/// Returns the searches for the objectives.
///
/// A search for one objective uses the weights of that objective, or by default the vertex of its
/// blade. A search for all objectives uses the weights of the plan, or by default equal weights.
pub(super) fn searches(
    mode: Mode,
    scoring: &ScoreSource,
    objectives: Vec<Placed>,
    at: Option<Vec<Weights>>,
    blades: &[String],
) -> Result<Vec<SearchPlan>, Error> {
    let refused = |slot, reason: &str| Error::from(SchemeError::Parameter { slot, reason: reason.to_owned() });
    let over_blades = |weight: &dyn Fn(&String) -> f64, otherwise: &str| {
        let weights = Weights::normalized(blades.iter().map(|name| (name.clone(), weight(name))));
        weights.map(|weights| vec![weights]).map_err(|_| refused("weights", otherwise))
    };
    let searches = match mode {
        Mode::Together => {
            if objectives.iter().any(|(_, weights)| weights.is_some()) {
                let reason = "with search = \"together\", all objectives use [weights]; remove the weights of the objectives";
                return Err(refused("weights", reason));
            }
            let equal = || over_blades(&|_| 1.0, "name weights, such as list = [{ calm = 1, safe = 1 }]");
            let weights = at.map_or_else(equal, Ok)?;
            let objectives = objectives.into_iter().map(|(objective, _)| objective).collect();
            vec![SearchPlan { name: TOGETHER.to_owned(), objectives, weights }]
        }
        Mode::Each => {
            if at.is_some() {
                let reason = "with search = \"each\", every objective has its own weights; move [weights] into the objectives";
                return Err(refused("weights", reason));
            }
            // The objectives may be the blades, whose names are not checked before.
            if let Some((objective, _)) = objectives.iter().find(|(objective, _)| !names_a_file(&objective.name)) {
                let reason = format!(
                    "the name of blade \"{}\" {NAME_OF_A_FILE}; rename the blade, or list [objectives.NAME] with blade = \"…\"",
                    objective.name
                );
                return Err(refused("objectives", &reason));
            }
            let each = objectives.into_iter().map(|(objective, weights)| {
                let own = vertex_of(&objective, scoring, blades);
                let none = if own == objective.name {
                    format!("objective \"{own}\": no blade of that name; give it weights")
                } else {
                    let hint = crate::suggest::hint(own, blades.iter().map(String::as_str));
                    format!("objective \"{}\": unknown blade \"{own}\"; {hint}", objective.name)
                };
                let vertex = || over_blades(&|name| if name == own { 1.0 } else { 0.0 }, &none);
                let weights = weights.map_or_else(vertex, Ok)?;
                Ok(SearchPlan { name: objective.name.clone(), objectives: vec![objective], weights })
            });
            each.collect::<Result<_, Error>>()?
        }
    };
    for search in &searches {
        for (objective, weights) in search.objectives.iter().flat_map(|o| search.weights.iter().map(move |w| (o, w))) {
            let read = weights.by_name().get(&objective.blade).is_some_and(|&weight| weight > 0.0);
            if !scoring.is_judge() && !read {
                let Objective { name, blade, .. } = objective;
                return Err(Error::Input(format!(
                    "objective \"{name}\": blade \"{blade}\" has no positive weight in {weights}, so it gives no score; give it one"
                )));
            }
        }
    }
    Ok(searches)
}
