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
        Self {
            round_trips: self.round_trips.saturating_sub(earlier.round_trips),
            requests: self.requests.saturating_sub(earlier.requests),
            retries: self.retries.saturating_sub(earlier.retries),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
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
        self.round_trips += other.round_trips;
        self.requests += other.requests;
        self.retries += other.retries;
        self.bytes_out += other.bytes_out;
        self.bytes_in += other.bytes_in;
    }
}
