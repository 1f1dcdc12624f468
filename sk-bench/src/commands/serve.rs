//! `swiss-knife serve` and `swiss-knife play`: an OpenAI-compatible server that steers, and its page.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use sk_serve::host::Adapters;
use sk_serve::{Access, HeaderValue, Limits, Parts, Service};

use crate::args::{ModelArgs, SteeringArgs, positive};
use crate::progress::Loading;
use crate::{DialogueFraming, Error, models};

const EXAMPLES: &str = "\
Examples:
  # The model that ships with the program, at http://127.0.0.1:8000/v1
  swiss-knife serve

  # Ask it, with weights
  curl http://127.0.0.1:8000/v1/chat/completions -d '{\"messages\": [{\"role\": \"user\",
    \"content\": \"How do I clean my bicycle?\"}], \"swiss_knife\": {\"weights\": {\"helpful\": 1}}}'

  # A model of one's own, for others on the network
  SWISS_KNIFE_SERVE_KEY=secret swiss-knife serve --host 0.0.0.0 --framing chat \\
      --backbone Qwen/Qwen2.5-7B-Instruct --drafter Qwen/Qwen2.5-0.5B-Instruct \\
      --blade calm=\"instruction:Answer calmly.\" --precision int8";

/// The environment variable with the key that clients must send.
const KEY: &str = "SWISS_KNIFE_SERVE_KEY";

/// Threads that serve connections.
const WORKERS: usize = 2;

/// Threads for adapters that are loaded, beside those that write answers.
const LOADERS: usize = 2;

/// Options of `serve` and `play`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct ServeArgs {
    /// The address to listen at. Other machines reach the server only if this is 0.0.0.0 or an
    /// address in their network.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = "Server")]
    host: IpAddr,
    /// The port; 0 for any that is free.
    #[arg(long, default_value_t = 8000, help_heading = "Server")]
    port: u16,
    /// What clients call the model.
    #[arg(long, value_name = "NAME", default_value = "swiss-knife", help_heading = "Server")]
    name: String,
    /// Answers that are written at a time; others wait.
    #[arg(long, value_name = "ANSWERS", default_value_t = Limits::default().concurrent, value_parser = positive, help_heading = "Server")]
    concurrent: usize,
    /// Answers that wait at most; more are refused with 429.
    #[arg(long, value_name = "ANSWERS", default_value_t = Limits::default().waiting, help_heading = "Server")]
    waiting: usize,
    /// Most candidates of a step.
    #[arg(long, value_name = "N", default_value_t = Limits::default().candidates, value_parser = positive, help_heading = "Server")]
    max_candidates: usize,
    /// Most blades of an answer.
    #[arg(long, value_name = "K", default_value_t = Limits::default().blades, value_parser = positive, help_heading = "Server")]
    max_blades: usize,
    /// Seconds from a request to the end of its answer, which then stays as it is.
    #[arg(long, value_name = "SECONDS", default_value_t = Limits::default().time.as_secs(), help_heading = "Server")]
    timeout: u64,
    /// Mebibytes of keys and values that the answers under way may need together.
    #[arg(long, value_name = "MIB", default_value_t = 4096, help_heading = "Server")]
    memory: u64,
    /// Most tokens of an answer that does not ask for fewer.
    #[arg(long, value_name = "TOKENS", default_value_t = Limits::default().max_new_tokens, value_parser = positive, help_heading = "Server")]
    max_new_tokens: usize,
    /// A folder whose adapters clients may load and unload.
    #[arg(long, value_name = "DIR", help_heading = "Server")]
    adapters: Option<PathBuf>,
    /// Let pages of this origin use the server from a browser, such as http://localhost:3000; `*` for
    /// any.
    #[arg(long, value_name = "ORIGIN", action = clap::ArgAction::Append, help_heading = "Server")]
    origin: Vec<HeaderValue>,
    /// Leave out the page to play with.
    #[arg(long, help_heading = "Server")]
    no_playground: bool,
    /// How a dialogue becomes a text for the model.
    #[arg(long, value_name = "FRAMING", default_value = "hh", help_heading = "Server")]
    framing: DialogueFraming,
    #[command(flatten)]
    steering: SteeringArgs,
    #[command(flatten)]
    models: ModelArgs,
}

/// Serves.
///
/// # Errors
/// When the input is at fault, a model cannot be loaded, or the address cannot be had.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    start(args, |_| {})
}

/// Serves, and opens the page in a browser.
///
/// # Errors
/// As [`run`].
pub fn play(args: &ServeArgs) -> Result<(), Error> {
    start(args, |page| {
        if let Err(error) = open::that_detached(page) {
            anstream::eprintln!("warning: no browser could be opened ({error}); open {page} in one");
        }
    })
}

fn start(args: &ServeArgs, listening_at: impl FnOnce(&str)) -> Result<(), Error> {
    let mut config = args.steering.scheme(&args.models)?;
    let sources = args.models.sources();
    let mut loading = Loading::new(false);
    let (host, adapters) = models::load(&sources, &mut config, &mut loading)?;
    drop(loading);
    let framing = args.framing.of(&host, args.steering.operating.convention)?;
    let names = adapters.iter().map(|(name, _)| name.clone()).collect();
    let instruction = |blade: &models::Source| Some((blade.name.clone(), blade.instruction()?.to_owned()));
    let limits = Limits {
        concurrent: args.concurrent,
        waiting: args.waiting,
        memory: args.memory.saturating_mul(1 << 20),
        max_new_tokens: args.max_new_tokens,
        candidates: args.max_candidates,
        blades: args.max_blades,
        time: Duration::from_secs(args.timeout),
        ..Limits::default()
    };
    let service = Service::new(Parts {
        host,
        rack: Adapters::from_iter(adapters),
        adapters: names,
        adapter_folder: args.adapters.clone(),
        instructions: sources.blades.iter().filter_map(instruction).collect(),
        steering: args.steering.steering(),
        shipped: sources.are_shipped(),
        framing,
        name: args.name.clone(),
        limits,
    });
    let key = std::env::var(KEY).ok().filter(|key| !key.is_empty());
    if key.is_none() && !args.host.is_loopback() {
        anstream::eprintln!(
            "warning: whoever reaches {} may use this server; set {KEY} to a key that clients must send",
            args.host
        );
    }
    let access = Access { key, origins: args.origin.clone(), playground: !args.no_playground };
    let address = SocketAddr::new(args.host, args.port);
    let listening = |source| Error::Listen { address, source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(args.concurrent + LOADERS)
        .enable_all()
        .build()
        .map_err(listening)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let page = if args.no_playground { String::new() } else { format!(" · a page to play with at http://{address}") };
        anstream::eprintln!("listening at http://{address}/v1{page} · Ctrl-C ends it after the answers under way");
        listening_at(&format!("http://{address}"));
        sk_serve::serve(listener, Arc::new(service), access, ended()).await.map_err(listening)
    })
}

/// Ends at Ctrl-C, or when the system asks the program to end.
async fn ended() {
    let asked = async {
        #[cfg(unix)]
        if let Ok(mut terminated) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            let _ = terminated.recv().await;
            return;
        }
        // A program that cannot listen for a signal is ended by it as usual.
        std::future::pending::<()>().await;
    };
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = asked => {}
        () = interrupted => {}
    }
}
