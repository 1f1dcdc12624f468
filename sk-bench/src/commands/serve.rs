//! `swiss-knife serve` and `swiss-knife play`: an OpenAI-compatible server that steers, and its
//! page.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use sk_scheme::SchemeSpec;
use tokio::signal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use sk_remote::Key;
use sk_serve::host::Adapters;
use sk_serve::{Access, HeaderValue, Limits, Parts, Server};

use crate::args::{Sources, SteeringArgs, choice, positive};
use crate::judge::key_from_env;
use crate::progress::Loading;
use crate::{DialogueFraming, Error, interrupt, message, models};

const EXAMPLES: &str = "\
Examples:
  # The model that ships with the program, at http://127.0.0.1:8000/v1
  swiss-knife serve

  # Ask it, with weights
  curl http://127.0.0.1:8000/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\",
    \"content\": \"How do I clean my bicycle?\"}], \"swiss_knife\": {\"weights\": {\"helpful\": 1}}}'

  # Your own model, for others on the network
  SWISS_KNIFE_SERVE_KEY=secret swiss-knife serve --host 0.0.0.0 --framing chat \\
      --backbone Qwen/Qwen2.5-7B-Instruct --drafter Qwen/Qwen2.5-0.5B-Instruct \\
      --blade calm=\"instruction:Answer calmly.\" --precision int8";

/// The examples of `play`.
pub(crate) const PLAY_EXAMPLES: &str = "\
Examples:
  # The model that ships with the program
  swiss-knife play

  # Your own model, with blades from instructions
  swiss-knife play --backbone Qwen/Qwen2.5-7B-Instruct --drafter Qwen/Qwen2.5-0.5B-Instruct \\
      --framing chat --blade calm=\"instruction:Answer calmly.\" --blade warm=\"instruction:Be warm.\"";

/// The environment variable with the key that clients must send.
const KEY: &str = "SWISS_KNIFE_SERVE_KEY";

/// Number of threads that serve connections.
const WORKERS: usize = 2;

/// Maximum number of threads that generate answers.
const WRITERS: usize = u16::MAX as usize;

/// Number of threads that load adapters and tokenize requests, in addition to those that generate
/// answers.
const LOADERS: usize = 4;

