//! Admission of answers: the slots and the memory of the server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ApiError;
use crate::live::lock;

/// The unit in which memory is reserved.
const MEBIBYTE: u64 = 1 << 20;

/// Rounds bytes up to mebibytes.
fn mebibytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(MEBIBYTE)).unwrap_or(u32::MAX)
}

/// The slots and the memory that answers take, and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct Admission {
    slots: Arc<Semaphore>,
    /// In mebibytes.
    memory: Arc<Semaphore>,
    total: usize,
    claims: Mutex<Claims>,
    /// The exponential moving average of the seconds per answer; `None` before the first one ends.
    pace: Mutex<Option<f64>>,
    waiting: Arc<AtomicUsize>,
    unfinished: Arc<AtomicUsize>,
    /// The maximum of `waiting` and of `unfinished`.
    most: [usize; 2],
    concurrent: usize,
}

/// The weight of the latest answer in the average of their seconds.
const LATEST: f64 = 0.2;

/// The claims to memory, in mebibytes, each until its holder is dropped. The largest answer of a
/// request always fits beside all adapters, so that no request waits for memory that only adapters
/// hold.
#[derive(Debug, Default)]
struct Claims {
    /// The adapters that clients have loaded.
    adapters: Vec<(u32, Weak<OwnedSemaphorePermit>)>,
    /// For each unfinished request, the memory of its largest answer and the number of its answers.
    answers: Vec<(u32, usize, Weak<Counted>)>,
}

impl Claims {
    /// Returns the memory of all adapters.
    fn of_adapters(&self) -> u64 {
        self.adapters.iter().map(|(size, _)| u64::from(*size)).sum()
    }

    /// Returns the memory of the largest answer.
    fn of_answer(&self) -> u64 {
        self.answers.iter().map(|(size, ..)| u64::from(*size)).max().unwrap_or(0)
    }
}

impl Admission {
    /// Returns the admission of a server with this memory in bytes, for `concurrent` answers at the
    /// same time and `waiting` requests.
    pub(crate) fn new(memory: u64, concurrent: usize, waiting: usize) -> Self {
        let total = usize::try_from(memory / MEBIBYTE).unwrap_or(usize::MAX).min(u32::MAX as usize);
        Self {
            slots: Arc::new(Semaphore::new(concurrent.clamp(1, Semaphore::MAX_PERMITS))),
            memory: Arc::new(Semaphore::new(total)),
            total,
            claims: Mutex::default(),
            pace: Mutex::default(),
            waiting: Arc::default(),
            unfinished: Arc::default(),
            most: [waiting, concurrent.saturating_add(waiting)],
            concurrent,
        }
    }

    /// Queues the first of the answers of a request, each of which needs at most `bytes`. `field` is
    /// the field of the request that limits the tokens of an answer. The request counts as unfinished
    /// until the [`Counted`] is dropped.
    pub(crate) fn queue(&self, bytes: u64, answers: usize, field: &str) -> Result<(Ticket, Arc<Counted>), ApiError> {
        let size = mebibytes(bytes);
        let unfinished = self.join(size, answers, field)?;
        let place = Place { slots: Arc::clone(&self.slots), memory: Arc::clone(&self.memory), mebibytes: size };
        // Nobody overtakes a request that waits.
        if self.waiting.load(Ordering::Relaxed) == 0
            && let Some(admitted) = place.immediately()
        {
            return Ok((Ticket::Admitted(admitted), unfinished));
        }
        let Some(waiting) = Counted::join(&self.waiting, self.most[0]) else {
            drop(unfinished);
            return Err(self.busy(&self.claims()));
        };
        Ok((Ticket::Waiting(place, waiting), unfinished))
    }

    /// Counts how long an answer took.
    pub(crate) fn ended(&self, seconds: f64) {
        let mut pace = lock(&self.pace);
        *pace = Some(pace.map_or(seconds, |mean| mean + LATEST * (seconds - mean)));
    }

