//! Next-token training.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use burn::{
    module::Module,
    optim::{GradientsAccumulator, GradientsParams},
    tensor::{Device, Int, Tensor, TensorData},
};

use super::{
    data::{Corpus, DataOptions, Windows},
    encoder::Encoder,
    error::TrainError,
    footprint::{self, TrainingPass},
    loss::{CHUNK, chunked_cross_entropy, target_log_probs},
    optimizer::{BETA_1, EPSILON, MOMENTUM, Optimizer, Rule},
    recipe::Recipe,
    run::RunOptions,
    state::{CHECKPOINT, OutputFolder, RunProgress, WeightType, resume, save_checkpoint, save_pretrained},
};
use crate::{
    config::Qwen2Config,
    device::is_cpu,
    files,
    hf::{Checkpoint, INDEX_FILE, PICKLED, SINGLE_FILE},
    lora::Lanes,
    memory::{check_room, free_memory},
    model::Qwen2,
};

/// Decay of AdamW's second moment.
const BETA_2: f64 = 0.95;

/// Settings of a language-model run.
#[derive(Debug, Clone)]
pub struct LmOptions {
    /// The model's shape. The vocabulary and the special tokens come from the tokenizer. Ignored if
    /// `initial` is given.
    pub config: Qwen2Config,
    /// A model directory to continue from, with its shape; `None` for random weights.
    pub initial: Option<PathBuf>,
    /// How many layers of `initial` to keep, evenly spaced from the first to the last; `None` for
    /// all. A model with some layers removed and trained further can draft for the whole model.
    pub keep_layers: Option<usize>,
    /// The directory with `tokenizer.json`.
    pub tokenizer: PathBuf,
    /// The text.
    pub data: DataOptions,
    /// The directory of the model and the checkpoint.
    pub output: PathBuf,
    /// The steps and their learning rate.
    pub run: RunOptions,
    /// The rule of the layers' matrices.
    pub optimizer: Rule,
    /// Held-out windows per measurement.
    pub evaluate_windows: usize,
    /// Type of the written weights.
    pub precision: WeightType,
}

/// An event of a run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum LmEvent {
    /// The size of the run is known.
    Planned {
        /// Bytes of memory that the run takes at most, estimated.
        memory: u64,
        /// Bytes of the CPU's memory that are free, if the system reports them.
        free: Option<u64>,
    },
    /// The data are ready.
    Started {
        /// Parameters of the model.
        parameters: usize,
        /// Expected tokens of one epoch.
        epoch_tokens: u64,
        /// Steps already done.
        resumed: u64,
        /// All steps.
        steps: u64,
    },
    /// A step is done.
    Step {
        /// Steps done.
        step: u64,
        /// Mean training loss of the step, in nats per token.
        loss: f64,
        /// Global gradient norm before clipping.
        norm: f64,
        /// The learning rate of the step.
        rate: f64,
        /// Tokens trained on in this step.
        tokens: usize,
        /// How long it took.
        elapsed: Duration,
    },
    /// The held-out loss was measured.
    HeldOut {
        /// Steps done.
        step: u64,
        /// Mean loss in nats per token.
        loss: f64,
    },
    /// A checkpoint was written.
    Saved {
        /// Steps done.
        step: u64,
    },
}

impl LmOptions {
    /// Returns everything that determines the weights after a step.
    fn recipe(&self, config: &Qwen2Config, initial: Option<&Checkpoint>) -> Result<Recipe, TrainError> {
        let Self {
            // Covered by the arguments.
            config: _,
            initial: _,
            keep_layers: _,
            tokenizer,
            data,
            output: _,
            // Without effect on the steps.
            evaluate_windows: _,
            precision: _,
            run,
            optimizer,
        } = self;
        let recipe = Recipe::default()
            .value("hidden", config.hidden_size)
            .value("intermediate", config.intermediate_size)
            .value("layers", config.num_hidden_layers)
            .value("heads", config.num_attention_heads)
            .value("kv-heads", config.num_key_value_heads)
            .value("head-dim", config.head_dim)
            .value("max-length", config.max_position_embeddings)
            .run(run)
            .value("optimizer", format!("{optimizer:?}").to_lowercase())
            .value("optimizer settings", format!("{:?}", (BETA_1, BETA_2, EPSILON, MOMENTUM)))
            .data(data)?
            .file("tokenizer", &tokenizer.join("tokenizer.json"))?;
        recipe.model("init", initial)
    }
}

/// Returns `count` of `0..of`, evenly spaced from the first to the last; the first if it is one.
fn spread(count: usize, of: usize) -> impl Iterator<Item = usize> {
    let steps = count.saturating_sub(1).max(1);
    (0..count).map(move |index| (2 * index * (of - 1) + steps) / (2 * steps))
}

