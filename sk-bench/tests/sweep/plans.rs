//! What a plan may contain, and the error for each mistake in one.

use std::fs;
use std::path::Path;

use sk_bench::sweep::{Digests, Grid, Plan};

use crate::common::{assert_refused, copy_of, model_section, models, program, stderr, stdout};
use crate::{Bench, CELLS, PLAN};

fn refused(plan: &str, parts: &[&str]) {
    assert_refused(&Bench::new(plan).run(&["--dry-run"]), parts);
}

#[test]
fn the_plans_of_the_book_are_read() {
    let page = include_str!("../../../docs/src/sweeps.md");
    let plans: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(plans.len() > 1, "the page shows {} plans", plans.len());
    for text in plans {
        let plan = Plan::parse(Path::new("plans/book.toml"), text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
        assert!(plan.output.starts_with("plans"), "paths are relative to the plan");
    }
}

#[cfg(unix)]
#[test]
fn a_plan_in_a_folder_whose_path_is_not_utf_8_is_refused() {
    let folder = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"plans\xff");
    let error = Plan::parse(&Path::new(folder).join("plan.toml"), PLAN).unwrap_err().to_string();
    assert!(error.contains("plans\u{fffd}/plan.toml: the folder's path is not UTF-8"), "{error}");
    // From its folder, the plan can be read.
    assert!(Plan::parse(Path::new("plan.toml"), PLAN).is_ok());
}

#[test]
fn a_dry_run_lists_the_cells_and_does_nothing() {
    let bench = Bench::new(PLAN);
    let output = bench.run(&["--dry-run"]);
    let text = stdout(&output);
    let ids: Vec<&str> = text.lines().map(|line| line.strip_prefix("open ").unwrap()).collect();
    assert_eq!(ids.len(), CELLS);
    assert_eq!(ids[0], "swiss-knife/harmless=0,helpful=1,honest=0/sky/1");
    assert!(ids.contains(&"cool/harmless=0,helpful=0.5,honest=0.5/more/2") && ids.contains(&"base/-/sky/2"), "{ids:?}");
    let counted = "3 schemes (1 without weights) × 3 weight vectors × 2 prompts × 2 seeds: 28 cells, 0 done";
    assert_eq!(stderr(&output).trim(), counted);
    assert_eq!(fs::read_dir(bench.folder.path()).unwrap().count(), 2, "nothing but the plan and its prompts");
}

/// The cells of [`PLAN`] with this `[weights]` section in place of its own.
fn weighted_grid(weights: &str) -> Grid {
    let (before, after) = (PLAN.split("[weights]").next().unwrap(), PLAN.split("[prompts]").nth(1).unwrap());
    let bench = Bench::new(&format!("{before}{weights}\n[prompts]{after}"));
    let plan = Plan::read(&bench.path("plan.toml")).unwrap();
    Grid::new(plan, &Digests::new(true)).unwrap()
}

/// The number of weight vectors of [`weighted_grid`].
fn weighted(weights: &str) -> usize {
    let grid = weighted_grid(weights);
    assert_eq!(grid.cells.len(), 2 * 2 * (2 * grid.plan.weights.len() + 1));
    grid.plan.weights.len()
}

#[test]
fn with_blades_a_list_that_grows_keeps_its_cells() {
    let ids = |list: &str| {
        let weights = format!("[weights]\nkind = \"listed\"\nblades = [\"helpful\", \"honest\"]\nlist = [{list}]\n");
        weighted_grid(&weights).cells.into_iter().map(|cell| cell.id).collect::<Vec<_>>()
    };
    let [shorter, longer] = ["{ helpful = 1 }", "{ helpful = 1 }, { helpful = 1, honest = 1 }"].map(ids);
    assert!(shorter.len() < longer.len() && shorter.iter().all(|id| longer.contains(id)), "{shorter:?} {longer:?}");
}

#[test]
fn weights_are_the_papers_points_a_lattice_or_a_list() {
    assert_eq!(weighted(""), 7);
    assert_eq!(weighted("[weights]\nkind = \"paper\"\n"), 7);
    assert_eq!(weighted("[weights]\nblades = [\"helpful\", \"harmless\"]\n"), 3);
    assert_eq!(weighted("[weights]\nkind = \"lattice\"\ndensity = 6\n"), 28);
    assert_eq!(weighted("[weights]\nkind = \"listed\"\nlist = [{ honest = 3, helpful = 1 }]\n"), 1);
}

