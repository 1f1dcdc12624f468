//! Models in this process: loaded, checked against each other, on one device, and an [`Engine`] for
//! schemes.

mod footprint;
mod random;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sk_core::{BoxError, DraftModel, Drafting, Engine, Generation, Prior, Proposal, SpecHandle, TokenId};

use crate::ConfigError;
use crate::Qwen2Config;
use crate::assets;
use crate::decoder::{Decoder, Precision, PrecisionError, Scheduler};
use crate::device::{Device, DeviceError, DeviceName, is_cpu};
use crate::engine::{
    AdapterRack, Drafter, DrafterConfig, EngineError, Frozen, InstructionRack, Racks, SharedVerifier, Soup, TokenPrior,
    TokenScore, Verifier, Vocabulary,
};
use crate::head::Head;
use crate::hf::{Checkpoint, CheckpointError, Progress};
use crate::lora::LoraAdapter;
use crate::memory::free_memory;
use crate::text::{ChatTemplate, TextError, Tokenizer};

pub use crate::memory::Shortage;
use footprint::Account;
pub use footprint::{Claim, Extent};

/// The name by which a blade selects the drafter as the model that it reads under.
const DRAFTER: &str = "drafter";

/// What adapters and heads are checked with, for messages.
const REFERENCE: &str = "checkpoint to check an adapter or head with";

/// The most bytes of keys and values that a model caches for contexts with a common prefix.
const SHARED: u64 = 256 << 20;

/// A model on a CPU caches at most the free memory divided by this.
const PART: u64 = 16;

/// Returns a decoder whose passes `scheduler` joins and whose contexts share prefixes.
fn shared(decoder: Decoder, scheduler: &Scheduler, device: &Device) -> Arc<Decoder> {
    let free = free_memory().filter(|_| is_cpu(device));
    let bytes = free.map_or(SHARED, |free| SHARED.min(free / PART));
    Arc::new(decoder.scheduled(scheduler).sharing_prefixes(bytes as usize))
}

/// Tokens of a span that count in the estimate of the candidates' memory.
const FIRST_TOKENS: usize = 32;

/// The models to load, and their device.
#[derive(Debug, Clone, Default)]
pub struct ModelOptions {
    /// Directory or hub id of the backbone; the embedded model if not given.
    pub backbone: Option<String>,
    /// Directory or hub id of the drafter; the backbone itself if not given, or the embedded
    /// drafter beside the embedded backbone.
    pub drafter: Option<String>,
    /// The device.
    pub device: DeviceName,
    /// The precision of the weights of both.
    pub precision: Precision,
}

/// Models that cannot be loaded or used together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum ModelError {
    /// A model or tokenizer that cannot be loaded.
    #[error(transparent)]
    Checkpoint(Box<CheckpointError>),
    /// An adapter or head that cannot be loaded.
    #[error("blade \"{name}\": {source}")]
    Blade { name: String, source: Box<CheckpointError> },
    /// A device that is not available.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A precision that the device does not have.
    #[error(transparent)]
    Precision(#[from] PrecisionError),
    /// A chat template that does not exist or has an error.
    #[error(transparent)]
    Text(#[from] TextError),
    /// No model is named and none is embedded.
    #[error("this build of the program holds no model; give --backbone DIR")]
    NothingEmbedded,
    /// The drafter, or a model that a blade reads under, has other tokens than the backbone.
    #[error(
        "{drafter} and backbone {backbone} have different tokenizers (first difference: token {token}); use a model of the same family"
    )]
    Tokenizers { backbone: String, drafter: String, token: u32 },
    /// A shape for random weights that cannot be read, or that no pair of models can have.
    #[error(transparent)]
    Shape(#[from] ConfigError),
    /// Shapes whose random weights do not fit into memory.
    #[error("{}: random weights of these shapes take {shortage}; use a smaller shape, --precision int8, or another --device", path.display())]
    ShapeMemory { path: PathBuf, shortage: Shortage },
    /// Random weights have no checkpoint.
    #[error("models of random weights have no {what}; give --backbone DIR")]
    NoCheckpoint { what: &'static str },
    /// A blade reads under a model that is not loaded.
    #[error("blade \"{lane}\" reads under {on}, which is not loaded; load it with the other models")]
    NoReader { lane: String, on: String },
    /// The candidates of a step do not fit into memory.
    #[error("{candidates} candidates take {shortage}; use fewer (--n, or candidates of [proposal]) or another --device")]
    Memory { candidates: usize, shortage: Shortage },
}

impl From<CheckpointError> for ModelError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(Box::new(error))
    }
}

impl ModelError {
    fn blade(name: &str) -> impl FnOnce(CheckpointError) -> Self {
        move |source| Self::Blade { name: name.to_owned(), source: Box::new(source) }
    }
}

