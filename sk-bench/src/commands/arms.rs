//! `swiss-knife arms`: the choices of other schemes from the same candidates.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sk_core::StepTrace;

use super::generate::conversation;
use crate::args::{GenerationArgs, PromptArgs, Sources, SteeringArgs, written};
use crate::certificates::{Certificates, TOLERANCE};
use crate::pool::{ArmArg, Comparison, PlannedArm, PoolStep, Recording, Summary, companions, same_candidates, same_scores};
use crate::progress::Loading;
use crate::record_file::spare;
use crate::scheme::SchemeSpec;
use crate::trace::{StepRecord, TraceFile};
use crate::{Error, interrupt, models, output, session};
use sk_serve::host::Adapters;

const EXAMPLES: &str = "\
Examples:
  # The reference scheme answers; every ablation that can share its candidates is compared
  swiss-knife arms \"How do I apologise to a friend?\" -w helpful=0.6,honest=0.3,harmless=0.1

  # Two arms, one of them a changed scheme under its own name, as JSON
  swiss-knife arms \"Hi\" --arm no-cbn --arm cold=swiss-knife,selector.temperature=0.5 --json

  # Token by token: ARGS answers, the frozen backbone is compared
  swiss-knife arms \"Hi\" --scheme args --arm base --max-new-tokens 16

  # A trace that was written earlier, without a model
  swiss-knife arms --replay steps.jsonl --arm elo --arm softmax-mu --summary

The scheme drafts, and its choices are appended. The arms score, rate and select from the same
candidates, which the backbone reads once for all. The drafting options, --beta, --weights,
--preset, --convention, and --set on [proposal] and [granularity] apply to all arms. Other --set
options and the options of the operating point apply to the scheme alone.";

/// The default scheme of a replayed trace.
const REFERENCE: &str = "swiss-knife";

/// Options that do not apply to a replay. Options of drafting, --backbone and --drafter are allowed:
/// they describe how the trace was made, and the arms must agree with them.
const UNREPLAYED: [&str; 8] = ["PromptArgs", "GenerationArgs", "tokenizer", "blades", "heads", "device", "precision", "trace"];

/// The sections of the driving scheme that a replay reads: the arms must agree with them.
const REPLAYED: [&str; 3] = ["proposal", "granularity", "blades"];

/// Options of `arms`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct ArmsArgs {
    #[command(flatten)]
    prompt: PromptArgs,
    /// A scheme that chooses from the same candidates, optionally with a name and changed fields;
    /// may be repeated.
    ///
    /// Without this option, the arms are all other schemes that ship and can share the candidates.
    #[arg(long = "arm", value_name = "[NAME=]SCHEME[,SLOT.FIELD=VALUE…]", help_heading = "Arms")]
    arms: Vec<ArmArg>,
    /// Take candidates and scores from a trace, without a model.
    ///
    /// --scheme names the scheme that wrote the trace (with --trace of `generate`, `chat` or
    /// `arms`). Its choices are those of the trace, so options that would change them are refused.
    #[arg(long, value_name = "FILE", conflicts_with_all = UNREPLAYED, help_heading = "Arms")]
    replay: Option<PathBuf>,
    #[command(flatten)]
    steering: SteeringArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    models: Sources,
    /// Write a trace: one JSON object per step and line, with the results of each arm.
    #[arg(long, value_name = "FILE", value_parser = written(), help_heading = "Output")]
    trace: Option<PathBuf>,
    /// Print the summary only.
    #[arg(long, help_heading = "Output")]
    summary: bool,
    /// Print JSON instead of tables.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Do not show progress.
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct ArmsReport<'a> {
    /// The driving scheme.
    scheme: &'a str,
    /// The response, unless a trace is replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    summary: Summary,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    steps: &'a [PoolStep],
}

/// Collects the steps: shows or keeps them, and compares the arms.
struct Steps<'a> {
    args: &'a ArmsArgs,
    kept: Vec<PoolStep>,
    comparison: Comparison,
}

/// Runs the command.
pub(crate) fn run(args: &ArmsArgs) -> Result<(), Error> {
    let mut config = args.steering.scheme(&args.models)?;
    if args.replay.is_some() {
        args.check_replayed()?;
    }
    let name = args.steering.scheme.as_deref().map_or_else(|| REFERENCE.to_owned(), scheme_name);
    if let Some(trace) = &args.trace {
        let files = args.prompt.file.iter().chain(&args.steering.scheme).map(PathBuf::as_path);
        spare(files.chain(args.arms.iter().map(ArmArg::scheme)), trace)?;
        spare(args.models.files(), trace)?;
    }
    let mut arms = args.arms(&name, &config)?;
    let mut steps = Steps { args, kept: Vec::new(), comparison: Comparison::default() };
    let text = match &args.replay {
        Some(path) => {
            for arm in &arms {
                same_scores(&name, &config, arm)?;
            }
            let recording = Recording::read(path)?;
            for (step, distributions) in recording.replay(&name, &arms, args.steering.steering().weights()?.as_ref())? {
                steps.take(step, &distributions)?;
            }
            None
        }
        None => Some(args.answer(&name, &mut config, &mut arms, &mut steps)?),
    };
    steps.finish(&name, text.as_deref())
}

