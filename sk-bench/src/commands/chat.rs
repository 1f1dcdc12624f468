//! `swiss-knife chat`: a dialogue whose steering can be changed at any turn.

mod command;
mod lines;

use std::fmt::Write as _;
use std::path::Path;

use clap::Args;
use owo_colors::OwoColorize;
use serde::Serialize;
use sk_core::{AlignmentSpec, Seat};
use sk_models::text::Message;

use crate::args::{GenerationArgs, ModelArgs, OutputArgs, SteeringArgs};
use crate::commands::generate;
use crate::models;
use crate::models::Source;
use crate::progress::Loading;
use crate::record_file::spare;
use crate::scheme::{BladeSpec, NamedWeights, SchemeError, SchemeSpec};
use crate::screen::Screen;
use crate::session;
use crate::{Error, interrupt, whole_file};
use command::{COMMANDS, Command};
use lines::Lines;
use sk_models::dialogue::Conversation;
use sk_models::dialogue::Session;
use sk_serve::host::{Adapters, Host};

const EXAMPLES: &str = "\
Examples:
  # Talk to the model that ships with the program
  swiss-knife chat -w helpful=0.5,harmless=0.5

  # The same from a script: a line is a turn, or a command
  printf 'Hello!\\n/weights honest=1\\nAre you sure?\\n' | swiss-knife chat --quiet

While it runs, /help lists the commands.";

/// Options of `chat`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct ChatArgs {
    #[command(flatten)]
    steering: SteeringArgs,
    #[command(flatten)]
    generation: GenerationArgs,
    #[command(flatten)]
    models: ModelArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What `/save` writes.
#[derive(Serialize)]
struct Transcript<'a> {
    messages: &'a [Message],
    weights: Vec<(String, f64)>,
    seed: u64,
}

/// A dialogue under way.
struct Chat<'a> {
    host: &'a Host,
    /// The adapters that the backbone can read with.
    adapters: Adapters,
    config: SchemeSpec,
    session: Session<'a>,
    conversation: Conversation,
    screen: Screen<'a>,
    max_new_tokens: usize,
    seed: u64,
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// When a model cannot be loaded, or standard output or the trace cannot be written to. What goes
/// wrong in one turn or command is said, and the dialogue goes on.
pub fn run(args: &ChatArgs) -> Result<(), Error> {
    let mut config = args.steering.scheme(&args.models)?;
    if let Some(trace) = &args.output.trace {
        spare(args.steering.scheme.as_deref(), trace)?;
    }
    let quiet = args.output.quiet;
    let mut loading = Loading::new(quiet);
    let (host, adapters) = models::load(&args.models.sources(), &mut config, &mut loading)?;
    let seed = args.generation.seed;
    let adapters = Adapters::from_iter(adapters);
    let session = session::open(&host, &config, host.heads(), &adapters, seed)?;
    drop(loading);
    let mut chat = Chat {
        host: &host,
        adapters,
        screen: Screen::new(host.tokenizer(), &args.output, &config, true)?,
        config,
        session,
        conversation: generate::conversation(&host, &args.generation, args.steering.operating.convention)?,
        max_new_tokens: args.generation.max_new_tokens,
        seed,
        quiet,
    };
    interrupt::listen();
    let mut lines = Lines::new();
    let mut failed = 0;
    if lines.is_terminal() && !quiet {
        anstream::eprintln!("{}", "/help lists the commands, /quit leaves".dimmed());
    }
    while let Some(line) = lines.next()? {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let done = match line.strip_prefix('/') {
            Some(command) => chat.obey(command),
            None => chat.answer(line).map(|()| true),
        };
        match done {
            Ok(true) => {}
            Ok(false) => break,
            Err(error @ Error::Output(_)) => return Err(error),
            Err(error) => {
                chat.screen.end_line()?;
                anstream::eprintln!("{} {}", "error:".red().bold(), error.one_line());
                failed += 1;
            }
        }
    }
    chat.screen.finish()?;
    // Who types sees what failed; a script does not.
    if failed > 0 && !lines.is_terminal() { Err(Error::Lines { failed }) } else { Ok(()) }
}

