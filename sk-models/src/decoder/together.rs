//! Generations side by side, their passes joined.
//!
//! A pass over one generation's few rows reads all weights once; so does a pass over the rows of sixteen. Each generation runs on a thread
//! of its own, knowing nothing of the others. Whenever all of them wait for a pass, the largest number of passes that can be one is run as
//! one. Rows do not see each other, so that each generation has the very bits it would have alone.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use burn::tensor::Tensor;

use crate::lora::Lanes;
use crate::packed::{Grid, Group, Pace, Packed, Places, Seats};
use crate::tensors::{self, Tensors};

/// A meeting of threads that let their passes be joined.
///
/// Decoders are told of it by [`Decoder::joined`](super::Decoder::joined), threads by [`enter`](Self::enter). A thread that has not
/// entered is not kept waiting and keeps nobody.
#[derive(Debug, Clone)]
pub struct Together(Arc<Meeting<Job<'static>>>);

/// Threads that bring jobs, and those jobs.
struct Meeting<J> {
    state: Mutex<State<J>>,
    done: Condvar,
    /// Does jobs of one kind.
    run: fn(&mut [&mut J]),
}

struct State<J> {
    /// Threads that have entered, and those of them that wait.
    present: usize,
    waiting: usize,
    jobs: Vec<Entry<J>>,
    next: u64,
}

/// What can be one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind {
    /// The decoder, by where it lies.
    decoder: usize,
    /// Its seats, by where they lie; zero where rows under different ones can share a pass.
    seats: usize,
    work: Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Keys and values only.
    Keys(Pace),
    States(Pace),
    Logits,
}

/// A part of a pass.
pub(super) enum Job<'a> {
    /// Rows to be read; `group` is there until they are.
    Forward { packed: &'a Packed, group: Option<Group<'a>>, states: bool, out: Option<(Grid, Places)> },
    /// Rows to be read on tensors; `group` is there until they are.
    Tensors { model: &'a Tensors, group: Option<tensors::Group<'a>>, lanes: Lanes<'a>, out: Option<Tensor<2>> },
    /// States whose logits are wanted on tensors.
    TensorLogits { model: &'a Tensors, states: &'a Tensor<2>, lanes: Lanes<'a>, out: Option<Tensor<2>> },
    /// States whose logits are wanted.
    Logits { packed: &'a Packed, states: &'a Grid, seats: &'a Seats, out: Grid },
}

impl Job<'_> {
    fn kind(&self) -> Kind {
        fn address<T>(of: &T) -> usize {
            std::ptr::from_ref(of).addr()
        }
        match self {
            Self::Forward { packed, group, states, .. } => {
                let pace = group.as_ref().map_or(Pace::Step, Group::pace);
                let work = if *states { Work::States(pace) } else { Work::Keys(pace) };
                Kind { decoder: address(*packed), seats: 0, work }
            }
            Self::Logits { packed, .. } => Kind { decoder: address(*packed), seats: 0, work: Work::Logits },
            Self::Tensors { model, lanes, .. } => {
                Kind { decoder: address(*model), seats: lanes.address(), work: Work::States(Pace::Step) }
            }
            Self::TensorLogits { model, lanes, .. } => {
                Kind { decoder: address(*model), seats: lanes.address(), work: Work::Logits }
            }
        }
    }

    /// Does jobs of one kind in one pass.
    pub(super) fn run(jobs: &mut [&mut Self]) {
        match jobs.first() {
            None => {}
            Some(Self::Forward { packed, states, .. }) => {
                let (packed, states) = (*packed, *states);
                let mut groups: Vec<Group<'_>> = jobs
                    .iter_mut()
                    .filter_map(|job| if let Self::Forward { group, .. } = &mut **job { group.take() } else { None })
                    .collect();
                let mut read = packed.forward_all(&mut groups, states).into_iter();
                for job in jobs {
                    if let Self::Forward { out, .. } = job {
                        *out = read.next();
                    }
                }
            }
            Some(Self::Logits { packed, .. }) => {
                let packed = *packed;
                let heads: Vec<(&Grid, &Seats)> = jobs
                    .iter()
                    .filter_map(
                        |job| if let Self::Logits { states, seats, .. } = &**job { Some((*states, *seats)) } else { None },
                    )
                    .collect();
                let mut logits = packed.logits_of(&heads).into_iter();
                for job in jobs {
                    if let Self::Logits { out, .. } = job {
                        *out = logits.next().unwrap_or_default();
                    }
                }
            }
            Some(Self::Tensors { model, lanes, .. }) => {
                let (model, lanes) = (*model, *lanes);
                let mut groups: Vec<tensors::Group<'_>> = jobs
                    .iter_mut()
                    .filter_map(|job| if let Self::Tensors { group, .. } = &mut **job { group.take() } else { None })
                    .collect();
                let mut states = model.forward(&mut groups, lanes).into_iter();
                for job in jobs {
                    if let Self::Tensors { out, .. } = job {
                        *out = states.next();
                    }
                }
            }
            Some(Self::TensorLogits { model, lanes, .. }) => {
                let (model, lanes) = (*model, *lanes);
                let states: Vec<&Tensor<2>> = jobs
                    .iter()
                    .filter_map(|job| if let Self::TensorLogits { states, .. } = &**job { Some(*states) } else { None })
                    .collect();
                let mut logits = model.logits_of(&states, lanes).into_iter();
                for job in jobs {
                    if let Self::TensorLogits { out, .. } = job {
                        *out = logits.next();
                    }
                }
            }
        }
    }
}

struct Entry<J> {
    id: u64,
    kind: Kind,
    job: Pointer<J>,
    outcome: Outcome,
}

enum Outcome {
    Pending,
    /// In the hands of the thread that runs it.
    Taken,
    Done,
    Panicked(String),
}

/// A job on the stack of the thread that waits for it.
struct Pointer<J>(*mut J);

// SAFETY: the job belongs to a thread that does nothing until the job's outcome is known, and one other thread at a time looks at it. Jobs
// hold references to what is shared between threads, and to caches of the thread that waits.
unsafe impl<J> Send for Pointer<J> {}

thread_local! {
    /// The meeting that this thread has entered, by where it lies; zero for none.
    static ENTERED: Cell<usize> = const { Cell::new(0) };
}

/// A thread's presence at a meeting. Dropping it leaves.
#[derive(Debug)]
pub struct Presence<'a> {
    meeting: &'a Meeting<Job<'static>>,
    /// Presence is of the thread that entered.
    _here: PhantomData<*const ()>,
}

