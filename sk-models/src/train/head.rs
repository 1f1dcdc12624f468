//! Heads from preference pairs: future discriminators and reward models on the frozen backbone's
//! hidden states.
//!
//! The backbone is frozen and a head is linear, so each hidden state is computed once and what
//! remains is a convex problem with one minimum: [`train_head`] finds it by L-BFGS in f64 on the
//! processor. A run takes one forward pass over the pairs and a few seconds, so it is not resumed.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

use burn::tensor::{Device, Int, Tensor};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    data::DataOptions,
    encoder::Encoder,
    error::TrainError,
    lbfgs::Iterate,
    logistic::{Logistic, sigmoid, softplus},
    pairs::{Pair, Side, SplitPairs},
    preference::wilson,
    state::OutputFolder,
};
use crate::{
    head::{Head, HeadKind},
    hf::{Checkpoint, HEAD_WEIGHTS, save_head},
    lora::Lanes,
    memory::{Shortage, free_memory},
    model::Qwen2,
};

/// Norm of the gradient, in nats per standard deviation of a column, at which the minimum counts as
/// reached.
const TOLERANCE: f64 = 1e-5;
/// Bins of the calibration error.
const BINS: usize = 10;

/// Settings of a head.
#[derive(Debug, Clone)]
pub struct HeadOptions {
    /// The kind of head to train.
    pub kind: HeadKind,
    /// The judged attribute, stored in `head_config.json`.
    pub attribute: String,
    /// Directory of the backbone.
    pub model: PathBuf,
    /// Preference pairs. For a discriminator, the chosen side has the attribute and the rejected
    /// side does not.
    pub data: DataOptions,
    /// Directory for the head.
    pub output: PathBuf,
    /// Longest prompt and completion together, in tokens; prompts lose their beginning.
    pub length: usize,
    /// Completions per forward pass.
    pub batch: usize,
    /// The largest number of training pairs, drawn by the seed; `None` for all.
    pub pairs: Option<usize>,
    /// Bytes that hidden states may take; training pairs beyond are left out.
    pub memory: u64,
    /// λ of the penalty λ/2·‖w‖² on the weights of standardised hidden states; for a reward head,
    /// of their differences between the sides, divided by their root mean squares.
    pub l2: f64,
    /// The largest number of iterations.
    pub iterations: usize,
    /// Seed of the drawn pairs, if not all are used.
    pub seed: u64,
}

/// An event of a run.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum HeadEvent {
    /// Some pairs of the data are unusable or excluded. Reported for each reason, before all other
    /// events.
    LeftOut {
        /// Their number.
        pairs: usize,
        /// The reason, as the end of a sentence, such as `with equal answers`.
        reason: &'static str,
    },
    /// The pairs are ready.
    Started {
        /// H, the width of the hidden states.
        width: usize,
        /// Pairs to train on.
        pairs: usize,
        /// Training pairs left out for the limits on pairs or memory.
        left_out: usize,
        /// Pairs held out.
        held_out: usize,
    },
    /// Hidden states of some completions are done.
    Features {
        /// Completions done.
        done: usize,
        /// All completions, those held out included.
        total: usize,
    },
    /// An iteration of the optimiser is done.
    Fitting {
        /// Iterations done.
        iteration: usize,
        /// Penalised training loss, in nats.
        loss: f64,
        /// Norm of its gradient.
        norm: f64,
    },
}

/// The accuracy of a head at one point of the completions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accuracy {
    /// Share of the completion that it has read: ¼, ½, ¾ or 1.
    pub read: f64,
    /// Share of correct decisions: on completions for a discriminator, on pairs for a reward. A tie
    /// counts as wrong.
    pub accuracy: f64,
    /// 95% interval, by Wilson's score.
    pub interval: (f64, f64),
}

/// The calibration of a discriminator's probabilities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Mean of (p − y)² over prefixes: 0 is perfect, ¼ a coin.
    pub brier: f64,
    /// Expected calibration error: the mean over prefixes of |mean p − share of y| in their bin,
    /// ten of equal width.
    pub expected_error: f64,
}

