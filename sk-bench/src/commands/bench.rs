//! `swiss-knife bench`: the cost of a model, frozen and steered, compared with the limits of the
//! device.

mod reconfiguration;
mod remote;
mod report;
mod sweep;
mod table;

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Instant;

use clap::Args;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sk_core::TokenId;
use sk_models::decoder::{Stop, instructions};
use sk_models::device::{counting_kernels, is_cpu};
use sk_models::engine::{Frozen, Sampling};
use sk_models::lora::LoraAdapter;
use sk_models::roofline;

use crate::args::{MAX_COUNT, RandomArgs, Sources, SteeringArgs, at_most, positive};
use crate::progress::{Loading, Work};
use crate::ruler::{
    Axis, AxisArg, Figure, Floors, Footprint, FrozenSeconds, Operating, Opponent, Roofs, Steered, TEXT, frozen, prompt,
};
use crate::scheme::{GranularitySpec, SchemeError, SchemeSpec};
use crate::{Error, memory, models, output};
use report::{BenchReport, Generations, Kernels, OpponentReport, Turn, WarmUp};
use sk_models::local::Models;

const EXAMPLES: &str = "\
Examples:
  # The model that ships with the program
  swiss-knife bench

  # Any checkpoint, seven repetitions, as JSON
  swiss-knife bench --backbone backbone --drafter drafter --blade helpful=blades/helpful \\
      --repeat 7 --json

  # Any shape, without a checkpoint
  swiss-knife bench --backbone-config 7b.json --drafter-config 3b.json --random-blades 3 \\
      --prompt-tokens 2048

  # How a step grows with the prefix, the candidates (N), the blades (K) and the length of a span
  # (L), each at the values named or at those of its own
  swiss-knife bench --sweep prefix=64:1024:4096,n,k,l

  # Sixteen generations that share backbone and drafter, against one
  swiss-knife bench --generations 16

  # In turns with another program, which prints a line such as {\"greedy\": 120.5} for each it reads
  swiss-knife bench --against 'python3 other.py'

Spans have a fixed length unless --scheme or --set granularity.FIELD is given. Nothing ends a
response early, so every repetition generates the same number of tokens. Frozen and steered runs
take turns, each with its own KV caches. Figures are medians with the range, beside the least time
that the measured bandwidth and peak of the device allow. For models behind servers, bench
measures the parts of a step, its requests and its bytes.";

/// Default number of tokens of a span.
const SPAN: usize = 24;

/// Options of `bench`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true, next_help_heading = "Measurement")]
pub struct BenchArgs {
    /// Repetitions.
    #[arg(long, value_name = "TIMES", default_value_t = 5, value_parser = positive)]
    repeat: usize,
    /// Tokens of the prompt.
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = positive)]
    prompt_tokens: usize,
    /// Tokens generated in each run.
    #[arg(long, value_name = "TOKENS", default_value_t = 96, value_parser = positive)]
    new_tokens: usize,
    /// Also measure a step along these axes: prefix, n, k, l.
    ///
    /// One number changes at a time; the others keep the values of the main measurement. AXIS=V:V:…
    /// gives the values. Without values, prefix goes from 64 to 4096 tokens, n from 1 to 32, k from
    /// 0 (the backbone alone) to 8, and l from 8 to 128. Random blades stand in for missing
    /// adapters.
    #[arg(long, value_name = "AXIS[=V:…],…", value_delimiter = ',')]
    sweep: Vec<AxisArg>,
    /// Also measure this many concurrent generations, which share the passes of both models.
    #[arg(long, value_name = "NUMBER", value_parser = at_most::<MAX_COUNT>)]
    generations: Option<usize>,
    /// A command to measure in turns with this program; may be repeated.
    ///
    /// For each repetition it reads an empty line and prints a JSON object of figures by name:
    /// tokens per second, or times where a name ends in _seconds. If it exits after its answer, it
    /// is started again. Rates are compared with those of this program, prompt included.
    #[arg(long, value_name = "COMMAND")]
    against: Vec<String>,
    /// Seed of the draws.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    models: Sources,
    #[command(flatten)]
    random: RandomArgs,
    #[command(flatten)]
    steering: SteeringArgs,
}

