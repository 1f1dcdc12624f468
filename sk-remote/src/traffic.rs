use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What went over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Times that an answer was waited for. Requests that run at once are one round trip.
    pub round_trips: u64,
    /// HTTP requests, with those that were repeated.
    pub requests: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Bytes of the bodies sent.
    pub bytes_out: u64,
    /// Bytes of the bodies received.
    pub bytes_in: u64,
}

impl Traffic {
    /// Returns the traffic since an earlier reading of the same meter: of one step, if it was read
    /// before the step.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            round_trips: self.round_trips.saturating_sub(earlier.round_trips),
            requests: self.requests.saturating_sub(earlier.requests),
            retries: self.retries.saturating_sub(earlier.retries),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
        }
    }
}

/// Counts the traffic of an engine, or of one generation on it.
#[derive(Debug, Default)]
pub struct Meter {
    round_trips: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    /// The meter of the whole, which counts the same.
    whole: Option<Arc<Meter>>,
}

impl Meter {
    /// Returns a meter of a part. What it counts, `whole` counts too.
    pub(crate) fn part_of(whole: &Arc<Self>) -> Self {
        Self { whole: Some(Arc::clone(whole)), ..Self::default() }
    }

    /// The traffic so far.
    #[must_use]
    pub fn read(&self) -> Traffic {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            round_trips: value(&self.round_trips),
            requests: value(&self.requests),
            retries: value(&self.retries),
            bytes_out: value(&self.bytes_out),
            bytes_in: value(&self.bytes_in),
        }
    }

    pub(crate) fn count(&self, traffic: Traffic) {
        self.round_trips.fetch_add(traffic.round_trips, Ordering::Relaxed);
        self.requests.fetch_add(traffic.requests, Ordering::Relaxed);
        self.retries.fetch_add(traffic.retries, Ordering::Relaxed);
        self.bytes_out.fetch_add(traffic.bytes_out, Ordering::Relaxed);
        self.bytes_in.fetch_add(traffic.bytes_in, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.count(traffic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_in_the_whole() {
        let whole = Arc::new(Meter::default());
        let (one, two) = (Meter::part_of(&whole), Meter::part_of(&whole));
        one.count(Traffic { requests: 2, bytes_out: 10, ..Traffic::default() });
        let before = two.read();
        two.count(Traffic { requests: 1, bytes_in: 5, ..Traffic::default() });
        assert_eq!(two.read().since(before), Traffic { requests: 1, bytes_in: 5, ..Traffic::default() });
        assert_eq!(whole.read(), Traffic { requests: 3, bytes_out: 10, bytes_in: 5, ..Traffic::default() });
    }
}
