//! `swiss-knife certify`: bounds on the effect of score changes on the choice from a batch.

mod report;

use std::fmt::Display;
use std::path::PathBuf;

use clap::Args;
use sk_aggregate::{Audit, Jump};
use sk_core::{ParameterError, Selector};

use crate::args::{positive, tolerance};
use crate::batches::{self, RecordedBatch};
use crate::certificates::TOLERANCE;
use crate::scheme::{Parameter, SchemeError, SchemeSpec, Steering, Uncertified, kind_named};
use crate::{Error, output};
use report::{Certified, CertifiedStep, CertifyReport};

const EXAMPLES: &str = "\
Examples:
  # The largest change of the scores that moves the choice by at most 0.05
  echo '{\"mu\": [0.3, 0.1, -0.2], \"sigma\": [1, 0.5, 0.8]}' | swiss-knife certify - --tolerance 0.05

  # What a change of at most 0.01 can do to each step of a trace, under another operator
  swiss-knife certify steps.jsonl --aggregator asinh --temperature 0.5 --delta 0.01

  # The worst jump that a search finds for the reference scheme, which has no certificate
  swiss-knife certify steps.jsonl --batch 1 --aggregator swiss-elo \\
    --selector champion --delta 1e-6 --audit --anywhere

A certificate holds for every change. What an audit finds is real; finding nothing proves nothing.";

/// Options of `certify`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_override_self = true)]
pub struct CertifyArgs {
    /// The batches: JSON with "mu", "sigma" and perhaps "fluency", or a trace. `-` is standard
    /// input.
    ///
    /// Objects stand one after another or in an array. The steps of a trace (--trace of `generate`
    /// and `chat`) are such objects.
    #[arg(value_name = "FILE")]
    batches: PathBuf,
    /// Only the batch at this position in the file, from 1.
    #[arg(long, value_name = "K", value_parser = positive)]
    batch: Option<usize>,
    /// Largest change of a score: prints the bound on the change of the choice.
    #[arg(long, value_name = "DELTA", allow_negative_numbers = true)]
    delta: Option<f64>,
    /// Largest total variation of the choice: prints the certified radius.
    ///
    /// 0.1 unless --delta is given.
    #[arg(long, value_name = "TAU", value_parser = tolerance)]
    tolerance: Option<f64>,
    /// Take aggregator and selector from a scheme, as `generate` does: a TOML file, or one that
    /// ships (see `swiss-knife schemes`).
    #[arg(long, value_name = "NAME|FILE", help_heading = "Scheme")]
    scheme: Option<PathBuf>,
    /// Aggregator, as in a scheme file: thurstone, unless a scheme says otherwise.
    ///
    /// Scores enter as they are; those of the tournament are standardised, as published.
    #[arg(long, value_name = "KIND", value_parser = |name: &str| kind_named("aggregator", name), help_heading = "Scheme")]
    aggregator: Option<String>,
    /// Selector, as in a scheme file: softmax, unless a scheme says otherwise.
    #[arg(long, value_name = "KIND", value_parser = |name: &str| kind_named("selector", name), help_heading = "Scheme")]
    selector: Option<String>,
    /// T of the selector: that of the scheme; without one, 1 for softmax and 8 for champion.
    #[arg(long, value_name = "T", allow_negative_numbers = true, help_heading = "Scheme")]
    temperature: Option<f64>,
    /// α, coefficient of the fluency scores where the batches have them: 0.5, unless a scheme says
    /// otherwise.
    #[arg(long, value_name = "ALPHA", allow_negative_numbers = true, help_heading = "Scheme")]
    alpha: Option<f64>,
    /// Search for the worst jump that a change of at most --delta makes.
    #[arg(long, requires = "delta", help_heading = "Audit")]
    audit: bool,
    /// Search from any scores, not only from those of the batch; dispersions and fluency stay.
    #[arg(long, requires = "audit", help_heading = "Audit")]
    anywhere: bool,
    /// Distributions that a search computes.
    #[arg(long, value_name = "COUNT", default_value_t = Audit::DEFAULT_EVALUATIONS, requires = "audit", value_parser = positive, help_heading = "Audit")]
    evaluations: usize,
    /// Seed of the search.
    #[arg(long, default_value_t = Audit::DEFAULT_SEED, requires = "audit", help_heading = "Audit")]
    seed: u64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Certifies the batches, or audits them, and prints the report on standard output.
///
/// If an audit finds a violation of a certificate or a choice that is not a distribution, returns
/// an error after the report.
pub(crate) fn run(args: &CertifyArgs) -> Result<(), Error> {
    let config = args.config()?;
    let audit = args.audit()?;
    let batches = args.batches()?;
    let stability = config.stability();
    let tolerance = args.tolerance.or(args.delta.is_none().then_some(TOLERANCE));
    let mut rows = Vec::with_capacity(batches.len());
    for recorded in &batches {
        let certificate = match (&stability, recorded.cut) {
            (Ok(_), Some(of)) => Err(Uncertified::Cut { kept: recorded.batch().len(), of }),
            (Ok(stability), None) => stability.certificate(&recorded.batch()).map_err(Uncertified::from),
            (Err(reason), _) => Err(reason.clone()),
        };
        let certified = certificate.clone().and_then(|certificate| Ok(Certified::new(&certificate, args.delta, tolerance)?));
        let mut row = CertifiedStep::new(recorded, certified);
        if let Some(audit) = audit.as_ref().filter(|_| recorded.cut.is_none()) {
            row.audited(args.search(audit, &config, recorded)?, audit.radius(), certificate.ok().as_ref());
        }
        rows.push(row);
    }
    if audit.is_none()
        && let Some(reasons) = rows.iter().map(CertifiedStep::refused).collect::<Option<Vec<_>>>()
        && let [first, ..] = reasons[..]
    {
        let cure = "give --delta and --audit to search for the largest change instead";
        return Err(Error::Input(format!("no certificate: {first}; {cure}")));
    }
    let selector = &config.selector;
    let report = CertifyReport {
        aggregator: config.aggregator.kind(),
        selector: selector.rule.kind(),
        temperature: selector.rule.temperature(),
        delta: args.delta,
        tolerance,
        batches: rows,
    };
    if args.json {
        output::print(output::pretty_json(&report)?)?;
    } else {
        output::print_lines(&report.to_string())?;
    }
    report.fault().map_or(Ok(()), |reason| Err(Error::Unsound { reason }))
}

impl CertifyArgs {
    /// Returns aggregator and selector: those of the scheme, or else the defaults, changed by the
    /// options.
    fn config(&self) -> Result<SchemeSpec, SchemeError> {
        let alone = self.scheme.is_none();
        let mut config = if alone {
            SchemeSpec::default()
        } else {
            Steering { scheme: self.scheme.clone(), ..Steering::default() }.spec(false)?
        };
        if let Some(kind) = self.aggregator.as_deref().or(alone.then_some("thurstone")) {
            config.amend("--aggregator", &format!("[aggregator]\nkind = \"{kind}\"\n"))?;
            if alone && config.aggregator.entry().is_some() {
                let standardize = kind == "swiss-elo";
                config.amend("--aggregator", &format!("[aggregator]\nstandardize = {standardize}\n"))?;
            }
        }
        let chosen = self.selector.as_deref().or(alone.then_some("softmax"));
        if let Some(kind) = chosen.filter(|kind| *kind != config.selector.rule.kind()) {
            config.amend("--selector", &format!("[selector]\nkind = \"{kind}\"\n"))?;
        }
        for (name, value) in [("temperature", self.temperature), ("alpha", self.alpha)] {
            if let (Some(parameter), Some(value)) = (Parameter::named(name), value) {
                parameter.set(&mut config, value)?;
            }
        }
        config.check()?;
        Ok(config)
    }

