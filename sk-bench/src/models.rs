//! The models a command runs on: loaded, checked against each other, and on their device.

mod heads;
mod random;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sk_core::TokenId;
use sk_models::assets;
use sk_models::decoder::{Batcher, Decoder};
use sk_models::device::{Device, DeviceName, is_processor};
use sk_models::head::Head;
use sk_models::hf::{Checkpoint, head_kind};
use sk_models::lora::LoraAdapter;
use sk_models::text::{ChatTemplate, Tokenizer};

use crate::Error;
use crate::args::{BladeArg, ModelArgs};
use crate::pool::{PlannedArm, PoolError};
use crate::progress::Loading;
use crate::scheme::{SchemeConfig, SchemeError};

/// Tokens that end a turn or a text in every Qwen2 vocabulary. An instruct drafter ends its turns even where the backbone it drafts for
/// was never tuned and does not list them.
const END_TOKENS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// Tokens of a span that are sure to be kept, whatever ends it, where memory is estimated.
const FIRST_TOKENS: usize = 32;

/// Backbone, drafter and what they share.
pub struct Models {
    /// π_B.
    pub backbone: Arc<Decoder>,
    /// The model that drafts; the backbone itself where there is no other.
    pub drafter: Arc<Decoder>,
    /// Where threads meet whose generations share passes of both models.
    pub batcher: Batcher,
    /// The tokenizer of both.
    pub tokenizer: Tokenizer,
    /// Tokens that end a response.
    pub end_of_text: Vec<TokenId>,
    /// The heads of the backbone, by the names of their blades.
    pub heads: Vec<(String, Head)>,
    /// Where the backbone was read from; none of random weights.
    checkpoint: Option<Checkpoint>,
    device_name: DeviceName,
    device: Device,
}

impl Models {
    /// Loads backbone and drafter, and the heads and adapters that `config` and the command line name. What `config` does not know yet is
    /// seated in it, adapters that ship with the program only where it seats all.
    ///
    /// # Errors
    /// When a model, adapter or head cannot be loaded, backbone and drafter do not share a tokenizer, the device cannot be had, a blade has no
    /// adapter or there is none, or no model is named and none built in.
    pub fn load(
        args: &ModelArgs,
        config: &mut SchemeConfig,
        loading: &mut Loading,
    ) -> Result<(Self, Vec<(String, LoraAdapter)>), Error> {
        Self::load_pool(args, config, &mut [], loading)
    }

    /// [`load`](Self::load) for a scheme and the arms that choose from its candidates, with the heads and adapters of all of them. Those on
    /// the command line are for the arms that name them or seat whatever there is; weights that name no blade of an arm are not for it.
    ///
    /// # Errors
    /// As [`load`](Self::load), for any arm, or when two of them call different adapters or heads by one name.
    pub fn load_pool(
        args: &ModelArgs,
        config: &mut SchemeConfig,
        arms: &mut [PlannedArm],
        loading: &mut Loading,
    ) -> Result<(Self, Vec<(String, LoraAdapter)>), Error> {
        // What can be refused without reading gigabytes is.
        let embedded = embedded_for(args)?;
        let fits = |head: &&BladeArg| Ok(arms.is_empty() || heads::misfit(config, head)?.is_none());
        let fitting = args.heads.iter().filter_map(|head| fits(&head).map(|fits| fits.then(|| head.clone())).transpose());
        let fitting: Vec<BladeArg> = fitting.collect::<Result<_, Error>>()?;
        let mut heads = heads::sources(config, &fitting, &args.blades, embedded)?;
        let mut sources = adapter_sources(args, config)?;
        config.spec()?;
        for PlannedArm { name, config } in &mut *arms {
            let args = args.for_scheme(config);
            let mut resolve = || {
                join(&mut heads, head_sources(&args, config)?)?;
                join(&mut sources, adapter_sources(&args, config)?)?;
                config.forget_foreign_weights();
                config.spec()?;
                Ok(())
            };
            resolve().map_err(|source| PoolError::Arm { arm: name.clone(), source: Box::new(source) })?;
        }
        for head in args.heads.iter().filter(|head| !heads.iter().any(|(name, _)| *name == head.name)) {
            if let Some(error) = heads::misfit(config, head)? {
                return Err(error.into());
            }
        }
        let mut models = Self::open(args, loading)?;
        models.heads = heads::load(heads, models.checkpoint()?)?;
        for config in std::iter::once(&*config).chain(arms.iter().map(|arm| &arm.config)) {
            heads::check(config, &models.heads)?;
        }
        let mut adapters = Vec::with_capacity(sources.len());
        for (name, source) in sources {
            let adapter = models.adapter(&name, &source, loading)?;
            adapters.push((name, adapter));
        }
        Ok((models, adapters))
    }

