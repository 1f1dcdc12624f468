//! Where the models of a program run: in this process, or behind other servers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use sk_core::{BoxError, Drafting, Engine, Generation, InstructionRack, SpecHandle};
use sk_models::decoder::{Decoder, Scheduler};
use sk_models::dialogue::Footing;
use sk_models::engine::AdapterRack;
use sk_models::head::Head;
use sk_models::hf::{CheckpointError, Progress, TextFiles, target_modules};
use sk_models::local::{Extent, LocalEngine, ModelError, Models};
use sk_models::lora::LoraAdapter;
use sk_models::text::{ChatTemplate, TextError, Tokenizer};
use sk_remote::{AdapterSource, AddressError, CheckReport, Key, Probe, RemoteEngine, RemoteError, RemoteOptions, Role};

/// What the source of an adapter begins with that servers know by name already.
pub const NAMED: &str = "lora:";

/// What the address of a backbone or drafter behind servers begins with.
const KINDS: [&str; 2] = ["sglang+", "vllm+"];

/// A text that servers are checked with: a dialogue, since adapters are trained on those.
const PROBE: &str = "\n\nHuman: What should I do before I lend my bicycle to a friend?\n\nAssistant: First, check the brakes and \
                     the tyres, and tell your friend honestly what does not work. It would be dangerous to ride it in the dark \
                     without a lamp, so lend one with it, and agree on when you want it back.";

/// Where servers are, and what they do not say themselves.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteSources {
    /// The servers of the backbone.
    pub backbone: Role,
    /// The servers of the drafter; the backbone drafts for itself unless given.
    pub drafter: Option<Role>,
    /// A directory with the `tokenizer.json` of both, and the `config.json` beside it if there is
    /// one.
    pub tokenizer: PathBuf,
}

impl RemoteSources {
    /// Whether a backbone or drafter is an address of servers, and no directory or hub id.
    #[must_use]
    pub fn is_address(source: &str) -> bool {
        KINDS.iter().any(|kind| source.starts_with(kind))
    }

    /// Reads addresses. All servers get the key.
    ///
    /// # Errors
    /// If an address cannot be read.
    pub fn new(backbone: &str, drafter: Option<&str>, tokenizer: PathBuf, key: Option<&Key>) -> Result<Self, HostError> {
        let role = |text: &str| text.parse::<Role>().map(|role| role.with_key(key.cloned()));
        Ok(Self { backbone: role(backbone)?, drafter: drafter.map(role).transpose()?, tokenizer })
    }
}

/// Models that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A model of this process.
    #[error(transparent)]
    Local(#[from] ModelError),
    /// An address of servers.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A server, or what was asked of it.
    #[error(transparent)]
    Remote(Box<RemoteError>),
    /// The tokenizer of models behind servers.
    #[error(transparent)]
    Tokenizer(Box<CheckpointError>),
    /// A chat template.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Nobody knows how long a context may be.
    #[error(
        "neither the servers nor {} say how many tokens the model holds; add max_position_embeddings to it",
        config.display()
    )]
    NoLimit {
        /// The file that could say so.
        config: PathBuf,
    },
    /// A blade that reads under a model of its own, beside a backbone behind servers.
    #[error("blade \"{name}\" reads under {on}, and the backbone is behind servers; give a --backbone of this machine")]
    Reader {
        /// The blade.
        name: String,
        /// The model.
        on: String,
    },
    /// An adapter that a server knows, for a backbone of this process.
    #[error("blade \"{name}\": {source_text} is an adapter of a server, and the backbone runs here; give --blade {name}=DIR")]
    NamedAdapter {
        /// The blade.
        name: String,
        /// Its source.
        source_text: String,
    },
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

/// Backbone and drafter, wherever they run.
pub enum Host {
    /// In this process.
    Local(Box<Models>),
    /// Behind servers.
    Remote(Box<Remote>),
}

/// Models behind servers, and the text side of them, which runs here.
pub struct Remote {
    engine: RemoteEngine,
    files: TextFiles,
    limit: OnceLock<usize>,
    place: String,
    /// Joins nothing: the servers do. Requests are stopped by it.
    scheduler: Scheduler,
}

/// An adapter of a backbone: its weights, or the name under which servers know it.
#[derive(Clone)]
pub enum Adapter {
    /// The weights.
    Local(Arc<LoraAdapter>),
    /// The name.
    Remote(Arc<str>),
}

/// The adapters that a generation can read with, by the names of their blades. Clones share one
/// rack.
#[derive(Clone, Default)]
pub struct Adapters {
    local: AdapterRack,
    remote: sk_remote::AdapterRack,
}

impl Adapters {
    /// Adds an adapter or replaces the one of that name. Takes effect at the next step.
    pub fn insert(&self, name: &str, adapter: Adapter) {
        match adapter {
            Adapter::Local(adapter) => self.local.insert(name, adapter),
            Adapter::Remote(adapter) => self.remote.insert(name, adapter),
        }
    }

