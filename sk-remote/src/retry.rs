use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, SystemTime};

/// The retry policy for requests without a usable answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The most attempts, at least 1. A check makes at most five.
    pub attempts: u32,
    /// The timeout of one attempt.
    pub patience: Duration,
    /// The time limit of a request with all its attempts and pauses. A request does not wait longer
    /// for a server, even if `Retry-After` asks for it.
    pub deadline: Duration,
    /// The pause before a server is asked again, times a random number from ½ to 1; doubles with each
    /// attempt at any server.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// The time for which a server that failed once is not used while there are others; doubles
    /// with each consecutive failure.
    pub set_aside: Duration,
    /// The longest time for which a server is not used.
    pub longest_aside: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 10,
            patience: Duration::from_secs(60),
            deadline: Duration::from_secs(180),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
            set_aside: Duration::from_secs(1),
            longest_aside: Duration::from_secs(60),
        }
    }
}

impl Retry {
    /// Returns the pause after a failed attempt, counted from 0.
    pub(crate) fn pause(&self, attempt: u32) -> Duration {
        backoff(self.first_pause, attempt, self.longest_pause)
    }

    /// Returns the time for which a server is not used after `failures` ≥ 1 consecutive failures.
    pub(crate) fn aside(&self, failures: u32) -> Duration {
        doubled(self.set_aside, failures.saturating_sub(1), self.longest_aside)
    }
}

/// Returns the pause after a failed attempt, counted from 0: a random share between ½ and 1 of
/// min(longest, first·2^attempt), so that requests that failed together are not retried together.
#[must_use]
pub fn backoff(first: Duration, attempt: u32, longest: Duration) -> Duration {
    doubled(first, attempt, longest).mul_f64(0.5 + 0.5 * jitter())
}

/// Returns min(longest, first·2^times).
fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(longest)
}

/// Returns a uniform number in [0, 1). The standard library seeds each hasher randomly, which
/// suffices for jitter and leaves the generation's own generator untouched.
fn jitter() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Parses the pause in a `Retry-After` header: seconds, or a date. A date in the past gives a pause
/// of zero. `None` for other text, and for seconds that are negative or too large.
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_with_jitter() {
        let second = Duration::from_secs(1);
        let retry = Retry { first_pause: second, longest_pause: 10 * second, ..Retry::default() };
        for (attempt, full) in [(0, 1.0), (1, 2.0), (3, 8.0), (4, 10.0), (40, 10.0)] {
            let pauses: Vec<f64> = (0..50).map(|_| retry.pause(attempt).as_secs_f64()).collect();
            assert!(pauses.iter().all(|pause| (full / 2.0..=full).contains(pause)), "{attempt}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]), "no jitter");
        }
    }

    #[test]
    fn a_server_is_set_aside_longer_each_time() {
        let retry = Retry::default();
        assert_eq!([1, 2, 3, 30].map(|failures| retry.aside(failures).as_secs()), [1, 2, 4, 60]);
    }

    #[test]
    fn servers_name_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_445_412_480); // 21 October 2015, 07:28
        let after = |value| retry_after(value, now);
        assert_eq!(after(" 12 "), Some(Duration::from_secs(12)));
        assert_eq!(after("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(after("Wed, 21 Oct 2015 07:00:00 GMT"), Some(Duration::ZERO));
        for wrong in ["soon", "-1", "NaN", "inf"] {
            assert_eq!(after(wrong), None, "{wrong}");
        }
    }
}