/// Backbone, drafter and what they share.
pub struct Models {
    /// π_B.
    pub backbone: Arc<Decoder>,
    /// The model that drafts; the backbone itself if there is no other.
    pub drafter: Arc<Decoder>,
    /// Joins the passes of requests that run on several threads.
    pub scheduler: Scheduler,
    /// The tokenizer of both.
    pub tokenizer: Tokenizer,
    /// Tokens that end a response.
    pub end_of_text: Vec<TokenId>,
    /// The heads of the backbone, by the names of their blades.
    pub heads: Vec<(String, Head)>,
    /// The files of the backbone; `None` for random weights.
    checkpoint: Option<Checkpoint>,
    /// The files of the drafter, if it is not the backbone.
    drafter_checkpoint: Option<Checkpoint>,
    /// The files and weights of other models, by their sources.
    others: Vec<(String, Checkpoint, Arc<Decoder>)>,
    precision: Precision,
    device_name: DeviceName,
    device: Device,
    account: Arc<Account>,
}

impl Models {
    /// Loads backbone and drafter.
    ///
    /// # Errors
    /// If a model cannot be loaded, the two do not share a tokenizer, the device is not available,
    /// or no model is named and none embedded.
    pub fn open(options: &ModelOptions, progress: &mut dyn Progress) -> Result<Self, ModelError> {
        let (device_name, device) = options.device.resolve()?;
        let embedded = if options.backbone.is_none() { assets::embedded() } else { None };
        let mut open = |given: Option<&str>, built_in: Option<PathBuf>, role: &str| {
            progress.stage(&format!("opening the {role}"));
            match (given, built_in) {
                (Some(source), _) => Checkpoint::open(source, progress).map(Some),
                (None, Some(directory)) => Checkpoint::from_directory(&directory).map(Some),
                (None, None) => Ok(None),
            }
        };
        let built_in = embedded.map(assets::Embedded::backbone);
        let checkpoint = open(options.backbone.as_deref(), built_in, "backbone")?.ok_or(ModelError::NothingEmbedded)?;
        let built_in = embedded.map(assets::Embedded::drafter);
        let drafter = open(options.drafter.as_deref(), built_in, "drafter")?;
        let tokenizer = checkpoint.tokenizer().clone();
        let mut end_of_text = checkpoint.end_of_text().to_vec();
        if let Some(drafter) = &drafter {
            same_tokens(&checkpoint, drafter)?;
            end_of_text.extend(drafter.end_of_text());
        }
        end_of_text.sort_unstable();
        end_of_text.dedup();

        let mut load = |checkpoint: &Checkpoint, role| {
            progress.stage(&format!("loading the {role}"));
            checkpoint.decoder(&device, options.precision)
        };
        let backbone = load(&checkpoint, "backbone")?;
        let small = drafter.as_ref().map(|drafter| load(drafter, "drafter")).transpose()?;
        let models = Self::joined((backbone, small), tokenizer, options.precision, (device_name, device));
        Ok(Self { end_of_text, checkpoint: Some(checkpoint), drafter_checkpoint: drafter, ..models })
    }

    /// Returns models whose passes are joined, without files and heads. Without a drafter, the
    /// backbone drafts.
    fn joined(
        (backbone, drafter): (Decoder, Option<Decoder>),
        tokenizer: Tokenizer,
        precision: Precision,
        (device_name, device): (DeviceName, Device),
    ) -> Self {
        let scheduler = Scheduler::new();
        let backbone = shared(backbone, &scheduler, &device);
        let drafter = drafter.map_or_else(|| Arc::clone(&backbone), |drafter| shared(drafter, &scheduler, &device));
        Self {
            backbone,
            drafter,
            scheduler,
            tokenizer,
            end_of_text: Vec::new(),
            heads: Vec::new(),
            checkpoint: None,
            drafter_checkpoint: None,
            others: Vec::new(),
            precision,
            device_name,
            device,
            account: Arc::default(),
        }
    }

    /// Loads heads for the backbone, each from its directory, by the names of their blades.
    ///
    /// # Errors
    /// If one cannot be loaded or does not fit.
    pub fn load_heads(&self, sources: &[(String, PathBuf)]) -> Result<Vec<(String, Head)>, ModelError> {
        let checkpoint = self.checkpoint(REFERENCE)?;
        let load = |(name, directory): &(String, PathBuf)| {
            Ok((name.clone(), checkpoint.head(directory).map_err(ModelError::blade(name))?))
        };
        sources.iter().map(load).collect()
    }

