//! Tests of `swiss-knife report`: tables on standard output and in files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{assert_refused, program, run, stderr, stdout};
use crate::html::Document;

const HEADER: &str = "method,config,w_helpfulness,w_honesty,w_harmlessness,frontier_id,response_quality,relevance,helpfulness,toxicity,\
                      refusal,harmfulness,truthfulness,non_deception,epistemic_honesty";

/// Two methods on four prompts. The first has the higher quality on each.
fn results(folder: &Path) {
    let rows = (0..4).flat_map(|prompt| {
        let quality = 0.6 + 0.05 * f64::from(prompt);
        [("ours", quality), ("theirs", 0.5)]
            .map(|(method, quality)| format!("{method},helpful,1,0,0,{prompt},{quality},{quality},{quality},0,0,0,0.5,0.5,0.5"))
    });
    let text: Vec<String> = std::iter::once(HEADER.to_owned()).chain(rows).collect();
    fs::write(folder.join("judged_frontier.csv"), text.join("\n")).unwrap();
}

#[test]
fn tables_are_printed_in_each_format() {
    let folder = tempfile::tempdir().unwrap();
    results(folder.path());
    let report = |args: &[&str]| {
        let fixed = ["report", folder.path().to_str().unwrap(), "--reference", "ours", "--resamples", "100"];
        stdout(&run(fixed.iter().chain(args)))
    };
    let plain = report(&[]);
    assert!(
        plain.starts_with("Methods over the whole sweep\n") && plain.contains("F1 of ours minus that of each other method"),
        "{plain}"
    );
    let csv = report(&["--table", "methods", "--format", "csv"]);
    assert!(csv.starts_with("method,n,quality,") && csv.contains("\nours,4,0.67"), "{csv}");
    assert!(report(&["--table", "geometry", "--format", "latex"]).contains("\\begin{tabular}{@{}lrrrrr@{}}"));
    let json: Value = serde_json::from_str(&report(&["--format", "json"])).unwrap();
    assert_eq!((&json["reference"], &json["resamples"]), (&"ours".into(), &100.into()));
    assert_eq!(plain, report(&[]));
}

#[test]
fn the_reference_is_the_scheme_of_the_program_unless_another_is_named() {
    let folder = tempfile::tempdir().unwrap();
    results(folder.path());
    let path = folder.path().join("judged_frontier.csv");
    let text = fs::read_to_string(&path).unwrap();
    let report = || run(["report", folder.path().to_str().unwrap(), "--resamples", "10", "--format", "json"]);
    assert_refused(&report(), &["--reference", "the results have ours, theirs"]);
    for name in ["swiss-knife", "swiss"] {
        fs::write(&path, text.replace("ours", name)).unwrap();
        let json: Value = serde_json::from_str(&stdout(&report())).unwrap();
        assert_eq!(json["reference"], name);
    }
    fs::write(&path, text.replace("ours", "swiss-knife").replace("theirs", "swiss")).unwrap();
    let json: Value = serde_json::from_str(&stdout(&report())).unwrap();
    assert_eq!(json["reference"], "swiss");
}

#[test]
fn tables_are_written_to_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    results(folder.path());
    let out = folder.path().join("new/tables");
    let fixed = ["report", folder.path().to_str().unwrap(), "--reference", "ours", "--resamples", "100", "--out"];
    let printed = stdout(&run(fixed.iter().chain(&[out.to_str().unwrap()])));
    assert!(printed.is_empty(), "{printed}");
    for name in ["report.txt", "report.json", "methods.csv", "methods.tex", "axes.csv", "contrasts.tex"] {
        assert!(!fs::read_to_string(out.join(name)).unwrap().is_empty(), "{name}");
    }
}

#[test]
fn a_full_disk_changes_no_table_of_an_earlier_report() {
    let folder = tempfile::tempdir().unwrap();
    results(folder.path());
    let out = folder.path().join("tables");
    let args = ["report", folder.path().to_str().unwrap(), "--resamples", "100", "--out", out.to_str().unwrap(), "--reference"];
    stdout(&run(args.iter().chain(&["ours"])));
    let files = || {
        let entries = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
        entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect::<BTreeMap<_, _>>()
    };
    let before = files();
    let blocks = |name: &str| before[&out.join(name)].len() / 512;
    // The first file can be written, the second cannot.
    let limit = blocks("report.txt") + 2;
    assert!(limit < blocks("report.json"));
    let full = format!("ulimit -f {limit}; exec \"$0\" \"$@\"");
    let itself = program().get_program().to_owned();
    let output = std::process::Command::new("sh").args(["-c", &full]).arg(itself).args(args).arg("theirs").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("report.json"), "{}", stderr(&output));
    assert_eq!(files(), before);
}