impl ArmsArgs {
    /// Checks that no option changes what a replay takes from the trace.
    fn check_replayed(&self) -> Result<(), Error> {
        let steering = self.steering.steering();
        let numbers = steering.numbers.iter().filter(|(parameter, _)| !REPLAYED.contains(&parameter.section));
        let numbers = numbers.filter_map(|(parameter, _)| Some(format!("--{}", parameter.option?.0)));
        let is_read = |edit: &String| edit.split('.').next().is_some_and(|section| REPLAYED.contains(&section));
        let edits = steering.set.iter().map(ToString::to_string).filter(|edit| !is_read(edit));
        match numbers.chain(edits.map(|edit| format!("--set {edit}"))).next() {
            None => Ok(()),
            Some(option) => Err(Error::Input(format!(
                "{option} does not apply to --replay: the choices of the scheme are those of the trace; change an arm instead, \
                 such as --arm cold=swiss-knife,selector.temperature=0.5"
            ))),
        }
    }

    /// Returns the arms, all of which share the candidates of the scheme.
    fn arms(&self, name: &str, config: &SchemeSpec) -> Result<Vec<PlannedArm>, Error> {
        if self.arms.is_empty() {
            return companions(name, config, &self.steering.steering(), &self.models, self.replay.is_some());
        }
        let mut names = BTreeSet::from([name.to_owned()]);
        let mut arms = Vec::with_capacity(self.arms.len());
        for arm in &self.arms {
            let arm = arm.plan(&self.steering.steering(), &self.models)?;
            same_candidates(name, config, &arm)?;
            if !names.insert(arm.name.clone()) {
                let name = arm.name;
                let cure = format!("give one another name, such as --arm other={name}");
                return Err(Error::Input(format!("two arms are called \"{name}\"; {cure}")));
            }
            arms.push(arm);
        }
        Ok(arms)
    }

    /// Generates a response with the scheme, and records the choices of the arms at each step.
    /// Returns the response.
    fn answer(
        &self,
        name: &str,
        config: &mut SchemeSpec,
        arms: &mut [PlannedArm],
        steps: &mut Steps<'_>,
    ) -> Result<String, Error> {
        let prompt = self.prompt.read()?;
        let mut loading = Loading::new(self.quiet);
        let (host, adapters) = models::load_pool(&self.models, config, arms, &mut loading)?;
        let built = arms.iter().map(|arm| arm.config.arm(&arm.name)).collect::<Result<_, _>>()?;
        let mut conversation = conversation(&host, &self.generation, self.steering.operating.convention)?;
        let (framing, adapters) = (conversation.framing(), Adapters::from_iter(adapters));
        let session = session::open(&host, config, framing, host.heads(), &adapters, self.generation.seed)?;
        let mut session = session.with_arms(built);
        for arm in &*arms {
            session.add_instructions(arm.config.instructions())?;
        }
        drop(loading);
        let tokens = conversation.begin(host.tokenizer(), &prompt)?;
        let mut trace = self.trace.as_deref().map(TraceFile::create).transpose()?;
        let certificates = Certificates::new(config, TOLERANCE);

        interrupt::listen();
        let on_step = |step: Option<&StepTrace>, _: &str| {
            let Some(step) = step else { return Ok(()) };
            if let Some(trace) = &mut trace {
                trace.write(&StepRecord::new(0, step, certificates.of(step), host.tokenizer()))?;
            }
            let (step, distributions) = PoolStep::new(0, name, step, host.tokenizer());
            steps.take(step, &distributions)
        };
        let reply = session::reply(&mut session, &host, &conversation, &tokens, self.generation.max_new_tokens, on_step);
        trace.map_or(Ok(()), |trace| trace.finish(reply.is_ok()))?;
        Ok(reply?.text)
    }
}

impl Steps<'_> {
    fn take(&mut self, step: PoolStep, distributions: &[Vec<f64>]) -> Result<(), Error> {
        self.comparison.add(&step, distributions);
        match (self.args.summary, self.args.json) {
            (true, _) => {}
            (_, true) => self.kept.push(step),
            _ => output::print(format_args!("{step}\n"))?,
        }
        Ok(())
    }

    fn finish(self, scheme: &str, text: Option<&str>) -> Result<(), Error> {
        let summary = self.comparison.summary();
        if self.args.json {
            output::print(output::json(&ArmsReport { scheme, text, summary, steps: &self.kept })?)
        } else {
            output::print(summary)
        }
    }
}

/// Returns the name of a scheme, or of its file.
fn scheme_name(scheme: &Path) -> String {
    scheme.file_stem().unwrap_or(scheme.as_os_str()).to_string_lossy().into_owned()
}
