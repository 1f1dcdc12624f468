//! Adapters from preference pairs: low-rank updates of a frozen backbone, by direct preference
//! optimisation.

use std::{
    collections::BTreeSet,
    ops::Range,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use burn::{
    module::{Module, Param},
    optim::{GradientsAccumulator, GradientsParams},
    tensor::{Device, Distribution, Int, Tensor, TensorData},
};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    data::{DataOptions, Excluded, MEASURED, Row, Tally},
    encoder::Encoder,
    error::TrainError,
    footprint::{self, TrainingPass},
    loss::{sum_by_sequence, target_log_probs},
    optimizer::{Optimizer, Rule},
    pairs::{Pair, Side, SplitPairs, read_pairs},
    preference::{LogProbs, PreferenceLoss, PreferenceReport},
    recipe::Recipe,
    run::RunOptions,
    state::{CHECKPOINT, OutputFolder, RunProgress, resume, save_checkpoint},
};
use crate::{
    assets,
    config::Qwen2Config,
    device::is_cpu,
    files,
    hf::{self, Checkpoint},
    lora::{AdapterStack, Lanes, LoraAdapter, LowRank, Target},
    memory::{check_room, free_memory},
    model::Qwen2,
    precision::Precision,
};

/// The largest rank, beyond the width of every model.
const LARGEST_RANK: usize = 1 << 16;

/// Decay of AdamW's second moment.
const BETA_2: f64 = 0.99;

/// Settings of a preference run.
#[derive(Debug, Clone)]
pub struct DpoOptions {
    /// Directory of the backbone.
    pub model: PathBuf,
    /// The directory or hub id of the backbone, as the adapter names it.
    pub base: String,
    /// Whether prompts are framed with the chat template of the backbone, instead of the labels of
    /// HH-RLHF.
    pub chat: bool,
    /// Preference pairs.
    pub data: DataOptions,
    /// More files of pairs, on which the finished adapter is measured. They are neither trained on
    /// nor filtered.
    pub tests: Vec<PathBuf>,
    /// The directory of the adapter and the checkpoint.
    pub output: PathBuf,
    /// The layers with a low-rank update.
    pub targets: Vec<Target>,
    /// The rank of every update.
    pub rank: usize,
    /// The factor α. Updates are scaled by α/rank.
    pub alpha: f64,
    /// The loss.
    pub loss: PreferenceLoss,
    /// The frozen weights of the backbone, in f32 or bf16. The adapter is in f32 in any case.
    pub precision: Precision,
    /// The steps and their learning rate.
    pub run: RunOptions,
}

/// An event of a run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum DpoEvent {
    /// Some pairs of the data are left out. Reported for each reason, before all other events.
    LeftOut {
        /// Their number.
        pairs: usize,
        /// The reason, as the end of a sentence, such as `with equal answers`.
        reason: &'static str,
    },
    /// The pairs have been read; the model is loaded next.
    Planned {
        /// Bytes of memory that the run takes at most, estimated.
        memory: u64,
        /// Bytes of the CPU's memory that are free, if the system reports them.
        free: Option<u64>,
    },
    /// The reference is computed next.
    Started {
        /// Trained parameters.
        parameters: usize,
        /// Pairs to train on.
        pairs: usize,
        /// Pairs held out.
        held_out: usize,
        /// Steps already done.
        resumed: u64,
        /// All steps.
        steps: u64,
    },
    /// Reference log-probabilities of some pairs are done.
    Reference {
        /// Pairs done.
        done: usize,
        /// All pairs.
        total: usize,
    },
    /// A step is done.
    Step {
        /// Steps done.
        step: u64,
        /// Mean loss of the step.
        loss: f64,
        /// Share of the step's pairs with a positive margin.
        accuracy: f64,
        /// Global gradient norm before clipping.
        norm: f64,
        /// The learning rate of the step.
        rate: f64,
        /// Tokens of its pairs, prompts included.
        tokens: usize,
        /// How long it took.
        elapsed: Duration,
    },
    /// The held-out pairs were measured.
    HeldOut {
        /// Steps done.
        step: u64,
        /// The measurement.
        report: PreferenceReport,
    },
    /// The finished adapter was measured on a file of `tests`.
    Tested {
        /// The index of the file.
        test: usize,
        /// Pairs of the file that are unusable and were left out.
        left_out: usize,
        /// Measured pairs with a question of a training pair.
        asked: usize,
        /// The measurement.
        report: PreferenceReport,
    },
    /// A checkpoint was written.
    Saved {
        /// Steps done.
        step: u64,
    },
}