/// Trains a model from scratch or from another's weights, or resumes a run whose checkpoint is in
/// the output directory.
///
/// The result depends on the options alone: a run that is interrupted and resumed ends with the
/// same bytes. A checkpoint is removed once the model is written. Returns the held-out loss at the
/// end, in nats per token.
///
/// # Errors
///
/// If the data, the tokenizer or a checkpoint are unusable, a file changes before it is loaded, a
/// finished model or another tokenizer lies in the output directory, the loss diverges, or a file
/// cannot be written.
pub fn train_lm(options: &LmOptions, device: &Device, report: &mut dyn FnMut(LmEvent)) -> Result<f64, TrainError> {
    check(options)?;
    let run = &options.run;
    let path = options.output.join(CHECKPOINT);
    let _output = OutputFolder::claim(&options.output, Some(&path), &[&[SINGLE_FILE, INDEX_FILE], &PICKLED[..]].concat())?;
    if !path.exists() {
        check_tokenizer(&options.tokenizer, &options.output)?;
    }
    let initial = options.initial.as_deref().map(Checkpoint::from_directory).transpose()?;
    let mut config = initial.as_ref().map_or(&options.config, Checkpoint::config).clone();
    let held = config.num_hidden_layers;
    if let Some(kept) = options.keep_layers {
        let value = format!("{kept} and the model to continue from has {held}");
        TrainError::check("layers", value, (1..=held).contains(&kept), "keep at least one and at most all")?;
        config.num_hidden_layers = kept;
    }
    // The files are read again once all is loaded: what is trained on is what the recipe names.
    let recipe = options.recipe(&config, initial.as_ref())?;
    let encoder = Encoder::load(&options.tokenizer)?;
    let tokens = encoder.vocab_size();
    if initial.is_none() {
        config.vocab_size = tokens;
    }
    if tokens > config.vocab_size {
        return Err(TrainError::Tokenizer {
            path: encoder.path.display().to_string(),
            reason: format!("has more tokens than the model to continue from, which has {}", config.vocab_size),
        });
    }
    config.eos_token_ids = vec![encoder.end_of_turn];
    config.pad_token_id = Some(encoder.end_of_text);
    config.validate("model shape")?;
    let remedy = if initial.is_some() { "shorten the windows" } else { "shorten the windows or raise --max-length" };
    TrainError::check_context(run.length, &config, remedy)?;

    let corpus = Corpus::load(&options.data, &encoder)?;
    let held_out = corpus.held_out_windows(run.length, options.evaluate_windows);
    if held_out.is_empty() {
        return Err(TrainError::NoData {
            reason: "the held-out documents do not fill one window: raise --held-out, lower --length or give more data".into(),
        });
    }
    let tokens = run.batch * run.length;
    let memory = footprint::of_model(&config, TrainingPass { tokens, completion: tokens.min(CHUNK) });
    let free = free_memory().filter(|_| is_cpu(device));
    let remedy = "use a smaller --batch with --accumulate, a shorter --length, a smaller model, or another --device";
    check_room(device, memory, free).map_err(|shortage| TrainError::Memory { shortage, remedy })?;
    report(LmEvent::Planned { memory, free });
    let graph = device.clone().autodiff();
    graph.seed(run.seed);
    let model = match &initial {
        Some(checkpoint) => {
            let mut model = checkpoint.model(&graph)?;
            let kept: Vec<usize> = spread(config.num_hidden_layers, held).collect();
            let layers = model.layers.into_iter().enumerate().filter(|(index, _)| kept.contains(index));
            model.layers = layers.map(|(_, layer)| layer).collect();
            Qwen2 { config: config.clone(), ..model }
        }
        None => Qwen2::init(&config, &graph),
    };
    let mut optimizer = Optimizer::new(options.optimizer, BETA_2, run.weight_decay, run.clip);
    options.recipe(&config, initial.as_ref())?.check_unchanged(&recipe, &options.data, |option| {
        options.initial.as_deref().filter(|_| option == "init").unwrap_or(&options.tokenizer)
    })?;
    let (mut model, found) = resume(&path, &recipe, run.steps, model, &mut optimizer, device)?;
    let (mut step, cursor) = found.map_or_else(Default::default, |found| (found.step, found.cursor.unwrap_or_default()));
    let mut windows = Windows::new(&corpus, run.seed, run.length, cursor)?;
    report(LmEvent::Started {
        parameters: model.num_params(),
        epoch_tokens: corpus.epoch_tokens(),
        resumed: step,
        steps: run.steps,
    });

    let tokens = run.batch * run.accumulate * run.length;
    while step < run.steps {
        let start = Instant::now();
        let mut accumulator = GradientsAccumulator::new();
        let mut sum = 0.0;
        for _ in 0..run.accumulate {
            let batch: Vec<Vec<u32>> = (0..run.batch).map(|_| windows.next_window()).collect();
            let (inputs, targets) = split(&batch, &graph);
            let hidden = model.forward(inputs, Lanes::backbone());
            let head = head(&model);
            let loss = chunked_cross_entropy(hidden, head, targets.inner(), 1.0 / tokens as f64);
            sum += loss.value;
            accumulator.accumulate(&model, GradientsParams::from_grads(loss.surrogate.backward(), &model));
        }
        let loss = sum / tokens as f64;
        TrainError::check_loss(step, loss)?;
        let rate = run.rate_at(step);
        let (changed, norm) = optimizer.step(model, accumulator.grads(), rate);
        model = changed;
        step += 1;
        report(LmEvent::Step { step, loss, norm, rate, tokens, elapsed: start.elapsed() });
        if step % run.evaluate_every == 0 && step < run.steps {
            report(LmEvent::HeldOut { step, loss: held_out_loss(&model.valid(), &held_out, run.batch) });
        }
        if step % run.save_every == 0 || step == run.steps {
            let progress = RunProgress { step, cursor: Some(windows.cursor()), recipe: recipe.clone() };
            save_checkpoint(&path, &model, &optimizer, &progress)?;
            report(LmEvent::Saved { step });
        }
    }
    let model = model.valid();
    let loss = held_out_loss(&model, &held_out, run.batch);
    report(LmEvent::HeldOut { step, loss });
    TrainError::check_loss(step, loss)?;
    save_pretrained(&model, &options.output, options.precision)?;
    copy_tokenizer(&options.tokenizer, &options.output)?;
    std::fs::remove_file(&path).map_err(|source| TrainError::io(&path, source))?;
    Ok(loss)
}

