//! Traces: one JSON object per step, in lines.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sk_core::{ArmTrace, Decision, ScoreTrace, SpanEnd, StepTrace, TokenId, Traffic};
use sk_models::text::Tokenizer;
use sk_models::whole_file::WholeFile;

use crate::Error;
use sk_core::Seconds;

use crate::promise::StepPromise;

/// A step as it stands in a trace: [`StepTrace`] with the text of each candidate, and times in
/// seconds.
#[derive(Debug, Serialize)]
pub struct StepRecord<'a> {
    /// Position of the response in the dialogue, from 0.
    pub turn: usize,
    /// Position of the step in the response, from 0.
    pub step: usize,
    /// Tokens of the context that the candidates continue.
    pub position: usize,
    /// N, candidates of the step. All of them follow, but of a vocabulary in a sweep.
    pub n: usize,
    /// The candidates, in the order of the proposal.
    pub candidates: Vec<CandidateRecord<'a>>,
    /// Scores of each blade of positive weight.
    pub blades: &'a [ScoreTrace],
    /// ℓ_S of each candidate in nats per token, where a fluency blade is seated.
    pub fluency: Option<&'a [f64]>,
    /// Composites, ratings, probabilities and the candidate drawn.
    #[serde(flatten)]
    pub decision: &'a Decision,
    /// What other arms make of the same candidates, where there are any.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub arms: &'a [ArmTrace],
    /// Where only the likeliest tokens of the vocabulary were to be had from a server, how many they
    /// are; their probabilities were divided by their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<usize>,
    /// What went over the network, where models are behind servers.
    #[serde(skip_serializing_if = "Traffic::is_none")]
    pub traffic: Traffic,
    /// Within which radius the choice is certified, or why it is not.
    pub certificate: StepPromise,
    /// Wall time of each part of the step.
    pub seconds: Seconds,
}

/// One candidate of a [`StepRecord`].
#[derive(Debug, Serialize)]
pub struct CandidateRecord<'a> {
    /// Its text. A span may end inside a character; what is not whole is U+FFFD here, and the
    /// tokens are the truth.
    pub text: String,
    /// Its tokens.
    pub tokens: &'a [TokenId],
    /// Why it ends.
    pub end: SpanEnd,
}

impl<'a> StepRecord<'a> {
    /// The record of a step.
    pub fn new(turn: usize, trace: &'a StepTrace, certificate: StepPromise, tokenizer: &Tokenizer) -> Self {
        let record = |c: &'a sk_core::CandidateTrace| CandidateRecord {
            text: span_text(tokenizer, &c.tokens),
            tokens: &c.tokens,
            end: c.end,
        };
        Self {
            turn,
            step: trace.step,
            position: trace.position,
            n: trace.candidates.len(),
            candidates: trace.candidates.iter().map(record).collect(),
            blades: &trace.blades,
            fluency: trace.fluency.as_deref(),
            decision: &trace.decision,
            arms: &trace.arms,
            head: trace.head,
            traffic: trace.traffic,
            certificate,
            seconds: Seconds::of(trace),
        }
    }
}

/// The text of a span, special tokens spelled out. A token the tokenizer lacks (an embedding may
/// have spare rows) has none.
pub fn span_text(tokenizer: &Tokenizer, tokens: &[TokenId]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| tokenizer.token_bytes(token).unwrap_or_default()).copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A trace being written.
///
/// It takes its path when it is finished: a reader sees a whole trace or none, and an earlier trace
/// survives a generation that fails.
pub struct TraceFile {
    path: PathBuf,
    file: WholeFile,
}

impl TraceFile {
    /// Starts a trace that will be called `path`.
    ///
    /// # Errors
    /// When the directory is missing or cannot be written to.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = WholeFile::create(path).map_err(|source| Error::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// When the file cannot be written to.
    pub fn write(&mut self, record: &StepRecord<'_>) -> Result<(), Error> {
        serde_json::to_writer(&mut self.file, record)
            .map_err(std::io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|source| Error::Write { path: self.path.clone(), source })
    }

    /// Gives the trace its name.
    ///
    /// # Errors
    /// When the file cannot be written or renamed.
    pub fn finish(self) -> Result<(), Error> {
        let Self { path, file } = self;
        file.finish().map_err(|source| Error::Write { path, source })
    }
}
