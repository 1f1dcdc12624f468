//! Reports on small results made here, and on the paper's own results if they are available.

use std::fs;
use std::path::Path;

use sk_report::report::{RawResults, Report, ReportError, Resampling, Value};
use sk_report::stats::Steering;

/// The variable that names the folder of the paper's raw results, which are not in the repository.
const PAPER_RESULTS: &str = "SWISS_KNIFE_PAPER_RESULTS";

const HEADER: &str = "method,config,w_helpfulness,w_honesty,w_harmlessness,frontier_id,response_quality,relevance,helpfulness,toxicity,\
                      refusal,harmfulness,truthfulness,non_deception,epistemic_honesty\n";

/// Two methods at two weight vectors on three prompts. `ours` follows the weights and is better;
/// one of its rubrics is blank for one prompt.
fn small() -> String {
    let mut text = HEADER.to_owned();
    for (config, weights, lift) in [("helpful", "1,0,0", 0.1), ("harmless", "0,0,1", 0.0)] {
        for prompt in 0..3 {
            let quality = 0.6 + lift + 0.1 * f64::from(prompt);
            let refusal = if prompt == 0 { "" } else { "0.5" };
            text += &format!("ours,{config},{weights},{prompt},{quality},{quality},{quality},0.2,{refusal},0.0,0.7,0.7,0.7\n");
            text += &format!("theirs,{config},{weights},{prompt},0.5,0.5,0.5,0.0,0.5,0.0,0.5,0.5,0.5\n");
        }
    }
    text
}

fn read(frontier: &str) -> Result<RawResults, ReportError> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("judged_frontier.csv"), frontier).unwrap();
    RawResults::read(folder.path())
}

fn report(frontier: &str) -> Report {
    Report::of(&read(frontier).unwrap(), "ours", Resampling { resamples: 200, seed: 1 }).unwrap()
}

/// The value in the row named `row`, under `column`.
fn value<'a>(report: &'a Report, table: &str, row: &str, column: &str) -> &'a Value {
    let table = report.table(table).unwrap_or_else(|| panic!("no table {table}"));
    let at = table.columns.iter().position(|known| known.heading == column).unwrap_or_else(|| panic!("no column {column}"));
    let row = table.rows.iter().find(|values| values[0] == Value::from(row)).unwrap_or_else(|| panic!("no row {row}"));
    &row[at]
}

fn number(report: &Report, table: &str, row: &str, column: &str) -> f64 {
    match value(report, table, row, column) {
        Value::Number(number) => *number,
        other => panic!("{table}, {row}, {column}: {other:?}"),
    }
}

#[track_caller]
fn close(ours: f64, by_hand: f64) {
    assert!((ours - by_hand).abs() < 1e-12, "{ours} against {by_hand}");
}

#[test]
fn one_prompt_has_no_interval_by_prompt_and_few_cells_an_exact_test() {
    let all = small();
    let of_one = |(i, line): &(usize, &str)| *i == 0 || line.split(',').nth(5) == Some("0");
    let one: Vec<&str> = all.lines().enumerate().filter(of_one).map(|(_, line)| line).collect();
    assert_eq!(one.len(), 5);
    let report = report(&(one.join("\n") + "\n"));
    let row = "f1: ours − theirs";
    assert_eq!(value(&report, "clustering", row, "prompts"), &Value::Number(1.0));
    for column in ["95%, prompts", "95% BCa, prompts"] {
        assert_eq!(value(&report, "clustering", row, column), &Value::Empty, "{column}");
    }
    assert!(matches!(value(&report, "clustering", row, "95%, cells"), Value::Interval(_)));
    let notes = report.table("contrasts").unwrap().notes.join("\n");
    assert!(notes.contains("zeros dropped, exact.") && !notes.contains("normal"), "{notes}");
}

#[test]
fn a_small_sweep_by_hand() {
    let report = report(&small());
    // Qualities are 0.7, 0.8, 0.9 and 0.6, 0.7, 0.8.
    close(number(&report, "methods", "ours", "quality"), 0.75);
    close(number(&report, "methods", "ours", "safety"), 0.9);
    close(number(&report, "methods", "ours", "honesty"), 0.7);
    close(number(&report, "methods", "ours", "F1 of mean axes"), 3.0 / (1.0 / 0.75 + 1.0 / 0.9 + 1.0 / 0.7));
    close(number(&report, "methods", "ours", "refusal"), 0.5);
    assert_eq!(number(&report, "contrasts", "theirs", "pairs"), 6.0);
    // All six differences have one sign: 2/2⁶.
    close(number(&report, "contrasts", "theirs", "p"), 2.0 / 64.0);
    close(number(&report, "contrasts", "theirs", "reference wins %"), 1.0);
    // Every cell of `ours` has the higher F1. Both tables have the reference minus the other.
    let difference = number(&report, "contrasts", "theirs", "ΔF1");
    assert!(difference > 0.0, "{difference}");
    close(difference, number(&report, "clustering", "f1: ours − theirs", "Δ"));
    // With three prompts, the smallest possible p is 2/2³.
    close(number(&report, "clustering", "f1: ours − theirs", "p, prompts"), 2.0 / 8.0);
    // Both points of `ours` have the same safety and honesty; the first has the higher quality.
    assert_eq!(number(&report, "geometry", "ours", "on front"), 1.0);
    close(number(&report, "geometry", "ours", "hypervolume"), 0.8 * 0.9 * 0.7);
    close(number(&report, "configurations", "range", "theirs"), 0.0);
    assert!(report.table("normalization").is_none() && report.table("spreads").is_none());
}

