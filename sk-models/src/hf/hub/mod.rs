//! Checkpoints and data sets named by a hub id: found in the hub's cache on disk, or downloaded
//! into it.
//!
//! The cache has the layout of Hugging Face's own tools, so that they and this crate share
//! downloads:
//!
//! ```text
//! models--Qwen--Qwen2.5-0.5B-Instruct/
//!     blobs/<etag>                 contents, named by their hash
//!     refs/main                    the commit that a revision stands for
//!     snapshots/<commit>/<file>    links to blobs
//! ```
//!
//! A file appears under its name only when it is complete: it grows as `blobs/<etag>.incomplete`,
//! is verified, and renamed. A later run resumes an interrupted download.

mod cache;
mod client;
mod download;
pub(super) mod error;
mod id;
mod progress;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    ADAPTER_WEIGHTS,
    safetensors::{INDEX_FILE, SINGLE_FILE},
};
pub(in crate::hf) use cache::SMALL_FILES;
use cache::{Repository, is_model, link, shards_of};
use client::{Client, Listing};
use download::{Download, retried};
pub use error::HubError;
use id::Kind;
pub use id::ModelId;
pub use progress::Progress;

/// The address of the hub, unless `HF_ENDPOINT` is set.
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// A hub and its cache on this machine.
#[derive(Debug, Clone)]
pub struct Hub {
    client: Client,
    cache: PathBuf,
    offline: bool,
}

impl Hub {
    /// Returns the hub and cache that the environment names, by the variables of Hugging Face's own
    /// tools.
    ///
    /// `HF_ENDPOINT`; `HF_HUB_CACHE`, else `HF_HOME/hub`, else `huggingface/hub` under
    /// `XDG_CACHE_HOME` or `~/.cache`; `HF_TOKEN`, else the file `HF_TOKEN_PATH` or
    /// `HF_HOME/token`, unless `HF_HUB_DISABLE_IMPLICIT_TOKEN` is set; `HF_HUB_OFFLINE`. Paths may
    /// begin with `~/`.
    ///
    /// # Errors
    ///
    /// If there is no place for the cache.
    pub fn from_env() -> Result<Self, HubError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(value: impl Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        let variable = |name: &str| value(name).filter(|value| !value.is_empty());
        let is_on = |name: &str| {
            variable(name).is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"))
        };
        let path = |name: &str| {
            let path = PathBuf::from(variable(name)?);
            let below_home = path.strip_prefix("~").ok().and_then(|rest| Some(std::env::home_dir()?.join(rest)));
            Some(below_home.unwrap_or(path))
        };
        let home = path("HF_HOME").or_else(|| {
            let cache = path("XDG_CACHE_HOME").or_else(|| std::env::home_dir().map(|home| home.join(".cache")))?;
            Some(cache.join("huggingface"))
        });
        let cache = path("HF_HUB_CACHE").or_else(|| home.as_ref().map(|home| home.join("hub")));
        let trimmed = |token: String| Some(token.replace(['\r', '\n'], "").trim().to_owned()).filter(|token| !token.is_empty());
        let token = variable("HF_TOKEN").and_then(trimmed).or_else(|| {
            let file = path("HF_TOKEN_PATH").or_else(|| home.map(|home| home.join("token")))?;
            trimmed(fs::read_to_string(file).ok()?)
        });
        let token = token.filter(|_| !is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN"));
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        Ok(Self::new(&endpoint, cache.ok_or(HubError::NoCache)?).with_token(token).with_offline(is_on("HF_HUB_OFFLINE")))
    }

    /// Returns a hub at the given address with the given cache directory.
    #[must_use]
    pub fn new(endpoint: &str, cache: PathBuf) -> Self {
        Self { client: Client::new(endpoint), cache, offline: false }
    }

    /// Returns the hub with an access token, or without one.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.client.token = token;
        self
    }

    /// Returns the hub with downloads switched off or on.
    #[must_use]
    pub fn with_offline(mut self, offline: bool) -> Self {
        self.offline = offline;
        self
    }

