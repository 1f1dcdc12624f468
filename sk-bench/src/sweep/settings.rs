//! Settings that the responses of a scheme depend on. Every record holds their digest; a file
//! beside the records holds them in full.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use sk_models::local::ModelError;
use sk_models::{assets, hf};
use sk_remote::Role;

use sk_report::record::SweepRecord;
use sk_report::settings::{KeptSettings, Settings};

use super::{Plan, PlannedScheme};
use sk_serve::host::{NAMED, RemoteSources};

use crate::Error;
use crate::models::PartSources;
use crate::progress::Loading;
use crate::record_file::Record;
use crate::scheme::{BladeSpec, Parameter, SchemeSpec, digest};

/// Hexadecimal digits of a digest of settings.
const DIGITS: usize = 16;

/// The files of a model, an adapter or a head, with their lengths and times of modification.
type Files = BTreeMap<PathBuf, (u64, Option<SystemTime>)>;

/// Returns the files that are loaded from a directory or hub id, none for a bundled model.
fn files_of(source: &str, loading: &mut Loading) -> Result<Files, hf::CheckpointError> {
    let state = |path: PathBuf| fs::metadata(&path).ok().map(|found| (path, (found.len(), found.modified().ok())));
    Ok(hf::parts(source, loading)?.into_iter().filter_map(state).collect())
}

/// A cache of digests of models, adapters and heads, so that each is read only once.
#[derive(Debug)]
pub struct Digests {
    /// The digests by source, and the files as they were before.
    known: Mutex<BTreeMap<String, (String, Files)>>,
    quiet: bool,
}

impl Digests {
    /// Returns an empty cache. Progress is shown on a terminal unless `quiet`.
    pub fn new(quiet: bool) -> Self {
        Self { known: Mutex::default(), quiet }
    }

    /// Returns the [digest](hf::digest) of a directory or hub id.
    ///
    /// # Errors
    /// If it cannot be found, downloaded or read.
    pub fn of(&self, source: &str) -> Result<String, hf::CheckpointError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((digest, _)) = known.get(source) {
            return Ok(digest.clone());
        }
        let mut loading = Loading::new(self.quiet);
        loading.show(&format!("reading {source}"));
        let files = files_of(source, &mut loading)?;
        let digest = hf::digest(source, &mut loading)?;
        known.insert(source.to_owned(), (digest.clone(), files));
        Ok(digest)
    }

    /// Checks that the files are as they were, so that what has been loaded since is what the
    /// digests are of.
    ///
    /// Lengths and times are compared. Reading the contents again would take about as long as
    /// loading them.
    ///
    /// # Errors
    /// If a file has changed.
    pub(super) fn check(&self, loading: &mut Loading) -> Result<(), Error> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (source, (_, before)) in &*known {
            let now = files_of(source, loading)?;
            if let Some(path) = before.keys().chain(now.keys()).find(|path| before.get(*path) != now.get(*path)) {
                return Err(Error::Input(format!("{} changed during the run; run again", path.display())));
            }
        }
        Ok(())
    }
}

impl Record for KeptSettings {
    const FIRST: &str = "settings";
    const IS_NOT: &str = "it is no line of settings";
}

impl Record for SweepRecord {
    const FIRST: &str = "id";
    const IS_NOT: &str = "it is not a record of a sweep";
}

/// Returns the digest of a directory or hub id. A model or adapter behind servers cannot be read,
/// so its name is returned instead, without the addresses: a server may be replaced.
fn digest_of(digests: &Digests, source: &str) -> Result<String, hf::CheckpointError> {
    if let Ok(Role { kind, model, .. }) = source.parse() {
        return Ok(format!("{}#{}", kind.name(), model.unwrap_or_default()));
    }
    if RemoteSources::is_address(source) || source.starts_with(NAMED) { Ok(source.to_owned()) } else { digests.of(source) }
}

/// Returns the settings of a scheme of a plan, whose blades use the adapters and heads `parts`.
pub(super) fn keep(
    plan: &Plan,
    scheme: &PlannedScheme,
    config: &SchemeSpec,
    parts: &PartSources,
    digests: &Digests,
) -> Result<KeptSettings, Error> {
    // Relative to the plan, so that moving the plan's folder does not change the settings.
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
    let tokenizer = plan.models.tokenizer.clone().map(text);
    for (role, source) in [("backbone", backbone), ("drafter", drafter), ("tokenizer", tokenizer)] {
        if let Some(source) = source {
            models.insert(role.to_owned(), digest_of(digests, &source)?);
            places.insert(role.to_owned(), from_plan(&source));
        }
    }
    let mut of_blades = |kind: &str, sources: Vec<(&String, String)>| {
        let digest = |(name, source): (&String, String)| {
            let blame = |error| {
                let error = ModelError::Blade { name: name.clone(), source: Box::new(error) };
                Error::from(error).within(format!("scheme \"{}\"", scheme.name))
            };
            places.insert(format!("{kind} {name}"), from_plan(&source));
            Ok((name.clone(), digest_of(digests, &source).map_err(blame)?))
        };
        sources.into_iter().map(digest).collect::<Result<BTreeMap<_, _>, Error>>()
    };
    let adapters = of_blades("adapter", parts.adapters.iter().map(|(name, source)| (name, source.clone())).collect())?;
    let heads = of_blades("head", parts.heads.iter().map(|(name, source)| (name, text(source.clone()))).collect())?;
    let on = |blade: &BladeSpec| blade.on().filter(|on| *on != "drafter").map(str::to_owned);
    let others = of_blades("blade", config.blades.iter().filter_map(|blade| Some((&blade.name, on(blade)?))).collect())?;
    models.extend(others.into_iter().map(|(name, digest)| (format!("blade {name}"), digest)));
    let convention = scheme.convention;
    let framing = plan.generation.framing.in_settings(convention);
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
    let settings = format!("{:.DIGITS$}", digest(&of));
    Ok(KeptSettings { settings, sources: places, of })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_changes_after_its_digest_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("config.json"), "{}").unwrap();
        fs::write(path("model.safetensors"), "weights").unwrap();
        let digests = Digests::new(true);
        digests.of(&folder.path().display().to_string()).unwrap();
        let check = || digests.check(&mut Loading::new(true));
        fs::write(path("vocab.json"), "read by nobody").unwrap();
        check().unwrap();
        let refused = |name: &str| {
            let says = format!("{} changed during the run; run again", path(name).display());
            assert_eq!(check().unwrap_err().to_string(), says);
        };
        fs::write(path("tokenizer.json"), "new").unwrap();
        refused("tokenizer.json");
        fs::remove_file(path("tokenizer.json")).unwrap();
        check().unwrap();
        // Other weights of the same length.
        let weights = fs::File::options().write(true).open(path("model.safetensors")).unwrap();
        weights.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        refused("model.safetensors");
        fs::remove_file(path("model.safetensors")).unwrap();
        refused("model.safetensors");
    }
}
