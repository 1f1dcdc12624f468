//! `swiss-knife judge`: scores responses, and measures how reliable the scores are.

// Doc comments of arguments are help texts, in which brackets mark optional parts.
#![allow(rustdoc::broken_intra_doc_links)]

mod options;
mod progress;
mod summary;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::args::written;
use crate::judge::candidates::{informativeness, read_candidates};
use crate::judge::run::{Outcome, Panel, judge_all};
use crate::judge::{
    Cached, FrontierTable, Judge, JudgeError, Objectives, check_axes, frontier_csv, read_judged, read_responses, retest,
};
use crate::plural::counted;
use crate::record_file::same_file;
use crate::{Error, interrupt, message, output};

pub(crate) use options::JudgingArgs;
use progress::Progress;
use summary::{Candidates, JudgeSummary, Retest};

const EXAMPLES: &str = "\
Examples:
  # A judge served by vLLM or llama.cpp on this machine
  swiss-knife judge responses.jsonl -o judged.jsonl --endpoint http://localhost:8000/v1

  # Ollama, scores weighted by the model's own probabilities
  swiss-knife judge responses.jsonl -o judged.jsonl --endpoint http://localhost:11434/v1 \\
      --model qwen2.5:32b --scoring logprob

  # No server: the preference models that ship
  swiss-knife judge responses.jsonl -o judged.jsonl --offline

  # A hosted model: the key is taken from an environment variable and written nowhere
  swiss-knife judge responses.jsonl -o judged.jsonl --endpoint https://api.example.com/v1 \\
      --model m --api-key-env EXAMPLE_API_KEY

  # How far does this judge move a response that did not change?
  swiss-knife judge retest responses.jsonl -o judged.jsonl --endpoint http://localhost:8000/v1

  # How well do the dispersions of a sweep's blades predict their errors against the judge?
  swiss-knife judge candidates responses.jsonl -o candidates.jsonl --offline

  # From judgements to the report's tables
  swiss-knife judge table judged.jsonl -o results && swiss-knife report results

RESPONSES holds lines of {\"id\", \"prompt\", \"response\"} and, if known, scheme, weights, prompt_id
and seed. JUDGED gets one line per response and rubric; an interrupted run resumes from it.";

/// Options of `judge`.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    disable_help_subcommand = true,
    subcommand_negates_reqs = true
)]
pub struct JudgeArgs {
    #[command(subcommand)]
    command: Option<JudgeCommand>,
    #[command(flatten)]
    options: Option<JudgingArgs>,
}

/// What else can be done with a judge.
#[derive(Debug, Subcommand)]
pub(crate) enum JudgeCommand {
    /// Judge the same responses twice, and report how well the two passes agree.
    ///
    /// The first pass is taken from JUDGED if it is there. Abstentions are excluded pairwise.
    #[command(args_override_self = true)]
    Retest(Box<JudgingArgs>),
    /// Judge the candidates of a sweep's steps, and report how well each blade's σ predicts its
    /// errors.
    ///
    /// RESPONSES is the output of a sweep with its traces beside it. Per blade and rubric:
    /// Spearman's rank correlation within a step of μ with the judge's score q, and of σ with the
    /// error |μ − q|, both standardised within the step; means over steps, intervals by prompt. The
    /// magnitude of the latter is 𝓘(σ), the informativeness of the paper.
    #[command(args_override_self = true)]
    Candidates(Box<JudgingArgs>),
    /// Write judgements as the table that `swiss-knife report` reads.
    Table {
        /// Judgements, as `judge` writes them.
        #[arg(value_name = "JUDGED")]
        judged: PathBuf,
        /// Directory for judged_frontier.csv and objectives.toml, which is created.
        #[arg(short, long, value_name = "DIR", value_parser = written())]
        output: PathBuf,
        /// What was judged: a file of objectives [default: quality, safety and honesty].
        #[arg(long, value_name = "FILE")]
        objectives: Option<PathBuf>,
        /// Only responses of this seed, where a sweep was answered with several.
        #[arg(long, value_name = "SEED")]
        seed: Option<u64>,
    },
    /// Print the rubrics.
    Rubrics {
        /// A file of objectives [default: quality, safety and honesty].
        #[arg(long, value_name = "FILE")]
        objectives: Option<PathBuf>,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
        /// Print a file of objectives instead of text.
        #[arg(long, conflicts_with = "json")]
        toml: bool,
    },
}

/// Judges responses and prints a summary on standard output.
pub(crate) fn run(args: &JudgeArgs) -> Result<(), Error> {
    match (&args.command, &args.options) {
        (Some(JudgeCommand::Rubrics { objectives, json, toml }), _) => rubrics(objectives.as_deref(), *json, *toml),
        (Some(JudgeCommand::Table { judged, output, objectives, seed }), _) => {
            table(judged, output, objectives.as_deref(), *seed)
        }
        (Some(JudgeCommand::Retest(options)), _) => judge(options, &Task::Retest),
        (Some(JudgeCommand::Candidates(options)), _) => judge(options, &Task::Candidates),
        (None, Some(options)) => judge(options, &Task::Responses),
        // The parser requires the options of `judge` if there is no subcommand.
        (None, None) => Err(Error::Input("give a file of responses; see swiss-knife judge --help".to_owned())),
    }
}

/// What to judge.
enum Task {
    Responses,
    /// Responses, in two passes.
    Retest,
    /// The candidates of the steps of a sweep.
    Candidates,
}