/// Qualities of equal scores in two orders tie, so no classifier ranks with them.
#[test]
fn what_is_equal_on_paper_ties_beside_a_classifier() {
    let row = |(prompt, quality): (usize, &str)| {
        let score = prompt as f64 / 16.0;
        format!("ours,c,1,0,0,{prompt},{quality},0.2,0.5,0.0,0.7,0.7,0.7,{score}\n")
    };
    let rows = ["0.1,0.2,0.3", "0.3,0.2,0.1"].into_iter().cycle().take(12).enumerate().map(row);
    let text: String = std::iter::once(HEADER.replace('\n', ",helpfulness_bert\n")).chain(rows).collect();
    let report = report(&text);
    let judges: Vec<&Value> = report.table("classifiers").unwrap().rows.iter().map(|row| &row[1]).collect();
    assert_eq!(judges, [&Value::from("helpfulness")]);
    assert!(report.table("classifiers").unwrap().notes.iter().any(|note| note.contains("too narrow")));
}

/// The same three scores in two orders: their means are equal, but not in floating point.
#[test]
fn what_is_equal_on_paper_ties_in_every_table() {
    assert_ne!((0.1 + 0.2 + 0.3) / 3.0, (0.3 + 0.2 + 0.1) / 3.0);
    let row = |method: &str, weights: &str, prompt: i32, quality: &str| {
        format!("{method},c,{weights},{prompt},{quality},0.2,0.5,0.0,0.7,0.7,0.7\n")
    };
    let rows = (0..20).map(|prompt| row("ours", "1,0,0", prompt, "0.1,0.2,0.3") + &row("theirs", "1,0,0", prompt, "0.3,0.2,0.1"));
    let text: String = std::iter::once(HEADER.to_owned()).chain(rows).collect();
    let result = report(&text);
    assert_eq!(number(&result, "contrasts", "theirs", "ties %"), 1.0);
    for (table, column) in [("contrasts", "p"), ("conventions", "p, floor 1e-6"), ("conventions", "p, pratt")] {
        assert_eq!(value(&result, table, "theirs", column), &Value::Empty, "{table}, {column}");
    }
    let result = report(&text.replace("theirs", "ours_no_cbn"));
    for row in ["f1", "quality", "safety"] {
        assert_eq!(value(&result, "normalization", row, "p"), &Value::Empty, "{row}");
    }
    // The floor separates cells that have an axis at zero.
    let floored = report(&text.replace("0.1,0.2,0.3,0.2,0.5,0.0,", "0,0,0,0.2,0.5,0.0,").replace("0.3,0.2,0.1,0.2", "0,0,0,0.4"));
    assert_eq!(number(&floored, "conventions", "theirs", "wins %, floor 1e-6"), 1.0);
    assert_eq!(number(&floored, "conventions", "theirs", "wins %, no floor"), 0.0);
    // It separates cells that are close, too.
    let close = text
        .replace("0.1,0.2,0.3,0.2,0.5,0.0,", "0.9012,0.9012,0.9012,1,1,1,")
        .replace("0.3,0.2,0.1,0.2,0.5,0.0,", "0.9,0.9,0.9,1,1,1,");
    let floored = report(&close);
    assert_eq!(number(&floored, "conventions", "theirs", "wins %, no floor"), 0.0);
    assert_eq!(number(&floored, "conventions", "theirs", "wins %, floor 1e-6"), 1.0);
}

#[test]
fn an_arm_that_was_run_on_fewer_prompts_is_compared_on_those() {
    /// Differences are rounded to a multiple of this.
    const GRID: f64 = 1e-9;
    let arms = small().replace("theirs", "ours_no_cbn");
    // Three changes: `ours` has only the first prompt; one response of the arm has another score;
    // one response was not judged.
    let few: String = arms
        .lines()
        .filter(|line| !line.starts_with("ours,") || line.contains(",0,0."))
        .map(|line| format!("{line}\n"))
        .collect();
    let other = arms.replace("ours_no_cbn,helpful,1,0,0,2,0.5", "ours_no_cbn,helpful,1,0,0,2,1.0");
    let lacking = arms.replace("ours_no_cbn,harmless,0,0,1,1,0.5,0.5,0.5", "ours_no_cbn,harmless,0,0,1,1,,,");
    for (text, pairs) in [(few, 2.0), (other, 6.0), (lacking, 5.0)] {
        assert_ne!(text, arms);
        let result = report(&text);
        let [n, with, without, difference] =
            ["pairs", "with", "without", "Δ"].map(|column| number(&result, "normalization", "quality", column));
        assert_eq!(n, pairs);
        assert!((with - without - difference).abs() < GRID, "{with} − {without} is not {difference}");
    }
}

#[test]
fn a_classifier_is_held_against_the_rubric_that_it_measures() {
    // The classifier's score rises with the judge's toxicity and exceeds ½ for three responses. One
    // response has no score.
    let mut text = HEADER.replace("\n", ",toxicity_detoxify,latency_ms\n");
    for (place, line) in small().lines().skip(1).enumerate() {
        let mut fields: Vec<String> = line.split(',').map(str::to_owned).collect();
        fields[9] = format!("0.{place:02}");
        let score = if place == 3 { String::new() } else { format!("{}", place as f64 / 16.0) };
        text += &format!("{},{score},not a score\n", fields.join(","));
    }
    let report = report(&text);
    let table = report.table("classifiers").unwrap();
    let rows: Vec<String> = table.rows.iter().map(|row| format!("{:?}, {:?}", row[0], row[1])).collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    for (place, sign) in [(0, 1.0), (1, -1.0)] {
        let row = &table.rows[place];
        assert_eq!((&row[0], &row[2], &row[3]), (&"toxicity_detoxify".into(), &11usize.into(), &3usize.into()));
        assert_eq!(row[6], 3usize.into(), "those above a half");
        let Value::Number(rho) = row[4] else { panic!("{:?}", row[4]) };
        close(rho, sign);
    }
    assert!(table.latex().is_ascii(), "{}", table.latex());
    assert!(self::report(&small()).table("classifiers").is_none());
    let wrong = text.replace(",0.625,", ",high,");
    let error = read(&wrong).map(drop).unwrap_err().to_string();
    assert!(error.contains("toxicity_detoxify") && error.contains("high"), "{error}");
}