/// The trained matrices, layer by layer in the order of the targets.
#[derive(Module, Debug)]
struct Matrices {
    /// `[in, r]` each.
    a: Vec<Param<Tensor<2>>>,
    /// `[r, out]` each.
    b: Vec<Param<Tensor<2>>>,
}

impl Matrices {
    /// Returns A uniform in ±1/√in, as in PEFT, and B zero, so that the adapter starts as the
    /// backbone.
    fn init(config: &Qwen2Config, targets: &[Target], rank: usize, device: &Device) -> Self {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for _ in 0..config.num_hidden_layers {
            for target in targets {
                let (input, output) = target.dims(config);
                let bound = (input as f64).sqrt().recip();
                a.push(Param::from_tensor(Tensor::random([input, rank], Distribution::Uniform(-bound, bound), device)));
                b.push(Param::from_tensor(Tensor::zeros([rank, output], device)));
            }
        }
        Self { a, b }
    }

    fn adapter(&self, config: &Qwen2Config, targets: &[Target], scale: f64) -> LoraAdapter {
        let mut adapter = LoraAdapter::empty(config);
        let mut matrices = self.a.iter().zip(&self.b);
        for layer in &mut adapter.layers {
            for &target in targets {
                let (a, b) = matrices.next().expect("one pair of matrices per layer and target");
                layer.set(target, LowRank { a: a.val(), b: b.val(), scale });
            }
        }
        adapter
    }
}

impl DpoOptions {
    /// Returns whether the adapter is written. A run then removes its checkpoint.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let has = |name| self.output.join(name).exists();
        has(hf::ADAPTER_WEIGHTS) && !has(CHECKPOINT)
    }

    /// Claims the folder of the adapter for a run.
    ///
    /// # Errors
    ///
    /// As [`OutputFolder::claim`]. An adapter that PyTorch has pickled is a result, too.
    pub fn claim(&self) -> Result<OutputFolder, TrainError> {
        let checkpoint = self.output.join(CHECKPOINT);
        OutputFolder::claim(&self.output, Some(&checkpoint), &[hf::ADAPTER_WEIGHTS, "adapter_model.bin"])
    }

    /// Returns the encoder of the pairs.
    fn encoder(&self) -> Result<Encoder, TrainError> {
        if self.chat { Encoder::load_chat(&self.model) } else { Encoder::load(&self.model) }
    }

    /// Returns the pairs of a step.
    fn pairs(&self) -> usize {
        self.run.batch * self.run.accumulate
    }

    /// Returns the bytes that the run takes at its largest pass, up to the step after which every
    /// pair has occurred, or while it measures.
    fn memory(
        &self,
        config: &Qwen2Config,
        train: &[Pair],
        order: &mut Order,
        measured: impl Iterator<Item = TrainingPass>,
    ) -> u64 {
        let pass = |group: &[usize]| {
            let sides = || group.iter().flat_map(|&index| [&train[index].chosen, &train[index].rejected]);
            let longest = sides().map(|side| side.ids.len()).max().unwrap_or(0);
            TrainingPass { tokens: 2 * group.len() * longest, completion: sides().map(|side| side.completion).sum() }
        };
        let steps = order.steps(0..self.run.steps, self.pairs());
        let passes = steps.flat_map(|pairs| pairs.chunks(self.run.batch).map(pass).collect::<Vec<_>>());
        footprint::of_adapter(config, self.precision, (&self.targets, self.rank), passes.chain(measured))
    }

    /// Returns everything that determines the adapter of the run, its steps included.
    ///
    /// # Errors
    ///
    /// If the backbone or a data file cannot be read.
    pub fn whole_recipe(&self) -> Result<Recipe, TrainError> {
        let checkpoint = Checkpoint::from_directory(&self.model)?;
        Ok(self.recipe(&checkpoint)?.value("steps", self.run.steps))
    }

    /// Returns everything that determines the matrices after a step, except the number of steps, on
    /// which the learning rates depend.
    fn recipe(&self, backbone: &Checkpoint) -> Result<Recipe, TrainError> {
        let Self {
            // Covered by the backbone's digest.
            model: _,
            base: _,
            chat,
            data,
            output: _,
            targets,
            rank,
            alpha,
            loss: PreferenceLoss { beta, label_smoothing, length_normalised },
            // Without effect on the steps.
            tests: _,
            precision,
            run,
        } = self;
        let mut recipe = Recipe::default()
            .value("targets", targets.iter().map(|target| target.name()).collect::<Vec<_>>().join(","))
            .value("rank", rank)
            .value("alpha", alpha)
            .value("beta", beta)
            .value("label-smoothing", label_smoothing)
            .value("length-normalised", length_normalised)
            .run(run)
            .data(data)?
            .model("model", Some(backbone))?
            .value("precision", precision);
        // Checkpoints from before this option resume.
        if *chat {
            recipe = recipe.value("framing", "chat");
            for (what, name) in [("settings", "tokenizer_config.json"), ("chat template", "chat_template.jinja")] {
                let path = self.model.join(name);
                if files::is_file(&path) {
                    recipe = recipe.file(&format!("model's {what}"), &path)?;
                }
            }
        }
        recipe.file("model's tokenizer", &self.model.join("tokenizer.json"))
    }
}

