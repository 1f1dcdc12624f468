//! `swiss-knife chat` on a tiny random model, with its input from a pipe.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::common::{model_args, models, program, run_with_input, stderr, stdout};
use serde_json::Value;

const BRIEF: [&str; 4] = ["--max-new-tokens", "20", "--span-tokens", "10"];

#[test]
fn each_line_is_a_turn_and_the_dialogue_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("dialogue.json");
    let trace = directory.path().join("trace.jsonl");
    let input = format!("Hello\n\nAnd then?\n/save {}\n", file.display());
    let output = run_with_input("chat", &[&BRIEF[..], &["--trace", trace.to_str().unwrap()]].concat(), &input);
    let text = stdout(&output);
    assert_eq!(stderr(&output).matches("tokens/s").count(), 2, "a summary per turn");

    let saved: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let messages = saved["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!((messages[0]["content"].as_str(), messages[2]["content"].as_str()), (Some("Hello"), Some("And then?")));
    for answer in [&messages[1], &messages[3]] {
        assert!(text.contains(answer["content"].as_str().unwrap()), "{text:?}");
    }
    assert_eq!(saved["seed"].as_u64(), Some(42));
    let turns: Vec<u64> = fs::read_to_string(&trace)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["turn"].as_u64().unwrap())
        .collect();
    assert!(turns.is_sorted() && turns.contains(&0) && turns.contains(&1), "{turns:?}");
}

#[test]
fn an_answer_depends_on_what_was_said_before() {
    let second = |first: &str| {
        let output = run_with_input("chat", &[&BRIEF[..], &["--quiet"]].concat(), &format!("{first}\n/seed 5\nWhy?\n"));
        stdout(&output)
    };
    let (a, b) = (second("One"), second("Two"));
    assert_eq!(a, second("One"), "the same dialogue gives the same bytes");
    assert_ne!(a, b);
}

#[test]
fn steering_is_edited_while_it_runs() {
    let honest = models().join("blades/honest").display().to_string();
    let input = format!(
        "/weights\n/weights helpful=3,honest=1\nHi\n/unseat harmless\n/seat frank={honest}\n/swap honest candid={honest}\n/blades\nHi\n"
    );
    let output = run_with_input("chat", &BRIEF, &input);
    let error = stderr(&output);
    stdout(&output);
    assert!(error.contains("helpful=0.333,honest=0.333,harmless=0.333"), "{error}");
    assert!(error.contains("helpful=0.750,honest=0.250,harmless=0.000"), "{error}");
    assert!(error.contains("helpful=0.750,honest=0.250\n"), "{error}");
    assert!(error.contains("helpful=0.500,honest=0.167,frank=0.333"), "{error}");
    assert!(error.contains("helpful=0.500,candid=0.167,frank=0.333"), "{error}");
    assert!(error.lines().any(|line| line.split_whitespace().eq(["frank", "0.333", "implicit-reward"])), "{error}");
    assert!(!error.contains("error:"), "{error}");
    assert_eq!(error.matches("tokens/s").count(), 2, "{error}");
}

#[test]
fn a_blade_that_a_gate_is_on_keeps_its_seat() {
    let gated = ["--set", "selector.gates={harmless={threshold=-99}}"];
    let output = run_with_input("chat", &[&BRIEF[..], &gated[..]].concat(), "/unseat harmless\nHi\n/unseat honest\nHi\n");
    let error = stderr(&output);
    assert!(error.contains("error: 1 line failed"), "{error}");
    assert!(error.contains("error: a gate is on blade \"harmless\", so it cannot be unseated; give it weight 0"), "{error}");
    assert_eq!(error.matches("tokens/s").count(), 2, "{error}");
}

