//! Feeds parsers with damaged inputs. A parser must accept or refuse each input without a panic,
//! within two seconds of CPU time and 256 MiB of memory.
//!
//! ```sh
//! cargo test --release -p sk-bench --test fuzz -- [TARGET…] [--count N | --seconds S] [--seed S] [--from N] [--file PATH]
//! ```
//!
//! An input is a randomly changed entry of `corpus/TARGET`. It depends only on the target, the seed
//! and its number. By default, each target runs for a second. An input that fails, or that kills
//! the process, is kept in `target/tmp/fuzz-TARGET`; `--file` runs it again. Add it to the corpus
//! when the bug is fixed.

#[path = "../src/judge/answer.rs"]
#[allow(dead_code, unreachable_pub)] // the module has tests of its own
mod answer;
mod mutate;
mod targets;
mod watch;

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
// Used by the module `answer`.
use sk_bench::judge::Scale;

use mutate::{input, rng};
use targets::{Scratch, TARGETS, Target, corpus};
use watch::MOST_BYTES;

#[global_allocator]
static ALLOCATOR: watch::Counting = watch::Counting;

/// Maximum CPU time of an input.
const MOST_TIME: Duration = Duration::from_secs(2);

/// The command-line options.
struct Options {
    targets: Vec<usize>,
    count: u64,
    time: Duration,
    seed: u64,
    from: u64,
    file: Option<PathBuf>,
}

impl Options {
    /// Parses the options. The error is the reason why there is nothing to do.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options =
            Self { targets: Vec::new(), count: u64::MAX, time: Duration::from_secs(1), seed: 1, from: 0, file: None };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: String| text.parse::<u64>().map_err(|_| format!("`{text}` is not a whole number"));
            match word.as_str() {
                "--count" => (options.count, options.time) = (number(value()?)?, Duration::MAX),
                "--seconds" => options.time = Duration::from_secs(number(value()?)?),
                "--seed" => options.seed = number(value()?)?,
                "--from" => options.from = number(value()?)?,
                "--file" => options.file = Some(value()?.into()),
                name => match TARGETS.iter().position(|target| target.name == name) {
                    Some(target) => options.targets.push(target),
                    // The test runner passes its own options and filters to every test.
                    None => {
                        return Err(format!("`{name}` is no target; there are {}", TARGETS.map(|target| target.name).join(", ")));
                    }
                },
            }
        }
        if options.targets.is_empty() {
            options.targets = (0..TARGETS.len()).collect();
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(reason) => {
            println!("nothing is fuzzed: {reason}");
            return ExitCode::SUCCESS;
        }
    };
    // Use a folder in memory if the system has one, because each input is written to files.
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
    let folder = tempfile::Builder::new().prefix("swiss-knife-fuzz-").tempdir_in(folder).expect("a folder can be created");
    let scratch = Scratch::new(folder.path());
    watch::guard();
    // Print only the message of a panic; the input is reported with the failure.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let failed = options.targets.iter().filter(|&&target| !fuzz(target, &options, &scratch)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a target, and returns whether all inputs passed.
fn fuzz(index: usize, options: &Options, scratch: &Scratch) -> bool {
    let target = &TARGETS[index];
    if let Some(path) = &options.file {
        let bytes = fs::read(path).expect("the file can be read");
        return told(target, scratch, &bytes, &path.display().to_string());
    }
    let mut paths: Vec<PathBuf> = fs::read_dir(corpus(target.name))
        .expect("every target has a corpus")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    paths.sort();
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).expect("it can be read")).collect();
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
    for (path, bytes) in paths.iter().zip(&corpus) {
        fs::write(&kept, bytes).expect("the input can be kept");
        if !told(target, scratch, bytes, &path.display().to_string()) {
            return false;
        }
    }
    let mut file = File::create(&kept).expect("the input can be kept");
    let (start, mut slowest, mut largest, mut done) = (Instant::now(), Duration::ZERO, 0, 0);
    while done < options.count && start.elapsed() < options.time {
        let number = options.from + done;
        let bytes = input(&mut rng(options.seed, index, number), &corpus, target.words, target.syntax);
        // Write the input to disk before it runs, because it may kill the process.
        file.rewind()
            .and_then(|()| file.write_all(&bytes))
            .and_then(|()| file.set_len(bytes.len() as u64))
            .expect("the input can be kept");
        match cost(target, scratch, &bytes) {
            Ok((time, memory)) => (slowest, largest) = (slowest.max(time), largest.max(memory)),
            Err(reason) => {
                eprintln!("{}: input {number} of seed {} {reason}; it is {}", target.name, options.seed, kept.display());
                return false;
            }
        }
        done += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{}: {done} inputs in {seconds:.0} s; the slowest took {:.3} s, the largest {} MiB",
        target.name,
        slowest.as_secs_f64(),
        largest >> 20
    );
    let _ = fs::remove_file(kept);
    true
}

/// Runs one input and prints its failure, if any. Returns whether it passed.
fn told(target: &Target, scratch: &Scratch, bytes: &[u8], name: &str) -> bool {
    cost(target, scratch, bytes).map_err(|reason| eprintln!("{}: {name} {reason}", target.name)).is_ok()
}

/// Returns the CPU time and memory of an input, or the reason why it failed.
fn cost(target: &Target, scratch: &Scratch, bytes: &[u8]) -> Result<(Duration, usize), String> {
    let mut outcome = Ok(());
    let start = ProcessTime::now();
    let memory = watch::peak(|| outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(scratch, bytes))));
    // CPU time does not depend on the load of the machine.
    let time = start.elapsed();
    outcome.map_err(|_| "panics".to_owned())?;
    if memory > MOST_BYTES {
        return Err(format!("takes {} MiB", memory >> 20));
    }
    if time > MOST_TIME {
        return Err(format!("takes {:.1} s", time.as_secs_f64()));
    }
    Ok((time, memory))
}