    /// Returns the error for a request that finds the queue full. It asks the client to try again
    /// when the requests that are now unfinished have ended, by an estimate. Before the first answer
    /// has ended there is no estimate, and clients choose the time.
    fn busy(&self, claims: &Claims) -> ApiError {
        let Some(seconds) = *lock(&self.pace) else { return ApiError::busy() };
        let answers: usize = claims.answers.iter().map(|(_, answers, _)| answers).sum();
        let fit = self.total as u64 / claims.of_answer().max(1);
        let rounds = answers.div_ceil(self.concurrent.min(usize::try_from(fit).unwrap_or(usize::MAX)).max(1));
        ApiError::busy().retry_after(Duration::try_from_secs_f64(seconds * rounds as f64).unwrap_or(Duration::MAX))
    }

    /// Counts a request, each of whose answers needs at most `size` mebibytes, as unfinished.
    fn join(&self, size: u32, answers: usize, field: &str) -> Result<Arc<Counted>, ApiError> {
        let mut claims = self.claims();
        let total = (self.total as u64).saturating_sub(claims.of_adapters());
        if u64::from(size) > total {
            let message = format!(
                "the answer may need {size} MiB and this server gives all answers {total} MiB; shorten the prompt, or ask for fewer tokens \
                 with `{field}`"
            );
            return Err(ApiError::invalid(field, message));
        }
        let Some(unfinished) = Counted::join(&self.unfinished, self.most[1]) else { return Err(self.busy(&claims)) };
        let unfinished = Arc::new(unfinished);
        claims.answers.push((size, answers, Arc::downgrade(&unfinished)));
        Ok(unfinished)
    }

    /// Reserves memory for an adapter. Fails immediately if there is not enough, or if too little
    /// would be left for a request that waits.
    pub(crate) fn reserve_adapter(&self, bytes: u64) -> Result<Arc<OwnedSemaphorePermit>, ApiError> {
        let mut claims = self.claims();
        let size = mebibytes(bytes);
        if size as usize > self.total {
            let message = format!("the adapter takes {size} MiB and this server gives all answers {} MiB", self.total);
            return Err(ApiError::invalid("adapter", message));
        }
        if claims.of_adapters() + u64::from(size) + claims.of_answer() > self.total as u64 {
            return Err(ApiError::full());
        }
        let reserved = Arc::new(self.reserve(bytes).ok_or_else(ApiError::full)?);
        claims.adapters.push((size, Arc::downgrade(&reserved)));
        Ok(reserved)
    }

    /// Returns the memory for answers in bytes: what adapters that clients have loaded leave.
    pub(crate) fn memory(&self) -> u64 {
        (self.total as u64).saturating_sub(self.claims().of_adapters()) * MEBIBYTE
    }

    /// Returns the claims whose holders exist.
    fn claims(&self) -> MutexGuard<'_, Claims> {
        let mut claims = lock(&self.claims);
        claims.adapters.retain(|(_, adapter)| adapter.strong_count() > 0);
        claims.answers.retain(|(_, _, request)| request.strong_count() > 0);
        claims
    }

    /// Reserves memory for an adapter, or for an answer that runs. Does not wait: returns `None` if
    /// there is not enough.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.memory).try_acquire_many_owned(mebibytes(bytes)).ok()
    }

    /// Returns the bytes that are reserved, with what is set aside for the answer that waits next,
    /// and the number of waiting requests.
    pub(crate) fn load(&self) -> (u64, usize) {
        let reserved = self.total.saturating_sub(self.memory.available_permits());
        (reserved as u64 * MEBIBYTE, self.waiting.load(Ordering::Relaxed))
    }
}

/// The permits of an answer that runs. Dropping it releases them.
#[derive(Debug)]
pub(crate) struct Admitted {
    _slot: OwnedSemaphorePermit,
    _memory: OwnedSemaphorePermit,
    place: Place,
}

