//! Bad input is reported on one line that names it, with exit status 2.

use std::fs;
use std::path::Path;

use crate::common::{
    CONTEXT, assert_refused, copy_of, edit_json, models, program, run, run_on_models, run_with_input, stderr, stdout,
};
use serde_json::{Value, json};

fn refused(args: &[&str], parts: &[&str]) {
    assert_refused(&run_on_models("generate", args), parts);
}

/// Runs `generate` on the tiny model with one option replaced.
fn refused_with(option: &str, value: &str, parts: &[&str]) {
    let backbone = models().join("backbone").display().to_string();
    let blade = format!("helpful={}", models().join("blades/helpful").display());
    let mut args = vec!["generate", "Hello"];
    if option != "--backbone" {
        args.extend(["--backbone", &backbone]);
    }
    if option != "--blade" {
        args.extend(["--blade", &blade]);
    }
    args.extend([option, value]);
    assert_refused(&run(args), parts);
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_device_of_another_build_says_how_to_build_it() {
    for (device, feature) in [("cuda:0", "cuda"), ("wgpu", "wgpu")] {
        let output = run_on_models("generate", &["Hi", "--device", device]);
        if !output.status.success() && stderr(&output).contains("built without") {
            assert_refused(&output, &[&format!("--features {feature}"), "cpu"]);
        }
    }
}

#[test]
fn completions_and_help_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(&run(["completions", shell]));
        assert!(["compare", "draft-temperature"].iter().all(|word| script.contains(word)), "{shell}");
    }
    let help = stdout(&run(["help", "compare"]));
    assert!(help.contains("side by side") && help.contains("--weights"), "{help}");
    assert_refused(&run(["completions", "basic"]), &["basic", "bash"]);
}

#[test]
fn weights() {
    refused(&["Hi", "-w", "helpful=-1"], &["\"helpful\" is -1", "not negative"]);
    refused(&["Hi", "-w", "helpful=NaN"], &["\"helpful\" is NaN", "finite"]);
    refused(&["Hi", "-w", "helpful=inf"], &["\"helpful\" is inf"]);
    refused(&["Hi", "-w", "helpfull=1"], &["\"helpfull\"", "helpful, honest, harmless"]);
    refused(&["Hi", "-w", "helpful=0"], &["sum to 0"]);
    refused(&["Hi", "-w", "helpful"], &["NAME=WEIGHT"]);
    refused(&["Hi", "-w", "helpful=x"], &["\"x\"", "not a number"]);
    refused(&["Hi", "-w", "helpful=1,helpful=2"], &["two weights"]);
    refused(&["Hi", "-w", "helpful=1", "-w", "helpful=2"], &["--weights", "\"helpful\"", "two weights"]);
}

#[test]
fn prompts() {
    refused(&[""], &["prompt is empty"]);
    refused(&["  \n "], &["prompt is empty"]);
    assert_refused(&run_with_input("generate", &[], "\n"), &["prompt is empty"]);
    refused(&["--file", "missing.txt"], &["cannot read missing.txt"]);
    let long = "word ".repeat(CONTEXT);
    refused(&[&long], &["prompt has", &CONTEXT.to_string(), "shorten"]);
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("latin1.txt");
    fs::write(&binary, b"caf\xe9").unwrap();
    refused(&["--file", &path(&binary)], &["latin1.txt", "UTF-8"]);
}

