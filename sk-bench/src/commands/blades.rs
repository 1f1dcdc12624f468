//! `swiss-knife blades`: trains an adapter per objective for a model of the user.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{ArgAction, Args};
use serde::{Deserialize, Serialize};
use sk_models::decoder::Precision;
use sk_models::device::DeviceName;
use sk_models::hf::{self, CheckpointError, Hub, ModelId};
use sk_models::lora::Target;
use sk_models::train::TrainError;
use sk_models::train::data::{DataOptions, Source, read_rows};
use sk_models::train::dpo::{DpoEvent, DpoOptions, check_pairs, train_dpo};
use sk_models::train::preference::{PreferenceLoss, PreferenceReport};
use sk_models::train::recipe::Recipe;
use sk_models::train::run::RunOptions;

use super::train::{Bar, FRAMINGS};
use crate::args::{choice, written};
use crate::progress::Loading;
use crate::shell::word;
use crate::{Error, interrupt, message, output, terminal};
use sk_report::grid::Grid;

const EXAMPLES: &str = "\
Examples:
  # Two blades for a Qwen from the hub, with preferences from the hub
  swiss-knife blades Qwen/Qwen2.5-0.5B-Instruct --framing chat -o blades \\
      --prefer helpful=hh-rlhf-helpful --prefer harmless=hh-rlhf-harmless

  # Your own pairs, on a CPU with little memory
  swiss-knife blades Qwen/Qwen2.5-0.5B-Instruct --framing chat -o blades \\
      --prefer brief=pairs.jsonl --accumulate 8 --length 256 --steps 100

A row of pairs is {\"prompt\", \"chosen\", \"rejected\"}, or two dialogues, \"chosen\" and \"rejected\";
each is text or a list of messages.
After an interruption, the same command resumes; a finished blade is kept.";

/// Named preference data on the hub: the name, and the folder of the data set.
const NAMED: [(&str, &str); 2] = [("hh-rlhf-helpful", "helpful-base"), ("hh-rlhf-harmless", "harmless-base")];
/// The data set of [`NAMED`].
const HH_RLHF: &str = "Anthropic/hh-rlhf";
/// Approximate maximum number of held-out pairs. It gives an interval of ±0.07; more pairs would
/// take too long.
const HELD_OUT: f64 = 200.0;
/// Largest share of the prompts to hold out.
const LARGEST_SHARE: f64 = 0.2;
/// β of DPO, the same as elsewhere in the program.
const BETA: f64 = 0.1;
/// The record file of a finished blade.
const RECORD: &str = "held_out.json";
/// Steps of warm-up.
const WARMUP: u64 = 20;

/// Options of `blades`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BladesArgs {
    /// The model: a directory in Hugging Face format, or a hub id.
    #[arg(value_name = "DIR|ID")]
    model: String,
    /// An objective, and the pairs that a blade learns it from; repeat for more.
    ///
    /// SOURCE is a .jsonl or .jsonl.gz file, a folder of such files, or one of hh-rlhf-helpful and
    /// hh-rlhf-harmless, which are fetched from the hub.
    #[arg(long = "prefer", value_name = "NAME=SOURCE", required = true)]
    preferences: Vec<PreferenceArg>,
    /// Folder for the blades, one folder for each.
    #[arg(short, long, value_name = "DIR", value_parser = written())]
    output: PathBuf,
    /// Optimiser steps of each blade.
    #[arg(long, default_value_t = 300)]
    steps: u64,
    /// Pairs per forward pass: more take more memory, and on a GPU less time.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Forward passes per step.
    #[arg(long, default_value_t = 16)]
    accumulate: usize,
    /// Longest prompt and completion together, in tokens; prompts lose their beginning.
    #[arg(long, default_value_t = 512)]
    length: usize,
    /// Rank of each change.
    #[arg(long, default_value_t = 16)]
    rank: usize,
    /// Highest learning rate.
    #[arg(long, default_value_t = 1e-4)]
    rate: f64,
    /// Framing of the prompts; use the blades with the same.
    #[arg(long = "framing", value_name = "FRAMING", action = ArgAction::Set, default_value = "hh", value_parser = choice(FRAMINGS))]
    chat: bool,
    /// Frozen weights of the model: bf16, or f32, which takes twice the memory.
    #[arg(long, value_name = "PRECISION", default_value_t = Precision::Bf16)]
    precision: Precision,
    /// Device: auto, cpu, cuda[:N] or wgpu[:N].
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceName,
}

