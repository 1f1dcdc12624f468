//! A team of threads that spin for a moment before they sleep.
//!
//! One token of a small model takes dozens of parallel loops of a few microseconds each. Waking a
//! thread takes longer than that.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError};
use std::thread;

/// Spins before a member sleeps: some tens of microseconds, the time between two passes of a
/// decoder.
const SPINS_BEFORE_SLEEP: usize = 2_000;

/// Spins of the caller that waits for members before it yields to other processes.
const SPINS_BEFORE_YIELD: usize = 10_000;

/// The fields of the state of the current loop in one word: the number of members at work, whether
/// more may join, and a count of loops.
const MEMBER: usize = 1;
const MEMBERS: usize = 0xffff;
const OPEN: usize = 0x1_0000;
const LOOP: usize = 0x2_0000;

thread_local! {
    /// Whether this thread runs a task of a team.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// One parallel loop.
#[derive(Clone, Copy)]
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    tasks: usize,
    /// Shares of the tasks, one per thread.
    shares: usize,
}

/// A counter in a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct PaddedCount(AtomicUsize);

struct TeamState {
    state: AtomicUsize,
    /// Written while the state is closed and no member is at work; read by members who joined while
    /// it was open.
    job: UnsafeCell<Option<Job>>,
    /// Tasks taken from each share.
    taken: Vec<PaddedCount>,
    asleep: AtomicUsize,
    sleep_lock: Mutex<()>,
    wake: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only by the thread that holds `Team::turn`, while the state is closed
// and counts no member; members read it only between joining and leaving, which the state's acquire
// and release order after the write and before the next one. The pointer in it is to a `Sync`
// closure that outlives the loop, since `Team::run` returns only when no member is left.
unsafe impl Sync for TeamState {}
// SAFETY: as above.
unsafe impl Send for TeamState {}

impl TeamState {
    /// Runs tasks until none is left: first those of the thread's own share, then the rest of the
    /// others'.
    fn work(&self, job: Job, own: usize) {
        // SAFETY: the caller joined the open loop or runs it, so the closure is alive.
        let work = unsafe { &*job.work };
        IN_TASK.set(true);
        for share in (own..job.shares).chain(0..own) {
            let [first, end] = [share, share + 1].map(|share| share * job.tasks / job.shares);
            loop {
                let task = first + self.taken[share].0.fetch_add(1, Ordering::Relaxed);
                if task >= end {
                    break;
                }
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(task))) {
                    *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                }
            }
        }
        IN_TASK.set(false);
    }

    /// Joins the open loop unless it is `last`.
    fn join(&self, last: usize) -> Option<usize> {
        let state = self.state.load(Ordering::SeqCst);
        let current = state / LOOP;
        let new = state & OPEN != 0 && current != last;
        let joined = new && self.state.compare_exchange(state, state + MEMBER, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        joined.then_some(current)
    }

    /// Runs the member of share `own`. Does not return.
    fn serve(&self, own: usize) {
        let mut last = usize::MAX;
        let mut spins = 0;
        loop {
            if let Some(current) = self.join(last) {
                // SAFETY: this member has joined the loop, so nothing writes the job until it
                // leaves.
                if let Some(job) = unsafe { *self.job.get() } {
                    self.work(job, own);
                }
                self.state.fetch_sub(MEMBER, Ordering::SeqCst);
                (last, spins) = (current, 0);
            } else if spins < SPINS_BEFORE_SLEEP {
                spins += 1;
                spin_loop();
            } else {
                self.sleep(last);
                spins = 0;
            }
        }
    }

    /// Waits until a loop other than `last` is open.
    fn sleep(&self, last: usize) {
        let mut sleep_lock = self.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state & OPEN != 0 && state / LOOP != last {
                break;
            }
            sleep_lock = self.wake.wait(sleep_lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Threads that run loops together.
pub(crate) struct Team {
    shared: Arc<TeamState>,
    threads: usize,
    turn: Mutex<()>,
}

impl Team {
    /// Starts a team of `threads`, which includes the caller of [`run`](Self::run).
    fn new(threads: usize) -> Self {
        let shared = Arc::new(TeamState {
            state: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            taken: (0..threads).map(|_| PaddedCount::default()).collect(),
            asleep: AtomicUsize::new(0),
            sleep_lock: Mutex::new(()),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut members = 1;
        for _ in 1..threads {
            let (shared, own) = (Arc::clone(&shared), members);
            let member = thread::Builder::new().name(format!("decode-{own}")).spawn(move || shared.serve(own));
            // If the system cannot start more threads, the team stays smaller.
            members += usize::from(member.is_ok());
        }
        Self { shared, threads: members, turn: Mutex::new(()) }
    }

    /// Returns the team of this process, which has as many threads as Rayon, so `RAYON_NUM_THREADS`
    /// sets both.
    pub(crate) fn global() -> &'static Self {
        static TEAM: LazyLock<Team> = LazyLock::new(|| Team::new(rayon::current_num_threads()));
        &TEAM
    }

    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work` for each of `0..tasks`, in any order and on any thread, and returns when all
    /// calls are done.
    ///
    /// Each thread begins with the same share of every loop, so that the output of neighbouring
    /// tasks is in its caches in the next loop. Then it helps with other shares.
    ///
    /// Callers take turns, since more threads than processors would wait for each other in every
    /// loop. A loop inside a task runs on the thread of the task.
    ///
    /// # Panics
    ///
    /// With the panic of a task, after all tasks.
    pub(crate) fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        if self.threads == 1 || tasks <= 1 || IN_TASK.get() {
            (0..tasks).for_each(work);
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes, and no member looks at the closure after this function
        // has returned.
        let work: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(std::ptr::from_ref(work)) };
        let job = Job { work, tasks, shares: self.threads };
        // SAFETY: this thread has the turn, the last loop is closed and its members have left.
        unsafe { *shared.job.get() = Some(job) };
        shared.taken.iter().for_each(|count| count.0.store(0, Ordering::Relaxed));
        // The state is closed and empty, so the sum opens the next loop.
        shared.state.fetch_add(LOOP + OPEN, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            drop(shared.sleep_lock.lock().unwrap_or_else(PoisonError::into_inner));
            shared.wake.notify_all();
        }
        shared.work(job, 0);
        shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0;
        while shared.state.load(Ordering::SeqCst) & MEMBERS != 0 {
            spins += 1;
            if spins < SPINS_BEFORE_YIELD {
                spin_loop();
            } else {
                thread::yield_now();
            }
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// A mutable slice whose disjoint parts are written by different tasks.
pub(crate) struct SharedSlice<T> {
    start: *mut T,
    length: usize,
}

impl<T> Clone for SharedSlice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SharedSlice<T> {}

// SAFETY: whoever dereferences it promises that no two tasks touch the same place.
unsafe impl<T: Send> Sync for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for SharedSlice<T> {}

impl<T> SharedSlice<T> {
    pub(crate) fn of(slice: &mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len() }
    }

    /// Returns the address of `index`, which may be one past the end.
    pub(crate) fn at(self, index: usize) -> *mut T {
        assert!(index <= self.length, "place {index} of {}", self.length);
        // SAFETY: within the slice or one past its end.
        unsafe { self.start.add(index) }
    }

    /// Returns `length` places from `start` on.
    ///
    /// # Safety
    ///
    /// The slice is alive, and nothing else uses these places while the result lives.
    pub(crate) unsafe fn slice<'a>(self, start: usize, length: usize) -> &'a mut [T] {
        assert!(start + length <= self.length, "places {start}..{} of {}", start + length, self.length);
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }
}

/// Calls `work` with each element and its index, on the global team.
pub(crate) fn for_each_mut<T: Send>(items: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
    let parts = SharedSlice::of(items);
    Team::global().run(items.len(), &|index| {
        // SAFETY: each task has an element of its own.
        let item = unsafe { &mut parts.slice(index, 1)[0] };
        work(index, item);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 5] {
            let team = Team::new(threads);
            for tasks in [0, 1, 2, 3, 64, 1000] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                team.run(tasks, &|task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{tasks} tasks on {threads} threads");
            }
        }
    }

    #[test]
    fn a_thread_begins_with_its_own_share() {
        let team = Team::new(2);
        // Each thread waits for the other in its first task, so that neither takes the other's
        // tasks.
        let meet = std::sync::Barrier::new(2);
        let firsts = [const { AtomicU64::new(u64::MAX) }; 2];
        let caller = thread::current().id();
        team.run(8, &|task| {
            let first = &firsts[usize::from(thread::current().id() != caller)];
            if first.compare_exchange(u64::MAX, task as u64, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                meet.wait();
            }
        });
        assert_eq!(firsts.map(AtomicU64::into_inner), [0, 4]);
    }

    #[test]
    fn many_short_loops_in_a_row_are_all_complete() {
        let team = Team::new(3);
        let sum = AtomicU64::new(0);
        for round in 0..20_000_u64 {
            team.run(5, &|task| {
                sum.fetch_add(round * 5 + task as u64, Ordering::Relaxed);
            });
            // The effects of a loop are visible when it returns.
            let count = (round + 1) * 5;
            assert_eq!(sum.load(Ordering::Relaxed), count * (count - 1) / 2);
        }
    }

    #[test]
    fn members_that_sleep_are_woken() {
        let team = Team::new(2);
        for _ in 0..5 {
            thread::sleep(std::time::Duration::from_millis(5));
            let meet = std::sync::Barrier::new(2);
            // Two tasks that wait for each other need two threads.
            team.run(2, &|_| {
                meet.wait();
            });
        }
    }

    #[test]
    fn callers_take_turns_and_loops_may_be_nested() {
        let team = Team::new(2);
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        team.run(7, &|_| {
                            team.run(2, &|_| {
                                total.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * 500 * 7 * 2);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_goes_on() {
        let team = Team::new(2);
        let done = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            team.run(10, &|task| {
                done.fetch_add(1, Ordering::Relaxed);
                assert_ne!(task, 3, "task three");
            });
        }));
        assert!(outcome.is_err());
        assert_eq!(done.load(Ordering::Relaxed), 10);
        team.run(4, &|_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 14);
    }
}
