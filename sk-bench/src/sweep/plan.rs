//! Sweep plans, as TOML files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use sk_models::assets;

use super::Weights;
use crate::Error;
use crate::document::{self, Section, missing, or_empty};
use crate::framing::DialogueFraming;
use crate::models::{Source, Sources, exists};
use crate::prompt_sets::{self, Allocation, PaperSet, Prompt, PromptFormat};
use crate::record_file::same_file;
use crate::scheme::source;
use crate::scheme::{Convention, FieldEdit, Preset, SchemeError, SchemeSpec, Shipped, Steering};
use sk_report::points::{lattice, lattice_size, paper_points, paper_size};
use sk_report::record::traces_of;
use sk_report::settings::beside;

/// The sections of a plan.
const SECTIONS: [&str; 6] = ["sweep", "model", "schemes", "weights", "prompts", "generation"];
/// Maximum number of lattice points. A larger number is assumed to be a mistake.
const MOST_POINTS: f64 = 1e4;
/// Maximum size of all weight vectors in bytes. Each vector holds the names of its blades.
const MOST_BYTES: f64 = 1e7;
/// Default seed of prompt samples and of responses.
const SEED: u64 = 42;
/// Default maximum number of tokens of a response.
const MAX_NEW_TOKENS: usize = 256;

/// A sweep plan. Paths are relative to the plan file.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The folder of the plan file.
    pub folder: PathBuf,
    /// The file of records.
    pub output: PathBuf,
    /// The seeds. One response is generated with each seed.
    pub seeds: Vec<u64>,
    /// Whether the steps of responses are stored.
    pub traces: bool,
    /// The models.
    pub models: Sources,
    /// The schemes.
    pub schemes: Vec<PlannedScheme>,
    /// The weight vectors, all over the same blades.
    pub weights: Vec<Weights>,
    /// The prompts.
    pub questions: Questions,
    /// The settings of generation.
    pub generation: Generation,
}

/// A `[schemes.NAME]` section.
#[derive(Debug, Clone)]
pub struct PlannedScheme {
    /// Its name in records.
    pub name: String,
    /// The scheme.
    pub config: SchemeSpec,
    /// The convention for settings that the paper does not specify.
    pub convention: Convention,
    /// Whether it runs at every weight vector even if the weights name none of its blades.
    pub at_every_weight: bool,
}

/// The `[prompts]` section.
#[derive(Debug, Clone)]
pub struct Questions {
    /// Prompt files, or names of the paper's prompt sets.
    pub sources: Vec<String>,
    /// Format of the files, if it cannot be detected.
    pub format: Option<PromptFormat>,
    /// The folder with the data sets that the paper's prompt sets are drawn from.
    pub data: Option<PathBuf>,
    /// Size of the sample; `None` takes all prompts.
    pub count: Option<usize>,
    /// The label whose values are the strata of the sample.
    pub by: Option<String>,
    /// How the sample is divided among the strata.
    pub allocation: Allocation,
    /// Seed of the sample.
    pub seed: u64,
}