/// A parsed `NAME=SOURCE`: an objective and the source of its preference pairs.
#[derive(Debug, Clone)]
struct PreferenceArg {
    name: String,
    source: String,
}

impl FromStr for PreferenceArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, source) = text.split_once('=').unwrap_or((text, ""));
        // The name is used as a folder name.
        let plain =
            name.starts_with(char::is_alphanumeric) && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if !plain || source.is_empty() {
            return Err("an objective is given as NAME=SOURCE, such as helpful=pairs.jsonl".to_owned());
        }
        Ok(Self { name: name.to_owned(), source: source.to_owned() })
    }
}

/// The record of a finished blade: how it was trained, and its held-out accuracy.
#[derive(Debug, Serialize, Deserialize)]
struct BladeRecord {
    model: String,
    source: String,
    recipe: Recipe,
    /// Pairs held out.
    pairs: usize,
    accuracy: f64,
    interval: (f64, f64),
}

/// Runs the command.
pub(crate) fn run(args: &BladesArgs) -> Result<(), Error> {
    for (place, PreferenceArg { name, .. }) in args.preferences.iter().enumerate() {
        if args.preferences[..place].iter().any(|other| other.name == *name) {
            return Err(Error::Input(format!("--prefer gives \"{name}\" twice; give each objective a name of its own")));
        }
    }
    let mut loading = Loading::new(false);
    loading.show("looking for the model");
    let model = hf::resolve(&args.model, &mut loading)?;
    let found = args.preferences.iter().map(|preference| files(&preference.source, &mut loading));
    let sources: Vec<_> = found.collect::<Result<_, _>>()?;
    drop(loading);
    // Find what is wrong with any of the blades before one is trained.
    let plan = |(preference, sources): (&PreferenceArg, _)| {
        let options = args.options(&model, sources, &args.output.join(&preference.name))?;
        let recipe = options.whole_recipe()?;
        let kept = finished(&options, &recipe)?;
        if kept.is_none() {
            check_pairs(&options)?;
        }
        Ok((options, recipe, kept))
    };
    let plans: Vec<_> = args.preferences.iter().zip(sources).map(plan).collect::<Result<_, Error>>()?;
    for (options, ..) in plans.iter().filter(|(.., kept)| kept.is_none()) {
        options.claim()?;
    }
    let device = args.device.open()?;

    let mut records = Vec::new();
    for (place, (PreferenceArg { name, source }, (options, recipe, kept))) in args.preferences.iter().zip(plans).enumerate() {
        if let Some(record) = kept {
            message::note(&format!("blade {name} ({} of {}): kept", place + 1, args.preferences.len()));
            records.push(record);
            continue;
        }
        message::note(&format!("blade {name} ({} of {}), from {source}", place + 1, args.preferences.len()));
        let record = |PreferenceReport { pairs, accuracy, interval, .. }| {
            let (model, source, recipe) = (args.model.clone(), source.clone(), recipe.clone());
            BladeRecord { model, source, recipe, pairs, accuracy, interval }
        };
        let write = |report| output::write(&options.output.join(RECORD), output::pretty_json(&record(report))?);
        let mut written = Ok(());
        interrupt::listen_between_checkpoints(options.run.save_every);
        let mut progress = Bar::new("step", args.steps);
        let report = train_dpo(&options, Some(&recipe), &device, &mut |event| {
            // The run still has its checkpoint: if it is interrupted, it measures again.
            if let DpoEvent::HeldOut { step, report } = event
                && step == options.run.steps
            {
                written = write(report);
            }
            progress.dpo(event);
        })?;
        drop(progress);
        // A disk that was full may have room now.
        written.or_else(|_| write(report))?;
        records.push(record(report));
    }
    output::print(format_args!("{}\n\nTry them:\n{}", args.table(&records).render(terminal::columns()), args.command()))
}

impl BladesArgs {
    fn options(&self, model: &Path, files: Vec<PathBuf>, folder: &Path) -> Result<DpoOptions, TrainError> {
        let pairs: usize = files.iter().map(|file| Ok(read_rows(file)?.len())).sum::<Result<_, TrainError>>()?;
        Ok(DpoOptions {
            model: model.to_owned(),
            base: self.model.clone(),
            chat: self.chat,
            data: DataOptions {
                sources: files.into_iter().map(|path| Source { path, weight: 1.0 }).collect(),
                exclude: Vec::new(),
                held_out: (HELD_OUT / pairs.max(1) as f64).min(LARGEST_SHARE),
            },
            tests: Vec::new(),
            output: folder.to_owned(),
            targets: Target::ALL.to_vec(),
            rank: self.rank,
            alpha: 2.0 * self.rank as f64,
            loss: PreferenceLoss { beta: BETA, label_smoothing: 0.0, length_normalised: false },
            precision: self.precision,
            run: RunOptions {
                steps: self.steps,
                batch: self.batch,
                accumulate: self.accumulate,
                length: self.length,
                rate: self.rate,
                warmup: WARMUP,
                floor: 0.1,
                weight_decay: 0.0,
                clip: 1.0,
                seed: 0,
                evaluate_every: 100,
                save_every: 10,
            },
        })
    }

