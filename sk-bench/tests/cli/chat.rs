//! `swiss-knife chat` from a pipe, on a tiny random model.

use std::fs;

use crate::common::{models, run_with_input, stderr, stdout};
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
    assert!(error.contains("frank            0.333"), "{error}");
    assert!(!error.contains("error:"), "{error}");
    assert_eq!(error.matches("tokens/s").count(), 2, "{error}");
}

#[test]
fn what_goes_wrong_is_said_and_the_dialogue_goes_on() {
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
        "7 of the lines had no effect",
    ] {
        assert!(error.contains(part), "{error} lacks {part}");
    }
    assert_eq!(error.lines().filter(|line| line.starts_with("error: ")).count(), 8, "{error}");
    assert_eq!(error.matches("tokens/s").count(), 1, "one turn before /quit");
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
fn help_lists_the_commands() {
    let output = run_with_input("chat", &[], "/help\n");
    assert!(stdout(&output).is_empty());
    assert!(stderr(&output).contains("/swap OLD NEW=DIR"));
}

#[test]
fn a_dialogue_that_is_full_says_how_to_start_another() {
    let long = "x".repeat(400);
    let output = run_with_input("chat", &BRIEF, &format!("{long}\n{long}\n/new\nHello\n"));
    let error = stderr(&output);
    assert!(error.contains("the dialogue has") && error.contains("/new starts another"), "{error}");
    // The first and the last line are answered, the last as if nothing had been said.
    assert_eq!(error.matches("tokens/s").count(), 2, "{error}");
    let answer = |input: &str| {
        let text = stdout(&run_with_input("chat", &[&BRIEF[..], &["--quiet"]].concat(), input));
        text.lines().last().map(str::to_owned)
    };
    assert_eq!(answer("One\n/new\n/seed 5\nTwo\n"), answer("/seed 5\nTwo\n"));
}