/// Options of `serve` and `play`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true, next_help_heading = "Server")]
pub struct ServeArgs {
    /// The address to listen at. Other machines reach the server only if this is 0.0.0.0 or an
    /// address in their network.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port; 0 for any that is free.
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// What clients call the model.
    #[arg(long, value_name = "NAME", default_value = "swiss-knife", value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// Answers that are written at a time; others wait.
    #[arg(long, value_name = "ANSWERS", default_value_t = Limits::default().concurrent, value_parser = positive)]
    concurrent: usize,
    /// Requests that may wait; more are refused with 429.
    #[arg(long, value_name = "REQUESTS", default_value_t = Limits::default().waiting)]
    waiting: usize,
    /// Maximum number of candidates of a step; for a scheme over the vocabulary, of candidates that
    /// `explain` lists.
    #[arg(long, value_name = "N", default_value_t = Limits::default().candidates, value_parser = positive)]
    max_candidates: usize,
    /// Maximum number of blades of an answer, with those of weight zero.
    #[arg(long, value_name = "K", default_value_t = Limits::default().blades, value_parser = positive)]
    max_blades: usize,
    /// Seconds from a request to the end of its answers; an unfinished answer is cut off after the
    /// step in progress, and a request that still waits is refused.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().time.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
    /// Seconds after which a connection is closed if its client has not sent the head or the body
    /// of a request, or has read nothing of an answer.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().patience.as_secs())]
    patience: u64,
    /// Seconds between the comments that keep a stream alive while a step is searched; 0 sends
    /// none.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().keep_alive.map_or(0, |every| every.as_secs()))]
    keep_alive: u64,
    /// Seconds that answers in progress have to finish when the server shuts down; then their
    /// requests get an error.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().drain.as_secs())]
    drain: u64,
    /// A file that holds the key that clients must send; it takes precedence over the variable
    /// SWISS_KNIFE_SERVE_KEY.
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Memory in MiB that all running answers and the adapters that clients have loaded may use in
    /// total, besides the other weights; less if less is free.
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..))]
    memory: u64,
    /// Maximum number of tokens of a prompt; the model's context length unless given.
    #[arg(long, value_name = "TOKENS", value_parser = positive)]
    max_prompt_tokens: Option<usize>,
    /// Maximum number of bytes of the body of a request.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().body, value_parser = positive)]
    max_body: usize,
    /// Maximum number of bytes of the head of a request.
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().header, value_parser = positive)]
    max_header: usize,
    /// Maximum nesting depth of arrays and objects in the JSON of a request.
    #[arg(long, value_name = "LEVELS", default_value_t = Limits::default().depth, value_parser = positive)]
    max_depth: usize,
    /// Maximum number of tokens of an answer; a request that asks for more is refused.
    #[arg(long, value_name = "TOKENS", default_value_t = Limits::default().max_new_tokens, value_parser = positive)]
    max_new_tokens: usize,
    /// A folder whose adapters clients may load and unload.
    #[arg(long, value_name = "DIR")]
    adapters: Option<PathBuf>,
    /// Let pages of this origin use the server from a browser, such as http://localhost:3000; `*`
    /// for any.
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    origin: Vec<HeaderValue>,
    /// Log prompts and answers too.
    #[arg(long)]
    log_prompts: bool,
    /// Leave out the page to play with.
    #[arg(long)]
    no_playground: bool,
    /// How a dialogue becomes a text for the model.
    #[arg(long, value_name = "FRAMING", default_value = "hh", value_parser = choice(DialogueFraming::ALL))]
    framing: DialogueFraming,
    #[command(flatten)]
    steering: SteeringArgs,
    #[command(flatten)]
    models: Sources,
}

/// Runs the server.
pub(crate) fn run(args: &ServeArgs) -> Result<(), Error> {
    start(args, |_| {})
}

/// Runs the server, and opens its page in a browser.
pub(crate) fn play(args: &ServeArgs) -> Result<(), Error> {
    start(args, |page| {
        if let Err(error) = open::that_detached(page) {
            message::warning(&format!("no browser could be opened ({error}); open {page} in one"));
        }
    })
}

fn start(args: &ServeArgs, listening_at: impl FnOnce(&str)) -> Result<(), Error> {
    let mut config = args.steering.scheme(&args.models)?;
    args.check_limits(&config)?;
    let access = args.access()?;
    if let Some(folder) = &args.adapters {
        std::fs::read_dir(folder).map_err(Error::reading(folder))?;
    }
    log(args.log_prompts);
    let address = SocketAddr::new(args.host, args.port);
    let listening = |error: io::Error| {
        let remedy = match error.kind() {
            ErrorKind::AddrInUse | ErrorKind::PermissionDenied => "; --port chooses another",
            ErrorKind::AddrNotAvailable => "; give --host an address of this machine",
            _ => "",
        };
        Error::Input(format!("cannot listen at {address}: {error}{remedy}"))
    };
    // The runtime's, and one that loads the models.
    check_threads(WORKERS + 1).map_err(Error::starting_threads)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(args.concurrent.min(WRITERS) + LOADERS)
        .enable_all()
        .build()
        .map_err(|error| Error::Input(format!("cannot start the server: {error}; raise the limits of this process")))?;
    // Bind the address before loading models, so that an error is reported early.
    let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).map_err(listening)?;
    let address = listener.local_addr().map_err(listening)?;
    message::note(&format!("loading · http://{address}/ready answers 503 until the models are there"));
    let server = Arc::new(Server::new(access, args.limits()));
    let serving = runtime.spawn({
        let server = Arc::clone(&server);
        async move {
            Arc::clone(&server).serve(listener, shutdown()).await;
            if !server.is_open() {
                // Loading cannot be cancelled, and nothing is lost by exiting.
                std::process::exit(0);
            }
        }
    });
    let (parts, adapters) = args.parts(&mut config)?;
    // The threads of the decoder are as many as the system starts. An answer needs one more.
    check_threads(1).map_err(Error::starting_threads)?;
    server.open(parts, adapters);
    let page = if args.no_playground { String::new() } else { format!(" · a page to play with at http://{address}") };
    message::note(&format!("listening at http://{address}/v1{page} · Ctrl-C ends it after the answers under way"));
    listening_at(&format!("http://{address}"));
    let served = runtime.block_on(serving).map_err(|error| listening(error.into()));
    // A thread may still wait for a model server; its answer has been cut off.
    runtime.shutdown_background();
    served
}