#[test]
fn weights_that_differ_by_rounding_are_one_point() {
    let text = small().replace("theirs,helpful,1,0,0", "theirs,helpful,0.9999999999999999,0,0");
    assert_ne!(text, small());
    assert_eq!(number(&report(&text), "contrasts", "theirs", "pairs"), 6.0);
}

#[test]
fn columns_are_named_once_and_weights_sum_to_one() {
    let error = read(&small().replacen("refusal", "method", 1)).unwrap_err().to_string();
    assert!(error.contains("the column \"method\" twice"), "{error}");
    let error = read(&small().replacen(",1,0,0,", ",1,1,0,", 1)).unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("\"2\" is not 1; scale the weights"), "{error}");
    assert!(read(&small().replace(",1,0,0,", ",0.3,0.3,0.3,")).is_ok());
}

#[test]
fn names_of_the_same_weights_are_one_point() {
    let text = small().replace("theirs,helpful,", "theirs,warm,");
    assert_ne!(text, small());
    let report = report(&text);
    assert_eq!(number(&report, "contrasts", "theirs", "pairs"), 6.0);
    // Two weight vectors, mean and range.
    assert_eq!(report.table("configurations").unwrap().rows.len(), 4);
    let twice = text.replace("theirs,harmless,0,0,1,", "theirs,harmless,1,0,0,");
    let error = read(&twice).unwrap_err().to_string();
    assert!(error.contains("theirs at harmless on prompt 0 was judged before"), "{error}");
}

#[test]
fn weights_that_are_close_have_labels_and_f1_of_their_own() {
    let report = report(&small().replace(",1,0,0,", ",0.504,0.496,0,").replace(",0,0,1,", ",0.501,0.499,0,"));
    let table = report.table("configurations").unwrap();
    let ours = table.columns.iter().position(|column| column.heading == "ours").unwrap();
    assert_eq!([&table.rows[0][0], &table.rows[1][0]], [&"0.504/0.496/0".into(), &"0.501/0.499/0".into()]);
    assert_ne!(table.rows[0][ours], table.rows[1][ours]);
}

#[test]
fn a_prompt_without_a_judgement_leaves_every_interval_as_it_was() {
    // As where the judge answered nothing that could be read.
    let blank = |config: &str, weights: &str| format!("ours,{config},{weights},9,,,,,,,,,\n");
    let more = small() + &blank("helpful", "1,0,0") + &blank("harmless", "0,0,1");
    let [without, with] = [small(), more].map(|text| report(&text));
    for id in ["steering", "axes"] {
        let [without, with] = [&without, &with].map(|report| report.table(id).unwrap());
        let intervals = without.rows.iter().flatten().filter(|value| matches!(value, Value::Interval(_)));
        assert!(intervals.count() > 0, "{id}");
        assert_eq!(format!("{:?}", without.rows), format!("{:?}", with.rows), "{id}");
    }
}

#[test]
fn an_axis_that_was_not_judged_is_blank_and_the_others_stay() {
    // The table after `judge --rubrics helpfulness,harmfulness`: honesty was not judged.
    let blank = |line: &str| {
        let mut fields: Vec<&str> = line.split(',').collect();
        fields[12..15].fill("");
        fields.join(",") + "\n"
    };
    let text: String = small().lines().skip(1).map(blank).collect();
    let results = read(&format!("{HEADER}{text}")).unwrap();
    let report = Report::of(&results, "ours", Resampling { resamples: 200, seed: 1 }).unwrap();
    close(number(&report, "methods", "ours", "quality"), 0.75);
    close(number(&report, "methods", "ours", "safety"), 0.9);
    assert_eq!(number(&report, "methods", "ours", "n"), 6.0);
    for column in ["honesty", "F1 of mean axes", "F1 mean of configurations", "F1 mean of cells"] {
        assert_eq!(value(&report, "methods", "ours", column), &Value::Empty, "{column}");
    }
    assert_eq!(value(&report, "geometry", "ours", "hypervolume"), &Value::Empty);
    for row in ["mean", "range", "1/0/0"] {
        assert_eq!(value(&report, "configurations", row, "ours"), &Value::Empty, "{row}");
    }
    let html = report.page("t", &results).unwrap().html().unwrap();
    assert!(html.contains("No frontier: an axis was not judged."));
    for text in [&report.plain(80), &html] {
        let text = text.split("<script").next().unwrap();
        assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("0.000 of mean"), "{text}");
    }

    // If one cell lacks honesty, its quality and safety count, and it has no F1.
    let one = small().replacen("0.7,0.7,0.7\n", ",,\n", 1);
    let report = self::report(&one);
    close(number(&report, "methods", "ours", "quality"), 0.75);
    close(number(&report, "methods", "ours", "honesty"), 0.7);
    close(number(&report, "methods", "ours", "F1 of mean axes"), 3.0 / (1.0 / 0.75 + 1.0 / 0.9 + 1.0 / 0.7));
    assert_eq!(number(&report, "contrasts", "theirs", "pairs"), 5.0);
}