    fn audit(&self) -> Result<Option<Audit>, Error> {
        let usage = |error: ParameterError| Error::Input(error.to_string());
        let Some(delta) = self.delta else { return Ok(None) };
        let audit = Audit::new(delta).map_err(usage)?.with_evaluations(self.evaluations).with_seed(self.seed);
        Ok(self.audit.then_some(audit))
    }

    fn batches(&self) -> Result<Vec<RecordedBatch>, Error> {
        let mut batches = batches::read(&self.batches)?;
        if let Some(position) = self.batch {
            let count = batches.len();
            batches.retain(|batch| batch.position == position);
            if batches.is_empty() {
                return Err(self.fault(format!("batch {position} is asked for, and the file has {count}")));
            }
        }
        Ok(batches)
    }

    fn search(&self, audit: &Audit, config: &SchemeSpec, recorded: &RecordedBatch) -> Result<Jump, Error> {
        // Values out of range were refused before.
        let parameter = |error: ParameterError| Error::Input(error.to_string());
        let aggregator = config.aggregator.build().map_err(parameter)?;
        let selector = config.selector.build().map_err(parameter)?;
        let batch = recorded.batch();
        for name in Selector::<f64>::blades(&*selector) {
            if batch.blades().and_then(|blades| blades.find(&name)).is_none() {
                let reason =
                    format!("batch {}: the selector looks at blade \"{name}\", which has no scores there", recorded.position);
                return Err(self.fault(reason));
            }
        }
        Ok(if self.anywhere {
            audit.anywhere(&*aggregator, &*selector, &batch)
        } else {
            audit.around(&*aggregator, &*selector, &batch)
        })
    }

    fn fault(&self, reason: impl Display) -> Error {
        Error::Input(format!("{}: {reason}", self.batches.display()))
    }
}