    /// Loads the model that the blade `name` reads under in place of the backbone, from a directory
    /// or by its hub id, unless it is the drafter or is loaded already.
    ///
    /// # Errors
    /// If it cannot be loaded, or has another tokenizer.
    pub fn open_reader(&mut self, name: &str, on: &str, progress: &mut dyn Progress) -> Result<(), ModelError> {
        if self.reader(on).is_some() {
            return Ok(());
        }
        progress.stage(&format!("loading the model of blade {name}"));
        let checkpoint = Checkpoint::open(on, progress).map_err(ModelError::blade(name))?;
        same_tokens(self.checkpoint("tokenizer to compare with that of another model")?, &checkpoint)?;
        let decoder = checkpoint.decoder(&self.device, self.precision).map_err(ModelError::blade(name))?;
        self.others.push((on.to_owned(), checkpoint, shared(decoder, &self.scheduler, &self.device)));
        Ok(())
    }

    /// Returns the model that blades select by the name `on`: the drafter, or one that
    /// [`open_reader`](Self::open_reader) loaded.
    fn reader(&self, on: &str) -> Option<&Arc<Decoder>> {
        if on == DRAFTER {
            return Some(&self.drafter);
        }
        self.others.iter().find(|(source, ..)| source == on).map(|(.., model)| model)
    }

    /// Loads the adapter that the blade `name` reads with, for the backbone or the model `on`: the
    /// drafter, or one of [`open_reader`](Self::open_reader).
    ///
    /// # Errors
    /// If it cannot be found or does not fit.
    pub fn adapter(
        &self,
        name: &str,
        source: &str,
        on: Option<&str>,
        progress: &mut dyn Progress,
    ) -> Result<LoraAdapter, ModelError> {
        progress.stage(&format!("loading blade {name}"));
        let other = match on {
            Some(DRAFTER) => self.drafter_checkpoint.as_ref(),
            Some(on) => self.others.iter().find(|(source, ..)| source == on).map(|(_, checkpoint, _)| checkpoint),
            None => None,
        };
        let checkpoint = other.map_or_else(|| self.checkpoint(REFERENCE), Ok)?;
        checkpoint.adapter(source, &self.device, progress).map_err(ModelError::blade(name))
    }

    /// Returns the most bytes that the adapter of the blade `name` takes, given by its directory and
    /// made for the backbone. Does not read its weights.
    ///
    /// # Errors
    /// If the directory is not that of an adapter, or the adapter uses an unsupported feature.
    pub fn adapter_bytes(&self, name: &str, directory: &Path) -> Result<u64, ModelError> {
        let checkpoint = self.checkpoint(REFERENCE)?;
        checkpoint.adapter_bytes(directory).map_err(ModelError::blade(name))
    }

    /// Returns the backbone's chat template.
    ///
    /// # Errors
    /// If it has none, or one with a syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, ModelError> {
        Ok(self.checkpoint("chat template")?.chat_template()?)
    }

    fn checkpoint(&self, what: &'static str) -> Result<&Checkpoint, ModelError> {
        self.checkpoint.as_ref().ok_or(ModelError::NoCheckpoint { what })
    }

    /// Scores tokens with the backbone, as [`Frozen::score`] does. [Claim](Self::claim) its memory,
    /// that of one lane, before.
    ///
    /// # Errors
    /// As [`Frozen::score`].
    ///
    /// # Panics
    /// If `from` is 0.
    pub fn score(&self, text: &[TokenId], from: usize, top: usize) -> Result<Vec<TokenScore>, EngineError> {
        Frozen::new(Arc::clone(&self.backbone)).score(text, from, top)
    }

    /// Returns the largest number of tokens that all models hold.
    pub fn context_limit(&self) -> usize {
        self.least(|config| config.max_position_embeddings)
    }

    /// Returns the number of tokens that all models embed.
    fn vocab_size(&self) -> usize {
        self.least(|config| config.vocab_size)
    }

    fn least(&self, size: fn(&Qwen2Config) -> usize) -> usize {
        self.decoders().map(|model| size(model.config())).min().expect("there is a backbone")
    }

    /// Returns the distinct models: the backbone, the drafter, and those that blades read.
    pub fn decoders(&self) -> impl Iterator<Item = &Arc<Decoder>> {
        let drafter = Some(&self.drafter).filter(|drafter| !Arc::ptr_eq(&self.backbone, drafter));
        std::iter::once(&self.backbone).chain(drafter).chain(self.others.iter().map(|(.., model)| model))
    }

    /// Returns the device of the models.
    pub fn device(&self) -> DeviceName {
        self.device_name
    }

    /// Returns the engine of one generation. Its backbone reads with the adapters of `adapters` and
    /// with `heads`.
    pub fn engine(&self, adapters: &AdapterRack, heads: &[(String, Head)]) -> LocalEngine<'_> {
        let racks = Racks { adapters: adapters.clone(), ..Racks::default() };
        heads.iter().for_each(|(name, head)| racks.heads.insert(name.as_str(), head.clone()));
        LocalEngine { models: self, racks }
    }
}