    /// Returns the directory that `source` names: `source` itself if it is a directory, else the
    /// snapshot of a hub id.
    ///
    /// A complete snapshot in the cache is used without asking the hub, so that a model does not
    /// change between runs. Otherwise, missing files are downloaded, but only those that a model or
    /// an adapter needs. Before weights are downloaded, `check` gets the directory with the other
    /// files.
    ///
    /// # Errors
    ///
    /// If `source` is neither a directory nor an id, or the id cannot be resolved, and that of
    /// `check`.
    pub fn resolve<E: From<HubError>>(
        &self,
        source: &str,
        check: impl FnOnce(&Path) -> Result<(), E>,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, E> {
        let local = Path::new(source);
        if local.is_dir() {
            return Ok(local.to_owned());
        }
        let id: ModelId = source.parse().map_err(E::from)?;
        if let Some(snapshot) = Repository::new(&self.cache, Kind::Model, &id).complete(&id.revision, is_model) {
            return Ok(snapshot);
        }
        self.download(&id, check, progress)
    }

    /// Returns the snapshot of a data set, with the given files of it.
    ///
    /// Files in the cache are used without asking the hub. Missing files are downloaded.
    ///
    /// # Errors
    ///
    /// If the data set cannot be found, or does not have one of the files.
    pub fn data(&self, id: &ModelId, names: &[&str], progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        let are_there = |snapshot: &Path| names.iter().all(|name| snapshot.join(name).is_file());
        if let Some(snapshot) = Repository::new(&self.cache, Kind::Data, id).complete(&id.revision, are_there) {
            return Ok(snapshot);
        }
        let opened = self.open(Kind::Data, id, progress)?;
        let present: BTreeSet<&str> = opened.listing.files().collect();
        for &name in names {
            if !present.contains(name) {
                return Err(HubError::NoFile { id: id.to_string(), file: name.to_owned() });
            }
            opened.fetch(name, progress)?;
        }
        opened.close()
    }

    /// Asks the hub for the files of a revision.
    fn open<'a>(&'a self, kind: Kind, id: &'a ModelId, progress: &mut dyn Progress) -> Result<Opened<'a>, HubError> {
        if self.offline {
            return Err(HubError::Offline { id: id.to_string(), cache: self.cache.clone() });
        }
        if self.client.exposes_token() {
            progress.warn("the token for the hub is sent without encryption; use an address that begins with https://");
        }
        // A hub that cannot be reached is not asked again, since the id may be a misspelt directory.
        let listing = retried(|_| match self.client.listing(kind, id) {
            Err(error) if error.is_absence() => Ok(Err(error)),
            outcome => outcome.map(Ok),
        })??;
        let repository = Repository::new(&self.cache, kind, id);
        let snapshot = repository.create(&listing.sha)?;
        Ok(Opened { client: &self.client, kind, id, listing, repository, snapshot })
    }

    /// Downloads the missing files of a model or an adapter and returns its snapshot.
    fn download<E: From<HubError>>(
        &self,
        id: &ModelId,
        check: impl FnOnce(&Path) -> Result<(), E>,
        progress: &mut dyn Progress,
    ) -> Result<PathBuf, E> {
        let opened = self.open(Kind::Model, id, progress)?;
        let present: BTreeSet<&str> = opened.listing.files().collect();
        for name in SMALL_FILES.into_iter().filter(|name| present.contains(name)) {
            opened.fetch(name, progress)?;
        }
        let mut weights = BTreeSet::new();
        if present.contains(SINGLE_FILE) {
            weights.insert(SINGLE_FILE.to_owned());
        } else if present.contains(INDEX_FILE) {
            opened.fetch(INDEX_FILE, progress)?;
            weights = shards_of(&opened.snapshot.join(INDEX_FILE))?;
        }
        if present.contains(ADAPTER_WEIGHTS) {
            weights.insert(ADAPTER_WEIGHTS.to_owned());
        }
        if weights.is_empty() {
            return Err(HubError::NoWeights { id: id.to_string() }.into());
        }
        check(&opened.snapshot)?;
        for name in &weights {
            opened.fetch(name, progress)?;
        }
        Ok(opened.close()?)
    }
}

/// A revision that the hub has listed, and its place in the cache.
struct Opened<'a> {
    client: &'a Client,
    kind: Kind,
    id: &'a ModelId,
    listing: Listing,
    repository: Repository,
    snapshot: PathBuf,
}

impl Opened<'_> {
    /// Downloads a file unless the snapshot has it.
    fn fetch(&self, name: &str, progress: &mut dyn Progress) -> Result<(), HubError> {
        if self.snapshot.join(name).exists() {
            return Ok(());
        }
        let url = self.client.file_url(self.kind, self.id, &self.listing.sha, name);
        let download = Download { client: self.client, url: &url, name, blobs: &self.repository.blobs() };
        link(&download.run(progress)?, &self.snapshot, name)
    }

    /// Makes the revision refer to the snapshot. This is the last step, so that it never refers to
    /// an incomplete snapshot.
    fn close(self) -> Result<PathBuf, HubError> {
        self.repository.refer(&self.id.revision, &self.listing.sha)?;
        Ok(self.snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_no_blanks_around_it() {
        let token = |variable: &str, file: &str| {
            let home = tempfile::tempdir().unwrap();
            fs::write(home.path().join("token"), file).unwrap();
            let value = |name: &str| match name {
                "HF_HOME" => Some(home.path().display().to_string()),
                "HF_TOKEN" => Some(variable.to_owned()),
                _ => None,
            };
            Hub::from_variables(value).unwrap().client.token
        };
        assert_eq!(token("hf_abc\n", "hf_file\n").as_deref(), Some("hf_abc"));
        assert_eq!(token(" \n", "hf_file\n").as_deref(), Some("hf_file"));
        assert_eq!(token("", "\n"), None);
        assert_eq!(token("hf_\nabc", "").as_deref(), Some("hf_abc"));
    }

    #[test]
    fn a_token_can_be_switched_off() {
        let hub = |off: &str| {
            let value = |name: &str| match name {
                "HF_HOME" => Some("/nowhere".to_owned()),
                "HF_TOKEN" => Some("hf_abc".to_owned()),
                "HF_HUB_DISABLE_IMPLICIT_TOKEN" => Some(off.to_owned()),
                _ => None,
            };
            Hub::from_variables(value).unwrap()
        };
        assert_eq!(hub("True").client.token, None);
        assert_eq!(hub("0").client.token.as_deref(), Some("hf_abc"));
    }

    #[test]
    fn a_path_may_begin_at_the_home_directory() {
        let hub = Hub::from_variables(|name| (name == "HF_HOME").then(|| "~/models".to_owned())).unwrap();
        assert_eq!(hub.cache, std::env::home_dir().unwrap().join("models/hub"));
    }
}