/// Measurements of a head on held-out pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadReport {
    /// Pairs measured.
    pub pairs: usize,
    /// Mean loss in nats, without the penalty.
    pub loss: f64,
    /// The accuracy at each quarter of the completions.
    pub accuracy: [Accuracy; 4],
    /// The calibration of a discriminator.
    pub calibration: Option<Calibration>,
    /// Iterations of the optimiser.
    pub iterations: usize,
    /// Penalised training loss in nats.
    pub training_loss: f64,
}

impl fmt::Display for HeadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} held-out pairs: loss {:.4} (penalised training {:.4})", self.pairs, self.loss, self.training_loss)?;
        for Accuracy { read, accuracy, interval: (low, high) } in self.accuracy {
            write!(f, ", accuracy after {:.0} % {accuracy:.3} [{low:.3}, {high:.3}]", 100.0 * read)?;
        }
        match self.calibration {
            Some(Calibration { brier, expected_error }) => write!(f, ", Brier {brier:.4}, calibration error {expected_error:.4}"),
            None => Ok(()),
        }
    }
}

/// Trains a head and writes `head_config.json` and `head.safetensors`. Returns the measurements on
/// the held-out pairs.
///
/// Let v_t be the head's value after token t of a completion of L tokens. A discriminator minimises
/// its error at every prefix, as FUDGE (Yang & Klein 2021) does:
///
/// ```text
/// mean over completions of 1/L Σ_t log(1 + e^{−s v_t}),   s = 1 for the chosen side, −1 for the rejected
/// ```
///
/// Every completion has the same weight, so that the longer side of the pairs does not shift the
/// base rate. A reward minimises the Bradley–Terry loss of the values after the last token:
///
/// ```text
/// mean over pairs of log(1 + e^{−(v_c − v_r)})
/// ```
///
/// The bias cancels, and is set so that the mean reward of the training completions is zero. The
/// result depends on the options alone. One forward pass over every completion, then
/// O(iterations·rows·H).
///
/// # Errors
///
/// If the backbone or the pairs are unusable, a setting is out of range, or a file cannot be
/// written.
pub fn train_head(options: &HeadOptions, device: &Device, report: &mut dyn FnMut(HeadEvent)) -> Result<HeadReport, TrainError> {
    check(options)?;
    let _output = OutputFolder::claim(&options.output, None, &[HEAD_WEIGHTS])?;
    let encoder = Encoder::load(&options.model)?;
    let checkpoint = Checkpoint::from_directory(&options.model)?;
    TrainError::check_context(options.length, checkpoint.config(), "lower --length")?;
    let backbone = checkpoint.model(device)?;
    let split = SplitPairs::load(&options.data, options.length, &encoder)?;
    split.left_out.iter().for_each(|&(reason, pairs)| report(HeadEvent::LeftOut { pairs, reason }));
    let (mut train, held_out) = split.without_rows();
    let width = backbone.config.hidden_size;
    let all = train.len();
    train.shuffle(&mut ChaCha8Rng::seed_from_u64(options.seed));
    train.truncate(options.affordable(&train, width));
    let memory = format!("{} bytes", options.memory);
    TrainError::check("memory", memory, !train.is_empty(), "must hold the hidden states of one pair")?;
    let needed = train.iter().map(|pair| options.bytes(pair, width)).sum();
    if let Some(free) = free_memory().filter(|free| needed > *free) {
        return Err(TrainError::States { shortage: Shortage { needed, free } });
    }
    report(HeadEvent::Started { width, pairs: train.len(), left_out: all - train.len(), held_out: held_out.len() });

    let total = 2 * (train.len() + held_out.len());
    let states = StateReader { backbone: &backbone, batch: options.batch, model: &options.model };
    let set = TrainingSet::new(options.kind, &states, &train, &mut |done| report(HeadEvent::Features { done, total }))?;
    let problem = Logistic {
        rows: &set.rows,
        positive: &set.positive,
        weights: &set.weights,
        width,
        l2: options.l2,
        intercept: options.kind == HeadKind::Discriminator,
    };
    let fit = problem.fit(TOLERANCE, options.iterations, |Iterate { iteration, value, norm }| {
        report(HeadEvent::Fitting { iteration, loss: value, norm });
    });
    let bias = match options.kind {
        HeadKind::Discriminator => fit.bias,
        HeadKind::Reward => -fit.weight.iter().zip(&set.mean).map(|(w, mean)| w * mean).sum::<f64>(),
    };
    let weight = fit.weight.iter().map(|&w| w as f32).collect();
    let head = Head { kind: options.kind, attribute: options.attribute.clone(), weight, bias: bias as f32 };

    let seen = 2 * train.len();
    let mut values = vec![Vec::new(); 2 * held_out.len()];
    let mut progress = |done| report(HeadEvent::Features { done: seen + done, total });
    states.visit(&held_out, |side| 0..side.completion, &mut progress, &mut |side, states| {
        values[side] = states.chunks_exact(width).map(|state| value(&head, state)).collect();
    })?;
    let (loss, accuracy, calibration) = match options.kind {
        HeadKind::Discriminator => judge_discriminator(&values),
        HeadKind::Reward => judge_reward(&values),
    };
    save_head(&head, &options.output)?;
    let (iterations, training_loss) = (fit.end.iteration, fit.end.value);
    Ok(HeadReport { pairs: held_out.len(), loss, accuracy, calibration, iterations, training_loss })
}

