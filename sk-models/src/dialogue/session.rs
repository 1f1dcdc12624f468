//! A steered model that answers dialogues.

use std::ops::ControlFlow;
use std::time::Instant;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sk_core::{
    Arm, BoxError, Candidate, Candidates, Context, DraftRequest, Ended, Instruction, InstructionRack, Proposal, Scheme, Seconds,
    Simplex, SpanEnd, SpecError, SpecHandle, StepError, StepTrace, TimeLeft, TokenId,
};

use super::reply_text::ReplyText;
use crate::local::{Claim, Extent, Models, Shortage};
use crate::text::{TextError, Tokenizer};

/// A response.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its text.
    pub text: String,
    /// Its tokens, without those of a stop text.
    pub tokens: Vec<TokenId>,
    /// The end of the text that `tokens` lacks, since its token also begins a stop text.
    pub rest: String,
    /// Why it ended.
    pub ended: Ended,
    /// Steps taken.
    pub steps: usize,
    /// The time of each part of a step, summed over steps.
    pub seconds: Seconds,
    /// Wall time, in seconds.
    pub elapsed: f64,
}

impl Reply {
    /// Returns a reply whose time ended before its first step.
    fn unstarted() -> Self {
        let (text, rest, seconds) = (String::new(), String::new(), Seconds::default());
        Self { text, tokens: Vec::new(), rest, ended: Ended::Interrupted, steps: 0, seconds, elapsed: 0.0 }
    }

    /// Returns the tokens of its whole text.
    ///
    /// # Errors
    /// If the tokenizer refuses the rest.
    pub fn whole(&self, tokenizer: &Tokenizer) -> Result<Vec<TokenId>, TextError> {
        Ok([&self.tokens[..], &tokenizer.encode(&self.rest)?].concat())
    }

    /// Returns the tokens per second of wall time.
    pub fn rate(&self) -> f64 {
        self.tokens.len() as f64 / self.elapsed.max(f64::MIN_POSITIVE)
    }
}

/// The parts of an engine and its models that a session uses.
pub struct SessionParts<'m> {
    /// The models, if they run in this process and take its memory.
    pub models: Option<&'m Models>,
    /// The sizes of a generation of the scheme that determine its memory. The context, and the
    /// lanes of blades that are seated later, are counted for each reply.
    pub extent: Extent,
    /// The tokenizer of the models.
    pub tokenizer: &'m Tokenizer,
    /// The largest number of tokens that the models hold.
    pub context_limit: usize,
    /// The instructions of the engine's lanes.
    pub instructions: InstructionRack,
    /// The time that is left for replies; `None` for no limit. Once it is zero, a reply does not wait
    /// for memory, and a step that fails ends the reply without an error.
    pub left: Option<TimeLeft>,
}

/// A scheme that runs on an engine, with the random generator of its draws.
pub struct Session<'m> {
    scheme: Scheme,
    parts: SessionParts<'m>,
    /// The instructions by the names of their lanes.
    instructions: Vec<(String, String)>,
    continues: bool,
    rng: ChaCha8Rng,
}

impl<'m> Session<'m> {
    /// Returns a session of a scheme that was built on an engine, with the blades' instructions:
    /// the name of a lane and a text each. Draws depend on `seed`.
    ///
    /// # Errors
    /// As [`add_instructions`](Self::add_instructions).
    pub fn new<'i>(
        parts: SessionParts<'m>,
        scheme: Scheme,
        instructions: impl IntoIterator<Item = (String, &'i str)>,
        seed: u64,
    ) -> Result<Self, SessionError> {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let mut session = Self { scheme, parts, instructions: Vec::new(), continues: false, rng };
        session.add_instructions(instructions)?;
        Ok(session)
    }

