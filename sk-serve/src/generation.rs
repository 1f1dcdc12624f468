//! Generation of answers: the worker threads and the events that they send.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sk_core::{AlignmentSpec, Arm, Ended, InstructionRack, Policy, StepTrace, TimeLeft, TokenId};
use sk_models::decoder::Stop;
use sk_models::dialogue::{Session, SessionError};
use sk_models::engine::EngineError;
use sk_models::local::{Claim, Extent};
use sk_models::text::Detokenizer;
use sk_scheme::{SchemeError, SchemeSpec};
use tokio::sync::{Notify, mpsc};

use crate::ApiError;
use crate::admission::Admitted;
use crate::host::Adapters;
use crate::id::RequestId;
use crate::live::{Listed, Live, Progress};
use crate::request::{Asked, Job, Prompt};
use crate::response::{Scores, Summary};
use crate::service::Service;
use crate::step::Step;

/// An event of an answer that is being generated.
#[derive(Debug)]
pub(crate) enum Event {
    /// The answer has started and can be edited.
    Started { choice: usize },
    /// A span was chosen. The answer has `tokens` tokens with it.
    Span { choice: usize, text: String, step: Option<Box<Step>>, tokens: usize },
    /// The answer is complete.
    Done { choice: usize, summary: Summary, scores: Option<Scores> },
    /// The answer failed.
    Failed(ApiError),
}

/// The answers of a request, and their shared state.
pub(crate) struct Work {
    pub(crate) id: String,
    /// The identifier of the request in logs.
    pub(crate) request: RequestId,
    pub(crate) arrived: Instant,
    /// The request, without its prompts.
    pub(crate) job: Job,
    /// The prompts.
    pub(crate) asked: Vec<Arc<Asked>>,
    /// The adapters of the scheme. An adapter whose name the request gives to an instruction is not
    /// among them.
    pub(crate) adapters: Adapters,
    pub(crate) config: SchemeSpec,
    /// The maximum number of tokens of an answer. The context may have room for fewer.
    pub(crate) max_new_tokens: usize,
    pub(crate) seed: u64,
    /// τ of the certificates.
    pub(crate) tolerance: f64,
    pub(crate) stop: Stop,
    /// The index of the next answer that no thread has begun.
    pub(crate) next: AtomicUsize,
    /// Notified when no answer is left to begin.
    pub(crate) all_begun: Notify,
    /// Whether an answer failed. One failure fails the whole request.
    pub(crate) failed: AtomicBool,
}

/// Why an answer ended early.
enum Failure {
    /// It was stopped, or the client does not read.
    Gone,
    Failed(ApiError),
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Self::Failed(ApiError::of_session(&error))
    }
}

impl From<SchemeError> for Failure {
    fn from(error: SchemeError) -> Self {
        Self::Failed(ApiError::of_scheme(&error))
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        if matches!(error, EngineError::Stopped(_)) { Self::Gone } else { Self::Failed(ApiError::internal(error)) }
    }
}

impl Work {
    /// Returns the total number of answers.
    pub(crate) fn answers(&self) -> usize {
        self.asked.len() * self.job.choices
    }

    /// Returns the time that is left for the answers.
    pub(crate) fn time_left(&self, service: &Service) -> Duration {
        service.limits.time.saturating_sub(self.arrived.elapsed())
    }

    /// Returns a function that returns the time left for the answers, and zero once they are stopped.
    fn left(&self, service: &Service) -> TimeLeft {
        let (stop, arrived, time) = (self.stop.clone(), self.arrived, service.limits.time);
        Arc::new(move || if stop.is_stopped() { Duration::ZERO } else { time.saturating_sub(arrived.elapsed()) })
    }

    /// Returns the maximum number of tokens of an answer to a prompt: what the request asks for, or
    /// what the context has room for.
    pub(crate) fn limit(&self, asked: &Asked, service: &Service) -> usize {
        self.max_new_tokens.min(service.parts.host.context_limit() - asked.tokens.len())
    }

    /// Returns whether there is an answer that no thread has begun.
    pub(crate) fn is_open(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.answers()
    }

    /// Stops beginning answers because the client is gone. The answers that were not begun count as
    /// hung up, or as failed if another answer failed before.
    pub(crate) fn hang_up(&self) {
        self.abandon(if self.failed.load(Ordering::Relaxed) { Outcome::Failed } else { Outcome::HungUp });
    }

    /// Stops beginning answers. Those that were not begun count with this outcome.
    pub(crate) fn abandon(&self, outcome: Outcome) {
        let begun = self.next.swap(self.answers(), Ordering::Relaxed);
        self.all_begun.notify_waiters();
        outcome.count(self.answers().saturating_sub(begun));
    }