fn check(options: &LmOptions) -> Result<(), TrainError> {
    let run = &options.run;
    run.check()?;
    TrainError::check_counts(&[("length", run.length as u64), ("evaluate-windows", options.evaluate_windows as u64)])?;
    TrainError::check_step(&[run.batch, run.accumulate, run.length])?;
    TrainError::check_split("held-out", options.data.held_out)
}

/// Returns the head as `[V, H]`.
fn head(model: &Qwen2) -> Tensor<2> {
    match &model.lm_head {
        None => model.embed_tokens.val(),
        Some(head) => head.val().transpose(),
    }
}

/// Returns inputs `[B, S]` and, flattened, the tokens that follow them.
fn split(windows: &[Vec<u32>], device: &Device) -> (Tensor<2, Int>, Tensor<1, Int>) {
    let length = windows[0].len() - 1;
    let ids = |offset: usize| -> Vec<i32> {
        windows.iter().flat_map(|w| w[offset..offset + length].iter().map(|&id| id as i32)).collect()
    };
    let inputs = Tensor::from_data(TensorData::new(ids(0), [windows.len(), length]), device);
    let targets = Tensor::from_data(TensorData::new(ids(1), [windows.len() * length]), device);
    (inputs, targets)
}

/// Returns the mean loss over windows, in nats per token; `model` is outside the graph. Only the
/// logits of one chunk are in memory at a time.
fn held_out_loss(model: &Qwen2, windows: &[Vec<u32>], batch: usize) -> f64 {
    let device = model.embed_tokens.val().device();
    let mut sum = 0.0;
    let mut count = 0;
    for group in windows.chunks(batch) {
        let (inputs, targets) = split(group, &device);
        count += targets.dims()[0];
        let hidden = model.forward(inputs, Lanes::backbone());
        for (hidden, targets) in hidden.split(CHUNK, 0).into_iter().zip(targets.split(CHUNK, 0)) {
            let log_probs = target_log_probs(model.logits(hidden, Lanes::backbone()), targets);
            sum -= f64::from(log_probs.sum().into_scalar::<f32>());
        }
    }
    sum / count as f64
}

/// The files of a tokenizer. transformers 5 writes the chat template to one of its own.
const TOKENIZER_FILES: [&str; 3] = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"];

/// Checks that copying the tokenizer at `from` overwrites no other one.
fn check_tokenizer(from: &Path, to: &Path) -> Result<(), TrainError> {
    let [source, target] = [from, to].map(|folder| folder.join("tokenizer.json"));
    if target.exists() && files::read(&target).ok() != files::read(&source).ok() {
        return Err(TrainError::Finished { path: target.display().to_string() });
    }
    Ok(())
}

fn copy_tokenizer(from: &Path, to: &Path) -> Result<(), TrainError> {
    for name in TOKENIZER_FILES {
        let (source, target) = (from.join(name), to.join(name));
        if files::is_file(&source) && source != target {
            let bytes = files::read(&source).map_err(|error| TrainError::io(&source, error))?;
            files::write_atomically(&target, &bytes).map_err(|error| TrainError::io(&target, error))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_out_loss_does_not_depend_on_its_batches() {
        /// Means of two thousand logarithms near log 23, added up in f32.
        const ROUNDING: f64 = 1e-5;
        let model = Qwen2::random(&Qwen2Config::small([23, 8, 8, 1, 2, 1]), 3, &Device::flex());
        let windows: Vec<Vec<u32>> = (0..9).map(|at| (0..257).map(|i| (i * 7 + at * i) % 23).collect()).collect();
        // All windows at once have more tokens than a chunk of logits.
        assert!(windows.len() * 256 > CHUNK);
        let [one, all] = [1, 9].map(|batch| held_out_loss(&model, &windows, batch));
        assert!((one - all).abs() < ROUNDING, "{one} {all}");
    }
}