#[test]
fn only_intervals_by_cell_depend_on_the_order_of_rows() {
    let text = small();
    let mut rows: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(report(&text).tables, report(&text).tables);
    rows.reverse();
    let (forward, reversed) = (report(&text), report(&format!("{HEADER}{}\n", rows.join("\n"))));
    for (a, b) in forward.tables.iter().zip(&reversed.tables) {
        assert_eq!((&a.id, a.rows.len()), (&b.id, b.rows.len()));
    }
    close(number(&reversed, "methods", "ours", "quality"), 0.75);
    close(number(&reversed, "contrasts", "theirs", "p"), 2.0 / 64.0);
    let ends = |report: &Report| match value(report, "clustering", "f1: ours − theirs", "95%, prompts") {
        Value::Interval(interval) => [interval.low, interval.high],
        other => panic!("{other:?}"),
    };
    ends(&forward).into_iter().zip(ends(&reversed)).for_each(|(a, b)| close(a, b));
}

/// A record of a sweep, and the steps of its trace.
fn recorded(id: &str, scheme: &str, offset: usize, probabilities: &[&[f64]]) -> (String, String) {
    let step = |p: &&[f64]| {
        // For an argmax over a vocabulary of 100, the trace keeps one candidate that has all the
        // probability.
        let n = if *p == [1.0, 0.0, 0.0] { 100 } else { p.len() };
        let candidates = vec![serde_json::json!({"tokens": [1]}); p.len()];
        let mu: Vec<f64> = (0..p.len()).map(|i| -(i as f64)).collect();
        let line = serde_json::json!({
            "id": id, "n": n, "candidates": candidates, "blades": [{"name": "helpful", "weight": 1.0, "mu": mu}], "mu": mu, "probabilities": p, "chosen": 0,
        });
        format!("{line}\n")
    };
    let steps: String = probabilities.iter().map(step).collect();
    let seconds = serde_json::json!({"draft": 1.0, "score": 1.0, "select": 1.0, "commit": 1.0});
    let record = serde_json::json!({
        "id": id, "scheme": scheme, "prompt_id": "p", "prompt": "", "seed": 1, "draws": 1, "response": "", "ended": "limit", "tokens": 10,
        "steps": probabilities.len(), "settings": "digest of nothing", "device": "cpu", "seconds": seconds, "elapsed": 2.0,
        "trace": {"offset": offset, "bytes": steps.len()},
    });
    (format!("{record}\n"), steps)
}

/// [`small`] with an id for each response, and with records of `runs`.
fn with_records(runs: &[(&str, &str, &[&[f64]])]) -> Result<RawResults, ReportError> {
    let folder = tempfile::tempdir().unwrap();
    let text = small();
    let rows = text.lines().skip(1).enumerate().map(|(i, line)| format!("{line},r{i}\n"));
    let table: String = std::iter::once(HEADER.replace('\n', ",id\n")).chain(rows).collect();
    fs::write(folder.path().join("judged_frontier.csv"), table).unwrap();
    let (mut records, mut traces) = (String::new(), String::new());
    for (id, scheme, probabilities) in runs {
        let (record, steps) = recorded(id, scheme, traces.len(), probabilities);
        records += &record;
        traces += &steps;
    }
    fs::write(folder.path().join("sweep.jsonl"), records).unwrap();
    fs::write(folder.path().join("sweep.traces.jsonl"), traces).unwrap();
    RawResults::read(folder.path())?.with_records(&folder.path().join("sweep.jsonl"))
}

#[test]
fn records_are_those_of_the_responses_that_were_judged() {
    let even: &[&[f64]] = &[&[0.5, 0.5]];
    let results = with_records(&[("r0", "ours", even), ("other", "ours", even), ("r1", "theirs", even)]).unwrap();
    let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    assert_eq!(number(&report, "throughput", "ours", "responses"), 1.0);
    assert!(report.tables.iter().all(|table| table.latex().is_ascii()), "pdfLaTeX has no other characters");
    let notes = report.table("throughput").unwrap().notes.join(" ");
    assert!(notes.contains("are left out: 1.") && notes.contains("have no record: 10."), "{notes}");
    let twice = with_records(&[("r0", "ours", even), ("r0", "ours", even)]).unwrap_err().to_string();
    assert!(twice.contains("sweep.jsonl:2: \"r0\" is the id of line 1"), "{twice}");
    let error = with_records(&[("x", "ours", even), ("y", "ours", even)]).unwrap_err().to_string();
    assert!(error.contains("none of its 2 records matches one of the 12 judged responses that have an id"), "{error}");
}

