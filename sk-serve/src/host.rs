//! The models of a program, which run in this process or behind other servers.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sk_core::{Engine, InstructionRack, Rack, TimeLeft};
use sk_models::decoder::{Decoder, Scheduler};
use sk_models::dialogue::SessionParts;
use sk_models::engine::AdapterRack;
use sk_models::head::Head;
use sk_models::hf::{self, ADAPTER_WEIGHTS, CheckpointError, Progress, TextFiles, target_modules};
use sk_models::local::{Extent, ModelError, Models};
use sk_models::lora::LoraAdapter;
use sk_models::text::{ChatTemplate, TextError, Tokenizer};
use sk_remote::{AddressError, IfLoaded, Key, Kind, Probe, RemoteEngine, RemoteError, RemoteOptions, Role, ServerReport};
use sk_scheme::{ProposalSpec, SchemeSpec};
use tokio::sync::OwnedSemaphorePermit;

/// The prefix of an adapter source that names an adapter which the servers already have.
pub const NAMED: &str = "lora:";

/// Hexadecimal digits of a digest in the name of an adapter on the servers.
const DIGITS: usize = 12;

/// The text that servers are checked with. It is a dialogue because adapters are trained on
/// dialogues.
const PROBE: &str = "\n\nHuman: What should I do before I lend my bicycle to a friend?\n\nAssistant: First, check the brakes and \
                     the tyres, and tell your friend honestly what does not work. It would be dangerous to ride it in the dark \
                     without a lamp, so lend one with it, and agree on when you want it back.";

/// The addresses of the servers, and the tokenizer, which servers do not provide.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteSources {
    /// The servers of the backbone.
    pub backbone: Role,
    /// The servers of the drafter. If `None`, the backbone drafts for itself.
    pub drafter: Option<Role>,
    /// The directory with the `tokenizer.json` of both models and, optionally, their `config.json`.
    pub tokenizer: PathBuf,
}

impl RemoteSources {
    /// Returns whether `source` is an address of servers and not a directory or hub id.
    #[must_use]
    pub fn is_address(source: &str) -> bool {
        source.contains("://") || source.split_once('+').is_some_and(|(kind, _)| Kind::named(kind).is_some())
    }

    /// Parses the addresses. All servers are sent the same key.
    ///
    /// # Errors
    /// If an address is invalid.
    pub fn new(backbone: &str, drafter: Option<&str>, tokenizer: PathBuf, key: Option<&Key>) -> Result<Self, HostError> {
        let role = |text: &str| text.parse::<Role>().map(|role| role.with_key(key.cloned()));
        Ok(Self { backbone: role(backbone)?, drafter: drafter.map(role).transpose()?, tokenizer })
    }

    /// Returns whether the key is sent to another machine without encryption.
    #[must_use]
    pub fn expose_key(&self) -> bool {
        std::iter::once(&self.backbone).chain(&self.drafter).any(Role::exposes_key)
    }
}

/// An error that occurs when models are opened or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum HostError {
    /// An error of a local model.
    #[error(transparent)]
    Local(#[from] ModelError),
    /// An invalid server address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An error of a server or of a request to it.
    #[error(transparent)]
    Remote(Box<RemoteError>),
    /// An error in the tokenizer of models behind servers.
    #[error(transparent)]
    Tokenizer(Box<CheckpointError>),
    /// An error in a chat template.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Neither the servers nor `config.json` state the context length.
    #[error(
        "neither the servers nor {} say how many tokens the model holds; add max_position_embeddings to it",
        config.display()
    )]
    NoLimit { config: PathBuf },
    /// A blade that uses its own model, while the backbone runs behind servers.
    #[error("blade \"{name}\" reads under {on}, and the backbone is behind servers; give a --backbone of this machine")]
    Reader { name: String, on: String },
    /// A server's adapter, while the backbone runs in this process.
    #[error("blade \"{name}\": {source_text} is an adapter of a server, and the backbone runs here; give --blade {name}=DIR")]
    NamedAdapter { name: String, source_text: String },
}

impl From<RemoteError> for HostError {
    fn from(error: RemoteError) -> Self {
        Self::Remote(Box::new(error))
    }
}

impl From<CheckpointError> for HostError {
    fn from(error: CheckpointError) -> Self {
        Self::Tokenizer(Box::new(error))
    }
}

