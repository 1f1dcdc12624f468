//! Tuning plans, as TOML files: what is searched, for which objectives and on which prompts.

mod sections;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::{Dimension, Search, Space};
use crate::Error;
use crate::document::{self, missing, or_empty};
use crate::judge::{self, Objectives};
use crate::models::Sources;
use crate::named::named;
use crate::prompt_sets::Prompt;
use crate::scheme::source;
use crate::scheme::{Convention, SchemeError, SchemeSpec, Steering, digest};
use crate::shell::word;
use crate::sweep::plan::{blades_of, folder_of, generation, model, questions, steering, weights};
use crate::sweep::{Digests, Generation, Grid, Plan, PlannedScheme, Questions, Weights};
use sections::{head, judge_section, objectives, searches, space};

const SECTIONS: [&str; 10] =
    ["tune", "model", "scheme", "space", "objectives", "weights", "judge", "prompts", "evaluation", "generation"];
/// The default scheme.
const SCHEME: &str = "swiss-knife";
/// The name of the scheme in the records of a trial. It is the same in all trials, so that they use
/// the same random draws.
const TUNED: &str = "tuned";
/// The prompt label that holds the axis.
const AXIS: &str = "axis";

/// Version of the digest of settings.
const VERSION: u32 = 1;
/// Hexadecimal digits of the digest of settings.
const DIGITS: usize = 16;

named! {
    /// One search per objective, or one for all.
    pub Mode {
        /// One search per objective, and the mean of their optima: the paper's recipe.
        Each = "each",
        /// One search for all objectives, and its Pareto front.
        Together = "together",
    }
}

/// The method that scores responses.
#[derive(Debug, Clone, PartialEq)]
pub enum ScoreSource {
    /// The blades that steer the response: the mean of β log(π_k/π_B) over its tokens. This costs
    /// nothing, but it is circular.
    Blades,
    /// A judge.
    Judge {
        /// The judge.
        judge: JudgePlan,
        /// The objectives that it judges by.
        objectives: Objectives,
    },
}

impl ScoreSource {
    /// Returns a description for reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Blades => "the blades' own mean μ per token",
            Self::Judge { .. } => "the judge",
        }
    }

    fn is_judge(&self) -> bool {
        matches!(self, Self::Judge { .. })
    }
}

/// The `[judge]` section.
#[derive(Debug, Clone, PartialEq)]
pub enum JudgePlan {
    /// Preference models, as used by `swiss-knife judge --offline`: the models of a folder, or the
    /// bundled models if `None`.
    Offline(Option<PathBuf>),
    /// A language model behind an OpenAI-compatible endpoint.
    Server(ServerPlan),
}

/// A language model behind an OpenAI-compatible endpoint, as used by `swiss-knife judge`.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerPlan {
    /// Base address of the server.
    pub endpoint: String,
    /// The model; if `None`, the server must offer exactly one.
    pub model: Option<String>,
    /// Environment variable that holds the key.
    pub api_key_env: String,
    /// How the model's output is turned into a score.
    pub scoring: judge::Scoring,
    /// Number of concurrent requests.
    pub concurrency: usize,
    /// Timeout of a request.
    pub timeout: Duration,
    /// Maximum number of attempts per question.
    pub attempts: u32,
}

/// An objective.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Objective {
    /// Its name in records.
    pub name: String,
    /// The blade whose score is used, if blades score the responses.
    pub blade: String,
    /// The judge's objective whose score is used, if a judge scores the responses.
    pub axis: Option<String>,
    /// If given, only responses to prompts with this value of the label `axis` count.
    pub prompts: Option<String>,
}

impl Objective {
    /// Returns the objective of a blade. With a judge, its axis is that of the blade, or else the
    /// axis with this name, if any.
    fn of_blade(blade: &str, scoring: &ScoreSource) -> Self {
        let axis = match scoring {
            ScoreSource::Blades => None,
            ScoreSource::Judge { objectives, .. } => {
                let named = || objectives.names().into_iter().find(|name| *name == blade).map(str::to_owned);
                objectives.of_blade(blade).map(|objective| objective.name.clone()).or_else(named)
            }
        };
        Self { name: blade.to_owned(), blade: blade.to_owned(), axis, prompts: None }
    }

