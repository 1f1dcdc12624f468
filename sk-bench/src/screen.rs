//! Output of a generation: streamed text, tables, a summary, and the trace on disk.

use std::io::{self, IsTerminal, Write};

use sk_core::{Ended, StepTrace};
use sk_models::text::Tokenizer;

use crate::args::OutputArgs;
use crate::certificates::{Certificates, StepCertificate, TOLERANCE};
use crate::explain::Detail;
use crate::plural::counted;
use crate::scheme::SchemeSpec;
use crate::trace::{MOST, StepRecord, TraceFile, is_whole, kept};
use crate::wrap::Wrap;
use crate::{Error, explain, message, terminal};
use sk_models::dialogue::Reply;
use sk_report::grid::wrap;

/// The output of a generation.
///
/// Only the text goes to standard output, so that a pipe gets the same bytes with and without
/// `--explain`.
pub(crate) struct Screen<'t> {
    tokenizer: &'t Tokenizer,
    /// The detail shown of each step.
    pub explain: Option<Detail>,
    stream: bool,
    quiet: bool,
    trace: Option<TraceFile>,
    scheme: SchemeSpec,
    certificates: Certificates,
    /// Whether certificates are shown.
    certify: bool,
    /// Whether the user was told that the scheme has no certificate.
    said_why_not: bool,
    turn: usize,
    /// The current line on standard output.
    line: Line,
}

/// The last line on standard output.
#[derive(Debug)]
enum Line {
    /// A line on a terminal, with wrapped words.
    Wrapped(Wrap),
    /// A line of unchanged text on any other output, and whether it is unfinished.
    Plain(bool),
}

impl Line {
    fn new() -> Self {
        if io::stdout().is_terminal() { Self::Wrapped(Wrap::default()) } else { Self::Plain(false) }
    }

    /// Writes more of the text.
    fn write(&mut self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Self::Wrapped(wrap) => out.write_all(wrap.push(text, terminal::columns()).as_bytes())?,
            Self::Plain(open) => {
                out.write_all(text.as_bytes())?;
                *open = !text.ends_with('\n');
            }
        }
        out.flush()
    }

    /// Ends the line, if it is unfinished.
    fn end(&mut self) -> io::Result<()> {
        let rest = match self {
            Self::Wrapped(wrap) if wrap.is_open() => wrap.finish(terminal::columns()),
            Self::Plain(true) => String::new(),
            Self::Wrapped(_) | Self::Plain(false) => return Ok(()),
        };
        *self = Self::new();
        let mut out = io::stdout().lock();
        writeln!(out, "{rest}")?;
        out.flush()
    }
}

impl<'t> Screen<'t> {
    /// Returns a screen for the steps of `scheme`. If `stream`, it shows the text as it is
    /// generated.
    ///
    /// # Errors
    /// If the trace cannot be created.
    pub(crate) fn new(tokenizer: &'t Tokenizer, options: &OutputArgs, scheme: &SchemeSpec, stream: bool) -> Result<Self, Error> {
        if options.trace.is_some() && !is_whole(scheme) && !options.quiet {
            message::aside(&format!("the trace keeps the {MOST} most likely candidates of each step"));
        }
        Ok(Self {
            tokenizer,
            explain: options.explain,
            stream,
            quiet: options.quiet,
            trace: options.trace.as_deref().map(TraceFile::create).transpose()?,
            scheme: scheme.clone(),
            certificates: Certificates::new(scheme, options.tolerance.unwrap_or(TOLERANCE)),
            certify: options.tolerance.is_some(),
            said_why_not: false,
            turn: 0,
            line: Line::new(),
        })
    }

    /// Switches to the steps of another scheme.
    pub(crate) fn follow(&mut self, scheme: &SchemeSpec) {
        self.scheme = scheme.clone();
        self.certificates = Certificates::new(scheme, self.certificates.tolerance);
        self.said_why_not = false;
    }

    /// Shows a step, if there is one, and the text that follows from it.
    ///
    /// # Errors
    /// If the trace or standard output cannot be written to.
    pub(crate) fn step(&mut self, step: Option<&StepTrace>, text: &str) -> Result<(), Error> {
        if let Some(step) = step {
            let certificate = self.certificates.of(step);
            if let Some(detail) = self.explain {
                self.table(step, detail, &certificate);
            }
            if let Some(trace) = &mut self.trace {
                let (n, step) = (step.candidates.len(), kept(step, &self.scheme));
                trace.write(&StepRecord { n, ..StepRecord::new(self.turn, &step, certificate, self.tokenizer) })?;
            }
        }
        if self.stream && !text.is_empty() {
            self.line.write(text).map_err(Error::Output)?;
        }
        Ok(())
    }

    /// Ends a response: the line, and the summary on standard error.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(crate) fn end(&mut self, reply: &Reply, seed: u64) -> Result<(), Error> {
        self.turn += 1;
        self.end_line()?;
        if !self.quiet {
            let summary = format!(
                "{} in {:.2} s ({:.1} tokens/s), {}, seed {seed}{}",
                counted(reply.tokens.len(), "token"),
                reply.elapsed,
                reply.rate(),
                counted(reply.steps, "step"),
                if reply.ended == Ended::ContextFull { ", stopped: context full" } else { "" },
            );
            message::aside(&summary);
        }
        Ok(())
    }

    /// Ends the line on standard output, if it is unfinished.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(crate) fn end_line(&mut self) -> Result<(), Error> {
        self.line.end().map_err(Error::Output)
    }

    /// Completes the trace as [`TraceFile::finish`] does.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn finish(&mut self, complete: bool) -> Result<(), Error> {
        self.trace.take().map_or(Ok(()), |trace| trace.finish(complete))
    }

    fn table(&mut self, step: &StepTrace, detail: Detail, certificate: &StepCertificate) {
        let error = io::stderr();
        let color = anstream::AutoStream::choice(&error) != anstream::ColorChoice::Never;
        // If both streams may share a terminal or a file, the table must not start in the middle of a
        // line of text, and the text before it must be complete.
        let breaks = match &mut self.line {
            Line::Wrapped(wrap) if error.is_terminal() => {
                let mut out = io::stdout().lock();
                let _ = out.write_all(wrap.finish(terminal::columns()).as_bytes()).and_then(|()| out.flush());
                wrap.restart_line()
            }
            Line::Plain(open) => *open && !error.is_terminal(),
            Line::Wrapped(_) => false,
        };
        let gap = if breaks { "\n" } else { "" };
        // A failure of standard error must not end a generation.
        let shown = match detail {
            Detail::Brief => explain::brief(step, self.tokenizer, color, terminal::error_columns()),
            Detail::Full => explain::table(step, self.tokenizer, color, terminal::error_columns()),
        };
        let _ = writeln!(error.lock(), "{gap}{shown}");
        // A reason that concerns the scheme is shown only once.
        if self.certify && (!self.certificates.never() || !std::mem::replace(&mut self.said_why_not, true)) {
            let text = certificate.to_string();
            let text = if error.is_terminal() { wrap(&text, terminal::error_columns(), 0) } else { text };
            let _ = writeln!(error.lock(), "{text}");
        }
    }
}