/// The `[generation]` section.
#[derive(Debug, Clone)]
pub struct Generation {
    /// Maximum number of tokens of a response.
    pub max_new_tokens: usize,
    /// How a prompt is turned into a text for the model.
    pub framing: DialogueFraming,
    /// A system message before each prompt.
    pub system: Option<String>,
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// If the file cannot be read, or for the reasons given at [`parse`](Self::parse).
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = crate::scheme::text::read(path).map_err(Error::reading(path))?;
        Self::parse(path, &text)
    }

    /// Parses a plan. `path` is the name of the plan in errors, and paths in the plan are relative
    /// to its folder. Scheme files are read; prompts and models are not.
    ///
    /// # Errors
    /// If the text is not TOML, contains an unknown section, field or choice, or has a value out of
    /// range; the error gives the line. If the path of the folder is not UTF-8.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let name = path.display().to_string();
        let folder = folder_of(path)?;
        let (source, table) = source::Source::parse(&name, text, true)?;
        let mut sections = document::sections(&source, table, &SECTIONS)?;

        let mut section = or_empty(sections.remove("sweep"), &source);
        let (output, seeds, traces) = (output(&mut section)?, seeds(&mut section)?, section.flag("traces")?);
        section.finish()?;
        let output = output.map_or_else(|| path.with_extension("jsonl"), |output| folder.join(output));
        let models = model(or_empty(sections.remove("model"), &source), &folder)?;
        let schemes =
            sections.remove("schemes").ok_or_else(|| missing(&name, "schemes", "name at least one, such as [schemes.mod]"))?;
        let schemes = schemes.sections("scheme")?.into_iter().map(|section| scheme(section, &models, &folder));
        let schemes: Vec<PlannedScheme> = schemes.collect::<Result<_, _>>()?;
        if schemes.is_empty() {
            return Err(missing(&name, "schemes.NAME", "name at least one scheme, such as [schemes.mod]").into());
        }
        let weights = match sections.remove("weights") {
            Some(section) => weights(section, &models)?,
            None => paper_vectors(&blades_of(&models)).map_err(|reason| missing(&name, "weights", &reason))?,
        };
        let prompts = sections.remove("prompts");
        let prompts =
            prompts.ok_or_else(|| missing(&name, "prompts", "name the files, such as sources = [\"prompts.jsonl\"]"))?;
        Ok(Self {
            questions: questions(prompts, &folder)?,
            generation: generation(or_empty(sections.remove("generation"), &source))?,
            seeds: seeds.unwrap_or_else(|| vec![SEED]),
            traces: traces.unwrap_or(true),
            folder,
            output,
            models,
            schemes,
            weights,
        })
    }

    /// Returns the path of the trace file.
    pub(super) fn traces_file(&self) -> PathBuf {
        traces_of(&self.output)
    }

    /// Returns the files that a sweep appends to.
    pub(super) fn files(&self) -> [PathBuf; 3] {
        [self.output.clone(), self.traces_file(), beside(&self.output)]
    }
}

impl Questions {
    /// Returns whether prompts are read from `file`.
    pub(crate) fn reads(&self, file: &Path) -> bool {
        let sources = self.sources.iter().flat_map(|source| prompt_sets::files(source, self.data.as_deref()));
        sources.into_iter().any(|source| same_file(&source, file))
    }

    /// Loads the prompts, and samples them if `count` is given.
    pub fn load(&self) -> Result<Vec<Prompt>, Error> {
        let prompts = prompt_sets::load_all(&self.sources, self.format, self.data.as_deref())?;
        match self.count {
            Some(count) => prompt_sets::sample(&prompts, count, self.by.as_deref(), self.allocation, self.seed),
            None => Ok(prompts),
        }
    }
}

/// Reads the path of an output.
pub(crate) fn output(section: &mut Section<'_>) -> Result<Option<String>, SchemeError> {
    match section.string("output")? {
        Some(output) if output.is_empty() => Err(section.fault("output is empty; name a file, or leave it out")),
        // The names of the files beside it replace the extension, so `out.v1` and `out.v2` would
        // share them.
        Some(output) if Path::new(&output).extension().is_none_or(|extension| extension != "jsonl") => {
            Err(section.fault(format!("output is \"{output}\"; it must end in .jsonl")))
        }
        Some(output) if [".traces.jsonl", ".settings.jsonl"].iter().any(|end| output.ends_with(end)) => {
            let reason = format!("output is \"{output}\", a name for the traces or settings of a sweep; name another file");
            Err(section.fault(reason))
        }
        output => Ok(output),
    }
}

