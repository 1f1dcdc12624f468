//! Checkpoints named by a hub id: found in the hub's cache on disk, or downloaded into it.
//!
//! The cache has the layout of Hugging Face's own tools, so that they and this crate share downloads:
//!
//! ```text
//! models--Qwen--Qwen2.5-0.5B-Instruct/
//!     blobs/<etag>                 contents, named by their hash
//!     refs/main                    the commit that a revision stands for
//!     snapshots/<commit>/<file>    links to blobs
//! ```
//!
//! A file appears under its name only when it is complete: it grows as `blobs/<etag>.incomplete`, is verified, and
//! renamed. A later run goes on where an interrupted one stopped.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use thiserror::Error;
use ureq::{Agent, Body, http::Response, tls::RootCerts, tls::TlsConfig};

use super::safetensors::{INDEX_FILE, SINGLE_FILE, shard_names};
use crate::files::write_atomically;

/// Where the hub is, unless `HF_ENDPOINT` says otherwise.
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// The revision of an id that names none.
const DEFAULT_REVISION: &str = "main";
/// Files other than weights that a model or an adapter may need, all at the root of its repository.
const SMALL_FILES: [&str; 6] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "adapter_config.json",
];
/// The weights of an adapter.
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";
/// How often a broken connection is taken up again before giving up.
const ATTEMPTS: u32 = 5;
/// The first wait after a broken connection; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// How long a server may stay silent.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes moved at a time.
const BUFFER: usize = 1 << 16;

/// A hub id that cannot be resolved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HubError {
    /// Neither a directory nor an id.
    #[error("`{0}` is neither a directory nor a hub id such as Qwen/Qwen2.5-0.5B-Instruct")]
    NotAnId(String),
    /// No place for the cache.
    #[error("no cache directory: set HF_HOME, HF_HUB_CACHE or HOME")]
    NoCache,
    /// Not in the cache, and downloading is switched off.
    #[error("{id} is not in {}, and HF_HUB_OFFLINE forbids downloading it", cache.display())]
    Offline {
        /// The id.
        id: String,
        /// The cache directory.
        cache: PathBuf,
    },
    /// The hub refuses or does not know the model.
    #[error("{url}: the hub answers {status}; {hint}")]
    Status {
        /// What was asked for.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What to do.
        hint: &'static str,
    },
    /// The connection fails.
    #[error("{url}: {source}")]
    Connection {
        /// What was asked for.
        url: String,
        /// Why it failed.
        source: Box<ureq::Error>,
    },
    /// The hub's answer makes no sense.
    #[error("{url}: {reason}")]
    Answer {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        reason: String,
    },
    /// What arrived is not what the hub announced.
    #[error("{file}: download is corrupt: {reason}; run again to fetch it anew")]
    Corrupt {
        /// The file.
        file: String,
        /// How it differs.
        reason: String,
    },
    /// The repository has no weights in a supported format.
    #[error("{id} has neither model.safetensors nor adapter_model.safetensors")]
    NoWeights {
        /// The id.
        id: String,
    },
    /// The cache cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// A model on the hub: `name`, `owner/name`, and either with `@revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    repository: String,
    revision: String,
}

impl ModelId {
    /// The name of its directory in the cache.
    fn cache_name(&self) -> String {
        format!("models--{}", self.repository.replace('/', "--"))
    }
}

impl std::fmt::Display for ModelId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.repository)?;
        if self.revision == DEFAULT_REVISION { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

impl FromStr for ModelId {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, DEFAULT_REVISION));
        let plain = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
                && !part.starts_with(['.', '-'])
                && !part.ends_with(['.', '-'])
                && !part.contains("--")
                && !part.contains("..")
        };
        let parts: Vec<&str> = repository.split('/').collect();
        if parts.len() > 2 || !parts.iter().all(|part| plain(part)) || !plain(revision) {
            return Err(HubError::NotAnId(text.to_owned()));
        }
        Ok(Self { repository: repository.to_owned(), revision: revision.to_owned() })
    }
}

/// Follows a download. Every method has a default that does nothing.
pub trait Progress {
    /// A file begins: its name, its length if known, and how much of it an earlier run left behind.
    fn begin(&mut self, file: &str, length: Option<u64>, present: u64) {
        let _ = (file, length, present);
    }

