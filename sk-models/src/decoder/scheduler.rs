//! Joins the passes of several requests.
//!
//! A pass over the few rows of one request reads all weights once. A joined pass over the rows of
//! sixteen requests also reads them only once. Each request runs on a thread of its own, which
//! joins the scheduler and submits one job at a time. Passes with equal keys are joined. The next
//! pass starts:
//!
//! - when every request that has joined waits, or
//! - when the waiting positions of the next key fill a pass, and no request that computes was served
//!   less than the next one, or
//! - when [`LONGEST_WAIT`] has elapsed since the first job began to wait or the last pass ended.
//!
//! So a request that selects, tokenises or writes to a slow socket does not hold up the others. The
//! request that was served the fewest positions is next, whatever the key of its pass. Jobs with
//! the same key join its pass in the same order (start-time fair queueing: Goyal, Vin and Cheng,
//! 1996). After every `BY_SERVICE` positions, the job that has waited longest is next, so that many
//! short requests do not starve a long context. On a CPU rows are independent, so the results of a
//! request are bit-identical to those that it gets alone. On a GPU the number of rows selects the
//! kernels, which round differently.
//!
//! On a CPU, draws of tokens and readings of log-probabilities are jobs too. Otherwise they would
//! compete with a pass for threads and caches.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The time for which the first waiting job waits for others to join its pass, after it began to wait
/// or the last pass ended.
pub const LONGEST_WAIT: Duration = Duration::from_millis(1);

/// Positions that fill a pass. A larger pass does not save reads of weights.
const FULL: usize = 512;

/// Positions that are served in fair order before the job that has waited longest is next.
const BY_SERVICE: usize = 4 * FULL;

/// Joins the passes of the threads that have [joined](Self::join).
///
/// [`Decoder::scheduled`](super::Decoder::scheduled) attaches it to a decoder. A thread that has
/// not joined runs its passes alone, without waiting.
#[derive(Debug, Clone, Default)]
pub struct Scheduler(Arc<Shared>);

/// A flag that stops a request. Clones share the flag.
///
/// A stopped request fails before its next pass. Its memory is freed when its thread drops it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns a flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the request.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the request was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request was [stopped](Stop::stop).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the request was stopped")]
pub struct Stopped;

/// The size of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassSize {
    /// Requests that share the pass.
    pub requests: usize,
    /// Positions that the pass reads. In a pass that computes logits, each request counts as one.
    pub positions: usize,
}

/// The callback that receives the size of each pass.
type Observer = Box<dyn Fn(PassSize) + Send + Sync>;

/// The state of a [`Scheduler`] that its threads share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    observer: OnceLock<Observer>,
}

#[derive(Default)]
struct State {
    /// The positions served of each request that has joined, is not away and waits for no job.
    computing: Vec<u64>,
    /// Whether jobs are running.
    running: bool,
    jobs: Vec<Entry>,
    /// The id of the next entry.
    next_id: u64,
    /// When the first job began to wait, or the last pass ended, whichever was later.
    since: Option<Instant>,
    /// The virtual time of fair queueing: the fewest positions that any waiting request had been
    /// served at the start of the last pass. It never decreases. A request that was away resumes
    /// from it.
    clock: u64,
    /// Positions served since the job that had waited longest was next.
    by_service: usize,
}

/// The part of a pass's key that the engine chooses. Passes of one engine with equal keys can be
/// joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PassKey {
    /// The number of the seats, or zero if rows under different seats can share a pass.
    pub(super) seats: u64,
    /// The kind of pass, numbered by the engine.
    pub(super) kind: usize,
}

/// The whole key of a pass: the address of the engine, the type of the job and the engine's part.
type Key = (usize, u8, PassKey);

/// The part of a pass that belongs to one request.
///
/// # Safety
///
/// Types that are submitted for one engine have different values of `TYPE`.
pub(super) unsafe trait Job: Send {
    /// A number that identifies the type of the job.
    const TYPE: u8;
    /// Whether jobs of this type are passes, whose sizes observers receive.
    const IS_PASS: bool = true;

    /// Runs jobs of one key in one pass.
    fn run(jobs: &mut [&mut Self]);
}