#[test]
fn errors_are_printed_and_the_dialogue_continues() {
    let input = "/wieghts x\n/weights funny=1\n/weights helpful=-1\n/unseat funny\n/swap helpful honest=./nowhere\n\
                 /seat new=./nowhere\n/save /no/such/dir/x\nHello\n/quit\nnever said\n";
    let output = run_with_input("chat", &BRIEF, input);
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "for a script that has to know");
    assert!(!String::from_utf8_lossy(&output.stdout).trim().is_empty());
    for part in [
        "unknown command \"/wieghts\"; did you mean \"weights\"?",
        "no blade is called \"funny\"",
        "\"helpful\" is -1",
        "\"honest\" is seated already",
        "./nowhere",
        "cannot write /no/such/dir/x",
        "7 lines failed",
    ] {
        assert!(error.contains(part), "{error} lacks {part}");
    }
    assert_eq!(error.lines().filter(|line| line.starts_with("error: ")).count(), 8, "{error}");
    assert_eq!(error.matches("tokens/s").count(), 1, "one turn before /quit");
}

#[test]
fn a_line_that_is_not_utf_8_is_passed_over() {
    let mut child =
        program().arg("chat").args(model_args()).args(BRIEF).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\xff\xfe\nHello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("standard input: the line is not UTF-8") && error.contains("1 line failed"), "{error}");
    assert_eq!(error.matches("tokens/s").count(), 1, "{error}");
}

#[test]
fn explanations_can_be_switched() {
    let output = run_with_input("chat", &BRIEF, "One\n/explain on\nTwo\n/explain off\nThree\n");
    stdout(&output);
    let error = stderr(&output);
    let turns: Vec<&str> = error.split("tokens/s").collect();
    assert!(!turns[0].contains('→') && turns[1].contains('→') && !turns[2].contains('→'), "{error}");
}

#[test]
fn what_was_changed_is_said() {
    let output = run_with_input("chat", &BRIEF, "/seed 7\n/explain on\n/explain full\n/explain off\n/new\n");
    assert!(stdout(&output).is_empty());
    let said = "seed 7\nexplain on\nexplain full\nexplain off\nstarted a new dialogue\n";
    assert!(stderr(&output).ends_with(said), "{}", stderr(&output));
}

#[test]
fn help_lists_the_commands() {
    let output = run_with_input("chat", &[], "/help\n");
    assert!(stdout(&output).is_empty());
    assert!(stderr(&output).contains("/swap OLD NEW=DIR"));
}

/// A new dialogue would have the same system message.
#[test]
fn a_first_question_that_is_too_long_is_to_be_shortened() {
    let args = [&BRIEF[..], &["--system", "Be brief."]].concat();
    let error = stderr(&run_with_input("chat", &args, &format!("{}\n", "x".repeat(600))));
    assert!(error.contains("shorten the prompt") && !error.contains("/new"), "{error}");
}

#[test]
fn a_dialogue_that_is_full_says_how_to_start_another() {
    let long = "x".repeat(400);
    let output = run_with_input("chat", &BRIEF, &format!("{long}\n{long}\n/new\nHello\n"));
    let error = stderr(&output);
    assert!(error.contains("the dialogue has") && error.contains("/new starts another"), "{error}");
    // The first and the last line are answered. The last is answered as in a new dialogue.
    assert_eq!(error.matches("tokens/s").count(), 2, "{error}");
    let answer = |input: &str| {
        let text = stdout(&run_with_input("chat", &[&BRIEF[..], &["--quiet"]].concat(), input));
        text.lines().last().map(str::to_owned)
    };
    assert_eq!(answer("One\n/new\n/seed 5\nTwo\n"), answer("/seed 5\nTwo\n"));
}

fn quietly(input: &str) -> Vec<String> {
    quietly_with(&["--max-new-tokens", "8", "--span-tokens", "4"], input)
}

