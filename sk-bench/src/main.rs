//! The `swiss-knife` program.

mod exhaustion;
mod usage;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use sk_bench::cli::{Cli, Command};
use sk_bench::{Error, interrupt, message};

fn main() -> ExitCode {
    #[cfg(unix)]
    report_full_files();
    let cli = match negatives_are_values(Cli::command()).try_get_matches().and_then(|found| Cli::from_arg_matches(&found)) {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    usage::set_color(cli.color);
    if matches!(cli.command, Command::Serve(_) | Command::Play(_)) {
        exhaustion::serves();
    }
    sk_serve::limit_arenas();
    if let Some(threads) = threads_beyond_reason() {
        message::error(&format!("RAYON_NUM_THREADS is {threads}; it must be at most {MOST_THREADS}"));
        return ExitCode::from(usage::BAD_INPUT);
    }
    if let Err(error) = rayon::ThreadPoolBuilder::new().build_global() {
        return ended(Err(Error::starting_threads(error)));
    }
    std::panic::set_hook(Box::new(|panic| message::error(&format!("this is a bug: {panic}"))));
    match std::panic::catch_unwind(|| cli.command.run()) {
        Ok(result) => ended(result),
        // The panic hook has printed the message.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Makes writing fail at a limit on the size of files (`ulimit -f`), where the system would end the
/// program without a message.
#[cfg(unix)]
fn report_full_files() {
    use nix::sys::signal::{SigHandler, Signal, signal};

    // SAFETY: ignoring a signal runs no code.
    let _ = unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) };
}

/// Prints the error, if there is one, and returns the exit status. After Ctrl-C, ends the program
/// instead.
fn ended(result: Result<(), Error>) -> ExitCode {
    let status = match result {
        Ok(()) if interrupt::requested() => interrupt::EXIT_CODE,
        Ok(()) => 0,
        Err(error) if error.is_broken_pipe() => 0,
        Err(error) => {
            message::error(&error.message());
            error.exit_code()
        }
    };
    if status == interrupt::EXIT_CODE {
        // A signal ends the process without flushing standard output.
        let _ = std::io::stdout().flush();
        interrupt::end();
    }
    ExitCode::from(status)
}

/// Maximum value of RAYON_NUM_THREADS. Each thread takes memory, and the number of threads of a
/// machine is limited.
const MOST_THREADS: usize = 1024;

/// Returns the value of RAYON_NUM_THREADS if it exceeds [`MOST_THREADS`].
fn threads_beyond_reason() -> Option<usize> {
    std::env::var("RAYON_NUM_THREADS").ok()?.parse().ok().filter(|&threads| threads > MOST_THREADS)
}

/// Makes `-1` the value of the preceding option, which then reports what is wrong with it, instead
/// of an option of its own.
fn negatives_are_values(command: clap::Command) -> clap::Command {
    command.allow_negative_numbers(true).mut_subcommands(negatives_are_values)
}