    /// More bytes have arrived.
    fn advance(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// The file is complete.
    fn end(&mut self) {}
}

/// Silence.
impl Progress for () {}

/// A hub and its cache on this machine.
#[derive(Debug, Clone)]
pub struct Hub {
    endpoint: String,
    cache: PathBuf,
    token: Option<String>,
    offline: bool,
    agent: Agent,
}

impl Hub {
    /// The hub and cache that the environment names, by the variables of Hugging Face's own tools.
    ///
    /// `HF_ENDPOINT`; `HF_HUB_CACHE`, else `HF_HOME/hub`, else `huggingface/hub` under `XDG_CACHE_HOME` or `~/.cache`;
    /// `HF_TOKEN`, else the file `HF_TOKEN_PATH` or `HF_HOME/token`; `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    ///
    /// If there is no place for the cache.
    pub fn from_env() -> Result<Self, HubError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let path = |name: &str| variable(name).map(PathBuf::from);
        let home = path("HF_HOME").or_else(|| {
            let cache = path("XDG_CACHE_HOME").or_else(|| std::env::home_dir().map(|home| home.join(".cache")))?;
            Some(cache.join("huggingface"))
        });
        let cache = path("HF_HUB_CACHE").or_else(|| home.as_ref().map(|home| home.join("hub")));
        let token = variable("HF_TOKEN").or_else(|| {
            let file = path("HF_TOKEN_PATH").or_else(|| home.map(|home| home.join("token")))?;
            Some(fs::read_to_string(file).ok()?.trim().to_owned()).filter(|token| !token.is_empty())
        });
        let offline = variable("HF_HUB_OFFLINE")
            .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"));
        let endpoint = variable("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        let mut hub = Self::new(&endpoint, cache.ok_or(HubError::NoCache)?);
        hub.token = token;
        hub.offline = offline;
        Ok(hub)
    }