/// Trains an adapter and writes it in PEFT's format. A run whose checkpoint is in the output
/// directory is resumed. `planned` is the [recipe](DpoOptions::whole_recipe) that the options of a
/// run had when it was planned, if that was earlier.
///
/// The log-probabilities of the reference, the backbone itself, are computed once. The result
/// depends on the options alone: a run that is interrupted and resumed ends with the same bytes.
/// Returns the final measurement.
///
/// # Errors
///
/// If the backbone, the pairs or a checkpoint are unusable, a file has changed since the run was
/// planned or changes before it is loaded, the output directory holds a finished adapter, the loss
/// diverges, or a file cannot be written.
pub fn train_dpo(
    options: &DpoOptions,
    planned: Option<&Recipe>,
    device: &Device,
    report: &mut dyn FnMut(DpoEvent),
) -> Result<PreferenceReport, TrainError> {
    check(options)?;
    let run = &options.run;
    let path = options.output.join(CHECKPOINT);
    let _output = options.claim()?;
    let checkpoint = Checkpoint::from_directory(&options.model)?;
    let config = checkpoint.config().clone();
    TrainError::check_context(run.length, &config, "lower --length")?;
    // The files are read again once all is loaded: what is trained on is what the recipe names.
    let recipe = options.recipe(&checkpoint)?;
    let model = |_: &str| options.model.as_path();
    if let Some(planned) = planned {
        recipe.check_unchanged(planned, &options.data, model)?;
    }
    let encoder = options.encoder()?;
    let split = SplitPairs::load(&options.data, run.length, &encoder)?;
    split.left_out.iter().for_each(|&(reason, pairs)| report(DpoEvent::LeftOut { pairs, reason }));
    let mut tests = Vec::new();
    for path in &options.tests {
        let mut tally = Tally::default();
        let (rows, pairs): (Vec<Row>, Vec<Pair>) =
            read_pairs(path, &Excluded::default(), run.length, &encoder, &mut tally)?.into_iter().unzip();
        tally.check(MEASURED, pairs.is_empty())?;
        let left_out = tally.left_out().map(|(_, pairs)| pairs).sum();
        tests.push((pairs, left_out, rows.iter().filter(|row| split.asked.shares(row)).count()));
    }
    let (mut train, mut held_out) = split.without_rows();
    let mut order = Order::new(run.seed, &train);
    let measured = tests.iter().map(|(pairs, ..)| pairs).chain([&held_out]).flat_map(|pairs| measuring(pairs, run.batch));
    let memory = options.memory(&config, &train, &mut order, measured);
    let free = free_memory().filter(|_| is_cpu(device));
    let remedy = "use --precision bf16, a smaller --batch with --accumulate, a shorter --length, or another --device";
    check_room(device, memory, free).map_err(|shortage| TrainError::Memory { shortage, remedy })?;
    report(DpoEvent::Planned { memory, free });
    let plain = checkpoint.frozen(device, options.precision)?;

    let graph = device.clone().autodiff();
    // Frozen: on the graph's device, outside its gradients.
    let backbone = plain.clone().to_device(&graph).no_grad();
    graph.seed(run.seed);
    let matrices = Matrices::init(&config, &options.targets, options.rank, &graph);
    let mut optimizer = Optimizer::new(Rule::Adamw, BETA_2, run.weight_decay, run.clip);
    options.recipe(&checkpoint)?.check_unchanged(&recipe, &options.data, model)?;
    let (mut matrices, found) = resume(&path, &recipe, run.steps, matrices, &mut optimizer, device)?;
    let mut step = found.map_or(0, |found| found.step);
    report(DpoEvent::Started {
        parameters: matrices.num_params(),
        pairs: train.len(),
        held_out: held_out.len(),
        resumed: step,
        steps: run.steps,
    });
    // Only the pairs of the remaining steps need a reference.
    let used: BTreeSet<usize> = order.steps(step..run.steps, options.pairs()).flatten().collect();
    let mut used: Vec<&mut Pair> =
        train.iter_mut().enumerate().filter(|(index, _)| used.contains(index)).map(|(_, pair)| pair).collect();
    let mut measured: Vec<&mut Pair> = held_out.iter_mut().collect();
    let total = used.len() + measured.len();
    let mut done = 0;
    for group in used.chunks_mut(run.batch).chain(measured.chunks_mut(run.batch)) {
        set_reference(&plain, group);
        done += group.len();
        report(DpoEvent::Reference { done, total });
    }

    let scale = options.alpha / options.rank as f64;
    while step < run.steps {
        let start = Instant::now();
        let pairs: Vec<&Pair> = order.step(step, options.pairs()).into_iter().map(|index| &train[index]).collect();
        let mut accumulator = GradientsAccumulator::new();
        let (mut value, mut right) = (0.0, 0);
        for group in pairs.chunks(run.batch) {
            let adapter = matrices.adapter(&config, &options.targets, scale);
            let stack = AdapterStack::new(&config, &[Some(&adapter)], &graph)?;
            let margins = margins(&backbone, Lanes::of(&stack), group, &options.loss, &graph);
            right += margins.clone().inner().into_data().iter::<f32>().filter(|&margin| margin > 0.0).count();
            // The mean over the step is the mean of its groups, which are of one size.
            let mut loss = options.loss.loss(margins);
            if run.accumulate > 1 {
                loss = loss.div_scalar(run.accumulate as f64);
            }
            value += f64::from(loss.clone().inner().into_scalar::<f32>());
            TrainError::check_loss(step, value)?;
            accumulator.accumulate(&matrices, GradientsParams::from_grads(loss.backward(), &matrices));
        }
        let rate = run.rate_at(step);
        let (changed, norm) = optimizer.step(matrices, accumulator.grads(), rate);
        matrices = changed;
        step += 1;
        let accuracy = right as f64 / pairs.len() as f64;
        let tokens = pairs.iter().map(|pair| pair.chosen.ids.len() + pair.rejected.ids.len()).sum();
        report(DpoEvent::Step { step, loss: value, accuracy, norm, rate, tokens, elapsed: start.elapsed() });
        if step % run.evaluate_every == 0 && step < run.steps {
            let measured = measure(&plain, &matrices.valid(), options, &held_out)?;
            report(DpoEvent::HeldOut { step, report: measured });
        }
        if step % run.save_every == 0 || step == run.steps {
            save_checkpoint(&path, &matrices, &optimizer, &RunProgress { step, cursor: None, recipe: recipe.clone() })?;
            report(DpoEvent::Saved { step });
        }
    }
    let matrices = matrices.valid();
    let measured = measure(&plain, &matrices, options, &held_out)?;
    report(DpoEvent::HeldOut { step, report: measured });
    TrainError::check_loss(step, measured.loss)?;
    let base = Some(&options.base[..]).filter(|base| !assets::is_dir(Path::new(base)));
    hf::save_adapter(&matrices.adapter(&config, &options.targets, scale), &config, base, &options.output)?;
    for (test, (pairs, left_out, asked)) in tests.iter_mut().enumerate() {
        let mut all: Vec<&mut Pair> = pairs.iter_mut().collect();
        all.chunks_mut(run.batch).for_each(|group| set_reference(&plain, group));
        report(DpoEvent::Tested {
            test,
            left_out: *left_out,
            asked: *asked,
            report: measure(&plain, &matrices, options, pairs)?,
        });
    }
    std::fs::remove_file(&path).map_err(|source| TrainError::io(&path, source))?;
    Ok(measured)
}