/// The backbone and the drafter.
pub enum Host {
    /// In this process.
    Local(Box<Models>),
    /// Behind servers.
    Remote(Box<Remote>),
}

/// Models behind servers. Tokenizer and chat template run in this process.
pub struct Remote {
    engine: RemoteEngine,
    files: TextFiles,
    limit: OnceLock<usize>,
    place: String,
    /// Used only to stop requests: batching is done by the servers.
    scheduler: Scheduler,
}

/// An adapter of the backbone.
#[derive(Clone)]
pub enum Adapter {
    /// The weights of a local adapter.
    Local(Arc<LoraAdapter>),
    /// The name of an adapter on the servers.
    Remote(Arc<str>),
}

/// The adapters that generations can use, by blade name. Clones share the same adapters.
#[derive(Clone, Default)]
pub struct Adapters {
    local: AdapterRack,
    remote: sk_remote::AdapterRack,
    /// The memory of those that clients have loaded. It is reserved until the last map that holds the
    /// adapter is dropped.
    memory: Rack<OwnedSemaphorePermit>,
}

impl Adapters {
    /// Adds an adapter with the memory that is reserved for it.
    pub(crate) fn insert_reserved(&self, name: &str, adapter: Adapter, memory: Arc<OwnedSemaphorePermit>) {
        self.memory.insert(name, memory);
        self.insert(name, adapter);
    }

    /// Adds an adapter, or replaces the one with the same name. Takes effect at the next step of
    /// the generations that share this map.
    pub fn insert(&self, name: &str, adapter: Adapter) {
        match adapter {
            Adapter::Local(adapter) => self.local.insert(name, adapter),
            Adapter::Remote(adapter) => self.remote.insert(name, adapter),
        }
    }

    /// Returns the adapters with these names, apart from the others: names that are added or
    /// removed later are not shared.
    #[must_use]
    pub fn only(&self, names: impl IntoIterator<Item = String>) -> Self {
        let some = Self::default();
        names.into_iter().for_each(|name| some.take(&name, self));
        some
    }

    /// Adds the adapter of this name from `others`, if there is one.
    pub(crate) fn take(&self, name: &str, others: &Self) {
        // The memory comes first here and last in `remove`, so that an adapter is taken with it, unless
        // the name is loaded again in between.
        if let Some(memory) = others.memory.get(name) {
            self.memory.insert(name, memory);
        }
        if let Some(adapter) = others.local.get(name) {
            self.local.insert(name, adapter);
        }
        if let Some(adapter) = others.remote.get(name) {
            self.remote.insert(name, adapter);
        }
    }

    /// Returns whether there is an adapter with this name, and another one in `others`.
    pub(crate) fn differs(&self, name: &str, others: &Self) -> bool {
        let local = self.local.get(name).zip(others.local.get(name));
        let remote = self.remote.get(name).zip(others.remote.get(name));
        local.is_some_and(|(one, other)| !Arc::ptr_eq(&one, &other)) || remote.is_some_and(|(one, other)| one != other)
    }

    /// Returns whether there is an adapter with this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.local.get(name).is_some() || self.remote.get(name).is_some()
    }

    /// Removes an adapter. A step that still uses it from this map fails.
    pub fn remove(&self, name: &str) {
        self.local.remove(name);
        self.remote.remove(name);
        self.memory.remove(name);
    }

    /// Returns the most bytes that the adapters take in this process.
    pub(crate) fn bytes(&self) -> u64 {
        self.local.names().iter().filter_map(|name| self.local.get(name)).map(|adapter| adapter.bytes()).sum()
    }
}

impl From<AdapterRack> for Adapters {
    fn from(local: AdapterRack) -> Self {
        Self { local, ..Self::default() }
    }
}

impl FromIterator<(String, Adapter)> for Adapters {
    fn from_iter<T: IntoIterator<Item = (String, Adapter)>>(adapters: T) -> Self {
        let all = Self::default();
        adapters.into_iter().for_each(|(name, adapter)| all.insert(&name, adapter));
        all
    }
}

impl From<Models> for Host {
    fn from(models: Models) -> Self {
        Self::Local(Box::new(models))
    }
}