fn quietly_with(args: &[&str], input: &str) -> Vec<String> {
    let text = stdout(&run_with_input("chat", &[args, &["--quiet"]].concat(), input));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_blade_that_is_seated_or_swapped_is_of_the_kind_of_the_scheme() {
    let mixed = |input: &str| quietly_with(&["--scheme", "mod", "--max-new-tokens", "8"], input);
    let harmless = models().join("blades/harmless").display().to_string();
    let expected = mixed("Hi\nAnd?\n");
    assert_eq!(mixed(&format!("Hi\n/swap harmless harmless={harmless}\nAnd?\n")), expected);
    assert_eq!(mixed(&format!("Hi\n/unseat harmless\n/seat harmless={harmless}\nAnd?\n")), expected);
    let output = run_with_input("chat", &["--scheme", "mod"], "/seat nice=instruction:Be nice.\n");
    assert!(stderr(&output).contains("the blades of this scheme are of kind \"likelihood\""), "{}", stderr(&output));
}

#[test]
fn a_swapped_blade_keeps_what_was_set() {
    let swap = format!("/swap helpful candid={}", models().join("blades/honest").display());
    let guided = |input: &str| quietly_with(&["--scheme", "args", "--max-new-tokens", "8"], &format!("{input}\nHi\n"));
    let kept = guided(&format!("/set blades.helpful.guided=40\n{swap}"));
    assert_eq!(kept, guided(&format!("{swap}\n/set blades.candid.guided=40")));
    assert_ne!(kept, guided(&swap));
}

#[test]
fn a_refused_seat_or_swap_changes_nothing() {
    let contrast = |input: &str| {
        let args = ["--scheme", "prompt-contrast", "--max-new-tokens", "8", "--quiet"];
        run_with_input("chat", &args, &format!("{input}\nHi\n"))
    };
    let expected = contrast("").stdout;
    for (line, says) in [
        ("/seat x=instruction:", "has no text; give x=instruction:TEXT"),
        ("/swap calm calm=instruction: ", "has no text"),
        ("/seat calm/against=instruction:hi", "would both read the lane"),
        ("/swap brief calm/against=instruction:hi", "would both read the lane"),
        ("/swap calm calm=./nowhere", "./nowhere"),
        ("/swap calm brief=instruction:hi", "\"brief\" is seated already"),
        ("/swap clam x=instruction:hi", "no blade is called \"clam\""),
    ] {
        let output = contrast(line);
        let error = stderr(&output);
        assert!(error.contains(says) && error.contains("1 line failed"), "{line}: {error}");
        assert_eq!(output.stdout, expected, "{line}");
    }
}

#[test]
fn without_a_frame_a_line_is_text_as_it_stands() {
    let output = run_with_input("chat", &[&BRIEF[..], &["--framing", "none"]].concat(), " One \r\n  \n /save /dev/stderr\n");
    stdout(&output);
    assert!(stderr(&output).contains("\"content\": \" One \""), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_chat_that_reads_from_a_pipe() {
    use std::os::unix::process::ExitStatusExt;

    let mut child = program();
    child.arg("chat").args(model_args()).args(["--span-tokens", "1", "--max-new-tokens", "400"]);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    child.stdin.take().unwrap().write_all("Hello\n/new\n".repeat(20).as_bytes()).unwrap();
    let mut first = [0];
    let stdout = child.stdout.as_mut().unwrap();
    std::io::Read::read_exact(stdout, &mut first).unwrap();
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).matches("tokens/s").count() < 20, "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_chat_that_waits_for_a_line() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::time::{Duration, Instant};

    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace.jsonl");
    let mut child = program();
    child.arg("chat").args(model_args()).args(BRIEF).arg("--trace").arg(&trace);
    child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"Hello\n").unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("tokens/s")));
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().signal(), Some(2));
    assert!(fs::read_to_string(trace).unwrap().lines().count() > 0);
    drop((stdin, lines));
}

/// The instruction of a blade that has left is not read by a later blade of the same name.
#[test]
fn an_instruction_leaves_with_its_blade() {
    let seat = format!("/seat calm={}\n/weights calm=1\nHi\n", models().join("blades/honest").display());
    assert_eq!(quietly(&format!("/seat calm=instruction:Answer rudely.\n/unseat calm\n{seat}")), quietly(&seat));
}

