//! Reading of spans under several policies at once, on the servers of a role.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use sk_core::{Reading, TokenId};

use crate::error::counted;
use crate::fleet::{Control, Fleet, Lease, Request};
use crate::tolerance::mean;
use crate::wire::{Prefix, Row, agree, sglang, vllm};
use crate::{AnswerError, Fault, Kind, Meter, RemoteError, Tolerance};

/// The fewest tokens of a context that is read into the cache before its first rows. For shorter
/// ones this would cost more than it saves.
const WARMED: usize = 128;

/// A policy to be read.
pub(crate) struct Lane {
    /// Its name, by which it is assigned to a server.
    pub(crate) name: Arc<str>,
    /// The name of the adapter on the servers; `None` for the base model.
    pub(crate) adapter: Option<Arc<str>>,
    pub(crate) prefix: Arc<Prefix>,
}

impl Lane {
    /// Returns the name of the policy for messages.
    pub(crate) fn policy(&self) -> String {
        if self.name.is_empty() { policy_name(None) } else { format!("policy \"{}\"", self.name) }
    }
}

/// Reads for one generation. Each lane stays on its server.
pub(crate) struct Reader {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) meter: Arc<Meter>,
    /// The server of each part of a lane.
    homes: BTreeMap<(Arc<str>, usize), Lease>,
}

/// Some spans of a lane, assigned to one server.
struct Task {
    lane: usize,
    part: usize,
    spans: Range<usize>,
    home: usize,
    is_new: bool,
}

/// The rows of a request.
struct Job {
    home: usize,
    /// Indices of its tasks.
    tasks: Vec<usize>,
    controls: Vec<(Option<Arc<str>>, Arc<Control>)>,
}

impl Reader {
    pub(crate) fn new(fleet: &Arc<Fleet>, meter: &Arc<Meter>) -> Self {
        Self { fleet: Arc::clone(fleet), meter: Arc::clone(meter), homes: BTreeMap::new() }
    }

    /// Reads each span as the continuation of each lane's prefix. Returns one reading per lane and
    /// span.
    ///
    /// On SGLang, lanes on the same server share a request. If there are at least twice as many
    /// servers as lanes, the spans of a lane are split among several servers.
    pub(crate) fn read(&mut self, lanes: &[Lane], spans: &[&[TokenId]]) -> Result<Vec<Vec<Reading>>, RemoteError> {
        let longest = spans.iter().map(|span| span.len()).max().unwrap_or(0);
        for lane in lanes {
            // vLLM needs room for one more token.
            self.fleet.check_room(lane.prefix.len() + longest + 1)?;
        }
        let tasks = self.tasks(lanes, spans.len());
        self.warm(lanes, &tasks)?;
        let jobs = self.jobs(lanes, &tasks);
        let rows: Vec<Vec<Row<'_>>> = jobs.iter().map(|job| rows_of(job, &tasks, lanes, spans)).collect();
        let tolerance = self.fleet.tolerance;
        let requests: Vec<Request<'_, Vec<Reading>>> = jobs
            .iter()
            .zip(&rows)
            .map(|(job, rows)| {
                let inspect = move |readings: &[Reading]| {
                    agree(rows, readings, tolerance.token)?;
                    let first = rows.len() - job.controls.len();
                    check_controls(&job.controls, &readings[first..], tolerance)
                };
                request(&self.fleet, (job.home, false), rows, inspect)
            })
            .collect();
        let answers = self.fleet.all(&requests, &self.meter)?;

        let mut readings: Vec<Vec<Reading>> = lanes.iter().map(|_| vec![Reading::default(); spans.len()]).collect();
        for (job, answer) in jobs.iter().zip(answers) {
            let mut values = answer.value.into_iter();
            for task in job.tasks.iter().map(|&task| &tasks[task]) {
                for span in task.spans.clone() {
                    readings[task.lane][span] = values.next().unwrap_or_default();
                }
                if let Some(home) = self.homes.get_mut(&(Arc::clone(&lanes[task.lane].name), task.part)) {
                    home.move_to(answer.server);
                }
            }
        }
        Ok(readings)
    }

    /// Assigns the spans of each lane to servers.
    fn tasks(&mut self, lanes: &[Lane], spans: usize) -> Vec<Task> {
        let parts = (self.fleet.available() / lanes.len().max(1)).clamp(1, spans.max(1));
        let mut tasks = Vec::with_capacity(lanes.len() * parts);
        for (lane, Lane { name, .. }) in lanes.iter().enumerate() {
            for part in 0..parts {
                let (home, is_new) = self.home(name, part);
                let spans = spans * part / parts..spans * (part + 1) / parts;
                tasks.push(Task { lane, part, spans, home, is_new });
            }
        }
        tasks
    }

    /// Returns the server of a part of a lane, and whether the part is new there.
    fn home(&mut self, name: &Arc<str>, part: usize) -> (usize, bool) {
        let key = (Arc::clone(name), part);
        match self.homes.get(&key) {
            Some(home) if self.fleet.keeps(home.server()) => (home.server(), false),
            previous => {
                let home = Lease::new(&self.fleet);
                let server = home.server();
                let is_new = previous.is_none_or(|previous| previous.server() != server);
                self.homes.insert(key, home);
                (server, is_new)
            }
        }
    }