#[test]
fn schemes_are_in_the_order_of_methods_whichever_finished_first() {
    let even: &[&[f64]] = &[&[0.5, 0.5]];
    let results = with_records(&[("r1", "theirs", even), ("r0", "ours", even)]).unwrap();
    let methods: Vec<&str> = results.sweep.methods.iter().map(|method| method.name.as_str()).collect();
    assert_eq!(methods, ["ours", "theirs"]);
    let report = Report::of(&results, "theirs", Resampling { resamples: 20, seed: 1 }).unwrap();
    for name in ["throughput", "spreads", "choice"] {
        let column: Vec<_> = report.table(name).unwrap().rows.iter().map(|row| row[0].clone()).collect();
        assert_eq!(column, methods.iter().map(|method| Value::from(*method)).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn a_scheme_over_a_vocabulary_says_nothing_of_its_choices() {
    // One of the two steps of `theirs` is complete, since one token had all the probability. That
    // step alone would not represent the method, so the method is left out.
    let results = with_records(&[("r0", "ours", &[&[0.25, 0.75]]), ("r1", "theirs", &[&[0.5, 0.4], &[1.0, 0.0]])]).unwrap();
    assert_eq!(results.recorded.as_ref().unwrap().cut, ["theirs"]);
    let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    for name in ["choice", "spreads"] {
        let table = report.table(name).unwrap();
        assert!(table.rows.iter().all(|row| row[0] == Value::from("ours")), "{name}");
        assert!(table.notes.iter().any(|note| note.contains("whole vocabulary: theirs")), "{:?}", table.notes);
    }
    let html = report.page("t", &results).unwrap().html().unwrap();
    assert!(html.contains("Left out: theirs, which choose"));
    let greedy = with_records(&[("r0", "ours", &[&[0.25, 0.75]]), ("r1", "theirs", &[&[1.0, 0.0, 0.0]])]).unwrap();
    assert_eq!(greedy.recorded.as_ref().unwrap().cut, ["theirs"]);
    let all = with_records(&[("r1", "theirs", &[&[0.5, 0.4], &[1.0, 0.0]])]).unwrap();
    let report = Report::of(&all, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    assert!(report.table("choice").is_none());
    assert!(report.page("t", &all).unwrap().html().unwrap().contains("left out: theirs, which choose"));
}

#[test]
fn a_step_that_is_none_is_named_by_its_line_and_column() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("judged_frontier.csv"), small()).unwrap();
    fs::write(folder.path().join("candidate_steps.jsonl"), "\n{\"arm\": 7}\n").unwrap();
    let error = RawResults::read(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("candidate_steps.jsonl:2: invalid type: integer `7`, expected a string (column 9)"), "{error}");
}

/// Tables are files of these names.
#[test]
fn ablations_of_like_names_have_tables_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("judged_frontier.csv"), small()).unwrap();
    let header = "ablation,arm,prompt_id,response_quality,relevance,helpfulness,toxicity,refusal,harmfulness\n";
    let rows = |name: &str| {
        let row = |(arm, prompt): (&str, u8)| format!("{name},{arm},{prompt},0.5,0.5,0.5,0.1,0.5,0.1\n");
        [("a", 0), ("a", 1), ("b", 0), ("b", 1)].map(row).concat()
    };
    let ablations = ["top k", "top-k", "Top_K", "top-k-means", "tournament_value"].map(rows).concat();
    fs::write(folder.path().join("judged_ablations.csv"), header.to_owned() + &ablations).unwrap();
    let results = RawResults::read(folder.path()).unwrap();
    let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    let ids: Vec<String> = report.tables.iter().map(|table| table.id.to_ascii_lowercase()).collect();
    let own: Vec<&str> =
        ids.iter().map(String::as_str).filter(|id| id.starts_with("ablation") && !id.ends_with("-means")).collect();
    assert_eq!(own, ["ablation-top-k", "ablation-top-k-2", "ablation-top-k-3", "ablation-top-k-means-2"]);
    assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len(), "{ids:?}");
    // No pair of arms differs, so there is no test.
    assert!(!report.page("t", &results).unwrap().html().unwrap().contains("p = NaN"));
}

/// Results judged by `objectives`, with `ablations` at fixed weights.
fn judged_by(objectives: &str, frontier: &str, ablations: &str) -> RawResults {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("objectives.toml"), objectives).unwrap();
    fs::write(folder.path().join("judged_frontier.csv"), frontier).unwrap();
    if !ablations.is_empty() {
        fs::write(folder.path().join("judged_ablations.csv"), ablations).unwrap();
    }
    RawResults::read(folder.path()).unwrap()
}

const PADDING: &str = r#"
    [[objectives]]
    name = "padding"

    [[rubrics]]
    name = "padding"
    better = "less"
    column = true
    criterion = "?"
    low = "a"
    middle = "b"
    high = "c"
"#;

#[test]
fn a_rubric_that_is_an_objective_by_itself_is_reported_once() {
    let frontier =
        "method,config,w_padding,frontier_id,padding,padding_bert\nours,a,1,0,0.2,0.1\nours,a,1,1,0.3,0.2\nours,a,1,2,0.4,0.3\n";
    let ablations = "ablation,arm,prompt_id,padding\nsize,a,0,0.2\nsize,a,1,0.3\nsize,b,0,0.4\nsize,b,1,0.6\n";
    let results = judged_by(PADDING, frontier, ablations);
    let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    let count = |table: &str, column: usize| {
        report.table(table).unwrap().rows.iter().filter(|row| row[column] == Value::from("padding")).count()
    };
    assert_eq!((count("ablation-size", 1), count("classifiers", 1)), (1, 1));
    let headings: Vec<&str> = report.table("methods").unwrap().columns.iter().map(|column| column.heading.as_str()).collect();
    assert_eq!(headings.iter().filter(|heading| **heading == "padding").count(), 1, "{headings:?}");
    close(number(&report, "methods", "ours", "padding"), 0.7);
    close(number(&report, "ablation-size", "a − b", "Δ"), 0.25);
}