#[test]
fn an_answer_is_given_again_with_the_next_seed() {
    let output = run_with_input("chat", &BRIEF, "One\n/again\n/again\n");
    stdout(&output);
    let error = stderr(&output);
    for seed in ["seed 42", "seed 43", "seed 44"] {
        assert_eq!(error.matches(seed).count(), 1, "{error}");
    }
    // The answer is that of the next seed, and the dialogue holds one exchange.
    let again = quietly("One\n/again\nTwo\n");
    let asked = quietly("/seed 43\nOne\nTwo\n");
    assert_eq!(again[again.len() - asked.len()..], asked);
    let nothing = run_with_input("chat", &BRIEF, "/again\n/undo\n");
    assert_eq!(nothing.status.code(), Some(2));
    assert!(stderr(&nothing).contains("no answer yet") && stderr(&nothing).contains("nothing to take back"));
}

#[test]
fn an_exchange_is_undone() {
    let output = run_with_input("chat", &BRIEF, "One\n/undo\n/save /dev/stderr\n");
    stdout(&output);
    let error = stderr(&output);
    assert!(error.contains("took back \"One\" and its answer") && error.contains("\"messages\": []"), "{error}");
    let (with, without) = (quietly("One\nTwo\n/undo\n/seed 5\nThree\n"), quietly("One\n/seed 5\nThree\n"));
    assert_eq!(with.last(), without.last());
}

#[test]
fn a_dialogue_is_saved_once_and_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two words.json").display().to_string();
    let input = format!("One\nTwo\n/weights helpful=1\n/seed 7\n/save {file}\n/save {file}\n");
    let output = run_with_input("chat", &BRIEF, &input);
    let error = stderr(&output);
    assert!(error.contains(&format!("saved 2 exchanges to {file}")), "{error}");
    assert!(error.contains(&format!("{file} is there already; give another file")), "{error}");

    let copy = folder.path().join("copy.json").display().to_string();
    let output = run_with_input("chat", &BRIEF, &format!("Forgotten\n/load {file}\n/save {copy}\nThree\n/undo\n/undo\n/undo\n"));
    let error = stderr(&output);
    stdout(&output);
    assert!(error.contains(&format!("loaded 2 exchanges from {file}, seed 7")), "{error}");
    assert!(error.contains("helpful=1.000,honest=0.000,harmless=0.000"), "{error}");
    assert!(error.contains("took back \"Three\"") && error.contains("took back \"Two\"") && error.contains("took back \"One\""));
    assert_eq!(fs::read(&file).unwrap(), fs::read(&copy).unwrap());

    // The trace would replace it when the chat ends.
    for trace in [&file, &format!("{copy}.jsonl")] {
        let output =
            run_with_input("chat", &[&BRIEF[..], &["--trace", trace]].concat(), &format!("/save {trace}\n/load {trace}\n"));
        assert_eq!(stderr(&output).matches("is the file of --trace").count(), 2, "{}", stderr(&output));
    }

    let wrong = folder.path().join("wrong.json").display().to_string();
    for (text, says) in [("{", "wrong.json: it is no dialogue of /save"), (r#"{"messages": []}"#, "loaded 0 exchanges")] {
        fs::write(&wrong, text).unwrap();
        let output = run_with_input("chat", &BRIEF, &format!("One\n/load {wrong}\nTwo\n"));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(stderr(&output).matches("tokens/s").count(), 2, "the dialogue goes on");
    }
    let foreign =
        r#"{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}], "weights": [["kind", 1]]}"#;
    fs::write(&wrong, foreign).unwrap();
    let output = run_with_input("chat", &BRIEF, &format!("/load {wrong}\n"));
    stdout(&output);
    let error = stderr(&output);
    assert!(
        error.contains("loaded 1 exchange") && error.contains("weights are not taken: no blade is called \"kind\""),
        "{error}"
    );
}

