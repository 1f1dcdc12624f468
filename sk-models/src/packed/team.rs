//! A few threads that wait close by for the next piece of work.
//!
//! One token of a small model is dozens of parallel loops of a few microseconds each, less than it takes to wake a thread. The members of a
//! [`Team`] therefore look for work for a moment before they sleep.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, TryLockError};
use std::thread;

/// Looks for work before a member sleeps: some tens of microseconds, the time between two passes of a decoder.
const LOOKS: usize = 2_000;

/// Looks of a member that waits for another one before it lets other processes run.
const PATIENCE: usize = 10_000;

/// The state of the current loop in one word: members at work, whether more may join, and a count of loops.
const MEMBER: usize = 1;
const MEMBERS: usize = 0xffff;
const OPEN: usize = 0x1_0000;
const LOOP: usize = 0x2_0000;

/// One parallel loop.
#[derive(Clone, Copy)]
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    tasks: usize,
}

struct Shared {
    state: AtomicUsize,
    /// Written while the state is closed and nobody is at work; read by members who joined while it was open.
    job: UnsafeCell<Option<Job>>,
    next: AtomicUsize,
    asleep: AtomicUsize,
    door: Mutex<()>,
    bell: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is written only by the thread that holds `Team::turn`, while the state is closed and counts no member; members read it
// only between joining and leaving, which the state's acquire and release order after the write and before the next one. The pointer in
// it is to a `Sync` closure that outlives the loop, since `Team::run` returns only when no member is left.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    /// Takes tasks until none is left.
    fn work(&self, job: Job) {
        // SAFETY: the caller joined the open loop or runs it, so the closure is alive.
        let work = unsafe { &*job.work };
        loop {
            let task = self.next.fetch_add(1, Ordering::Relaxed);
            if task >= job.tasks {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(task))) {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            }
        }
    }

    /// Joins the loop that is open, if it is another one than `last`.
    fn join(&self, last: usize) -> Option<usize> {
        let state = self.state.load(Ordering::SeqCst);
        let current = state / LOOP;
        let new = state & OPEN != 0 && current != last;
        let joined = new && self.state.compare_exchange(state, state + MEMBER, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        joined.then_some(current)
    }

    /// The life of a member.
    fn serve(&self) {
        let mut last = usize::MAX;
        let mut looks = 0;
        loop {
            if let Some(current) = self.join(last) {
                // SAFETY: joined, see above.
                if let Some(job) = unsafe { *self.job.get() } {
                    self.work(job);
                }
                self.state.fetch_sub(MEMBER, Ordering::SeqCst);
                (last, looks) = (current, 0);
            } else if looks < LOOKS {
                looks += 1;
                spin_loop();
            } else {
                self.sleep(last);
                looks = 0;
            }
        }
    }

    /// Waits until a loop other than `last` is open.
    fn sleep(&self, last: usize) {
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        self.asleep.fetch_add(1, Ordering::SeqCst);
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if state & OPEN != 0 && state / LOOP != last {
                break;
            }
            door = self.bell.wait(door).unwrap_or_else(PoisonError::into_inner);
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Threads that share loops.
pub(crate) struct Team {
    shared: Arc<Shared>,
    threads: usize,
    turn: Mutex<()>,
}

impl Team {
    /// A team of `threads`, the caller of [`run`](Self::run) among them.
    fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: AtomicUsize::new(0),
            job: UnsafeCell::new(None),
            next: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            door: Mutex::new(()),
            bell: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut members = 1;
        for index in 1..threads {
            let shared = Arc::clone(&shared);
            let member = thread::Builder::new().name(format!("decode-{index}")).spawn(move || shared.serve());
            // A machine that gives no more threads decodes with those it gave.
            members += usize::from(member.is_ok());
        }
        Self { shared, threads: members, turn: Mutex::new(()) }
    }

    /// The team of this process: as many threads as Rayon has, so that `RAYON_NUM_THREADS` sets both.
    pub(crate) fn global() -> &'static Self {
        static TEAM: LazyLock<Team> = LazyLock::new(|| Team::new(rayon::current_num_threads()));
        &TEAM
    }

    /// Its threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work` for each of `0..tasks`, in any order and on any thread, and returns when all are done.
    ///
    /// A caller that finds the team at work for another one does its tasks itself: several decoders then have a thread each.
    ///
    /// # Panics
    ///
    /// With the panic of a task, once all tasks are over.
    pub(crate) fn run(&self, tasks: usize, work: &(dyn Fn(usize) + Sync)) {
        let alone = self.threads == 1 || tasks <= 1;
        let turn = if alone {
            None
        } else {
            match self.turn.try_lock() {
                Ok(turn) => Some(turn),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            }
        };
        let Some(_turn) = turn else {
            (0..tasks).for_each(work);
            return;
        };
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes, and no member looks at the closure after this function has returned.
        let work: *const (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(std::ptr::from_ref(work)) };
        let job = Job { work, tasks };
        // SAFETY: this thread has the turn, the last loop is closed and its members have left.
        unsafe { *shared.job.get() = Some(job) };
        shared.next.store(0, Ordering::Relaxed);
        // Closed and empty, so the sum starts the next loop, open.
        shared.state.fetch_add(LOOP + OPEN, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            drop(shared.door.lock().unwrap_or_else(PoisonError::into_inner));
            shared.bell.notify_all();
        }
        shared.work(job);
        shared.state.fetch_and(!OPEN, Ordering::SeqCst);
        let mut looks = 0;
        while shared.state.load(Ordering::SeqCst) & MEMBERS != 0 {
            looks += 1;
            if looks < PATIENCE {
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

    /// Calls `work` for each of `0..tasks` at each of `0..homes`. A thread stays at one home while there is work, and goes to the same one in every
    /// loop, where what it needs is in its caches; then it helps at the others.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub(crate) fn run_at(&self, homes: usize, tasks: usize, work: &(dyn Fn(usize, usize) + Sync)) {
        if homes == 1 {
            return self.run(tasks, &|task| work(0, task));
        }
        let next: Vec<AtomicUsize> = (0..homes).map(|_| AtomicUsize::new(0)).collect();
        self.run(homes * tasks, &|_| {
            let first = seat() % self.threads * homes / self.threads;
            // As many calls as tasks, each of which takes one, so that one is left.
            let taken = (0..homes).find_map(|turn| {
                let home = (first + turn) % homes;
                let task = next[home].fetch_add(1, Ordering::Relaxed);
                (task < tasks).then_some((home, task))
            });
            let (home, task) = taken.expect("each call takes one task");
            work(home, task);
        });
    }
}

/// The number of this thread among those that have asked, in the order of asking.
fn seat() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SEAT: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    SEAT.with(|seat| *seat)
}

/// A mutable slice that tasks write to in disjoint places.
pub(crate) struct Parts<T> {
    start: *mut T,
    length: usize,
}

impl<T> Clone for Parts<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Parts<T> {}

// SAFETY: whoever dereferences it promises that no two tasks touch the same place.
unsafe impl<T: Send> Sync for Parts<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Parts<T> {}

impl<T> Parts<T> {
    pub(crate) fn of(slice: &mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len() }
    }

    /// Where `index` is; `index` may be one past the end.
    pub(crate) fn at(self, index: usize) -> *mut T {
        assert!(index <= self.length, "place {index} of {}", self.length);
        // SAFETY: within the slice or one past its end.
        unsafe { self.start.add(index) }
    }

    /// `length` places from `start`.
    ///
    /// # Safety
    ///
    /// The slice this was made of must be alive, and nothing else may use these places while the result lives.
    pub(crate) unsafe fn slice<'a>(self, start: usize, length: usize) -> &'a mut [T] {
        assert!(start + length <= self.length, "places {start}..{} of {}", start + length, self.length);
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), length) }
    }
}

