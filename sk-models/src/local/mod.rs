//! Models in this process: loaded, checked against each other, on one device, and an [`Engine`] for
//! schemes.

mod random;

use std::path::PathBuf;
use std::sync::Arc;

use sk_core::{BoxError, DraftModel, Drafting, Engine, Generation, Prior, Proposal, SpecHandle, TokenId};

use crate::ConfigError;
use crate::assets;
use crate::decoder::{Decoder, Precision, PrecisionError, Scheduler};
use crate::device::{Device, DeviceError, DeviceName, free_memory, is_processor};
use crate::dialogue::Footing;
use crate::engine::{
    AdapterRack, Drafter, DrafterConfig, Frozen, HeadRack, InstructionRack, SharedVerifier, Soup, TokenPrior, Verifier,
    Vocabulary,
};
use crate::head::Head;
use crate::hf::{Checkpoint, CheckpointError, Progress, turn_ends};
use crate::lora::LoraAdapter;
use crate::text::{ChatTemplate, TextError, Tokenizer};

/// Bytes of keys and values that each model keeps for contexts that begin alike.
const SHARED: usize = 256 << 20;

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
pub enum ModelError {
    /// A model or tokenizer that cannot be loaded.
    #[error(transparent)]
    Checkpoint(Box<CheckpointError>),
    /// An adapter or head that cannot be loaded.
    #[error("blade \"{name}\": {source}")]
    Blade {
        /// The blade that reads with it.
        name: String,
        /// What is wrong with it.
        source: Box<CheckpointError>,
    },
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
    /// Drafter and backbone have different tokens.
    #[error(
        "drafter {drafter} and backbone {backbone} have different tokenizers (first difference: token {token}); use a drafter of the \
         same family"
    )]
    Tokenizers {
        /// The backbone.
        backbone: String,
        /// The drafter.
        drafter: String,
        /// The first id that stands for different bytes.
        token: u32,
    },
    /// A shape for random weights that cannot be read, or that no pair of models can have.
    #[error(transparent)]
    Shape(#[from] ConfigError),
    /// Shapes whose random weights do not fit into memory.
    #[error("{}: random weights of these shapes take {needed:.1} GB and {free:.1} GB of memory are free; use a smaller shape, --precision int8, or another --device", path.display())]
    ShapeMemory {
        /// The backbone's shape.
        path: PathBuf,
        /// What backbone and drafter take, in 10⁹ bytes.
        needed: f64,
        /// What is free, in 10⁹ bytes.
        free: f64,
    },
    /// Random weights have no checkpoint.
    #[error("models of random weights have no {what}; give --backbone DIR")]
    NoCheckpoint {
        /// What was asked for.
        what: &'static str,
    },
    /// The candidates of a step do not fit into memory.
    #[error(
        "{candidates} candidates take {needed:.1} GB and {free:.1} GB of memory are free; use fewer (--n, or candidates of [proposal]) or another --device"
    )]
    Memory {
        /// N.
        candidates: usize,
        /// What the drafter needs for them at least, in 10⁹ bytes.
        needed: f64,
        /// What is free, in 10⁹ bytes.
        free: f64,
    },
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
    device_name: DeviceName,
    device: Device,
}

impl Models {
    /// Loads backbone and drafter.
    ///
    /// # Errors
    /// When a model cannot be loaded, the two do not share a tokenizer, the device is not
    /// available, or no model is named and none embedded.
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
        let mut end_of_text = checkpoint.end_of_text();
        if let Some(drafter) = &drafter {
            same_tokens(&checkpoint, drafter)?;
            end_of_text.extend(drafter.end_of_text());
        }
        end_of_text.extend(turn_ends(&tokenizer));
        end_of_text.sort_unstable();
        end_of_text.dedup();