/// With these points, hypervolumes would take minutes.
#[test]
fn many_objectives_have_no_hypervolume() {
    const OBJECTIVES: usize = 16;
    let listed = |of: &dyn Fn(usize) -> String| (0..OBJECTIVES).map(of).collect::<Vec<_>>().join(",");
    let objectives: String = (0..OBJECTIVES).map(|k| PADDING.replace("padding", &format!("o{k}"))).collect();
    let header = format!("method,config,{},frontier_id,{}\n", listed(&|k| format!("w_o{k}")), listed(&|k| format!("o{k}")));
    let pairs = (0..OBJECTIVES).flat_map(|i| (0..i).map(move |j| [i, j]));
    let rows: String = pairs
        .map(|[i, j]| {
            let weight = |k: usize| if k == i || k == j { "0.5" } else { "0" }.to_owned();
            let score = |k: usize| format!("0.{}", 1 + (7 * i + 5 * j + 3 * i * j + k * (i + 2 * j)) % 9);
            format!("ours,c{i}-{j},{},0,{}\n", listed(&weight), listed(&score))
        })
        .collect();
    let results = judged_by(&objectives, &(header + &rows), "");
    let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    assert_eq!(value(&report, "geometry", "ours", "hypervolume"), &Value::Empty);
    assert!(report.table("geometry").unwrap().notes[0].contains("up to 8 objectives"));
    let page = report.page("t", &results).unwrap().html().unwrap();
    assert!(
        page.contains("drawn for 2 to 5 objectives") && !page.contains("above the origin; rank"),
        "the page says what is missing"
    );
}

#[test]
fn an_ablation_has_every_rubric_with_a_column() {
    let objectives = PADDING.replace("padding", "truthfulness").replace("better = \"less\"", "");
    let frontier = "method,config,w_truthfulness,frontier_id,truthfulness\nours,a,1,0,0.2\n";
    let ablations = "ablation,arm,prompt_id,truthfulness\nsize,a,0,0.2\nsize,a,1,0.3\nsize,b,0,0.4\nsize,b,1,0.6\n";
    let report = |ablations: &str| {
        let results = judged_by(&objectives, frontier, ablations);
        Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap()
    };
    close(number(&report(ablations), "ablation-size-means", "b", "truthfulness"), 0.5);
    let without = report("ablation,arm,prompt_id\nsize,a,0\nsize,b,0\n");
    assert_eq!(value(&without, "ablation-size-means", "b", "truthfulness"), &Value::Empty);
}

#[test]
fn intervals_of_few_pairs_of_an_ablation_are_said_to_be_too_narrow() {
    let frontier = "method,config,w_padding,frontier_id,padding\nours,a,1,0,0.2\n";
    let noted = |prompts: usize| {
        let rows = (0..prompts).map(|prompt| format!("size,a,{prompt},0.2\nsize,b,{prompt},0.3\n"));
        let results = judged_by(PADDING, frontier, &format!("ablation,arm,prompt_id,padding\n{}", rows.collect::<String>()));
        let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
        report.table("ablation-size").unwrap().notes.iter().any(|note| note.contains("too narrow"))
    };
    assert_eq!([1, 19, 20].map(noted), [false, true, false]);
}

#[test]
fn an_ablation_of_one_arm_has_means_and_no_comparison() {
    let frontier = "method,config,w_padding,frontier_id,padding\nours,a,1,0,0.2\n";
    let results = judged_by(PADDING, frontier, "ablation,arm,prompt_id,padding\nsize,a,0,0.2\nsize,a,1,0.3\n");
    let report = Report::of(&results, "ours", Resampling { resamples: 20, seed: 1 }).unwrap();
    assert!(report.table("ablation-size-means").is_some() && report.table("ablation-size").is_none());
    let html = report.page("t", &results).unwrap().html().unwrap();
    assert!(html.contains("size: means by arm") && !html.contains("0 pairs"));
}

#[test]
fn a_classifier_measures_the_rubric_with_the_longest_matching_name() {
    let rubrics = ["calm", "calm_tone"]
        .map(|name| format!("[[rubrics]]\nname = {name:?}\ncriterion = \"?\"\nlow = \"a\"\nmiddle = \"b\"\nhigh = \"c\"\n"));
    let objectives = format!("[[objectives]]\nname = \"new\"\nrubrics = [\"calm\", \"calm_tone\"]\n{}", rubrics.concat());
    let table = "method,config,w_new,frontier_id,calm,calm_tone,calm_tone_bert,calm_bert\nours,a,1,7,0.5,0.5,0.5,0.5\n";
    let classified = judged_by(&objectives, table, "").classified;
    assert_eq!(classified.iter().map(|own| own.rubric).collect::<Vec<_>>(), [1, 0]);
}

#[test]
fn a_column_of_the_table_is_no_classifier_of_a_rubric() {
    let folder = tempfile::tempdir().unwrap();
    let rubrics = ["frontier", "w"]
        .map(|name| format!("[[rubrics]]\nname = {name:?}\ncriterion = \"?\"\nlow = \"a\"\nmiddle = \"b\"\nhigh = \"c\"\n"));
    let objectives = "[[objectives]]\nname = \"new\"\nrubrics = [\"frontier\", \"w\"]\n";
    fs::write(folder.path().join("objectives.toml"), format!("{objectives}{}", rubrics.concat())).unwrap();
    let table = "method,config,w_new,frontier_id,frontier,w\nours,a,1,7,0.5,0.5\n";
    fs::write(folder.path().join("judged_frontier.csv"), table).unwrap();
    assert!(RawResults::read(folder.path()).unwrap().classified.is_empty());
}

#[test]
fn methods_that_share_no_prompt_have_an_empty_contrast() {
    let text = small()
        .replace("theirs,helpful,1,0,0,", "theirs,helpful,1,0,0,1")
        .replace("theirs,harmless,0,0,1,", "theirs,harmless,0,0,1,1");
    let report = report(&text);
    assert_eq!(number(&report, "contrasts", "theirs", "pairs"), 0.0);
    for column in ["ΔF1", "95% percentile", "95% BCa", "p", "p, Holm", "reference wins %"] {
        assert_eq!(value(&report, "contrasts", "theirs", column), &Value::Empty, "{column}");
    }
    assert!(!report.plain(80).contains("NaN"));
}