    /// Whether there is an adapter of that name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.local.get(name).is_some() || self.remote.get(name).is_some()
    }

    /// Drops an adapter. A step that still asks for it fails.
    pub fn remove(&self, name: &str) {
        self.local.remove(name);
        self.remote.remove(name);
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
    /// Puts models behind servers. Nothing is sent before [`check`](Self::check).
    ///
    /// # Errors
    /// If there is no tokenizer, or an address cannot be read.
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

    /// Checks servers with every adapter loaded so far: their numbers must not depend on what else
    /// is in a batch, their tokenizers must be ours, and so on. Models of this process were checked
    /// when they were loaded.
    ///
    /// # Errors
    /// If a server does not pass, with both numbers, or does not answer.
    pub fn check(&self) -> Result<Option<CheckReport>, HostError> {
        let Self::Remote(remote) = self else { return Ok(None) };
        let tokens = remote.files.tokenizer.encode(PROBE)?;
        let report = remote.engine.check(&Probe { tokens: &tokens, text: Some(PROBE) })?;
        let limits = remote.engine.context_limit().into_iter().chain(remote.files.context_limit);
        let limit = limits.min().ok_or_else(|| HostError::NoLimit { config: remote.files.config() })?;
        remote.limit.get_or_init(|| limit);
        Ok(Some(report))
    }

    /// The models, if they run in this process.
    #[must_use]
    pub fn local(&self) -> Option<&Models> {
        match self {
            Self::Local(models) => Some(models),
            Self::Remote(_) => None,
        }
    }

    /// The tokenizer of backbone and drafter.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        match self {
            Self::Local(models) => &models.tokenizer,
            Self::Remote(remote) => &remote.files.tokenizer,
        }
    }

    /// Tokens of the backbone's vocabulary.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        match self {
            Self::Local(models) => models.backbone.config().vocab_size,
            Self::Remote(remote) => remote.files.vocab_size,
        }
    }

    /// The most tokens that both models hold. Of servers it is known when they were
    /// [checked](Self::check).
    #[must_use]
    pub fn context_limit(&self) -> usize {
        match self {
            Self::Local(models) => models.context_limit(),
            Self::Remote(remote) => remote.limit.get().copied().unwrap_or(usize::MAX),
        }
    }

    /// The backbone's chat template.
    ///
    /// # Errors
    /// If it has none, or one with a syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, HostError> {
        match self {
            Self::Local(models) => Ok(models.chat_template()?),
            Self::Remote(remote) => Ok(remote.files.chat_template()?),
        }
    }

    /// The device, or the addresses of the servers.
    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Local(models) => models.device().to_string(),
            Self::Remote(remote) => remote.place.clone(),
        }
    }

    /// What requests enter while they use the models.
    #[must_use]
    pub fn scheduler(&self) -> &Scheduler {
        match self {
            Self::Local(models) => &models.scheduler,
            Self::Remote(remote) => &remote.scheduler,
        }
    }

    /// Bytes that a generation takes at most besides the weights. Servers keep their own.
    pub(crate) fn footprint(&self, extent: Extent) -> u64 {
        self.local().map_or(0, |models| models.footprint(extent))
    }

    /// Bytes that generations can take together, if they take memory of this process and the system
    /// says how much is free.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        self.local().and_then(Models::room)
    }

    /// Bytes of keys and values per token of the backbone. Servers keep their own.
    pub(crate) fn bytes_per_token(&self) -> u64 {
        self.local().map_or(0, |models| models.backbone.bytes_per_token() as u64)
    }

    /// Bytes of the key-value caches of the answers in progress, without those that servers keep.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.decoders().map(|model| model.held_bytes() as u64).sum()
    }

    /// The models of this process, each once.
    fn decoders(&self) -> impl Iterator<Item = &Decoder> {
        self.local().into_iter().flat_map(|Models { backbone, drafter, .. }| {
            let other = (!Arc::ptr_eq(backbone, drafter)).then_some(drafter);
            std::iter::once(backbone).chain(other).map(|model| &**model)
        })
    }

    /// Bytes of keys and values that contexts which begin alike share. Servers keep their own.
    pub(crate) fn shared_bytes(&self) -> u64 {
        self.decoders().map(|model| model.shared_bytes() as u64).sum()
    }

    /// Heads of the models of this process.
    #[must_use]
    pub fn heads(&self) -> &[(String, Head)] {
        self.local().map_or(&[], |models| &models.heads)
    }

    /// Loads the adapter that the blade `name` reads with: from a directory or hub id for a backbone
    /// of this process. Servers are told to load a directory, or know `lora:NAME` already; after
    /// either, [check](Self::check) them.
    ///
    /// # Errors
    /// If it cannot be found, does not fit, or is not loaded by a server.
    pub fn adapter(&self, name: &str, source: &str, progress: &mut dyn Progress) -> Result<Adapter, HostError> {
        match (self, source.strip_prefix(NAMED)) {
            (Self::Local(_), Some(_)) => Err(HostError::NamedAdapter { name: name.to_owned(), source_text: source.to_owned() }),
            (Self::Local(models), None) => Ok(Adapter::Local(Arc::new(models.adapter(name, source, progress)?))),
            (Self::Remote(remote), Some(known)) => {
                remote.engine.adapters().insert(known, known);
                Ok(Adapter::Remote(known.into()))
            }
            (Self::Remote(remote), None) => {
                progress.stage(&format!("having servers load blade {name}"));
                let modules = target_modules(Path::new(source)).unwrap_or_default();
                // Servers of this machine run in another directory.
                let here = Path::new(source).canonicalize().ok();
                let directory = here.map_or_else(|| source.to_owned(), |path| path.to_string_lossy().into_owned());
                let source = AdapterSource { name: name.to_owned(), directory, modules };
                remote.engine.load_adapter(name, &source)?;
                Ok(Adapter::Remote(name.into()))
            }
        }
    }

    /// Loads the model that the blade `name` reads under in place of the backbone, unless it is there.
    ///
    /// # Errors
    /// If it cannot be loaded or has another tokenizer, or the backbone is behind servers.
    pub fn open_reader(&mut self, name: &str, on: &str, progress: &mut dyn Progress) -> Result<(), HostError> {
        match self {
            Self::Local(models) => Ok(models.open_reader(name, on, progress)?),
            Self::Remote(_) => Err(HostError::Reader { name: name.to_owned(), on: on.to_owned() }),
        }
    }

    /// Loads the adapter of a blade that reads under another model than the backbone.
    ///
    /// # Errors
    /// As [`adapter`](Self::adapter), or if the backbone is behind servers.
    pub fn adapter_on(&self, on: &str, name: &str, source: &str, progress: &mut dyn Progress) -> Result<Adapter, HostError> {
        match self {
            Self::Local(models) => Ok(Adapter::Local(Arc::new(models.adapter_on(on, name, source, progress)?))),
            Self::Remote(_) => Err(HostError::Reader { name: name.to_owned(), on: on.to_owned() }),
        }
    }

    /// The engine of one generation, whose backbone reads with `adapters`, with `heads` and under
    /// `instructions`.
    #[must_use]
    pub fn engine(&self, adapters: &Adapters, heads: &[(String, Head)], instructions: &InstructionRack) -> HostEngine<'_> {
        match self {
            Self::Local(models) => HostEngine::Local(models.engine(&adapters.local, heads).with_instructions(instructions)),
            Self::Remote(remote) => HostEngine::Remote(
                remote.engine.clone().with_adapters(&adapters.remote).with_instructions(instructions),
                Footing {
                    models: None,
                    tokenizer: self.tokenizer(),
                    context_limit: self.context_limit(),
                    instructions: instructions.clone(),
                },
            ),
        }
    }
}