/// A submitted job.
struct Entry {
    id: u64,
    key: Key,
    positions: usize,
    /// Positions that its request was served before, but at least the clock.
    start: u64,
    job: Erased,
    outcome: Outcome,
}

enum Outcome {
    Pending,
    /// Taken by the thread that runs the pass.
    Taken,
    Done,
    Panicked(String),
}

/// A type-erased job on the stack of the thread that waits for it, and the function that runs jobs
/// of its type.
#[derive(Clone, Copy)]
struct Erased {
    job: *mut (),
    run: unsafe fn(&[*mut ()]),
    is_pass: bool,
}

// SAFETY: the thread that owns the job waits until the job's outcome is set, and until then only
// the thread that runs the pass uses the job, which is `Send`.
unsafe impl Send for Erased {}

impl Erased {
    fn new<J: Job>(job: &mut J) -> Self {
        /// # Safety
        /// Every pointer is to a different live `J` that nothing else uses.
        unsafe fn run<J: Job>(jobs: &[*mut ()]) {
            // SAFETY: as the caller promises.
            let mut jobs: Vec<&mut J> = jobs.iter().map(|&job| unsafe { &mut *job.cast::<J>() }).collect();
            J::run(&mut jobs);
        }
        Self { job: std::ptr::from_mut(job).cast(), run: run::<J>, is_pass: J::IS_PASS }
    }
}

thread_local! {
    /// The request of this thread.
    static OWN: RefCell<Option<Own>> = const { RefCell::new(None) };
}

/// The state of a thread's request.
struct Own {
    scheduler: usize,
    stop: Stop,
    /// Positions served so far, counted from at least the clock at each submission.
    served: u64,
}

/// Returns an error if the request of this thread was stopped.
pub(crate) fn check_stopped() -> Result<(), Stopped> {
    OWN.with_borrow(|own| if own.as_ref().is_some_and(|own| own.stop.is_stopped()) { Err(Stopped) } else { Ok(()) })
}

/// The request of a thread that has joined a [`Scheduler`]. The thread leaves when the value is
/// dropped.
#[derive(Debug)]
pub struct Request<'a> {
    shared: &'a Shared,
    /// A request stays on its thread.
    _thread: PhantomData<*const ()>,
}

/// A pause of a [`Request`], for which passes do not wait, and the positions that the request was
/// served. The pause ends when the value is dropped.
#[derive(Debug)]
pub struct Away<'a>(&'a Shared, u64);

impl Scheduler {
    /// Returns a scheduler that no thread has joined.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Joins the calling thread to the scheduler. `stop` stops its request.
    ///
    /// # Panics
    ///
    /// If the thread has joined a scheduler already.
    #[must_use]
    pub fn join(&self, stop: &Stop) -> Request<'_> {
        OWN.with_borrow_mut(|own| {
            assert!(own.is_none(), "a thread joins one scheduler at a time");
            *own = Some(Own { scheduler: self.address(), stop: stop.clone(), served: 0 });
        });
        self.0.arrive(0);
        Request { shared: &self.0, _thread: PhantomData }
    }

    /// Calls `observer` with the size of each pass before it runs, on the thread that runs it. Only
    /// the first observer is kept.
    pub fn observe(&self, observer: impl Fn(PassSize) + Send + Sync + 'static) {
        let _ = self.0.observer.set(Box::new(observer));
    }

    /// Runs `wait`, during which passes do not wait for the request of the calling thread, if it has
    /// one.
    pub(crate) fn while_away<T>(&self, wait: impl FnOnce() -> T) -> T {
        let _away = self.has_joined().then(|| self.0.away());
        wait()
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Returns whether the calling thread has joined.
    pub(super) fn has_joined(&self) -> bool {
        OWN.with_borrow(|own| own.as_ref().is_some_and(|own| own.scheduler == self.address()))
    }

    /// Runs a job of `engine` over `positions` positions. With a scheduler, the job can share a
    /// pass with others of its key. Without one, it runs alone.
    pub(super) fn run<E: ?Sized, J: Job>(scheduler: Option<&Self>, engine: &E, key: PassKey, positions: usize, job: &mut J) {
        match scheduler {
            Some(scheduler) => scheduler.0.submit((std::ptr::from_ref(engine).addr(), J::TYPE, key), positions, job),
            None => J::run(&mut [job]),
        }
    }
}