#[test]
fn options() {
    refused(&["Hi", "--device", "tpu"], &["unknown device", "tpu", "cpu"]);
    if !cfg!(feature = "cuda") {
        refused(&["Hi", "--device", "cuda"], &["without cuda", "cpu"]);
    }
    refused(&["Hi", "--n", "0"], &["--n", "at least 1"]);
    refused(&["Hi", "--temperature", "-1"], &["selector", "temperature is -1"]);
    refused(&["Hi", "--temperature", "nan"], &["temperature is NaN"]);
    refused(&["Hi", "--alpha", "1.5"], &["alpha is 1.5", "[0, 1]"]);
    refused(&["Hi", "--beta", "0"], &["beta is 0", "positive"]);
    refused(&["Hi", "--top-p", "0"], &["top_p is 0"]);
    refused(&["Hi", "--draft-temperature", "-0.5"], &["temperature is -0.5"]);
    refused(&["Hi", "--lambda", "-1"], &["lambda is -1"]);
    refused(&["Hi", "--max-new-tokens", "0"], &["at least 1"]);
    refused(&["Hi", "--wieghts", "x"], &["--wieghts", "--weights"]);
    refused(&["Hi", "--preset", "humour"], &["humour", "honesty"]);
    refused(
        &["Hi", "--trace", "missing/dir/x.jsonl"],
        &["cannot write missing/dir/x.jsonl", "folder missing/dir does not exist; create it"],
    );
    refused(&["Hi", "--blade", "helpful"], &["NAME=DIR"]);
    refused(&["Hi", "--blade", "helpful=elsewhere"], &["--blade: \"helpful\" is the name of another blade", "a name of its own"]);
    assert_refused(&run(["generat"]), &["generat", "generate"]);
    assert_refused(&run(["generate", "Hi", "--backbone", &path(&models().join("backbone"))]), &["no blade", "--blade"]);
    assert_refused(&run(["generate", "Hi", "--backbone", "/nowhere"]), &["`/nowhere` is neither a directory nor a hub id"]);
}

#[cfg(unix)]
#[test]
fn an_argument_that_is_not_utf_8_is_named() {
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"pairs\xff.jsonl");
    let train = ["train", "dpo", "--model", "model", "-o", "adapter", "--data"].map(std::ffi::OsStr::new);
    assert_refused(&run(train.into_iter().chain([name])), &["is not UTF-8: 'pairs\u{fffd}.jsonl'"]);
}