    /// Adds instructions, which come before the prompt unless [`instruct`](Self::instruct) is
    /// called.
    ///
    /// # Errors
    /// If an instruction is empty or cannot be tokenized, or its lane already has another one.
    pub fn add_instructions<'i>(
        &mut self,
        instructions: impl IntoIterator<Item = (String, &'i str)>,
    ) -> Result<(), SessionError> {
        let (mut added, mut read): (Vec<(String, String)>, Vec<Instruction>) = Default::default();
        for (name, text) in instructions {
            if text.trim().is_empty() {
                return Err(SessionError::EmptyInstruction { name });
            }
            match self.instructions.iter().chain(&added).find(|(lane, _)| *lane == name) {
                Some((_, known)) if *known == text => {}
                Some(_) => return Err(SessionError::TwoInstructions { name }),
                None => {
                    read.push(Instruction::new(0, self.parts.tokenizer.encode(text)?));
                    added.push((name, text.to_owned()));
                }
            }
        }
        added.iter().zip(read).for_each(|((name, _), read)| self.parts.instructions.insert(name.as_str(), read));
        self.instructions.extend(added);
        Ok(())
    }

    /// Puts the instructions into the dialogue that is answered next. `context` turns the text of
    /// an instruction into the beginning of its lane's context.
    ///
    /// # Errors
    /// The errors that `context` returns.
    pub fn instruct<E>(&mut self, mut context: impl FnMut(&str) -> Result<Instruction, E>) -> Result<(), E> {
        for (name, text) in &self.instructions {
            self.parts.instructions.insert(name.as_str(), context(text)?);
        }
        Ok(())
    }

    /// Removes the instructions of a blade.
    pub fn drop_instructions(&mut self, blade: &str) {
        let its = |(lane, _): &mut (String, String)| matches!(lane.strip_prefix(blade), Some("" | "/against"));
        for (lane, _) in self.instructions.extract_if(.., its) {
            self.parts.instructions.remove(&lane);
        }
    }

    /// Returns the most tokens that an instruction adds to the context.
    fn extra(&self) -> usize {
        let lanes = self.instructions.iter().filter_map(|(lane, _)| self.parts.instructions.get(lane));
        lanes.map(|instruction| instruction.extra()).max().unwrap_or(0)
    }

    /// Returns the session with further arms, which choose from the same candidates. The steps
    /// record their choices.
    #[must_use]
    pub fn with_arms(mut self, arms: Vec<Arm>) -> Self {
        self.scheme.others = arms;
        self
    }

    /// Returns the session with replies that continue the text of the prompt. They keep the white
    /// space that they begin with.
    #[must_use]
    pub fn continuing(mut self) -> Self {
        self.continues = true;
        self
    }

    /// Returns Ω. Edits take effect at the next step.
    pub fn spec(&self) -> &SpecHandle {
        &self.scheme.arm.spec
    }

    /// Returns Ω and the operators that choose.
    pub fn arm(&self) -> &Arm {
        &self.scheme.arm
    }

    /// Replaces the scheme, the sizes of its generations and its instructions. The new scheme must be
    /// built on [`instruction_rack`](Self::instruction_rack). The random generator keeps its state.
    ///
    /// # Errors
    /// As [`add_instructions`](Self::add_instructions). The session is then unchanged.
    pub fn replace<'i>(
        &mut self,
        scheme: Scheme,
        extent: Extent,
        instructions: impl IntoIterator<Item = (String, &'i str)>,
    ) -> Result<(), SessionError> {
        let before = std::mem::take(&mut self.instructions);
        if let Err(error) = self.add_instructions(instructions) {
            self.instructions = before;
            return Err(error);
        }
        for (lane, _) in before.iter().filter(|(lane, _)| !self.instructions.iter().any(|(other, _)| other == lane)) {
            self.parts.instructions.remove(lane);
        }
        (self.scheme, self.parts.extent) = (scheme, extent);
        Ok(())
    }

    /// Returns the instructions of the engine's lanes.
    pub fn instruction_rack(&self) -> &InstructionRack {
        &self.parts.instructions
    }

    /// Reseeds the random generator.
    pub fn reseed(&mut self, seed: u64) {
        self.rng = ChaCha8Rng::seed_from_u64(seed);
    }

