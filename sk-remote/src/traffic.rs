use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sk_core::{TimeLeft, Traffic};

/// The interval at which a pause checks whether a generation is stopped.
const SLICE: Duration = Duration::from_millis(50);

/// Counts the traffic of an engine, or of one generation on it, and limits its time.
#[derive(Default)]
pub(crate) struct Meter {
    traffic: Mutex<Traffic>,
    /// `None` for an unlimited time.
    left: Option<TimeLeft>,
    /// The meter of the total, which receives the same counts.
    whole: Option<Arc<Meter>>,
}

impl Meter {
    /// Creates a meter whose counts are added to `whole` as well.
    pub(crate) fn part_of(whole: &Arc<Self>, left: Option<TimeLeft>) -> Self {
        Self { whole: Some(Arc::clone(whole)), left, ..Self::default() }
    }

    /// Returns the time left.
    pub(crate) fn left(&self) -> Duration {
        self.left.as_ref().map_or(Duration::MAX, |left| left())
    }

    /// Sleeps, but not past the time left.
    pub(crate) fn sleep(&self, pause: Duration) {
        let start = Instant::now();
        while let Some(rest) = pause.checked_sub(start.elapsed()).map(|rest| rest.min(self.left()))
            && !rest.is_zero()
        {
            std::thread::sleep(rest.min(SLICE));
        }
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
        let (one, two) = (Meter::part_of(&whole, None), Meter::part_of(&whole, None));
        one.count(Traffic { requests: 2, bytes_out: 10, ..Traffic::default() });
        let before = two.read();
        two.count(Traffic { requests: 1, bytes_in: 5, ..Traffic::default() });
        assert_eq!(two.read().since(before), Traffic { requests: 1, bytes_in: 5, ..Traffic::default() });
        assert_eq!(whole.read(), Traffic { requests: 3, bytes_out: 10, bytes_in: 5, ..Traffic::default() });
    }
}
