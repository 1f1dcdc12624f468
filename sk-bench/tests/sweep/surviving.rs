//! Kills, interruptions, incomplete lines, and several processes at once: the records equal those
//! of one undisturbed run.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{assert_refused, stderr, stdout};
use crate::{Bench, CELLS, PLAN};

/// A timeout that only a hung program exceeds.
const PATIENCE: Duration = Duration::from_secs(600);

type Answers = BTreeMap<String, (Value, Vec<Value>)>;

/// The answers of an undisturbed run.
fn undisturbed() -> &'static Answers {
    static ANSWERS: OnceLock<Answers> = OnceLock::new();
    ANSWERS.get_or_init(|| {
        let bench = Bench::new(PLAN);
        bench.finish();
        let answers = bench.answers();
        assert_eq!(answers.len(), CELLS);
        answers
    })
}

fn start(bench: &Bench) -> Child {
    bench.command(&["--quiet"]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the output has `lines` lines, or the process has ended.
fn wait_for_lines(bench: &Bench, child: &mut Child, lines: usize) {
    let start = Instant::now();
    while bench.lines() < lines && child.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "the sweep hangs");
        sleep(Duration::from_millis(1));
    }
}

/// Repeats `attempt` until it disturbs a sweep before its end, and returns the folder. On a busy
/// machine a sweep may end first; that attempt shows nothing.
fn hit(mut attempt: impl FnMut(&Bench) -> bool) -> Bench {
    let mut benches = (0..20).map(|_| Bench::new(PLAN));
    benches.find(|bench| attempt(bench)).expect("one of twenty sweeps is hit before it ends")
}

#[test]
fn a_killed_sweep_loses_and_doubles_nothing() {
    let bench = hit(|bench| kills(bench) >= 4);
    bench.finish();
    assert_eq!(bench.answers(), *undisturbed());
}

/// Kills eight sweeps in one folder, one after another. Returns how many had not ended before.
fn kills(bench: &Bench) -> usize {
    let mut kills = 0;
    for moment in 0..8 {
        let mut child = start(bench);
        let before = bench.lines();
        // Before the first cell, and then each time at a different point of a cell.
        if moment > 0 {
            wait_for_lines(bench, &mut child, before + 1 + moment % 2);
            sleep(Duration::from_millis(7 * moment as u64));
        }
        kills += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    kills
}

#[cfg(unix)]
#[test]
fn a_sweep_reports_a_deleted_or_replaced_output() {
    let replace: [fn(&Bench); 2] = [
        |bench| fs::remove_file(bench.path("plan.jsonl")).unwrap(),
        |bench| {
            fs::copy(bench.path("plan.jsonl"), bench.path("copy.jsonl")).unwrap();
            fs::rename(bench.path("copy.jsonl"), bench.path("plan.jsonl")).unwrap();
        },
    ];
    for replace in replace {
        let bench = hit(|bench| {
            let mut child = start(bench);
            wait_for_lines(bench, &mut child, 1);
            replace(bench);
            let at_work = child.try_wait().unwrap().is_none();
            let ended = child.wait_with_output().unwrap();
            if at_work {
                let said = String::from_utf8(ended.stderr).unwrap();
                assert_eq!(ended.status.code(), Some(1), "{said}");
                assert!(said.contains("plan.jsonl was deleted or replaced while the sweep ran"), "{said}");
            }
            at_work
        });
        bench.finish();
        assert_eq!(bench.answers(), *undisturbed());
    }
}

#[cfg(unix)]
#[test]
fn a_sweep_whose_traces_are_taken_away_goes_on_once_they_are_back() {
    let bench = hit(|bench| {
        let mut child = start(bench);
        wait_for_lines(bench, &mut child, 1);
        fs::rename(bench.path("plan.traces.jsonl"), bench.path("elsewhere")).unwrap();
        let at_work = child.try_wait().unwrap().is_none();
        let ended = child.wait_with_output().unwrap();
        if at_work {
            let said = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(1), "{said}");
            let says =
                "plan.traces.jsonl was deleted or replaced while the sweep ran; put it back and run again, or start a new output";
            assert!(said.contains(says), "{said}");
        }
        fs::rename(bench.path("elsewhere"), bench.path("plan.traces.jsonl")).unwrap();
        at_work
    });
    bench.finish();
    assert_eq!(bench.answers(), *undisturbed());
}