/// `-` is standard output where a file replaces what is printed. Other options refuse it.
#[test]
fn standard_output_as_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &str| program().current_dir(folder.path()).args(args.split_whitespace()).output().unwrap();
    fs::write(folder.path().join("prompts.jsonl"), "{\"id\": \"a\", \"prompt\": \"Hello?\"}\n").unwrap();
    for refused in [
        "generate Hi --trace -",
        "chat --trace -",
        "arms Hi --arm elo --trace -",
        "init -",
        "export -",
        "report results --out -",
        "judge responses.jsonl --offline -o -",
        "judge table judged.jsonl -o -",
        "blades model --prefer calm=pairs.jsonl -o -",
        "train tokenizer --data text.jsonl -o -",
        "train dpo --data pairs.jsonl --model model -o adapter --unseen -",
    ] {
        assert_refused(&run(refused), &["invalid value '-'", "`-` is not standard output here", "./-"]);
    }
    let exported = stdout(&run("prompts export prompts.jsonl"));
    assert!(exported.contains("Hello?"), "{exported}");
    assert_eq!(stdout(&run("prompts export prompts.jsonl -o -")), exported);
    assert_eq!(stdout(&run("prompts sample prompts.jsonl -n 1 -o -")), exported);
    assert!(stdout(&run("simulate --study influence --html -")).starts_with("<!DOCTYPE html>"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn models_that_are_not_there() {
    refused_with("--backbone", "./nowhere", &["./nowhere"]);
    refused_with("--drafter", "nobody/nothing", &["nobody/nothing"]);
    refused_with("--blade", "helpful=/no/such/adapter", &["\"helpful\"", "/no/such/adapter"]);
    let directory = tempfile::tempdir().unwrap();
    let empty = path(directory.path());
    refused_with("--backbone", &empty, &[&empty, "config.json"]);
    refused_with("--blade", &format!("helpful={empty}"), &["\"helpful\"", &empty, "adapter_config.json"]);
}

#[test]
fn damaged_models() {
    let directory = tempfile::tempdir().unwrap();
    let backbone = copy_of("backbone", directory.path());
    let weights = backbone.join("model.safetensors");
    let whole = fs::read(&weights).unwrap();

    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    refused_with("--backbone", &path(&backbone), &["model.safetensors", "not a complete"]);
    fs::remove_file(&weights).unwrap();
    refused_with("--backbone", &path(&backbone), &["model.safetensors"]);
    fs::write(&weights, &whole).unwrap();

    edit_json(&backbone.join("config.json"), |config| config["hidden_size"] = json!(32));
    refused_with("--backbone", &path(&backbone), &["model.safetensors", "shape"]);
    edit_json(&backbone.join("config.json"), |config| {
        config["hidden_size"] = json!(16);
        config["num_hidden_layers"] = json!(3);
    });
    refused_with("--backbone", &path(&backbone), &["model.layers.2"]);
    refused_with("--backbone", &path(&weights), &["is a file; name its directory", &path(&backbone)]);
    fs::write(backbone.join("config.json"), "{").unwrap();
    refused_with("--backbone", &path(&backbone), &["config.json"]);
}

#[test]
fn adapters_that_do_not_fit() {
    let directory = tempfile::tempdir().unwrap();
    let blade = copy_of("blades/helpful", directory.path());
    let value = format!("helpful={}", blade.display());
    let config = blade.join("adapter_config.json");
    edit_json(&config, |config| config["use_dora"] = json!(true));
    refused_with("--blade", &value, &["\"helpful\"", "use_dora"]);
    edit_json(&config, |config| {
        config["use_dora"] = json!(false);
        config["target_modules"] = json!(["q_proj"]);
    });
    refused_with("--blade", &value, &["\"helpful\"", "down_proj"]);
    edit_json(&config, |config| config["target_modules"] = json!(["nothing"]));
    refused_with("--blade", &value, &["\"helpful\"", "target_modules", "no module"]);
}

#[test]
fn a_drafter_of_another_family() {
    let directory = tempfile::tempdir().unwrap();
    let drafter = copy_of("drafter", directory.path());
    edit_json(&drafter.join("tokenizer.json"), |tokenizer| {
        let vocabulary = &mut tokenizer["model"]["vocab"];
        let (a, b) = (vocabulary["a"].clone(), vocabulary["b"].clone());
        vocabulary["a"] = b;
        vocabulary["b"] = a;
    });
    refused_with("--drafter", &path(&drafter), &["different tokenizers", "token 97"]);
}

#[test]
fn schemes() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scheme.toml");
    let refused = |text: &str, more: &[&str], parts: &[&str]| {
        fs::write(&file, text).unwrap();
        let scheme = path(&file);
        assert_refused(&run_on_models("generate", &[&["Hi", "--scheme", &scheme], more].concat()), parts);
    };
    refused("[aggregator\n", &[], &["scheme.toml:1:"]);
    refused("\n[agregator]\n", &[], &["scheme.toml:2:", "unknown slot \"agregator\"", "did you mean \"aggregator\"?"]);
    refused("[aggregator]\nkind = \"thurston\"\n", &[], &["scheme.toml:2:", "unknown aggregator", "did you mean \"thurstone\"?"]);
    refused("[selector]\n\n# T\ntemprature = 1\n", &[], &["scheme.toml:4:", "field of [selector]", "\"temperature\""]);
    refused("[selector]\ntemperature = \"hot\"\n", &[], &["scheme.toml:2:", "selector.temperature", "a number"]);
    refused("[selector]\ntemperature = -2\n", &[], &["scheme.toml:2:", "temperature is -2"]);
    refused("[proposal]\ncandidates = 0\n", &[], &["candidates is 0"]);
    refused("proposal = 3\n", &[], &["scheme.toml:1:", "proposal", "table"]);
    refused("[blades.kind]\nadapter = 3\n", &[], &["scheme.toml:2:", "a string"]);
    refused("[blades.rude]\n", &[], &["\"rude\" has no adapter", "--blade rude=DIR"]);
    refused("[blades.helpfull]\n", &[], &["\"helpfull\" has no adapter", "did you mean \"helpful\"?"]);
    refused("[blades.b0]\nkind = \"fluency\"\n[blades.b1]\nkind = \"fluency\"\n", &[], &["\"b0\"", "\"b1\"", "at most one"]);
    refused("[blades.helpful]\nweight = -0.5\n", &[], &["weight is -0.5"]);
    refused("[granularity]\nkind = \"delimiters\"\n", &[], &["delimiters"]);
    refused("[proposal]\ncandidates = -3\n", &[], &["proposal.candidates", "found -3"]);
    refused("[selector]\ntop_k = 0\n", &[], &["scheme.toml:2:", "top_k is 0"]);
    refused("[aggregator]\nlink = \"probit\"\n", &[], &["kind \"swiss-elo\" has no link", "kind = \"round-robin\""]);
    let correlated = "[normalizer]\ncorrelations = [[\"helpful\", \"honest\", 2]]\n";
    refused(correlated, &[], &["correlation of \"helpful\" and \"honest\" is 2"]);
    refused("", &["--set", "selector.temprature=1"], &["--set selector.temprature=1: unknown field of [selector]"]);
    refused("", &["--set", "blades.helpful.head=x"], &["field of [blades.helpful]"]);
    // The two fields are checked together, in either order; the last of two values for a field
    // counts.
    let k = ["--set", "aggregator.k_max=5"];
    refused("", &k, &["--set aggregator.k_max=5", "k_min is 10; it must be positive and not above k_max"]);
    let both = [&k[..], &["--set", "aggregator.k_min=7", "--set", "selector.top_k=0", "--set", "aggregator.k_min=2"]].concat();
    refused("", &both, &["--set selector.top_k=0: [selector]: top_k is 0"]);
    let gated = "[selector.gates.rude]\nthreshold = 0\n";
    refused(
        gated,
        &[],
        &["[selector.gates.rude]", "no blade \"rude\" is seated (seated: helpful, honest, harmless)", "on = \"score\""],
    );
    refused("[aggregator]\nkind = \"scores\"\n", &["--rounds", "3"], &["--rounds does not apply", "scores"]);
    refused("", &["--rounds", "65537"], &["rounds is 65537; it must be between 1 and 65536"]);
    refused("[selector]\nkind = \"argmax\"\n", &["--temperature", "2"], &["--temperature does not apply", "argmax"]);
    assert_refused(&run_on_models("generate", &["Hi", "--scheme", "none.toml"]), &["none.toml"]);
}

#[cfg(target_os = "linux")]
#[test]
fn more_candidates_than_memory_holds() {
    refused(&["Hi", "--n", "1000000000"], &["1000000000 candidates take", "GB of memory are free", "--n"]);
}

#[cfg(target_os = "linux")]
#[test]
fn an_adapter_larger_than_memory() {
    let directory = tempfile::tempdir().unwrap();
    let adapter = copy_of("blades/helpful", directory.path());
    // Its weights, which do not have this rank, are not read.
    edit_json(&adapter.join("adapter_config.json"), |config| config["r"] = json!(1 << 30));
    refused_with("--blade", &format!("helpful={}", path(&adapter)), &["helpful: the weights take", "of memory are free"]);
}

#[cfg(target_os = "linux")]
#[test]
fn out_of_memory() {
    // The margins of all pairs do not fit into the address space.
    let directory = tempfile::tempdir().unwrap();
    let batch = directory.path().join("batch.json");
    fs::write(&batch, json!({"mu": vec![0; 20_000], "sigma": vec![1; 20_000]}).to_string()).unwrap();
    let program = env!("CARGO_BIN_EXE_swiss-knife");
    let command = format!("ulimit -v 700000; RAYON_NUM_THREADS=2 exec {program} certify {}", batch.display());
    let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert_refused(&output, &["out of memory: ", " MiB more are needed"]);
}

#[cfg(target_os = "linux")]
#[test]
fn threads_that_cannot_be_started() {
    // The stacks of so many threads exceed the address space.
    let command =
        format!("ulimit -v 700000; RAYON_NUM_THREADS=1024 exec {} generate Hi --device cpu", env!("CARGO_BIN_EXE_swiss-knife"));
    let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert_refused(&output, &["cannot start threads: ", "raise the limits"]);
}

#[test]
fn outputs_that_are_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let prompt = file("prompt.txt", "Hello there");
    let prompts = file("prompts.jsonl", "{\"prompt\": \"One?\"}\n{\"prompt\": \"Two?\"}\n");
    let scheme = file("scheme.toml", "[selector]\ntemperature = 2\n");
    let pairs = file("pairs.jsonl", "{\"prompt\": \"One?\", \"chosen\": \"Yes.\", \"rejected\": \"No.\"}\n");
    let model = models().join("backbone").display().to_string();
    let kept = [&prompt, &prompts, &scheme, &pairs].map(|path| fs::read(path).unwrap());
    refused(&["--file", &prompt, "--trace", &prompt], &[&prompt, "would be overwritten"]);
    refused(&["Hi", "--scheme", &scheme, "--trace", &scheme], &[&scheme, "would be overwritten"]);
    assert_refused(&run(["arms", "--file", &prompt, "--arm", "elo", "--trace", &prompt]), &[&prompt, "would be overwritten"]);
    let own = format!("own={scheme}");
    assert_refused(&run(["arms", "Hi", "--arm", &own, "--trace", &scheme]), &[&scheme, "would be overwritten"]);
    assert_refused(&run(["chat", "--scheme", &scheme, "--trace", &scheme]), &[&scheme, "would be overwritten"]);
    for command in [&["export"][..], &["sample", "-n", "1"]] {
        let args = [&["prompts"], command, &[&prompts, "-o", &prompts]].concat();
        assert_refused(&run(args), &[&prompts, "would be overwritten"]);
    }
    let out = folder.path().join("adapter").display().to_string();
    let train = ["train", "dpo", "--data", &pairs, "--model", &model, "-o", &out, "--unseen", &pairs, "--steps", "1"];
    assert_refused(&run(train), &[&pairs, "would be overwritten"]);
    assert_eq!([&prompt, &prompts, &scheme, &pairs].map(|path| fs::read(path).unwrap()), kept);
    // `/save` overwrites no file.
    let output = run_with_input("chat", &["--quiet", "--max-new-tokens", "2"], &format!("Hi\n/save {prompts}\n"));
    assert_eq!(output.status.code(), Some(2), "a line that failed is no success");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is there already; give another file"));
    assert_eq!(fs::read(&prompts).unwrap(), kept[1]);
    let saved = folder.path().join("dialogue.json").display().to_string();
    let twice = run_with_input("chat", &["--quiet", "--max-new-tokens", "2"], &format!("Hi\n/save {saved}\nHo\n/save {saved}\n"));
    assert_eq!(twice.status.code(), Some(2));
    let first: Value = serde_json::from_str(&fs::read_to_string(&saved).unwrap()).unwrap();
    assert_eq!(first["messages"].as_array().unwrap().len(), 2);
    // An empty file may be overwritten.
    let empty = file("empty.json", "");
    assert!(run_with_input("chat", &["--quiet", "--max-new-tokens", "2"], &format!("Hi\n/save {empty}\n")).status.success());
    assert!(fs::read_to_string(&empty).unwrap().contains("messages"));
}