        progress.stage("loading the backbone");
        let scheduler = Scheduler::new();
        let backbone = Arc::new(checkpoint.decoder(&device, options.precision)?.scheduled(&scheduler).sharing_prefixes(SHARED));
        let drafter = match &drafter {
            Some(drafter) => {
                progress.stage("loading the drafter");
                Arc::new(drafter.decoder(&device, options.precision)?.scheduled(&scheduler).sharing_prefixes(SHARED))
            }
            None => Arc::clone(&backbone),
        };
        let heads = Vec::new();
        Ok(Self {
            backbone,
            drafter,
            scheduler,
            tokenizer,
            end_of_text,
            heads,
            checkpoint: Some(checkpoint),
            device_name,
            device,
        })
    }

    /// Loads heads for the backbone, each from its directory, by the names of their blades.
    ///
    /// # Errors
    /// When one cannot be loaded or does not fit.
    pub fn load_heads(&self, sources: &[(String, PathBuf)]) -> Result<Vec<(String, Head)>, ModelError> {
        let checkpoint = self.checkpoint("checkpoint to hold an adapter or head against")?;
        let load = |(name, directory): &(String, PathBuf)| {
            Ok((name.clone(), checkpoint.head(directory).map_err(ModelError::blade(name))?))
        };
        sources.iter().map(load).collect()
    }

    /// Loads the adapter for the backbone that the blade `name` reads with.
    ///
    /// # Errors
    /// When it cannot be found or does not fit.
    pub fn adapter(&self, name: &str, source: &str, progress: &mut dyn Progress) -> Result<LoraAdapter, ModelError> {
        progress.stage(&format!("loading blade {name}"));
        let checkpoint = self.checkpoint("checkpoint to hold an adapter or head against")?;
        checkpoint.adapter(source, &self.device, progress).map_err(ModelError::blade(name))
    }

    /// The backbone's chat template.
    ///
    /// # Errors
    /// When it has none, or one with a syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, ModelError> {
        Ok(self.checkpoint("chat template")?.chat_template()?)
    }

    fn checkpoint(&self, what: &'static str) -> Result<&Checkpoint, ModelError> {
        self.checkpoint.as_ref().ok_or(ModelError::NoCheckpoint { what })
    }

    /// The most tokens that both models hold.
    pub fn context_limit(&self) -> usize {
        self.backbone.config().max_position_embeddings.min(self.drafter.config().max_position_embeddings)
    }

    /// The device of the models.
    pub fn device(&self) -> DeviceName {
        self.device_name
    }

    /// The engine of one generation, whose backbone reads with the adapters of `adapters` and with
    /// `heads`.
    pub fn engine(&self, adapters: &AdapterRack, heads: &[(String, Head)]) -> LocalEngine<'_> {
        let rack = HeadRack::default();
        heads.iter().for_each(|(name, head)| rack.insert(name.as_str(), head.clone()));
        LocalEngine { models: self, adapters: adapters.clone(), heads: rack, instructions: InstructionRack::default() }
    }

    /// Checks that the CPU's memory has room for the candidates of `model`: the keys and values of
    /// at most `span` first tokens and one row of logits each. The backbone's memory depends on
    /// their lengths and comes on top.
    fn check_candidates(&self, model: &Decoder, candidates: usize, span: usize, free: Option<u64>) -> Result<(), ModelError> {
        let config = model.config();
        let kept = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * span.min(FIRST_TOKENS);
        let needed = candidates as f64 * (size_of::<f32>() * (kept + config.vocab_size)) as f64;
        match free.map(|free| free as f64).filter(|&free| is_processor(&self.device) && needed > free) {
            Some(free) => Err(ModelError::Memory { candidates, needed: needed / 1e9, free: free / 1e9 }),
            None => Ok(()),
        }
    }
}

/// [`Models`] with the adapters and heads of one generation.
pub struct LocalEngine<'m> {
    models: &'m Models,
    adapters: AdapterRack,
    heads: HeadRack,
    instructions: InstructionRack,
}

impl<'m> LocalEngine<'m> {
    /// What a session on this engine needs.
    #[must_use]
    pub fn footing(&self) -> Footing<'m> {
        Footing {
            tokenizer: &self.models.tokenizer,
            context_limit: self.models.context_limit(),
            instructions: self.instructions.clone(),
        }
    }

    /// The engine with the instructions of `rack`.
    #[must_use]
    pub fn with_instructions(self, rack: &InstructionRack) -> Self {
        Self { instructions: rack.clone(), ..self }
    }
}

impl Engine for LocalEngine<'_> {
    fn start(&self, drafting: &Drafting, spec: &SpecHandle) -> Result<Generation, BoxError> {
        let Models { backbone, drafter, end_of_text, .. } = self.models;
        let verifier = Verifier::with_racks(Arc::clone(backbone), self.adapters.clone(), self.heads.clone());
        let verifier = SharedVerifier::new(verifier.with_instructions(self.instructions.clone()));
        let proposal: Box<dyn Proposal> = match *drafting {
            Drafting::Sampled { model, candidates, sampling, keep_end_of_text, span_tokens } => {
                let candidates = candidates.get();
                let decoder = if model == DraftModel::Drafter { drafter } else { backbone };
                let span = span_tokens.map_or(usize::MAX, std::num::NonZeroUsize::get);
                self.models.check_candidates(decoder, candidates, span, free_memory())?;
                let config = DrafterConfig { candidates, sampling, end_of_text: end_of_text.clone(), keep_end_of_text };
                let sampled = Drafter::new(Arc::clone(decoder), config);
                match model {
                    DraftModel::Soup(merge) => {
                        Box::new(sampled.with_policy(Soup::new(self.adapters.clone(), spec.clone(), merge)))
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
                Box::new(Vocabulary::new(backbone, verifier.clone(), prior, head, end_of_text.clone()))
            }
        };
        Ok(Generation { backbone: Box::new(verifier), proposal })
    }

    /// Spare rows of the embedding have no bytes.
    fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
        let bytes = |token: usize| self.models.tokenizer.token_bytes(token as TokenId).unwrap_or_default().into();
        (0..self.models.backbone.config().vocab_size).map(bytes).collect()
    }
}

/// Checks that an id stands for the same bytes in both models, since drafts are passed on as ids.
fn same_tokens(backbone: &Checkpoint, drafter: &Checkpoint) -> Result<(), ModelError> {
    let (ours, theirs) = (backbone.tokenizer(), drafter.tokenizer());
    let bytes = |tokenizer: &Tokenizer, token| tokenizer.token_bytes(token).map(<[u8]>::to_vec).unwrap_or_default();
    let size = ours.vocab_size().max(theirs.vocab_size()) as TokenId;
    match (0..size).find(|&token| bytes(ours, token) != bytes(theirs, token)) {
        None => Ok(()),
        Some(token) => Err(ModelError::Tokenizers {
            backbone: backbone.directory().display().to_string(),
            drafter: drafter.directory().display().to_string(),
            token,
        }),
    }
}
