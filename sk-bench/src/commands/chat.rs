//! `swiss-knife chat`: a dialogue whose steering can be changed at any turn.

mod command;
mod complete;
mod lines;
mod transcript;

use std::path::Path;

use clap::Args;
use sk_core::{AlignmentSpec, Ended, Seat, SpecError, StepTrace};
use sk_report::grid::Grid;

use crate::args::{GenerationArgs, OutputArgs, Sources, SteeringArgs, files_in};
use crate::commands::generate;
use crate::explain::Detail;
use crate::models::{self, Source, check_heads};
use crate::plural::counted;
use crate::progress::Loading;
use crate::record_file::{same_file, spare};
use crate::scheme::{FieldEdit, NamedWeights, SchemeError, SchemeSpec};
use crate::screen::Screen;
use crate::{Error, interrupt, message, session, terminal};
use command::{ChatCommand, help};
use complete::Completions;
use lines::Lines;
use sk_models::dialogue::{Conversation, Session, SessionError};
use sk_models::text::Role;
use sk_serve::host::{Adapters, Host};
use transcript::Transcript;

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
    models: Sources,
    #[command(flatten)]
    output: OutputArgs,
}

/// Maximum number of characters shown of an earlier question.
const SHOWN: usize = 60;

/// A dialogue in progress.
struct Chat<'a> {
    host: &'a Host,
    /// The adapters that the backbone can use.
    adapters: Adapters,
    config: SchemeSpec,
    session: Session<'a>,
    conversation: Conversation,
    /// The last question, if it has no answer. It is no part of the conversation.
    unanswered: Option<String>,
    screen: Screen<'a>,
    /// The file that `--trace` names.
    trace: Option<&'a Path>,
    max_new_tokens: usize,
    seed: u64,
    quiet: bool,
}

/// Runs the command.
/// Errors of a single turn or chat command are printed, and the dialogue continues.
pub(crate) fn run(args: &ChatArgs) -> Result<(), Error> {
    let mut config = args.steering.scheme(&args.models)?;
    if let Some(trace) = &args.output.trace {
        spare(&args.steering.scheme, trace)?;
        spare(args.models.files(), trace)?;
    }
    let quiet = args.output.quiet;
    let mut loading = Loading::new(quiet);
    let (host, adapters) = models::load(&args.models, &mut config, &mut loading)?;
    args.steering.steering().check_effect(&config)?;
    let seed = args.generation.seed;
    let adapters = Adapters::from_iter(adapters);
    let conversation = generate::conversation(&host, &args.generation, args.steering.operating.convention)?;
    let session = session::open(&host, &config, conversation.framing(), host.heads(), &adapters, seed)?;
    drop(loading);
    let mut chat = Chat {
        host: &host,
        adapters,
        screen: Screen::new(host.tokenizer(), &args.output, &config, true)?,
        trace: args.output.trace.as_deref(),
        config,
        session,
        conversation,
        unanswered: None,
        max_new_tokens: args.generation.max_new_tokens,
        seed,
        quiet,
    };
    interrupt::listen();
    let mut lines = Lines::new()?;
    let is_interactive = lines.is_terminal();
    if is_interactive && !quiet {
        message::aside("/help lists the commands, /quit leaves");
    }
    let failed = chat.converse(&mut lines);
    chat.screen.finish(false)?;
    let failed = failed?;
    // An interactive user has seen the errors; a script needs an exit status.
    if failed > 0 && !is_interactive && !interrupt::requested() {
        return Err(Error::Input(format!("{} failed; see the messages above", counted(failed, "line"))));
    }
    Ok(())
}