#[test]
fn the_arm_without_normalisation_goes_by_either_name() {
    let shipped = |name: &str| small().replace("ours", "swiss-knife").replace("theirs", name);
    for (reference, name) in [("ours", "ours_no_cbn"), ("swiss-knife", "no-cbn"), ("swiss-knife", "swiss-knife_no_cbn")] {
        let text = if reference == "ours" { small().replace("theirs", name) } else { shipped(name) };
        let report = Report::of(&read(&text).unwrap(), reference, Resampling { resamples: 20, seed: 1 }).unwrap();
        let table = report.table("normalization").unwrap_or_else(|| panic!("{name} is not compared"));
        assert!(table.notes.iter().all(|note| !note.contains("paper")), "{:?}", table.notes);
        // It does not count as a rival, so the best and worst examples have none.
        assert_eq!(value(&report, "examples", "best", "rival's F1"), &Value::Empty);
    }
    assert!(report(&small()).table("normalization").is_none());
    // Here `no-cbn` is not the ablation of the reference, so it is a rival.
    let other = report(&small().replace("theirs", "no-cbn"));
    assert!(other.table("normalization").is_none());
    assert!(number(&other, "examples", "best", "rival's F1") > 0.0);
}

#[test]
fn a_method_that_is_called_like_one_of_the_papers_is_not_held_against_it() {
    let report = report(&small().replace("theirs", "base"));
    assert!(report.table("comparison").is_none());
    assert!(!report.plain(80).contains("safety with w2"));
}

#[test]
fn the_best_and_the_worst_by_hand() {
    let report = report(&small());
    let examples = report.table("examples").unwrap();
    let row = |i: usize| examples.rows[i][..3].to_vec();
    let expected = |case: &str, prompt: usize, weights: &str| vec![Value::from(case), Value::from(prompt), Value::from(weights)];
    // Quality rises with the prompt and with the weight of helpfulness. Each case shows a prompt
    // once.
    assert_eq!(row(0), expected("best", 2, "1/0/0"));
    assert_eq!(row(1), expected("best", 1, "1/0/0"));
    assert_eq!(row(3), expected("worst", 0, "0/0/1"));
    close(number(&report, "examples", "best", "F1"), 3.0 / (1.0 / 0.9 + 1.0 / 0.9 + 1.0 / 0.7));
    close(number(&report, "examples", "best", "rival's F1"), 3.0 / (2.0 + 1.0 + 2.0));
}

#[test]
fn every_renderer_prints_every_row() {
    let report = report(&small());
    let plain = report.plain(1000);
    assert!(report.plain(80).lines().all(|line| line.chars().count() <= 80), "{}", report.plain(80));
    let json = serde_json::to_value(&report).unwrap();
    for (i, table) in report.tables.iter().enumerate() {
        let csv = table.csv();
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let width = reader.headers().unwrap().len();
        let intervals = table.columns.iter().filter(|column| matches!(column.kind, sk_report::report::Kind::Interval(_))).count();
        assert_eq!(width, table.columns.len() + intervals, "{}", table.id);
        assert_eq!(reader.records().map(Result::unwrap).filter(|record| record.len() == width).count(), table.rows.len());
        let latex = table.latex();
        assert_eq!(latex.matches(" \\\\\n").count(), table.rows.len() + 1, "{latex}");
        assert_eq!(
            latex.matches('{').count() - latex.matches("\\{").count(),
            latex.matches('}').count() - latex.matches("\\}").count()
        );
        assert_eq!(plain.contains(&table.title), !table.appendix);
        assert!(table.notes.iter().all(|note| note.ends_with('.')), "{:?}", table.notes);
        assert_eq!(json["tables"][i]["rows"].as_array().unwrap().len(), table.rows.len());
    }
    assert!(report.table("contrasts").unwrap().latex().contains("0.031"));
}

