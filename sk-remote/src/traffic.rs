use std::sync::{Arc, Mutex, PoisonError};

use sk_core::Traffic;

/// Counts the traffic of an engine, or of one generation on it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    traffic: Mutex<Traffic>,
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
        *self.traffic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, traffic: Traffic) {
        *self.traffic.lock().unwrap_or_else(PoisonError::into_inner) += traffic;
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