impl Default for Together {
    fn default() -> Self {
        Self::new()
    }
}

impl Together {
    /// A meeting of nobody.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Meeting::new(Job::run)))
    }

    /// Enters with the calling thread.
    ///
    /// From here on its passes wait until every thread that has entered wants one, or has left: a thread that has entered must not wait
    /// for another one by other means.
    ///
    /// # Panics
    ///
    /// If this thread is at a meeting already.
    #[must_use]
    pub fn enter(&self) -> Presence<'_> {
        assert_eq!(ENTERED.get(), 0, "a thread is at one meeting at a time");
        ENTERED.set(self.address());
        self.0.enter();
        Presence { meeting: &self.0, _here: PhantomData }
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// Whether the calling thread has entered.
    pub(super) fn is_entered(&self) -> bool {
        ENTERED.get() == self.address()
    }

    /// Does a job in one pass with all others of its kind.
    pub(super) fn submit(&self, job: &mut Job<'_>) {
        let kind = job.kind();
        // SAFETY: only the lifetime changes, and nobody looks at the job after `submit` has returned.
        let job: &mut Job<'static> = unsafe { std::mem::transmute(job) };
        self.0.submit(kind, job);
    }
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        ENTERED.set(0);
        self.meeting.leave();
    }
}

impl<J> Meeting<J> {
    fn new(run: fn(&mut [&mut J])) -> Self {
        Self { state: Mutex::new(State { present: 0, waiting: 0, jobs: Vec::new(), next: 0 }), done: Condvar::new(), run }
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        // A panic of a pass is caught and handed to those who asked for it, so nothing is left torn.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) {
        self.lock().present += 1;
    }

    fn leave(&self) {
        self.lock().present -= 1;
        // Those who are left may all be waiting now.
        self.done.notify_all();
    }

    /// Does `job` in one pass with all others of its kind that are wanted when everybody waits.
    ///
    /// # Panics
    ///
    /// If the pass panics.
    fn submit(&self, kind: Kind, job: &mut J) {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.waiting += 1;
        state.jobs.push(Entry { id, kind, job: Pointer(job), outcome: Outcome::Pending });
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
            if state.waiting < state.present || state.jobs.iter().any(|entry| matches!(entry.outcome, Outcome::Taken)) {
                state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state = self.lead(state);
        }
    }