/// The subject of the measurement.
struct Subject<'a> {
    args: &'a BenchArgs,
    models: Models,
    config: SchemeSpec,
    /// The adapters of the scheme, followed by as many random ones as a sweep of K needs.
    adapters: Vec<(String, LoraAdapter)>,
    /// K, the number of blades of the scheme.
    blades: usize,
    load_seconds: f64,
    /// The text that prompts are made of.
    text: Vec<TokenId>,
    prompt: Vec<TokenId>,
}

/// Runs the command.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Error> {
    let load_average = memory::load_average();
    let mut loading = Loading::new(false);
    let text = if args.models.are_remote() {
        output::shown(&remote::measure(args, loading)?, args.json)?
    } else {
        let subject = Subject::load(args, &mut loading)?;
        drop(loading);
        let report = subject.measure(load_average)?;
        if args.json { output::pretty_json(&report)? } else { table::render(&report) }
    };
    writeln!(io::stdout().lock(), "{text}").map_err(Error::Output)
}

impl BenchArgs {
    /// Returns the scheme. Spans have a fixed length unless `--scheme` is given, or `--set` for the
    /// granularity.
    fn scheme(&self, shipped: bool) -> Result<SchemeSpec, Error> {
        let mut config = self.steering.steering().spec(shipped)?;
        let is_set = self.steering.operating.set.iter().any(|edit| edit.to_string().starts_with("granularity."));
        if self.steering.scheme.is_none() && !is_set && config.proposal.draft().is_some() {
            let span_tokens = self.steering.operating.numbers.get("span_tokens").map_or(SPAN, |tokens| tokens as usize);
            config.granularity = GranularitySpec::FixedLength { span_tokens };
        }
        Ok(config)
    }
}

impl<'a> Subject<'a> {
    fn load(args: &'a BenchArgs, loading: &mut Loading) -> Result<Self, Error> {
        let shipped = args.models.are_shipped() && args.random.backbone_config.is_none();
        let mut config = args.scheme(shipped)?;
        let start = Instant::now();
        let (mut models, mut adapters) = match &args.random.backbone_config {
            Some(backbone) => {
                if config.template.as_ref().is_some_and(|template| template.rule.head_kind().is_none()) {
                    (1..=args.random.random_blades).for_each(|k| config.seat(&format!("blade-{k}")));
                }
                config.check_start()?;
                let shapes = (backbone.as_path(), args.random.drafter_config.as_deref());
                Models::random(
                    shapes,
                    (args.models.device, args.models.precision),
                    args.random.random_seed,
                    &args.random.rank,
                    config.adapters().map(|(name, _)| name),
                    loading,
                )?
            }
            None => models::load_here(&args.models, &mut config, &mut [], loading)?,
        };
        args.steering.steering().check_effect(&config)?;
        models.backbone.device().sync().map_err(|error| sk_models::engine::EngineError::Device { message: error.to_string() })?;
        let load_seconds = start.elapsed().as_secs_f64();
        models.end_of_text.clear();

        let text = models.tokenizer.encode(TEXT)?;
        let prompt = prompt(&text, args.prompt_tokens, args.new_tokens, models.context_limit())?;
        let blades = adapters.len();
        let swept = args.sweep.iter().filter(|arg| arg.axis == Axis::Blades).flat_map(|arg| arg.values.iter().copied());
        for index in blades..swept.max().unwrap_or(0) {
            loading.show(&format!("filling blade {}", index + 1));
            let adapter = models.random_adapter(index, args.random.random_seed, &args.random.rank);
            adapters.push((format!("random-{}", index + 1), adapter));
        }
        Ok(Self { args, models, config, adapters, blades, load_seconds, text, prompt })
    }

