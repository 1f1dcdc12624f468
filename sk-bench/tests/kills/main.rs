//! Runs `sweep`, `judge`, `tune` and `train`, kills them at random moments and starts them again.
//! The final files must equal those of an undisturbed run.
//!
//! ```sh
//! SWISS_KNIFE_KILLS=1000 cargo test --release -p sk-bench --test kills -- --ignored --nocapture
//! ```
//!
//! Each of the four commands is killed that many times; 25 times if the variable is not set.

#![cfg(unix)]

#[allow(dead_code)] // shared with the tests of the program
#[path = "../cli/common.rs"]
mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::Instant;

use common::{model_section, models, program, stderr};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

/// The most kills in one folder before a run is left to finish.
const MOST: usize = 30;

/// What a run writes, by name or id.
type Outcome = BTreeMap<String, Value>;

/// A command that resumes its own earlier work.
struct Job {
    name: &'static str,
    /// Writes its inputs to a folder.
    prepare: fn(&Path),
    /// The arguments of the command, which runs in the folder.
    words: fn() -> Vec<String>,
    outcome: fn(&Path) -> Outcome,
}

impl Job {
    fn command(&self, folder: &Path) -> Command {
        let mut command = program();
        command.current_dir(folder).args((self.words)()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    fn run(&self, folder: &Path) {
        self.check(&self.command(folder).output().unwrap());
    }

    /// Checks that a run succeeded, or reported that an earlier one had finished.
    fn check(&self, output: &Output) {
        let over = stderr(output).contains("model.safetensors already exists, and there is no checkpoint");
        assert!(output.status.success() || over, "{}: {}", self.name, stderr(output));
    }

    /// Kills `kills` runs, and compares the final content of each folder with that of an
    /// undisturbed run.
    fn campaign(&self, kills: usize, seed: u64) {
        let start = Instant::now();
        let folder = tempfile::tempdir().unwrap();
        (self.prepare)(folder.path());
        let begin = Instant::now();
        self.run(folder.path());
        let whole = begin.elapsed();
        let expected = (self.outcome)(folder.path());
        assert!(!expected.is_empty());

        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut killed, mut folders) = (0, 0);
        while killed < kills {
            let folder = tempfile::tempdir().unwrap();
            (self.prepare)(folder.path());
            for _ in 0..MOST {
                let mut child = self.command(folder.path()).spawn().unwrap();
                sleep(whole.mul_f64(rng.random::<f64>()));
                let early = child.try_wait().unwrap().is_none();
                if early {
                    // The standard library sends SIGKILL.
                    child.kill().unwrap();
                    killed += 1;
                }
                let output = child.wait_with_output().unwrap();
                if !early {
                    self.check(&output);
                    break;
                }
            }
            self.run(folder.path());
            assert_eq!((self.outcome)(folder.path()), expected, "{} after {killed} kills, seed {seed}", self.name);
            folders += 1;
        }
        let seconds = start.elapsed().as_secs();
        println!("{}: {killed} kills in {folders} folders, {seconds} s; every outcome is that of an undisturbed run", self.name);
    }
}

/// The records of a file without the `timed` fields, by id and the other fields that identify one.
fn lines(path: &Path, timed: &[&str]) -> Outcome {
    let text = fs::read_to_string(path).unwrap();
    let mut all = Outcome::new();
    for line in text.lines() {
        let mut record: Value = serde_json::from_str(line).unwrap();
        timed.iter().for_each(|field| assert!(record.as_object_mut().unwrap().remove(*field).is_some(), "{field}"));
        let name = ["id", "rubric", "pass", "search", "trial"].map(|field| record[field].to_string()).join(" ");
        assert_eq!(all.insert(name.clone(), record), None, "{name} is there twice");
    }
    all
}

const PROMPTS: &str = r#"{"id":"sky","prompt":"Why is the sky blue?"}
{"id":"more","prompt":"\n\nHuman: Hi\n\nAssistant: Hello. \n\nHuman: Go on\n\nAssistant:"}
"#;

fn write_plan(folder: &Path, plan: &str) {
    fs::write(folder.join("prompts.jsonl"), PROMPTS).unwrap();
    fs::write(folder.join("plan.toml"), format!("{plan}\n{}", model_section())).unwrap();
}

fn words(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

const SWEEP: Job = Job {
    name: "sweep",
    prepare: |folder| {
        let plan = "[sweep]\nseeds = [1, 2]\n[schemes.swiss-knife]\n[schemes.base]\n[weights]\nkind = \"listed\"\n\
            list = [{ helpful = 1 }, { helpful = 1, honest = 1 }]\n[prompts]\nsources = [\"prompts.jsonl\"]\n\
            [generation]\nmax_new_tokens = 40\n";
        write_plan(folder, plan);
    },
    words: || words("sweep plan.toml --quiet"),
    outcome: |folder| {
        let traces = fs::read(folder.join("plan.traces.jsonl")).unwrap();
        let mut records = lines(&folder.join("plan.jsonl"), &["seconds", "elapsed"]);
        let mut bytes = 0;
        for record in records.values_mut() {
            let span = record.as_object_mut().unwrap().remove("trace").unwrap();
            let place = |field: &str| span[field].as_u64().unwrap() as usize;
            let text = std::str::from_utf8(&traces[place("offset")..place("offset") + place("bytes")]).unwrap();
            let step = |line: &str| {
                let mut step: Value = serde_json::from_str(line).unwrap();
                assert_eq!(step["id"], record["id"]);
                step.as_object_mut().unwrap().remove("seconds");
                step
            };
            let steps: Vec<Value> = text.lines().map(step).collect();
            bytes += place("bytes");
            record["steps of the trace"] = steps.into();
        }
        assert_eq!(bytes, traces.len(), "nothing between the traces");
        assert!(!folder.join("plan.jsonl.claims").exists(), "no claim is left");
        records
    },
};

const JUDGE: Job = Job {
    name: "judge",
    prepare: |folder| {
        let response = |i: usize| {
            let text = " I am glad to help you with that. You should see a doctor.".repeat(1 + i % 7);
            json!({"id": format!("r{i}"), "prompt": format!("\n\nHuman: Question {i}?\n\nAssistant:"), "response": text})
                .to_string()
                + "\n"
        };
        fs::write(folder.join("responses.jsonl"), (0..40).map(response).collect::<String>()).unwrap();
    },
    words: || words("judge responses.jsonl --output judged.jsonl --offline"),
    outcome: |folder| lines(&folder.join("judged.jsonl"), &["seconds"]),
};

const TUNE: Job = Job {
    name: "tune",
    prepare: |folder| {
        let plan = "[tune]\ntrials = 6\nstartup = 3\n[space]\ncandidates = [2, 4]\nfixed = [\"w_tour\", \"rounds\"]\n\
            [prompts]\nsources = [\"prompts.jsonl\"]\n[evaluation]\nsources = [\"later.jsonl\"]\n[generation]\nmax_new_tokens = 8\n";
        fs::write(folder.join("later.jsonl"), "{\"id\":\"sea\",\"prompt\":\"Why is the sea blue?\"}\n").unwrap();
        write_plan(folder, plan);
    },
    words: || words("tune plan.toml --quiet"),
    outcome: |folder| lines(&folder.join("plan.jsonl"), &["elapsed"]),
};

const TRAIN: Job = Job {
    name: "train",
    prepare: |folder| {
        let row =
            |i: usize| json!({"text": format!("\n\nHuman: Question {i}?\n\nAssistant: Answer {}.", i * 7)}).to_string() + "\n";
        fs::write(folder.join("texts.jsonl"), (0..60).map(row).collect::<String>()).unwrap();
    },
    words: || {
        let tokenizer = models().join("backbone").display().to_string();
        let mut all = words(
            "train lm --data texts.jsonl --output model --hidden 16 --intermediate 32 --layers 2 --heads 2 --kv-heads 1 \
             --head-dim 8 --max-length 64 --steps 24 --batch 2 --length 32 --warmup 4 --evaluate-every 8 --save-every 3 --device cpu \
             --tokenizer",
        );
        all.push(tokenizer);
        all
    },
    outcome: |folder| {
        let files = fs::read_dir(folder.join("model")).unwrap().map(|entry| entry.unwrap());
        let contents = |path| Value::from(fs::read(path).unwrap());
        files.map(|file| (file.file_name().into_string().unwrap(), contents(file.path()))).collect()
    },
};

#[test]
#[ignore = "a campaign: minutes to hours"]
fn killed_runs_lose_and_double_nothing() {
    let kills = std::env::var("SWISS_KNIFE_KILLS").map_or(25, |kills| kills.parse().expect("SWISS_KNIFE_KILLS is a number"));
    for (job, seed) in [SWEEP, JUDGE, TUNE, TRAIN].iter().zip(1..) {
        job.campaign(kills, seed);
    }
}
