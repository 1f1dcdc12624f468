//! The servers of a role: the routing of requests, and failover.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use sk_core::{Rack, TokenId};
use ureq::Agent;

use crate::http::{Failure, Server};
use crate::wire::Prefix;
use crate::{AddressError, Fault, Kind, Meter, RemoteError, Retry, Role, Tolerance, Traffic};

/// A span with the log-probabilities of the check. It is read along with the candidates, so that
/// changed weights are detected in the same step.
pub(crate) struct Control {
    pub(crate) prefix: Prefix,
    pub(crate) span: Vec<TokenId>,
    pub(crate) log_probs: Vec<f32>,
}

/// The most attempts of a request that is meant for one server, such as those of a check.
const PINNED: u32 = 5;

/// Servers of the same model.
pub(crate) struct Fleet {
    /// Their API.
    pub(crate) kind: Kind,
    /// The name of the model on the servers.
    pub(crate) model: Option<String>,
    /// The role of the model, for messages.
    pub(crate) role: &'static str,
    /// The most that two scorings of the same tokens may differ.
    pub(crate) tolerance: Tolerance,
    /// The control spans by the name of the adapter; that of the base model has no name.
    pub(crate) controls: Rack<Control>,
    retry: Retry,
    members: Vec<Member>,
    /// The most tokens of a context with its continuation; `usize::MAX` if unknown.
    limit: AtomicUsize,
    /// Whether drafted tokens are known to come with log-probabilities from before temperature,
    /// truncation and penalty.
    untempered: AtomicBool,
}

/// A server and its state.
struct Member {
    server: Server,
    /// The number of lanes of generations assigned to it.
    lanes: AtomicUsize,
    /// The number of requests in progress.
    under_way: AtomicUsize,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    /// The number of consecutive failures.
    failures: u32,
    /// The time until which it is not used while other servers are available.
    until: Option<Instant>,
}

/// A parser of answers, which returns a fault for an invalid one.
pub(crate) type Parse<'a, T> = Box<dyn Fn(&[u8]) -> Result<T, Fault> + Send + Sync + 'a>;

/// A request to a fleet.
pub(crate) struct Request<'a, T> {
    /// The preferred server.
    pub(crate) home: usize,
    /// Whether no other server may answer.
    pub(crate) pinned: bool,
    /// The task, for messages.
    pub(crate) task: String,
    pub(crate) path: &'static str,
    /// The body; `None` for a GET.
    pub(crate) body: Option<String>,
    /// The parser of the answer.
    pub(crate) parse: Parse<'a, T>,
}

/// An answer, and the server that gave it.
pub(crate) struct Answered<T> {
    pub(crate) value: T,
    pub(crate) server: usize,
}

impl Fleet {
    pub(crate) fn new(
        agent: &Agent,
        role: Role,
        name: &'static str,
        retry: Retry,
        tolerance: Tolerance,
    ) -> Result<Self, AddressError> {
        let Role { kind, urls, model, key } = role.checked()?;
        let member = |url: &String| Member {
            server: Server::new(agent, url, key.as_ref()),
            lanes: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            health: Mutex::default(),
        };
        let members = urls.iter().map(member).collect();
        Ok(Self {
            kind,
            model,
            role: name,
            tolerance,
            controls: Rack::default(),
            retry,
            members,
            limit: AtomicUsize::new(usize::MAX),
            untempered: AtomicBool::new(false),
        })
    }

    /// Returns the number of servers.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the address of a server.
    pub(crate) fn address(&self, server: usize) -> &str {
        self.members[server].server.address()
    }

    /// Returns a server's message in a form that can be shown.
    pub(crate) fn gist(&self, server: usize, body: &[u8]) -> String {
        self.members[server].server.gist(body)
    }

    /// Records the token limit of a server. The smallest limit applies.
    pub(crate) fn learn_limit(&self, limit: usize) {
        self.limit.fetch_min(limit, Ordering::Relaxed);
    }

    /// Returns the number of tokens that can follow a context of `context` tokens; `None` if the
    /// limit is unknown.
    pub(crate) fn room(&self, context: usize) -> Option<usize> {
        match self.limit.load(Ordering::Relaxed) {
            usize::MAX => None,
            limit => Some(limit.saturating_sub(context)),
        }
    }

    /// Checks that a context with its continuation fits.
    pub(crate) fn check_room(&self, tokens: usize) -> Result<(), RemoteError> {
        let limit = self.limit.load(Ordering::Relaxed);
        if tokens > limit { Err(RemoteError::ContextFull { role: self.role, tokens, limit }) } else { Ok(()) }
    }

