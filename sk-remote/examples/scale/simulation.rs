//! Servers that batch continuously, and users who steer one response each.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use sk_remote::Kind;

/// N.
const CANDIDATES: u64 = 7;
/// K + 1: the backbone and three adapters.
const POLICIES: usize = 4;
/// Tokens of a span.
const SPAN: u64 = 24;
/// Tokens of the context.
const CONTEXT: u64 = 1000;
/// A pass of the model over few positions, in µs: 141 GB of bf16 weights at 60 % of the bandwidth
/// of 8 H100 (3.35 TB/s each) are 9 ms, and the exchange between GPUs adds 3.
const PASS: u64 = 12_000;
/// Each position of a pass, in ns: 1.41e11 operations at 45 % of 8 × 989e12 per second.
const POSITION: u64 = 40_000;
/// The most positions of a pass.
const BUDGET: u64 = 8192;
/// From an answer to the next request, in µs: network both ways and our side.
const ROUND_TRIP: u64 = 2_000;
/// Steps per user before the measurement, and in it. Steps are counted, not seconds: within a fixed
/// time the slowest steps of an overloaded server would not end, and the mean would flatter it.
const WARM_UP: usize = 2;
const MEASURED: usize = 8;

/// The assumptions, in words.
pub(crate) fn assumptions() -> String {
    format!(
        "N = {CANDIDATES}, K = {}, spans of {SPAN} tokens, a context of {CONTEXT}; the backbone drafts. A server is 8 GPUs: a pass takes \
         {} ms and {} µs per position, of which it has {BUDGET} at most. A round trip takes {} ms.",
        POLICIES - 1,
        PASS / 1000,
        POSITION / 1000,
        ROUND_TRIP / 1000
    )
}

/// What is simulated.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// SGLang reads a span from the end of the context on, vLLM from its beginning.
    pub(crate) kind: Kind,
    pub(crate) servers: usize,
    /// Users who are steered without a pause.
    pub(crate) users: usize,
}

/// What came of it.
pub(crate) struct Outcome {
    /// Mean time of a step, in seconds.
    pub(crate) step_seconds: f64,
    /// Steps of all users.
    pub(crate) steps_per_second: f64,
    /// Share of the time in which the servers computed.
    pub(crate) busy: f64,
}

/// Work of a user at a server.
struct Job {
    user: usize,
    /// Positions that each pass takes of it at most; of a draft, its rows.
    width: u64,
    /// Positions that are left.
    left: u64,
    /// Positions in the pass under way.
    taken: u64,
}

#[derive(Default)]
struct Server {
    jobs: VecDeque<Job>,
    is_running: bool,
    busy: u64,
}

#[derive(Default)]
struct User {
    began: u64,
    /// Jobs of the phase that are not done.
    open: usize,
    is_reading: bool,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    PassEnds { server: usize },
    PhaseBegins { user: usize },
}

/// Runs the servers until enough steps are seen. The memory for keys and values is not modelled.
pub(crate) fn simulate(load: Load) -> Outcome {
    let mut servers: Vec<Server> = (0..load.servers).map(|_| Server::default()).collect();
    let mut users: Vec<User> = (0..load.users).map(|_| User::default()).collect();
    // Users come one after the other, so that they do not march in step.
    let begin = |user: usize| Reverse((user as u64 * 37_000, Event::PhaseBegins { user }));
    let mut events: BinaryHeap<Reverse<(u64, Event)>> = (0..load.users).map(begin).collect();
    let (mut steps, mut time_of_steps, mut measured_from) = (0, 0_u64, None);
    let mut end = 0;
    while let Some(Reverse((now, event))) = events.pop().filter(|_| steps < (WARM_UP + MEASURED) * load.users) {
        end = now;
        if steps >= WARM_UP * load.users && measured_from.is_none() {
            measured_from = Some(now);
            servers.iter_mut().for_each(|server| server.busy = 0);
        }
        match event {
            Event::PhaseBegins { user } => {
                for (server, job) in phase(load, user, &mut users[user], now) {
                    servers[server].jobs.push_back(job);
                    run(server, &mut servers[server], now, &mut events);
                }
            }
            Event::PassEnds { server } => {
                let Server { jobs, is_running, .. } = &mut servers[server];
                *is_running = false;
                for job in jobs.iter_mut() {
                    job.left -= std::mem::take(&mut job.taken);
                }
                for job in jobs.iter().filter(|job| job.left == 0) {
                    let user = &mut users[job.user];
                    user.open -= 1;
                    if user.open > 0 {
                        continue;
                    }
                    if user.is_reading {
                        steps += 1;
                        time_of_steps += measured_from.map_or(0, |_| now + ROUND_TRIP - user.began);
                    }
                    events.push(Reverse((now + ROUND_TRIP, Event::PhaseBegins { user: job.user })));
                }
                jobs.retain(|job| job.left > 0);
                run(server, &mut servers[server], now, &mut events);
            }
        }
    }
    let seconds = (end - measured_from.unwrap_or(0)) as f64 / 1e6;
    let measured = (MEASURED * load.users) as f64;
    let busy: u64 = servers.iter().map(|server| server.busy).sum();
    Outcome {
        step_seconds: time_of_steps as f64 / measured / 1e6,
        steps_per_second: measured / seconds,
        // A pass under way at the end is counted whole.
        busy: (busy as f64 / 1e6 / (seconds * load.servers as f64)).min(1.0),
    }
}

/// The jobs of a user's next phase: a draft at the user's own server, or each policy at its own,
/// and the rows of a policy at several where there are more servers than policies.
fn phase(load: Load, user: usize, state: &mut User, now: u64) -> Vec<(usize, Job)> {
    if state.is_reading || state.began == 0 {
        (state.began, state.is_reading, state.open) = (now.max(1), false, 1);
        let job = Job { user, width: CANDIDATES, left: CANDIDATES * SPAN, taken: 0 };
        return vec![(user % load.servers, job)];
    }
    state.is_reading = true;
    let parts = (load.servers / POLICIES).clamp(1, CANDIDATES as usize) as u64;
    let length = if load.kind == Kind::Sglang { SPAN } else { CONTEXT + SPAN };
    let mut jobs = Vec::new();
    for lane in 0..POLICIES {
        for part in 0..parts {
            let rows = CANDIDATES * (part + 1) / parts - CANDIDATES * part / parts;
            let server = (user * POLICIES + lane * parts as usize + part as usize) % load.servers;
            jobs.push((server, Job { user, width: BUDGET, left: rows * length, taken: 0 }));
        }
    }
    state.open = jobs.len();
    jobs
}

/// Begins a pass if there is work: drafts first, since each row needs one position a pass.
fn run(place: usize, server: &mut Server, now: u64, events: &mut BinaryHeap<Reverse<(u64, Event)>>) {
    if server.is_running || server.jobs.is_empty() {
        return;
    }
    let mut room = BUDGET;
    for is_draft in [true, false] {
        for job in server.jobs.iter_mut().filter(|job| (job.width < BUDGET) == is_draft) {
            job.taken = job.left.min(job.width).min(room);
            room -= job.taken;
        }
    }
    let took = PASS + (BUDGET - room) * POSITION / 1000;
    server.is_running = true;
    server.busy += took;
    events.push(Reverse((now + took, Event::PassEnds { server: place })));
}