impl Host {
    /// Opens models behind servers. Nothing is sent before [`check`](Self::check).
    ///
    /// # Errors
    /// If the tokenizer cannot be read or an address is invalid.
    pub fn remote(sources: RemoteSources) -> Result<Self, HostError> {
        let files = TextFiles::from_directory(&sources.tokenizer)?;
        let addresses = |role: &Role| format!("{}+{}", role.kind.name(), role.urls.join(","));
        let place = match &sources.drafter {
            Some(drafter) => format!("{}, drafting on {}", addresses(&sources.backbone), addresses(drafter)),
            None => addresses(&sources.backbone),
        };
        let mut options = RemoteOptions::new(sources.backbone, files.token_bytes().into(), files.end_of_text.clone());
        options.drafter = sources.drafter;
        let engine = RemoteEngine::new(options)?;
        Ok(Self::Remote(Box::new(Remote { engine, files, limit: OnceLock::new(), place, scheduler: Scheduler::new() })))
    }

    /// Checks the servers with every adapter loaded so far. For example, their log-probabilities
    /// must not depend on the rest of the batch, and their tokenizer must be the local one. Does
    /// nothing for local models, which are checked when they are loaded.
    ///
    /// # Errors
    /// If a server fails a check (the error holds the expected and the actual value) or does not
    /// answer.
    pub fn check(&self) -> Result<(), HostError> {
        let Self::Remote(remote) = self else { return Ok(()) };
        let tokens = remote.files.tokenizer.encode(PROBE)?;
        let report = remote.engine.check(&Probe { tokens: &tokens, text: PROBE })?;
        for ServerReport { role, address, tokenizes, limit, noise } in report.servers {
            tracing::info!(role, address, limit, noise, "server checked");
            if !tokenizes {
                tracing::warn!(
                    role,
                    address,
                    "the server does not tokenize, so that its tokenizer was not compared with --tokenizer"
                );
            }
        }
        for (adapter, distance) in report.adapters {
            tracing::info!(%adapter, distance, "adapter checked");
        }
        let limits = remote.engine.context_limit().into_iter().chain(remote.files.context_limit);
        let limit = limits.min().ok_or_else(|| HostError::NoLimit { config: remote.files.config() })?;
        // Servers generate a token after each span that they read.
        remote.limit.get_or_init(|| limit.saturating_sub(1));
        Ok(())
    }

    /// Returns the models if they run in this process.
    #[must_use]
    pub fn local(&self) -> Option<&Models> {
        match self {
            Self::Local(models) => Some(models),
            Self::Remote(_) => None,
        }
    }