/// Calls `work` for each element and its index, on the global team.
pub(crate) fn for_each_mut<T: Send>(items: &mut [T], work: impl Fn(usize, &mut T) + Sync) {
    let parts = Parts::of(items);
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
    fn every_task_of_every_home_runs_once() {
        for threads in [1, 2, 5] {
            let team = Team::new(threads);
            for (homes, tasks) in [(0, 3), (1, 7), (2, 1), (3, 5), (7, 40)] {
                let counts: Vec<AtomicUsize> = (0..homes * tasks).map(|_| AtomicUsize::new(0)).collect();
                team.run_at(homes, tasks, &|home, task| {
                    counts[home * tasks + task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{homes} × {tasks} on {threads} threads");
            }
        }
    }

    #[test]
    fn many_short_loops_in_a_row_are_all_complete() {
        let team = Team::new(3);
        let sum = AtomicU64::new(0);
        for round in 0..20_000_u64 {
            team.run(5, &|task| {
                sum.fetch_add(round * 5 + task as u64, Ordering::Relaxed);
            });
            // What the loop before did is there when it returns.
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
    fn callers_side_by_side_do_not_wait_for_each_other() {
        let team = Team::new(2);
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        team.run(7, &|_| {
                            // A loop inside a task is a caller like any other.
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
