//! A steered model answering a dialogue.

use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Arm, BoxError, Candidate, Candidates, Context, DraftRequest, Finish, Proposal, Scheme, Simplex, SpanEnd, SpecHandle,
    StepTrace, TokenId,
};
use sk_models::engine::{AdapterRack, Instruction, InstructionRack};
use sk_models::head::Head;
use sk_models::lora::LoraAdapter;
use sk_models::text::Tokenizer;
use sk_report::record::{Ended, Seconds};

use crate::Models;
use crate::reply::ReplyText;
use crate::scheme::{SchemeError, SchemeSpec};
use crate::{Error, interrupt};

/// A response.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its text.
    pub text: String,
    /// Its tokens, those of a stop text left out.
    pub tokens: Vec<TokenId>,
    /// Why it ended.
    pub ended: Ended,
    /// Steps taken.
    pub steps: usize,
    /// Where the time went, summed over steps.
    pub seconds: Seconds,
    /// Wall time, in seconds.
    pub elapsed: f64,
}

impl Reply {
    /// Tokens per second of wall time.
    pub fn rate(&self) -> f64 {
        self.tokens.len() as f64 / self.elapsed.max(f64::MIN_POSITIVE)
    }
}

/// A scheme at work on loaded models, with the generator of its draws.
pub struct Session<'m> {
    scheme: Scheme,
    rack: AdapterRack,
    /// The instructions by the names of their lanes.
    instructions: Vec<(String, String)>,
    instructed: InstructionRack,
    /// How much longer the longest context of a lane is than that of the backbone.
    extra: usize,
    tokenizer: &'m Tokenizer,
    context_limit: usize,
    rng: ChaCha8Rng,
}

impl<'m> Session<'m> {
    /// The scheme `config` on `models` with heads and adapters, and with draws that follow from
    /// `seed`.
    ///
    /// # Errors
    /// When the scheme cannot be built.
    pub fn new(
        models: &'m Models,
        config: &SchemeSpec,
        heads: &[(String, Head)],
        adapters: Vec<(String, LoraAdapter)>,
        seed: u64,
    ) -> Result<Self, SchemeError> {
        let rack = AdapterRack::default();
        for (name, adapter) in adapters {
            rack.insert(name, adapter);
        }
        let instructed = InstructionRack::default();
        let scheme = config.build(&models.engine(&rack, heads).with_instructions(&instructed))?;
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let tokenizer = &models.tokenizer;
        let context_limit = models.context_limit();
        let mut session = Self { scheme, rack, instructions: Vec::new(), instructed, extra: 0, tokenizer, context_limit, rng };
        session.add_instructions(config)?;
        Ok(session)
    }

    /// Adds the instructions of `config`, which stand before the prompt unless
    /// [`instruct`](Self::instruct) says otherwise.
    ///
    /// # Errors
    /// When an instruction cannot be tokenized, or a lane of its name has another.
    pub fn add_instructions(&mut self, config: &SchemeSpec) -> Result<(), SchemeError> {
        for (name, text) in config.instructions() {
            if text.trim().is_empty() {
                return Err(SchemeError::Parameter { slot: "blades", reason: format!("the instruction of \"{name}\" is empty") });
            }
            if let Some((_, known)) = self.instructions.iter().find(|(lane, _)| *lane == name) {
                if known != text {
                    let reason = format!("blade \"{name}\" has two instructions; give each a name of its own");
                    return Err(SchemeError::Parameter { slot: "blades", reason });
                }
                continue;
            }
            let tokens = self.tokenizer.encode(text).map_err(|error| SchemeError::Engine(error.into()))?;
            self.extra = self.extra.max(tokens.len());
            self.instructed.insert(name.as_str(), Instruction::new(0, tokens));
            self.instructions.push((name, text.to_owned()));
        }
        Ok(())
    }

    /// Puts the instructions into the dialogue that is answered next: `context` makes the beginning
    /// of a lane's context of an instruction.
    ///
    /// # Errors
    /// What `context` returns.
    pub fn instruct(&mut self, mut context: impl FnMut(&str) -> Result<Instruction, Error>) -> Result<(), Error> {
        self.extra = 0;
        for (name, text) in &self.instructions {
            let instruction = context(text)?;
            self.extra = self.extra.max(instruction.extra());
            self.instructed.insert(name.as_str(), instruction);
        }
        Ok(())
    }

    /// Forgets the instructions of a blade.
    pub fn drop_instructions(&mut self, blade: &str) {
        self.instructions.retain(|(lane, _)| lane != blade && lane.strip_prefix(blade).is_none_or(|rest| rest != "/against"));
    }