    /// Generates the next answer on this thread, if there is one. Its permits are released just
    /// before its last event is sent, so that a client that has the whole response finds them free.
    pub(crate) fn run(&self, service: &Service, mut admitted: Option<Admitted>, events: &mpsc::Sender<Event>) {
        // The connection of a client that reads nothing is closed after `patience`, and its channel
        // with it. One that reads slowly has the time of its request.
        let patience = || self.time_left(service).saturating_add(service.limits.patience);
        let send = |event| room(events, patience()).map(|room| room.send(event));
        // An answer keeps its permits while its client does not read.
        let mut send_last = |event| -> Result<(), Failure> {
            let room = room(events, patience())?;
            drop(admitted.take());
            room.send(event);
            Ok(())
        };
        let choice = self.next.fetch_add(1, Ordering::Relaxed);
        if choice + 1 >= self.answers() {
            self.all_begun.notify_waiters();
        }
        if choice >= self.answers() {
            return;
        }
        let mut counted = UnderWay::begin(self, choice);
        // A panic in one answer must not affect other requests.
        let written = catch_unwind(AssertUnwindSafe(|| self.write(choice, service, &mut counted.summary, &send)));
        let written = written.unwrap_or_else(|_| Err(Failure::Failed(ApiError::fault())));
        let summary = counted.summary;
        count(&summary);
        let sent = written.and_then(|scores| {
            if !summary.is_unstarted() {
                service.ended(summary.seconds.total());
            }
            send_last(Event::Done { choice, summary, scores })
        });
        match sent {
            Ok(()) => {
                if !summary.is_unstarted() {
                    counted.outcome = Outcome::Complete;
                }
                return;
            }
            Err(Failure::Failed(error)) if !self.stop.is_stopped() => {
                self.failed.store(true, Ordering::Relaxed);
                // No other answer begins while the error waits for a slow client.
                self.abandon(Outcome::Failed);
                tracing::warn!(request = %self.request.0, answer = self.id, choice, error = error.cause(), "answer failed");
                let _ = send_last(Event::Failed(error));
            }
            // Answers that were stopped because another one failed count as failed, too.
            Err(_) if self.failed.load(Ordering::Relaxed) => {}
            Err(_) => counted.outcome = Outcome::HungUp,
        }
        // The answers that no thread has begun end in the same way.
        self.abandon(counted.outcome);
        self.stop.stop();
    }

    /// Writes an answer. Its cost is added to `summary` as steps are chosen.
    fn write(
        &self,
        choice: usize,
        service: &Service,
        summary: &mut Summary,
        send: &impl Fn(Event) -> Result<(), Failure>,
    ) -> Result<Option<Scores>, Failure> {
        let asked = &self.asked[choice / self.job.choices];
        // Without log-probabilities of the prompt, the response would be incomplete.
        let unbegun = || match self.job.log_probs {
            Some(_) if self.job.echo => Err(Failure::Failed(ApiError::out_of_time())),
            _ => Ok(None),
        };
        if self.time_left(service).is_zero() {
            let scores = unbegun()?;
            summary.ended = Some(Ended::Interrupted);
            self.echo(choice, asked, service, false, send)?;
            return Ok(scores);
        }
        let (written, claim) = if self.max_new_tokens > 0 {
            self.steer(choice, asked, service, summary, send)?
        } else {
            summary.ended = Some(Ended::Limit);
            self.echo(choice, asked, service, false, send)?;
            (Vec::new(), None)
        };
        if summary.is_unstarted() {
            return unbegun();
        }
        let score = |top| self.score(asked, &written, claim, top, service);
        Ok(self.job.log_probs.map(score).transpose()?.flatten())
    }

