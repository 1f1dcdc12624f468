//! Admission of answers: the slots and the memory of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::ApiError;

/// The unit in which memory is reserved.
pub(crate) const MEBIBYTE: u64 = 1 << 20;

/// Rounds bytes up to mebibytes.
pub(crate) fn mebibytes(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(MEBIBYTE)).unwrap_or(u32::MAX)
}

/// The slots and the memory that answers take, and the requests that wait for them.
#[derive(Debug)]
pub(crate) struct Admission {
    slots: Arc<Semaphore>,
    /// In mebibytes.
    memory: Arc<Semaphore>,
    total: usize,
    waiting: Arc<AtomicUsize>,
    unfinished: Arc<AtomicUsize>,
    /// The maximum of `waiting` and of `unfinished`.
    most: [usize; 2],
}

impl Admission {
    /// Returns the admission of a server with this memory in bytes, for `concurrent` answers at the
    /// same time and `waiting` requests.
    pub(crate) fn new(memory: u64, concurrent: usize, waiting: usize) -> Self {
        let total = usize::try_from(memory / MEBIBYTE).unwrap_or(usize::MAX).clamp(1, u32::MAX as usize);
        Self {
            slots: Arc::new(Semaphore::new(concurrent.clamp(1, Semaphore::MAX_PERMITS))),
            memory: Arc::new(Semaphore::new(total)),
            total,
            waiting: Arc::default(),
            unfinished: Arc::default(),
            most: [waiting, concurrent.saturating_add(waiting)],
        }
    }

    /// Queues the first answer of a request, each of whose answers needs at most `bytes`.
    pub(crate) fn queue(&self, bytes: u64) -> Result<Ticket, ApiError> {
        let [most_waiting, most_unfinished] = self.most;
        let place = Place {
            slots: Arc::clone(&self.slots),
            memory: Arc::clone(&self.memory),
            mebibytes: mebibytes(bytes),
            _unfinished: Arc::new(Counted::join(&self.unfinished, most_unfinished)?),
        };
        // Nobody overtakes a request that waits.
        if self.waiting.load(Ordering::Relaxed) == 0
            && let Some(admitted) = place.immediately()
        {
            return Ok(Ticket::Admitted(admitted));
        }
        Ok(Ticket::Waiting(place, Counted::join(&self.waiting, most_waiting)?))
    }

    /// Reserves memory for an answer that runs. Fails immediately if there is not enough.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.memory).try_acquire_many_owned(mebibytes(bytes)).map_err(|_| ApiError::busy())
    }

    /// Returns the bytes that are reserved, and the number of waiting requests.
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

/// Where the answers of a request wait for one of the server's slots and for memory.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    slots: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    mebibytes: u32,
    _unfinished: Arc<Counted>,
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
    fn join(count: &Arc<AtomicUsize>, most: usize) -> Result<Self, ApiError> {
        let counted = Self(Arc::clone(count));
        if count.fetch_add(1, Ordering::Relaxed) >= most { Err(ApiError::busy()) } else { Ok(counted) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
