//! `swiss-knife train`: the tokenizer, the language model, and adapters and heads from preferences.

// Doc comments of arguments are help texts, in which brackets mark optional parts.
#![allow(rustdoc::broken_intra_doc_links)]

mod head;
mod judge;
mod options;
mod progress;

use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, Subcommand};
use sk_models::{
    Qwen2Config,
    decoder::Precision,
    device::DeviceName,
    head::HeadKind,
    hf,
    lora::Target,
    train::{
        data::{DataOptions, HELD_OUT, Source, write_rows},
        dpo::{DpoOptions, train_dpo, unseen_pairs},
        grammar::Grammar,
        lm::{LmOptions, train_lm},
        optimizer::Rule,
        preference::PreferenceLoss,
        state::{OutputFolder, WeightType},
        tokenizer::{TokenizerOptions, train_tokenizer},
    },
};

use crate::args::{choice, files_in, one_of, written};
use crate::plural::counted;
use crate::progress::Loading;
use crate::record_file::spare;
use crate::{Error, interrupt, output};

pub(crate) use head::HeadArgs;
pub(crate) use judge::JudgeModelArgs;
use options::{DataArgs, RunArgs};
pub(super) use progress::Bar;

/// What to train.
#[derive(Debug, Subcommand)]
pub enum TrainCommand {
    /// Draw dialogues and preference pairs from a grammar
    Text(TextArgs),
    /// Train a byte-level BPE tokenizer in Qwen's manner
    Tokenizer(TokenizerArgs),
    /// Train a Qwen2 language model, from scratch or from another's weights
    Lm(LmArgs),
    /// Train a LoRA adapter of a frozen model from preference pairs, by DPO
    Dpo(DpoArgs),
    /// Train a head that tells from any prefix of an answer whether it will be of the chosen kind:
    /// FUDGE's discriminator
    Discriminator(HeadArgs),
    /// Train a head that gives the chosen answer of a pair the higher reward
    RewardHead(HeadArgs),
    /// Fit a judge of one axis to preference pairs: a linear model of words that needs no server,
    /// for `judge --offline`
    Judge(JudgeModelArgs),
}

/// Settings of `train text`.
#[derive(Debug, Args)]
pub struct TextArgs {
    /// Folder with the .toml files of the grammar
    #[arg(long, value_name = "DIR")]
    grammar: PathBuf,
    /// Dialogues to draw
    #[arg(long, value_name = "COUNT")]
    dialogues: usize,
    /// Preference pairs to draw for each axis of the grammar
    #[arg(long, value_name = "COUNT")]
    pairs: usize,
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Directory to write dialogues.jsonl.gz and pairs-AXIS.jsonl.gz to; a finished text is not
    /// overwritten
    #[arg(long, short, value_name = "DIR", value_parser = written())]
    output: PathBuf,
}

/// Settings of `train tokenizer`.
#[derive(Debug, Args)]
pub struct TokenizerArgs {
    /// A .jsonl or .jsonl.gz file of text, dialogues or pairs; may be repeated
    #[arg(long = "data", value_name = "FILE", required = true)]
    data: Vec<Source>,
    /// Leave out rows that share a question with this .jsonl, .jsonl.gz or .csv file; may be
    /// repeated
    #[arg(long, value_name = "FILE")]
    exclude: Vec<PathBuf>,
    /// Entries, special tokens included
    #[arg(long, default_value_t = 4096)]
    vocab_size: usize,
    /// Share of the documents left out
    #[arg(long, default_value_t = HELD_OUT)]
    held_out: f64,
    /// Longest context, recorded in tokenizer_config.json
    #[arg(long, default_value_t = 1024)]
    max_length: usize,
    /// Directory to write tokenizer.json and tokenizer_config.json to
    #[arg(long, short, value_name = "DIR", value_parser = written())]
    output: PathBuf,
}

const RULES: &[(&str, &str, Rule)] =
    &[("adamw", "AdamW for everything", Rule::Adamw), ("muon", "Muon for the layers' matrices, AdamW for the rest", Rule::Muon)];

const PRECISIONS: &[(&str, &str, WeightType)] =
    &[("f16", "Half precision", WeightType::F16), ("f32", "Single precision", WeightType::F32)];