    /// Runs the kind of pass that most wait for, while everybody waits.
    fn lead<'a>(&'a self, mut state: MutexGuard<'a, State<J>>) -> MutexGuard<'a, State<J>> {
        let pending = |state: &State<J>, kind: Kind| {
            state.jobs.iter().filter(|entry| entry.kind == kind && matches!(entry.outcome, Outcome::Pending)).count()
        };
        let kinds = state.jobs.iter().filter(|entry| matches!(entry.outcome, Outcome::Pending)).map(|entry| entry.kind);
        // Of equals, what has waited longest.
        let mut best: Option<(usize, Kind)> = None;
        for kind in kinds {
            let count = pending(&state, kind);
            if best.is_none_or(|(most, _)| count > most) {
                best = Some((count, kind));
            }
        }
        let Some((_, kind)) = best else {
            // Everybody's pass is over and nobody has woken yet.
            return self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let mut jobs: Vec<(u64, Pointer<J>)> = Vec::new();
        for entry in state.jobs.iter_mut().filter(|entry| entry.kind == kind && matches!(entry.outcome, Outcome::Pending)) {
            entry.outcome = Outcome::Taken;
            jobs.push((entry.id, Pointer(entry.job.0)));
        }
        drop(state);
        // SAFETY: each job lies on the stack of a thread that waits in `submit` until its outcome is set, below; nothing else uses it.
        let mut borrowed: Vec<&mut J> = jobs.iter().map(|(_, job)| unsafe { &mut *job.0 }).collect();
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(&mut borrowed)));
        drop(borrowed);
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

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a joined pass panicked".to_owned())
}

impl<J> fmt::Debug for Meeting<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meeting").field("present", &self.lock().present).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    /// A number to be doubled, and how often anything was.
    struct Double<'a>(usize, &'a AtomicUsize);

    fn double(jobs: &mut [&mut Double<'_>]) {
        jobs[0].1.fetch_add(1, Ordering::Relaxed);
        jobs.iter_mut().for_each(|job| job.0 *= 2);
    }

    fn kind(decoder: usize) -> Kind {
        Kind { decoder, seats: 0, work: Work::States(Pace::Step) }
    }

    /// Each of `threads` does its own number of jobs; returns how many passes that took.
    fn passes(threads: usize, rounds: impl Fn(usize) -> usize + Sync, kinds: usize) -> usize {
        let count = AtomicUsize::new(0);
        let meeting = Meeting::new(double);
        let gate = std::sync::Barrier::new(threads);
        thread::scope(|scope| {
            for own in 0..threads {
                let (meeting, count, gate, rounds) = (&meeting, &count, &gate, &rounds);
                scope.spawn(move || {
                    meeting.enter();
                    gate.wait();
                    for round in 0..rounds(own) {
                        let mut job = Double(own + round, count);
                        meeting.submit(kind((round + own) % kinds), &mut job);
                        assert_eq!(job.0, 2 * (own + round));
                    }
                    meeting.leave();
                });
            }
        });
        let state = meeting.lock();
        assert_eq!((state.present, state.waiting, state.jobs.len()), (0, 0, 0));
        drop(state);
        count.into_inner()
    }

    #[test]
    fn jobs_of_all_threads_are_one_pass() {
        assert_eq!(passes(8, |_| 50, 1), 50);
    }

    #[test]
    fn threads_that_differ_in_kind_and_number_of_passes_all_end() {
        let found = passes(6, |own| 20 * own, 3);
        // Nobody has more rounds than the last, and joining saves some of the 300.
        assert!((100..300).contains(&found), "{found}");
    }

    #[test]
    fn a_panic_reaches_everybody_who_asked() {
        let meeting: Meeting<usize> = Meeting::new(|_| panic!("broken"));
        let gate = std::sync::Barrier::new(3);
        let told = thread::scope(|scope| {
            let ask = || {
                meeting.enter();
                gate.wait();
                let panic = catch_unwind(AssertUnwindSafe(|| meeting.submit(kind(0), &mut 1))).unwrap_err();
                meeting.leave();
                message(panic.as_ref())
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(told, ["broken"; 3]);
        assert_eq!(meeting.lock().present, 0);
    }
}