#[test]
fn fields_of_the_scheme_are_set_while_it_runs() {
    let all = ["--max-new-tokens", "12", "--span-tokens", "4"];
    let output = run_with_input("chat", &[&all[..], &["--explain"]].concat(), "/set proposal.candidates=3\nOne\n");
    stdout(&output);
    let shown = stderr(&output);
    assert!(shown.contains("proposal.candidates=3"), "{shown}");
    let candidates = shown.lines().skip_while(|line| !line.ends_with("  candidate")).skip(1);
    assert_eq!(candidates.take_while(|line| line.starts_with("  ") || line.starts_with("→ ")).count(), 3, "{shown}");
    // The command-line options have the same effect.
    let set = |input: &str, more: &[&str]| stdout(&run_with_input("chat", &[&all[..], &["--quiet"], more].concat(), input));
    let line = "--set";
    assert_eq!(
        set("/weights helpful=1\n/set selector.temperature=0.01\nOne\n", &[]),
        set("One\n", &[line, "selector.temperature=0.01", "-w", "helpful=1"])
    );
    assert_eq!(set("/set aggregator.kind=thurstone\nOne\n", &[]), set("One\n", &[line, "aggregator.kind=thurstone"]));

    let output = run_with_input(
        "chat",
        &BRIEF,
        "/set selector.temperature=-1\n/set selector.warmth=1\n/set blades.kind.beta=1\n/set blades.*.beta=1\n\
         /set blades.honest.weight=1\n/set x\nOne\n",
    );
    let error = stderr(&output);
    for part in
        ["/set selector.temperature=-1", "warmth", "no such blade is seated", "name one", "/weights NAME=W", "SLOT.FIELD=VALUE"]
    {
        assert!(error.contains(part), "{error} lacks {part}");
    }
    assert!(error.contains("6 lines failed"), "{error}");
    assert_eq!(error.matches("tokens/s").count(), 1, "{error}");
}

