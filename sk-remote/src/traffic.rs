use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sk_core::Traffic;

/// Counts the traffic of an engine, or of one generation on it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    round_trips: AtomicU64,
    requests: AtomicU64,
    retries: AtomicU64,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
    /// The meter of the total, which receives the same counts.
    whole: Option<Arc<Meter>>,
}

impl Meter {
    /// Creates a meter whose counts are added to `whole` as well.
    pub(crate) fn part_of(whole: &Arc<Self>) -> Self {
        Self { whole: Some(Arc::clone(whole)), ..Self::default() }
    }

    /// Returns the traffic so far.
    pub(crate) fn read(&self) -> Traffic {
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
