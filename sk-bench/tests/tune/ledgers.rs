//! What the ledger keeps, and which ledgers are refused.

use std::fs;
use std::path::Path;

use sk_bench::tune::{Ledger, Search, TrialRecord, Worth, run};
use sk_bench::{Error, RecordFileError};
use sk_report::record::RecordError;

use crate::{OPTIMUM, distance, search};

const BUDGET: usize = 25;

fn searches(seed: u64) -> Vec<(Search, Vec<String>)> {
    ["calm", "kind"].map(|name| (search(name, seed, 5), vec![name.to_owned()])).to_vec()
}

fn open(path: &Path, seed: u64, settings: &str) -> Result<Ledger, Error> {
    Ledger::open(path, searches(seed), settings)
}

/// Runs the trials of `budget` that the ledger does not hold yet.
fn go_on(path: &Path, budget: usize) {
    let mut ledger = open(path, 3, "s").unwrap();
    let space = search("", 0, 1).space;
    // A score of the point, in place of generated responses.
    let score = |point: &[f64]| 1.0 / 3.0 - distance(&space, point, &OPTIMUM);
    let evaluate =
        |_, _, point: &[f64]| Ok(Some(Worth { scores: vec![Some(score(point))], responses: 1, unscored: 0, judgements: None }));
    run(&mut ledger, budget, evaluate, |_| ()).unwrap();
}

/// The records of a ledger, with their times set to zero.
fn trials(path: &Path) -> Vec<TrialRecord> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| TrialRecord { elapsed: 0.0, ..serde_json::from_str(line).unwrap() }).collect()
}

#[test]
fn a_search_that_was_cut_off_anywhere_goes_on_with_the_same_trials() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tune.jsonl");
    go_on(&path, BUDGET);
    let whole = fs::read(&path).unwrap();
    let expected = trials(&path);
    assert_eq!(expected.len(), 2 * BUDGET);
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    // An empty file; a cut inside the first line, before a line end, after one, and in the second
    // search.
    for cut in [0, 9, ends[7] - 1, ends[7], ends[BUDGET + 3] + 20] {
        fs::write(&path, &whole[..cut]).unwrap();
        go_on(&path, BUDGET);
        assert_eq!(trials(&path), expected, "cut at {cut}");
    }
    // A small budget first, a larger one later: the second search starts with the same trials as
    // before.
    fs::remove_file(&path).unwrap();
    go_on(&path, 4);
    go_on(&path, 2);
    go_on(&path, BUDGET);
    let mut sorted = trials(&path);
    sorted.sort_by_key(|record| (record.search.clone(), record.trial));
    assert_eq!(sorted, expected);
}

/// The ledger is compared bit for bit with what the search proposes, so JSON must preserve every
/// bit.
#[test]
fn numbers_come_back_from_json_as_they_were() {
    let numbers =
        (1..=20_000_u64).map(|i| f64::from_bits(0x3ff0_0000_0000_0000 + i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (9 << 52)));
    for number in numbers.chain([23.149463950321806]) {
        let read: f64 = serde_json::from_str(&serde_json::to_string(&number).unwrap()).unwrap();
        assert_eq!(read.to_bits(), number.to_bits(), "{number}");
    }
}

#[test]
fn trials_that_do_not_fit_the_plan_are_refused_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tune.jsonl");
    go_on(&path, BUDGET);
    let text = fs::read_to_string(&path).unwrap();
    let refused = |text: &str, seed, settings: &str, says: &str, line: u64| {
        fs::write(&path, text).unwrap();
        let error = open(&path, seed, settings).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert!(matches!(&error, Error::Records(RecordError::Line { line: found, .. }) if *found == line), "{error:?}");
    };
    refused(&text, 3, "other", "other settings", 1);
    refused(&text, 4, "s", "not what the search proposes", 1);
    refused(&text.replacen("\"calm\"", "\"warm\"", 1), 3, "s", "no search \"warm\"", 1);
}

#[test]
fn a_lost_line_an_edited_score_and_a_second_process_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tune.jsonl");
    go_on(&path, BUDGET);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let says = |text: String| {
        fs::write(&path, text).unwrap();
        open(&path, 3, "s").unwrap_err().to_string()
    };
    let lost: String = lines.iter().enumerate().filter(|(i, _)| *i != 2).map(|(_, line)| format!("{line}\n")).collect();
    assert!(says(lost).contains("expected trial 2 of \"calm\", found trial 3"));
    // An edited score changes the points that the search proposes after it.
    let mut record: TrialRecord = serde_json::from_str(lines[10]).unwrap();
    record.scores.insert("calm".to_owned(), 9.0);
    let edited = serde_json::to_string(&record).unwrap();
    let edited: String =
        lines.iter().enumerate().map(|(i, line)| format!("{}\n", if i == 10 { edited.as_str() } else { line })).collect();
    assert!(says(edited).contains("not what the search proposes"));
    assert!(says(text.replacen("\"trial\"", "\"trail\"", 1)).contains("it is not a trial"));
    fs::write(&path, &text).unwrap();
    let _held = open(&path, 3, "s").unwrap();
    assert!(matches!(open(&path, 3, "s"), Err(Error::File(RecordFileError::Locked { .. }))));
    // A locked ledger can still be read.
    let looked = Ledger::look(&path, searches(3), "s").unwrap();
    assert_eq!(looked.trials(0).len() + looked.trials(1).len(), lines.len());
}