    /// Checks that every adapter and head that `config` needs has a source, without loading any.
    ///
    /// # Errors
    /// As [`load`](Self::load), as far as it can be told.
    pub fn resolve(args: &ModelArgs, config: &SchemeConfig) -> Result<(), Error> {
        let mut config = config.clone();
        let args = args.for_scheme(&config);
        head_sources(&args, &mut config)?;
        adapter_sources(&args, &mut config)?;
        config.spec()?;
        Ok(())
    }

    /// Loads backbone and drafter alone.
    ///
    /// # Errors
    /// When a model cannot be loaded, the two do not share a tokenizer, the device cannot be had, or no model is named and none built in.
    pub fn open(args: &ModelArgs, loading: &mut Loading) -> Result<Self, Error> {
        let (device_name, device) = args.device.resolve()?;
        let embedded = embedded_for(args)?;
        let mut open = |given: Option<&str>, built_in: Option<PathBuf>, role: &str| {
            loading.show(format!("opening the {role}"));
            match (given, built_in) {
                (Some(source), _) => Checkpoint::open(source, loading).map(Some),
                (None, Some(directory)) => Checkpoint::from_directory(&directory).map(Some),
                (None, None) => Ok(None),
            }
        };
        let built_in = embedded.map(assets::Embedded::backbone);
        let checkpoint = open(args.backbone.as_deref(), built_in, "backbone")?.ok_or(Error::NothingEmbedded)?;
        let built_in = embedded.map(assets::Embedded::drafter);
        let drafter = open(args.drafter.as_deref(), built_in, "drafter")?;
        let tokenizer = checkpoint.tokenizer().clone();
        let mut end_of_text = checkpoint.end_of_text();
        if let Some(drafter) = &drafter {
            same_tokens(&checkpoint, drafter)?;
            end_of_text.extend(drafter.end_of_text());
        }
        end_of_text.extend(END_TOKENS.iter().filter_map(|token| tokenizer.id_of(token)));
        end_of_text.sort_unstable();
        end_of_text.dedup();

        loading.show("loading the backbone");
        let batcher = Batcher::new();
        let backbone = Arc::new(checkpoint.decoder(&device, args.precision)?.batched(&batcher));
        let drafter = match &drafter {
            Some(drafter) => {
                loading.show("loading the drafter");
                Arc::new(drafter.decoder(&device, args.precision)?.batched(&batcher))
            }
            None => Arc::clone(&backbone),
        };
        let heads = Vec::new();
        Ok(Self { backbone, drafter, batcher, tokenizer, end_of_text, heads, checkpoint: Some(checkpoint), device_name, device })
    }

    /// Loads heads for the blades of `config`.
    ///
    /// # Errors
    /// When one cannot be loaded, or is not of the kind of its blade.
    pub fn load_heads(&self, config: &SchemeConfig, sources: &[(String, PathBuf)]) -> Result<Vec<(String, Head)>, Error> {
        let heads = heads::load(sources.to_vec(), self.checkpoint()?)?;
        heads::check(config, &heads)?;
        Ok(heads)
    }

    /// Loads one adapter for the backbone, to be seated as `name`.
    ///
    /// # Errors
    /// When it cannot be found or does not fit.
    pub fn adapter(&self, name: &str, source: &str, loading: &mut Loading) -> Result<LoraAdapter, Error> {
        loading.show(format!("loading blade {name}"));
        let blame = |source| Error::Blade { name: name.to_owned(), source: Box::new(source) };
        self.checkpoint()?.adapter(source, &self.device, loading).map_err(blame)
    }

    /// The backbone's chat template.
    ///
    /// # Errors
    /// When it has none, or one with a syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, Error> {
        Ok(self.checkpoint.as_ref().ok_or(Error::NoCheckpoint { what: "chat template" })?.chat_template()?)
    }

    fn checkpoint(&self) -> Result<&Checkpoint, Error> {
        self.checkpoint.as_ref().ok_or(Error::NoCheckpoint { what: "checkpoint to hold an adapter or head against" })
    }

    /// The most tokens that both models hold.
    pub fn context_limit(&self) -> usize {
        self.backbone.config().max_position_embeddings.min(self.drafter.config().max_position_embeddings)
    }

    /// Checks that the processor's memory has room for what `model` keeps of so many candidates that it drafts: keys and values of their first
    /// tokens, at most `span`, and one row of logits each. What the backbone keeps depends on their lengths, and comes on top.
    ///
    /// # Errors
    /// When it has not.
    pub(crate) fn check_candidates(
        &self,
        model: &Decoder,
        candidates: usize,
        span: usize,
        free: Option<u64>,
    ) -> Result<(), SchemeError> {
        let config = model.config();
        let kept = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * span.min(FIRST_TOKENS);
        let needed = candidates as f64 * (size_of::<f32>() * (kept + config.vocab_size)) as f64;
        match free.map(|free| free as f64).filter(|&free| is_processor(&self.device) && needed > free) {
            Some(free) => Err(SchemeError::Memory { candidates, needed: needed / 1e9, free: free / 1e9 }),
            None => Ok(()),
        }
    }

    /// What each token of the backbone's vocabulary reads; nothing for the spare rows of its embedding.
    pub fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
        let bytes = |token: usize| self.tokenizer.token_bytes(token as TokenId).unwrap_or_default().into();
        (0..self.backbone.config().vocab_size).map(bytes).collect()
    }

    /// Where the models are.
    pub fn device(&self) -> DeviceName {
        self.device_name
    }
}