    /// A hub at the given address with the given cache directory.
    #[must_use]
    pub fn new(endpoint: &str, cache: PathBuf) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Redirections are followed by hand: the hash of a file comes with the first answer, and the token must not
            // travel to the host that stores the contents.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(SILENCE))
            .timeout_recv_response(Some(SILENCE))
            .timeout_per_read(Some(SILENCE))
            .user_agent(concat!("swiss-knife/", env!("CARGO_PKG_VERSION")))
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .build();
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            cache,
            token: None,
            offline: false,
            agent: Agent::new_with_config(config),
        }
    }

    /// The same hub with an access token, or without one.
    #[must_use]
    pub fn with_token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// The same hub, allowed to download or not.
    #[must_use]
    pub fn with_offline(mut self, offline: bool) -> Self {
        self.offline = offline;
        self
    }

    /// The directory that `source` names: `source` itself if it is a directory, else the snapshot of a hub id.
    ///
    /// A complete snapshot in the cache is used as it is, without asking the hub: a model does not change under a
    /// user's hands. Otherwise what is missing is downloaded; only the files that a model or an adapter needs are.
    ///
    /// # Errors
    ///
    /// If `source` is neither a directory nor an id, or the id cannot be resolved.
    pub fn resolve(&self, source: &str, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        let local = Path::new(source);
        if local.is_dir() {
            return Ok(local.to_owned());
        }
        let id: ModelId = source.parse()?;
        if let Some(snapshot) = self.cached(&id) {
            return Ok(snapshot);
        }
        if self.offline {
            return Err(HubError::Offline { id: id.to_string(), cache: self.cache.clone() });
        }
        self.download(&id, progress)
    }

    /// The snapshot of an id, if the cache holds all of it.
    fn cached(&self, id: &ModelId) -> Option<PathBuf> {
        let repository = self.cache.join(id.cache_name());
        let commit = fs::read_to_string(repository.join("refs").join(&id.revision))
            .map_or_else(|_| id.revision.clone(), |commit| commit.trim().to_owned());
        let snapshot = repository.join("snapshots").join(commit);
        is_complete(&snapshot).then_some(snapshot)
    }

    /// Downloads what is missing of an id and returns its snapshot.
    fn download(&self, id: &ModelId, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        let listing = self.listing(id)?;
        let repository = self.cache.join(id.cache_name());
        let snapshot = repository.join("snapshots").join(&listing.sha);
        for directory in [&snapshot, &repository.join("blobs"), &repository.join("refs")] {
            fs::create_dir_all(directory).map_err(|source| io_error("create", directory, source))?;
        }
        let present: BTreeSet<&str> = listing.siblings.iter().map(|file| file.rfilename.as_str()).collect();
        let mut fetch = |name: &str| self.file(id, &listing.sha, name, &repository, &snapshot, &mut *progress);
        for name in SMALL_FILES.into_iter().filter(|name| present.contains(name)) {
            fetch(name)?;
        }
        let mut weights = BTreeSet::new();
        if present.contains(INDEX_FILE) {
            fetch(INDEX_FILE)?;
            weights = shards_of(&snapshot.join(INDEX_FILE))?;
        } else if present.contains(SINGLE_FILE) {
            weights.insert(SINGLE_FILE.to_owned());
        }
        if present.contains(ADAPTER_WEIGHTS) {
            weights.insert(ADAPTER_WEIGHTS.to_owned());
        }
        if weights.is_empty() {
            return Err(HubError::NoWeights { id: id.to_string() });
        }
        for name in &weights {
            fetch(name)?;
        }
        // Last, so that the revision never names a snapshot that is not whole.
        let reference = repository.join("refs").join(&id.revision);
        write_atomically(&reference, listing.sha.as_bytes()).map_err(|source| io_error("write", &reference, source))?;
        Ok(snapshot)
    }

    /// The commit of a revision and the files in it.
    fn listing(&self, id: &ModelId) -> Result<Listing, HubError> {
        let url = format!("{}/api/models/{}/revision/{}", self.endpoint, id.repository, id.revision);
        let (_, mut response) = self.get(&url, None)?;
        let listing: Listing = serde_json::from_reader(response.body_mut().as_reader())
            .map_err(|error| HubError::Answer { url: url.clone(), reason: error.to_string() })?;
        if !is_hash(&listing.sha) {
            return Err(HubError::Answer { url, reason: format!("`{}` is not a commit", listing.sha) });
        }
        Ok(listing)
    }

    /// Makes sure that one file of a snapshot is there.
    fn file(
        &self,
        id: &ModelId,
        commit: &str,
        name: &str,
        repository: &Path,
        snapshot: &Path,
        progress: &mut dyn Progress,
    ) -> Result<(), HubError> {
        let target = snapshot.join(name);
        if target.exists() {
            return Ok(());
        }
        let url = format!("{}/{}/resolve/{commit}/{name}", self.endpoint, id.repository);
        let blob = Download { hub: self, url: &url, name, blobs: &repository.join("blobs") }.run(progress)?;
        link(&blob, &target)
    }

    /// GET, following redirections. What is announced is what the hub's own last answer says, not the host that it
    /// sends to for the contents.
    fn get(&self, url: &str, from: Option<u64>) -> Result<(Announced, Response<Body>), HubError> {
        let mut announced = Announced::default();
        let mut target = url.to_owned();
        for _ in 0..MAX_HOPS {
            let at_hub = target.starts_with(&format!("{}/", self.endpoint));
            // A compressed body would make lengths and ranges meaningless.
            let mut request = self.agent.get(&target).header("accept-encoding", "identity");
            if let Some(token) = self.token.as_ref().filter(|_| at_hub) {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            if let Some(from) = from {
                request = request.header("range", format!("bytes={from}-"));
            }
            let response =
                request.call().map_err(|source| HubError::Connection { url: target.clone(), source: Box::new(source) })?;
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            if at_hub {
                announced = Announced {
                    hash: header("x-linked-etag").or_else(|| header("etag")).map(clean_etag),
                    length: header("x-linked-size").and_then(|size| size.parse().ok()),
                };
            }
            let status = response.status();
            if status.is_success() {
                return Ok((announced, response));
            }
            if !status.is_redirection() {
                return Err(HubError::Status { url: target, status: status.as_u16(), hint: hint(status.as_u16()) });
            }
            target = match header("location") {
                Some(path) if path.starts_with('/') => format!("{}{path}", self.endpoint),
                Some(elsewhere) => elsewhere.to_owned(),
                None => return Err(HubError::Answer { url: target, reason: "redirects to nowhere".to_owned() }),
            };
        }
        Err(HubError::Answer { url: url.to_owned(), reason: format!("redirects more than {MAX_HOPS} times") })
    }
}

