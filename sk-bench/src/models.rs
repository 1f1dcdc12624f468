//! The models a command runs on: loaded, checked against each other, and on their device.

use std::path::Path;
use std::sync::Arc;

use sk_core::TokenId;
use sk_models::assets;
use sk_models::device::{Device, DeviceName};
use sk_models::hf::Checkpoint;
use sk_models::lora::LoraAdapter;
use sk_models::model::Qwen2;
use sk_models::text::{ChatTemplate, TextError, Tokenizer};

use crate::Error;
use crate::args::{BladeArg, ModelArgs};
use crate::progress::Loading;
use crate::scheme::{SchemeConfig, SchemeError};

/// Tokens that end a turn or a text in every Qwen2 vocabulary. An instruct drafter ends its turns even where the backbone it drafts for
/// was never tuned and does not list them.
const END_TOKENS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// Backbone, drafter and what they share.
pub struct Models {
    /// π_B.
    pub backbone: Arc<Qwen2>,
    /// The model that drafts; the backbone itself where there is no other.
    pub drafter: Arc<Qwen2>,
    /// The tokenizer of both.
    pub tokenizer: Tokenizer,
    /// Tokens that end a response.
    pub end_of_text: Vec<TokenId>,
    checkpoint: Checkpoint,
    device_name: DeviceName,
    device: Device,
    embedded: Option<assets::Unpacked>,
}

impl Models {
    /// Loads backbone and drafter.
    ///
    /// # Errors
    /// When one cannot be loaded, they do not share a tokenizer, the device is unknown, or no model is named and none built in.
    pub fn load(args: &ModelArgs, loading: &mut Loading) -> Result<Self, Error> {
        let device_name = args.device;
        let device = device_name.open()?;
        let embedded = match &args.backbone {
            Some(_) => None,
            None if assets::is_embedded() => {
                let temporary = |source| Error::Write { path: std::env::temp_dir(), source };
                Some(assets::unpack().map_err(temporary)?)
            }
            None => return Err(Error::NothingEmbedded),
        };
        let mut open = |source: Option<&str>, built_in: Option<&Path>, role: &str| {
            loading.show(format!("opening the {role}"));
            match (source, built_in) {
                (Some(source), _) => Checkpoint::open(source, loading).map(Some),
                (None, Some(directory)) => Checkpoint::from_directory(directory).map(Some),
                (None, None) => Ok(None),
            }
        };
        let built_in = embedded.as_ref().map(assets::Unpacked::backbone);
        let Some(checkpoint) = open(args.backbone.as_deref(), built_in.as_deref(), "backbone")? else {
            return Err(Error::NothingEmbedded);
        };
        let built_in = embedded.as_ref().map(assets::Unpacked::drafter);
        let drafter = open(args.drafter.as_deref(), built_in.as_deref(), "drafter")?;
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
        let backbone = Arc::new(checkpoint.model(&device)?.prepare());
        let drafter = match &drafter {
            Some(drafter) => {
                loading.show("loading the drafter");
                Arc::new(drafter.model(&device)?.prepare())
            }
            None => Arc::clone(&backbone),
        };
        Ok(Self { backbone, drafter, tokenizer, end_of_text, checkpoint, device_name, device, embedded })
    }

    /// Loads the adapters that `config` and the command line name, and seats in `config` those that it does not know yet.
    ///
    /// # Errors
    /// When an adapter cannot be loaded, is named twice, or a blade of the scheme has none.
    pub fn adapters(
        &self,
        config: &mut SchemeConfig,
        given: &[BladeArg],
        loading: &mut Loading,
    ) -> Result<Vec<(String, LoraAdapter)>, Error> {
        for (i, blade) in given.iter().enumerate() {
            if given[..i].iter().any(|other| other.name == blade.name) {
                return Err(sk_core::SpecError::Duplicate { name: blade.name.clone() }.into());
            }
        }
        let built_in = if self.embedded.is_some() { assets::blades() } else { Vec::new() };
        if config.seat_all {
            built_in.iter().for_each(|name| config.seat(name));
        }
        given.iter().for_each(|blade| config.seat(&blade.name));

        let mut adapters = Vec::new();
        for (name, path) in config.adapters() {
            loading.show(format!("loading blade {name}"));
            let source = if let Some(blade) = given.iter().find(|blade| blade.name == name) {
                blade.source.clone()
            } else if let Some(path) = path {
                path.to_string_lossy().into_owned()
            } else if let Some(embedded) = self.embedded.as_ref().filter(|_| built_in.contains(&name)) {
                embedded.blade(name).to_string_lossy().into_owned()
            } else {
                let hint = format!("give --blade {name}=DIR, or adapter = \"DIR\" in its section");
                return Err(SchemeError::NoAdapter { name: name.to_owned(), hint }.into());
            };
            adapters.push((name.to_owned(), self.adapter(name, &source, loading)?));
        }
        Ok(adapters)
    }

    /// Loads one adapter for the backbone, to be seated as `name`.
    ///
    /// # Errors
    /// When it cannot be found or does not fit.
    pub fn adapter(&self, name: &str, source: &str, loading: &mut Loading) -> Result<LoraAdapter, Error> {
        let blame = |source| Error::Blade { name: name.to_owned(), source: Box::new(source) };
        self.checkpoint.adapter(source, &self.device, loading).map_err(blame)
    }

    /// The backbone's chat template.
    ///
    /// # Errors
    /// When it has none, or one with a syntax error.
    pub fn chat_template(&self) -> Result<ChatTemplate, TextError> {
        self.checkpoint.chat_template()
    }

    /// The most tokens that both models hold.
    pub fn context_limit(&self) -> usize {
        self.backbone.config.max_position_embeddings.min(self.drafter.config.max_position_embeddings)
    }

    /// What each token of the backbone's vocabulary reads; nothing for the spare rows of its embedding.
    pub fn token_bytes(&self) -> Arc<[Box<[u8]>]> {
        let bytes = |token: usize| self.tokenizer.token_bytes(token as TokenId).unwrap_or_default().into();
        (0..self.backbone.config.vocab_size).map(bytes).collect()
    }

    /// Where the models are.
    pub fn device(&self) -> DeviceName {
        self.device_name
    }
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