fn judge(options: &JudgingArgs, task: &Task) -> Result<(), Error> {
    let (responses, steps) = match task {
        Task::Candidates => read_candidates(&options.responses)?,
        Task::Responses | Task::Retest => (read_responses(&options.responses)?, Vec::new()),
    };
    let passes = if matches!(task, Task::Retest) { 2 } else { 1 };
    let objectives = options.objectives()?;
    let rubrics = options.rubrics(&objectives)?;
    if same_file(&options.responses, &options.output) {
        let output = options.output.display();
        let reason = "holds the responses, and judgements would go there too; choose another file for them";
        return Err(Error::Input(format!("{output} {reason}")));
    }
    let panel =
        Panel { responses: &responses, objectives: &objectives, rubrics: &rubrics, passes, concurrency: options.concurrency };
    let ask = |judge: &dyn Judge| -> Result<Outcome<'_>, Error> {
        interrupt::listen();
        let progress = Progress::new(options.quiet);
        let outcome = judge_all(&panel, judge, &options.output, &|event| progress.show(event));
        progress.finish();
        Ok(outcome?)
    };
    let (outcome, cached) = if let Some(judge) = options.offline_judge(&objectives)? {
        // The offline judge is as fast as a cache.
        (ask(&judge)?, 0)
    } else {
        let chat = options.judge()?;
        let judged = match options.cache_directory() {
            Some(directory) => {
                let judge = Cached::new(&chat, &directory)?;
                let outcome = ask(&judge);
                if let Some(fault) = judge.fault() {
                    message::aside(&format!("scores are not cached: {fault}"));
                }
                (outcome?, judge.hits())
            }
            None => (ask(&chat)?, 0),
        };
        options.note_structure(&chat);
        judged
    };
    let total = responses.len() * rubrics.len() * passes as usize;
    let text = match task {
        Task::Responses => output::shown(&JudgeSummary::new(&objectives, &outcome, &responses, cached), options.json),
        Task::Retest => {
            let rubrics = retest::agreement(&objectives, &outcome.answers);
            output::shown(&Retest { total, unanswered: outcome.unanswered, rubrics }, options.json)
        }
        Task::Candidates => {
            let blades = informativeness(&steps, &responses, &outcome.answers, &objectives);
            let (steps, candidates) = (steps.len(), responses.len());
            output::shown(&Candidates { steps, candidates, unanswered: outcome.unanswered, blades }, options.json)
        }
    };
    output::print(text?)?;
    match outcome.trouble {
        Some(trouble) => Err(JudgeError::Incomplete { unanswered: outcome.unanswered, total, first: Box::new(trouble) }.into()),
        None => Ok(()),
    }
}

/// Writes judgements as a table.
fn table(judged: &Path, folder: &Path, objectives: Option<&Path>, seed: Option<u64>) -> Result<(), Error> {
    let chosen = read_objectives(objectives, Objectives::hhh())?;
    let records = read_judged(judged)?;
    let of_file = |error: JudgeError| JudgeError::Invalid(format!("{}: {error}", judged.display()));
    if objectives.is_none() {
        check_axes(&chosen, &records).map_err(of_file)?;
    }
    let FrontierTable { csv, unweighed, unjudged, absent } = frontier_csv(&chosen, &records, seed).map_err(of_file)?;
    if unjudged > 0 {
        let cure = "judge them with the same command as the others, which goes on where it ended";
        message::aside(&format!("{} of the table lack judgements; {cure}", counted(unjudged, "response")));
    }
    if absent > 0 {
        let cells = counted(absent, "combination");
        message::aside(&format!(
            "{cells} of scheme, weights and prompt without a judged response; if the sweep has responses to them, judge these too"
        ));
    }
    if unweighed > 0 {
        let cure = "for a baseline of a sweep, set at_every_weight = true in its plan";
        message::aside(&format!("left out {} without weights; {cure}", counted(unweighed, "response")));
    }
    std::fs::create_dir_all(folder).map_err(Error::writing(folder))?;
    let copy = match objectives {
        Some(file) => std::fs::read(file).map_err(Error::reading(file))?,
        None => toml::to_string(&chosen).map_err(|error| Error::Output(std::io::Error::other(error)))?.into_bytes(),
    };
    let (own, cells) = (folder.join("objectives.toml"), folder.join("judged_frontier.csv"));
    // The objectives of an earlier table would not fit this one. Without a table, they are the
    // user's.
    if !cells.exists() && std::fs::read(&own).is_ok_and(|found| found != copy) {
        let own = own.display();
        return Err(Error::Input(format!("{own} holds other objectives and would be overwritten; give another --output")));
    }
    output::write_together(&[(own, copy), (cells, csv.into())])
}

/// Returns the objectives of a file, or `otherwise`.
fn read_objectives(file: Option<&Path>, otherwise: &Objectives) -> Result<Objectives, Error> {
    file.map_or_else(|| Ok(otherwise.clone()), |file| Objectives::read(file).map_err(|error| Error::Input(error.to_string())))
}

fn rubrics(file: Option<&Path>, json: bool, toml: bool) -> Result<(), Error> {
    let read = |file: &Path| {
        let text = crate::scheme::text::read(file).map_err(Error::reading(file))?;
        let objectives = Objectives::of_file(file, &text).map_err(|error| Error::Input(error.to_string()))?;
        Ok::<_, Error>((objectives, Some(text)))
    };
    let (objectives, own) = file.map_or_else(|| Ok((Objectives::hhh().clone(), None)), read)?;
    let text = match own {
        _ if json => summary::rubrics_json(&objectives),
        _ if !toml => Ok(summary::rubrics_text(&objectives)),
        // As it is: a version that the file leaves out is computed from the text, and would not
        // change with it if it were printed.
        Some(own) => Ok(own),
        None => toml::to_string(&objectives).map_err(|error| Error::Output(std::io::Error::other(error))),
    };
    output::print(text?)
}
