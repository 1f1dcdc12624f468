//! From a plan to a page: `sweep`, `judge`, `judge table` and `report`, run one after another.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{BLADES, assert_refused, model_section, models, program, stderr, stdout};
use crate::html::Document;
use crate::server::{Reply, Server};

/// Rounding of a mean of some tens of scores.
const ROUNDING: f64 = 1e-12;

/// Three schemes at two weight vectors on two prompts. One prompt holds HTML that tries to break
/// out of the page. `greedy` always chooses the candidate with the highest rating.
fn write_plan(folder: &Path) {
    let mut plan = r#"
[sweep]
output = "frontier.jsonl"

[schemes.swiss-knife]

[schemes.greedy]
scheme = "swiss-knife"
set = ["selector.kind=argmax", "proposal.candidates=3"]

[schemes.base]
at_every_weight = true

[weights]
kind = "listed"
list = [{ helpful = 1 }, { helpful = 1, honest = 1, harmless = 1 }]

[prompts]
sources = ["prompts.jsonl"]

[generation]
max_new_tokens = 12
"#
    .to_owned();
    plan += &format!("\n{}", model_section());
    fs::write(folder.join("plan.toml"), plan).unwrap();
    let prompts = [
        json!({"id": "sky", "prompt": "Why is the sky blue?"}),
        json!({"id": "paper:3", "prompt": "</blockquote><script>alert(1)</script> & so on"}),
    ];
    fs::write(folder.join("prompts.jsonl"), prompts.map(|prompt| prompt.to_string()).join("\n")).unwrap();
}

/// A judge whose scores differ between responses and between rubrics, and repeat in every run.
fn judge() -> Server {
    Server::start(|request, _| {
        if request.path == "/v1/models" {
            return Reply::Status(200, Vec::new(), json!({"data": [{"id": "the-model"}]}).to_string());
        }
        let text = request.body["messages"][1]["content"].as_str().unwrap();
        let sum = text.bytes().fold(0_u64, |sum, byte| (31 * sum + u64::from(byte)) % 1_000_003);
        Reply::Slow(Duration::ZERO, Box::new(Reply::score(sum % 10)))
    })
}

/// Runs the program in a folder, with a cache of its own.
fn in_folder(folder: &Path) -> impl Fn(&[&str]) -> Output {
    move |args| program().current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache")).args(args).output().unwrap()
}

#[test]
fn a_sweep_becomes_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_plan(folder);
    let server = judge();
    let run = in_folder(folder);
    stdout(&run(&["sweep", "plan.toml", "--quiet"]));
    stdout(&run(&["judge", "frontier.jsonl", "-o", "judged.jsonl", "--endpoint", &server.url, "--quiet"]));
    stdout(&run(&["judge", "table", "judged.jsonl", "-o", "results"]));
    let report = [
        "report",
        "results",
        "--reference",
        "swiss-knife",
        "--records",
        "frontier.jsonl",
        "--resamples",
        "100",
        "--out",
        "tables",
    ];
    let page = |name: &str| {
        stdout(&run(&[&report[..], &["--html", name]].concat()));
        fs::read_to_string(folder.join(name)).unwrap()
    };
    let html = page("report.html");
    assert_eq!(html, page("again.html"));
    let document = Document::parse(&html).unwrap_or_else(|fault| panic!("{fault}"));
    document.check_ids();

    // The page has every table with all its digits.
    let mut tables: Vec<String> = fs::read_dir(folder.join("tables"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".csv").map(str::to_owned))
        .collect();
    tables.sort();
    for name in &tables {
        assert_eq!(document.csv(name), fs::read_to_string(folder.join(format!("tables/{name}.csv"))).unwrap(), "{name}");
    }
    for name in ["methods", "contrasts", "clustering", "axes", "steering", "spreads", "choice", "throughput", "examples"] {
        assert!(tables.iter().any(|table| table == name), "{name} is not in {tables:?}");
    }
    // The page does not compare these results with the paper's, although both have a method `base`.
    assert!(!tables.iter().any(|table| table == "reproduction"));

    what_the_traces_say(folder);

    // The page shows responses verbatim, and markup in a prompt has no effect.
    let records: Vec<Value> = read_lines(&folder.join("frontier.jsonl"));
    assert_eq!(records.len(), 12);
    let quotes = document.text_of("blockquote");
    let shown = records.iter().filter(|record| quotes.contains(&record["response"].as_str().unwrap())).count();
    assert!(shown > 1, "{shown} of the responses are shown");
    let hostile = records.iter().map(|record| record["prompt"].as_str().unwrap()).find(|prompt| prompt.contains("<script>"));
    assert!(quotes.iter().any(|quote| quote.trim() == hostile.unwrap().trim()));
    let missing: Vec<&str> = document.elements("p").filter(|p| p.class() == "missing").map(|p| p.text.as_str()).collect();
    for part in
        ["No arm without normalisation", "No ablations at fixed weights", "No scale ratio", "not the results of the paper"]
    {
        assert!(missing.iter().any(|text| text.contains(part)), "nothing says {part:?}: {missing:?}");
    }
}