    /// Records whether every server returns the log-probabilities of drafted tokens from before
    /// temperature, truncation and penalty.
    pub(crate) fn learn_untempered(&self, untempered: bool) {
        self.untempered.store(untempered, Ordering::Relaxed);
    }

    /// Returns whether all servers are known to return unmodified log-probabilities.
    pub(crate) fn is_untempered(&self) -> bool {
        self.untempered.load(Ordering::Relaxed)
    }

    /// Returns the number of servers that are not set aside, or of all if all are.
    pub(crate) fn available(&self) -> usize {
        let now = Instant::now();
        match self.members.iter().filter(|member| member.is_available(now)).count() {
            0 => self.members.len(),
            some => some,
        }
    }

    /// Returns whether a lane can stay on its server.
    pub(crate) fn keeps(&self, server: usize) -> bool {
        self.members[server].is_available(Instant::now())
    }

    fn lanes(&self, server: usize) -> &AtomicUsize {
        &self.members[server].lanes
    }

    fn least_busy(&self, allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let now = Instant::now();
        let key = |&server: &usize| {
            let member = &self.members[server];
            let load = (member.lanes.load(Ordering::Relaxed), member.under_way.load(Ordering::Relaxed));
            (!member.is_available(now), load, server)
        };
        (0..self.members.len()).filter(|&server| allowed(server)).min_by_key(key)
    }

    /// Sends a request and waits for the answer.
    pub(crate) fn ask<T>(&self, request: &Request<'_, T>, meter: &Meter) -> Result<Answered<T>, RemoteError> {
        meter.count(Traffic { round_trips: 1, ..Traffic::default() });
        self.one(request, meter)
    }