/// [`Models`] with the adapters and heads of one generation.
pub struct LocalEngine<'m> {
    models: &'m Models,
    racks: Racks,
}

impl LocalEngine<'_> {
    /// Returns the engine with the instructions of `rack`.
    #[must_use]
    pub fn with_instructions(mut self, rack: &InstructionRack) -> Self {
        self.racks.instructions = rack.clone();
        self
    }

    /// Returns the engine with lanes that read under another model than the backbone. Each entry is
    /// the name of a lane, and `"drafter"` or the source of a model that [`Models::open_reader`]
    /// loaded.
    ///
    /// # Errors
    /// If a model is not loaded.
    pub fn with_readers<'r>(self, lanes: impl IntoIterator<Item = (String, &'r str)>) -> Result<Self, ModelError> {
        for (lane, on) in lanes {
            let reader = self.models.reader(on).ok_or_else(|| ModelError::NoReader { lane: lane.clone(), on: on.to_owned() })?;
            self.racks.readers.insert(lane, Arc::clone(reader));
        }
        Ok(self)
    }
}

impl Engine for LocalEngine<'_> {
    fn start(&self, drafting: &Drafting, spec: &SpecHandle) -> Result<Generation, BoxError> {
        let Models { backbone, drafter, end_of_text, .. } = self.models;
        let verifier = SharedVerifier::new(Verifier::new(Arc::clone(backbone), self.racks.clone()));
        let proposal: Box<dyn Proposal> = match *drafting {
            Drafting::Sampled { model, candidates, sampling, keep_end_of_text, span_tokens } => {
                let candidates = candidates.get();
                let decoder = if model == DraftModel::Drafter { drafter } else { backbone };
                // The rest of the context and of the candidates is checked once their lengths are
                // known.
                let span = span_tokens.map_or(FIRST_TOKENS, |span| span.get().min(FIRST_TOKENS));
                let drafter = model == DraftModel::Drafter;
                let extent = Extent { lanes: usize::from(!drafter), drafter, candidates, span, ..Extent::default() };
                let room = self.models.check_room(self.models.footprint(extent));
                room.map_err(|shortage| ModelError::Memory { candidates, shortage })?;
                let config = DrafterConfig { candidates, sampling, end_of_text: end_of_text.clone(), keep_end_of_text };
                let sampled = Drafter::new(Arc::clone(decoder), config).with_vocab_size(self.models.vocab_size());
                match model {
                    DraftModel::Soup(merge) => {
                        Box::new(sampled.with_soup(Soup::new(self.racks.adapters.clone(), spec.clone(), merge)))
                    }
                    DraftModel::Drafter | DraftModel::Backbone => Box::new(sampled),
                }
            }
            Drafting::Vocabulary { prior, head } => {
                let prior = match prior {
                    Prior::Uniform => TokenPrior::Uniform,
                    Prior::Backbone => TokenPrior::Backbone,
                    Prior::Drafter => TokenPrior::Model(Box::new(Frozen::new(Arc::clone(drafter)))),
                };
                let vocabulary = Vocabulary::new(backbone, verifier.clone(), prior, head, end_of_text.clone());
                Box::new(vocabulary.with_vocab_size(self.models.vocab_size()))
            }
        };
        Ok(Generation { backbone: Box::new(verifier), proposal })
    }

    /// Returns the bytes of each token. Spare rows of the embedding have none.
    fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
        let bytes = |token: usize| self.models.tokenizer.token_bytes(token as TokenId).unwrap_or_default().into();
        (0..self.models.backbone.config().vocab_size).map(bytes).collect()
    }
}

/// Checks that an id stands for the same bytes in both models, since drafts are passed on as ids.
fn same_tokens(backbone: &Checkpoint, drafter: &Checkpoint) -> Result<(), ModelError> {
    let (ours, theirs) = (backbone.tokenizer(), drafter.tokenizer());
    if ours.is_shared_with(theirs) {
        return Ok(());
    }
    let is_other = |&token: &TokenId| {
        let [ours, theirs] = [ours, theirs].map(|tokenizer| tokenizer.token_bytes(token).unwrap_or_default());
        ours != theirs
    };
    let size = ours.vocab_size().max(theirs.vocab_size()) as TokenId;
    match (0..size).find(is_other) {
        None => Ok(()),
        Some(token) => Err(ModelError::Tokenizers {
            backbone: backbone.directory().display().to_string(),
            drafter: drafter.directory().display().to_string(),
            token,
        }),
    }
}
