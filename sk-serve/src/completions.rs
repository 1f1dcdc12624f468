//! The completion endpoints.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Instant;

use axum::Json;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use rand::RngExt;
use serde_json::Value;
use sk_core::TokenId;
use sk_models::dialogue::encode_messages;
use sk_models::text::TextError;
use sk_scheme::SchemeSpec;
use tokio::sync::{Notify, mpsc, watch};

use crate::ApiError;
use crate::admission::{Admitted, Counted, Place, Ticket};
use crate::generation::{Event, Outcome, StopOnDrop, Work};
use crate::id::{RequestId, new_id};
use crate::request::{Asked, Job, Prompt};
use crate::response::{Choice, Envelope, Shape, StreamUsage, Summary, now, token_counts, usage};
use crate::service::Service;

/// Number of events buffered for a slow client before generation waits for it.
const BUFFERED: usize = 16;

/// Maximum number of log-probabilities of a response that is not streamed, those of the most likely
/// tokens included. [`Limits::memory`](crate::Limits) does not count them, and a response takes about
/// half a kilobyte for each while it is built.
const MOST_LOG_PROBS: usize = 1 << 19;

/// The default τ.
const TOLERANCE: f64 = 0.1;

/// The receiving side of the answers of a request.
struct Listener {
    /// The identifier of the request in logs.
    request: RequestId,
    events: mpsc::Receiver<Event>,
    /// Stops the answers when the listener is dropped.
    stop: StopOnDrop,
    /// Counts the request as unfinished: a stream until it is sent, another response until it is
    /// built.
    _unfinished: Arc<Counted>,
    /// Whether the server no longer waits for the answers.
    cut_off: watch::Receiver<bool>,
    prompt_tokens: usize,
    choices: usize,
    /// The costs of the complete answers.
    done: Vec<Summary>,
}

impl Listener {
    /// Returns the next event; [`Event::Failed`] if the channel closes before all answers are
    /// complete, if the time ended before any answer took a step, or if the server is shutting down
    /// and no longer waits.
    async fn next(&mut self) -> Event {
        // Answers are stopped without an error if the client has not read them when the time ends.
        let closed = || if self.stop.0.is_stopped() { ApiError::out_of_time() } else { ApiError::fault() };
        let event = tokio::select! {
            event = self.events.recv() => event.unwrap_or_else(|| Event::Failed(closed())),
            _ = self.cut_off.wait_for(|cut_off| *cut_off) => Event::Failed(ApiError::draining()),
        };
        if let Event::Done { summary, .. } = &event {
            self.done.push(*summary);
            if self.is_complete() && self.done.iter().all(Summary::is_unstarted) {
                return Event::Failed(ApiError::out_of_time());
            }
        }
        event
    }

    /// Returns whether all answers are complete.
    fn is_complete(&self) -> bool {
        self.done.len() == self.choices
    }
}

/// Answers a job.
pub(crate) async fn answer(service: &Arc<Service>, request: RequestId, job: Job, shape: Shape) -> Result<Response, ApiError> {
    let model = job.model.clone().unwrap_or_else(|| service.parts.name.clone());
    let envelope = Envelope { shape, id: new_id(shape.id_prefix()), created: now(), model, usage: job.usage };
    let (stream, arrived) = (job.stream, Instant::now());
    // Long texts take a while to tokenize. Other connections are served meanwhile.
    let starting = {
        let (service, id) = (Arc::clone(service), envelope.id.clone());
        tokio::task::spawn_blocking(move || start(&service, request, arrived, job, id))
    };
    let mut listener = starting.await.unwrap_or_else(|_| Err(ApiError::fault()))?;
    if stream {
        return Ok(streamed(Arc::clone(service), listener, envelope));
    }
    let mut choices: Vec<Choice> = (0..listener.choices).map(|_| Choice::default()).collect();
    while !listener.is_complete() {
        match listener.next().await {
            Event::Started { .. } => {}
            Event::Span { choice, text, step, .. } => {
                choices[choice].text.push_str(&text);
                choices[choice].steps.extend(step.map(|step| *step));
            }
            Event::Done { choice, summary, scores } => {
                choices[choice].summary = summary;
                choices[choice].scores = scores;
            }
            Event::Failed(error) => return Err(error),
        }
    }
    Ok(Json(envelope.whole(&choices, &usage(listener.prompt_tokens, &listener.done), service.parts.host.tokenizer()))
        .into_response())
}