#[test]
fn an_adapter_of_a_server_has_a_name() {
    let plan = format!("{PLAN}\n[model.blades]\nhelpful = \"lora:\"\n");
    let error = Plan::parse(Path::new("plan.toml"), &plan).unwrap_err().to_string();
    assert!(error.contains("names no adapter") && error.contains("helpful=lora:ADAPTER"), "{error}");
}

#[test]
fn models_behind_servers_are_identified_by_name_and_tokenizer() {
    let bench = Bench::new("");
    let tokenizer = copy_of("backbone", bench.folder.path()).join("tokenizer.json");
    let model = "[model]\nbackbone = \"vllm+http://127.0.0.1:1#base\"\ntokenizer = \"backbone\"\n";
    let plan =
        format!("[schemes.base]\n[weights]\nblades = [\"calm\", \"safe\"]\n[prompts]\nsources = [\"prompts.jsonl\"]\n{model}");
    fs::write(bench.path("plan.toml"), plan.replace("base]\n", "base]\nat_every_weight = true\n")).unwrap();
    let settings = || {
        let grid = Grid::new(Plan::read(&bench.path("plan.toml")).unwrap(), &Digests::new(true)).unwrap();
        grid.arms[0].settings.clone()
    };
    let kept = settings();
    assert_eq!(kept.sources["tokenizer"], "backbone");
    fs::write(&tokenizer, fs::read_to_string(&tokenizer).unwrap() + "\n").unwrap();
    let other = settings();
    assert_ne!(other.settings, kept.settings);
    let edit = |from: &str, to: &str| {
        let plan = fs::read_to_string(bench.path("plan.toml")).unwrap();
        fs::write(bench.path("plan.toml"), plan.replace(from, to)).unwrap();
    };
    edit("http://127.0.0.1:1", "http://127.0.0.1:2,http://127.0.0.1:3");
    assert_eq!(settings().settings, other.settings);
    edit("#base", "#instruct");
    assert_ne!(settings().settings, other.settings);
}

/// If a misspelt name were accepted, every scheme would run without weights.
#[test]
fn weights_of_a_blade_that_is_not_seated_are_refused() {
    let (before, after) = (PLAN.split("[weights]").next().unwrap(), PLAN.split("[prompts]").nth(1).unwrap());
    for weights in ["kind = \"listed\"\nlist = [{ helpfull = 1 }]", "blades = [\"helpfull\"]"] {
        refused(&format!("{before}[weights]\n{weights}\n[prompts]{after}"), &["\"helpfull\"", "did you mean \"helpful\"?"]);
    }
    let many = "kind = \"lattice\"\ndensity = 9223372036854775807";
    refused(&format!("{before}[weights]\n{many}\n[prompts]{after}"), &["at most 10000 points"]);
    // 9,001 vectors with a name of 6,000 bytes, and the 2,001,000 points of 2,000 blades.
    let long = format!("kind = \"lattice\"\ndensity = 9000\nblades = [\"{}\", \"safe\"]", "x".repeat(6000));
    let names: Vec<String> = (0..2000).map(|name| format!("\"b{name}\"")).collect();
    let many = format!("kind = \"paper\"\nblades = [{}]", names.join(", "));
    for (weights, count) in [(long, "9001 weight vectors"), (many, "2001001 weight vectors")] {
        refused(&format!("{before}[weights]\n{weights}\n[prompts]{after}"), &[count, "name fewer blades or points"]);
    }
}