/// Redirections followed before giving up.
const MAX_HOPS: usize = 8;

/// What the hub says of a file before sending it.
#[derive(Debug, Clone, Default)]
struct Announced {
    /// Its etag: the SHA-256 of a large file.
    hash: Option<String>,
    /// Its length, for files that are stored elsewhere.
    length: Option<u64>,
}

/// The hub's description of a revision.
#[derive(Deserialize)]
struct Listing {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
}

/// One file on its way into the cache.
struct Download<'a> {
    hub: &'a Hub,
    url: &'a str,
    name: &'a str,
    blobs: &'a Path,
}

impl Download<'_> {
    /// Fetches the file, taking up a broken connection again, and returns its blob.
    fn run(&self, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        let mut pause = FIRST_PAUSE;
        let mut attempt = 1;
        loop {
            match self.attempt(progress) {
                Err(error) if attempt < ATTEMPTS && may_pass(&error) => {
                    std::thread::sleep(pause);
                    pause *= 2;
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    fn attempt(&self, progress: &mut dyn Progress) -> Result<PathBuf, HubError> {
        let (announced, mut response) = self.hub.get(self.url, None)?;
        let Some(hash) = announced.hash.filter(|hash| is_plain(hash)) else {
            return Err(HubError::Answer { url: self.url.to_owned(), reason: "has no etag".to_owned() });
        };
        let blob = self.blobs.join(&hash);
        let partial = self.blobs.join(format!("{hash}.incomplete"));
        let failed = |action, source| io_error(action, &partial, source);
        let mut file =
            OpenOptions::new().create(true).read(true).append(true).open(&partial).map_err(|source| failed("create", source))?;
        // Two programs that want the same file take turns; the second then finds it done.
        file.lock().map_err(|source| failed("lock", source))?;
        if blob.exists() {
            return Ok(blob);
        }
        let mut present = file.metadata().map_err(|source| failed("read", source))?.len();
        if present > 0 {
            (_, response) = self.hub.get(self.url, Some(present))?;
            if response.status().as_u16() != PARTIAL_CONTENT {
                // The server starts from the beginning, and so must the file.
                file.set_len(0).map_err(|source| failed("truncate", source))?;
                present = 0;
            }
        }
        let body = response.body().content_length().map(|rest| rest + present);
        let length = announced.length.or(body);
        progress.begin(self.name, length, present);
        copy(response.body_mut().as_reader(), &mut file, progress).map_err(|error| match error {
            CopyError::Read(source) => HubError::Connection { url: self.url.to_owned(), source: Box::new(source.into()) },
            CopyError::Write(source) => failed("write", source),
        })?;
        file.sync_all().map_err(|source| failed("write", source))?;
        self.verify(&partial, &hash, length)?;
        fs::rename(&partial, &blob).map_err(|source| failed("rename", source))?;
        progress.end();
        Ok(blob)
    }

    /// Checks length and, where the name is one, hash. A file that fails is removed, since no resumption can mend it.
    fn verify(&self, partial: &Path, hash: &str, length: Option<u64>) -> Result<(), HubError> {
        let corrupt = |reason: String| {
            // The error below is what matters; a file that cannot be removed will fail the same way next time.
            let _ = fs::remove_file(partial);
            HubError::Corrupt { file: self.name.to_owned(), reason }
        };
        let failed = |source| io_error("read", partial, source);
        let found = fs::metadata(partial).map_err(failed)?.len();
        if let Some(expected) = length
            && found < expected
        {
            // Cut short without an error: the rest can still be fetched.
            let cut = io::Error::new(io::ErrorKind::UnexpectedEof, format!("{found} of {expected} bytes"));
            return Err(HubError::Connection { url: self.url.to_owned(), source: Box::new(cut.into()) });
        }
        if let Some(expected) = length
            && found > expected
        {
            return Err(corrupt(format!("{found} bytes where {expected} were announced")));
        }
        if hash.len() == SHA256_DIGITS && is_hash(hash) {
            let mut hasher = Sha256::new();
            io::copy(&mut File::open(partial).map_err(failed)?, &mut hasher).map_err(failed)?;
            let digest: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            if digest != hash {
                return Err(corrupt(format!("its SHA-256 is {digest}, announced {hash}")));
            }
        }
        Ok(())
    }
}

/// HTTP's answer to a range that is honoured.
const PARTIAL_CONTENT: u16 = 206;
/// Hexadecimal digits of a SHA-256.
const SHA256_DIGITS: usize = 64;

enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

fn copy(mut from: impl Read, to: &mut File, progress: &mut dyn Progress) -> Result<(), CopyError> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                to.write_all(&buffer[..count]).map_err(CopyError::Write)?;
                progress.advance(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CopyError::Read(error)),
        }
    }
}