/// The first answer of a request, which was admitted or waits for its permits.
#[derive(Debug)]
pub(crate) enum Ticket {
    Admitted(Admitted),
    Waiting(Place, Counted),
}

impl Ticket {
    /// Returns the place of the further answers of the request.
    pub(crate) fn place(&self) -> &Place {
        match self {
            Self::Admitted(admitted) => &admitted.place,
            Self::Waiting(place, _) => place,
        }
    }

    /// Waits until the answer may run.
    pub(crate) async fn admitted(self) -> Result<Admitted, ApiError> {
        match self {
            Self::Admitted(admitted) => Ok(admitted),
            Self::Waiting(place, _waiting) => place.admitted().await,
        }
    }
}

/// The place of a request in the queues for slots and memory, which its answers wait in.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    slots: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    mebibytes: u32,
}

impl Place {
    /// Waits until an answer may run. Answers are admitted in the order in which they began to wait.
    pub(crate) async fn admitted(self) -> Result<Admitted, ApiError> {
        let closed = |_| ApiError::draining();
        let slot = Arc::clone(&self.slots).acquire_owned().await.map_err(closed)?;
        let memory = Arc::clone(&self.memory).acquire_many_owned(self.mebibytes).await.map_err(closed)?;
        Ok(Admitted { _slot: slot, _memory: memory, place: self })
    }

    /// Admits an answer if it need not wait.
    fn immediately(&self) -> Option<Admitted> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let memory = Arc::clone(&self.memory).try_acquire_many_owned(self.mebibytes).ok()?;
        Some(Admitted { _slot: slot, _memory: memory, place: self.clone() })
    }
}

/// A request that counts towards a limit until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(crate) fn join(count: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let counted = Self(Arc::clone(count));
        (count.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn a_full_queue_estimates_its_time_in_retry_after() {
        let admission = Admission::new(10 * MEBIBYTE, 2, 2);
        let estimate = |size: u64, answers: usize| {
            let queue = || admission.queue(size * MEBIBYTE, answers, "max_tokens");
            let queued = [(); 4].map(|()| queue());
            let refused = queue().unwrap_err().into_response();
            drop(queued);
            assert!(queue().is_ok());
            refused.headers().get("retry-after").map(|seconds| seconds.to_str().unwrap().to_owned())
        };
        assert_eq!(estimate(1, 1), None, "no answer has ended");
        admission.ended(5.0);
        // Answers of five seconds, of which two run at once, or one if memory has no room for two. Then
        // two requests wait beside it.
        let estimates = [(1, 1), (1, 3), (6, 1), (6, 9)].map(|(size, answers)| estimate(size, answers).unwrap());
        assert_eq!(estimates, ["10", "30", "15", "60"]);
    }

    #[test]
    fn an_adapter_leaves_memory_for_the_requests_that_wait() {
        let admission = Admission::new(10 * MEBIBYTE, 1, 8);
        let queue = |size: u64| admission.queue(size * MEBIBYTE, 1, "max_tokens");
        let load = |size: u64| admission.reserve_adapter(size * MEBIBYTE);
        let never = load(11).unwrap_err().into_response().status();
        assert_eq!(never, 400, "trying again does not help");
        let running = queue(2).unwrap();
        let waiting = queue(8).unwrap();
        assert!(matches!((&running.0, &waiting.0), (Ticket::Admitted(_), Ticket::Waiting(..))));
        // 7 MiB would be left.
        assert_eq!(load(3).unwrap_err(), ApiError::full());
        let adapter = load(2).unwrap();
        assert_eq!(admission.memory(), 8 * MEBIBYTE);
        assert!(queue(9).unwrap_err().to_string().contains("gives all answers 8 MiB"));
        drop(waiting);
        let other = load(3).unwrap();
        assert!(queue(6).is_err());
        drop((running, adapter));
        assert!(matches!(queue(7).unwrap().0, Ticket::Admitted(_)));
        drop(other);
        assert_eq!(admission.memory(), 10 * MEBIBYTE);
    }
}
