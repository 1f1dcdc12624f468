//! What the responses of a scheme depend on: its digest in every record, and the whole of it beside them.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sk_models::assets;
use sk_models::hf;

use super::{Plan, PlannedScheme, SweepError};
use crate::Error;
use crate::args::FramingArg;
use crate::lines::{json_fault, numbered_lines};
use crate::progress::Loading;
use crate::record_file::Record;
use crate::scheme::{Convention, Parameter, SchemeSpec, digest};

/// Hexadecimal digits of a digest of settings.
const DIGITS: usize = 16;

/// Digests of models, adapters and heads. Each is read once, whatever schemes and trials share it.
#[derive(Debug)]
pub struct Digests {
    known: Mutex<HashMap<String, String>>,
    quiet: bool,
}

impl Digests {
    /// Of nothing yet; what is read is shown on a terminal unless `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self { known: Mutex::default(), quiet }
    }

    /// The [digest](hf::digest) of a directory or hub id.
    ///
    /// # Errors
    /// When it cannot be found, downloaded or read.
    pub fn of(&self, source: &str) -> Result<String, hf::CheckpointError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(digest) = known.get(source) {
            return Ok(digest.clone());
        }
        let mut loading = Loading::new(self.quiet);
        loading.show(format!("reading {source}"));
        let digest = hf::digest(source, &mut loading)?;
        known.insert(source.to_owned(), digest.clone());
        Ok(digest)
    }
}

/// Everything but scheme name, weights, prompt and seed that responses depend on. Models, adapters and heads count by their contents, wherever
/// they lie; the device does not, and is part of each record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Version of the program.
    pub program: String,
    /// Digests of `backbone` and `drafter`.
    pub models: BTreeMap<String, String>,
    /// Of backbone and drafter.
    pub precision: String,
    /// Digests of adapters, by blade.
    pub adapters: BTreeMap<String, String>,
    /// Digests of heads, by blade.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub heads: BTreeMap<String, String>,
    /// What fills in where the paper is silent.
    pub convention: String,
    /// How a prompt becomes a text for the model.
    pub framing: String,
    /// A system message above each prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Most tokens of a response.
    pub max_new_tokens: usize,
    /// The numbers of the scheme that have a name in plans of [`tune`](crate::tune).
    pub numbers: BTreeMap<String, f64>,
    /// The [canonical form](SchemeSpec::canonical) of the scheme. Files of earlier versions have a text for each slot.
    pub slots: Value,
}

/// [`Settings`] as they are kept: a line of the file beside the records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptSettings {
    /// What records have of them: the beginning of SHA-256 over the canonical JSON of `of`.
    pub settings: String,
    /// Where models, adapters and heads were, from the plan.
    pub sources: BTreeMap<String, String>,
    /// The settings.
    pub of: Settings,
}

/// Where a scheme reads from.
pub(super) struct Sources<'a> {
    pub(super) adapters: &'a [(String, String)],
    pub(super) heads: &'a [(String, PathBuf)],
}

impl Record for KeptSettings {
    const FIRST: &str = "settings";
}