    /// Returns the scores of whole answers to `prompt`: for each answer, a list of the name and μ
    /// of each blade. An answer without a token has no scores.
    ///
    /// # Errors
    /// If an answer does not fit the context, or the models fail.
    pub fn scores(mut self, prompt: &[TokenId], answers: &[Vec<TokenId>]) -> Result<Vec<Vec<(String, f64)>>, SessionError> {
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
        let step = self.scheme.step(&mut Context::new(prompt)?, usize::MAX, &mut self.rng)?;
        let of = |place: usize| step.blades.iter().map(|blade| (blade.name.clone(), blade.mu[place])).collect::<Vec<_>>();
        let mut places = 0..;
        let scores =
            answers.iter().map(|answer| if answer.is_empty() { Vec::new() } else { of(places.next().unwrap_or_default()) });
        Ok(scores.collect())
    }

    /// Answers `prompt` with at most `max_new_tokens` tokens, and ends before the first text of
    /// `stop`. Waits while the replies of other sessions hold the memory that it needs.
    ///
    /// `on_step` receives each step and the text that can be shown after it, and returns whether to
    /// continue. The last call receives no step, and the text that was held back. It is also made if
    /// a step after the first one fails.
    ///
    /// If the time of the reply ends while it waits for memory or for a model, the reply is what the
    /// steps before have written, [interrupted](Ended::Interrupted).
    ///
    /// If the reply fails or has no step, the random generator keeps its state.
    ///
    /// # Errors
    /// If the prompt is empty or too long, the reply alone does not fit into memory, a step fails
    /// while there is time left, or `on_step` fails.
    pub fn reply<E: From<SessionError>>(
        &mut self,
        prompt: &[TokenId],
        stop: &[&str],
        max_new_tokens: usize,
        on_step: impl FnMut(Option<&StepTrace>, &str) -> Result<ControlFlow<()>, E>,
    ) -> Result<Reply, E> {
        let Some((limit, _claim)) = self.admit(prompt, max_new_tokens)? else { return Ok(Reply::unstarted()) };
        let before = self.rng.clone();
        let reply = self.generate(prompt, stop, [limit, max_new_tokens], on_step);
        if !reply.as_ref().is_ok_and(|reply| reply.steps > 0) {
            self.rng = before;
        }
        reply
    }