/// Reads the seeds of responses.
pub(crate) fn seeds(section: &mut Section<'_>) -> Result<Option<Vec<u64>>, SchemeError> {
    let seeds = section.naturals("seeds")?;
    match &seeds {
        Some(seeds) if seeds.is_empty() || seeds.iter().collect::<BTreeSet<_>>().len() < seeds.len() => {
            Err(section.fault("seeds must not be empty or contain duplicates"))
        }
        _ => Ok(seeds),
    }
}

/// Reads a `[model]` section.
pub(crate) fn model(mut section: Section<'_>, folder: &Path) -> Result<Sources, SchemeError> {
    let mut args = Sources {
        backbone: section.string("backbone")?.map(|source| located(&source, folder)),
        drafter: section.string("drafter")?.map(|source| located(&source, folder)),
        tokenizer: section.string("tokenizer")?.map(|directory| folder.join(directory)),
        ..Sources::default()
    };
    if let Some(precision) = section.string("precision")? {
        args.precision = precision.parse().map_err(|error| section.fault(error))?;
    }
    if let Some(device) = section.string("device")? {
        args.device = device.parse().map_err(|error| section.fault(error))?;
    }
    let source = |(name, source): (String, String)| Source::new(name, located(&source, folder));
    let (blades, heads) = (section.named_strings("blades")?, section.named_strings("heads")?);
    let sources = |named: Option<Vec<(String, String)>>| named.into_iter().flatten().map(source).collect::<Result<_, _>>();
    args.blades = sources(blades).map_err(|error| section.fault(error))?;
    args.heads = sources(heads).map_err(|error| section.fault(error))?;
    section.finish()?;
    Ok(args)
}

/// Returns the folder of a plan, which the paths in the plan are relative to.
pub(crate) fn folder_of(plan: &Path) -> Result<PathBuf, Error> {
    let folder = plan.parent().unwrap_or(Path::new(""));
    let unfit = || {
        Error::Input(format!("{}: the folder's path is not UTF-8; rename the folder, or run the command in it", plan.display()))
    };
    folder.to_str().map(PathBuf::from).ok_or_else(unfit)
}

/// Returns the path of `source` relative to the plan. If nothing exists there, returns `source`
/// unchanged: it is a hub id or a part of the bundled model.
fn located(source: &str, folder: &Path) -> String {
    let path = folder.join(source);
    if exists(&path) { path.to_string_lossy().into_owned() } else { source.to_owned() }
}

fn scheme(mut section: Section<'_>, models: &Sources, folder: &Path) -> Result<PlannedScheme, SchemeError> {
    let name = section.name().to_owned();
    if name.is_empty() || name.contains(['/', '\n', '\t']) {
        return Err(section.fault("a scheme's name is part of its records' ids: it is not empty and has no \"/\""));
    }
    let steering = steering(&mut section, &name, folder)?;
    let at_every_weight = section.flag("at_every_weight")?.unwrap_or(false);
    let config = steering.spec(models.are_shipped()).map_err(|error| section.fault(error));
    section.finish()?;
    Ok(PlannedScheme { name, config: config?, convention: steering.convention, at_every_weight })
}

/// Reads the fields that define a scheme. If they do not name a scheme, it is `default`.
pub(crate) fn steering(section: &mut Section<'_>, default: &str, folder: &Path) -> Result<Steering, SchemeError> {
    let source = section.string("scheme")?.unwrap_or_else(|| default.to_owned());
    let path = Path::new(&source);
    let is_path = path.extension().is_some() || path.components().count() != 1 || folder.join(path).is_file();
    let is_shipped = Shipped::named(&source).is_some();
    let convention = section.choice("convention", "convention", Convention::ALL)?.unwrap_or_default();
    let set = section.strings("set")?.unwrap_or_default();
    let set: Result<Vec<FieldEdit>, String> = set.iter().map(|text| text.parse()).collect();
    Ok(Steering {
        scheme: Some(if is_path && !is_shipped { folder.join(path) } else { path.to_owned() }),
        preset: section.choice("preset", "preset", Preset::ALL)?,
        convention,
        set: set.map_err(|reason| section.fault(reason))?,
        ..Steering::default()
    })
}

