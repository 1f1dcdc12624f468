use std::collections::BTreeSet;

use sk_core::{Ended, Seconds};

use crate::record::SweepRecord;
use crate::report::{CandidateStep, grouped};
use crate::stats::median;

/// What the responses of a scheme took.
#[derive(Debug, Clone, PartialEq)]
pub struct Runs {
    /// The scheme.
    pub scheme: String,
    /// Responses.
    pub responses: usize,
    /// Tokens of all responses.
    pub tokens: usize,
    /// Steps of all responses.
    pub steps: usize,
    /// Tokens of all candidates; none where steps were not kept, or not whole.
    pub drafted: Option<usize>,
    /// Wall time of all responses, in seconds.
    pub elapsed: f64,
    /// The median of a response's wall time, in seconds.
    pub median_elapsed: f64,
    /// Where the time went.
    pub seconds: Seconds,
    /// Responses that ran to the limit on tokens.
    pub limited: usize,
    /// Where the models were.
    pub devices: BTreeSet<String>,
}

impl Runs {
    /// One entry per scheme, in the order in which they occur.
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

    /// Tokens of responses per second of wall time.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.elapsed
    }
}