impl Chat<'_> {
    /// Executes and answers lines until the dialogue ends. Returns the number of lines that failed.
    fn converse(&mut self, lines: &mut Lines) -> Result<usize, Error> {
        let is_interactive = lines.is_terminal();
        let mut failed = 0;
        while let Some(line) = lines.next(|| self.completions())? {
            if is_interactive {
                interrupt::clear();
            }
            let done = line.and_then(|line| match line.trim() {
                "" => Ok(true),
                trimmed => match trimmed.strip_prefix('/') {
                    Some(command) => self.execute(command),
                    None => self.answer(&line).map(|()| true),
                },
            });
            match done {
                Ok(true) => {}
                Ok(false) => break,
                Err(error @ Error::Output(_)) => return Err(error),
                Err(error) => {
                    self.screen.end_line()?;
                    message::error(&error.message());
                    failed += 1;
                }
            }
            // On a terminal, Ctrl-C ends the answer. Otherwise, it ends the chat.
            if is_interactive {
                interrupt::clear();
            } else if interrupt::requested() {
                break;
            }
        }
        Ok(failed)
    }

    fn has_questions(&self) -> bool {
        self.conversation.messages().iter().any(|message| message.role == Role::User)
    }

    fn answer(&mut self, line: &str) -> Result<(), Error> {
        let prompt = self.conversation.ask(self.host.tokenizer(), line)?;
        let on_step = |step: Option<&StepTrace>, text: &str| self.screen.step(step, text);
        let answered = session::reply(&mut self.session, self.host, &self.conversation, &prompt, self.max_new_tokens, on_step);
        let is_answer = answered.as_ref().is_ok_and(|reply| reply.steps > 0 || reply.ended != Ended::Interrupted);
        self.unanswered = (!is_answer).then(|| line.to_owned());
        if !is_answer {
            self.conversation.retract();
        }
        let reply = answered.map_err(|error| match error {
            Error::Session(SessionError::PromptTooLong { tokens, instruction, limit }) if self.has_questions() => {
                let tokens = tokens + instruction;
                Error::Input(format!("the dialogue has {tokens} tokens and the model holds {limit}; /new starts another"))
            }
            error => error,
        })?;
        if !is_answer {
            return self.screen.end(&reply, self.seed);
        }
        let mut tokens = prompt;
        tokens.extend(reply.whole(self.host.tokenizer()).map_err(SessionError::from)?);
        self.conversation.answer(tokens, &reply.text);
        self.screen.end(&reply, self.seed)
    }

    /// Executes a chat command. Returns `false` if it ends the dialogue.
    fn execute(&mut self, line: &str) -> Result<bool, Error> {
        match line.parse::<ChatCommand>().map_err(Error::Input)? {
            ChatCommand::Help => message::note(&help(terminal::error_columns())),
            ChatCommand::Quit => return Ok(false),
            ChatCommand::New => {
                self.conversation.restart();
                self.unanswered = None;
                message::note("started a new dialogue");
            }
            ChatCommand::Blades => message::note(&self.blades()),
            ChatCommand::Weights(None) => message::note(&weights_line(&self.session.spec().snapshot())),
            ChatCommand::Weights(Some(weights)) => {
                let spec = self.session.spec().edit(|spec| weights.apply(spec))?;
                message::note(&weights_line(&spec));
            }
            ChatCommand::Seat(blade) => self.seat(&blade)?,
            ChatCommand::Unseat(name) => {
                self.config.check_unseat(&name)?;
                self.session.spec().edit(|spec| spec.unseat(&name))?;
                self.adapters.remove(&name);
                self.host.check_only(&self.adapters);
                self.session.drop_instructions(&name);
                self.config.blades.retain(|blade| blade.name != name);
                message::note(&weights_line(&self.session.spec().snapshot()));
            }
            ChatCommand::Swap(old, blade) => self.swap(&old, &blade)?,
            ChatCommand::Explain(detail) => {
                self.screen.explain = detail;
                message::note(match detail {
                    Some(Detail::Brief) => "explain on",
                    Some(Detail::Full) => "explain full",
                    None => "explain off",
                });
            }
            ChatCommand::Set(edit) => self.set(&edit)?,
            ChatCommand::Again => self.again()?,
            ChatCommand::Undo if let Some(question) = self.unanswered.take() => {
                message::note(&format!("took back \"{}\", which has no answer", message::quoted(&question, SHOWN)));
            }
            ChatCommand::Undo => {
                let question =
                    self.conversation.undo().ok_or_else(|| Error::Input("there is nothing to take back".to_owned()))?;
                message::note(&format!("took back \"{}\" and its answer", message::quoted(&question, SHOWN)));
            }
            ChatCommand::Seed(seed) => {
                self.reseed(seed);
                message::note(&format!("seed {seed}"));
            }
            ChatCommand::Save(path) => {
                self.check_untraced(&path)?;
                let transcript = Transcript {
                    messages: self.conversation.messages().to_vec(),
                    weights: weights(&self.session.spec().snapshot()),
                    seed: Some(self.seed),
                };
                let exchanges = transcript.write(&path)?;
                message::note(&format!("saved {} to {}", counted(exchanges, "exchange"), path.display()));
            }
            ChatCommand::Load(path) => self.load(&path)?,
        }
        Ok(true)
    }

    /// Checks that a file is not the one that `--trace` names, which is replaced when the chat ends.
    fn check_untraced(&self, path: &Path) -> Result<(), Error> {
        if self.trace.is_some_and(|trace| same_file(trace, path)) {
            return Err(Error::Input(format!("{} is the file of --trace; give another", path.display())));
        }
        Ok(())
    }

    fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.session.reseed(seed);
    }

    /// Answers the last question again, with the next seed unless it has no answer.
    fn again(&mut self) -> Result<(), Error> {
        if let Some(question) = self.unanswered.take() {
            return self.answer(&question);
        }
        let (before, seed) = (self.conversation.clone(), self.seed);
        let question =
            self.conversation.undo().ok_or_else(|| Error::Input("there is no answer yet; ask something".to_owned()))?;
        self.reseed(self.seed.wrapping_add(1));
        let answered = self.answer(&question);
        // The question then keeps its earlier answer.
        if self.unanswered.take().is_some() {
            self.conversation = before;
            self.reseed(seed);
        }
        answered
    }

    /// Continues a saved dialogue with its seed, and with its weights if they fit the seated
    /// blades.
    fn load(&mut self, path: &Path) -> Result<(), Error> {
        self.check_untraced(path)?;
        let (transcript, dialogue) = Transcript::read(path)?;
        let exchanges = counted(dialogue.exchanges.len(), "exchange");
        self.conversation.resume(dialogue.system.as_deref(), dialogue.exchanges);
        self.unanswered = None;
        if let Some(seed) = transcript.seed {
            self.reseed(seed);
        }
        message::note(&format!("loaded {exchanges} from {}, seed {}", path.display(), self.seed));
        if transcript.weights.is_empty() {
            return Ok(());
        }
        let weights: NamedWeights = transcript.weights.into_iter().collect();
        match self.session.spec().edit(|spec| weights.apply(spec)) {
            Ok(spec) => message::note(&weights_line(&spec)),
            Err(reason) => message::note(&format!("its weights are not taken: {reason}")),
        }
        Ok(())
    }

    /// Sets a field of the scheme. Models, blades, weights and the random generator are kept.
    fn set(&mut self, edit: &FieldEdit) -> Result<(), Error> {
        let snapshot = self.session.spec().snapshot();
        let mut config = SchemeSpec { weights: Some(weights(&snapshot).into_iter().collect()), ..self.config.clone() };
        FieldEdit::apply(std::slice::from_ref(edit), &mut config, "/set")?;
        config.check()?;
        let refused = |reason: &str| Err(Error::Input(format!("/set {edit}: {reason}")));
        let names = |config: &SchemeSpec| config.blades.iter().map(|blade| blade.name.clone()).collect::<Vec<_>>();
        let own_weights = |config: &SchemeSpec| config.blades.iter().map(|blade| blade.weight).collect::<Vec<_>>();
        if names(&config) != names(&self.config) {
            return refused(&format!("no such blade is seated; there are: {}", names(&self.config).join(", ")));
        }
        if config.template != self.config.template {
            return refused("every blade has fields of its own here; name one, as in blades.NAME.FIELD=VALUE");
        }
        if own_weights(&config) != own_weights(&self.config) {
            return refused("weights are set with /weights NAME=W,…");
        }
        if let Some((name, _)) = config.adapters().find(|(name, _)| !self.adapters.contains(name)) {
            return refused(&format!("that needs an adapter \"{name}\", which is not loaded; /seat NAME=DIR loads one"));
        }
        if config.normalizer != self.config.normalizer {
            config.check_correlations()?;
        }
        check_heads(&config, self.host.heads())?;
        session::replace(&mut self.session, self.host, &self.adapters, &config)?;
        self.screen.follow(&config);
        self.config = config;
        message::note(&edit.to_string());
        Ok(())
    }

    /// Returns the current completions.
    fn completions(&self) -> Completions {
        Completions { blades: weights(&self.session.spec().snapshot()).into_iter().map(|(name, _)| name).collect() }
    }

    /// Seats a blade with weight 1/K, where K includes the new blade.
    fn seat(&mut self, blade: &Source) -> Result<(), Error> {
        let mut config = self.config.clone();
        if config.is_named(&blade.name) {
            return Err(SpecError::Duplicate { name: blade.name.clone() }.into());
        }
        match blade.instruction() {
            Some(text) => config.seat_instruction(&blade.name, text)?,
            None => config.seat(&blade.name),
        }
        let share = 1.0 / config.blades.len() as f64;
        self.install(blade, config, |spec, seat| spec.seat(seat, share))
    }

    fn swap(&mut self, old: &str, blade: &Source) -> Result<(), Error> {
        let mut config = self.config.clone();
        match blade.instruction() {
            Some(text) => config.swap_instruction(old, &blade.name, text)?,
            None => config.swap(old, &blade.name, Path::new(&blade.source))?,
        }
        self.install(blade, config, |spec, seat| spec.swap(old, seat))
    }

    /// Loads the adapter of `blade`, and continues with `config`, in which it is seated, and the
    /// weights of `edit`. After an error, the scheme is unchanged.
    fn install(
        &mut self,
        blade: &Source,
        mut config: SchemeSpec,
        edit: impl FnOnce(&AlignmentSpec, Seat) -> Result<AlignmentSpec, SpecError>,
    ) -> Result<(), Error> {
        if let Some(trace) = self.trace {
            spare(files_in([Path::new(&blade.source)]), trace)?;
        }
        let seated = config.blades.iter().find(|seated| seated.name == blade.name);
        let seated = seated.ok_or_else(|| SpecError::Duplicate { name: blade.name.clone() })?;
        let built = seated.build().map_err(|e| SchemeError::Parameter { slot: "blades", reason: e.to_string() })?;
        let edited = edit(&self.session.spec().snapshot(), Seat::new(blade.name.as_str(), built))?;
        let lanes: Vec<String> = config.adapters().map(|(lane, _)| lane).collect();
        if blade.instruction().is_none() && !lanes.contains(&blade.name) {
            let reason = format!("\"{}\" would be of kind \"{}\", which reads no adapter", blade.name, seated.rule.kind());
            return Err(SchemeError::Parameter { slot: "blades", reason }.into());
        }
        config.weights = Some(weights(&edited).into_iter().collect());
        // Find what is wrong with the scheme before an adapter is loaded.
        config.alignment()?;
        // Servers may have lost an adapter that leaves its seat.
        self.host.check_only(&self.adapters.only(lanes.clone()));
        let load = || {
            let source = (blade.name.clone(), blade.source.clone(), models::on(&blade.name, [&config]));
            models::load_adapters(self.host, vec![source], &mut Loading::new(self.quiet))
        };
        let loaded = if blade.instruction().is_some() { Ok(Vec::new()) } else { load() };
        let replace = |adapters| {
            session::replace(&mut self.session, self.host, &self.adapters, &config)?;
            Ok(adapters)
        };
        let adapters = loaded.and_then(replace).inspect_err(|_| self.host.check_only(&self.adapters))?;
        for (lane, _) in self.config.adapters().filter(|(lane, _)| !lanes.contains(lane)) {
            self.adapters.remove(&lane);
        }
        adapters.into_iter().for_each(|(name, adapter)| self.adapters.insert(&name, adapter));
        // The weights sum to one already; a second scaling could round them.
        let spec = self.session.spec().edit(|built| built.with_weights(edited.weights().clone()))?;
        self.screen.follow(&config);
        self.config = config;
        message::note(&weights_line(&spec));
        Ok(())
    }

    fn blades(&self) -> String {
        let mut grid = Grid::new(["blade", "weight", "kind"]).numbers(1..2);
        for (name, weight) in weights(&self.session.spec().snapshot()) {
            let kind =
                self.config.blades.iter().find(|blade| blade.name == name).map(|blade| blade.rule.kind()).unwrap_or_default();
            grid.row([name, format!("{weight:.3}"), kind]);
        }
        grid.render(terminal::error_columns())
    }
}

fn weights(spec: &AlignmentSpec) -> Vec<(String, f64)> {
    spec.seats().iter().map(|seat| seat.name().to_string()).zip(spec.weights().as_slice().iter().copied()).collect()
}

fn weights_line(spec: &AlignmentSpec) -> String {
    weights(spec).iter().map(|(name, weight)| format!("{name}={weight:.3}")).collect::<Vec<_>>().join(",")
}
