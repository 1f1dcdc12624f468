//! The report of all measurements, as printed with `--json`.

use std::collections::BTreeMap;

use serde::Serialize;
use sk_models::roofline::Bandwidth;

use super::reconfiguration::Reconfiguration;
use super::sweep::AxisReport;
use crate::ruler::{Figure, Footprint, Roofs, Spread};
use sk_core::Seconds;

/// The times of one turn of frozen and steered generation, in seconds.
pub(super) struct Turn {
    pub(super) prefill: f64,
    pub(super) frozen: f64,
    pub(super) steered: f64,
    pub(super) seconds: Seconds,
    /// Tokens and seconds of the steps after the first.
    pub(super) later: Option<(usize, f64)>,
    /// Seconds of several concurrent generations.
    pub(super) side_by_side: Option<f64>,
}

impl Turn {
    pub(super) fn frozen_with_prompt(&self) -> f64 {
        self.prefill + self.frozen
    }
}

/// The report of all measurements.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    pub(super) device: String,
    /// The precision of the weights.
    pub(super) precision: String,
    /// The CPU instructions that are used for matrix products.
    pub(super) instructions: Option<String>,
    /// Number of CPU threads, for probes and models.
    pub(super) threads: usize,
    pub(super) repeat: usize,
    pub(super) prompt_tokens: usize,
    pub(super) new_tokens: usize,
    pub(super) candidates: usize,
    pub(super) blades: usize,
    pub(super) span_tokens: usize,
    /// One-minute load average of the machine at the start. It should be near zero.
    pub(super) load_average: Option<f64>,
    /// The limits of the device, measured once per repetition.
    pub(super) roof: RoofReport,
    /// Seconds to load backbone, drafter and blades, or to fill them with random weights.
    pub(super) load_seconds: f64,
    /// The load time and its floor, at which every byte is written once.
    pub(super) load: Figure,
    /// Extra time of the first runs, for selecting and compiling kernels and for first memory
    /// accesses.
    pub(super) warm_up: WarmUp,
    /// Prompt tokens per second of the backbone's prefill.
    pub(super) prefill: Figure,
    /// Tokens per second of the backbone alone, greedy, without the prefill.
    pub(super) frozen: Figure,
    /// Tokens per second of the backbone alone, greedy, including the prefill.
    pub(super) frozen_with_prompt: Figure,
    /// Tokens per second of steered generation, including the prefill.
    pub(super) steered: Figure,
    /// Tokens per second of the steered steps after the first, which includes the prefill.
    pub(super) later_steps: Option<Figure>,
    /// Median seconds of each part of a steered run.
    pub(super) steered_seconds: Seconds,
    /// Tokens per second of steered generation, divided by those of frozen generation; both include
    /// the prefill.
    pub(super) steered_over_frozen: Spread,
    /// Tokens per second of the steps after the first, divided by those of frozen generation; both
    /// exclude the prefill.
    pub(super) later_steps_over_frozen: Option<Spread>,
    /// Concurrent generations, if requested.
    pub(super) generations: Option<Generations>,
    /// Edits of Ω; `None` if the scheme has no adapter or refers to a blade by name.
    pub(super) reconfiguration: Option<Reconfiguration>,
    /// Number of kernels launched on a GPU.
    pub(super) kernels: Option<Kernels>,
    /// The memory that a steered run needs, from the formula, in bytes.
    pub(super) memory: Footprint,
    /// Peak memory after the models were loaded and had run once, in bytes: the resident size of
    /// the process (Linux), or the reserved memory of a GPU.
    pub(super) peak_memory: Option<u64>,
    /// Other programs, measured alternately.
    pub(super) against: Vec<OpponentReport>,
    /// Steps along the requested axes.
    pub(super) sweeps: Vec<AxisReport>,
}

/// Bandwidths in bytes per second and peaks in operations per second.
#[derive(Debug, Serialize)]
pub(super) struct RoofReport {
    /// Reading a working set of the backbone's size.
    pub(super) backbone_read: Spread,
    /// STREAM's triad over such a working set.
    pub(super) backbone_triad: Spread,
    /// Reading a working set of the drafter's size.
    pub(super) drafter_read: Spread,
    /// STREAM's triad over such a working set.
    pub(super) drafter_triad: Spread,
    /// A large matrix product.
    pub(super) product: Spread,
    /// Multiply-adds in registers, on a CPU.
    pub(super) registers: Option<Spread>,
}

