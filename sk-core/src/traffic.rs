use std::ops::AddAssign;

use serde::Serialize;

/// The network traffic to models behind servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Traffic {
    /// The number of waits for an answer. Concurrent requests are one round trip.
    pub round_trips: u64,
    /// The number of HTTP requests, including retries.
    pub requests: u64,
    /// The number of retries.
    pub retries: u64,
    /// The number of bytes of request bodies.
    pub bytes_out: u64,
    /// The number of bytes of response bodies.
    pub bytes_in: u64,
}

impl Traffic {
    /// Returns the traffic since an earlier count.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.combined(earlier, u64::saturating_sub)
    }

    /// Combines each number with that of `other`.
    fn combined(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            round_trips: combine(self.round_trips, other.round_trips),
            requests: combine(self.requests, other.requests),
            retries: combine(self.retries, other.retries),
            bytes_out: combine(self.bytes_out, other.bytes_out),
            bytes_in: combine(self.bytes_in, other.bytes_in),
        }
    }

    /// Returns whether there was no traffic, as with models in this process.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        *self = self.combined(other, |own, other| own + other);
    }
}