#[test]
fn prompts_may_be_drawn_stratum_by_stratum() {
    let sampled = |more: &str| {
        let bench = Bench::new(&PLAN.replace("[generation]", &format!("{more}\n[generation]")));
        let prompts: Vec<String> =
            (0..20).map(|i| format!("{{\"prompt\":\"Q{i}\",\"labels\":{{\"axis\":\"a{}\"}}}}", i % 3)).collect();
        fs::write(bench.path("prompts.jsonl"), prompts.join("\n")).unwrap();
        let grid = Grid::new(Plan::read(&bench.path("plan.toml")).unwrap(), &Digests::new(true)).unwrap();
        grid.prompts.into_iter().map(|prompt| (prompt.id, prompt.labels["axis"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(sampled("").len(), 20);
    let six = sampled("count = 6\nby = \"axis\"\nseed = 7");
    for axis in ["a0", "a1", "a2"] {
        assert_eq!(six.iter().filter(|(_, label)| label == axis).count(), 2);
    }
    assert_eq!(six, sampled("count = 6\nby = \"axis\"\nseed = 7"));
    assert_ne!(six, sampled("count = 6\nby = \"axis\"\nseed = 8"));
}

#[test]
fn an_arm_that_weights_cannot_move_may_be_asked_at_all_of_them() {
    let bench = Bench::new(&PLAN.replace("[schemes.base]", "[schemes.base]\nat_every_weight = true"));
    let text = stdout(&bench.run(&["--dry-run"]));
    assert_eq!(text.lines().filter(|line| line.contains(" base/")).count(), 2 * 2 * 3);
}

/// Without any blade, the weight vectors only say how often each baseline repeats.
#[test]
fn baselines_alone_are_asked_at_every_weight() {
    let bench = Bench::new(PLAN);
    let schemes = PLAN.find("[schemes.swiss-knife]").unwrap()..PLAN.find("[weights]").unwrap();
    let mut plan = PLAN.to_owned();
    plan.replace_range(schemes, "[schemes.base]\nat_every_weight = true\n");
    fs::write(bench.path("plan.toml"), plan + model_section().split("[model.blades]").next().unwrap()).unwrap();
    assert_eq!(stdout(&bench.run(&["--dry-run"])).lines().filter(|line| line.contains(" base/")).count(), 2 * 2 * 3);
}

#[test]
fn errors_of_a_plan_name_the_line() {
    refused("[sweep\n", &["plan.toml:1:"]);
    refused("\n[shcemes.mod]\n", &["plan.toml:2:", "unknown section \"shcemes\"", "did you mean \"schemes\"?"]);
    refused("seeds = 3\n", &["plan.toml:1:", "seeds", "a section is a table"]);
    refused("[sweep]\nseed = [1]\n", &["plan.toml:2:", "unknown field of [sweep] \"seed\"", "\"seeds\""]);
    refused("[sweep]\noutput = 2026-11-27\n", &["plan.toml:2:", "sweep.output", "a string", "found a datetime"]);
    refused("[sweep]\nseeds = [1, -2]\n", &["plan.toml:2:", "sweep.seeds", "whole numbers", "found -2"]);
    refused("[sweep]\nseeds = [1, 1]\n", &["plan.toml:1:", "[sweep]", "contain duplicates"]);
    refused("[sweep]\noutput = \"\"\n", &["plan.toml:1:", "output is empty"]);
    refused("[sweep]\noutput = \"out.v1\"\n", &["plan.toml:1:", "output is \"out.v1\"", "must end in .jsonl"]);
    for name in ["out.traces.jsonl", "out.settings.jsonl"] {
        refused(&format!("[sweep]\noutput = \"{name}\"\n"), &["plan.toml:1:", name, "name another file"]);
    }
    refused("[sweep]\ntraces = 1\n", &["plan.toml:2:", "sweep.traces", "true or false"]);
    let scheme = |text: &str, parts: &[&str]| refused(&format!("[schemes.a]\n{text}\n"), parts);
    scheme("", &["plan.toml:1:", "[schemes.a]", "unknown scheme \"a\""]);
    scheme("scheme = \"modd\"", &["unknown scheme \"modd\"", "did you mean \"mod\"?"]);
    scheme("schem = \"s.toml\"", &["plan.toml:2:", "unknown field of [schemes.a] \"schem\"", "\"scheme\""]);
    scheme("scheme = \"none.toml\"", &["[schemes.a]", "none.toml"]);
    scheme("scheme = 3", &["plan.toml:2:", "schemes.a.scheme", "a string"]);
    scheme("scheme = \"mod\"\nset = [\"selector.heat=1\"]", &["[schemes.a]", "unknown field of [selector] \"heat\""]);
    scheme("scheme = \"mod\"\nset = [\"heat\"]", &["[schemes.a]", "SLOT.FIELD=VALUE"]);
    scheme("scheme = \"mod\"\npreset = \"hh\"", &["plan.toml:3:", "unknown preset", "\"hhh\""]);
    refused("[schemes.\"a/b\"]\nscheme = \"mod\"\n", &["plan.toml:1:", "\"/\""]);
    refused("[prompts]\nsources = [\"p\"]\n", &["plan.toml", "no [schemes] section"]);
    refused("[schemes.mod]\n", &["plan.toml", "no [prompts] section"]);
    let weights = |text: &str, parts: &[&str]| refused(&format!("[schemes.mod]\n[weights]\n{text}\n"), parts);
    weights("kind = \"latice\"", &["plan.toml:3:", "unknown kind of weights", "\"lattice\""]);
    weights("kind = \"lattice\"", &["plan.toml:2:", "density"]);
    weights("kind = \"lattice\"\ndensty = 4", &["plan.toml:4:", "unknown field of [weights] \"densty\"", "\"density\""]);
    weights("kind = \"lattice\"\ndensity = 100000", &["plan.toml:2:", "10000 points"]);
    let misspelt = "kind = \"listed\"\nlists = [{ helpful = 1 }]";
    weights(misspelt, &["plan.toml:4:", "unknown field of [weights] \"lists\"", "\"list\""]);
    weights("kind = \"listed\"", &["plan.toml:2:", "at least one weight vector"]);
    weights("list = [{ helpful = 1 }]", &["plan.toml:2:", "list needs kind = \"listed\""]);
    weights("kind = \"listed\"\ndensity = 6", &["plan.toml:2:", "density needs kind = \"lattice\""]);
    let strange = "kind = \"listed\"\nblades = [\"helpful\"]\nlist = [{ helpful = 1 }, { honest = 1 }]";
    weights(strange, &["plan.toml:2:", "entry 2 of list: \"honest\" is not among the blades"]);
    weights("kind = \"listed\"\nlist = [{ helpful = -1 }]", &["plan.toml:2:", "entry 1 of list", "\"helpful\" is -1"]);
    weights("kind = \"listed\"\nlist = [{ helpful = \"x\" }]", &["plan.toml:4:", "weights.list", "found a string"]);
    weights("kind = \"listed\"\nlist = [{ helpful = 1 }, { helpful = 2 }]", &["helpful=1 are there twice"]);
    // 1/(1 + 3) and 0.1/(0.1 + 0.3) differ in their last bit, and a table of judgements holds one.
    let close = "kind = \"listed\"\nlist = [{ helpful = 1, honest = 3 }, { helpful = 0.1, honest = 0.3 }]";
    weights(close, &["plan.toml:2:", "are there twice"]);
    let rest = "[schemes.swiss-knife]\n[prompts]\n";
    let misspelt = format!("{rest}source = [\"prompts.jsonl\"]\n");
    refused(&misspelt, &["plan.toml:3:", "unknown field of [prompts] \"source\"", "\"sources\""]);
    refused(&format!("{rest}sources = []\n"), &["plan.toml:2:", "at least one file"]);
    refused(&format!("{rest}sources = [\"missing.jsonl\"]\n"), &["missing.jsonl"]);
    for field in ["by = \"axis\"", "seed = 3", "allocation = \"balanced\""] {
        let name = field.split(' ').next().unwrap();
        refused(&format!("{rest}sources = [\"prompts.jsonl\"]\n{field}\n"), &["plan.toml:2:", "[prompts]", name, "a count"]);
    }
    let scarce = ["2 different prompts and 9 are wanted", "lower the count"];
    refused(&format!("{rest}sources = [\"prompts.jsonl\"]\ncount = 9\n"), &scarce);
    let twins = format!("{rest}sources = [\"a/p.jsonl\", \"b/p.jsonl\"]\n");
    let bench = Bench::new(&twins);
    for folder in ["a", "b"] {
        fs::create_dir(bench.path(folder)).unwrap();
        fs::write(bench.path(folder).join("p.jsonl"), "{\"prompt\":\"Hi\"}\n").unwrap();
    }
    assert_refused(&bench.run(&["--dry-run"]), &["two prompts are called \"p:0\"", "a/p.jsonl", "b/p.jsonl", "must differ"]);
    refused(&format!("{rest}sources = [\"prompts.jsonl\"]\nformat = \"json\"\n"), &["plan.toml:4:", "\"jsonl\""]);
    let rest = "[schemes.swiss-knife]\n[prompts]\nsources = [\"prompts.jsonl\"]\n";
    refused(&format!("{rest}[generation]\nmax_new_tokens = 0\n"), &["plan.toml:4:", "max_new_tokens is 0"]);
    refused(&format!("{rest}[generation]\nframing = \"hh2\"\n"), &["plan.toml:5:", "unknown framing", "\"hh\""]);
    let kind = format!("{rest}[weights]\nblades = [\"helpful\", \"kind\"]\n");
    refused(&kind, &["scheme \"swiss-knife\" has no blade \"kind\"", "helpful, honest, harmless"]);
    assert_refused(&crate::common::run(["sweep", "missing.toml"]), &["cannot read missing.toml"]);
}

#[test]
fn a_plan_has_heads_for_the_schemes_that_read_them() {
    let bench = Bench::new("");
    let pair = |i: usize| format!("{{\"prompt\": \"Question {i}?\", \"chosen\": \"Yes, {i}.\", \"rejected\": \"No {i}!\"}}\n");
    fs::write(bench.path("pairs.jsonl"), (0..40).map(pair).collect::<String>()).unwrap();
    let (data, backbone) = (bench.path("pairs.jsonl").display().to_string(), models().join("backbone").display().to_string());
    for (command, name) in [("reward-head", "fit"), ("discriminator", "calm")] {
        let output = bench.path(name).display().to_string();
        let args =
            ["train", command, "--data", &data, "--model", &backbone, "-o", &output, "--device", "cpu", "--held-out", "0.2"];
        stdout(&program().args(args).output().unwrap());
    }
    let write = |schemes: &str, weights: &str, heads: &str| {
        let rest = "[prompts]\nsources = [\"prompts.jsonl\"]\n[generation]\nmax_new_tokens = 4\n";
        fs::write(
            bench.path("plan.toml"),
            format!(
                "{schemes}[weights]\nkind = \"listed\"\nlist = [{weights}]\n{rest}{}\n[model.heads]\n{heads}",
                model_section()
            ),
        )
        .unwrap();
    };
    let plan = |heads: &str| write("[schemes.args-reward-head]\n[schemes.mod]\n", "{ helpful = 1 }, { honest = 1 }", heads);
    plan("helpful = \"fit\"\nhonest = \"fit\"\n");
    bench.finish();
    let of_heads: Vec<_> = bench.records().into_iter().filter(|record| record["scheme"] == "args-reward-head").collect();
    assert_eq!(of_heads.len(), 4, "two prompts at two weight vectors");
    assert!(of_heads.iter().all(|record| record["weights"].as_object().unwrap().len() == 2));
    // A copy of a head elsewhere is the same head. Changed weights are another setting, and the
    // sweep refuses to mix its records with the old ones.
    fs::create_dir(bench.path("other")).unwrap();
    for entry in fs::read_dir(bench.path("fit")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), bench.path("other").join(entry.file_name())).unwrap();
    }
    plan("helpful = \"fit\"\nhonest = \"other\"\n");
    bench.finish();
    let weights = bench.path("other").join("head.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&weights, bytes).unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["args-reward-head"]);
    // A scheme of reward heads ignores discriminators, so here it has no head.
    plan("helpful = \"calm\"\n");
    assert_refused(&bench.run(&["--dry-run"]), &["args-reward-head", "kind \"reward-head\"", "[model.heads]"]);
    // And a scheme of heads has no seat for an adapter.
    write("[schemes.fudge]\n", "{ helpful = 1, harmless = 1 }", "helpful = \"calm\"\n");
    assert_refused(&bench.run(&["--dry-run"]), &["\"fudge\"", "\"harmless\"", "it has helpful"]);
}