impl Request<'_> {
    /// Leaves the scheduler until the result is dropped, so that passes do not wait for this
    /// request. Call it before waiting for anything that is not a pass.
    #[must_use]
    pub fn away(&self) -> Away<'_> {
        self.shared.away()
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.shared.leave(OWN.take().map_or(0, |own| own.served));
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.arrive(self.1);
    }
}

impl State {
    fn pending(&self) -> impl Iterator<Item = &Entry> {
        self.jobs.iter().filter(|entry| matches!(entry.outcome, Outcome::Pending))
    }

    /// Returns the id and the key of the job that is next, and whether its pass should start now:
    /// no request computes, or the pass is full and no request that computes was served less.
    fn next(&self) -> Option<(u64, Key, bool)> {
        let order = |entry: &&Entry| (if self.by_service < BY_SERVICE { entry.start } else { 0 }, entry.id);
        let Entry { id, key, start, .. } = self.pending().min_by_key(order)?;
        let positions: usize = self.pending().filter(|entry| entry.key == *key).map(|entry| entry.positions).sum();
        let is_first = self.computing.iter().all(|served| served.max(&self.clock) >= start);
        Some((*id, *key, self.computing.is_empty() || positions >= FULL && is_first))
    }

    /// Removes a request that was served `served` positions from those that compute.
    fn take_computing(&mut self, served: u64) {
        if let Some(place) = self.computing.iter().position(|own| *own == served) {
            self.computing.swap_remove(place);
        }
    }

    /// Takes the jobs of the next pass: job `next`, and the jobs with the same key whose requests
    /// were served least. Returns the jobs and their positions.
    fn take(&mut self, next: u64, key: Key) -> (Vec<(u64, Erased)>, usize) {
        self.clock = self.clock.max(self.pending().map(|entry| entry.start).min().unwrap_or(0));
        let is_of_key = |entry: &&mut Entry| entry.key == key && matches!(entry.outcome, Outcome::Pending);
        let mut of_key: Vec<&mut Entry> = self.jobs.iter_mut().filter(is_of_key).collect();
        of_key.sort_by_key(|entry| (entry.id != next, entry.start, entry.id));
        let (mut jobs, mut positions) = (Vec::new(), 0);
        for entry in of_key {
            if positions >= FULL {
                break;
            }
            positions += entry.positions;
            entry.outcome = Outcome::Taken;
            jobs.push((entry.id, entry.job));
        }
        self.by_service = if self.by_service < BY_SERVICE { self.by_service + positions } else { 0 };
        (jobs, positions)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of a pass is caught and passed on to the threads that wait for the pass, so the
        // state is always consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(&self, served: u64) {
        self.lock().computing.push(served);
    }

    fn leave(&self, served: u64) {
        self.lock().take_computing(served);
        // All remaining requests may be waiting now.
        self.changed.notify_all();
    }

