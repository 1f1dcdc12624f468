//! The `swiss-knife` program.

mod exhaustion;
mod usage;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use sk_bench::args::{Cli, Command};
use sk_bench::commands::{
    arms, axioms, bench, certify, chat, generate, judge, prompts, report, schemes, simulate, sweep, train, tune,
};
use sk_bench::{Error, interrupt};

fn main() -> ExitCode {
    let cli = match negatives_are_values(Cli::command()).try_get_matches().and_then(|found| Cli::from_arg_matches(&found)) {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    usage::set_color(cli.color);
    std::panic::set_hook(Box::new(|panic| usage::complain(&format!("this is a bug: {panic}"))));
    match std::panic::catch_unwind(|| run(cli.command)) {
        Ok(Ok(())) if interrupt::requested() => ExitCode::from(interrupt::EXIT_CODE),
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            usage::complain(&error.to_string());
            ExitCode::from(error.exit_code())
        }
        // The hook has said it.
        Err(_) => ExitCode::FAILURE,
    }
}

/// Has `-1` taken for the value of an option, which then says what is wrong with it, and not for an option of its own.
fn negatives_are_values(command: clap::Command) -> clap::Command {
    command.allow_negative_numbers(true).mut_subcommands(negatives_are_values)
}

fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Generate(args) => generate::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Arms(args) => arms::run(&args),
        Command::Schemes(args) => schemes::run(&args),
        Command::Train(command) => Ok(train::run(*command)?),
        Command::Prompts(command) => prompts::run(&command),
        Command::Sweep(args) => sweep::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Judge(args) => judge::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Axioms(args) => axioms::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Certify(args) => certify::run(&args),
    }
}
