use std::ops::AddAssign;

use serde::Serialize;

/// What went over the network to models behind servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
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
    /// Returns the traffic since an earlier count: of one step, if it was taken before the step.
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

    /// Whether nothing was sent, as by models of this process.
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