    /// Returns whether a response to a prompt with this label `axis` counts.
    pub(super) fn counts(&self, axis: Option<&str>) -> bool {
        self.prompts.as_ref().is_none_or(|wanted| axis == Some(wanted))
    }

    /// Returns whether a response to this prompt counts.
    pub fn asks(&self, prompt: &Prompt) -> bool {
        self.counts(prompt.labels.get(AXIS).map(String::as_str))
    }
}

/// A search of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPlan {
    /// Its name: that of its objective, or `together`.
    pub name: String,
    /// The objectives that its trials are scored on.
    pub objectives: Vec<Objective>,
    /// The weight vectors of each trial.
    pub weights: Vec<Weights>,
}

impl SearchPlan {
    /// Returns the search as JSON, for digests.
    fn canonical(&self) -> serde_json::Value {
        let weights: Vec<_> = self.weights.iter().map(Weights::by_name).collect();
        json!({ "name": self.name, "objectives": self.objectives, "weights": weights })
    }
}

/// A tuning plan. Paths are relative to the plan file.
#[derive(Debug, Clone)]
pub struct TunePlan {
    /// The folder of the plan file.
    pub folder: PathBuf,
    /// The path of the ledger. Responses are stored in a folder beside it.
    pub output: PathBuf,
    /// One search per objective, or one for all.
    pub mode: Mode,
    /// The method that scores responses.
    pub scoring: ScoreSource,
    /// Number of trials of each search.
    pub trials: usize,
    /// Number of initial trials drawn uniformly, before the estimator is used.
    pub startup: usize,
    /// Seed of the searches.
    pub seed: u64,
    /// The seeds of responses. One response is generated with each seed.
    pub seeds: Vec<u64>,
    /// The models.
    pub models: Sources,
    /// The search space.
    pub space: Space,
    /// The searches.
    pub searches: Vec<SearchPlan>,
    /// The prompts to tune on.
    pub questions: Questions,
    /// The prompts to evaluate on. None of them may be used for tuning.
    pub evaluation: Questions,
    /// The settings of generation.
    pub generation: Generation,
    steering: Steering,
}