#[test]
fn what_cannot_be_read_is_named() {
    let refused = |text: &str, parts: &[&str]| {
        let error = read(text).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        for part in parts {
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    };
    refused(HEADER, &["judged_frontier.csv", "no rows"]);
    refused(&small().replace("relevance", "relevant"), &["judged_frontier.csv", "\"relevance\""]);
    refused(&small().replacen("0.5,0.5,0.5,0.0", "0.5,1.5,0.5,0.0", 1), &["line 3", "\"relevance\"", "1.5", "from 0 to 1"]);
    let of_windows = small().replacen("0.5,0.5,0.5,0.0", "0.5,1.5,0.5,0.0", 1).replace('\n', "\r\n");
    refused(&of_windows, &["line 3", "\"relevance\""]);
    refused(
        &small().replacen("theirs,helpful,1,0,0,0,", "theirs,helpful,1,0,0,zero,", 1),
        &["line 3", "\"frontier_id\"", "whole number"],
    );
    refused(&small().replacen("theirs,helpful,1,0,0,1,", "theirs,helpful,1,0,0,0,", 1), &["line 5", "theirs", "prompt 0"]);
    // The reciprocal of a perplexity, whose logarithm is averaged.
    let fluent = |value: &str| {
        small()
            .lines()
            .enumerate()
            .map(|(i, row)| format!("{row},{}\n", if i == 0 { "fluency" } else { value }))
            .collect::<String>()
    };
    refused(&fluent("0"), &["line 2", "\"fluency\"", "above 0 and at most 1"]);
    assert!(read(&fluent("1e-300")).is_ok() && read(&fluent("")).is_ok());
    let empty = tempfile::tempdir().unwrap();
    let error = RawResults::read(empty.path()).unwrap_err().to_string();
    assert!(error.contains("judged_frontier.csv") && error.contains("no such file"), "{error}");
    let error = Report::of(&read(&small()).unwrap(), "our", Resampling::default()).unwrap_err().to_string();
    assert!(error.contains("\"our\"") && error.contains("did you mean \"ours\""), "{error}");
}

/// Published figures that do not follow from the cells, although all other figures of their kind
/// follow under the same reading.
///
/// Each has the recomputed value, with the printed digits and one more.
const UNEXPLAINED: [[&str; 5]; 10] = [
    // Rounded twice: from four digits to three.
    ["tab:main", "rs", "", "spacing", "0.0865"],
    ["tab:full-methods", "mod", "", "safety", "0.9915"],
    ["tab:perconfig", "swiss_no_cbn", "0/1/0", "f1", "0.5725"],
    ["tab:per-config-full", "swiss_no_cbn", "0/1/0", "f1", "0.5725"],
    ["tab:perconfig", "args", "", "range", "0.0355"],
    ["sec:cbn", "cbn", "helpfulness", "share%", "38.95"],
    // Two weight vectors tie exactly, and rounding errors broke the tie.
    ["tab:steerability-full", "swiss", "quality", "r_s", "0.1133"],
    ["tab:steerability-full", "swiss", "quality", "p", "0.8089"],
    ["tab:steerability-full", "swiss", "pooled", "r_s", "0.2020"],
    ["tab:steerability-full", "swiss", "pooled", "p", "0.3800"],
];

/// Readings that follow the paper's words but contradict its figures.
const CONTRADICTED: [&str; 5] =
    ["reference at the origin", "Schott: L1, n − 1", "F1 = 0 where an axis is", "as labelled", "unjudged left out, as stated"];

#[test]
fn the_papers_tables_follow_from_its_raw_cells() {
    let Some(folder) = std::env::var_os(PAPER_RESULTS) else {
        eprintln!("skipped: set {PAPER_RESULTS} to the folder of the paper's raw results");
        return;
    };
    let results = RawResults::read(Path::new(&folder)).unwrap();
    assert_eq!(results.sweep.methods.iter().map(|method| method.cells.len()).sum::<usize>(), 5458);
    let report = Report::of(&results, "swiss", Resampling::default()).unwrap();
    let comparison = report.table("comparison").unwrap();
    let text = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        other => panic!("{other:?}"),
    };
    let mut followed = 0;
    let mut unexplained = Vec::new();
    for row in &comparison.rows {
        let [source, subject, part, quantity, reading, _, recomputed, verdict] = std::array::from_fn(|i| text(&row[i]));
        if verdict != "differs" {
            followed += 1;
        } else if !CONTRADICTED.contains(&reading.as_str()) {
            unexplained.push([source, subject, part, quantity, recomputed]);
        }
    }
    let mut expected = UNEXPLAINED.map(|row| row.map(str::to_owned)).to_vec();
    expected.sort();
    unexplained.sort();
    assert_eq!(unexplained, expected);
    // Of 526 published figures, the 13 hypervolumes and those in `UNEXPLAINED` follow under no
    // reading.
    let figures = |row: &Vec<Value>| (0..4).map(|i| text(&row[i])).collect::<Vec<_>>();
    let mut all: Vec<_> = comparison.rows.iter().map(figures).collect();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 526);
    let mut reached: Vec<_> = comparison.rows.iter().filter(|row| text(&row[7]) != "differs").map(figures).collect();
    reached.sort();
    reached.dedup();
    assert_eq!(reached.len(), 526 - 13 - UNEXPLAINED.len());
    assert!(followed > reached.len());

    a_broken_tie_gives_the_published_steering(&results);

    // By prompt, the largest p-value of a baseline is 2.4e-6, where it was 2.5e-15 by cell. Safety
    // still does not differ significantly.
    let by_prompt = number(&report, "clustering", "f1: swiss − base", "p, prompts");
    assert!(by_prompt > 1e-6 && by_prompt < 1e-5, "{by_prompt}");
    assert!(number(&report, "clustering", "safety: swiss − swiss_no_cbn", "p, prompts") > 0.05);
    close((number(&report, "scales", "cbn", "median scale ratio") * 100.0).round(), 98.0);
    close(number(&report, "scales", "no_cbn", "median scale ratio").round(), 524.0);
}

/// Two weight vectors achieve exactly the same quality. The published correlations result if the
/// first is ahead.
fn a_broken_tie_gives_the_published_steering(results: &RawResults) {
    // Larger than rounding, smaller than any difference between means of cells.
    const NUDGE: f64 = 1e-7;
    let frontier = results.sweep.frontier(results.sweep.method("swiss").unwrap());
    let weights: Vec<Vec<f64>> = frontier.iter().map(|(point, _)| point.weights.clone()).collect();
    let mut achieved: Vec<Vec<f64>> = frontier.iter().map(|(_, axes)| axes.clone()).collect();
    let label = |i: usize| results.sweep.label(frontier[i].0);
    let tied: Vec<usize> = (0..7).filter(|&i| achieved.iter().filter(|axes| axes[0] == achieved[i][0]).count() > 1).collect();
    assert_eq!(tied.iter().map(|&i| label(i)).collect::<Vec<_>>(), ["1/0/0", "0/0/1"]);
    achieved[tied[0]][0] += NUDGE;
    let steering = Steering::of(&weights, &achieved, 1);
    let quality = steering.axes[0].unwrap();
    let pooled = steering.pooled.unwrap();
    assert_eq!(
        [quality.rho, quality.p, pooled.rho, pooled.p].map(|figure| format!("{figure:.3}")),
        ["0.206", "0.658", "0.212", "0.356"]
    );
}
