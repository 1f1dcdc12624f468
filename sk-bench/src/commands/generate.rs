//! `swiss-knife generate`: a steered response to a prompt.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use crate::args::{GenerationArgs, OutputArgs, PromptArgs, Sources, SteeringArgs};
use crate::progress::Loading;
use crate::record_file::spare;
use crate::scheme::Convention;
use crate::screen::Screen;
use crate::{Error, interrupt, models, output, session};
use sk_core::{Ended, Seconds, StepTrace};
use sk_models::dialogue::{Conversation, Reply, Session};
use sk_serve::host::{Adapters, Host};

const EXAMPLES: &str = "\
Examples:
  # The model that ships with the program
  swiss-knife generate \"How do I apologise to a friend?\" -w helpful=0.6,honest=0.3,harmless=0.1

  # A prompt from a pipe, the steps explained, and a trace kept
  echo \"Why is the sky blue?\" | swiss-knife generate --explain --trace steps.jsonl

  # Any Qwen2.5 checkpoint with LoRA adapters in PEFT format
  swiss-knife generate \"Hi\" --backbone Qwen/Qwen2.5-7B --drafter Qwen/Qwen2.5-0.5B \\
      --blade helpful=adapters/helpful

  # The published runs: their conventions, and the operating point for honesty
  swiss-knife generate \"Is the earth flat?\" --convention paper --preset honesty -w honest=1";

/// Options of `generate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct GenerateArgs {
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    steering: SteeringArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    models: Sources,
    #[command(flatten)]
    output: OutputArgs,
    /// Print one JSON object at the end instead of the text as it comes.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct GeneratedReply<'a> {
    prompt: &'a str,
    text: &'a str,
    tokens: usize,
    steps: usize,
    ended: Ended,
    weights: std::collections::BTreeMap<String, f64>,
    seed: u64,
    device: String,
    elapsed: f64,
    tokens_per_second: f64,
    seconds: Seconds,
}

/// Runs the command.
pub(crate) fn run(args: &GenerateArgs) -> Result<(), Error> {
    // Report invalid options before a model is loaded.
    if args.output.tolerance.is_some() && args.output.explain.is_none() && args.output.trace.is_none() {
        return Err(Error::Input("--tolerance needs --explain or --trace".to_owned()));
    }
    let mut config = args.steering.scheme(&args.models)?;
    if let Some(trace) = &args.output.trace {
        spare(args.prompt.file.iter().chain(&args.steering.scheme), trace)?;
        spare(args.models.files(), trace)?;
    }
    let prompt = args.prompt.read()?;
    let mut loading = Loading::new(args.output.quiet);
    let (host, adapters) = models::load(&args.models, &mut config, &mut loading)?;
    args.steering.steering().check_effect(&config)?;
    let seed = args.generation.seed;
    let mut conversation = conversation(&host, &args.generation, args.steering.operating.convention)?;
    let adapters = Adapters::from_iter(adapters);
    let mut session = session::open(&host, &config, conversation.framing(), host.heads(), &adapters, seed)?;
    drop(loading);
    let mut screen = Screen::new(host.tokenizer(), &args.output, &config, !args.json)?;
    let tokens = conversation.begin(host.tokenizer(), &prompt)?;

    interrupt::listen();
    let on_step = |step: Option<&StepTrace>, text: &str| screen.step(step, text);
    let reply = session::reply(&mut session, &host, &conversation, &tokens, args.generation.max_new_tokens, on_step);
    screen.finish(reply.is_ok())?;
    if reply.is_err() {
        screen.end_line()?;
    }
    let reply = reply?;
    if args.json {
        let text = output::json(&report(&prompt, &reply, &session, &host, seed))?;
        writeln!(io::stdout().lock(), "{text}").map_err(Error::Output)?;
    }
    screen.end(&reply, seed)
}

/// Returns an empty dialogue with the requested framing.
pub(super) fn conversation(host: &Host, generation: &GenerationArgs, convention: Convention) -> Result<Conversation, Error> {
    Ok(Conversation::new(generation.framing.of(host, convention)?, generation.system.as_deref()))
}

fn report<'a>(prompt: &'a str, reply: &'a Reply, session: &Session<'_>, host: &Host, seed: u64) -> GeneratedReply<'a> {
    let spec = session.spec().snapshot();
    let weights = spec.seats().iter().zip(spec.weights().as_slice());
    GeneratedReply {
        prompt,
        text: &reply.text,
        tokens: reply.tokens.len(),
        steps: reply.steps,
        ended: reply.ended,
        weights: weights.map(|(seat, &weight)| (seat.name().to_string(), weight)).collect(),
        seed,
        device: host.place(),
        elapsed: reply.elapsed,
        tokens_per_second: reply.rate(),
        seconds: reply.seconds,
    }
}