impl TunePlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// If the file cannot be read, or for the reasons given at [`parse`](Self::parse).
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = crate::scheme::text::read(path).map_err(Error::reading(path))?;
        Self::parse(path, &text)
    }

    /// Parses a plan. `path` is the name of the plan in errors, and paths in the plan are relative
    /// to its folder. Prompts and models are not read.
    ///
    /// # Errors
    /// If the text is not TOML, contains an unknown section, field or choice, has a value out of
    /// range, or searches a number that the scheme does not have. If the path of the folder is not
    /// UTF-8.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let name = path.display().to_string();
        let folder = folder_of(path)?;
        let (source, table) = source::Source::parse(&name, text, true)?;
        let mut sections = document::sections(&source, table, &SECTIONS)?;
        let head = head(or_empty(sections.remove("tune"), &source))?;
        let models = model(or_empty(sections.remove("model"), &source), &folder)?;
        let mut scheme = Steering { scheme: Some(SCHEME.into()), ..Steering::default() };
        if let Some(mut section) = sections.remove("scheme") {
            scheme = steering(&mut section, SCHEME, &folder)?;
            section.finish()?;
        }
        let spec = scheme.spec(models.are_shipped())?;
        let fits = |dimension: &Dimension| fits(dimension, &scheme, &models);
        let space = match sections.remove("space") {
            Some(section) => space(section, fits)?,
            None => {
                let space = Space::default();
                let unfit = space.dimensions().iter().find_map(|dimension| fits(dimension).err());
                unfit.map_or(Ok(space), |reason| Err(Error::Input(format!("{name}: no [space] section; {reason}"))))?
            }
        };
        let mut blades = blades_of(&models);
        // A scheme that lists its blades seats no others.
        if spec.template.is_none() && blades.iter().any(|blade| spec.is_named(blade)) {
            blades.retain(|blade| spec.is_named(blade));
        }
        let scoring = sections.remove("judge").map_or(Ok(ScoreSource::Blades), |section| judge_section(section, &folder))?;
        let objectives = match sections.remove("objectives") {
            Some(section) => objectives(section, &scoring)?,
            None => blades.iter().map(|blade| (Objective::of_blade(blade, &scoring), None)).collect(),
        };
        if objectives.is_empty() {
            return Err(missing(&name, "objectives.NAME", "name at least one, such as [objectives.harmless]").into());
        }
        if let (ScoreSource::Judge { objectives: axes, .. }, Some((lacking, _))) =
            (&scoring, objectives.iter().find(|(objective, _)| objective.axis.is_none()))
        {
            let axes = axes.names().join("\", \"");
            let reason =
                format!("objective \"{}\": name its axis, as in axis = \"NAME\"; the judge's are \"{axes}\"", lacking.name);
            return Err(SchemeError::Parameter { slot: "objectives", reason }.into());
        }
        let at = sections.remove("weights").map(|section| weights(section, &models)).transpose()?;
        let prompts = sections.remove("prompts");
        let prompts =
            prompts.ok_or_else(|| missing(&name, "prompts", "name the files to tune on, such as sources = [\"tune.jsonl\"]"))?;
        let evaluation = sections.remove("evaluation");
        let evaluation = evaluation
            .ok_or_else(|| missing(&name, "evaluation", "name the prompts to evaluate on later, so that none is tuned on"))?;
        let plan = Self {
            output: head.output.map_or_else(|| path.with_extension("jsonl"), |output| folder.join(output)),
            searches: searches(head.mode, &scoring, objectives, at, &blades)?,
            questions: questions(prompts, &folder)?,
            evaluation: questions(evaluation, &folder)?,
            generation: generation(or_empty(sections.remove("generation"), &source))?,
            mode: head.mode,
            scoring,
            trials: head.trials,
            startup: head.startup,
            seed: head.seed,
            seeds: head.seeds,
            models,
            space,
            steering: scheme,
            folder,
        };
        // Build the scheme at both ends of all ranges, so that invalid combinations are reported
        // before a model is loaded.
        for end in [0.0, 1.0_f64.next_down()] {
            plan.scheme(&plan.space.dimensions().iter().map(|dimension| dimension.value(end)).collect::<Vec<_>>())?;
        }
        Ok(plan)
    }

    /// Returns the scheme at a point of the space.
    ///
    /// # Errors
    /// If the scheme does not have one of the numbers.
    pub fn scheme(&self, point: &[f64]) -> Result<SchemeSpec, SchemeError> {
        let mut spec = self.origin()?;
        self.space.apply(point, &mut spec)?;
        Ok(spec)
    }

    /// Returns the scheme of the plan, before the search changes it.
    ///
    /// # Errors
    /// If it cannot be built.
    pub fn origin(&self) -> Result<SchemeSpec, SchemeError> {
        self.steering.spec(self.models.are_shipped())
    }

    /// Returns the options of `generate` that select the scheme of the plan, quoted for a shell.
    pub fn scheme_option(&self) -> String {
        // A plan has no numbers, and weights are printed apart.
        let Steering { scheme, preset, convention, set, numbers: _, weights: _ } = &self.steering;
        let scheme = scheme.iter().map(|path| format!("--scheme {}", word(&path.to_string_lossy())));
        let preset = preset.map(|preset| format!("--preset {preset}"));
        let convention = (*convention != Convention::default()).then(|| format!("--convention {convention}"));
        let starts = [preset, convention].into_iter().flatten();
        let set = set.iter().map(|set| format!("--set {}", word(&set.to_string())));
        scheme.chain(starts).chain(set).collect::<Vec<_>>().join(" ")
    }

    /// Loads the prompts to tune on, and checks that none of them is an evaluation prompt.
    ///
    /// # Errors
    /// If the ledger is a file of prompts, prompts cannot be read, a prompt is in both sets, or an
    /// objective has no prompts.
    pub fn prompts(&self) -> Result<Vec<Prompt>, Error> {
        if self.questions.reads(&self.output) || self.evaluation.reads(&self.output) {
            let output = self.output.display();
            let reason = "holds prompts of the plan, and trials would go there too; give [tune] another output";
            return Err(Error::Input(format!("{output} {reason}")));
        }
        let prompts = self.questions.load()?;
        disjoint(&prompts, &self.evaluation.load()?)?;
        for objective in self.searches.iter().flat_map(|search| &search.objectives) {
            if !prompts.iter().any(|prompt| objective.asks(prompt)) {
                let found: BTreeSet<&str> = prompts.iter().filter_map(|p| p.labels.get(AXIS)).map(String::as_str).collect();
                let found = if found.is_empty() { "none".to_owned() } else { found.into_iter().collect::<Vec<_>>().join(", ") };
                let axis = objective.prompts.clone().unwrap_or_default();
                let name = &objective.name;
                let reason = format!("no prompt has the label axis = \"{axis}\"; labels found: {found}");
                return Err(Error::Input(format!("objective \"{name}\": {reason}")));
            }
        }
        Ok(prompts)
    }

    /// Returns the sweep of a trial: the scheme at the trial's point, the weights of its search,
    /// and the prompts of its objectives.
    ///
    /// # Errors
    /// If models cannot be read, or the scheme does not fit the models or the weights.
    pub fn trial(
        &self,
        search: usize,
        config: SchemeSpec,
        output: PathBuf,
        prompts: &[Prompt],
        digests: &Digests,
    ) -> Result<Grid, Error> {
        let SearchPlan { objectives, weights, .. } = &self.searches[search];
        let convention = self.steering.convention;
        let plan = Plan {
            folder: self.folder.clone(),
            output,
            seeds: self.seeds.clone(),
            traces: !self.scoring.is_judge(),
            models: self.models.clone(),
            schemes: vec![PlannedScheme { name: TUNED.to_owned(), config, convention, at_every_weight: false }],
            weights: weights.clone(),
            questions: self.questions.clone(),
            generation: self.generation.clone(),
        };
        let asked = prompts.iter().filter(|prompt| objectives.iter().any(|objective| objective.asks(prompt)));
        Grid::over(plan, asked.cloned().collect(), digests)
    }

    /// Returns the searches with the names of their objectives, as needed by a ledger.
    ///
    /// # Errors
    /// If the scheme cannot be built.
    pub fn ledger_searches(&self) -> Result<Vec<(Search, Vec<String>)>, SchemeError> {
        let origin = self.space.point_of(&self.origin()?);
        let search = |search: &SearchPlan| {
            let name = search.name.clone();
            let (space, seed, startup, origin) = (self.space.clone(), self.seed, self.startup, origin.clone());
            let objectives = search.objectives.iter().map(|objective| objective.name.clone()).collect();
            (Search { name, space, seed, startup, origin }, objectives)
        };
        Ok(self.searches.iter().map(search).collect())
    }

    /// Checks that the scheme seats the blade of each objective, unless a judge scores.
    fn check_scored(&self, search: &SearchPlan, grid: &Grid) -> Result<(), Error> {
        for (Objective { name, blade, .. }, arm) in
            search.objectives.iter().flat_map(|o| grid.arms.iter().map(move |arm| (o, arm)))
        {
            if !self.scoring.is_judge() && !arm.seated.contains(blade) {
                let seated = arm.seated.join(", ");
                let reason = format!("its blade \"{blade}\" is not in the scheme, which has {seated}");
                return Err(Error::Input(format!("objective \"{name}\": {reason}; name one of these or add a [judge]")));
            }
        }
        Ok(())
    }

    /// Returns the digest of everything that a score depends on except the point: models, scheme,
    /// space, objectives, weights, prompts, seeds and `scorer`, the identity of the scorer.
    ///
    /// # Errors
    /// If models cannot be read, the scheme does not fit the models or the weights, or it lacks a
    /// blade that scores an objective.
    pub fn settings(&self, prompts: &[Prompt], scorer: &str, digests: &Digests) -> Result<String, Error> {
        let arms: Vec<String> = (0..self.searches.len())
            .map(|search| {
                let grid = self.trial(search, self.origin()?, PathBuf::new(), prompts, digests)?;
                self.check_scored(&self.searches[search], &grid)?;
                Ok::<_, Error>(grid.arms.iter().map(|arm| arm.settings.settings.as_str()).collect::<String>())
            })
            .collect::<Result<_, _>>()?;
        let texts: Vec<_> = prompts.iter().map(|prompt| (&prompt.id, &prompt.prompt, prompt.labels.get(AXIS))).collect();
        let digest = digest(&json!({
            "version": VERSION,
            "arms": arms,
            "prompts": texts,
            "space": self.space.canonical(),
            "searches": self.searches.iter().map(SearchPlan::canonical).collect::<Vec<_>>(),
            "startup": self.startup,
            "seed": self.seed,
            "seeds": self.seeds,
            "scorer": scorer,
        }));
        Ok(format!("{digest:.DIGITS$}"))
    }
}