    /// Sends all requests concurrently and waits for the last answer.
    ///
    /// # Errors
    /// Returns the first error in the order of the requests.
    pub(crate) fn all<T: Send>(&self, requests: &[Request<'_, T>], meter: &Meter) -> Result<Vec<Answered<T>>, RemoteError> {
        self.each(requests, meter).into_iter().collect()
    }

    /// Sends all requests concurrently, waits for the last answer, and returns the outcome of each.
    pub(crate) fn each<T: Send>(&self, requests: &[Request<'_, T>], meter: &Meter) -> Vec<Result<Answered<T>, RemoteError>> {
        let Some((first, rest)) = requests.split_first() else { return Vec::new() };
        meter.count(Traffic { round_trips: 1, ..Traffic::default() });
        std::thread::scope(|scope| {
            let spawn = |request| Builder::new().spawn_scoped(scope, move || self.one(request, meter));
            let others: Vec<_> = rest.iter().map(spawn).collect();
            let mut answers = vec![self.one(first, meter)];
            for (other, request) in others.into_iter().zip(rest) {
                answers.push(match other {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                    // If no thread can be started, requests are sent one after the other.
                    Err(_) => self.one(request, meter),
                });
            }
            answers
        })
    }

    /// Sends a request, and retries it until it is answered.
    ///
    /// If a server refuses it, each other server may answer it: one that restarted no longer has
    /// the adapters that were loaded at run time.
    fn one<T>(&self, request: &Request<'_, T>, meter: &Meter) -> Result<Answered<T>, RemoteError> {
        let start = Instant::now();
        let mut tried: Vec<usize> = Vec::new();
        let mut server = request.home;
        if !request.pinned && !self.keeps(server) {
            server = self.least_busy(|_| true).unwrap_or(server);
        }
        // A check reports soon that there is no server.
        let attempts = if request.pinned { self.retry.attempts.min(PINNED) } else { self.retry.attempts };
        let mut attempt = 0;
        // The refusals by server.
        let mut refused: Vec<(usize, RemoteError)> = Vec::new();
        // Whether the server may have carried out an earlier attempt.
        let mut repeated = false;
        loop {
            let left = self.retry.deadline.saturating_sub(start.elapsed()).min(meter.left());
            if meter.left().is_zero() {
                return Err(RemoteError::Stopped { task: request.task.clone() });
            }
            let (fault, pause) = match self.attempt(server, request, left, meter) {
                Ok(value) => {
                    refused.iter().for_each(|&(server, _)| self.members[server].fail(&self.retry, None));
                    return Ok(Answered { value, server });
                }
                // The attempt was cut, or its answer would come too late: the server is not to blame.
                Err(Failure::Again(..) | Failure::Unreached(_)) if meter.left().is_zero() => continue,
                Err(Failure::Unreached(fault)) => (fault, None),
                Err(Failure::Again(fault, pause)) => {
                    repeated |= !matches!(fault, Fault::Status { .. });
                    (fault, pause)
                }
                Err(Failure::Refused { status, message }) => {
                    let (address, task) = (self.address(server).to_owned(), request.task.clone());
                    refused.push((server, RemoteError::Refused { server: address, task, status, message, repeated }));
                    tried.push(server);
                    match self.least_busy(|other| !tried.contains(&other)) {
                        Some(other) if !request.pinned => server = other,
                        _ => return Err(refused.swap_remove(0).1),
                    }
                    meter.count(Traffic { retries: 1, ..Traffic::default() });
                    continue;
                }
            };
            self.members[server].fail(&self.retry, pause);
            tried.push(server);
            let fresh = if request.pinned { None } else { self.least_busy(|other| !tried.contains(&other)) };
            if fresh.is_none() && !refused.is_empty() {
                return Err(refused.swap_remove(0).1);
            }
            let (next, wait) = match fresh {
                Some(other) => (other, Duration::ZERO),
                None => {
                    let next = if request.pinned { server } else { self.least_busy(|_| true).unwrap_or(server) };
                    (next, pause.unwrap_or_default().max(self.retry.pause(attempt)))
                }
            };
            let spent = start.elapsed();
            if attempt + 1 >= attempts || spent + wait >= self.retry.deadline {
                return Err(RemoteError::Unanswered {
                    server: self.address(server).to_owned(),
                    task: request.task.clone(),
                    attempts: attempt + 1,
                    seconds: spent.as_secs_f64(),
                    last: fault,
                });
            }
            meter.sleep(wait);
            meter.count(Traffic { retries: 1, ..Traffic::default() });
            server = next;
            attempt += 1;
        }
    }

    fn attempt<T>(&self, server: usize, request: &Request<'_, T>, left: Duration, meter: &Meter) -> Result<T, Failure> {
        let member = &self.members[server];
        member.under_way.fetch_add(1, Ordering::Relaxed);
        let answer = member.server.ask(request.path, request.body.as_deref(), self.retry.patience.min(left));
        member.under_way.fetch_sub(1, Ordering::Relaxed);
        let sent = request.body.as_ref().map_or(0, String::len) as u64;
        let received = answer.as_ref().map_or(0, Vec::len) as u64;
        meter.count(Traffic { requests: 1, bytes_out: sent, bytes_in: received, ..Traffic::default() });
        let answer = answer?;
        let value = (request.parse)(&answer).map_err(|fault| Failure::Again(member.server.quoting(fault, &answer), None))?;
        member.recover();
        Ok(value)
    }
}

/// The assignment of a lane of a generation to a server, until it is dropped.
pub(crate) struct Lease {
    fleet: Arc<Fleet>,
    server: usize,
}

impl Lease {
    /// Assigns a lane to the server with the fewest lanes, then the fewest requests in progress.
    pub(crate) fn new(fleet: &Arc<Fleet>) -> Self {
        let server = fleet.least_busy(|_| true).unwrap_or(0);
        fleet.lanes(server).fetch_add(1, Ordering::Relaxed);
        Self { fleet: Arc::clone(fleet), server }
    }

    pub(crate) fn server(&self) -> usize {
        self.server
    }

    /// Moves the lane to the server that answered, which now has its context in the cache.
    pub(crate) fn move_to(&mut self, server: usize) {
        self.fleet.lanes(server).fetch_add(1, Ordering::Relaxed);
        self.fleet.lanes(self.server).fetch_sub(1, Ordering::Relaxed);
        self.server = server;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.fleet.lanes(self.server).fetch_sub(1, Ordering::Relaxed);
    }
}

impl Member {
    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        // Both fields are plain values, so a poisoned lock cannot leave them inconsistent.
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_available(&self, now: Instant) -> bool {
        self.health().until.is_none_or(|until| until <= now)
    }

    /// Sets the server aside, for `pause` if the server requested one.
    fn fail(&self, retry: &Retry, pause: Option<Duration>) {
        let mut health = self.health();
        health.failures = health.failures.saturating_add(1);
        let aside = pause.map_or_else(|| retry.aside(health.failures), |pause| pause.min(retry.longest_aside));
        health.until = Instant::now().checked_add(aside);
    }

    fn recover(&self) {
        *self.health() = Health::default();
    }
}