/// Queues a job. Its answers start when threads and memory are available.
fn start(service: &Arc<Service>, request: RequestId, arrived: Instant, mut job: Job, id: String) -> Result<Listener, ApiError> {
    service.check_model(job.model.as_deref())?;
    if job.log_probs.is_some() && service.parts.host.local().is_none() {
        let message = "`logprobs` is not available while the backbone runs on other servers; leave it out";
        return Err(ApiError::invalid("logprobs", message));
    }
    let config = service.scheme(&job)?;
    // Adapters that are unloaded while the request waits are kept for it.
    let adapters = service.parts.rack.only(config.adapters().map(|(name, _)| name));
    if let Some((name, _)) = config.adapters().find(|(name, _)| !adapters.contains(name)) {
        return Err(ApiError::no_adapter("swiss_knife.weights", &name, &service.adapters()));
    }
    let prompts = std::mem::take(&mut job.prompts);
    // With `echo`, a prompt may be scored alone.
    let least = usize::from(job.max_new_tokens.is_none_or(|(_, most)| most > 0));
    let asked = prompts.into_iter().map(|prompt| asked(service, prompt, &job.steering.prefix, &config, least).map(Arc::new));
    let asked = asked.collect::<Result<Vec<_>, _>>()?;
    let max_new_tokens = service.max_new_tokens(job.max_new_tokens)?;
    let stop = StopOnDrop::default();
    let work = Work {
        id,
        request: request.clone(),
        arrived,
        asked,
        adapters,
        config,
        max_new_tokens,
        seed: job.seed.unwrap_or_else(|| rand::rng().random()),
        tolerance: job.steering.tolerance.unwrap_or(TOLERANCE),
        job,
        stop: stop.0.clone(),
        next: AtomicUsize::new(0),
        all_begun: Notify::new(),
        failed: AtomicBool::new(false),
    };
    check_log_probs(service, &work)?;
    let (sender, events) = mpsc::channel(BUFFERED);
    let choices = work.answers();
    let prompt_tokens = work.asked.iter().map(|asked| asked.tokens.len()).sum();
    let of_answer = |asked: &Arc<Asked>| {
        let new = work.limit(asked, service);
        let reach = (asked.tokens.len() + asked.extra() + new).min(service.parts.host.context_limit());
        service.bytes(&work.config, &work.adapters, reach, new)
    };
    let bytes = work.asked.iter().map(of_answer).max().unwrap_or(0);
    let field = work.job.max_new_tokens.map_or("max_tokens", |(field, _)| field);
    let (ticket, unfinished) = service.queue(bytes, choices, field)?;
    let at_once = service.at_once(choices, bytes);
    let answers = Answers { service: Arc::clone(service), work: Arc::new(work), sender };
    tokio::spawn(answers.begin(ticket, at_once));
    let cut_off = service.cut_off.subscribe();
    Ok(Listener { request, events, stop, _unfinished: unfinished, cut_off, prompt_tokens, choices, done: Vec::new() })
}

/// Refuses more log-probabilities than a response that is not streamed holds.
fn check_log_probs(service: &Service, work: &Work) -> Result<(), ApiError> {
    let Some(likely) = work.job.log_probs.filter(|_| !work.job.stream) else { return Ok(()) };
    let of_answer = |asked: &Arc<Asked>| work.limit(asked, service) + if work.job.echo { asked.tokens.len() } else { 0 };
    let tokens = work.job.choices * work.asked.iter().map(of_answer).sum::<usize>();
    let log_probs = tokens * (1 + likely);
    if log_probs <= MOST_LOG_PROBS {
        return Ok(());
    }
    let message = format!(
        "{log_probs} log-probabilities are asked for, and a response that is not streamed has at most {MOST_LOG_PROBS}; set `stream`, or \
         ask for fewer answers or tokens"
    );
    Err(ApiError::invalid("logprobs", message))
}

