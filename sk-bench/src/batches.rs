//! Candidate batches in a file, written by hand or recorded in a trace.

use std::io::BufRead;
use std::path::Path;

use serde::Deserialize;
use sk_core::{Batch, ScoreError, ScoreTable};
use sk_report::lines;

use crate::Error;

/// A batch and its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordedBatch {
    /// Position in the file, from 1.
    pub(crate) position: usize,
    /// The id of the step's cell, in the trace of a sweep.
    id: Option<String>,
    /// Turn and step of a trace, from 0.
    pub(crate) at: Option<(usize, usize)>,
    /// Number of candidates of the step, if the trace holds only some of them.
    pub(crate) cut: Option<usize>,
    mu: Vec<f64>,
    sigma: Vec<f64>,
    fluency: Option<Vec<f64>>,
    blades: Option<ScoreTable>,
}

/// The fields of a batch. Other fields of a trace are ignored.
#[derive(Deserialize)]
struct BatchFields {
    mu: Vec<f64>,
    sigma: Vec<f64>,
    #[serde(default)]
    fluency: Option<Vec<f64>>,
    #[serde(default)]
    blades: Vec<BladeFields>,
    id: Option<serde_json::Value>,
    turn: Option<usize>,
    step: Option<usize>,
    n: Option<usize>,
}

#[derive(Deserialize)]
struct BladeFields {
    name: String,
    mu: Vec<f64>,
    sigma: Vec<f64>,
}

impl RecordedBatch {
    fn new(position: usize, fields: BatchFields) -> Result<Self, ScoreError> {
        let BatchFields { mu, sigma, fluency, blades, id, turn, step, n } = fields;
        let batch = Batch::new(&mu, &sigma)?;
        if let Some(fluency) = &fluency {
            batch.with_fluency(fluency)?;
        }
        let blades = if blades.is_empty() { None } else { Some(table(&blades, mu.len())?) };
        let id = id.and_then(|id| id.as_str().map(str::to_owned));
        let at = step.map(|step| (turn.unwrap_or(0), step));
        let cut = n.filter(|n| *n != mu.len());
        Ok(Self { position, id, at, cut, mu, sigma, fluency, blades })
    }

    /// Returns the batch.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let mut batch = Batch::trusted(&self.mu, &self.sigma);
        if let Some(fluency) = &self.fluency {
            batch = batch.with_trusted_fluency(fluency);
        }
        match &self.blades {
            Some(blades) => batch.with_blades(blades),
            None => batch,
        }
    }

    /// Returns a label: the turn and step of a trace, counted from 1 as in `--explain`, after the
    /// cell of a sweep, or the position in the file.
    pub(crate) fn label(&self) -> String {
        match (&self.id, self.at) {
            (Some(id), Some((_, step))) => format!("{id}, step {}", step + 1),
            (None, Some((turn, step))) => format!("turn {}, step {}", turn + 1, step + 1),
            (_, None) => format!("batch {}", self.position),
        }
    }
}

fn table(blades: &[BladeFields], candidates: usize) -> Result<ScoreTable, ScoreError> {
    let table = ScoreTable::new(blades.iter().map(|blade| (&blade.mu, &blade.sigma)))?;
    if table.candidates() != candidates {
        return Err(ScoreError::Length { quantity: "scores of a blade", expected: candidates, got: table.candidates() });
    }
    table.with_names(blades.iter().map(|blade| blade.name.as_str()))
}

/// Reads the batches of a file: JSON objects with `mu`, `sigma` and optionally `fluency`, one after
/// another or in an array. A trace is such a file. `-` is standard input.
///
/// # Errors
/// If the file cannot be read, is not JSON of that form, holds no batch, or has an invalid score.
pub(crate) fn read(path: &Path) -> Result<Vec<RecordedBatch>, Error> {
    let (reader, name) = if path.as_os_str() == "-" {
        (lines::decoded(std::io::stdin().lock()), Path::new("standard input"))
    } else {
        (lines::open(path), path)
    };
    parse(reader.map_err(Error::reading(name))?, &name.display().to_string())
}

