//! One answer: a thread that steers, and the events that it sends.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use sk_core::{Ended, Seconds, StepTrace, TokenId};
use sk_models::decoder::Stop;
use sk_models::dialogue::{Session, SessionError, tokens_of};
use sk_models::engine::{Instruction, InstructionRack};
use sk_models::text::{TextError, Tokenizer};
use sk_scheme::{SchemeError, SchemeSpec};
use tokio::sync::mpsc;

use crate::ApiError;
use crate::error::was_stopped;
use crate::request::Prompt;
use crate::service::{Live, Progress, Service};

/// What an answer sends while it is written.
#[derive(Debug)]
pub(crate) enum Event {
    /// The answer is under way, and can be edited.
    Started { choice: usize },
    /// A span was chosen.
    Span { choice: usize, text: String, step: Option<Box<Step>> },
    /// The answer is whole.
    Done { choice: usize, summary: Summary },
    /// It failed.
    Failed(ApiError),
}

/// What an answer cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Summary {
    #[serde(skip)]
    pub(crate) ended: Option<Ended>,
    #[serde(skip)]
    pub(crate) tokens: usize,
    pub(crate) steps: usize,
    /// Tokens of all candidates.
    pub(crate) drafted_tokens: usize,
    pub(crate) seconds: Seconds,
}

/// A step as a client sees it.
#[derive(Debug, Serialize)]
pub(crate) struct Step {
    step: usize,
    chosen: usize,
    candidates: Vec<CandidateOf>,
    /// The weight of each blade in this step.
    weights: Vec<(String, f64)>,
}

#[derive(Debug, Serialize)]
struct CandidateOf {
    text: String,
    tokens: usize,
    probability: f64,
    rating: f64,
    mu: f64,
    sigma: f64,
    /// μ and σ of each blade.
    blades: Vec<(String, f64, f64)>,
}

impl Step {
    fn new(trace: &StepTrace, tokenizer: &Tokenizer) -> Self {
        let decision = &trace.decision;
        let candidate = |(place, candidate): (usize, &sk_core::CandidateTrace)| CandidateOf {
            text: tokenizer.decode(&candidate.tokens).unwrap_or_default(),
            tokens: candidate.tokens.len(),
            probability: decision.probabilities[place],
            rating: decision.ratings[place],
            mu: decision.mu[place],
            sigma: decision.sigma[place],
            blades: trace.blades.iter().map(|blade| (blade.name.clone(), blade.mu[place], blade.sigma[place])).collect(),
        };
        Self {
            step: trace.step,
            chosen: decision.chosen,
            candidates: trace.candidates.iter().enumerate().map(candidate).collect(),
            weights: trace.blades.iter().map(|blade| (blade.name.clone(), blade.weight)).collect(),
        }
    }
}

/// An answer to be written.
pub(crate) struct Answer {
    pub(crate) id: String,
    pub(crate) choice: usize,
    pub(crate) prompt: Arc<[TokenId]>,
    pub(crate) asked: Arc<Prompt>,
    pub(crate) config: Arc<SchemeSpec>,
    pub(crate) max_new_tokens: usize,
    pub(crate) seed: u64,
    pub(crate) stop_texts: Arc<[String]>,
    pub(crate) explain: bool,
    pub(crate) stop: Stop,
}

/// Why an answer ended early.
enum Failure {
    Gone,
    Scheme(SchemeError),
    Session(SessionError),
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}

impl Answer {
    /// Writes the answer on this thread.
    pub(crate) fn run(self, service: &Service, events: &mpsc::Sender<Event>) {
        let event = match self.write(service, events) {
            Ok(summary) => Event::Done { choice: self.choice, summary },
            Err(Failure::Gone) => return,
            Err(Failure::Session(error)) if was_stopped(&error) => return,
            Err(Failure::Scheme(error)) => Event::Failed(ApiError::of_scheme(&error)),
            Err(Failure::Session(error)) => Event::Failed(ApiError::of_session(&error)),
        };
        // Nobody may listen any more.
        let _ = events.blocking_send(event);
    }

    fn write(&self, service: &Service, events: &mpsc::Sender<Event>) -> Result<Summary, Failure> {
        let models = &service.models;
        let engine = models.engine(&service.rack, &models.heads).with_instructions(&InstructionRack::default());
        let scheme = self.config.build(&engine).map_err(Failure::Scheme)?;
        let instructions = self.config.instructions().map(|(name, text)| (name, text.to_owned()));
        let mut session = Session::new(&engine, scheme, instructions, self.seed)?;
        session.instruct(|text| self.instructed(service, text).map_err(SessionError::from))?;
        let progress = Arc::new(Mutex::new(Progress::default()));
        let live = Live { spec: session.spec().clone(), progress: Arc::clone(&progress) };
        let _listed = Listed::new(service, &self.id, self.choice, live);
        events.blocking_send(Event::Started { choice: self.choice }).map_err(|_| Failure::Gone)?;

        let request = models.scheduler.enter(&self.stop);
        let stops: Vec<&str> =
            service.framing.stops().iter().copied().chain(self.stop_texts.iter().map(String::as_str)).collect();
        let mut summary = Summary::default();
        let reply = session.reply(&self.prompt, &stops, self.max_new_tokens, |step, text| -> Result<_, Failure> {
            if let Some(step) = step {
                summary.drafted_tokens += step.candidates.iter().map(|candidate| candidate.tokens.len()).sum::<usize>();
                let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
                progress.steps += 1;
                progress.tokens += step.chosen().tokens.len();
                progress.text.push_str(text);
            }
            if step.is_none() && text.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            let told = step.filter(|_| self.explain).map(|step| Box::new(Step::new(step, &models.tokenizer)));
            let event = Event::Span { choice: self.choice, text: text.to_owned(), step: told };
            // A slow reader holds up nobody else.
            let away = request.away();
            let sent = events.blocking_send(event);
            drop(away);
            sent.map(|()| ControlFlow::Continue(())).map_err(|_| Failure::Gone)
        })?;
        Ok(Summary {
            ended: Some(reply.ended),
            tokens: reply.tokens.len(),
            steps: reply.steps,
            seconds: reply.seconds,
            ..summary
        })
    }

    /// The context of a lane that reads under an instruction.
    fn instructed(&self, service: &Service, text: &str) -> Result<Instruction, TextError> {
        let tokenizer = &service.models.tokenizer;
        let tokens = match &*self.asked {
            Prompt::Messages(messages) => tokens_of(&service.framing, tokenizer, messages, Some(text))?,
            Prompt::Text(_) | Prompt::Tokens(_) => [tokenizer.encode(text)?, self.prompt.to_vec()].concat(),
        };
        Ok(Instruction::new(self.prompt.len(), tokens))
    }
}

/// An answer's entry among those under way.
struct Listed<'a> {
    service: &'a Service,
    id: String,
}

impl<'a> Listed<'a> {
    fn new(service: &'a Service, id: &str, choice: usize, live: Live) -> Self {
        // Further choices of a request have names of their own.
        let id = if choice == 0 { id.to_owned() } else { format!("{id}-{choice}") };
        service.live().insert(id.clone(), live);
        Self { service, id }
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.service.live().remove(&self.id);
    }
}

/// Stops answers when whoever waits for them is gone.
#[derive(Debug, Default)]
pub(crate) struct StopOnDrop(pub(crate) Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// How often a stream says that it is alive while a step is under way.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(10);