    fn measure(&self, load_average: Option<f64>) -> Result<BenchReport, Error> {
        let args = self.args;
        // The display changes only between measurements.
        let mut work = Work::new("run", false);
        let runs = 1 + args.repeat as u64;
        work.begin(runs, 0);
        work.show(0, "warming up");
        let warm_up = self.turn()?;
        // Read the peak now: the measurements of the device below allocate their own buffers.
        let peak_memory = memory::peak_on(&self.models.backbone.device());
        let mut roofs = Roofs::default();
        let mut opponents: Vec<_> = args.against.iter().map(|command| (Opponent::new(command), Vec::new())).collect();
        let mut turns = Vec::new();
        for done in 1..runs {
            work.show(done, "");
            roofs.measure(&self.models);
            turns.push(self.turn()?);
            for (opponent, answers) in &mut opponents {
                answers.push(opponent.measure()?);
            }
        }
        let against = opponents
            .iter()
            .map(|(opponent, answers)| OpponentReport::new(opponent.command(), answers, &turns, args.new_tokens))
            .collect();
        drop(opponents);

        let floors = Floors::new(&self.models, &self.config, self.own_adapters(), &roofs)?;
        let at = self.operating();
        let end = Operating { prefix: at.prefix + args.new_tokens, ..at };
        let footprint = Footprint::new(&self.models, self.own_adapters(), &floors, end);
        work.show(runs, "changing blades and weights");
        let reconfiguration = self.reconfiguration(&floors)?;
        let kernels = self.kernels()?;
        let sweeps = args.sweep.iter().map(|axis| self.sweep(axis, &roofs, &mut work)).collect::<Result<_, _>>()?;

        let seconds = |f: fn(&Turn) -> f64| turns.iter().map(f);
        let frozen = floors.frozen(at.prefix, args.new_tokens);
        let later_tokens = turns.iter().filter_map(|turn| turn.later).map(|(tokens, _)| tokens).next();
        let first = at.span.min(args.new_tokens);
        let later_floor = floors.steps(Operating { prefix: at.prefix + first, ..at }, args.new_tokens - first);
        Ok(BenchReport {
            device: self.models.device().to_string(),
            precision: self.models.backbone.precision().to_string(),
            instructions: is_cpu(&self.models.backbone.device()).then(|| instructions(self.models.backbone.precision())),
            threads: roofline::threads(),
            repeat: args.repeat,
            prompt_tokens: args.prompt_tokens,
            new_tokens: args.new_tokens,
            candidates: at.candidates,
            blades: self.blades,
            span_tokens: at.span,
            load_average,
            roof: report::RoofReport::new(&roofs),
            load_seconds: self.load_seconds,
            load: Figure::seconds([self.load_seconds], Some(floors.load(footprint.total - footprint.cache))),
            warm_up: WarmUp::new(&warm_up, &turns),
            prefill: Figure::rate(at.prefix, seconds(|turn| turn.prefill), Some(floors.prefill(at.prefix))),
            frozen: Figure::rate(args.new_tokens, seconds(|turn| turn.frozen), Some(frozen)),
            frozen_with_prompt: Figure::rate(
                args.new_tokens,
                seconds(Turn::frozen_with_prompt),
                Some(floors.prefill(at.prefix) + frozen),
            ),
            steered: Figure::rate(
                args.new_tokens,
                seconds(|turn| turn.steered),
                floors.read(at.prefix).zip(floors.steps(at, args.new_tokens)).map(|(read, steps)| read + steps),
            ),
            later_steps: later_tokens.map(|tokens| {
                Figure::rate(tokens, turns.iter().filter_map(|turn| turn.later).map(|(_, seconds)| seconds), later_floor)
            }),
            steered_seconds: report::parts(&turns),
            steered_over_frozen: report::steered_over_frozen(&turns),
            later_steps_over_frozen: report::later_over_frozen(&turns, args.new_tokens),
            generations: args.generations.and_then(|count| Generations::new(count, &turns, args.new_tokens)),
            reconfiguration,
            kernels,
            memory: footprint,
            peak_memory,
            against,
            sweeps,
        })
    }