/// The answers of a request. Each needs a slot and memory, and queues for them behind the answers that
/// already wait.
#[derive(Clone)]
struct Answers {
    service: Arc<Service>,
    work: Arc<Work>,
    sender: mpsc::Sender<Event>,
}

impl Answers {
    async fn begin(self, ticket: Ticket, at_once: usize) {
        let place = ticket.place().clone();
        let admitted = tokio::select! {
            admitted = tokio::time::timeout(self.work.time_left(&self.service), ticket.admitted()) => {
                admitted.unwrap_or_else(|_| Err(ApiError::kept_waiting()))
            }
            // The client disconnected while it waited.
            () = self.sender.closed() => return self.work.hang_up(),
        };
        match admitted {
            Ok(admitted) => {
                for _ in 1..at_once {
                    tokio::spawn(self.clone().go_on(place.clone()));
                }
                self.write_one(Some(admitted)).await;
                self.go_on(place).await;
            }
            Err(error) => {
                self.work.abandon(Outcome::Failed);
                // The client may have disconnected.
                let _ = self.sender.send(Event::Failed(error)).await;
            }
        }
    }

    /// Writes answers one by one until all are begun.
    async fn go_on(self, place: Place) {
        loop {
            // Once all are begun, permits would be taken for nothing.
            let all_begun = self.work.all_begun.notified();
            if !self.work.is_open() {
                return;
            }
            let admitted = tokio::select! {
                admitted = tokio::time::timeout(self.work.time_left(&self.service), place.clone().admitted()) => admitted,
                () = all_begun => return,
                () = self.sender.closed() => return self.work.hang_up(),
            };
            // An answer that begins after the time has ended takes no step, and so needs no memory.
            self.write_one(admitted.ok().and_then(Result::ok)).await;
        }
    }

    async fn write_one(&self, admitted: Option<Admitted>) {
        let Self { service, work, sender } = self.clone();
        // `run` catches panics.
        let _ = tokio::task::spawn_blocking(move || work.run(&service, admitted, &sender)).await;
    }
}

/// Tokenizes a prompt with each instruction of the scheme and without, and appends the given prefix
/// of its answer.
///
/// # Errors
/// If the context has no room for `least` tokens of an answer, or a field is at fault.
fn asked(service: &Service, prompt: Prompt, prefix: &[TokenId], config: &SchemeSpec, least: usize) -> Result<Asked, ApiError> {
    let tokenizer = service.parts.host.tokenizer();
    let (field, tokens) = match &prompt {
        Prompt::Messages(messages) => ("messages", encode_messages(&service.parts.framing, tokenizer, messages, None)),
        Prompt::Text(text) => ("prompt", tokenizer.encode(text)),
        Prompt::Tokens(tokens) => ("prompt", Ok(tokens.clone())),
    };
    let mut tokens = tokens.map_err(|error: TextError| ApiError::invalid(field, error.to_string()))?;
    if tokens.is_empty() {
        return Err(ApiError::invalid(field, "the prompt is empty"));
    }
    let opening = tokens.len();
    let most = service.limits.prompt_tokens;
    if opening > most {
        let message = format!("this server takes prompts of at most {most} tokens, and the prompt has {opening}; shorten it");
        return Err(ApiError::too_long(field, message));
    }
    tokens.extend_from_slice(prefix);
    // Models may embed spare tokens after those of the tokenizer, and not equally many.
    let vocabulary = tokenizer.vocab_size();
    if let Some(place) = tokens.iter().position(|token| *token as usize >= vocabulary) {
        let field = if place < opening { field } else { "swiss_knife.prefix" };
        let message = format!("token {} is outside the vocabulary of {vocabulary}", tokens[place]);
        return Err(ApiError::invalid(field, message));
    }
    let limit = service.parts.host.context_limit();
    if tokens.len() + least > limit {
        return Err(ApiError::beyond_context(field, tokens.len(), limit));
    }
    let mut asked = Asked { prompt, tokens, opening, instructions: Vec::new() };
    for (name, text) in config.instructions() {
        let wrong = |error| ApiError::invalid("swiss_knife.blades", format!("the instruction of \"{name}\": {error}"));
        let instruction = service.instruction(&asked, text).map_err(wrong)?;
        let (tokens, added) = (asked.tokens.len(), instruction.extra());
        if tokens + added + least > limit {
            return Err(ApiError::instructed_beyond_context(tokens, &format!("the instruction of \"{name}\""), added, limit));
        }
        asked.instructions.push((text.to_owned(), instruction));
    }
    Ok(asked)
}