/// Whether trying again may help: connections that break and servers that are overloaded.
fn may_pass(error: &HubError) -> bool {
    match error {
        HubError::Connection { .. } => true,
        HubError::Status { status, .. } => matches!(status, 408 | 429 | 500..),
        _ => false,
    }
}

fn hint(status: u16) -> &'static str {
    match status {
        401 | 403 => "it needs a token with access: set HF_TOKEN",
        404 => "check the id and the revision",
        408 | 429 | 500.. => "try again later",
        _ => "this is not expected",
    }
}

/// Whether a snapshot has everything that a model or an adapter consists of.
fn is_complete(snapshot: &Path) -> bool {
    let present = |name: &str| snapshot.join(name).is_file();
    let adapter = present("adapter_config.json") && present(ADAPTER_WEIGHTS);
    let weights = if present(INDEX_FILE) {
        shards_of(&snapshot.join(INDEX_FILE)).is_ok_and(|shards| shards.iter().all(|name| present(name)))
    } else {
        present(SINGLE_FILE)
    };
    let model = present("config.json") && present("tokenizer.json") && weights;
    adapter || model
}

/// The shard files that an index names.
fn shards_of(index: &Path) -> Result<BTreeSet<String>, HubError> {
    let text = fs::read_to_string(index).map_err(|source| io_error("read", index, source))?;
    let shards =
        shard_names(index, &text).map_err(|error| HubError::Answer { url: INDEX_FILE.to_owned(), reason: error.to_string() })?;
    Ok(shards.into_values().collect())
}

/// An etag without quotes and weakness mark.
fn clean_etag(etag: &str) -> String {
    etag.trim_start_matches("W/").trim_matches('"').to_owned()
}

/// Whether a string can be a file name anywhere.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

fn is_hash(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_hexdigit())
}

/// Makes `target` stand for `blob`: a relative link where the system has them, else the file itself.
fn link(blob: &Path, target: &Path) -> Result<(), HubError> {
    let failed = |source| io_error("link", target, source);
    #[cfg(unix)]
    {
        let name = blob.file_name().unwrap_or_default();
        let relative = Path::new("../../blobs").join(name);
        match std::os::unix::fs::symlink(relative, target) {
            // Another program was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            outcome => outcome.map_err(failed),
        }
    }
    #[cfg(not(unix))]
    {
        fs::rename(blob, target).map_err(failed)
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> HubError {
    HubError::Io { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_told_from_paths() {
        for good in ["gpt2", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B@v1.0", "a_b/c.d@0123abcd"] {
            assert_eq!(good.parse::<ModelId>().unwrap().to_string(), good);
        }
        for bad in ["", "a/b/c", "../x", "/abs", "./model", "a//b", "a/b@", "a b", "a/.hidden", "a/b@../c", "a--b"] {
            let error = bad.parse::<ModelId>().unwrap_err();
            assert!(error.to_string().contains("neither a directory nor a hub id"), "{error}");
        }
    }

    #[test]
    fn the_cache_directory_is_named_as_elsewhere() {
        let id: ModelId = "Qwen/Qwen2.5-7B-Instruct".parse().unwrap();
        assert_eq!(id.cache_name(), "models--Qwen--Qwen2.5-7B-Instruct");
    }

    #[test]
    fn etags_lose_their_decoration() {
        assert_eq!(clean_etag("\"abc\""), "abc");
        assert_eq!(clean_etag("W/\"abc\""), "abc");
    }
}