/// Checks that a run with these options has pairs to train and to measure on.
///
/// # Errors
///
/// If the tokenizer of the backbone, a setting or the pairs are unusable.
pub fn check_pairs(options: &DpoOptions) -> Result<(), TrainError> {
    check(options)?;
    SplitPairs::load(&options.data, options.run.length, &options.encoder()?).map(drop)
}

/// Returns the pairs that a run with these options does not train on, and whose questions no
/// training pair asks in any turn.
///
/// The training pairs depend on the options alone, so this function can be called after the run.
/// Held-out pairs are included. A judge of the adapter can be trained on the result.
///
/// # Errors
///
/// If the tokenizer of the backbone or the pairs are unusable.
pub fn unseen_pairs(options: &DpoOptions) -> Result<Vec<Row>, TrainError> {
    check(options)?;
    let run = &options.run;
    let encoder = options.encoder()?;
    let SplitPairs { train, held_out, .. } = SplitPairs::load(&options.data, run.length, &encoder)?;
    let (rows, pairs): (Vec<Row>, Vec<Pair>) = train.into_iter().unzip();
    let mut order = Order::new(run.seed, &pairs);
    let seen: BTreeSet<usize> = order.steps(0..run.steps, options.pairs()).flatten().collect();
    let mut asked = Excluded::default();
    asked.add(seen.iter().map(|&index| &rows[index]));
    let mut unseen: Vec<Row> = Vec::new();
    // The copies of a weighted source are adjacent.
    for row in rows.into_iter().chain(held_out.into_iter().map(|(row, _)| row)) {
        if !asked.contains(&row) && unseen.last() != Some(&row) {
            unseen.push(row);
        }
    }
    Ok(unseen)
}

