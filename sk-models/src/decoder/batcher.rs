//! Joins the passes of several generations.
//!
//! A pass over one generation's few rows reads all weights once, and so does a pass over the rows
//! of sixteen. Each generation runs on a thread of its own. When every thread that has joined waits
//! for a pass, the batcher runs the largest group of passes with equal keys as one. Rows do not see
//! each other, so every generation gets the bits that it gets alone.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Joins the passes of threads that have [joined](Self::join) it.
///
/// [`Decoder::batched`](super::Decoder::batched) gives it to a decoder. A thread that has not
/// joined neither waits nor is waited for.
#[derive(Debug, Clone, Default)]
pub struct Batcher(Arc<Shared>);

/// The part of a [`Batcher`] that its threads share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// Threads that have joined, and those of them that wait.
    joined: usize,
    waiting: usize,
    jobs: Vec<Entry>,
    next: u64,
}

/// The part of a pass's key that an engine chooses: passes of one engine with equal keys can be one
/// pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PassKey {
    /// The address of the seats, or zero if rows under different seats can share a pass.
    pub(super) seats: usize,
    /// The kind of pass, numbered by the engine.
    pub(super) kind: usize,
}

/// The whole key: the address of the engine, the type of the job, and what the engine says.
type Key = (usize, u8, PassKey);

/// A part of a pass.
///
/// # Safety
///
/// Types that are submitted for one engine have different values of `TYPE`.
pub(super) unsafe trait Job {
    /// Tells the types of jobs apart.
    const TYPE: u8;

    /// Runs jobs of one key in one pass.
    fn run(jobs: &mut [&mut Self]);
}

/// A job that waits.
struct Entry {
    id: u64,
    key: Key,
    job: Erased,
    outcome: Outcome,
}

enum Outcome {
    Pending,
    /// In the hands of the thread that runs it.
    Taken,
    Done,
    Panicked(String),
}

/// A job on the stack of the thread that waits for it, and how jobs of its type run.
#[derive(Clone, Copy)]
struct Erased {
    job: *mut (),
    run: unsafe fn(&[*mut ()]),
}

// SAFETY: the job belongs to a thread that does nothing until the job's outcome is known, and one
// other thread at a time uses it. Jobs hold references to what is shared between threads, and to
// caches of the thread that waits.
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
        Self { job: std::ptr::from_mut(job).cast(), run: run::<J> }
    }
}

thread_local! {
    /// The address of the batcher that this thread has joined; zero for none.
    static JOINED: Cell<usize> = const { Cell::new(0) };
}

/// A thread's membership of a [`Batcher`]. The thread leaves when it is dropped.
#[derive(Debug)]
pub struct Member<'a> {
    shared: &'a Shared,
    /// A membership stays on its thread.
    _thread: PhantomData<*const ()>,
}

impl Batcher {
    /// Returns a batcher that no thread has joined.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Joins with the calling thread.
    ///
    /// From then on a pass of this thread waits until every thread that has joined wants one or has
    /// left. A thread that has joined must not wait for another one by other means.
    ///
    /// # Panics
    ///
    /// If the thread has joined a batcher already.
    #[must_use]
    pub fn join(&self) -> Member<'_> {
        assert_eq!(JOINED.get(), 0, "a thread joins one batcher at a time");
        JOINED.set(self.address());
        self.0.join();
        Member { shared: &self.0, _thread: PhantomData }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Whether the calling thread has joined.
    pub(super) fn is_joined(&self) -> bool {
        JOINED.get() == self.address()
    }

    /// Runs a job of `engine`: in one pass with all others of its key, or alone without a batcher.
    pub(super) fn run<E, J: Job>(batcher: Option<&Self>, engine: &E, key: PassKey, job: &mut J) {
        match batcher {
            Some(batcher) => batcher.0.submit((std::ptr::from_ref(engine).addr(), J::TYPE, key), job),
            None => J::run(&mut [job]),
        }
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        JOINED.set(0);
        self.shared.leave();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of a pass is caught and passed on to the threads that asked for it, so the state
        // is never torn.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self) {
        self.lock().joined += 1;
    }

    fn leave(&self) {
        self.lock().joined -= 1;
        // All that remain may be waiting now.
        self.done.notify_all();
    }

