use std::collections::BTreeSet;

use sk_core::{Ended, Seconds};

use crate::record::SweepRecord;
use crate::report::{CandidateStep, grouped};
use crate::stats::median;

/// The cost of a scheme's responses.
#[derive(Debug, Clone, PartialEq)]
pub struct Runs {
    /// The scheme.
    pub scheme: String,
    /// The number of responses.
    pub responses: usize,
    /// The number of tokens of all responses.
    pub tokens: usize,
    /// The number of steps of all responses.
    pub steps: usize,
    /// The number of tokens of all candidates; `None` unless every step was traced completely.
    pub drafted: Option<usize>,
    /// The wall time of all responses, in seconds.
    pub elapsed: f64,
    /// The median of a response's wall time, in seconds.
    pub median_elapsed: f64,
    /// The time by part, in seconds.
    pub seconds: Seconds,
    /// The number of responses that ended at the token limit.
    pub limited: usize,
    /// The devices that ran the models.
    pub devices: BTreeSet<String>,
}

impl Runs {
    /// Computes one entry per scheme, in order of first occurrence.
    pub(super) fn by_scheme(records: &[SweepRecord], steps: &[CandidateStep]) -> Vec<Self> {
        let schemes = grouped(records.iter().map(|record| (record.scheme.as_str(), record)));
        schemes.into_iter().map(|(scheme, own)| Self::of(scheme, &own, steps)).collect()
    }

    fn of(scheme: &str, own: &[&SweepRecord], steps: &[CandidateStep]) -> Self {
        let taken = own.iter().map(|record| record.steps).sum::<usize>();
        let drafts: Vec<usize> = steps.iter().filter(|step| step.arm == scheme).map(|step| step.drafted).collect();
        let mut seconds = Seconds::default();
        own.iter().for_each(|record| seconds += record.seconds);
        Self {
            scheme: scheme.to_owned(),
            responses: own.len(),
            tokens: own.iter().map(|record| record.tokens).sum(),
            steps: taken,
            drafted: (drafts.len() == taken).then(|| drafts.iter().sum()),
            elapsed: own.iter().map(|record| record.elapsed).sum(),
            median_elapsed: median(&own.iter().map(|record| record.elapsed).collect::<Vec<_>>()),
            seconds,
            limited: own.iter().filter(|record| record.ended == Ended::Limit).count(),
            devices: own.iter().map(|record| record.device.clone()).collect(),
        }
    }

    /// Returns the response tokens per second of wall time.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.elapsed
    }
}