impl HeadOptions {
    /// Returns how many of the first pairs fit the limits.
    fn affordable(&self, pairs: &[Pair], width: usize) -> usize {
        let mut bytes = 0;
        let fits = |pair: &&Pair| {
            bytes += self.bytes(pair, width);
            bytes <= self.memory
        };
        pairs.iter().take(self.pairs.unwrap_or(pairs.len())).take_while(fits).count()
    }

    /// Returns the bytes of the hidden states of a pair.
    fn bytes(&self, pair: &Pair, width: usize) -> u64 {
        let rows = match self.kind {
            HeadKind::Discriminator => pair.chosen.completion + pair.rejected.completion,
            HeadKind::Reward => 2,
        };
        (rows * width * size_of::<f32>()) as u64
    }
}

fn check(options: &HeadOptions) -> Result<(), TrainError> {
    let pairs = options.pairs.map_or(1, |pairs| pairs as u64);
    TrainError::check_counts(&[("batch", options.batch as u64), ("iterations", options.iterations as u64), ("pairs", pairs)])?;
    TrainError::check("length", options.length, options.length >= 4, "must be at least 4 tokens")?;
    TrainError::check_number("l2", options.l2, false)?;
    TrainError::check_split("held-out", options.data.held_out)
}

/// Returns both sides of each pair: side 2p is chosen, side 2p + 1 rejected.
fn sides(pairs: &[Pair]) -> Vec<&Side> {
    pairs.iter().flat_map(|pair| [&pair.chosen, &pair.rejected]).collect()
}

/// Returns whether side `index` is chosen.
fn is_chosen(index: usize) -> bool {
    index.is_multiple_of(2)
}

/// The backbone that computes hidden states, and its batch size.
struct StateReader<'a> {
    backbone: &'a Qwen2,
    batch: usize,
    model: &'a Path,
}

impl StateReader<'_> {
    /// Calls `take` with the final-norm states after some tokens of each completion, row by row,
    /// and the index of the side.
    ///
    /// `tokens` selects tokens, counted from 0 within the completion. Sides are ordered by length
    /// to avoid padding, and at most one batch of states is held.
    fn visit(
        &self,
        pairs: &[Pair],
        tokens: impl Fn(&Side) -> Range<usize>,
        progress: &mut dyn FnMut(usize),
        take: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), TrainError> {
        let (device, width) = (self.backbone.device(), self.backbone.config.hidden_size);
        let sides = sides(pairs);
        let mut order: Vec<usize> = (0..sides.len()).collect();
        order.sort_by_key(|&index| (sides[index].ids.len(), index));
        let mut done = 0;
        for group in order.chunks(self.batch) {
            let length = group.iter().map(|&index| sides[index].ids.len()).max().unwrap_or(0);
            let mut inputs = vec![0_u32; group.len() * length];
            let mut places = Vec::new();
            for (row, &index) in group.iter().enumerate() {
                let side = sides[index];
                inputs[row * length..][..side.ids.len()].copy_from_slice(&side.ids);
                let first = row * length + side.ids.len() - side.completion;
                places.extend(tokens(side).map(|token| first + token));
            }
            let inputs = Tensor::<1, Int>::from_data(&inputs[..], &device).reshape([group.len(), length]);
            let places = Tensor::from_data(&places[..], &device);
            // Padding at the end is invisible to causal attention.
            let states = self.backbone.forward(inputs, Lanes::backbone()).select(0, places);
            let states: Vec<f32> = states.into_data().iter::<f32>().collect();
            if states.iter().any(|state| !state.is_finite()) {
                let reason = "the hidden states hold NaN or infinity: the weights are damaged or overflow on this device".into();
                return Err(TrainError::Weights { path: self.model.display().to_string(), reason });
            }
            let mut rest = states.as_slice();
            for &index in group {
                let (own, after) = rest.split_at(tokens(sides[index]).len() * width);
                take(index, own);
                rest = after;
            }
            done += group.len();
            progress(done);
        }
        Ok(())
    }
}