fn check(options: &DpoOptions) -> Result<(), TrainError> {
    let run = &options.run;
    run.check()?;
    TrainError::check_counts(&[("rank", options.rank as u64), ("targets", options.targets.len() as u64)])?;
    TrainError::check_step(&[run.batch, run.accumulate])?;
    TrainError::check("rank", options.rank, options.rank <= LARGEST_RANK, "must be at most 65536")?;
    // A second matrix of a layer would never be used, and have no state to resume with.
    let twice = options.targets.iter().enumerate().find(|(at, target)| options.targets[..*at].contains(target));
    let name = twice.map_or("", |(_, target)| target.name());
    TrainError::check("targets", name, twice.is_none(), "named twice")?;
    TrainError::check("length", run.length, run.length >= 4, "must be at least 4 tokens")?;
    let precision = options.precision;
    TrainError::check("precision", precision, precision != Precision::Int8, "must be f32 or bf16, which have gradients")?;
    let PreferenceLoss { beta, label_smoothing: smoothing, .. } = options.loss;
    TrainError::check_positive("beta", beta)?;
    TrainError::check("label-smoothing", smoothing, (0.0..0.5).contains(&smoothing), "must lie between 0 and one half")?;
    TrainError::check_split("held-out", options.data.held_out)?;
    TrainError::check_positive("alpha", options.alpha)
}

/// Returns the passes that measure pairs. Without gradients, they hold the states of one layer at a
/// time, so only their logits count, with one table more than there are.
fn measuring(pairs: &[Pair], batch: usize) -> impl Iterator<Item = TrainingPass> {
    let completion = |group: &[Pair]| group.iter().map(|pair| pair.chosen.completion + pair.rejected.completion).sum();
    pairs.chunks(batch).map(move |group| TrainingPass { tokens: 0, completion: completion(group) })
}

/// The order of the pairs: each epoch is its own permutation, which depends on the seed and the
/// epoch.
///
/// The pairs of [`Order::WINDOW`] successive steps, or of as many as an epoch fills, are grouped by
/// length, so that batches need little padding, and the order of these batches is drawn. A window
/// that begins in one epoch and ends in the next may put both copies of a pair into one batch.
struct Order {
    seed: u64,
    epoch: usize,
    permutation: Vec<usize>,
    /// Tokens of the longer side of each pair.
    lengths: Vec<usize>,
}

impl Order {
    const WINDOW: usize = 16;