/// A plan with blades of those names, each an adapter that ships, and objectives of the same names.
fn write_own(folder: &Path, names: &[&str]) {
    let path = |part: &str| models().join(part).display().to_string();
    let mut plan = format!(
        r#"
sweep = {{ output = "sweep.jsonl", traces = false }}
schemes.swiss-knife.set = ["proposal.candidates=3"]
schemes.softmax-mu.set = ["proposal.candidates=3"]
weights = {{ kind = "lattice", density = 2 }}
prompts.sources = ["prompts.jsonl"]
generation.max_new_tokens = 8
[model]
backbone = {:?}
drafter = {:?}
device = "cpu"
[model.blades]
"#,
        path("backbone"),
        path("drafter")
    );
    let mut objectives = String::new();
    for (i, name) in names.iter().enumerate() {
        plan += &format!("{name} = {:?}\n", path(&format!("blades/{}", BLADES[i % BLADES.len()])));
        let better = if i == 1 { "less" } else { "more" };
        objectives += &format!(
            "[[objectives]]\nname = {name:?}\n[[rubrics]]\nname = {name:?}\nbetter = {better:?}\nscale = \"0-10\"\ncriterion = \"How \
             {name} is it?\"\nlow = \"not at all\"\nmiddle = \"somewhat\"\nhigh = \"entirely\"\n"
        );
    }
    fs::write(folder.join("plan.toml"), plan).unwrap();
    fs::write(folder.join("objectives.toml"), objectives).unwrap();
    let prompts = ["Why is the sky blue?", "What helps against hiccups?"].map(|prompt| json!({"id": prompt, "prompt": prompt}));
    fs::write(folder.join("prompts.jsonl"), prompts.map(|prompt| prompt.to_string()).join("\n")).unwrap();
}