fn parse(mut reader: impl BufRead, file: &str) -> Result<Vec<RecordedBatch>, Error> {
    let refused = |reason: String| Error::Input(format!("{file}: {reason}"));
    let beginning = reader.fill_buf().map_err(Error::reading(Path::new(file)))?;
    let is_array = beginning.trim_ascii_start().starts_with(b"[");
    let mut json = serde_json::Deserializer::from_reader(reader);
    let all: Result<Vec<BatchFields>, _> =
        if is_array { Vec::deserialize(&mut json).and_then(|all| json.end().map(|()| all)) } else { json.into_iter().collect() };
    let all = all.map_err(|error| {
        let hint = if error.is_eof() { "; if a sweep was writing it, run the sweep again" } else { "" };
        refused(format!("{error}{hint}"))
    })?;
    if all.is_empty() {
        return Err(refused("no batch; give JSON with \"mu\" and \"sigma\", or a trace".to_owned()));
    }
    let checked = (1..).zip(all).map(|(position, fields)| {
        RecordedBatch::new(position, fields).map_err(|error| refused(format!("batch {position}: {error}")))
    });
    checked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_batch_several_and_a_trace_are_read() {
        let one = parse(&b"{\n \"mu\": [1, 2],\n \"sigma\": [0.5, 0]\n}\n"[..], "b.json").unwrap();
        assert_eq!((one.len(), one[0].batch().mu(), one[0].batch().sigma()), (1, &[1.0, 2.0][..], &[0.5, 0.0][..]));
        assert_eq!((one[0].label(), one[0].batch().fluency()), ("batch 1".to_owned(), None));
        for text in [
            "{\"mu\":[1],\"sigma\":[0]}\n\n{\"mu\":[2],\"sigma\":[0]}\n",
            " [{\"mu\":[1],\"sigma\":[0]}, {\"mu\":[2],\"sigma\":[0],\"note\":\"x\"}]",
        ] {
            let two = parse(text.as_bytes(), "b.json").unwrap();
            assert_eq!((two.len(), two[1].position, two[1].batch().mu()), (2, 2, &[2.0][..]));
        }
        let record = "{\"turn\":1,\"step\":2,\"candidates\":[{\"text\":\"a\"}],\"blades\":[{\"name\":\"kind\",\"weight\":1,\"mu\":[3],\
                      \"sigma\":[4]}],\"fluency\":[-1.5],\"mu\":[1],\"sigma\":[0],\"certificate\":{\"refused\":\"x\"}}";
        let trace = parse(record.as_bytes(), "t.jsonl").unwrap();
        assert_eq!(trace[0].label(), "turn 2, step 3");
        let cell = record.replacen('{', "{\"id\":\"base/a=1/p:0/42\",", 1);
        assert_eq!(parse(cell.as_bytes(), "t.jsonl").unwrap()[0].label(), "base/a=1/p:0/42, step 3");
        let numbered = parse(&b"{\"id\":7,\"mu\":[1],\"sigma\":[0]}"[..], "b.json").unwrap();
        assert_eq!(numbered[0].label(), "batch 1");
        let batch = trace[0].batch();
        assert_eq!(batch.fluency(), Some(&[-1.5][..]));
        assert_eq!(batch.blades().map(|blades| (blades.find("kind"), blades.mu(0)[0])), Some((Some(0), 3.0)));
        let cut = ["", ",\"n\":1", ",\"n\":4096"]
            .map(|n| parse(format!("{{\"mu\":[1],\"sigma\":[0]{n}}}").as_bytes(), "").unwrap()[0].cut);
        assert_eq!(cut, [None, None, Some(4096)]);
        assert_eq!(parse(&b"{\"mu\":[1],\"sigma\":[0],\"fluency\":null}"[..], "").unwrap()[0].batch().fluency(), None);
    }

    #[test]
    fn files_may_be_packed_and_have_a_mark() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("traces.jsonl.gz");
        let mut file = flate2::write::GzEncoder::new(std::fs::File::create(&path).unwrap(), flate2::Compression::fast());
        std::io::Write::write_all(&mut file, "\u{feff}\n {\"mu\":[1],\"sigma\":[0]}".as_bytes()).unwrap();
        file.finish().unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
    }

    #[test]
    fn invalid_batches_are_refused_with_their_position() {
        for (text, parts) in [
            ("", ["b.json", "no batch", "\"sigma\""]),
            ("[]", ["b.json", "no batch", "a trace"]),
            ("{\"mu\":[1]}", ["b.json", "missing field `sigma`", "line 1"]),
            ("{\"mu\":[1],\"sigma\":[0]}\n{\"mu\":[1,", ["b.json", "EOF", "run the sweep again"]),
            ("mu = 3", ["b.json", "expected value", "line 1"]),
            ("\n\nmu = 3", ["b.json", "expected value", "line 3"]),
            ("{\"mu\":[1],\"sigma\":[0]}{\"mu\":[1,2],\"sigma\":[0]}", ["b.json", "batch 2", "dispersions"]),
            ("{\"mu\":[],\"sigma\":[]}", ["b.json", "batch 1", "candidate"]),
            ("{\"mu\":[1,2],\"sigma\":[0,-1]}", ["batch 1", "candidate 1", "-1"]),
            ("{\"mu\":[1,2],\"sigma\":[0,1],\"fluency\":[1]}", ["batch 1", "fluency", "2"]),
            ("{\"mu\":[1e999],\"sigma\":[0]}", ["b.json", "out of range", "line 1"]),
            ("{\"mu\":[1],\"sigma\":[0],\"blades\":[{\"name\":\"a\",\"mu\":[1,2],\"sigma\":[0,0]}]}", ["batch 1", "blade", "2"]),
        ] {
            let error = parse(text.as_bytes(), "b.json").unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error} lacks one of {parts:?}");
        }
    }
}