/// The engine of one generation.
pub enum HostEngine<'m> {
    /// On models of this process.
    Local(LocalEngine<'m>),
    /// On models behind servers.
    Remote(RemoteEngine, Footing<'m>),
}

impl<'m> HostEngine<'m> {
    /// The engine with lanes that read under another model than the backbone: the name of each, and
    /// the model.
    ///
    /// # Errors
    /// If a model is not loaded, or the backbone is behind servers.
    pub fn with_readers<'r>(self, lanes: impl IntoIterator<Item = (String, &'r str)>) -> Result<Self, HostError> {
        match self {
            Self::Local(engine) => Ok(Self::Local(engine.with_readers(lanes)?)),
            Self::Remote(engine, footing) => match lanes.into_iter().next() {
                Some((name, on)) => Err(HostError::Reader { name, on: on.to_owned() }),
                None => Ok(Self::Remote(engine, footing)),
            },
        }
    }

    /// What a session on this engine needs.
    #[must_use]
    pub fn footing(&self) -> Footing<'m> {
        match self {
            Self::Local(engine) => engine.into(),
            Self::Remote(_, footing) => footing.clone(),
        }
    }
}

impl Engine for HostEngine<'_> {
    fn start(&self, drafting: &Drafting, spec: &SpecHandle) -> Result<Generation, BoxError> {
        match self {
            Self::Local(engine) => engine.start(drafting, spec),
            Self::Remote(engine, _) => engine.start(drafting, spec),
        }
    }

    fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
        match self {
            Self::Local(engine) => engine.token_bytes(),
            Self::Remote(engine, _) => engine.token_bytes(),
        }
    }
}