impl RoofReport {
    pub(super) fn new(roofs: &Roofs) -> Self {
        let bandwidth = |of: &[Bandwidth], f: fn(&Bandwidth) -> f64| Spread::of(of.iter().map(f));
        let Roofs { backbone, drafter, peaks } = roofs;
        let registers: Vec<f64> = peaks.iter().filter_map(|peak| peak.registers).collect();
        Self {
            backbone_read: bandwidth(backbone, |b| b.read),
            backbone_triad: bandwidth(backbone, |b| b.triad),
            drafter_read: bandwidth(drafter, |b| b.read),
            drafter_triad: bandwidth(drafter, |b| b.triad),
            product: Spread::of(peaks.iter().map(|peak| peak.product)),
            registers: (!registers.is_empty()).then(|| Spread::of(registers)),
        }
    }
}

/// Seconds by which the first runs exceed the median of the later ones, at least zero.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct WarmUp {
    /// For the backbone alone, including the prefill.
    pub(super) frozen: f64,
    /// For steered generation.
    pub(super) steered: f64,
}

impl WarmUp {
    pub(super) fn new(first: &Turn, turns: &[Turn]) -> Self {
        let beyond = |f: fn(&Turn) -> f64| (f(first) - Spread::of(turns.iter().map(f)).median).max(0.0);
        Self { frozen: beyond(Turn::frozen_with_prompt), steered: beyond(|turn| turn.steered) }
    }
}

/// Returns the median seconds of each part of a steered run.
pub(super) fn parts(turns: &[Turn]) -> Seconds {
    let part = |f: fn(&Seconds) -> f64| Spread::of(turns.iter().map(|turn| f(&turn.seconds))).median;
    Seconds { draft: part(|s| s.draft), score: part(|s| s.score), select: part(|s| s.select), commit: part(|s| s.commit) }
}

/// Returns the rate of steered over frozen generation, both including the prefill. Both generate
/// the same number of tokens.
pub(super) fn steered_over_frozen(turns: &[Turn]) -> Spread {
    Spread::of_ratios(turns.iter().map(Turn::frozen_with_prompt), turns.iter().map(|turn| turn.steered))
}

/// Returns the rate of the steps after the first over frozen generation, both without the prefill.
pub(super) fn later_over_frozen(turns: &[Turn], new_tokens: usize) -> Option<Spread> {
    let later: Vec<f64> = turns.iter().filter_map(|turn| turn.later).map(|(tokens, seconds)| tokens as f64 / seconds).collect();
    let frozen = turns.iter().map(|turn| new_tokens as f64 / turn.frozen);
    (!later.is_empty()).then(|| Spread::of_ratios(later, frozen))
}

/// Number of kernels launched on a GPU. It limits the speed of decoding if a kernel takes less time
/// than its launch.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Kernels {
    /// Average per token of the backbone alone.
    pub(super) frozen_token: f64,
    /// Number per steered step.
    pub(super) step: usize,
}

/// Concurrent generations with batched forward passes, each on its own thread.
#[derive(Debug, Serialize)]
pub(super) struct Generations {
    /// Number of generations.
    pub(super) count: usize,
    /// Total tokens per second of all generations, including the prefill.
    pub(super) steered: Figure,
    /// The total rate over the rate of a single generation.
    pub(super) over_one: Spread,
}

impl Generations {
    pub(super) fn new(count: usize, turns: &[Turn], new_tokens: usize) -> Option<Self> {
        let seconds: Vec<f64> = turns.iter().filter_map(|turn| turn.side_by_side).collect();
        let rates = seconds.iter().map(|seconds| count as f64 / seconds);
        (!seconds.is_empty()).then(|| Self {
            count,
            over_one: Spread::of_ratios(rates, turns.iter().map(|turn| turn.steered.recip())),
            steered: Figure::rate(count * new_tokens, seconds.iter().copied(), None),
        })
    }
}

/// The figures of another program.
#[derive(Debug, Serialize)]
pub(super) struct OpponentReport {
    pub(super) command: String,
    /// The figures that it reported.
    pub(super) figures: Vec<OpponentFigure>,
}