/// Returns an error if the system does not start `count` threads at the same time. The runtime would
/// panic.
fn check_threads(count: usize) -> io::Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _closed = gate.lock();
        (0..count).try_for_each(|_| thread::Builder::new().spawn_scoped(scope, || drop(gate.lock())).map(drop))
    })
}

/// Parses an origin in the form in which browsers send it.
fn origin(text: &str) -> Result<HeaderValue, String> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(|c: char| "/?#@*".contains(c) || c.is_ascii_uppercase());
    // Browsers leave out the default port.
    let is_sent = |scheme: &str, host: &str| match scheme {
        "http" => !host.ends_with(":80"),
        "https" => !host.ends_with(":443"),
        _ => true,
    };
    let is_origin = text.split_once("://").is_some_and(|(scheme, host)| is_host(host) && is_sent(scheme, host));
    let value = HeaderValue::from_str(text).ok().filter(|_| ["*", "null"].contains(&text) || is_origin);
    value.ok_or_else(|| {
        "an origin is SCHEME://HOST or SCHEME://HOST:PORT in lower case, without a default port or a wildcard, or `*`".to_owned()
    })
}

/// Returns a duration of at most 136 years, so that its sum with a time does not overflow.
fn seconds(count: u64) -> Duration {
    Duration::from_secs(count.min(u32::MAX.into()))
}