/// A container shares a single file with its host by mounting it. Such a file cannot be replaced.
#[cfg(target_os = "linux")]
#[test]
fn a_mounted_file_is_overwritten() {
    let alone = |command: &str| {
        let mut shell = std::process::Command::new("unshare");
        shell.args(["--map-root-user", "--mount", "sh", "-c", command]);
        shell
    };
    let folder = tempfile::tempdir().unwrap();
    results(folder.path());
    let [inside, outside] = ["inside.html", "outside.html"].map(|name| folder.path().join(name));
    for file in [&inside, &outside] {
        fs::write(file, "x".repeat(1 << 24)).unwrap();
    }
    let mut trial = alone("mount --bind \"$2\" \"$1\"");
    if !trial.arg("sh").args([&inside, &outside]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this system lets no user mount");
        return;
    }
    let mut mounted = alone("mount --bind \"$2\" \"$1\" && shift 2 && exec \"$@\"");
    mounted.arg("sh").args([&inside, &outside]).arg(program().get_program()).arg("report").arg(folder.path());
    let output = mounted.args(["--resamples", "100", "--reference", "ours", "--html"]).arg(&inside).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read_to_string(&outside).unwrap().trim_end().ends_with("</html>"));
    assert!(fs::read_to_string(&inside).unwrap().starts_with('x'), "the mount hides it");
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_open_files_is_named() {
    let folder = tempfile::tempdir().unwrap();
    results(folder.path());
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 16; exec \"$0\" \"$@\""]).arg(program().get_program()).arg("report").arg(folder.path());
    let output = limited
        .arg("--out")
        .arg(folder.path().join("tables"))
        .args(["--resamples", "100", "--reference", "ours"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("Too many open files (os error 24)"), "{}", stderr(&output));
}

#[test]
fn a_page_has_every_table_and_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    results(folder.path());
    let hostile = fs::read_to_string(folder.path().join("judged_frontier.csv")).unwrap().replace("theirs", "</td><b>theirs</b>");
    fs::write(folder.path().join("judged_frontier.csv"), hostile).unwrap();
    let out = folder.path().join("tables");
    let html = |name: &str| {
        let path = folder.path().join(name);
        let fixed = ["report", folder.path().to_str().unwrap(), "--reference", "ours", "--resamples", "100"];
        let more = ["--out", out.to_str().unwrap(), "--html", path.to_str().unwrap(), "--title", "A & B"];
        assert!(stdout(&run(fixed.iter().chain(&more))).is_empty());
        fs::read_to_string(path).unwrap()
    };
    let page = html("page.html");
    assert_eq!(page, html("again.html"));
    assert!(page.contains("<title>A &amp; B</title>") && !page.contains("<b>theirs"));
    let document = Document::parse(&page).unwrap_or_else(|fault| panic!("{fault}"));
    document.check_ids();
    for name in
        // There is no table `steering`: the results have one weight vector.
        ["methods", "contrasts", "clustering", "geometry", "configurations", "axes", "conventions", "examples"]
    {
        assert_eq!(document.csv(name), fs::read_to_string(out.join(format!("{name}.csv"))).unwrap(), "{name}");
    }
    // Files are written atomically, and no temporary file remains.
    let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["again.html", "judged_frontier.csv", "page.html", "tables"]);
}

#[test]
fn a_page_that_cannot_be_written_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    results(folder.path());
    let page = folder.path().join("page.html");
    fs::write(&page, "before").unwrap();
    let report = |args: &[&str]| {
        let fixed = ["report", folder.path().to_str().unwrap(), "--resamples", "100", "--html", page.to_str().unwrap()];
        run(fixed.iter().chain(args))
    };
    assert_refused(&report(&["--reference", "nobody"]), &["nobody"]);
    assert_refused(
        &report(&["--reference", "ours", "--html", folder.path().join("no/page.html").to_str().unwrap()]),
        &["no/page.html"],
    );
    assert_eq!(fs::read_to_string(&page).unwrap(), "before");
    // An input is never overwritten. An earlier page is, whatever its name.
    let input = folder.path().join("judged_frontier.csv");
    assert_refused(&report(&["--html", input.to_str().unwrap()]), &["judged_frontier.csv", "would be overwritten"]);
    let settings = folder.path().join("sweep.settings.jsonl");
    fs::write(&settings, "").unwrap();
    let records = folder.path().join("sweep.jsonl");
    let beside = report(&["--records", records.to_str().unwrap(), "--html", settings.to_str().unwrap()]);
    assert_refused(&beside, &["sweep.settings.jsonl", "would be overwritten"]);
    let other = folder.path().join("page.htm");
    for _ in 0..2 {
        stdout(&report(&["--reference", "ours", "--html", other.to_str().unwrap()]));
    }
    assert_eq!(report(&["--reference", "ours", "--table", "methods"]).status.code(), Some(2), "a page is whole");
}

#[test]
fn missing_files_methods_and_tables_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert_refused(&run(["report", path]), &["judged_frontier.csv", "no such file"]);
    results(folder.path());
    assert_refused(&run(["report", path]), &["--reference", "the results have ours"]);
    assert_refused(
        &run(["report", path, "--reference", "ours", "--table", "method"]),
        &["\"method\"", "did you mean \"methods\""],
    );
    assert_refused(&run(["report", path, "--resamples", "0"]), &["--resamples", "at least 1"]);
    for many in ["10000001", "99999999999999", "18446744073709551615"] {
        assert_refused(&run(["report", path, "--resamples", many]), &["--resamples", "at most 10000000"]);
    }
}