    /// The same session with arms that choose from its candidates as well; what they would have
    /// chosen is in the steps.
    #[must_use]
    pub fn with_arms(mut self, arms: Vec<Arm>) -> Self {
        self.scheme.others = arms;
        self
    }

    /// Ω. Edits take effect at the next step.
    pub fn spec(&self) -> &SpecHandle {
        &self.scheme.arm.spec
    }

    /// The adapters that the backbone can read with.
    pub fn rack(&self) -> &AdapterRack {
        &self.rack
    }

    /// Starts the draws anew.
    pub fn reseed(&mut self, seed: u64) {
        self.rng = ChaCha8Rng::seed_from_u64(seed);
    }

    /// What each blade of the scheme thinks of whole answers to `prompt`: the name and μ of each, in
    /// one list per answer. An answer without a token has no scores.
    ///
    /// # Errors
    /// When an answer does not fit the context, or the models fail.
    pub fn scores(mut self, prompt: &[TokenId], answers: &[Vec<TokenId>]) -> Result<Vec<Vec<(String, f64)>>, Error> {
        let candidate = |tokens: &Vec<TokenId>| Candidate {
            tokens: tokens.clone(),
            log_probs: vec![0.0; tokens.len()],
            end: SpanEnd::Complete,
        };
        let written: Vec<Candidate> = answers.iter().filter(|answer| !answer.is_empty()).map(candidate).collect();
        if written.is_empty() {
            return Ok(vec![Vec::new(); answers.len()]);
        }
        // Blades of weight zero are not read.
        self.scheme.arm.spec.edit(|spec| spec.with_weights(Simplex::uniform(spec.seats().len())?))?;
        self.scheme.proposal = Box::new(Given(written));
        let limit = self.context_limit.saturating_sub(prompt.len() + self.extra);
        let step = self.scheme.step(&mut Context::new(prompt)?, 0, limit, &mut self.rng)?;
        let of = |place: usize| step.blades.iter().map(|blade| (blade.name.clone(), blade.mu[place])).collect::<Vec<_>>();
        let mut places = 0..;
        let scores =
            answers.iter().map(|answer| if answer.is_empty() { Vec::new() } else { of(places.next().unwrap_or_default()) });
        Ok(scores.collect())
    }

    /// Answers `prompt` with at most `max_new_tokens` tokens, and ends before `stop`.
    ///
    /// `on_step` gets each step and the text that can be shown after it; the last call has no step
    /// and the text that was held back.
    ///
    /// # Errors
    /// When the prompt is empty or too long, a step fails, or `on_step` does.
    pub fn reply(
        &mut self,
        prompt: &[TokenId],
        stop: Option<&'static str>,
        max_new_tokens: usize,
        mut on_step: impl FnMut(Option<&StepTrace>, &str) -> Result<(), Error>,
    ) -> Result<Reply, Error> {
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let longest = prompt.len() + self.extra;
        let room = self.context_limit.saturating_sub(longest);
        if room == 0 {
            return Err(Error::PromptTooLong { tokens: longest, limit: self.context_limit });
        }
        let start = Instant::now();
        let mut context = Context::new(prompt)?;
        let mut text = ReplyText::new(self.tokenizer, stop);
        let mut seconds = Seconds::default();
        let mut steps = 0;
        let mut failure = None;
        let limit = max_new_tokens.min(room);
        let finish = self.scheme.generate(&mut context, limit, &mut self.rng, |step| {
            steps += 1;
            seconds += Seconds::of(step);
            let piece = text.push(&step.chosen().tokens);
            failure = on_step(Some(step), &piece).err();
            failure.is_none() && !text.is_stopped() && !interrupt::requested()
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
        let rest = text.finish();
        on_step(None, &rest)?;
        let ended = match finish {
            _ if text.is_stopped() => Ended::StopText,
            Finish::EndOfText => Ended::EndOfText,
            Finish::Stopped => Ended::Interrupted,
            Finish::Limit if limit < max_new_tokens => Ended::ContextFull,
            Finish::Limit => Ended::Limit,
        };
        let tokens = context.response()[..text.kept_tokens()].to_vec();
        Ok(Reply { text: text.text().to_owned(), tokens, ended, steps, seconds, elapsed: start.elapsed().as_secs_f64() })
    }
}

/// Answers that were written elsewhere, as the candidates of a step.
#[derive(Debug)]
struct Given(Vec<Candidate>);

impl Proposal for Given {
    fn propose(&mut self, _: DraftRequest<'_>, _: &mut dyn Rng) -> Result<Candidates, BoxError> {
        Ok(Candidates::new(self.0.clone())?)
    }
}