    /// Runs `job` in one pass with all jobs of its key once every thread waits. Jobs of one key
    /// have one type.
    ///
    /// # Panics
    ///
    /// If the pass panics.
    fn submit<J: Job>(&self, key: Key, job: &mut J) {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.waiting += 1;
        state.jobs.push(Entry { id, key, job: Erased::new(job), outcome: Outcome::Pending });
        loop {
            let own = state.jobs.iter().position(|entry| entry.id == id).expect("an entry stays until its thread takes it");
            if matches!(state.jobs[own].outcome, Outcome::Done | Outcome::Panicked(_)) {
                let entry = state.jobs.swap_remove(own);
                drop(state);
                if let Outcome::Panicked(message) = entry.outcome {
                    resume_unwind(Box::new(message));
                }
                return;
            }
            if state.waiting < state.joined || state.jobs.iter().any(|entry| matches!(entry.outcome, Outcome::Taken)) {
                state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state = self.lead(state);
        }
    }

    /// Runs the passes whose key most threads wait for; called when every thread waits.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let pending = |entry: &&Entry| matches!(entry.outcome, Outcome::Pending);
        // Of equally many, the key that has waited longest.
        let mut best: Option<(usize, Key)> = None;
        for key in state.jobs.iter().filter(pending).map(|entry| entry.key) {
            let count = state.jobs.iter().filter(pending).filter(|entry| entry.key == key).count();
            if best.is_none_or(|(most, _)| count > most) {
                best = Some((count, key));
            }
        }
        let Some((_, key)) = best else {
            // Every pass is done, and no thread has woken yet.
            return self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let mut jobs: Vec<(u64, Erased)> = Vec::new();
        for entry in state.jobs.iter_mut().filter(|entry| entry.key == key && matches!(entry.outcome, Outcome::Pending)) {
            entry.outcome = Outcome::Taken;
            jobs.push((entry.id, entry.job));
        }
        drop(state);
        let pointers: Vec<*mut ()> = jobs.iter().map(|(_, erased)| erased.job).collect();
        // SAFETY: each job lies on the stack of a thread that waits in `submit` until its outcome
        // is set, below, and nothing else uses it. Jobs of one key have one type, which `run` was
        // made for.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (jobs[0].1.run)(&pointers) }));
        let mut state = self.lock();
        for entry in &mut state.jobs {
            if jobs.iter().any(|(id, _)| *id == entry.id) {
                entry.outcome = match &outcome {
                    Ok(()) => Outcome::Done,
                    Err(panic) => Outcome::Panicked(message(panic.as_ref())),
                };
            }
        }
        state.waiting -= jobs.len();
        self.done.notify_all();
        state
    }
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a joined pass panicked".to_owned())
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batcher").field("joined", &self.lock().joined).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// A number to be doubled, and how often anything was.
    struct Double<'a>(usize, &'a AtomicUsize);

    // SAFETY: the only type of job of its batcher.
    unsafe impl Job for Double<'_> {
        const TYPE: u8 = 0;

        fn run(jobs: &mut [&mut Self]) {
            jobs[0].1.fetch_add(1, Ordering::Relaxed);
            jobs.iter_mut().for_each(|job| job.0 *= 2);
        }
    }

    struct Broken;

    // SAFETY: the only type of job of its batcher.
    unsafe impl Job for Broken {
        const TYPE: u8 = 0;

        fn run(_: &mut [&mut Self]) {
            panic!("broken");
        }
    }

    fn key(engine: usize) -> Key {
        (engine, 0, PassKey { seats: 0, kind: 0 })
    }

    /// Each of `threads` does its own number of jobs; returns how many passes that took.
    fn passes(threads: usize, rounds: impl Fn(usize) -> usize + Sync, keys: usize) -> usize {
        let count = AtomicUsize::new(0);
        let batcher = Shared::default();
        let gate = std::sync::Barrier::new(threads);
        thread::scope(|scope| {
            for own in 0..threads {
                let (batcher, count, gate, rounds) = (&batcher, &count, &gate, &rounds);
                scope.spawn(move || {
                    batcher.join();
                    gate.wait();
                    for round in 0..rounds(own) {
                        let mut job = Double(own + round, count);
                        batcher.submit(key((round + own) % keys), &mut job);
                        assert_eq!(job.0, 2 * (own + round));
                    }
                    batcher.leave();
                });
            }
        });
        let state = batcher.lock();
        assert_eq!((state.joined, state.waiting, state.jobs.len()), (0, 0, 0));
        drop(state);
        count.into_inner()
    }

    #[test]
    fn jobs_of_all_threads_are_one_pass() {
        assert_eq!(passes(8, |_| 50, 1), 50);
    }

    #[test]
    fn threads_that_differ_in_key_and_number_of_passes_all_end() {
        let found = passes(6, |own| 20 * own, 3);
        // Nobody has more rounds than the last, and joining saves some of the 300.
        assert!((100..300).contains(&found), "{found}");
    }

    #[test]
    fn a_panic_reaches_everybody_who_asked() {
        let batcher = Shared::default();
        let gate = std::sync::Barrier::new(3);
        let told = thread::scope(|scope| {
            let ask = || {
                batcher.join();
                gate.wait();
                let panic = catch_unwind(AssertUnwindSafe(|| batcher.submit(key(0), &mut Broken))).unwrap_err();
                batcher.leave();
                message(panic.as_ref())
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(told, ["broken"; 3]);
        assert_eq!(batcher.lock().joined, 0);
    }
}