    fn new(seed: u64, pairs: &[Pair]) -> Self {
        let lengths: Vec<usize> = pairs.iter().map(|pair| pair.chosen.ids.len().max(pair.rejected.ids.len())).collect();
        Self { seed, epoch: 0, permutation: Self::shuffled(seed, 0, pairs.len()), lengths }
    }

    fn shuffled(seed: u64, stream: u64, count: usize) -> Vec<usize> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        let mut permutation: Vec<usize> = (0..count).collect();
        permutation.shuffle(&mut rng);
        permutation
    }

    /// Returns the pair at a position of the endless sequence.
    fn at(&mut self, position: usize) -> usize {
        let pairs = self.permutation.len();
        let epoch = position / pairs;
        if epoch != self.epoch {
            (self.epoch, self.permutation) = (epoch, Self::shuffled(self.seed, epoch as u64, pairs));
        }
        self.permutation[position % pairs]
    }

    /// Returns the pairs of a step.
    fn step(&mut self, step: u64, batch: usize) -> Vec<usize> {
        let steps = (self.permutation.len() / batch).clamp(1, Self::WINDOW);
        let (window, at) = (step / steps as u64, (step % steps as u64) as usize);
        let size = steps * batch;
        let start = window as usize * size;
        let mut pairs: Vec<usize> = (start..start + size).map(|position| self.at(position)).collect();
        pairs.sort_by_key(|&pair| (self.lengths[pair], pair));
        // Streams of windows count down from the end, those of epochs up from zero.
        let batches = Self::shuffled(self.seed, u64::MAX - window, steps);
        let first = batches[at] * batch;
        pairs[first..first + batch].to_vec()
    }

    /// Returns the pairs of successive steps, step by step. Ends after the step with which every
    /// pair has occurred, so that the cost does not grow with the steps beyond.
    fn steps(&mut self, mut steps: Range<u64>, batch: usize) -> impl Iterator<Item = Vec<usize>> {
        let mut missing: BTreeSet<usize> = (0..self.lengths.len()).collect();
        std::iter::from_fn(move || {
            let step = steps.next().filter(|_| !missing.is_empty())?;
            let pairs = self.step(step, batch);
            for pair in &pairs {
                missing.remove(pair);
            }
            Some(pairs)
        })
    }
}

/// Returns the summed log-probabilities of the completions of `sides`, `[sides]`.
///
/// Sequences are padded at the end, where causal attention ignores the padding. Only rows that
/// predict a completion token reach the head.
fn completion_log_probs(model: &Qwen2, lanes: Lanes<'_>, sides: &[&Side], device: &Device) -> Tensor<1> {
    let length = sides.iter().map(|side| side.ids.len() - 1).max().unwrap_or(0);
    let mut inputs = vec![0_u32; sides.len() * length];
    let (mut rows, mut targets, mut owners) = (Vec::new(), Vec::new(), Vec::new());
    for (index, side) in sides.iter().enumerate() {
        let (count, start) = (side.ids.len() - 1, index * length);
        inputs[start..][..count].copy_from_slice(&side.ids[..count]);
        rows.extend(start + count - side.completion..start + count);
        targets.extend_from_slice(&side.ids[side.ids.len() - side.completion..]);
        owners.extend(std::iter::repeat_n(index, side.completion));
    }
    let inputs = Tensor::<1, Int>::from_data(&inputs[..], device).reshape([sides.len(), length]);
    let hidden = model.forward(inputs, lanes).select(0, Tensor::from_data(&rows[..], device));
    let log_probs = target_log_probs(model.logits(hidden, lanes), Tensor::from_data(&targets[..], device));
    sum_by_sequence(log_probs, Tensor::from_data(&owners[..], device), sides.len())
}

/// Returns the implicit reward margins of pairs, `[P]`.
fn margins(model: &Qwen2, lanes: Lanes<'_>, pairs: &[&Pair], loss: &PreferenceLoss, device: &Device) -> Tensor<1> {
    let count = pairs.len();
    let sides: Vec<&Side> = pairs.iter().map(|p| &p.chosen).chain(pairs.iter().map(|p| &p.rejected)).collect();
    let halves =
        |values: Tensor<1>| LogProbs { chosen: values.clone().slice(0..count), rejected: values.slice(count..2 * count) };
    let floats = |value: &dyn Fn(&Side) -> f32| {
        let values: Vec<f32> = sides.iter().map(|side| value(side)).collect();
        halves(Tensor::from_data(TensorData::new(values, [2 * count]), device))
    };
    let policy = halves(completion_log_probs(model, lanes, &sides, device));
    loss.margins(policy, floats(&|side| side.reference), floats(&|side| side.completion as f32))
}