/// Adds what another arm reads with; one name stands for one thing.
fn join<T: PartialEq + AsRef<Path>>(all: &mut Vec<(String, T)>, more: Vec<(String, T)>) -> Result<(), Error> {
    for (name, source) in more {
        match all.iter().find(|(known, _)| *known == name) {
            None => all.push((name, source)),
            Some((_, known)) if *known == source => {}
            Some((_, known)) => {
                let [first, second] = [known, &source].map(|source| source.as_ref().display().to_string());
                return Err(PoolError::Sources { name, first, second }.into());
            }
        }
    }
    Ok(())
}

/// The model that ships, where no other backbone is named.
fn embedded_for(args: &ModelArgs) -> Result<Option<assets::Embedded>, Error> {
    match &args.backbone {
        Some(_) => Ok(None),
        None => assets::embedded().ok_or(Error::NothingEmbedded).map(Some),
    }
}

/// Where the head of each blade of `config` is: among those of `args` that are of a kind that it reads, in the scheme file, or in the program.
/// Heads that `config` does not know yet are seated in it where its template reads them.
///
/// # Errors
/// When a head of `args` cannot be read, or a blade has none.
pub(crate) fn head_sources(args: &ModelArgs, config: &mut SchemeConfig) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut given = Vec::new();
    for head in &args.heads {
        let blame = |source| Error::Blade { name: head.name.clone(), source: Box::new(source) };
        let kind = Some(head_kind(Path::new(&head.source)).map_err(blame)?);
        let listed = config.blades.iter().find(|blade| blade.name == head.name);
        if listed.or(config.template.as_ref()).is_some_and(|blade| blade.kind.head() == kind) {
            given.push(head.clone());
        }
    }
    heads::sources(config, &given, &args.blades, embedded_for(args)?)
}

/// Where the adapter of each blade of `config` is: on the command line, in the scheme file, or in the program. Adapters that `config` does
/// not know yet are seated in it.
///
/// # Errors
/// When a blade has no adapter or is given twice, or no model is named and none built in.
pub(crate) fn adapter_sources(args: &ModelArgs, config: &mut SchemeConfig) -> Result<Vec<(String, String)>, Error> {
    let (given, embedded) = (&args.blades, embedded_for(args)?);
    for (i, blade) in given.iter().enumerate() {
        if given[..i].iter().any(|other| other.name == blade.name) {
            return Err(SchemeError::GivenTwice { option: "blade", name: blade.name.clone() }.into());
        }
    }
    let built_in = embedded.map(assets::Embedded::blades).unwrap_or_default();
    if config.template.as_ref().is_some_and(|template| template.kind.head().is_none()) {
        built_in.iter().for_each(|name| config.seat(name));
    }
    given.iter().for_each(|blade| config.seat(&blade.name));

    let source = |(name, in_file): (String, Option<&PathBuf>)| {
        let on_command_line = given.iter().find(|blade| blade.name == name).map(|blade| blade.source.clone());
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let source = on_command_line.or_else(|| in_file.cloned().map(text)).or_else(|| {
            let embedded = embedded.filter(|_| built_in.contains(&name.as_str()))?;
            Some(text(embedded.blade(&name)))
        });
        let hint = || format!("give --blade {name}=DIR, or adapter = \"DIR\" in its section");
        match source {
            Some(source) => Ok((name, source)),
            None => Err(SchemeError::NoAdapter { hint: hint(), name }.into()),
        }
    };
    config.adapters().map(source).collect()
}

/// Drafts are handed to the backbone as token ids, so an id must stand for the same bytes in both.
fn same_tokens(backbone: &Checkpoint, drafter: &Checkpoint) -> Result<(), Error> {
    let (ours, theirs) = (backbone.tokenizer(), drafter.tokenizer());
    let bytes = |tokenizer: &Tokenizer, token| tokenizer.token_bytes(token).map(<[u8]>::to_vec).unwrap_or_default();
    let size = ours.vocab_size().max(theirs.vocab_size()) as TokenId;
    match (0..size).find(|&token| bytes(ours, token) != bytes(theirs, token)) {
        None => Ok(()),
        Some(token) => Err(Error::Tokenizers {
            backbone: backbone.directory().display().to_string(),
            drafter: drafter.directory().display().to_string(),
            token,
        }),
    }
}