/// The rows of a logistic regression.
struct TrainingSet {
    /// `[n·H]`.
    rows: Vec<f32>,
    positive: Vec<bool>,
    /// They sum to one.
    weights: Vec<f64>,
    /// Mean hidden state after the last token, `[H]`, which centres a reward.
    mean: Vec<f64>,
}

impl TrainingSet {
    fn new(
        kind: HeadKind,
        states: &StateReader<'_>,
        pairs: &[Pair],
        progress: &mut dyn FnMut(usize),
    ) -> Result<Self, TrainError> {
        let width = states.backbone.config.hidden_size;
        let sides = sides(pairs);
        let first = |side: &Side| match kind {
            HeadKind::Discriminator => 0,
            HeadKind::Reward => side.completion - 1,
        };
        let tokens = |side: &Side| first(side)..side.completion;
        let mut starts = vec![0];
        starts.extend(sides.iter().scan(0, |end, side| {
            *end += tokens(side).len() * width;
            Some(*end)
        }));
        let mut rows = vec![0.0; starts[sides.len()]];
        let mut mean = vec![0.0; width];
        states.visit(pairs, tokens, progress, &mut |side, states| {
            rows[starts[side]..starts[side + 1]].copy_from_slice(states);
            let last = &states[states.len() - width..];
            mean.iter_mut().zip(last).for_each(|(mean, &x)| *mean += f64::from(x) / sides.len() as f64);
        })?;
        Ok(match kind {
            HeadKind::Discriminator => {
                let owners =
                    || sides.iter().enumerate().flat_map(|(index, side)| std::iter::repeat_n((index, side), side.completion));
                let weight = |side: &Side| 1.0 / (sides.len() * side.completion) as f64;
                let positive = owners().map(|(index, _)| is_chosen(index)).collect();
                Self { rows, positive, weights: owners().map(|(_, side)| weight(side)).collect(), mean }
            }
            HeadKind::Reward => {
                let difference = |both: &[f32]| -> Vec<f32> {
                    let (chosen, rejected) = both.split_at(width);
                    chosen.iter().zip(rejected).map(|(c, r)| c - r).collect()
                };
                let rows = rows.chunks_exact(2 * width).flat_map(difference).collect();
                Self { rows, positive: vec![true; pairs.len()], weights: vec![1.0 / pairs.len() as f64; pairs.len()], mean }
            }
        })
    }
}

/// Returns v = w·h + b.
fn value(head: &Head, state: &[f32]) -> f64 {
    f64::from(head.bias) + head.weight.iter().zip(state).map(|(&w, &h)| f64::from(w) * f64::from(h)).sum::<f64>()
}

/// Returns the value after a quarter, half, three quarters and all of the tokens, but at least one
/// token.
fn quarters(values: &[f64]) -> [f64; 4] {
    [1, 2, 3, 4].map(|q| values[(q * values.len()).div_ceil(4) - 1])
}

/// Computes accuracies from the correctness of each trial at each quarter.
fn accuracies(trials: &[[bool; 4]]) -> [Accuracy; 4] {
    [0, 1, 2, 3].map(|quarter| {
        let hits = trials.iter().filter(|trial| trial[quarter]).count();
        Accuracy {
            read: (quarter + 1) as f64 / 4.0,
            accuracy: hits as f64 / trials.len() as f64,
            interval: wilson(hits, trials.len()),
        }
    })
}

/// Loss, accuracy and calibration.
type Judgement = (f64, [Accuracy; 4], Option<Calibration>);