#[test]
fn options_without_an_effect() {
    assert_refused(
        &run(["generate", "Hi", "--scheme", "greedy", "--beta", "0.3"]),
        &["--beta", "no blade of the scheme has a β"],
    );
    assert_refused(&run(["generate", "Hi", "--scheme", "mod", "--beta", "0.3"]), &["--beta", "no blade of the scheme has a β"]);
    assert_refused(&run(["chat", "--scheme", "mod", "--beta", "0.3"]), &["--beta", "no blade of the scheme has a β"]);
    // Another arm may have a β, or a blade that is seated later.
    let arms = ["arms", "Hi", "--scheme", "greedy", "--arm", "args", "--beta", "0.3", "--max-new-tokens", "2", "--summary"];
    assert!(run(arms).status.success());
    let seated = ["--scheme", "base", "--blade", "calm=embedded:blades/harmless", "-w", "calm=1", "--beta", "0.3"];
    assert!(run([&["generate", "Hi", "--max-new-tokens", "2"], &seated[..]].concat()).status.success());
    refused(&["Hi", "--scheme", "args", "--span-tokens", "4"], &["--span-tokens does not apply"]);
    refused(&["Hi", "--tolerance", "0.2"], &["--tolerance needs --explain or --trace"]);
    let offline = ["judge", "responses.jsonl", "-o", "judged.jsonl", "--offline"];
    for idle in [["--api-key-env", "KEY"], ["--timeout", "5"], ["--attempts", "2"], ["--cache", "cache"]] {
        assert_refused(&run([&offline[..], &idle].concat()), &["--offline", "cannot be used with", idle[0]]);
    }
    let report = ["report", "results", "--out", "tables", "--format", "csv"];
    assert_refused(&run(report), &["--out", "--format", "cannot be used with"]);
    assert_refused(&run(["bench", "--generations", "20000"]), &["--generations", "at most 1024"]);
}