#[test]
fn a_torn_record_is_made_again_and_a_step_without_a_record_is_dropped() {
    let bench = Bench::new(PLAN);
    bench.finish();
    let whole = fs::read(bench.path("plan.jsonl")).unwrap();
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    // The records are cut inside the last line, before its line end, or right after the line before
    // it. The traces keep their complete steps, and get an incomplete one. A power failure may
    // leave zeros in either file.
    let left: [(usize, &[u8]); 5] = [
        (ends[CELLS - 2] + 9, b"{\"id\":\"half a st"),
        (ends[CELLS - 1] - 1, b"{\"id\":\"half a st"),
        (ends[CELLS - 2], b"{\"id\":\"half a st"),
        (ends[CELLS - 2], &[0; 200]),
        (ends[CELLS - 2], b"{\"i\0\0\0\0\0\0\0\0"),
    ];
    for (cut, steps) in left {
        fs::write(bench.path("plan.jsonl"), &whole[..cut]).unwrap();
        let mut traces = OpenOptions::new().append(true).open(bench.path("plan.traces.jsonl")).unwrap();
        traces.write_all(steps).unwrap();
        let text = stdout(&bench.run(&["--dry-run", "--quiet"]));
        assert_eq!(text.lines().filter(|line| line.starts_with("open ")).count(), 1);
        bench.finish();
        assert_eq!(bench.answers(), *undisturbed());
        let steps: u64 = bench.records().iter().map(|record| record["trace"]["bytes"].as_u64().unwrap()).sum();
        assert_eq!(fs::metadata(bench.path("plan.traces.jsonl")).unwrap().len(), steps, "nothing between the traces");
    }
    // Lost steps that records refer to cannot be restored.
    fs::write(bench.path("plan.jsonl"), &whole[..ends[3]]).unwrap();
    fs::write(bench.path("plan.traces.jsonl"), "").unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["plan.traces.jsonl has 0 bytes"]);
    fs::remove_file(bench.path("plan.traces.jsonl")).unwrap();
    assert_refused(&bench.run(&["--quiet"]), &["plan.traces.jsonl is missing", "put it back, or start a new output"]);
    assert!(!bench.path("plan.traces.jsonl").exists());
}

/// `report` refuses traces without the steps that records refer to.
#[test]
fn a_finished_sweep_does_not_need_its_traces() {
    let bench = Bench::new(PLAN);
    bench.finish();
    fs::remove_file(bench.path("plan.traces.jsonl")).unwrap();
    bench.finish();
    assert!(!bench.path("plan.traces.jsonl").exists());
}

/// The output may grow to a length inside a line.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_whole_records_and_the_next_run_goes_on() {
    let bench = Bench::new(&PLAN.replace("[sweep]", "[sweep]\ntraces = false"));
    let program = bench.command(&["--quiet"]);
    let limited = "ulimit -f 20; exec \"$0\" \"$@\"";
    let output = std::process::Command::new("sh")
        .args(["-c", limited])
        .arg(program.get_program())
        .args(program.get_args())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write") && stderr(&output).contains("plan.jsonl"), "{}", stderr(&output));
    let text = fs::read_to_string(bench.path("plan.jsonl")).unwrap();
    assert!(text.ends_with("}\n") && text.lines().count() < CELLS, "{text}");
    bench.finish();
    assert_eq!(bench.lines(), CELLS);
}

#[test]
fn several_processes_share_a_plan() {
    let bench = Bench::new(PLAN);
    let children: Vec<Child> = (0..3).map(|_| start(&bench)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(bench.lines(), CELLS, "a process ends when the plan is done");
    }
    assert_eq!(bench.answers(), *undisturbed());
    assert!(!bench.path("plan.jsonl.claims").exists());
}

#[test]
fn other_processes_take_over_from_a_killed_one() {
    hit(|bench| {
        let mut victims: Vec<Child> = (0..2).map(|_| start(bench)).collect();
        let survivor = start(bench);
        for (index, victim) in victims.iter_mut().enumerate() {
            wait_for_lines(bench, victim, 4 + 5 * index);
            victim.kill().unwrap();
            victim.wait().unwrap();
        }
        let early = bench.lines() < CELLS;
        let output = survivor.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(bench.answers(), *undisturbed());
        early
    });
}

#[cfg(unix)]
#[test]
fn ctrl_c_drops_the_present_cell_and_the_next_run_goes_on() {
    use std::os::unix::process::ExitStatusExt;

    let bench = hit(|bench| {
        let mut child = bench.command(&[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_lines(bench, &mut child, 3);
        std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let done = bench.lines();
        if done == CELLS {
            return false;
        }
        assert_eq!(output.status.signal(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(&format!("interrupted; {done} of 28 cells are in")), "{}", stderr(&output));
        let claims = fs::read_dir(bench.path("plan.jsonl.claims")).map_or(0, Iterator::count);
        assert_eq!(claims, 0, "its claim is given back");
        true
    });
    bench.finish();
    assert_eq!(bench.answers(), *undisturbed());
}