/// Fills in `log ρ` of both sides under the backbone.
fn set_reference(backbone: &Qwen2, pairs: &mut [&mut Pair]) {
    let device = backbone.embed_tokens.val().device();
    let sides: Vec<&Side> = pairs.iter().flat_map(|pair| [&pair.chosen, &pair.rejected]).collect();
    let values = completion_log_probs(backbone, Lanes::backbone(), &sides, &device).into_data();
    let values: Vec<f32> = values.iter::<f32>().collect();
    for (pair, value) in pairs.iter_mut().zip(values.chunks_exact(2)) {
        (pair.chosen.reference, pair.rejected.reference) = (value[0], value[1]);
    }
}

/// Measures held-out pairs.
fn measure(
    backbone: &Qwen2,
    matrices: &Matrices,
    options: &DpoOptions,
    held_out: &[Pair],
) -> Result<PreferenceReport, TrainError> {
    let config = &backbone.config;
    let device = backbone.embed_tokens.val().device();
    let scale = options.alpha / options.rank as f64;
    let stack = AdapterStack::new(config, &[Some(&matrices.adapter(config, &options.targets, scale))], &device)?;
    let mut values = Vec::with_capacity(held_out.len());
    let mut sum = 0.0;
    for group in held_out.chunks(options.run.batch) {
        let pairs: Vec<&Pair> = group.iter().collect();
        let margins = margins(backbone, Lanes::of(&stack), &pairs, &options.loss, &device);
        values.extend(margins.clone().into_data().iter::<f32>().map(f64::from));
        sum += f64::from(options.loss.loss(margins).into_scalar::<f32>()) * pairs.len() as f64;
    }
    let lengths: Vec<(usize, usize)> = held_out.iter().map(|pair| (pair.chosen.completion, pair.rejected.completion)).collect();
    Ok(PreferenceReport::new(sum / held_out.len() as f64, &values, &lengths))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns pairs of these lengths.
    fn pairs(lengths: impl Iterator<Item = usize>) -> Vec<Pair> {
        let side = |length| Side { ids: vec![0; length], completion: 1, reference: 0.0 };
        lengths.map(|length| Pair { chosen: side(length), rejected: side(length) }).collect()
    }

    #[test]
    fn steps_end_once_every_pair_has_occurred() {
        let pairs = pairs(2..102);
        let mut order = Order::new(1, &pairs);
        let steps: Vec<Vec<usize>> = order.steps(0..u64::MAX, 3).collect();
        // The first hundred positions lie in three windows of 16 steps of three pairs.
        assert!((34..=48).contains(&steps.len()), "{}", steps.len());
        assert_eq!(steps.iter().flatten().collect::<BTreeSet<_>>().len(), pairs.len());
        assert_eq!(order.steps(0..5, 3).collect::<Vec<_>>(), steps[..5]);
        assert!((0..5).all(|step| order.step(step, 3) == steps[step as usize]));
    }

    #[test]
    fn the_logits_of_measured_pairs_take_memory() {
        let mut pairs = pairs(2..5);
        pairs[2].chosen.completion = 300;
        assert_eq!(measuring(&pairs, 2).map(|pass| pass.completion).collect::<Vec<_>>(), [4, 301]);
    }

    #[test]
    fn few_pairs_occur_once_an_epoch() {
        let pairs = pairs((0..57).map(|index| 2 + index % 9));
        let mut order = Order::new(1, &pairs);
        let seen: Vec<usize> = (0..3).flat_map(|step| order.step(step, 16)).collect();
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len());
        // Two windows of three steps hold the first epoch whole.
        let seen: BTreeSet<usize> = (0..6).flat_map(|step| order.step(step, 16)).collect();
        assert_eq!(seen.len(), pairs.len());
        // A step with more pairs than there are takes them one epoch after the other.
        assert!(pairs.len() < 60 && order.step(0, 60).iter().collect::<BTreeSet<_>>().len() == pairs.len());
    }
}