/// Settings of `train lm`.
#[derive(Debug, Args)]
#[command(
    mut_arg("batch", |arg| arg.help("Windows per forward pass")),
    mut_arg("length", |arg| arg.help("Tokens per window")),
    mut_arg("rate", |arg| arg.default_value("0.003")),
    mut_arg("warmup", |arg| arg.default_value("100")),
    mut_arg("floor", |arg| arg.default_value("0.02")),
    mut_arg("weight_decay", |arg| arg.default_value("0.1")),
    mut_arg("evaluate_every", |arg| arg.default_value("200")),
    mut_arg("save_every", |arg| arg.default_value("100"))
)]
pub struct LmArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Directory with tokenizer.json, or a part of the model that ships such as embedded:backbone;
    /// that of --init if not given
    #[arg(long, value_name = "DIR", required_unless_present = "init")]
    tokenizer: Option<PathBuf>,
    /// Model directory to continue from, whose shape is kept but for --layers, or a part of the
    /// model that ships such as embedded:backbone; no hub id
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["hidden", "intermediate", "heads", "kv_heads", "head_dim", "max_length"])]
    init: Option<PathBuf>,
    /// Directory for the model; a checkpoint found there is resumed, and a finished model not
    /// overwritten
    #[arg(long, short, value_name = "DIR", value_parser = written())]
    output: PathBuf,
    /// Device: auto, cpu, cuda[:N] or wgpu[:N], of those that the program was built with
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceName,
    /// Width of the residual stream
    #[arg(long, default_value_t = 256)]
    hidden: usize,
    /// Width of the feed-forward layers
    #[arg(long, default_value_t = 704)]
    intermediate: usize,
    /// Layers, 6 if not given; of --init, those to keep, evenly spaced from the first to the last
    #[arg(long)]
    layers: Option<usize>,
    /// Query heads
    #[arg(long, default_value_t = 4)]
    heads: usize,
    /// Key and value heads
    #[arg(long, default_value_t = 2)]
    kv_heads: usize,
    /// Width of a head
    #[arg(long, default_value_t = 64)]
    head_dim: usize,
    /// Longest context the model may be used with
    #[arg(long, default_value_t = 1024)]
    max_length: usize,
    #[command(flatten)]
    run: RunArgs,
    /// Optimiser of the layers' matrices
    #[arg(long, default_value = "muon", value_parser = choice(RULES))]
    optimizer: Rule,
    /// Held-out windows per measurement
    #[arg(long, default_value_t = 64)]
    evaluate_windows: usize,
    /// Type of the written weights
    #[arg(long, default_value = "f16", value_parser = choice(PRECISIONS))]
    precision: WeightType,
}

/// The framings of prompts in pairs, and whether each is the chat template.
pub(super) const FRAMINGS: &[(&str, &str, bool)] =
    &[("hh", "\"Human: … Assistant:\", as in the HH-RLHF data", false), ("chat", "The chat template of the model", true)];

/// Settings of `train dpo`.
#[derive(Debug, Args)]
pub struct DpoArgs {
    #[command(flatten)]
    data: DataArgs,
    /// Measure the finished adapter on the pairs of this .jsonl or .jsonl.gz file too; may be
    /// repeated
    #[arg(long = "test", value_name = "FILE")]
    tests: Vec<PathBuf>,
    /// Directory or hub id of the model to adapt, or embedded:backbone
    #[arg(long, value_name = "DIR|ID")]
    model: String,
    /// Framing of the prompts; use the blade with the same
    #[arg(long = "framing", value_name = "FRAMING", action = ArgAction::Set, default_value = "hh", value_parser = choice(FRAMINGS))]
    chat: bool,
    /// Frozen weights of the model: f32, or bf16, which takes half the memory
    #[arg(long, value_name = "PRECISION", default_value_t = Precision::F32)]
    precision: Precision,
    /// Directory for the adapter; a checkpoint found there is resumed, and a finished adapter not
    /// overwritten
    #[arg(long, short, value_name = "DIR", value_parser = written())]
    output: PathBuf,
    /// Device: auto, cpu, cuda[:N] or wgpu[:N], of those that the program was built with
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceName,
    /// Layers to change
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_possible_values = true,
        value_parser = one_of(Target::ALL.map(|target| (target.name().into(), target))),
        default_value = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj")]
    targets: Vec<Target>,
    /// Rank of each change
    #[arg(long, default_value_t = 8)]
    rank: usize,
    /// Changes are scaled by alpha / rank
    #[arg(long, default_value_t = 16.0)]
    alpha: f64,
    /// β of DPO: strength of the penalty for moving away from the model
    #[arg(long, default_value_t = 0.1)]
    beta: f64,
    /// Share of the labels taken to be wrong
    #[arg(long, default_value_t = 0.0)]
    label_smoothing: f64,
    /// Compare log-ratios per token instead of per completion
    #[arg(long)]
    length_normalised: bool,
    #[command(flatten)]
    run: RunArgs,
    /// Do not train: write the pairs that this run would not use to a .jsonl or .jsonl.gz file,
    /// except those that share a question with a pair that it would use
    #[arg(long, value_name = "FILE", value_parser = written())]
    unseen: Option<PathBuf>,
}

/// Returns the attribute of a head or a judge: the given one, or the name of its directory, which
/// paths such as `.` do not end with.
fn attribute(given: Option<String>, output: &Path) -> Result<String, Error> {
    let name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    match given.or_else(|| name(output)).or_else(|| name(&output.canonicalize().ok()?)) {
        None => Err(Error::Input(format!("-o {} gives no name; say with --attribute what is judged", output.display()))),
        Some(empty) if empty.is_empty() => Err(Error::Input("--attribute must not be empty; say what is judged".to_owned())),
        Some(attribute) => Ok(attribute),
    }
}