/// A terminal of 40 columns, and the keys that a person presses.
#[cfg(unix)]
mod terminal {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Mutex};
    use std::time::{Duration, Instant};

    use nix::pty::{Winsize, openpty};

    use super::*;

    /// A time-out that only a hanging program exceeds.
    const PATIENCE: Duration = Duration::from_secs(300);

    /// The editor turns on bracketed paste before it waits for keys.
    const READY: &str = "\u{1b}[?2004h";

    /// Uses the model that ships, which writes words.
    const ARGS: [&str; 7] = ["chat", "--max-new-tokens", "60", "--quiet", "--device", "cpu", "--color=never"];

    struct Terminal {
        keys: fs::File,
        shown: Arc<Mutex<String>>,
        child: Child,
    }

    impl Terminal {
        fn new(state: &std::path::Path) -> Self {
            let mut program = program();
            program.args(ARGS);
            Self::with_output(program, state, None)
        }

        /// Opens a terminal on which `program` reads and writes, apart from its standard output if
        /// `output` is given.
        fn with_output(mut program: Command, state: &std::path::Path, output: Option<fs::File>) -> Self {
            let size = Winsize { ws_row: 24, ws_col: 40, ws_xpixel: 0, ws_ypixel: 0 };
            let pty = openpty(&size, None).unwrap();
            let slave = || pty.slave.try_clone().unwrap();
            program.env("XDG_STATE_HOME", state).env("TERM", "xterm").stdin(slave()).stderr(slave());
            let child = program.stdout(output.map_or_else(|| slave().into(), Stdio::from)).spawn().unwrap();
            drop(pty.slave);
            let shown = Arc::new(Mutex::new(String::new()));
            let (mut screen, log) = (fs::File::from(pty.master.try_clone().unwrap()), Arc::clone(&shown));
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = screen.read(&mut bytes) {
                    log.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
                }
            });
            Self { keys: fs::File::from(pty.master), shown, child }
        }

        /// Waits until `text` appears after the first `from` bytes, and returns the position after
        /// it.
        fn wait(&mut self, text: &str, from: usize) -> usize {
            let started = Instant::now();
            loop {
                let shown = self.shown.lock().unwrap().clone();
                if let Some(at) = shown.get(from..).and_then(|rest| rest.find(text)) {
                    return from + at + text.len();
                }
                assert!(started.elapsed() < PATIENCE, "{text:?} does not come: {shown:?}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }

        fn press(&mut self, keys: &str) {
            self.keys.write_all(keys.as_bytes()).unwrap();
        }
    }

    #[test]
    fn lines_that_are_pasted_together_all_count() {
        let state = tempfile::tempdir().unwrap();
        let mut terminal = Terminal::new(state.path());
        let at = terminal.wait(READY, 0);
        terminal.press("/weights\r/seed 5\r/blades\r");
        let at = terminal.wait("helpful=0.333", at);
        let at = terminal.wait("implicit-reward", at);
        terminal.wait(READY, at);
        terminal.press("\u{4}");
        assert!(terminal.child.wait().unwrap().success());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_answers_go_to_an_output_that_is_a_file() {
        const SHORT: [&str; 2] = ["--max-new-tokens", "4"];
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join("answers");
        // The terminal becomes the one that controls the program, as in a shell.
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(program().get_program()).args(ARGS).args(SHORT);
        let mut terminal = Terminal::with_output(session, state.path(), Some(fs::File::create(&file).unwrap()));
        let at = terminal.wait(READY, 0);
        terminal.press("Hello\r");
        let at = terminal.wait("Hello", at);
        terminal.wait(READY, at);
        terminal.press("\u{4}");
        assert!(terminal.child.wait().unwrap().success());
        let mut piped =
            program().args(ARGS).args(SHORT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(b"Hello\n").unwrap();
        let expected = piped.wait_with_output().unwrap().stdout;
        assert_eq!(fs::read(&file).unwrap(), expected);
    }

    #[test]
    fn ctrl_c_clears_the_line_and_then_says_how_to_leave() {
        let state = tempfile::tempdir().unwrap();
        let mut terminal = Terminal::new(state.path());
        let at = terminal.wait(READY, 0);
        terminal.press("half a quest");
        let at = terminal.wait("quest", at);
        terminal.press("\u{3}");
        let at = terminal.wait(READY, at);
        assert!(!terminal.shown.lock().unwrap().contains("leaves"));
        terminal.press("\u{3}");
        let at = terminal.wait("Ctrl-D or /quit leaves", at);
        let at = terminal.wait(READY, at);
        // Tab completes a command, and Enter runs it.
        terminal.press("/unsea\thar\t\r");
        let at = terminal.wait("helpful=0.500,honest=0.500", at);
        let at = terminal.wait(READY, at);
        terminal.press("Hello\r");
        let answer = terminal.wait("Hello", at);
        let at = terminal.wait(READY, answer);
        let shown = terminal.shown.lock().unwrap()[answer..at].to_owned();
        let lines: Vec<&str> = shown.split("\r\n").map(str::trim_end).filter(|line| !line.contains('\u{1b}')).collect();
        assert!(lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
        let mut piped = program().args(ARGS).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(b"/unseat harmless\nHello\n").unwrap();
        let expected = String::from_utf8(piped.wait_with_output().unwrap().stdout).unwrap();
        assert!(lines.join(" ").split_whitespace().eq(expected.split_whitespace()), "{lines:?} {expected:?}");
        terminal.press("\u{4}");
        assert!(terminal.child.wait().unwrap().success());
        let history = fs::read_to_string(state.path().join("swiss-knife/chat-history")).unwrap();
        assert!(history.contains("/unseat harmless\n") && history.contains("Hello\n") && !history.contains("half"), "{history}");

        // The history survives the session: the up arrow recalls the last line.
        let mut terminal = Terminal::new(state.path());
        let at = terminal.wait(READY, 0);
        terminal.press("\u{1b}[A");
        let at = terminal.wait("Hello", at);
        terminal.press("\u{3}");
        // Until the editor waits for keys, the terminal itself would handle Ctrl-D.
        terminal.wait(READY, at);
        terminal.press("\u{4}");
        assert!(terminal.child.wait().unwrap().success());
    }
}