#[test]
fn negative_numbers_are_values() {
    refused(&["Hi", "--seed", "-1"], &["invalid value '-1' for '--seed"]);
    refused(&["Hi", "--max-new-tokens", "-1"], &["invalid value '-1' for '--max-new-tokens", "at least 1"]);
}

#[test]
fn more_threads_than_a_machine_has() {
    for threads in ["1025", "100000"] {
        let output = program().env("RAYON_NUM_THREADS", threads).args(["generate", "Hi"]).output().unwrap();
        assert_refused(&output, &["RAYON_NUM_THREADS", threads, "1024"]);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_context_larger_than_memory() {
    let folder = tempfile::tempdir().unwrap();
    let backbone = copy_of("backbone", folder.path());
    edit_json(&backbone.join("config.json"), |config| config["max_position_embeddings"] = json!(2_000_000_000));
    let blade = format!("helpful={}", models().join("blades/helpful").display());
    let models = ["--backbone", &path(&backbone), "--blade", &blade, "--max-new-tokens", "1500000000"];
    let output = program().args(["generate", "Hi"]).args(models).output().unwrap();
    // With two layers of one head of width 8, keys take 64 bytes per token and lane, and values, which
    // are padded to 32 numbers, 256. There are three contexts: of the drafter, of the backbone and of the
    // blade.
    assert_refused(&output, &["dialogue of 15000000", "1440.0 GB", "of memory are free", "--max-new-tokens"]);
}

/// Control sequences: clear the screen, set the window title, start a colour, reverse the direction
/// of the text.
const COMMANDS: &str = "\u{1b}[2J\u{1b}]0;mine\u{7}\u{9b}31m\u{202e}";

/// Asserts that the output has no control characters, whatever the quoted input holds, and no very
/// long line.
fn assert_plain(text: &str) {
    for line in text.lines() {
        assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
        assert!(line.len() < 5000, "{} bytes: {}…", line.len(), &line[..200]);
    }
}

#[test]
fn quoted_files_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    for value in [COMMANDS.to_owned(), "x".repeat(100_000)] {
        let backbone = copy_of("backbone", folder.path());
        edit_json(&backbone.join("config.json"), |config| config["model_type"] = json!(value));
        let output = run(["generate", "Hello", "--scheme", "greedy", "--backbone", &path(&backbone)]);
        assert_refused(&output, &["model_type"]);
        assert_plain(&stderr(&output));

        // The messages of `chat` about a file and about typed commands.
        let adapter = copy_of("blades/honest", folder.path());
        edit_json(&adapter.join("adapter_config.json"), |config| config["peft_type"] = json!(value));
        let input = format!("/seat new={}\n/seat {value}\n/wieghts {value}\n", path(&adapter));
        let output = run_with_input("chat", &["--quiet"], &input);
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stderr(&output).lines().count(), 4, "{}", stderr(&output));
        assert!(stderr(&output).contains("peft_type"), "{}", stderr(&output));
        assert_plain(&stderr(&output));
    }
}
