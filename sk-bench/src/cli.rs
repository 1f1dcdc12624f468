//! The command line: its commands, and the dispatch to them.

// Doc comments of arguments are help texts, in which brackets mark optional parts.
#![allow(rustdoc::broken_intra_doc_links)]

use std::io::Write;

use clap::builder::PossibleValuesParser;
use clap::builder::styling::{AnsiColor, Effects, Styles};
use clap::{ColorChoice, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

use crate::commands::{
    arms::ArmsArgs, axioms::AxiomsArgs, bench::BenchArgs, blades::BladesArgs, certify::CertifyArgs, chat::ChatArgs,
    compare::CompareArgs, export::ExportArgs, generate::GenerateArgs, init::InitArgs, judge::JudgeArgs, prompts::PromptsCommand,
    report::ReportArgs, schemes::SchemesArgs, serve::ServeArgs, simulate::SimulateArgs, sweep::SweepArgs, train::TrainCommand,
    tune::TuneArgs,
};
use crate::{Error, commands};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().effects(Effects::BOLD))
    .usage(AnsiColor::Green.on_default().effects(Effects::BOLD))
    .literal(AnsiColor::Cyan.on_default().effects(Effects::BOLD))
    .placeholder(AnsiColor::Cyan.on_default());

/// Steer a frozen language model while it decodes.
///
/// A small model drafts candidate spans. The frozen backbone reads them under one LoRA adapter per
/// objective: each adapter scores every span. Scores are normalised, weighted and compared, and one
/// span is drawn. Objectives and weights can change at any step, without retraining.
#[derive(Debug, Parser)]
#[command(
    name = "swiss-knife",
    version,
    styles = STYLES,
    max_term_width = 100,
    subcommand_required = true,
    after_help = "Run `swiss-knife <COMMAND> --help` for the options of a command and examples."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// When to use colour.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Output")]
    pub color: ColorChoice,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a steered response to a prompt.
    Generate(Box<GenerateArgs>),
    /// Talk to a steered model, and change what steers it while it talks.
    Chat(Box<ChatArgs>),
    /// Answer a prompt under several weightings or schemes, side by side.
    Compare(Box<CompareArgs>),
    /// Serve a steered model to clients of OpenAI's API, with a page to play with.
    Serve(Box<ServeArgs>),
    /// Serve a steered model and open its web page, to change weights and watch the steps.
    #[command(after_help = commands::serve::PLAY_EXAMPLES)]
    Play(Box<ServeArgs>),
    /// Let several schemes choose from the same candidates, and compare them step by step.
    Arms(Box<ArmsArgs>),
    /// List the shipped schemes, print the file of one, or measure their speed and memory.
    Schemes(Box<SchemesArgs>),
    /// Write a plan, prompts and a scheme to start an experiment from.
    Init(InitArgs),
    /// Generate text from a grammar, or train a tokenizer, a language model, a blade, a head or a judge.
    #[command(subcommand)]
    Train(Box<TrainCommand>),
    /// Train a blade per objective for your own model.
    Blades(BladesArgs),
    /// Collect evaluation prompts: list, sample or export data sets.
    #[command(subcommand)]
    Prompts(Box<PromptsCommand>),
    /// Answer prompts under many schemes and weights, resumably.
    Sweep(SweepArgs),
    /// Search a scheme's numbers by Bayesian optimisation, resumably.
    Tune(TuneArgs),
    /// Score responses on rubrics, with a language model behind an endpoint or offline.
    Judge(Box<JudgeArgs>),
    /// Measure load time, speed frozen and steered, and peak memory.
    Bench(Box<BenchArgs>),
    /// Make tables of judged results, with intervals and tests.
    Report(ReportArgs),
    /// Check aggregation operators against the axioms.
    Axioms(AxiomsArgs),
    /// Show the theorems on simulated batches, and check them on every datum shown.
    Simulate(SimulateArgs),
    /// Write the model that ships as files that transformers, vLLM and SGLang load.
    Export(ExportArgs),
    /// Print the completions of commands and options for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Bound how far a change of the scores can move a choice, or search for the worst.
    Certify(Box<CertifyArgs>),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// If the command fails.
    pub fn run(self) -> Result<(), Error> {
        match self {
            Self::Generate(args) => commands::generate::run(&args),
            Self::Chat(args) => commands::chat::run(&args),
            Self::Compare(args) => commands::compare::run(&args),
            Self::Serve(args) => commands::serve::run(&args),
            Self::Play(args) => commands::serve::play(&args),
            Self::Arms(args) => commands::arms::run(&args),
            Self::Schemes(args) => commands::schemes::run(&args),
            Self::Init(args) => commands::init::run(&args),
            Self::Train(command) => commands::train::run(*command),
            Self::Blades(args) => commands::blades::run(&args),
            Self::Prompts(command) => commands::prompts::run(&command),
            Self::Sweep(args) => commands::sweep::run(&args),
            Self::Tune(args) => commands::tune::run(&args),
            Self::Judge(args) => commands::judge::run(&args),
            Self::Bench(args) => commands::bench::run(&args),
            Self::Report(args) => commands::report::run(&args),
            Self::Export(args) => commands::export::run(&args),
            Self::Axioms(args) => commands::axioms::run(&args),
            Self::Completions { shell } => std::io::stdout().write_all(completions(shell).as_bytes()).map_err(Error::Output),
            Self::Simulate(args) => commands::simulate::run(&args),
            Self::Certify(args) => commands::certify::run(&args),
        }
    }
}