#[test]
fn objectives_of_ones_own_become_a_page() {
    // The figures for two blades and for five. The simplex is drawn for exactly three blades.
    for (names, points, figures) in [
        (&["calm", "terse"][..], 3, &["frontier-planes", "frontier-line", "steering-crossed"][..]),
        (&["calm", "terse", "kind", "plain", "deep"], 15, &["frontier-planes", "steering-crossed"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_own(folder, names);
        let server = judge();
        let run = |args: &[&str]| {
            program().current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache")).args(args).output().unwrap()
        };
        stdout(&run(&["sweep", "plan.toml", "--quiet"]));
        let own = ["--objectives", "objectives.toml"];
        let ask = ["judge", "sweep.jsonl", "-o", "judged.jsonl", "--endpoint", &server.url, "--quiet"];
        let summary = stdout(&run(&[&ask[..], &own].concat()));
        assert!(names.iter().all(|name| summary.contains(name)), "{summary}");
        let forgotten = run(&["judge", "table", "judged.jsonl", "-o", "results"]);
        assert!(stderr(&forgotten).contains("--objectives"), "{}", stderr(&forgotten));
        stdout(&run(&[&["judge", "table", "judged.jsonl", "-o", "results"][..], &own].concat()));
        stdout(&run(&["report", "results", "--records", "sweep.jsonl", "--resamples", "50", "--html", "report.html"]));
        stdout(&run(&["report", "results", "--records", "sweep.jsonl", "--resamples", "50", "--out", "tables"]));

        let html = fs::read_to_string(folder.join("report.html")).unwrap();
        let document = Document::parse(&html).unwrap_or_else(|fault| panic!("{fault}"));
        document.check_ids();
        for figure in figures {
            assert!(html.contains(&format!("id=\"figure-{figure}\"")), "{figure}");
        }
        assert!(!html.contains("-ternary-title"), "the simplex of {} blades", names.len());
        let axes = document.csv("axes");
        let mut lines = axes.lines();
        let heading = format!("method,weights of {},n,{},F1,\"{} 95%, prompts low\"", names.join("/"), names.join(","), names[0]);
        assert!(lines.next().unwrap().starts_with(&heading), "{axes}");
        assert_eq!(lines.count(), 2 * points);
        // Each objective is compared with the weight of its own blade.
        let steering = document.csv("steering");
        let rows = steering.lines().filter(|line| line.starts_with("swiss-knife,as labelled,"));
        let steered: Vec<&str> = rows.map(|line| line.split(',').nth(2).unwrap()).collect();
        assert!(steered.len() > 1 && steered.iter().all(|axis| names.contains(axis) || *axis == "pooled"), "{steering}");
        // If less is better, an objective's mean is one minus the mean of its rubric.
        let judged = read_lines(&folder.join("judged.jsonl"));
        let mean = |scheme: &str, rubric: &str| {
            let own = judged.iter().filter(|line| line["scheme"] == scheme && line["rubric"] == rubric);
            let scores: Vec<f64> = own.map(|line| line["score"].as_f64().unwrap()).collect();
            scores.iter().sum::<f64>() / scores.len() as f64
        };
        let methods = document.csv("methods");
        let row = methods.lines().find(|line| line.starts_with("swiss-knife,")).unwrap();
        let objective: Vec<f64> = row.split(',').skip(2).take(2).map(|score| score.parse().unwrap()).collect();
        let expected = [mean("swiss-knife", "calm"), 1.0 - mean("swiss-knife", "terse")];
        assert!(objective.iter().zip(expected).all(|(a, b)| (a - b).abs() < ROUNDING), "{objective:?} {expected:?}");
    }
}

/// Compares the tables of choice and throughput with counts from the traces.
fn what_the_traces_say(folder: &Path) {
    let steps: Vec<Value> = read_lines(&folder.join("frontier.traces.jsonl"));
    let numbers = |value: &Value| value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    let of = |scheme: &str| steps.iter().filter(|step| step["id"].as_str().unwrap().starts_with(scheme)).collect::<Vec<_>>();
    let choice = rows(&folder.join("tables/choice.csv"));
    for scheme in ["swiss-knife", "greedy"] {
        let own = of(&format!("{scheme}/"));
        let row = choice.iter().find(|row| row[0] == scheme).unwrap();
        assert_eq!(row[1], own.len().to_string());
        let entropy =
            |step: &&Value| numbers(&step["probabilities"]).iter().map(|&p| if p > 0.0 { -p * p.ln() } else { 0.0 }).sum::<f64>();
        let mean = own.iter().map(entropy).sum::<f64>() / own.len() as f64;
        assert!((row[5].parse::<f64>().unwrap() - mean).abs() < 1e-9, "{row:?} against {mean}");
        let best = own.iter().filter(|step| {
            let mu = numbers(&step["mu"]);
            mu[step["chosen"].as_u64().unwrap() as usize] == mu.iter().copied().fold(f64::MIN, f64::max)
        });
        assert!((row[3].parse::<f64>().unwrap() - best.count() as f64 / own.len() as f64).abs() < 1e-9, "{row:?}");
    }
    let greedy = choice.iter().find(|row| row[0] == "greedy").unwrap();
    assert_eq!(&*greedy[2], "3");
    assert!(greedy[5].parse::<f64>().unwrap().abs() < 1e-9, "an argmax is certain");
    let throughput = rows(&folder.join("tables/throughput.csv"));
    assert_eq!(throughput.len(), 3);
    let tokens: usize = throughput.iter().map(|row| row[2].parse::<usize>().unwrap()).sum();
    let records: Vec<Value> = read_lines(&folder.join("frontier.jsonl"));
    assert_eq!(tokens as u64, records.iter().map(|record| record["tokens"].as_u64().unwrap()).sum::<u64>());
}

#[test]
fn records_that_do_not_fit_are_refused_or_said_to_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_plan(folder);
    let server = judge();
    let run = in_folder(folder);
    stdout(&run(&["sweep", "plan.toml", "--quiet"]));
    stdout(&run(&["judge", "frontier.jsonl", "-o", "judged.jsonl", "--endpoint", &server.url, "--quiet"]));
    stdout(&run(&["judge", "table", "judged.jsonl", "-o", "results"]));
    let report = ["report", "results", "--reference", "swiss-knife", "--resamples", "50", "--html", "report.html"];
    let refused = |records: &str, parts: &[&str]| {
        assert_refused(&run(&[&report[..], &["--records", records]].concat()), parts);
        assert!(!folder.join("report.html").exists());
    };
    refused("nowhere.jsonl", &["nowhere.jsonl"]);
    refused("judged.jsonl", &["judged.jsonl:1", "not a record of a sweep"]);
    let traces = folder.join("frontier.traces.jsonl");
    let whole = fs::read(&traces).unwrap();
    let cut = whole[..whole.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    fs::write(&traces, &whole[..cut]).unwrap();
    refused("frontier.jsonl", &["frontier.traces.jsonl", &cut.to_string(), &whole.len().to_string()]);
    fs::write(&traces, [b"{}\n", &whole[3..]].concat()).unwrap();
    refused("frontier.jsonl", &["frontier.traces.jsonl:1: ", "missing field"]);
    fs::remove_file(&traces).unwrap();

    // Without traces or without records, the page names what is missing.
    let missing = |extra: &[&str]| {
        stdout(&run(&[&report[..], extra].concat()));
        let html = fs::read_to_string(folder.join("report.html")).unwrap();
        let document = Document::parse(&html).unwrap();
        document.elements("p").filter(|p| p.class() == "missing").map(|p| p.text.to_lowercase()).collect::<Vec<_>>().join("\n")
    };
    let untraced = missing(&["--records", "frontier.jsonl"]);
    assert!(
        untraced.contains("no traces beside them")
            && untraced.contains("neither champion entropy")
            && untraced.contains("no spreads")
    );
    assert!(!untraced.contains("no times"));
    let bare = missing(&[]);
    for part in ["no records of a sweep", "no times", "scores without responses"] {
        assert!(bare.contains(part), "{bare}");
    }
}

fn read_lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The rows of a CSV file, without its header.
fn rows(path: &Path) -> Vec<Vec<String>> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect()
}

#[test]
fn the_chain_of_the_book_runs_on_the_plan_of_the_book() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let page = include_str!("../../../docs/src/sweeps.md");
    let plan = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    // The test replaces the prompts, lengths and models with small ones.
    let scaled = [
        ("seeds = [1]", "seeds = [1, 2]"),
        ("sources = [\"paper-120\"]\ndata = \"data\"", "sources = [\"prompts.jsonl\"]"),
        ("max_new_tokens = 256", "max_new_tokens = 4"),
    ];
    let mut plan = scaled.iter().fold(plan.to_owned(), |plan, (from, to)| {
        assert!(plan.contains(from), "{plan}");
        plan.replace(from, to)
    });
    plan += &format!("\n{}", model_section());
    fs::write(folder.join("frontier.toml"), plan).unwrap();
    fs::write(folder.join("prompts.jsonl"), "{\"id\": \"sky\", \"prompt\": \"Why is the sky blue?\"}\n").unwrap();
    let server = judge();
    let run = in_folder(folder);
    stdout(&run(&["sweep", "frontier.toml", "--quiet"]));
    stdout(&run(&["judge", "frontier.jsonl", "-o", "judged.jsonl", "--endpoint", &server.url, "--quiet"]));
    let several = run(&["judge", "table", "judged.jsonl", "-o", "results"]);
    assert!(stderr(&several).contains("--seed"), "{}", stderr(&several));
    stdout(&run(&["judge", "table", "judged.jsonl", "-o", "results", "--seed", "2"]));
    // Four schemes at the paper's seven weight vectors.
    assert_eq!(fs::read_to_string(folder.join("results/judged_frontier.csv")).unwrap().lines().count(), 1 + 4 * 7);
    let report = ["report", "results", "--reference", "swiss-knife", "--records", "frontier.jsonl", "--html", "report.html"];
    stdout(&run(&[&report[..], &["--resamples", "50"]].concat()));
}