/// Logs requests and answers to standard error; with `texts`, their contents, too.
fn log(texts: bool) {
    let level = if texts { LevelFilter::TRACE } else { LevelFilter::OFF };
    let shown = Targets::new().with_target("sk_serve", LevelFilter::INFO).with_target("sk_serve::texts", level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    // An existing subscriber is kept.
    let _ = tracing_subscriber::registry().with(lines.with_filter(shown)).try_init();
}

impl ServeArgs {
    fn limits(&self) -> Limits {
        Limits {
            concurrent: self.concurrent,
            waiting: self.waiting,
            memory: self.memory.saturating_mul(1 << 20),
            max_new_tokens: self.max_new_tokens,
            candidates: self.max_candidates,
            blades: self.max_blades,
            time: seconds(self.timeout),
            prompt_tokens: self.max_prompt_tokens.unwrap_or(usize::MAX),
            body: self.max_body,
            header: self.max_header,
            depth: self.max_depth,
            patience: seconds(self.patience),
            keep_alive: Some(self.keep_alive).filter(|every| *every > 0).map(seconds),
            drain: seconds(self.drain),
        }
    }

    /// Returns an error if the limits of requests exclude the server's own scheme.
    fn check_limits(&self, scheme: &SchemeSpec) -> Result<(), Error> {
        let mut scheme = scheme.clone();
        // Seats the blades of the options.
        models::find(&self.models, &mut scheme, &mut [])?;
        let candidates = scheme.proposal.draft().map_or(0, |draft| draft.candidates);
        let limits = [
            (scheme.blades.len(), "blades", "--max-blades", self.max_blades),
            (candidates, "candidates", "--max-candidates", self.max_candidates),
        ];
        let exceeded = limits.into_iter().find(|(own, _, _, most)| own > most);
        exceeded.map_or(Ok(()), |(own, what, option, most)| {
            Err(Error::Input(format!("the scheme of this server has {own} {what}, but {option} is {most}; raise the limit")))
        })
    }

    /// Returns the access rules of the server.
    fn access(&self) -> Result<Access, Error> {
        let key = match &self.api_key_file {
            Some(file) => {
                let text = std::fs::read_to_string(file).map_err(Error::reading(file))?;
                let text = text.trim_start_matches('\u{feff}').trim();
                let refused = |reason| Error::Input(format!("{}: the {reason}", file.display()));
                if text.is_empty() {
                    return Err(refused("file holds no key; write one into it"));
                }
                let unfit = "key holds a space, a line end or another character that a key cannot have";
                let key = Key::new(text).ok_or_else(|| refused(unfit))?;
                Some(key.as_str().to_owned())
            }
            None => {
                let key = key_from_env(KEY)?;
                if key.is_none() && std::env::var_os(KEY).is_some_and(|value| !value.is_empty()) {
                    return Err(Error::Input(format!("{KEY} holds no key, only white space; set it to a key, or unset it")));
                }
                key.map(|key| key.as_str().to_owned())
            }
        };
        if key.is_none() && !self.host.is_loopback() {
            message::warning(&format!(
                "whoever reaches {} may use this server; give --api-key-file FILE, or set {KEY}, with a key that clients must send",
                self.host
            ));
        }
        Ok(Access { key, origins: self.origin.clone(), playground: !self.no_playground })
    }

    /// Loads the models. Also returns the names of the blades that have an adapter of their own.
    fn parts(&self, config: &mut SchemeSpec) -> Result<(Parts, Vec<String>), Error> {
        let mut loading = Loading::new(false);
        let (host, adapters) = models::load(&self.models, config, &mut loading)?;
        drop(loading);
        let framing = self.framing.of(&host, self.steering.operating.convention)?;
        // The adapters of an ensemble have names of their own.
        let names = adapters.iter().map(|(name, _)| name.clone()).filter(|name| config.is_named(name)).collect();
        let instruction = |blade: &models::Source| Some((blade.name.clone(), blade.instruction()?.to_owned()));
        let asked = self.limits().memory;
        let memory = host.room().map_or(asked, |room| room.min(asked));
        let least = host.least_memory(config);
        if least > memory {
            return Err(Error::Input(format!(
                "answers can use {} MiB of memory (--memory {}, or what is free beside the models and their caches) and the shortest \
                 takes {} MiB; raise --memory or, if no more is free, use a smaller model, --precision int8 or fewer candidates",
                memory >> 20,
                self.memory,
                least.div_ceil(1 << 20)
            )));
        }
        if memory < asked {
            message::warning(&format!(
                "answers can use {} MiB of memory instead of {} (--memory): no more is free beside the models and their caches",
                memory >> 20,
                self.memory
            ));
        }
        let parts = Parts {
            host,
            rack: Adapters::from_iter(adapters),
            adapter_folder: self.adapters.clone(),
            instructions: self.models.blades.iter().filter_map(instruction).collect(),
            seats: config.blades.iter().map(|blade| blade.name.clone()).collect(),
            steering: self.steering.steering(),
            shipped: self.models.are_shipped(),
            framing,
            name: self.name.clone(),
        };
        Ok((parts, names))
    }
}

/// Waits for a signal to shut down. A second one ends the program at once.
async fn shutdown() {
    ended().await;
    message::note("shutting down after the answers under way · Ctrl-C again ends it now");
    tokio::spawn(async {
        ended().await;
        interrupt::end();
    });
}

/// Waits for Ctrl-C, SIGTERM, or Ctrl-Break on Windows. A signal whose handler cannot be installed
/// ends the program as usual.
async fn ended() {
    let terminated = async {
        #[cfg(unix)]
        if let Ok(mut signal) = signal::unix::signal(signal::unix::SignalKind::terminate()) {
            return signal.recv().await;
        }
        #[cfg(windows)]
        if let Ok(mut signal) = signal::windows::ctrl_break() {
            return signal.recv().await;
        }
        None
    };
    tokio::select! {
        Some(()) = terminated => {}
        Ok(()) = signal::ctrl_c() => {}
        else => std::future::pending().await,
    }
}