/// The state of a stream.
struct Chunks {
    service: Arc<Service>,
    listener: Listener,
    envelope: Envelope,
    /// The number of tokens so far of each answer.
    tokens: Vec<usize>,
    ended: bool,
}

impl Chunks {
    /// Returns the chunks of an event.
    fn of(&mut self, event: Event) -> Vec<Value> {
        let mut chunks: Vec<Value> = match event {
            Event::Started { choice } => self.envelope.opening(choice).into_iter().collect(),
            Event::Span { choice, text, step, tokens } => {
                self.tokens[choice] = tokens;
                vec![self.envelope.span(choice, &text, step.as_deref())]
            }
            Event::Done { choice, summary, scores } => {
                self.tokens[choice] = summary.tokens;
                self.ended = self.listener.is_complete();
                let closing = self.envelope.closing(choice, summary.ended, scores.as_ref(), self.service.parts.host.tokenizer());
                let usage = (self.ended && self.envelope.usage != StreamUsage::None)
                    .then(|| self.envelope.usage_chunk(&usage(self.listener.prompt_tokens, &self.listener.done)));
                [closing].into_iter().chain(usage).collect()
            }
            Event::Failed(error) => {
                self.ended = true;
                // The request has the status 200 in the log, since its head was sent before.
                tracing::warn!(request = %self.listener.request.0, error = error.cause(), "stream failed");
                vec![error.body()]
            }
        };
        if self.envelope.usage == StreamUsage::InEveryChunk {
            let so_far = token_counts(self.listener.prompt_tokens, self.tokens.iter().sum());
            for usage in chunks.iter_mut().filter_map(|chunk| chunk.get_mut("usage")).filter(|usage| usage.is_null()) {
                *usage = so_far.clone();
            }
        }
        chunks
    }
}

/// Returns a stream of chunks. Dropping it stops the answers.
fn streamed(service: Arc<Service>, listener: Listener, envelope: Envelope) -> Response {
    let keep_alive = service.limits.keep_alive;
    let tokens = vec![0; listener.choices];
    let chunks = Chunks { service, listener, envelope, tokens, ended: false };
    let chunks = stream::unfold(chunks, async |mut chunks| {
        if chunks.ended {
            return None;
        }
        let event = chunks.listener.next().await;
        Some((stream::iter(chunks.of(event)), chunks))
    });
    let data = chunks.flatten().map(|chunk| chunk.to_string()).chain(stream::iter(["[DONE]".to_owned()]));
    let events = Sse::new(data.map(|data| Ok::<_, Infallible>(sse::Event::default().data(data))));
    let mut response = match keep_alive {
        Some(interval) => events.keep_alive(KeepAlive::new().interval(interval)).into_response(),
        None => events.into_response(),
    };
    // Without a charset, some clients decode the text as Latin-1.
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    // nginx and what is built on it would collect the chunks.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers end without an event if their client has not read them when the time ends.
    #[tokio::test]
    async fn answers_that_were_stopped_have_run_out_of_time() {
        for (is_stopped, status) in [(true, 504), (false, 500)] {
            let (_, events) = mpsc::channel(1);
            let (_cut_off, cut_off) = watch::channel(false);
            let stop = StopOnDrop::default();
            if is_stopped {
                stop.0.stop();
            }
            let mut listener = Listener {
                request: RequestId("req".into()),
                events,
                stop,
                _unfinished: Arc::new(Counted::join(&Arc::default(), 1).unwrap()),
                cut_off,
                prompt_tokens: 1,
                choices: 1,
                done: Vec::new(),
            };
            let Event::Failed(error) = listener.next().await else { panic!("another event") };
            assert_eq!(error.into_response().status(), status);
        }
    }
}
