//! Training of a byte-level BPE tokenizer in Qwen's style.

use std::path::PathBuf;

use serde_json::json;
use tokenizers::{
    AddedToken, TokenizerBuilder,
    decoders::DecoderWrapper,
    models::bpe::{BPE, BpeTrainerBuilder},
    normalizers::{NFC, NormalizerWrapper},
    pre_tokenizers::{
        PreTokenizerWrapper,
        byte_level::ByteLevel,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
    processors::PostProcessorWrapper,
    tokenizer::SplitDelimiterBehavior,
};

use super::{
    data::{DataOptions, END_OF_TEXT, END_OF_TURN, Excluded, HELD, Tally},
    encoder::Encoder,
    error::TrainError,
    state::OutputFolder,
};
use crate::files;
use crate::hf::write_json;
use crate::text::tokenizer::PATTERN;

/// Opens a turn in the ChatML framing.
const START_OF_TURN: &str = "<|im_start|>";

/// ChatML, without a default system message.
const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The settings of a tokenizer.
#[derive(Debug, Clone)]
pub struct TokenizerOptions {
    /// The text; weights are ignored. The same documents are held out as in language-model
    /// training.
    pub data: DataOptions,
    /// The number of entries, including the three special tokens.
    pub vocab_size: usize,
    /// The directory to write `tokenizer.json` and `tokenizer_config.json` to.
    pub output: PathBuf,
    /// Longest context, for `model_max_length`.
    pub max_length: usize,
}

/// Trains a tokenizer and writes it in Hugging Face's format.
///
/// The special tokens `<|endoftext|>`, `<|im_start|>` and `<|im_end|>` are the last three entries.
///
/// # Errors
///
/// If the data cannot be read, the vocabulary is smaller than the byte alphabet, or the files
/// cannot be written.
pub fn train_tokenizer(options: &TokenizerOptions) -> Result<Encoder, TrainError> {
    /// 256 bytes and three special tokens.
    const SMALLEST: usize = 259;
    const LARGEST: usize = 1 << 20;
    let TokenizerOptions { ref data, vocab_size, max_length, .. } = *options;
    let smallest = "must be at least 259, for 256 bytes and three special tokens";
    TrainError::check("vocab-size", vocab_size, vocab_size >= SMALLEST, smallest)?;
    TrainError::check("vocab-size", vocab_size, vocab_size <= LARGEST, "must be at most 1048576")?;
    TrainError::check_number("held-out", data.held_out, true)?;
    TrainError::check("held-out", data.held_out, data.held_out < 1.0, "must leave something to train on")?;
    TrainError::check_counts(&[("max-length", max_length as u64)])?;
    let _output = OutputFolder::claim(&options.output, None, &["tokenizer.json"])?;
    let refuse = |error: tokenizers::Error| TrainError::Tokenizer {
        path: options.output.display().to_string(),
        reason: error.to_string(),
    };
    let excluded = Excluded::load(&data.exclude)?;
    let (mut documents, mut tally) = (Vec::new(), Tally::default());
    for source in &data.sources {
        for row in excluded.rows(&source.path, &mut tally)? {
            if row.is_held_out(data.held_out) {
                tally.count(HELD);
            } else {
                documents.push(row.document());
            }
        }
    }
    tally.check("documents to train on", documents.is_empty())?;

    let split = Split::new(SplitPattern::Regex(PATTERN.into()), SplitDelimiterBehavior::Isolated, false).map_err(refuse)?;
    let bytes = ByteLevel::new(false, false, false);
    let mut trainer = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(vocab_size - 3)
        .min_frequency(2)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut built = TokenizerBuilder::new()
        .with_model(BPE::default())
        .with_normalizer(Some(NormalizerWrapper::from(NFC)))
        .with_pre_tokenizer(Some(PreTokenizerWrapper::from(Sequence::new(vec![split.into(), bytes.into()]))))
        .with_post_processor(Some(PostProcessorWrapper::from(bytes)))
        .with_decoder(Some(DecoderWrapper::from(bytes)))
        .build()
        .map_err(refuse)?;
    built.train(&mut trainer, documents.iter()).map_err(refuse)?;
    let special = [END_OF_TEXT, START_OF_TURN, END_OF_TURN].map(|token| AddedToken::from(token, true));
    built.add_special_tokens(special).map_err(refuse)?;
    let text = built.to_string(true).map_err(refuse)?;

    let config = json!({
        "tokenizer_class": "Qwen2Tokenizer",
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TEXT,
        "bos_token": null,
        "unk_token": null,
        "add_prefix_space": false,
        "add_bos_token": false,
        "clean_up_tokenization_spaces": false,
        "split_special_tokens": false,
        "model_max_length": max_length,
        "chat_template": CHAT_TEMPLATE,
    });
    write_json(&options.output.join("tokenizer_config.json"), &config)?;
    // Last, since a folder with a tokenizer counts as finished.
    let path = options.output.join("tokenizer.json");
    files::write_atomically(&path, text.as_bytes()).map_err(|source| TrainError::io(&path, source))?;
    Encoder::load(&options.output)
}