/// Runs a training command.
pub(crate) fn run(command: TrainCommand) -> Result<(), Error> {
    match command {
        TrainCommand::Text(args) => text(&args),
        TrainCommand::Tokenizer(args) => tokenizer(args),
        TrainCommand::Lm(args) => lm(args),
        TrainCommand::Dpo(args) => dpo(args),
        TrainCommand::Discriminator(args) => head::run(args, HeadKind::Discriminator),
        TrainCommand::RewardHead(args) => head::run(args, HeadKind::Reward),
        TrainCommand::Judge(args) => judge::run(args),
    }
}

fn text(args: &TextArgs) -> Result<(), Error> {
    let grammar = Grammar::read(&args.grammar)?;
    let dialogues = "dialogues.jsonl.gz";
    let _output = OutputFolder::claim(&args.output, None, &[dialogues])?;
    let mut written = Vec::new();
    for axis in grammar.axes() {
        let path = args.output.join(format!("pairs-{axis}.jsonl.gz"));
        let count = write_rows(&path, grammar.pairs(axis, args.seed)?.take(args.pairs))?;
        written.push(format!("{} in {}", counted(count, "pair"), path.display()));
    }
    // The last file: an interrupted run can be repeated.
    let dialogues = args.output.join(dialogues);
    let count = write_rows(&dialogues, grammar.dialogues(args.seed).take(args.dialogues))?;
    written.push(format!("{} in {}", counted(count, "dialogue"), dialogues.display()));
    output::print(written.join("\n"))
}

fn tokenizer(args: TokenizerArgs) -> Result<(), Error> {
    let folder = args.output.clone();
    let encoder = train_tokenizer(&TokenizerOptions {
        data: DataOptions { sources: args.data, exclude: args.exclude, held_out: args.held_out },
        vocab_size: args.vocab_size,
        output: args.output,
        max_length: args.max_length,
    })?;
    output::print(format_args!("{} entries in {}", encoder.tokenizer().get_vocab_size(true), folder.display()))
}

fn lm(args: LmArgs) -> Result<(), Error> {
    let device = args.device.open()?;
    let options = LmOptions {
        config: Qwen2Config {
            // Replaced by the tokenizer's size.
            vocab_size: 1,
            hidden_size: args.hidden,
            intermediate_size: args.intermediate,
            num_hidden_layers: args.layers.unwrap_or(6),
            num_attention_heads: args.heads,
            num_key_value_heads: args.kv_heads,
            head_dim: args.head_dim,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-6,
            max_position_embeddings: args.max_length,
            tie_word_embeddings: true,
            bos_token_id: None,
            eos_token_ids: Vec::new(),
            pad_token_id: None,
        },
        // One of the two is required.
        tokenizer: args.tokenizer.or_else(|| args.init.clone()).unwrap_or_default(),
        keep_layers: args.layers.filter(|_| args.init.is_some()),
        initial: args.init,
        data: args.data.into(),
        output: args.output,
        run: args.run.into(),
        optimizer: args.optimizer,
        evaluate_windows: args.evaluate_windows,
        precision: args.precision,
    };
    interrupt::listen_between_checkpoints(options.run.save_every);
    let mut progress = Bar::new("step", options.run.steps);
    train_lm(&options, &device, &mut |event| progress.lm(event))?;
    Ok(())
}

fn dpo(args: DpoArgs) -> Result<(), Error> {
    let model = {
        let mut loading = Loading::new(false);
        loading.show("looking for the model");
        hf::resolve(&args.model, &mut loading)?
    };
    let options = DpoOptions {
        model,
        base: args.model,
        chat: args.chat,
        data: args.data.into(),
        tests: args.tests,
        output: args.output,
        targets: args.targets,
        rank: args.rank,
        alpha: args.alpha,
        loss: PreferenceLoss {
            beta: args.beta,
            label_smoothing: args.label_smoothing,
            length_normalised: args.length_normalised,
        },
        precision: args.precision,
        run: args.run.into(),
    };
    if let Some(path) = args.unseen {
        let DataOptions { sources, exclude, .. } = &options.data;
        spare(sources.iter().map(|source| &source.path).chain(exclude).chain(&options.tests), &path)?;
        spare(files_in([options.model.as_path()]), &path)?;
        if path.exists() {
            return Err(Error::Input(format!("{} already exists; give another --unseen, or move the file", path.display())));
        }
        let count = write_rows(&path, unseen_pairs(&options)?)?;
        return output::print(format_args!("{} in {}", counted(count, "pair"), path.display()));
    }
    let device = args.device.open()?;
    interrupt::listen_between_checkpoints(options.run.save_every);
    let mut progress = Bar::new("step", options.run.steps);
    train_dpo(&options, None, &device, &mut |event| progress.dpo(event))?;
    Ok(())
}