    /// Returns the tokenizer of backbone and drafter.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        match self {
            Self::Local(models) => &models.tokenizer,
            Self::Remote(remote) => &remote.files.tokenizer,
        }
    }

    /// Returns the size of the backbone's vocabulary.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Local(models) => models.backbone.config().vocab_size,
            Self::Remote(remote) => remote.files.vocab_size,
        }
    }

    /// Returns the context length, in tokens, that both models support. For models behind servers
    /// it is one less than theirs, and `usize::MAX` until [`check`](Self::check) succeeds.
    #[must_use]
    pub fn context_limit(&self) -> usize {
        match self {
            Self::Local(models) => models.context_limit(),
            Self::Remote(remote) => remote.limit.get().copied().unwrap_or(usize::MAX),
        }
    }

    /// Returns the backbone's chat template.
    ///
    /// # Errors
    /// If the backbone has no chat template, or the template has a syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, HostError> {
        match self {
            Self::Local(models) => Ok(models.chat_template()?),
            Self::Remote(remote) => Ok(remote.files.chat_template()?),
        }
    }

    /// Returns the device, or the addresses of the servers.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Local(models) => models.device().to_string(),
            Self::Remote(remote) => remote.place.clone(),
        }
    }

    /// Returns the scheduler, which requests join while they use the models.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        match self {
            Self::Local(models) => &models.scheduler,
            Self::Remote(remote) => &remote.scheduler,
        }
    }

    /// Returns the maximum memory of a generation in bytes, without the weights; 0 for models
    /// behind servers.
    pub(crate) fn footprint(&self, extent: Extent) -> u64 {
        self.local().map_or(0, |models| models.footprint(extent))
    }

    /// Returns the memory available to all generations together, in bytes. `None` if the models run
    /// behind servers or the system does not report its free memory.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        self.local().and_then(Models::room)
    }

    /// Returns the bytes of the KV caches of the answers in progress; 0 for models behind servers.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.decoders().map(|model| model.held_bytes() as u64).sum()
    }

    /// Returns the distinct models of this process.
    fn decoders(&self) -> impl Iterator<Item = &Arc<Decoder>> {
        self.local().into_iter().flat_map(Models::decoders)
    }

    /// Returns the bytes of KV cache shared between contexts with a common prefix; 0 for models
    /// behind servers.
    pub(crate) fn shared_bytes(&self) -> u64 {
        self.decoders().map(|model| model.shared_bytes() as u64).sum()
    }

    /// Returns the heads of the local models.
    #[must_use]
    pub fn heads(&self) -> &[(String, Head)] {
        self.local().map_or(&[], |models| &models.heads)
    }

    /// Loads the adapter of the blade `name`, which uses the backbone or the model `on`. For a
    /// local backbone, `source` is a directory or hub id. For a backbone behind servers, `source`
    /// is a directory that the servers load, or `lora:NAME` for an adapter that they have already;
    /// call [`check`](Self::check) afterwards.
    ///
    /// # Errors
    /// If the adapter is not found, does not fit the model, or a server does not load it, or if
    /// there is another model and the backbone is behind servers.
    pub fn adapter(&self, name: &str, source: &str, on: Option<&str>, progress: &mut dyn Progress) -> Result<Adapter, HostError> {
        if let (Self::Remote(_), Some(on)) = (self, on) {
            return Err(HostError::Reader { name: name.to_owned(), on: on.to_owned() });
        }
        match (self, source.strip_prefix(NAMED)) {
            (Self::Local(_), Some(_)) => Err(HostError::NamedAdapter { name: name.to_owned(), source_text: source.to_owned() }),
            (Self::Local(models), None) => Ok(Adapter::Local(Arc::new(models.adapter(name, source, on, progress)?))),
            (Self::Remote(remote), Some(known)) => {
                // By the name on the servers, since schemes may give one blade several adapters.
                remote.engine.adapters().insert(known, known);
                Ok(Adapter::Remote(known.into()))
            }
            (Self::Remote(remote), None) => {
                progress.stage(&format!("having servers load blade {name}"));
                let modules = target_modules(Path::new(source)).unwrap_or_default();
                let (known, if_loaded) = name_on_servers(name, source, progress);
                // Servers on this machine may run in another working directory, so send an absolute
                // path.
                let here = Path::new(source).canonicalize().ok();
                let directory = here.map_or_else(|| source.to_owned(), |path| path.to_string_lossy().into_owned());
                remote.engine.load_adapter(&known, &directory, &modules, if_loaded)?;
                Ok(Adapter::Remote(known.into()))
            }
        }
    }

    /// Returns the most bytes that the adapter of the blade `name` takes in this process, given by its
    /// directory and made for the backbone. Does not read its weights.
    ///
    /// # Errors
    /// If the directory is not that of an adapter, or the adapter uses an unsupported feature.
    pub(crate) fn adapter_bytes(&self, name: &str, directory: &str) -> Result<u64, HostError> {
        Ok(self.local().map(|models| models.adapter_bytes(name, Path::new(directory))).transpose()?.unwrap_or(0))
    }

    /// Restricts later checks of the servers to these adapters, and to those that are loaded later.
    pub fn check_only(&self, adapters: &Adapters) {
        let Self::Remote(remote) = self else { return };
        let names = || adapters.remote.names().into_iter().filter_map(|blade| adapters.remote.get(&blade));
        let checked = remote.engine.adapters();
        for known in checked.names().iter().filter(|known| !names().any(|name| name == **known)) {
            checked.remove(known);
        }
        names().for_each(|name| checked.insert(Arc::clone(&name), name));
    }

    /// Limits the time of requests to servers to what `left` returns.
    #[must_use]
    pub fn with_time_left(mut self, left: TimeLeft) -> Self {
        if let Self::Remote(remote) = &mut self {
            remote.engine = remote.engine.clone().with_time_left(left);
        }
        self
    }

    /// Loads the model `on`, which the blade `name` uses in place of the backbone, unless it is
    /// loaded.
    ///
    /// # Errors
    /// If it cannot be loaded or has another tokenizer, or the backbone is behind servers.
    pub fn open_reader(&mut self, name: &str, on: &str, progress: &mut dyn Progress) -> Result<(), HostError> {
        match self {
            Self::Local(models) => Ok(models.open_reader(name, on, progress)?),
            Self::Remote(_) => Err(HostError::Reader { name: name.to_owned(), on: on.to_owned() }),
        }
    }

    /// Returns the sizes of a generation of `config` that determine its memory, except those of its
    /// context. Without a limit, a span may be as long as the response.
    pub(crate) fn extent(&self, config: &SchemeSpec) -> Extent {
        let has_heads = config.blades.iter().any(|blade| blade.rule.head_kind().is_some());
        let ahead = match &config.proposal {
            ProposalSpec::Vocabulary(vocabulary) if has_heads && vocabulary.head_k == 0 => self.vocab_size(),
            ProposalSpec::Vocabulary(vocabulary) if has_heads => vocabulary.head_k,
            _ => 0,
        };
        Extent {
            lanes: config.lanes(),
            drafter: config.proposal.keeps_drafter(),
            context: 0,
            candidates: config.proposal.draft().map_or(0, |draft| draft.candidates),
            span: config.granularity.span_tokens().map_or(usize::MAX, NonZero::get),
            ahead,
        }
    }

    /// Returns the bytes that the shortest answer takes: a prompt of one token and one new token.
    pub fn least_memory(&self, config: &SchemeSpec) -> u64 {
        self.footprint(Extent { context: 2, span: 1, ..self.extent(config) })
    }

    /// Returns the engine of one generation of the scheme `config`, and what a session on it needs.
    /// Its backbone can use `adapters`, `heads` and `instructions`. Requests to servers, and the wait
    /// for memory, take no longer than `left` returns.
    ///
    /// # Errors
    /// If the model of a reader is not loaded, or there is a reader and the backbone is behind
    /// servers.
    pub fn engine(
        &self,
        config: &SchemeSpec,
        adapters: &Adapters,
        heads: &[(String, Head)],
        instructions: &InstructionRack,
        left: Option<TimeLeft>,
    ) -> Result<(Box<dyn Engine + '_>, SessionParts<'_>), HostError> {
        let engine: Box<dyn Engine + '_> = match self {
            Self::Local(models) => {
                Box::new(models.engine(&adapters.local, heads).with_instructions(instructions).with_readers(config.readers())?)
            }
            Self::Remote(remote) => {
                if let Some((name, on)) = config.readers().next() {
                    return Err(HostError::Reader { name, on: on.to_owned() });
                }
                let engine = remote.engine.clone().with_adapters(&adapters.remote).with_instructions(instructions);
                Box::new(match &left {
                    Some(left) => engine.with_time_left(Arc::clone(left)),
                    None => engine,
                })
            }
        };
        let parts = SessionParts {
            models: self.local(),
            extent: self.extent(config),
            tokenizer: self.tokenizer(),
            context_limit: self.context_limit(),
            instructions: instructions.clone(),
            left,
        };
        Ok((engine, parts))
    }
}

/// Returns the name under which servers load the adapter of the blade `name` from `directory`. If its
/// files are on this machine, the name has a digest of them, and belongs to no other adapter.
fn name_on_servers(name: &str, directory: &str, progress: &mut dyn Progress) -> (String, IfLoaded) {
    let is_here = Path::new(directory).join(ADAPTER_WEIGHTS).is_file();
    match is_here.then(|| hf::digest(directory, progress)) {
        Some(Ok(digest)) => (format!("{name}-{digest:.DIGITS$}"), IfLoaded::Keep),
        _ => (name.to_owned(), IfLoaded::Refuse),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn the_memory_of_an_adapter_is_reserved_until_its_last_holder_is_dropped() {
        let memory = Arc::new(Semaphore::new(3));
        let reserved = Arc::new(Arc::clone(&memory).try_acquire_many_owned(2).unwrap());
        let rack = Adapters::default();
        rack.insert_reserved("calm", Adapter::Remote("calm".into()), reserved);
        let answer = rack.only(["calm".to_owned()]);
        rack.remove("calm");
        assert_eq!(memory.available_permits(), 1);
        drop(answer);
        assert_eq!(memory.available_permits(), 3);
    }
}
