//! `swiss-knife serve`: an OpenAI-compatible server that steers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use sk_models::engine::AdapterRack;
use sk_serve::{Limits, Parts, Service};

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

/// Threads beside those that write answers.
const WORKERS: usize = 2;

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct ServeArgs {
    /// The address to listen at; others than those of this machine reach it only at 0.0.0.0 or an
    /// address of its network.
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
    /// Mebibytes of keys and values that the answers under way may need together.
    #[arg(long, value_name = "MIB", default_value_t = 4096, help_heading = "Server")]
    memory: u64,
    /// Most tokens of an answer that does not ask for fewer.
    #[arg(long, value_name = "TOKENS", default_value_t = Limits::default().max_new_tokens, value_parser = positive, help_heading = "Server")]
    max_new_tokens: usize,
    /// How a dialogue becomes a text for the model.
    #[arg(long, value_name = "FRAMING", default_value = "hh", help_heading = "Server")]
    framing: DialogueFraming,
    #[command(flatten)]
    steering: SteeringArgs,
    #[command(flatten)]
    models: ModelArgs,
}

/// Runs the command.
///
/// # Errors
/// When the input is at fault, a model cannot be loaded, or the address cannot be had.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    let mut config = args.steering.scheme(&args.models)?;
    let sources = args.models.sources();
    let mut loading = Loading::new(false);
    let (models, adapters) = models::load(&sources, &mut config, &mut loading)?;
    drop(loading);
    let framing = args.framing.of(&models, args.steering.operating.convention)?;
    let rack = AdapterRack::default();
    let mut names = Vec::new();
    for (name, adapter) in adapters {
        rack.insert(name.as_str(), adapter);
        names.push(name);
    }
    let instruction = |blade: &models::Source| Some((blade.name.clone(), blade.instruction()?.to_owned()));
    let limits = Limits {
        concurrent: args.concurrent,
        waiting: args.waiting,
        memory: args.memory.saturating_mul(1 << 20),
        max_new_tokens: args.max_new_tokens,
        ..Limits::default()
    };
    let service = Service::new(Parts {
        models,
        rack,
        adapters: names,
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
    let address = SocketAddr::new(args.host, args.port);
    let listening = |source| Error::Listen { address, source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .max_blocking_threads(args.concurrent + 1)
        .enable_all()
        .build()
        .map_err(listening)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await.map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        anstream::eprintln!("listening at http://{address}/v1 · Ctrl-C ends it after the answers under way");
        let shutdown = async {
            // A program that cannot listen for Ctrl-C is ended by it as usual.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        sk_serve::serve(listener, Arc::new(service), key.as_deref(), shutdown).await.map_err(listening)
    })
}