    fn table(&self, records: &[BladeRecord]) -> Grid {
        let mut table = Grid::new(["blade", "held-out pairs", "accuracy", "95 % interval"]).numbers(1..);
        for (PreferenceArg { name, .. }, BladeRecord { pairs, accuracy, interval: (low, high), .. }) in
            self.preferences.iter().zip(records)
        {
            table.row([name.clone(), pairs.to_string(), format!("{accuracy:.3}"), format!("[{low:.3}, {high:.3}]")]);
        }
        table
    }

    /// Returns a command that demonstrates the blades.
    fn command(&self) -> String {
        let mut command = format!("swiss-knife compare \"How do I tell my boss?\" --backbone {}", word(&self.model));
        if self.chat {
            command += " --framing chat";
        }
        if self.precision != Precision::default() {
            command += &format!(" --precision {}", self.precision);
        }
        if self.device != DeviceName::Auto {
            command += &format!(" --device {}", self.device);
        }
        for PreferenceArg { name, .. } in &self.preferences {
            let blade = format!("{name}={}", self.output.join(name).display());
            command += &format!(" \\\n    --blade {}", word(&blade));
        }
        command
    }
}

/// Returns the record of the blade that a run makes, if it is finished.
fn finished(options: &DpoOptions, recipe: &Recipe) -> Result<Option<BladeRecord>, Error> {
    if !options.is_finished() {
        return Ok(None);
    }
    let path = options.output.join(RECORD);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::reading(&path)(error)),
    };
    let record: BladeRecord = serde_json::from_str(&text).map_err(|error| Error::reading(&path)(std::io::Error::other(error)))?;
    if let Some(with) = recipe.difference(&record.recipe) {
        let with = with.replace("another --data", "other pairs").replace("another --", "another ");
        let (folder, BladeRecord { model, source, .. }) = (options.output.display(), record);
        let cure = "repeat that, give another --output, or move it away";
        return Err(Error::Input(format!("{folder} holds a blade of {model}, from {source}, that was made with {with}; {cure}")));
    }
    Ok(Some(record))
}

/// Returns the files of preference pairs of a source.
fn files(source: &str, loading: &mut Loading) -> Result<Vec<PathBuf>, Error> {
    let path = Path::new(source);
    let are_pairs = |path: &Path| {
        let name = path.to_string_lossy();
        path.is_file() && (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz"))
    };
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let unusable = |reason: String| Error::Input(format!("preferences {source}: {reason}"));
    if path.is_dir() {
        let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(Error::reading(path))?;
        let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|path| are_pairs(path)).collect();
        files.sort();
        return if files.is_empty() { Err(unusable("the folder has no .jsonl or .jsonl.gz file".to_owned())) } else { Ok(files) };
    }
    let Some((_, folder)) = NAMED.iter().find(|(name, _)| *name == source) else {
        let names = NAMED.map(|(name, _)| name).join(" or ");
        return Err(unusable(format!("there is no such file or folder, and it is not {names}")));
    };
    loading.show("looking for the preferences");
    let mut fetch = || {
        let id: ModelId = HH_RLHF.parse()?;
        let name = format!("{folder}/train.jsonl.gz");
        Ok(Hub::from_env()?.data(&id, &[&name], loading)?.join(name))
    };
    let file = fetch().map_err(CheckpointError::Hub)?;
    Ok(vec![file])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_objective_has_the_name_of_a_folder() {
        let PreferenceArg { name, source } = "calm-2=a=b/c.jsonl".parse().unwrap();
        assert_eq!((name.as_str(), source.as_str()), ("calm-2", "a=b/c.jsonl"));
        for wrong in ["helpful", "=x", "a=", "../a=x", "a/b=x", ".=x", "a b=x"] {
            assert!(wrong.parse::<PreferenceArg>().is_err(), "{wrong}");
        }
    }
}