/// Returns the blades that weights apply to by default: the blades of the plan's models, or else
/// the bundled blades.
pub(crate) fn blades_of(models: &Sources) -> Vec<String> {
    if !models.blades.is_empty() {
        return models.blades.iter().map(|blade| blade.name.clone()).collect();
    }
    let shipped = if models.backbone.is_none() { assets::embedded() } else { None };
    shipped.map(assets::Embedded::blades).unwrap_or_default().into_iter().map(str::to_owned).collect()
}

/// Returns an error if `count` weight vectors over `blades` would take more than [`MOST_BYTES`].
fn bound<'a>(count: f64, blades: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    /// Bytes of a name and its weight, without the characters of the name.
    const ENTRY: usize = 64;
    let bytes: usize = blades.into_iter().map(|name| name.len() + ENTRY).sum();
    if count * bytes as f64 <= MOST_BYTES {
        return Ok(());
    }
    let [most, bytes] = [MOST_BYTES, count * bytes as f64].map(|bytes| bytes / 1e6);
    Err(format!(
        "{count} weight vectors take {bytes:.0} MB with the names of their blades, and {most} MB is the most; name fewer blades or points"
    ))
}

/// Returns the `count` weight vectors over `blades` at `points` of the simplex.
fn vectors(blades: &[String], count: f64, points: impl Fn(usize) -> Vec<Vec<f64>>) -> Result<Vec<Weights>, String> {
    if blades.is_empty() {
        return Err("name the blades to weigh, such as blades = [\"calm\", \"safe\"]".to_owned());
    }
    if blades.iter().collect::<BTreeSet<_>>().len() < blades.len() {
        return Err("a blade is named twice".to_owned());
    }
    bound(count, blades)?;
    let weights = |point: Vec<f64>| Weights::normalized(blades.iter().cloned().zip(point));
    points(blades.len()).into_iter().map(|point| weights(point).map_err(|error| error.to_string())).collect()
}

fn paper_vectors(blades: &[String]) -> Result<Vec<Weights>, String> {
    vectors(blades, paper_size(blades.len()), paper_points)
}

/// Reads a `[weights]` section.
pub(crate) fn weights(mut section: Section<'_>, models: &Sources) -> Result<Vec<Weights>, SchemeError> {
    let kinds = ["paper", "lattice", "listed"].map(|kind| (kind, kind));
    let weights: Result<Vec<Weights>, String> = match section.choice("kind", "kind of weights", kinds)? {
        None | Some("paper") => {
            let blades = section.strings("blades")?.unwrap_or_else(|| blades_of(models));
            paper_vectors(&blades)
        }
        Some("lattice") => {
            let blades = section.strings("blades")?.unwrap_or_else(|| blades_of(models));
            let density = section.count("density")?.unwrap_or(0);
            let size = lattice_size(blades.len(), density);
            if density == 0 || size > MOST_POINTS {
                Err(format!("a lattice needs a density of at least 1, and has at most {MOST_POINTS} points"))
            } else {
                vectors(&blades, size, |k| lattice(k, density))
            }
        }
        Some(_) => {
            let list = section.vectors("list")?.unwrap_or_default();
            let blades = section.strings("blades")?;
            let named = || list.iter().flatten().map(|(name, _)| name);
            let names: BTreeSet<&String> = blades.as_ref().map_or_else(|| named().collect(), |blades| blades.iter().collect());
            let whole = |(entry, vector): (usize, &Vec<(String, f64)>)| {
                if let Some((name, _)) = vector.iter().find(|(name, _)| !names.contains(name)) {
                    return Err(format!("entry {} of list: \"{name}\" is not among the blades", entry + 1));
                }
                if let Some((name, weight)) = vector.iter().find(|(_, weight)| !weight.is_finite() || *weight < 0.0) {
                    let entry = entry + 1;
                    return Err(format!(
                        "entry {entry} of list: the weight of \"{name}\" is {weight}; it must be finite and not negative"
                    ));
                }
                let given: BTreeMap<&String, f64> = vector.iter().map(|(name, weight)| (name, *weight)).collect();
                let weights = names.iter().map(|&name| (name.clone(), given.get(name).copied().unwrap_or(0.0)));
                Weights::normalized(weights).map_err(|error| error.to_string())
            };
            bound(list.len() as f64, names.iter().copied()).and_then(|()| list.iter().enumerate().map(whole).collect())
        }
    };
    let checked = |weights: Vec<Weights>| {
        if weights.is_empty() {
            return Err("list at least one weight vector, such as list = [{ helpful = 1, honest = 2 }]".to_owned());
        }
        check_distinct(&weights).map(|()| weights)
    };
    // A field that is left may belong to another kind.
    let other = [("density", "lattice"), ("list", "listed")].into_iter().find(|(field, _)| section.has(field));
    if let Some((field, kind)) = other {
        return Err(section.fault(format!("{field} needs kind = \"{kind}\"")));
    }
    // A misspelt field is reported first: it may be why a value is missing.
    let weights = weights.and_then(checked).map_err(|reason| section.fault(reason));
    section.finish()?;
    weights
}