    /// Measures one turn of frozen and steered generation, each with its own KV caches.
    fn turn(&self) -> Result<Turn, Error> {
        let args = self.args;
        self.forget_prefixes();
        let FrozenSeconds { prefill, decode } = frozen(&self.models, &self.prompt, args.new_tokens, args.seed)?;
        self.forget_prefixes();
        let mut steered = self.steered(args.seed)?;
        let timed = steered.generate(&self.prompt, args.new_tokens)?;
        let side_by_side = args.generations.map(|count| self.side_by_side(count)).transpose()?;
        Ok(Turn { prefill, frozen: decode, steered: timed.elapsed, seconds: timed.seconds(), later: timed.later(), side_by_side })
    }

    /// Returns the scheme with its own adapters.
    fn steered(&self, seed: u64) -> Result<Steered, SchemeError> {
        Steered::new(&self.models, &self.config, self.own_adapters(), seed)
    }

    /// Returns the adapters of the scheme, without those of a sweep.
    fn own_adapters(&self) -> &[(String, LoraAdapter)] {
        &self.adapters[..self.blades]
    }

    /// Drops cached prefixes, so that the next run prefills its whole prompt.
    fn forget_prefixes(&self) {
        self.models.backbone.forget_prefixes();
        self.models.drafter.forget_prefixes();
    }

    /// Counts the kernels launched on a GPU.
    fn kernels(&self) -> Result<Option<Kernels>, Error> {
        if is_cpu(&self.models.backbone.device()) {
            return Ok(None);
        }
        let tokens = self.args.new_tokens;
        let mut frozen = Frozen::new(self.models.backbone.clone());
        let mut context = self.prompt.clone();
        frozen.next_logits(&context)?;
        let mut rng = ChaCha8Rng::seed_from_u64(self.args.seed);
        let decode = || frozen.decode(&mut context, &Sampling::greedy(), tokens, &[], &mut rng, |_| true);
        let (decoded, alone) = counting_kernels(decode);
        decoded?;
        let mut steered = self.steered(self.args.seed)?;
        // Prefills the prompt.
        steered.step(&self.prompt)?;
        let (step, of_step) = counting_kernels(|| steered.step(&self.prompt));
        step?;
        Ok(alone.zip(of_step).map(|(alone, step)| Kernels { frozen_token: alone as f64 / tokens as f64, step }))
    }

    /// Returns the seconds that `count` concurrent generations of different prompts take, each on
    /// its own thread, with batched forward passes.
    fn side_by_side(&self, count: usize) -> Result<f64, Error> {
        let mut generations = Vec::with_capacity(count);
        for index in 0..count {
            let seed = self.args.seed.wrapping_add(index as u64);
            let steered = self.steered(seed)?;
            let prompt: Vec<TokenId> = self.text.iter().copied().cycle().skip(index).take(self.prompt.len()).collect();
            generations.push((steered, prompt));
        }
        self.forget_prefixes();
        let (joined, joins) = mpsc::channel();
        // Whether all threads could be started.
        let complete = OnceLock::new();
        thread::scope(|scope| {
            let start = |(mut steered, prompt): (Steered, Vec<TokenId>)| {
                let (joined, complete) = (joined.clone(), &complete);
                thread::Builder::new().spawn_scoped(scope, move || {
                    let _here = self.models.scheduler.join(&Stop::new());
                    // This does not fail: the receiver outlives the threads.
                    let _ = joined.send(());
                    if *complete.wait() { steered.generate(&prompt, self.args.new_tokens).map(drop) } else { Ok(()) }
                })
            };
            let threads: io::Result<Vec<_>> = generations.into_iter().map(start).collect();
            if threads.is_ok() {
                joins.iter().take(count).for_each(drop);
            }
            let start = Instant::now();
            complete.get_or_init(|| threads.is_ok());
            for thread in threads.map_err(Error::starting_threads)? {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            }
            Ok(start.elapsed().as_secs_f64())
        })
    }

    /// Returns the operating point of all measurements except sweeps. Spans without a maximum
    /// length may be as long as the response.
    fn operating(&self) -> Operating {
        Operating {
            prefix: self.args.prompt_tokens,
            candidates: self.config.proposal.draft().map_or(1, |draft| draft.candidates),
            blades: self.blades,
            span: self.config.granularity.span_tokens().map_or(self.args.new_tokens, NonZeroUsize::get),
        }
    }
}