    /// Answers `prompt` as [`reply`](Self::reply) does, and ends the session. Frees the contexts, and
    /// returns the claim to their memory with the reply.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub fn answer<E: From<SessionError>>(
        self,
        prompt: &[TokenId],
        stop: &[&str],
        max_new_tokens: usize,
        on_step: impl FnMut(Option<&StepTrace>, &str) -> Result<ControlFlow<()>, E>,
    ) -> Result<(Reply, Option<Claim>), E> {
        let Some((limit, claim)) = self.admit(prompt, max_new_tokens)? else { return Ok((Reply::unstarted(), None)) };
        // After an error or a panic, too, the contexts are dropped before the claim.
        let mut session = self;
        let reply = session.generate(prompt, stop, [limit, max_new_tokens], on_step)?;
        Ok((reply, claim))
    }

    /// Claims the memory of a reply. Also returns the most tokens that it can have. Returns `None` if
    /// its time ends before.
    fn admit(&self, prompt: &[TokenId], max_new_tokens: usize) -> Result<Option<(usize, Option<Claim>)>, SessionError> {
        if prompt.is_empty() {
            return Err(SessionError::EmptyPrompt);
        }
        let instruction = self.extra();
        let longest = prompt.len() + instruction;
        let room = self.parts.context_limit.saturating_sub(longest);
        if room == 0 {
            let (tokens, limit) = (prompt.len(), self.parts.context_limit);
            return Err(SessionError::PromptTooLong { tokens, instruction, limit });
        }
        let limit = max_new_tokens.min(room);
        let Extent { lanes, span, .. } = self.parts.extent;
        let lanes = lanes.max(self.spec().snapshot().seats().len() + 1);
        let tokens = longest + limit;
        let extent = Extent { lanes, context: tokens, span: span.min(limit), ..self.parts.extent };
        let Some(models) = self.parts.models else { return Ok(Some((limit, None))) };
        let claim = models.claim(extent, self.parts.left.as_ref());
        let claim = claim.map_err(|shortage| SessionError::Memory { tokens, shortage })?;
        Ok(claim.map(|claim| (limit, Some(claim))))
    }

    fn generate<E: From<SessionError>>(
        &mut self,
        prompt: &[TokenId],
        stop: &[&str],
        [limit, max_new_tokens]: [usize; 2],
        mut on_step: impl FnMut(Option<&StepTrace>, &str) -> Result<ControlFlow<()>, E>,
    ) -> Result<Reply, E> {
        let start = Instant::now();
        let mut context = Context::new(prompt).map_err(SessionError::from)?;
        let mut text = ReplyText::new(self.parts.tokenizer, stop, self.continues);
        if self.continues {
            text.follow(prompt);
        }
        let mut seconds = Seconds::default();
        let mut steps = 0;
        let mut failure = None;
        let generated = self.scheme.generate(&mut context, limit, &mut self.rng, |step| {
            steps += 1;
            seconds += step.seconds;
            let piece = text.push(&step.chosen().tokens);
            let go_on = match on_step(Some(step), &piece) {
                Ok(flow) => flow.is_continue(),
                Err(error) => {
                    failure = Some(error);
                    false
                }
            };
            go_on && !text.is_stopped()
        });
        if let Some(error) = failure {
            return Err(error);
        }
        if steps > 0 || generated.is_ok() {
            let rest = text.finish();
            let _ = on_step(None, &rest)?;
        }
        let is_late = || self.parts.left.as_ref().is_some_and(|left| left().is_zero());
        let ended = match generated {
            _ if text.is_stopped() => Ended::StopText,
            Ok(Ended::Limit) if limit < max_new_tokens => Ended::ContextFull,
            Err(_) if is_late() => Ended::Interrupted,
            other => other.map_err(SessionError::from)?,
        };
        let tokens = context.response()[..text.kept_tokens()].to_vec();
        let (text, rest) = (text.text().to_owned(), text.rest().to_owned());
        Ok(Reply { text, tokens, rest, ended, steps, seconds, elapsed: start.elapsed().as_secs_f64() })
    }
}

fn too_long(tokens: usize, instruction: usize, limit: usize) -> String {
    if instruction == 0 {
        return format!("the prompt has {tokens} tokens and the model holds {limit}; shorten the prompt");
    }
    format!(
        "the prompt has {tokens} tokens, the longest instruction adds {instruction}, and the model holds {limit}; shorten \
         either"
    )
}

/// Why a dialogue cannot be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum SessionError {
    /// A prompt without a token.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A prompt that leaves no room for a response. `instruction` is the number of tokens that the
    /// longest instruction adds.
    #[error("{}", too_long(*tokens, *instruction, *limit))]
    PromptTooLong { tokens: usize, instruction: usize, limit: usize },
    /// A context whose keys and values do not fit into memory.
    #[error(
        "a dialogue of {tokens} tokens takes {shortage}; shorten the prompt, ask for fewer tokens (--max-new-tokens) or use another --device"
    )]
    Memory { tokens: usize, shortage: Shortage },
    /// An instruction without a word.
    #[error("the instruction of \"{name}\" is empty")]
    EmptyInstruction { name: String },
    /// A lane with two instructions.
    #[error("blade \"{name}\" has two instructions; give each a name of its own")]
    TwoInstructions { name: String },
    /// An instruction that cannot be tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
    /// Weights that were refused.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A step that failed.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// Proposes given answers as the candidates of a step.
#[derive(Debug)]
struct Given(Vec<Candidate>);

impl Proposal for Given {
    /// Given spans end by no rule.
    fn knows_entropy(&self) -> bool {
        true
    }

    fn propose(&mut self, _: DraftRequest<'_>, _: &mut dyn Rng) -> Result<Candidates, BoxError> {
        Ok(Candidates::new(self.0.clone())?)
    }
}
