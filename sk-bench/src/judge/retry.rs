//! Retries: exponential backoff with jitter, and the `Retry-After` header.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sk_remote::backoff;

use crate::interrupt;

/// Interval at which a pause checks for Ctrl-C.
const SLICE: Duration = Duration::from_millis(50);

/// How often and how soon a failed request is retried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// Maximum number of attempts, including the first. While a server that limits the rate answers
    /// other questions, its refusals do not count, up to ten times as many.
    pub attempts: u32,
    /// The pause after the first failure. It doubles each time.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// The longest pause accepted from `Retry-After`. If a server asks for a longer one, the
    /// request is not retried.
    pub patience: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 6, first: Duration::from_secs(1), longest: Duration::from_secs(60), patience: Duration::from_secs(600) }
    }
}

impl Retry {
    /// Returns the pause after a failed attempt, counted from 0.
    pub(super) fn pause(&self, attempt: u32) -> Duration {
        backoff(self.first, attempt, self.longest)
    }
}

/// What all questions of a judge share, because an overloaded server is overloaded for all of them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The earliest time of the next request.
    not_before: Mutex<Option<Instant>>,
    /// The number of questions that the server has answered.
    answered: AtomicUsize,
    /// Whether nothing is asked any more.
    stopped: AtomicBool,
}

impl Pace {
    /// Delays all requests by `pause`.
    pub(super) fn hold(&self, pause: Duration) {
        let mut not_before = self.not_before.lock().unwrap_or_else(PoisonError::into_inner);
        *not_before = (*not_before).max(Instant::now().checked_add(pause));
    }

    /// Waits for `pause`, and then until requests are allowed. Returns `false` if Ctrl-C was pressed
    /// or nothing is asked any more.
    pub(super) fn wait(&self, pause: Duration) -> bool {
        let end = Instant::now().checked_add(pause);
        while !interrupt::requested() && !self.stopped.load(Ordering::Relaxed) {
            let time = end.max(*self.not_before.lock().unwrap_or_else(PoisonError::into_inner));
            let left = time.map_or(Duration::ZERO, |time| time.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(SLICE));
        }
        false
    }

    /// Counts a question that the server has answered.
    pub(super) fn count_answer(&self) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of questions that the server has answered.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Ends all waits. Nothing is asked any more.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}