/// Checks that the scheme has a number and accepts both ends of its range.
fn fits(dimension: &Dimension, steering: &Steering, models: &Sources) -> Result<(), String> {
    let name = dimension.parameter.name;
    let fault = |error| format!("{name}: {error}; write fixed = [\"{name}\"], or a range that the scheme allows");
    let mut spec = steering.spec(models.are_shipped()).map_err(fault)?;
    let (low, high) = dimension.range();
    [low, high].into_iter().try_for_each(|end| dimension.parameter.set(&mut spec, end)).map_err(fault)
}

/// Returns a prompt's text in lower case and with normalised white space, for comparison.
fn essence(prompt: &Prompt) -> String {
    prompt.prompt.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Returns an error if a prompt is in both sets. Prompts are compared by text, without regard to
/// case and white space. Ids are not compared, because the same text may have several ids.
fn disjoint(tuned: &[Prompt], evaluated: &[Prompt]) -> Result<(), Error> {
    let kept: HashMap<String, &str> = evaluated.iter().map(|prompt| (essence(prompt), prompt.id.as_str())).collect();
    let shared = |prompt: &Prompt| kept.get(&essence(prompt)).map(|id| (prompt.id.clone(), (*id).to_owned()));
    let mut shared: Vec<(String, String)> = tuned.iter().filter_map(shared).collect();
    let count = shared.len();
    if count == 0 {
        return Ok(());
    }
    let (tuned_id, evaluated) = shared.swap_remove(0);
    let prompts = tuned.len();
    Err(Error::Input(format!(
        "{count} of the {prompts} tuning prompts are also evaluation prompts, such as \"{tuned_id}\" (\"{evaluated}\" in [evaluation]); \
         remove them from [prompts]"
    )))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn prompt(id: &str, text: &str) -> Prompt {
        Prompt { id: id.to_owned(), prompt: text.to_owned(), source: String::new(), row: 0, labels: BTreeMap::new() }
    }

    #[test]
    fn a_prompt_in_both_sets_is_found_by_its_text() {
        let tuned = [prompt("a", "\n\nHuman: Hi\n\nAssistant:"), prompt("b", "\n\nHuman: Go  on\n\nAssistant:")];
        disjoint(&tuned, &[prompt("a", "\n\nHuman: another text under the same id\n\nAssistant:")]).unwrap();
        let error = disjoint(&tuned, &[prompt("x", "\n\nHuman: go on \n\nAssistant:")]).unwrap_err();
        let says = "1 of the 2 tuning prompts are also evaluation prompts, such as \"b\" (\"x\" in [evaluation]);";
        assert!(error.to_string().starts_with(says), "{error}");
    }
}