/// Whether a path leads to something that `/save` did not write: a file with anything else in it. A
/// pipe or a device loses nothing.
fn holds_other(path: &Path) -> bool {
    if !path.metadata().is_ok_and(|found| found.is_file() && found.len() > 0) {
        return false;
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    !serde_json::from_str::<serde_json::Value>(&text).is_ok_and(|value| value.get("messages").is_some())
}

impl Chat<'_> {
    fn answer(&mut self, line: &str) -> Result<(), Error> {
        interrupt::clear();
        let prompt = self.conversation.ask(self.host.tokenizer(), line)?;
        self.session.instruct(|text| self.conversation.instructed(self.host.tokenizer(), text))?;
        let stop = self.conversation.framing().stops();
        let screen = &mut self.screen;
        let answered = self.session.reply(&prompt, stop, self.max_new_tokens, |step, text| -> Result<_, Error> {
            screen.step(step, text)?;
            Ok(interrupt::flow())
        });
        interrupt::clear();
        let reply = match answered {
            Ok(reply) => reply,
            Err(error) => {
                self.conversation.retract();
                return Err(match error {
                    Error::PromptTooLong { tokens, limit } if !self.conversation.messages().is_empty() => {
                        Error::DialogueTooLong { tokens, limit }
                    }
                    error => error,
                });
            }
        };
        let mut tokens = prompt;
        tokens.extend(&reply.tokens);
        self.conversation.answer(tokens, &reply.text);
        self.screen.end(&reply, self.seed)
    }

    /// Obeys a command; `false` ends the dialogue.
    fn obey(&mut self, line: &str) -> Result<bool, Error> {
        match line.parse::<Command>().map_err(Error::Usage)? {
            Command::Help => say(COMMANDS),
            Command::Quit => return Ok(false),
            Command::New => self.conversation.restart(),
            Command::Blades => say(&self.blades()),
            Command::Weights(None) => say(&weights_line(&self.session.spec().snapshot())),
            Command::Weights(Some(weights)) => self.weigh(&weights)?,
            Command::Seat(blade) => self.seat(&blade)?,
            Command::Unseat(name) => {
                self.session.spec().edit(|spec| spec.unseat(&name))?;
                self.adapters.remove(&name);
                self.session.drop_instructions(&name);
                self.config.blades.retain(|blade| blade.name != name);
                say(&weights_line(&self.session.spec().snapshot()));
            }
            Command::Swap(old, blade) => self.swap(&old, &blade)?,
            Command::Explain(detail) => self.screen.explain = detail,
            Command::Seed(seed) => {
                self.seed = seed;
                self.session.reseed(seed);
            }
            Command::Save(path) => {
                let transcript = Transcript {
                    messages: self.conversation.messages(),
                    weights: weights(&self.session.spec().snapshot()),
                    seed: self.seed,
                };
                if holds_other(&path) {
                    let reason = "is there and no dialogue that was saved; give another file";
                    return Err(Error::Usage(format!("{} {reason}", path.display())));
                }
                let text = serde_json::to_string_pretty(&transcript).map_err(|error| Error::Output(error.into()))? + "\n";
                whole_file::write(&path, text.as_bytes()).map_err(|source| Error::Write { path, source })?;
            }
        }
        Ok(true)
    }

    fn weigh(&mut self, weights: &NamedWeights) -> Result<(), Error> {
        let spec = self.session.spec().edit(|spec| weights.apply(spec))?;
        say(&weights_line(&spec));
        Ok(())
    }

    /// Seats a blade with the weight of one among equals.
    fn seat(&mut self, blade: &Source) -> Result<(), Error> {
        let share = 1.0 / (self.session.spec().snapshot().seats().len() + 1) as f64;
        self.install(blade, |spec, seat| spec.seat(seat, share))
    }

    fn swap(&mut self, old: &str, blade: &Source) -> Result<(), Error> {
        self.install(blade, |spec, seat| spec.swap(old, seat))?;
        if old != blade.name {
            self.adapters.remove(old);
            self.session.drop_instructions(old);
            self.config.blades.retain(|other| other.name != old);
        }
        Ok(())
    }

    /// Loads the adapter of `blade` and lets `edit` seat it.
    fn install(
        &mut self,
        blade: &Source,
        edit: impl Fn(&AlignmentSpec, Seat) -> Result<AlignmentSpec, sk_core::SpecError>,
    ) -> Result<(), Error> {
        let beta = self.config.base.point.beta;
        let config = match blade.instruction() {
            Some(text) => BladeSpec::instruction(&blade.name, text, beta),
            None => BladeSpec::implicit_reward(&blade.name, beta),
        };
        let built = config.build().map_err(|e| SchemeError::Parameter { slot: "blades", reason: e.to_string() })?;
        let seat = Seat::new(blade.name.as_str(), built);
        // An edit that will be refused must not replace an adapter in use.
        edit(&self.session.spec().snapshot(), seat.clone())?;
        if blade.instruction().is_some() {
            self.adapters.remove(&blade.name);
        } else {
            let source = (blade.name.clone(), blade.source.clone());
            for (name, adapter) in models::load_adapters(self.host, vec![source], &mut Loading::new(self.quiet))? {
                self.adapters.insert(&name, adapter);
            }
        }
        let spec = self.session.spec().edit(|spec| edit(spec, seat))?;
        self.config.blades.retain(|other| other.name != blade.name);
        self.config.blades.push(config);
        self.session.drop_instructions(&blade.name);
        self.session.add_instructions(session::instructions(&self.config))?;
        say(&weights_line(&spec));
        Ok(())
    }

    fn blades(&self) -> String {
        let spec = self.session.spec().snapshot();
        let mut text = String::new();
        for (name, weight) in weights(&spec) {
            let kind = self.config.blades.iter().find(|blade| blade.name == name).map_or("", |blade| blade.rule.kind());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name:<16} {weight:.3}  {kind}");
        }
        text.truncate(text.trim_end().len());
        text
    }
}

fn weights(spec: &AlignmentSpec) -> Vec<(String, f64)> {
    spec.seats().iter().map(|seat| seat.name().to_string()).zip(spec.weights().as_slice().iter().copied()).collect()
}

fn weights_line(spec: &AlignmentSpec) -> String {
    weights(spec).iter().map(|(name, weight)| format!("{name}={weight:.3}")).collect::<Vec<_>>().join(",")
}

/// What commands say goes to standard error: standard output is the model's.
fn say(text: &str) {
    anstream::eprintln!("{text}");
}