/// Measures log-odds, one row per side: every completion has the same weight, and so has each of
/// its prefixes.
fn judge_discriminator(values: &[Vec<f64>]) -> Judgement {
    let (mut loss, mut brier) = (0.0, 0.0);
    // Σ(y − p) of each bin.
    let mut excess = [0.0; BINS];
    for (side, own) in values.iter().enumerate() {
        let weight = 1.0 / (values.len() * own.len()) as f64;
        let (sign, label) = if is_chosen(side) { (1.0, 1.0) } else { (-1.0, 0.0) };
        for &v in own {
            let p = sigmoid(v);
            loss += weight * softplus(-sign * v);
            brier += weight * (p - label).powi(2);
            excess[((p * BINS as f64) as usize).min(BINS - 1)] += weight * (label - p);
        }
    }
    let right = |(side, own): (usize, &Vec<f64>)| quarters(own).map(|v| if is_chosen(side) { v > 0.0 } else { v < 0.0 });
    let trials: Vec<_> = values.iter().enumerate().map(right).collect();
    let expected_error = excess.iter().map(|excess| excess.abs()).sum();
    (loss, accuracies(&trials), Some(Calibration { brier, expected_error }))
}

/// Measures rewards by pair; the loss uses the last token.
fn judge_reward(values: &[Vec<f64>]) -> Judgement {
    let margins = values.chunks_exact(2).map(|pair| {
        let (chosen, rejected) = (quarters(&pair[0]), quarters(&pair[1]));
        [0, 1, 2, 3].map(|quarter| chosen[quarter] - rejected[quarter])
    });
    let margins: Vec<[f64; 4]> = margins.collect();
    let loss = margins.iter().map(|margin| softplus(-margin[3])).sum::<f64>() / margins.len() as f64;
    let trials: Vec<_> = margins.into_iter().map(|margin| margin.map(|margin| margin > 0.0)).collect();
    (loss, accuracies(&trials), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A few roundings of f64.
    const TOLERANCE: f64 = 1e-12;

    #[test]
    fn quarters_are_counted_from_the_end() {
        let values: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(quarters(&values), [3.0, 5.0, 7.0, 9.0]);
        assert_eq!(quarters(&values[..4]), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(quarters(&values[..1]), [1.0; 4]);
    }

    #[test]
    fn discriminators_are_judged_by_hand() {
        let odds = f64::ln;
        // Two pairs. p is ¾ and ½ along the first chosen side, then ¼ for the other three
        // completions.
        let values = [vec![odds(3.0), 0.0], vec![odds(1.0 / 3.0)], vec![odds(1.0 / 3.0)], vec![odds(1.0 / 3.0)]];
        let (loss, accuracy, calibration) = judge_discriminator(&values);
        let expected = -(0.5 * (0.75f64.ln() + 0.5f64.ln()) + 0.75f64.ln() + 0.25f64.ln() + 0.75f64.ln()) / 4.0;
        assert!((loss - expected).abs() < TOLERANCE);
        // At its half, the first completion is right; at its end it is a tie, which counts as
        // wrong.
        assert_eq!(accuracy.map(|a| a.accuracy), [0.75, 0.75, 0.5, 0.5]);
        assert_eq!(accuracy.map(|a| a.read), [0.25, 0.5, 0.75, 1.0]);
        assert_eq!(accuracy[3].interval, wilson(2, 4));
        let Calibration { brier, expected_error } = calibration.unwrap();
        let squares = 0.5 * (0.0625 + 0.25) + 0.0625 + 0.5625 + 0.0625;
        assert!((brier - squares / 4.0).abs() < TOLERANCE);
        // Bins of ¼: one label of three is true, .75 expected; of ½ and ¾: half a completion each,
        // both true.
        assert!((expected_error - (0.25 + 0.125 + 0.25) / 4.0).abs() < TOLERANCE, "{expected_error}");
    }

    #[test]
    fn rewards_are_judged_by_pairs() {
        let values = [vec![0.0, 0.0, 1.0, 2.0], vec![1.0], vec![5.0], vec![6.0, 4.0]];
        let (loss, accuracy, calibration) = judge_reward(&values);
        assert!((loss - (1.0 + (-1f64).exp()).ln()).abs() < TOLERANCE);
        assert_eq!(accuracy.map(|a| a.accuracy), [0.0, 0.0, 0.5, 1.0]);
        assert_eq!(calibration, None);
    }
}