/// A figure of another program, and the ratio of our rates to it, repetition by repetition.
#[derive(Debug, Serialize)]
pub(super) struct OpponentFigure {
    /// The name of the figure.
    pub(super) name: String,
    /// Tokens per second, or seconds if the name ends in `_seconds`.
    pub(super) value: Spread,
    /// Our frozen rate, including the prefill, over this rate; `None` for a time.
    pub(super) frozen_over: Option<Spread>,
    /// Our steered rate over this rate; `None` for a time.
    pub(super) steered_over: Option<Spread>,
}

impl OpponentFigure {
    /// Returns whether a figure with this name is a time and not a rate.
    pub(super) fn is_time(name: &str) -> bool {
        name.ends_with("_seconds")
    }

    fn new(name: &str, answers: &[BTreeMap<String, f64>], turns: &[Turn], new_tokens: usize) -> Self {
        let values: Vec<f64> = answers.iter().filter_map(|answer| answer.get(name).copied()).collect();
        let over = |f: fn(&Turn) -> f64| {
            let ours = turns.iter().map(|turn| new_tokens as f64 / f(turn));
            (!Self::is_time(name)).then(|| Spread::of_ratios(ours, values.iter().copied()))
        };
        let (frozen_over, steered_over) = (over(Turn::frozen_with_prompt), over(|turn| turn.steered));
        Self { name: name.to_owned(), value: Spread::of(values), frozen_over, steered_over }
    }
}

impl OpponentReport {
    /// Returns the report of the answers of `command`, one per turn.
    pub(super) fn new(command: &str, answers: &[BTreeMap<String, f64>], turns: &[Turn], new_tokens: usize) -> Self {
        let names = answers.first().into_iter().flat_map(BTreeMap::keys);
        let figures = names.map(|name| OpponentFigure::new(name, answers, turns, new_tokens)).collect();
        Self { command: command.to_owned(), figures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(frozen: f64, steered: f64, later: Option<(usize, f64)>) -> Turn {
        Turn { prefill: 1.0, frozen, steered, seconds: Seconds::default(), later, side_by_side: None }
    }

    /// The turns of a machine that runs at full speed, at half speed, and at full speed again.
    fn turns() -> [Turn; 3] {
        [turn(3.0, 2.0, Some((8, 1.0))), turn(7.0, 4.0, Some((8, 2.0))), turn(3.0, 2.0, Some((8, 1.0)))]
    }

    #[test]
    fn ratios_are_taken_within_a_turn() {
        assert_eq!(steered_over_frozen(&turns()), Spread { median: 2.0, min: 2.0, max: 2.0 });
        // After the first step, 8 tokens per second against 12/3, then 4 against 12/7.
        assert_eq!(later_over_frozen(&turns(), 12).unwrap().median, 2.0);
        assert_eq!(later_over_frozen(&[turn(1.0, 1.0, None)], 12), None);
        let warm_up = WarmUp::new(&turn(9.0, 1.0, None), &turns());
        assert_eq!((warm_up.frozen, warm_up.steered), (6.0, 0.0));
    }

    #[test]
    fn concurrent_generations_are_compared_with_one() {
        assert!(Generations::new(4, &turns(), 12).is_none());
        let turns = turns().map(|turn| Turn { side_by_side: Some(2.0 * turn.steered), ..turn });
        let four = Generations::new(4, &turns, 12).unwrap();
        // Four responses in the time of two, 48 tokens in 4, 8 and 4 seconds.
        assert_eq!((four.count, four.over_one.median, four.steered.spread.median), (4, 2.0, 12.0));
    }

    #[test]
    fn rates_of_others_are_compared_and_times_are_shown() {
        let answer = |greedy: f64| BTreeMap::from([("greedy".to_owned(), greedy), ("swap_seconds".to_owned(), 0.5)]);
        let report = OpponentReport::new("peer", &[answer(1.5), answer(0.75), answer(1.5)], &turns(), 12);
        let [greedy, swap] = &report.figures[..] else { panic!("{report:?}") };
        // Frozen made 12 tokens in 4, 8 and 4 seconds, steered in 2, 4 and 2.
        assert_eq!((greedy.name.as_str(), greedy.value.median, greedy.frozen_over.unwrap().max), ("greedy", 1.5, 2.0));
        assert_eq!(greedy.steered_over.unwrap(), Spread { median: 4.0, min: 4.0, max: 4.0 });
        assert_eq!((swap.name.as_str(), swap.value.median, swap.frozen_over), ("swap_seconds", 0.5, None));
    }
}