    /// Leaves until the result is dropped.
    fn away(&self) -> Away<'_> {
        let served = OWN.with_borrow(|own| own.as_ref().map_or(0, |own| own.served));
        self.leave(served);
        Away(self, served)
    }

    /// Runs `job` in one pass with others of its key. Jobs of one key have one type.
    ///
    /// # Panics
    ///
    /// If the pass panics.
    fn submit<J: Job>(&self, key: Key, positions: usize, job: &mut J) {
        let mut state = self.lock();
        let start = OWN.with_borrow_mut(|own| {
            let Some(own) = own else { return state.clock };
            state.take_computing(own.served);
            let start = own.served.max(state.clock);
            own.served = start + positions as u64;
            start
        });
        let id = state.next_id;
        state.next_id += 1;
        if state.pending().next().is_none() && !state.running {
            state.since = Some(Instant::now());
        }
        state.jobs.push(Entry { id, key, positions, start, job: Erased::new(job), outcome: Outcome::Pending });
        loop {
            let index = state.jobs.iter().position(|entry| entry.id == id).expect("an entry stays until its thread takes it");
            if matches!(state.jobs[index].outcome, Outcome::Done | Outcome::Panicked(_)) {
                let entry = state.jobs.swap_remove(index);
                drop(state);
                if let Outcome::Panicked(message) = entry.outcome {
                    resume_unwind(Box::new(message));
                }
                return;
            }
            state = match state.next() {
                Some((next, key, is_due)) if !state.running => {
                    let left = LONGEST_WAIT.saturating_sub(state.since.map_or(LONGEST_WAIT, |since| since.elapsed()));
                    if is_due || left.is_zero() {
                        self.lead(state, next, key)
                    } else {
                        self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                    }
                }
                // A pass is running, or all are done and their threads have not woken yet.
                _ => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Runs the pass of job `next`, whose key is `key`.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>, next: u64, key: Key) -> MutexGuard<'a, State> {
        let (jobs, positions) = state.take(next, key);
        state.running = true;
        drop(state);
        let pointers: Vec<*mut ()> = jobs.iter().map(|(_, erased)| erased.job).collect();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if let Some(observer) = self.observer.get().filter(|_| jobs[0].1.is_pass) {
                observer(PassSize { requests: jobs.len(), positions });
            }
            // SAFETY: each job lies on the stack of a thread that waits in `submit` until its
            // outcome is set, below, and nothing else uses it. Jobs of one key have one type, which
            // `run` was made for.
            unsafe { (jobs[0].1.run)(&pointers) }
        }));
        let mut guard = self.lock();
        let state = &mut *guard;
        for entry in state.jobs.iter_mut().filter(|entry| jobs.iter().any(|(id, _)| *id == entry.id)) {
            entry.outcome = match &outcome {
                Ok(()) => Outcome::Done,
                Err(panic) => Outcome::Panicked(message(panic.as_ref())),
            };
            state.computing.push(entry.start + entry.positions as u64);
        }
        state.running = false;
        state.since = Some(Instant::now());
        self.changed.notify_all();
        guard
    }
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a joined pass panicked".to_owned())
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("computing", &self.lock().computing.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// A number to double, and a counter of passes.
    struct Double<'a>(usize, &'a AtomicUsize);

    // SAFETY: the only type of job of its scheduler.
    unsafe impl Job for Double<'_> {
        const TYPE: u8 = 0;

        fn run(jobs: &mut [&mut Self]) {
            jobs[0].1.fetch_add(1, Ordering::Relaxed);
            jobs.iter_mut().for_each(|job| job.0 *= 2);
        }
    }

    struct Broken;

    // SAFETY: the only type of job of its scheduler.
    unsafe impl Job for Broken {
        const TYPE: u8 = 0;

        fn run(_: &mut [&mut Self]) {
            panic!("broken");
        }
    }

    fn key(engine: usize) -> Key {
        (engine, 0, PassKey { seats: 0, kind: 0 })
    }

    /// Runs `rounds(i)` jobs on each thread i. Returns the number of passes.
    fn passes(threads: usize, rounds: impl Fn(usize) -> usize + Sync, keys: usize) -> usize {
        let count = AtomicUsize::new(0);
        let scheduler = Scheduler::new();
        let gate = std::sync::Barrier::new(threads);
        thread::scope(|scope| {
            for own in 0..threads {
                let (scheduler, count, gate, rounds) = (&scheduler, &count, &gate, &rounds);
                scope.spawn(move || {
                    let _here = scheduler.join(&Stop::new());
                    gate.wait();
                    for round in 0..rounds(own) {
                        let mut job = Double(own + round, count);
                        scheduler.0.submit(key((round + own) % keys), 1, &mut job);
                        assert_eq!(job.0, 2 * (own + round));
                    }
                });
            }
        });
        let state = scheduler.0.lock();
        assert_eq!((state.computing.len(), state.jobs.len(), state.running), (0, 0, false));
        drop(state);
        count.into_inner()
    }

    #[test]
    fn jobs_of_all_threads_share_passes() {
        let found = passes(8, |_| 50, 1);
        assert!((50..200).contains(&found), "{found} passes for 400 jobs");
    }

    #[test]
    fn observers_receive_the_size_of_each_pass() {
        let (scheduler, count) = (Scheduler::new(), AtomicUsize::new(0));
        let told = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&told);
        scheduler.observe(move |pass| list.lock().unwrap().push(pass));
        let gate = std::sync::Barrier::new(3);
        thread::scope(|scope| {
            for positions in 1..=3 {
                let (scheduler, count, gate) = (&scheduler, &count, &gate);
                scope.spawn(move || {
                    let _here = scheduler.join(&Stop::new());
                    gate.wait();
                    scheduler.0.submit(key(0), positions, &mut Double(1, count));
                    gate.wait();
                });
            }
        });
        let told = told.lock().unwrap();
        let sum = |of: fn(&PassSize) -> usize| told.iter().map(of).sum::<usize>();
        assert_eq!((told.len(), sum(|pass| pass.requests), sum(|pass| pass.positions)), (count.into_inner(), 3, 6));
    }

    #[test]
    fn threads_that_differ_in_key_and_number_of_passes_all_end() {
        let found = passes(6, |own| 20 * own, 3);
        // No thread has more rounds than the last, and joining saves some of the 300.
        assert!((100..300).contains(&found), "{found}");
    }

    #[test]
    fn passes_do_not_wait_for_a_request_that_is_away() {
        let (scheduler, count) = (Scheduler::new(), AtomicUsize::new(0));
        let (ask, done) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                let here = scheduler.join(&Stop::new());
                ask.wait();
                done.wait();
                let away = here.away();
                ask.wait();
                done.wait();
                drop(away);
            });
            let _here = scheduler.join(&Stop::new());
            for _ in 0..2 {
                ask.wait();
                (0..10).for_each(|_| scheduler.0.submit(key(0), 1, &mut Double(1, &count)));
                done.wait();
            }
        });
        assert_eq!(count.into_inner(), 20);
    }

    /// Jobs that wait: engine, positions, positions served.
    fn waiting(jobs: &[(usize, usize, u64)]) -> State {
        let mut state = State::default();
        for &(engine, positions, start) in jobs {
            let (id, job) = (state.next_id, Erased::new(&mut Broken));
            state.next_id += 1;
            let outcome = Outcome::Pending;
            state.jobs.push(Entry { id, key: key(engine), positions, start, job, outcome });
        }
        state
    }

    fn taken(state: &mut State) -> Vec<u64> {
        let (next, key, _) = state.next().unwrap();
        let ids = state.take(next, key).0.into_iter().map(|(id, _)| id).collect();
        state.jobs.retain(|entry| matches!(entry.outcome, Outcome::Pending));
        ids
    }

    #[test]
    fn a_full_pass_takes_the_least_served() {
        let mut state = waiting(&[(0, 400, 900), (0, 300, 20), (0, 300, 10), (0, 300, 20)]);
        assert_eq!(taken(&mut state), [2, 1]);
        assert_eq!(state.clock, 10);
        assert_eq!(taken(&mut state), [3, 0]);
        assert_eq!(state.clock, 20);
    }

    #[test]
    fn the_least_served_is_next_even_if_another_key_fills_a_pass() {
        let mut state = waiting(&[(0, 600, 8), (1, 7, 5), (0, 600, 3), (1, 7, 9), (2, 7, 6)]);
        assert_eq!(state.next(), Some((2, key(0), true)));
        assert_eq!([taken(&mut state), taken(&mut state), taken(&mut state)], [vec![2], vec![1, 3], vec![4]]);
        assert_eq!(state.clock, 6);
        assert_eq!(taken(&mut state), [0]);
    }

    #[test]
    fn a_full_pass_waits_for_requests_that_were_served_less() {
        let mut state = waiting(&[(0, 600, 8)]);
        let is_due = |state: &State| state.next().unwrap().2;
        assert!(is_due(&state));
        state.computing = vec![9, 8];
        assert!(is_due(&state));
        state.computing.push(7);
        assert!(!is_due(&state));
        // A request that was away resumes from the clock.
        state.clock = 8;
        assert!(is_due(&state));
        state.jobs[0].positions = FULL - 1;
        assert!(!is_due(&state));
    }

    /// Between its jobs, a request needs a moment to submit the next one. The passes that others fill
    /// do not start before.
    #[test]
    fn a_request_of_small_jobs_does_not_wait_for_full_passes() {
        /// A pass that takes a millisecond for every 500 positions.
        struct Slow(usize);

        // SAFETY: the only type of job of its scheduler.
        unsafe impl Job for Slow {
            const TYPE: u8 = 0;

            fn run(jobs: &mut [&mut Self]) {
                thread::sleep(Duration::from_millis(jobs.iter().map(|job| job.0 as u64).sum::<u64>() / 500));
            }
        }

        const JOBS: usize = 50;
        let (scheduler, is_over, passes) = (Scheduler::new(), AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&passes);
        scheduler.observe(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let _here = scheduler.join(&Stop::new());
                    while !is_over.load(Ordering::Relaxed) {
                        scheduler.0.submit(key(1), 2 * FULL, &mut Slow(2 * FULL));
                    }
                });
            }
            while passes.load(Ordering::Relaxed) < 10 {
                thread::yield_now();
            }
            let _here = scheduler.join(&Stop::new());
            let between = || {
                let before = passes.load(Ordering::Relaxed);
                (0..JOBS).for_each(|_| scheduler.0.submit(key(0), 1, &mut Slow(1)));
                passes.load(Ordering::Relaxed) - before - JOBS
            };
            // On a busy machine, the thread may wake too late. Otherwise, each job waits for a pass of
            // others.
            let fewest = (0..5).map(|_| between()).min().unwrap();
            is_over.store(true, Ordering::Relaxed);
            assert!(fewest < JOBS / 2, "{fewest} passes of others among {JOBS}");
        });
    }

    #[test]
    fn the_job_that_has_waited_longest_is_next_periodically() {
        // The request was served much, and its job shares no pass with the others.
        let mut state = waiting(&[(0, 256, 1 << 20)]);
        let mut served = Vec::new();
        for id in 1..40 {
            let more = waiting(&[(1, FULL, id)]).jobs.remove(0);
            state.jobs.push(Entry { id, ..more });
            served.extend(taken(&mut state));
        }
        let first = BY_SERVICE / FULL;
        assert_eq!(served[..=first], [&(1..=first as u64).collect::<Vec<_>>()[..], &[0]].concat());
        // Jobs of its key join its pass. After that, the least served request is next again.
        let mut state = waiting(&[(0, 256, 50), (0, 200, 60), (0, 300, 7), (0, 300, 8), (1, 9, 6)]);
        state.by_service = BY_SERVICE;
        assert_eq!([taken(&mut state), taken(&mut state)], [vec![0, 2], vec![4]]);
    }

    #[test]
    fn a_request_of_large_jobs_gets_no_more_than_others() {
        // One request submits 600 positions at a time, the others 20; all submit again at once.
        let sizes = [600, 20, 20, 20];
        let mut state = waiting(&[]);
        let (mut asked, mut served) = ([0_u64; 4], [0_u64; 4]);
        let mut ask = |state: &mut State, own: usize| {
            let start = asked[own].max(state.clock);
            asked[own] = start + sizes[own] as u64;
            let entry = waiting(&[(own, sizes[own], start)]).jobs.remove(0);
            state.jobs.push(Entry { id: 4 * state.next_id + own as u64, ..entry });
            state.next_id += 1;
        };
        (0..4).for_each(|own| ask(&mut state, own));
        for _ in 0..4000 {
            for id in taken(&mut state) {
                let own = (id % 4) as usize;
                served[own] += sizes[own] as u64;
                ask(&mut state, own);
            }
        }
        let least = served.iter().min().unwrap();
        assert!(served.iter().all(|served| served - least <= 2 * 600), "{served:?}");
    }

    #[test]
    fn a_stopped_request_fails_until_it_leaves() {
        let (scheduler, stop) = (Scheduler::new(), Stop::new());
        let here = scheduler.join(&stop);
        assert_eq!(check_stopped(), Ok(()));
        stop.clone().stop();
        assert_eq!(check_stopped(), Err(Stopped));
        drop(here);
        assert_eq!(check_stopped(), Ok(()));
    }

    #[test]
    fn a_panic_reaches_every_request_of_the_pass() {
        let scheduler = Scheduler::new();
        let gate = std::sync::Barrier::new(3);
        let told = thread::scope(|scope| {
            let ask = || {
                let _here = scheduler.join(&Stop::new());
                gate.wait();
                let panic = catch_unwind(AssertUnwindSafe(|| scheduler.0.submit(key(0), 1, &mut Broken))).unwrap_err();
                message(panic.as_ref())
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(told, ["broken"; 3]);
        assert!(scheduler.0.lock().computing.is_empty());
    }
}
