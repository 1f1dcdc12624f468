//! `swiss-knife sweep` on a tiny random model: what it records, what a kill leaves intact, and how
//! several processes share a plan.

#[allow(dead_code)] // shared with the tests of the program
#[path = "../cli/common.rs"]
mod common;

mod plans;
mod records;
mod surviving;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{model_section, program};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a plan and its prompts.
struct Bench {
    folder: TempDir,
}

const PROMPTS: &str = r#"{"id":"sky","prompt":"Why is the sky blue?","labels":{"axis":"honesty"}}
{"id":"more","prompt":"\n\nHuman: Hi\n\nAssistant: Hello. \n\nHuman: Go on\n\nAssistant:","labels":{"axis":"helpfulness"}}
"#;

/// Two schemes with weights at three weight vectors, one scheme without weights, and two seeds.
const PLAN: &str = r#"
[sweep]
seeds = [1, 2]

[schemes.swiss-knife]

[schemes.cool]
scheme = "swiss-knife"
set = ["selector.temperature=0.5", "proposal.candidates=3"]

[schemes.base]

[weights]
kind = "listed"
list = [{ helpful = 1 }, { helpful = 1, honest = 1 }, { helpful = 1, honest = 1, harmless = 1 }]

[prompts]
sources = ["prompts.jsonl"]

[generation]
max_new_tokens = 20
"#;

/// Cells of [`PLAN`]: each prompt and seed under two schemes at three weight vectors, and under one
/// scheme without weights.
const CELLS: usize = 2 * 2 * (2 * 3 + 1);

impl Bench {
    fn new(plan: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("prompts.jsonl"), PROMPTS).unwrap();
        let bench = Self { folder };
        bench.plan(plan);
        bench
    }

    /// Writes the plan, with the tiny model.
    fn plan(&self, plan: &str) {
        fs::write(self.path("plan.toml"), format!("{plan}\n{}", model_section())).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = program();
        command.arg("sweep").arg(self.path("plan.toml")).args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the sweep to its end.
    fn finish(&self) {
        common::stdout(&self.run(&["--quiet"]));
        assert!(!self.path("plan.jsonl.claims").exists(), "no claim is left");
    }

    /// The number of complete lines of the output.
    fn lines(&self) -> usize {
        fs::read(self.path("plan.jsonl")).unwrap_or_default().iter().filter(|&&byte| byte == b'\n').count()
    }

    fn records(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("plan.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The answers by cell: each record and its steps, without times and file offsets.
    fn answers(&self) -> BTreeMap<String, (Value, Vec<Value>)> {
        let records = self.records();
        let count = records.len();
        let answers: BTreeMap<_, _> = records.into_iter().map(|record| self.answer(record)).collect();
        assert_eq!(answers.len(), count, "no cell is there twice");
        answers
    }

    fn answer(&self, mut record: Value) -> (String, (Value, Vec<Value>)) {
        let id = record["id"].as_str().unwrap().to_owned();
        let steps = steps(&self.path("plan.traces.jsonl"), &record["trace"]);
        assert_eq!(steps.len() as u64, record["steps"].as_u64().unwrap());
        assert!(steps.iter().all(|step| step["id"] == record["id"]));
        for field in ["seconds", "elapsed", "trace"] {
            assert!(record.as_object_mut().unwrap().remove(field).is_some(), "{field}");
        }
        let timeless = |mut step: Value| {
            step.as_object_mut().unwrap().remove("seconds").unwrap();
            step
        };
        (id, (record, steps.into_iter().map(timeless).collect()))
    }
}

/// The steps at `span` in the file of traces.
fn steps(traces: &Path, span: &Value) -> Vec<Value> {
    let bytes = fs::read(traces).unwrap();
    let place = |field: &str| span[field].as_u64().unwrap() as usize;
    let text = std::str::from_utf8(&bytes[place("offset")..place("offset") + place("bytes")]).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