/// Returns the completion script of a shell.
fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut without_quotes(Cli::command()), "swiss-knife", &mut script);
    // In a script for bash, clap_complete writes the hyphen of the name in two ways, so no
    // subcommand is found.
    String::from_utf8_lossy(&script).replace("swiss__subcmd__knife", "swiss__knife")
}

/// Replaces the double quotes in the help of values: clap_complete does not escape them in scripts
/// for fish and zsh.
fn without_quotes(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let values = arg.get_possible_values();
        if values.is_empty() {
            return arg;
        }
        arg.value_parser(PossibleValuesParser::new(values.into_iter().map(|value| {
            match value.get_help().map(|help| help.to_string().replace('"', "'")) {
                Some(help) => value.help(help),
                None => value,
            }
        })))
    });
    command.mut_subcommands(without_quotes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maximum width of help on a wide terminal, minus the indentation.
    const COLUMNS: usize = 98;

    /// A sweep of K also creates random blades for a checkpoint.
    #[test]
    fn random_blades_have_a_rank_with_any_model() {
        let sweep = ["--rank", "64", "--random-seed", "3", "--sweep", "k=8"];
        for model in [&[][..], &["--backbone", "dir"]] {
            let line = ["swiss-knife", "bench"].iter().chain(model).chain(&sweep);
            assert!(Cli::try_parse_from(line).is_ok());
        }
    }

    #[test]
    fn every_command_of_a_bash_script_has_completions() {
        let script = completions(Shell::Bash);
        let commands: Vec<_> = script.lines().filter_map(|line| line.trim().strip_prefix("cmd=\"")?.strip_suffix('"')).collect();
        assert!(commands.len() > 40, "{commands:?}");
        for command in commands.into_iter().filter(|command| !command.is_empty()) {
            assert!(script.contains(&format!("\n        {command})\n")), "{command}");
        }
    }

    #[test]
    fn descriptions_of_values_have_no_quotes_in_scripts() {
        fn check(command: &clap::Command) {
            for value in command.get_arguments().flat_map(clap::Arg::get_possible_values) {
                let help = value.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.contains('"'), "{}: {help}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&without_quotes(Cli::command()));
    }

    #[test]
    fn examples_are_not_wrapped() {
        let cli = Cli::command();
        let examples =
            cli.get_subcommands().filter_map(|command| Some((command.get_name(), command.get_after_help()?.to_string())));
        let examples: Vec<_> = examples.collect();
        assert!(examples.len() >= 11, "{examples:?}");
        for (name, help) in examples {
            for line in help.lines() {
                assert!(line.chars().count() <= COLUMNS, "{name}: {line}");
            }
        }
    }
}