impl KeptSettings {
    /// The settings of a scheme of a plan.
    ///
    /// # Errors
    /// When a model, adapter or head cannot be found, downloaded or read.
    pub(super) fn new(
        plan: &Plan,
        scheme: &PlannedScheme,
        config: &SchemeSpec,
        sources: &Sources<'_>,
        digests: &Digests,
    ) -> Result<Self, SweepError> {
        // A folder can be moved with its plan.
        let from_plan = |source: &str| {
            let path = Path::new(source);
            path.strip_prefix(&plan.folder).unwrap_or(path).to_string_lossy().into_owned()
        };
        let mut places = BTreeMap::new();
        let mut models = BTreeMap::new();
        let embedded = assets::embedded().filter(|_| plan.models.backbone.is_none());
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let backbone = plan.models.backbone.clone().or_else(|| embedded.map(|embedded| text(embedded.backbone())));
        let drafter = plan.models.drafter.clone().or_else(|| embedded.map(|embedded| text(embedded.drafter())));
        for (role, source) in [("backbone", backbone), ("drafter", drafter)] {
            if let Some(source) = source {
                models.insert(role.to_owned(), digests.of(&source).map_err(|error| SweepError::Model(Box::new(error)))?);
                places.insert(role.to_owned(), from_plan(&source));
            }
        }
        let mut of_blades = |kind: &str, sources: Vec<(&String, String)>| {
            let digest = |(name, source): (&String, String)| {
                let blame = |error| {
                    let source = Box::new(Error::Blade { name: name.clone(), source: Box::new(error) });
                    SweepError::Scheme { scheme: scheme.name.clone(), source }
                };
                places.insert(format!("{kind} {name}"), from_plan(&source));
                Ok((name.clone(), digests.of(&source).map_err(blame)?))
            };
            sources.into_iter().map(digest).collect::<Result<BTreeMap<_, _>, SweepError>>()
        };
        let adapters = of_blades("adapter", sources.adapters.iter().map(|(name, source)| (name, source.clone())).collect())?;
        let heads = of_blades("head", sources.heads.iter().map(|(name, source)| (name, text(source.clone()))).collect())?;
        let convention = scheme.convention;
        let framing = match (plan.generation.framing, convention) {
            (FramingArg::Hh, Convention::Sound) => "hh, with a stop text",
            (FramingArg::Hh, Convention::Paper) => "hh",
            (FramingArg::Chat, _) => "chat",
            (FramingArg::None, _) => "none",
        };
        let of = Settings {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            models,
            precision: plan.models.precision.to_string(),
            adapters,
            heads,
            convention: convention.to_string(),
            framing: framing.to_owned(),
            system: plan.generation.system.clone(),
            max_new_tokens: plan.generation.max_new_tokens,
            numbers: Parameter::searchable()
                .filter_map(|parameter| Some((parameter.name.to_owned(), parameter.get(config)?)))
                .collect(),
            slots: config.canonical(),
        };
        let mut settings = digest(&of);
        settings.truncate(DIGITS);
        Ok(Self { settings, sources: places, of })
    }
}

/// Where the settings of the records in `output` are kept.
pub(crate) fn beside(output: &Path) -> PathBuf {
    output.with_extension("settings.jsonl")
}

/// Reads the settings beside the records of a sweep, by their digests, gzipped or not; none where there is no such file.
///
/// # Errors
/// When the file cannot be read or a line is not one of settings. Errors name file and line.
pub fn read_settings(records: &Path) -> Result<HashMap<String, KeptSettings>, SweepError> {
    let plain =
        if records.extension().is_some_and(|extension| extension == "gz") { records.with_extension("") } else { records.into() };
    let path = beside(&plain);
    let packed = path.with_extension("jsonl.gz");
    let Some(path) = [path, packed].into_iter().find(|path| path.exists()) else { return Ok(HashMap::new()) };
    let lines = numbered_lines(&path).map_err(|source| SweepError::Read { path: path.clone(), source })?;
    lines
        .map(|(line, text)| {
            let wrong = |reason| SweepError::Record { path: path.clone(), line, reason };
            let text = text.map_err(|error| wrong(error.to_string()))?;
            let kept: KeptSettings = serde_json::from_str(&text)
                .map_err(|error| wrong(format!("it is no line of settings: {}", json_fault(&error))))?;
            Ok((kept.settings.clone(), kept))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_earlier_versions_are_read() {
        let line = r#"{"settings":"00112233","sources":{},"of":{"program":"0.1.0","models":{},"precision":"f32","adapters":{},
            "convention":"sound","framing":"hh","max_new_tokens":8,"numbers":{"temperature":8.0},
            "slots":{"selector":"SelectorConfig { kind: Champion, temperature: 8.0 }"}}}"#;
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("records.jsonl");
        std::fs::write(beside(&records), line.replace('\n', "") + "\n").unwrap();
        let kept = read_settings(&records).unwrap().remove("00112233").unwrap();
        assert_eq!((kept.of.numbers["temperature"], kept.of.slots["selector"].is_string()), (8.0, true));
    }
}