/// Checks that no weight vector is there twice. The error is the reason.
pub(crate) fn check_distinct(weights: &[Weights]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    // A table of judgements names a weight vector by its weights, rounded to four decimals. A blade
    // that is not named has the weight zero.
    let name = |weights: &Weights| {
        let rounded = weights.by_name().iter().map(|(blade, weight)| (blade.clone(), format!("{weight:.4}")));
        rounded.filter(|(_, weight)| weight != "0.0000").collect::<Vec<_>>()
    };
    match weights.iter().find(|weights| !names.insert(name(weights))) {
        Some(twice) => Err(format!("the weights {twice} are there twice, to four decimals")),
        None => Ok(()),
    }
}

/// Reads a section with prompts.
pub(crate) fn questions(mut section: Section<'_>, folder: &Path) -> Result<Questions, SchemeError> {
    let sources = section.strings("sources")?.unwrap_or_default();
    let located = |source: String| match PaperSet::named(&source) {
        Some(_) => source,
        None => folder.join(source).to_string_lossy().into_owned(),
    };
    let (count, by) = (section.positive("count")?, section.string("by")?);
    let allocation = section.choice("allocation", "allocation", Allocation::by_name())?;
    let seed = section.count("seed")?;
    let of_samples = [("by", by.is_some()), ("allocation", allocation.is_some()), ("seed", seed.is_some())];
    let fault = match (count, of_samples.iter().find(|(_, given)| *given)) {
        _ if sources.is_empty() => Some(section.fault("sources names at least one file or set")),
        (None, Some((field, _))) => Some(section.fault(format!("{field} is for a sample; add a count of prompts to draw"))),
        _ => None,
    };
    let questions = Questions {
        sources: sources.into_iter().map(located).collect(),
        format: section.choice("format", "format", PromptFormat::by_name())?,
        data: section.string("data")?.map(|data| folder.join(data)),
        count,
        by,
        allocation: allocation.unwrap_or(Allocation::Balanced),
        seed: seed.unwrap_or(SEED),
    };
    section.finish()?;
    fault.map_or(Ok(questions), Err)
}

/// Reads a `[generation]` section.
pub(crate) fn generation(mut section: Section<'_>) -> Result<Generation, SchemeError> {
    let generation = Generation {
        max_new_tokens: section.positive("max_new_tokens")?.unwrap_or(MAX_NEW_TOKENS),
        framing: section.choice("framing", "framing", DialogueFraming::by_name())?.unwrap_or(DialogueFraming::Hh),
        system: section.string("system")?,
    };
    section.finish()?;
    Ok(generation)
}