    /// Sends the prompt if the answer begins with it. If the answer `goes_on`, an incomplete character
    /// at the end of the prompt is left to the first span.
    fn echo(
        &self,
        choice: usize,
        asked: &Asked,
        service: &Service,
        goes_on: bool,
        send: &impl Fn(Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if !self.job.echo {
            return Ok(());
        }
        let tokenizer = service.parts.host.tokenizer();
        let mut text = tokenizer.decode(&asked.tokens).map_err(SessionError::from)?;
        let mut detokenizer = Detokenizer::new(tokenizer);
        for &token in &asked.tokens {
            detokenizer.push(token).map_err(SessionError::from)?;
        }
        if goes_on && detokenizer.pending() > 0 {
            // The bytes that are held back.
            text.pop();
        }
        send(Event::Span { choice, text, step: None, tokens: 0 })
    }

    fn steer(
        &self,
        choice: usize,
        asked: &Arc<Asked>,
        service: &Service,
        summary: &mut Summary,
        send: &impl Fn(Event) -> Result<(), Failure>,
    ) -> Result<(Vec<TokenId>, Option<Claim>), Failure> {
        let host = &service.parts.host;
        let most = self.limit(asked, service);
        let instructed = InstructionRack::default();
        // Edits change the adapters of one answer.
        let adapters = self.adapters.only(self.config.adapters().map(|(name, _)| name));
        let engine = host.engine(&self.config, &adapters, host.heads(), &instructed, Some(self.left(service)));
        let (engine, parts) = engine.map_err(|error| SchemeError::Engine(error.into()))?;
        let scheme = self.config.build(&*engine)?;
        let seed = self.seed.wrapping_add((choice % self.job.choices) as u64);
        let mut session = Session::new(parts, scheme, self.config.instructions(), seed)?;
        session.instruct(|text| match asked.instructions.iter().find(|(known, _)| known == text) {
            Some((_, instruction)) => Ok(instruction.clone()),
            None => service.instruction(asked, text).map_err(SessionError::from),
        })?;
        if asked.continues() {
            session = session.continuing();
        }
        let arm = session.arm().clone();
        let stability = self.config.stability().ok().map(|stability| (stability, self.tolerance));
        let racks = (adapters, instructed);
        let live = Live::new(session.spec().clone(), racks, self.config.clone(), Arc::clone(asked), most);
        let progress = Arc::clone(&live.progress);
        let _listed = Listed::new(&service.lives, &self.id, choice, live);
        send(Event::Started { choice })?;
        self.echo(choice, asked, service, true, send)?;

        // Only a dialogue has a framing.
        let framing = matches!(asked.prompt, Prompt::Messages(_)).then(|| service.parts.framing.stops());
        let own = self.job.stop.iter().map(String::as_str);
        let stops: Vec<&str> = framing.into_iter().flatten().copied().chain(own).collect();
        let mut since = self.arrived;
        // Ω as the next step reads it, unless it is edited in the meantime.
        let mut spec = arm.spec.snapshot();
        let request = host.scheduler().join(&self.stop);
        let over_vocabulary = self.config.proposal.draft().is_none();
        let (reply, claim) = session.answer(&asked.tokens, &stops, most, |step, text| -> Result<_, Failure> {
            if let Some(step) = step {
                summary.steps += 1;
                summary.tokens += step.chosen().tokens.len();
                summary.drafted_tokens += step.drafted_tokens();
                summary.scored_tokens += read_tokens(&spec, &arm, step, over_vocabulary);
                summary.seconds += step.seconds;
            }
            // Local models check the stop flag within a step; a request to a server goes on.
            if self.stop.is_stopped() {
                return Err(Failure::Gone);
            }
            if let Some(step) = step {
                measure(&mut since, step.step);
                Progress::add(&progress, step.chosen().tokens.len(), text);
            }
            if step.is_some() || !text.is_empty() {
                let step = step.filter(|_| self.job.steering.explain);
                let most = service.limits.candidates;
                let step = step.map(|step| Box::new(Step::new(step, &arm, stability.as_ref(), host.tokenizer(), most)));
                // Leave the scheduler while sending, so that a slow client does not delay other
                // requests.
                let away = request.away();
                let (text, tokens) = (text.to_owned(), summary.tokens);
                send(Event::Span { choice, text, step, tokens })?;
                drop(away);
            }
            spec = arm.spec.snapshot();
            Ok(if self.time_left(service).is_zero() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if self.stop.is_stopped() {
            return Err(Failure::Gone);
        }
        // Tokens of a stop text were chosen, too, and do not belong to the answer.
        (summary.ended, summary.tokens) = (Some(reply.ended), reply.tokens.len());
        tracing::trace!(target: "sk_serve::texts", request = %self.request.0, choice, prompt = ?asked.prompt, answer = reply.text);
        Ok((reply.tokens, claim))
    }

    /// Returns the log-probabilities that the frozen backbone gives to the generated tokens and,
    /// with `echo`, to the prompt. `memory` is the claim of the answer, which has room for the pass;
    /// without one, the memory is claimed here.
    fn score(
        &self,
        asked: &Asked,
        written: &[TokenId],
        memory: Option<Claim>,
        top: usize,
        service: &Service,
    ) -> Result<Option<Scores>, Failure> {
        // `start` refuses log-probabilities for models behind servers.
        let Some(models) = service.parts.host.local() else { return Ok(None) };
        let text = [&asked.tokens, written].concat();
        let from = if self.job.echo { 1 } else { asked.tokens.len() };
        let _request = models.scheduler.join(&self.stop);
        let claim = || {
            let (tokens, left) = (text.len(), self.left(service));
            let claim = models.claim(Extent { lanes: 1, context: tokens, ..Extent::default() }, Some(&left));
            claim.map_err(|shortage| Failure::from(SessionError::Memory { tokens, shortage }))
        };
        let Some(_memory) = memory.map_or_else(claim, |memory| Ok(Some(memory)))? else {
            return Err(Failure::Failed(ApiError::out_of_time()));
        };
        let scores = models.score(&text, from, top)?;
        let first = self.job.echo.then_some((text[0], None));
        let tokens = first.into_iter().chain(text[from..].iter().copied().zip(scores.into_iter().map(Some))).collect();
        Ok(Some(Scores { echoed: if self.job.echo { asked.tokens.len() } else { 0 }, tokens }))
    }
}

/// Waits for room for an event. A client that does not read in time is treated as disconnected.
fn room(events: &mpsc::Sender<Event>, patience: Duration) -> Result<mpsc::Permit<'_, Event>, Failure> {
    let room = async { tokio::time::timeout(patience, events.reserve()).await };
    match tokio::runtime::Handle::current().block_on(room) {
        Ok(Ok(room)) => Ok(room),
        Ok(Err(_)) | Err(_) => Err(Failure::Gone),
    }
}

/// Counts the cost of an answer, also of one that ended early.
fn count(summary: &Summary) {
    metrics::counter!("swiss_knife_tokens_total").increment(summary.tokens as u64);
    metrics::counter!("swiss_knife_drafted_tokens_total").increment(summary.drafted_tokens as u64);
    metrics::counter!("swiss_knife_scored_tokens_total").increment(summary.scored_tokens as u64);
    metrics::counter!("swiss_knife_steps_total").increment(summary.steps as u64);
}

/// Records the time of a span. The first span is measured from the arrival of the request.
fn measure(since: &mut Instant, step: usize) {
    let name = if step == 0 { "swiss_knife_first_span_seconds" } else { "swiss_knife_span_seconds" };
    metrics::histogram!(name).record(since.elapsed().as_secs_f64());
    *since = Instant::now();
}

/// Returns the number of tokens that the backbone reads to score the candidates of a step: each
/// candidate in every lane, where heads share the lane of the plain backbone. Over the vocabulary, a
/// lane reads one token, after which it has the scores of all candidates, and heads read each
/// candidate.
fn read_tokens(spec: &AlignmentSpec, arm: &Arm, step: &StepTrace, over_vocabulary: bool) -> usize {
    let read = spec.seats().iter().filter(|seat| step.blades.iter().any(|blade| blade.name == **seat.name()));
    let policies = read.map(sk_core::Seat::blade).chain(&arm.fluency).flat_map(|blade| blade.policies());
    let (heads, mut lanes): (BTreeSet<_>, BTreeSet<_>) = policies.partition(|policy| matches!(policy, Policy::Head(_)));
    if over_vocabulary {
        return lanes.len() + if heads.is_empty() { 0 } else { step.scored_tokens() };
    }
    if !heads.is_empty() {
        lanes.insert(Policy::Backbone);
    }
    lanes.len() * step.scored_tokens()
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Complete,
    /// The client disconnected or stopped reading.
    HungUp,
    Failed,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::HungUp => "hung_up",
            Self::Failed => "failed",
        }
    }

    /// Counts `answers` answers with this outcome.
    pub(crate) fn count(self, answers: usize) {
        metrics::counter!("swiss_knife_answers_total", "outcome" => self.name()).increment(answers as u64);
    }
}

/// Counts an answer as in progress until it is dropped, and then records its outcome.
struct UnderWay<'a> {
    work: &'a Work,
    choice: usize,
    since: Instant,
    /// `Failed` until it is set, so that a panic counts as a failure.
    outcome: Outcome,
    summary: Summary,
}

impl<'a> UnderWay<'a> {
    fn begin(work: &'a Work, choice: usize) -> Self {
        metrics::gauge!("swiss_knife_answers_under_way").increment(1.0);
        Self { work, choice, since: Instant::now(), outcome: Outcome::Failed, summary: Summary::default() }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.outcome.count(1);
        metrics::gauge!("swiss_knife_answers_under_way").decrement(1.0);
        let Self { work, choice, since, outcome, summary } = self;
        tracing::info!(
            request = %work.request.0,
            answer = work.id,
            choice,
            outcome = outcome.name(),
            prompt_tokens = work.asked[*choice / work.job.choices].tokens.len(),
            tokens = summary.tokens,
            steps = summary.steps,
            waited = (*since - work.arrived).as_secs_f64(),
            seconds = since.elapsed().as_secs_f64(),
            "answer"
        );
    }
}

/// Stops answers when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct StopOnDrop(pub(crate) Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