    /// Reads the contexts of new lanes into the caches, once each instead of once per row.
    fn warm(&self, lanes: &[Lane], tasks: &[Task]) -> Result<(), RemoteError> {
        match self.fleet.kind {
            // Rows with prompt_logprobs bypass the cache.
            Kind::Vllm => return Ok(()),
            Kind::Sglang => {}
        }
        let mut fresh: BTreeMap<usize, Vec<(Option<&str>, &Prefix)>> = BTreeMap::new();
        for task in tasks {
            let Lane { adapter, prefix, .. } = &lanes[task.lane];
            if task.is_new && prefix.len() >= WARMED && task.spans.len() > 1 {
                fresh.entry(task.home).or_default().push((adapter.as_deref(), prefix));
            }
        }
        let request = |(&home, lanes): (&usize, &Vec<(Option<&str>, &Prefix)>)| Request {
            home,
            pinned: false,
            task: format!("reading ahead under {}", policies_of(lanes.iter().map(|lane| lane.0))),
            path: sglang::PATH,
            body: Some(sglang::warm_body(lanes)),
            parse: Box::new(sglang::warm_answer),
        };
        let requests: Vec<Request<'_, ()>> = fresh.iter().map(request).collect();
        self.fleet.all(&requests, &self.meter).map(drop)
    }

    /// Groups the tasks into requests, each with the controls of its adapters.
    fn jobs(&self, lanes: &[Lane], tasks: &[Task]) -> Vec<Job> {
        let mut jobs: Vec<Job> = Vec::new();
        for (place, task) in tasks.iter().enumerate().filter(|(_, task)| !task.spans.is_empty()) {
            let shared = match self.fleet.kind {
                Kind::Sglang => jobs.iter_mut().find(|job| job.home == task.home),
                Kind::Vllm => None,
            };
            match shared {
                Some(job) => job.tasks.push(place),
                None => jobs.push(Job { home: task.home, tasks: vec![place], controls: Vec::new() }),
            }
        }
        for job in &mut jobs {
            let adapters = job.tasks.iter().map(|&task| &lanes[tasks[task].lane].adapter);
            let mut adapters: Vec<&Option<Arc<str>>> = adapters.collect();
            adapters.sort_unstable();
            adapters.dedup();
            let control = |adapter: &Option<Arc<str>>| {
                Some((adapter.clone(), self.fleet.controls.get(adapter.as_deref().unwrap_or_default())?))
            };
            job.controls = adapters.into_iter().filter_map(control).collect();
        }
        jobs
    }
}

/// Returns the rows of a job: its spans task by task, then its controls.
fn rows_of<'a>(job: &'a Job, tasks: &[Task], lanes: &'a [Lane], spans: &[&'a [TokenId]]) -> Vec<Row<'a>> {
    let row = |task: &Task| {
        let Lane { adapter, prefix, .. } = &lanes[task.lane];
        let row = |span| Row { adapter: adapter.as_deref(), prefix, span };
        spans[task.spans.clone()].iter().copied().map(row).collect::<Vec<_>>()
    };
    let control = |(adapter, control): &'a (Option<Arc<str>>, Arc<Control>)| Row {
        adapter: adapter.as_deref(),
        prefix: &control.prefix,
        span: &control.span,
    };
    job.tasks.iter().flat_map(|&task| row(&tasks[task])).chain(job.controls.iter().map(control)).collect()
}

fn check_controls(
    controls: &[(Option<Arc<str>>, Arc<Control>)],
    readings: &[Reading],
    tolerance: Tolerance,
) -> Result<(), AnswerError> {
    for ((adapter, control), reading) in controls.iter().zip(readings) {
        if tolerance.violation(&control.log_probs, &reading.log_probs).is_some() {
            let (expected, got) = (mean(&control.log_probs), mean(&reading.log_probs));
            return Err(AnswerError::Control { policy: policy_name(adapter.as_deref()), expected, got });
        }
    }
    Ok(())
}

/// Returns the name of an adapter for messages.
pub(crate) fn policy_name(adapter: Option<&str>) -> String {
    adapter.map_or_else(|| "the base model".to_owned(), |adapter| format!("adapter \"{adapter}\""))
}

/// Returns the distinct names of several adapters for messages.
fn policies_of<'a>(adapters: impl Iterator<Item = Option<&'a str>>) -> String {
    let adapters: BTreeSet<Option<&str>> = adapters.collect();
    adapters.into_iter().map(policy_name).collect::<Vec<_>>().join(", ")
}

/// Creates a request that reads rows at a server, and nowhere else if `pinned`. On vLLM all rows
/// must use the same adapter. `inspect` validates the readings.
pub(crate) fn request<'a>(
    fleet: &Fleet,
    (home, pinned): (usize, bool),
    rows: &'a [Row<'a>],
    inspect: impl Fn(&[Reading]) -> Result<(), AnswerError> + Send + Sync + 'a,
) -> Request<'a, Vec<Reading>> {
    let kind = fleet.kind;
    let (path, body) = match kind {
        Kind::Sglang => (sglang::PATH, sglang::read_body(rows)),
        Kind::Vllm => {
            let adapter = rows.first().and_then(|row| row.adapter);
            (vllm::PATH, vllm::read_body(adapter.or(fleet.model.as_deref()), rows))
        }
    };
    let parse = move |body: &[u8]| {
        let readings = match kind {
            Kind::Sglang => sglang::read_answer(body, rows),
            Kind::Vllm => vllm::read_answer(body, rows),
        }?;
        inspect(&readings).map_err(Fault::Answer)?;
        Ok(readings)
    };
    let task = format!("reading {} under {}", counted(rows.len(), "span"), policies_of(rows.iter().map(|row| row.adapter)));
    Request { home, pinned, task, path, body: Some(body), parse: Box::new(parse) }
}
