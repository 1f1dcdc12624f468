use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt};

use crate::arm::{Scores, Seated};
use crate::trace::{ArmTrace, CandidateTrace, StepTrace, Timings};
use crate::{
    AlignmentSpec, Arm, Backbone, Candidates, Context, DraftRequest, Granularity, Observation, Policy, Proposal, Readings,
    SpanEnd, StepError,
};

/// An externalised alignment scheme 𝔸 = ⟨π_B, Π_prop, ρ, 𝓑, 𝓝, 𝓐, 𝓢⟩ (`def:scheme`), ready to run.
pub struct Scheme {
    /// π_B.
    pub backbone: Box<dyn Backbone>,
    /// Π_prop.
    pub proposal: Box<dyn Proposal>,
    /// ρ.
    pub granularity: Arc<dyn Granularity>,
    /// ⟨Ω, b₀, 𝓝, 𝓐, 𝓢⟩, whose choice is appended.
    pub arm: Arm,
    /// Other ways to choose from the same candidates. Their choices are recorded in the trace and
    /// not appended.
    pub others: Vec<Arm>,
}

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// An end-of-text token was chosen.
    EndOfText,
    /// The limit on new tokens was reached.
    Limit,
    /// The caller stopped it.
    Stopped,
}

impl Scheme {
    /// Runs one step: drafts candidates of at most `limit` tokens, scores them, draws the winner
    /// and appends it to `context`.
    ///
    /// Blades of weight zero are not read, unless the selector looks at them. Arms score the same
    /// candidates by the same readings, and draw with the same uniform number, so that arms with
    /// one distribution choose alike.
    ///
    /// Cost: one proposal, one reading of N candidates under the K+1 policies that count for the
    /// scheme or an arm, and arithmetic in K·N plus the aggregator's own (`prop:cost`), per arm.
    ///
    /// # Errors
    /// When a slot fails or returns what is not a score or a distribution, or the selector looks at
    /// a blade that is not seated, here or in an arm; `context` is then as it was.
    pub fn step(&mut self, context: &mut Context, step: usize, limit: usize, rng: &mut dyn Rng) -> Result<StepTrace, StepError> {
        let spec = self.arm.spec.snapshot();
        let sent = self.backbone.traffic();
        let (drafted, draft) = timed(|| {
            let request = DraftRequest { context: context.tokens(), granularity: &*self.granularity, limit };
            self.proposal.propose(request, rng)
        });
        let candidates = drafted.map_err(StepError::Proposal)?;

        let (scored, score) = timed(|| self.score(&spec, context, &candidates));
        let ((own, others), read) = scored?;

        let uniform = rng.random();
        let (decision, select) = timed(|| own.decide(&self.arm, uniform));
        let decision = decision?;
        let chosen = decision.chosen;
        let arms = self.others.iter().zip(others).map(|(arm, scores)| {
            let decision = scores.decide(arm, uniform).map_err(|error| arm.blame(error))?;
            let (blades, fluency) = scores.into_trace();
            Ok(ArmTrace { name: arm.name.to_string(), blades, fluency, decision })
        });
        let arms = arms.collect::<Result<_, StepError>>()?;

        let (committed, commit) = timed(|| {
            // Where no blade asked for a reading, none is there to be kept.
            if read {
                self.backbone.commit(chosen).map_err(StepError::Backbone)?;
            }
            self.proposal.commit(chosen).map_err(StepError::Proposal)
        });
        committed?;
        let position = context.tokens().len();
        context.extend(&candidates[chosen].tokens);

        let (head, traffic) = (candidates.head(), self.backbone.traffic().since(sent));
        let candidates = candidates.iter().map(|c| CandidateTrace { tokens: c.tokens.clone(), end: c.end }).collect();
        let timings = Timings { draft, score, select, commit };
        let (blades, fluency) = own.into_trace();
        Ok(StepTrace { step, position, candidates, blades, fluency, decision, arms, head, traffic, timings })
    }

    /// The scores of the scheme and of its arms, by one reading, and whether there was one.
    fn score(
        &mut self,
        spec: &AlignmentSpec,
        context: &Context,
        candidates: &Candidates,
    ) -> Result<((Scores, Vec<Scores>), bool), StepError> {
        let own = self.arm.seated(spec)?;
        let specs: Vec<Arc<AlignmentSpec>> = self.others.iter().map(|arm| arm.spec.snapshot()).collect();
        let others = self.others.iter().zip(&specs).map(|(arm, spec)| arm.seated(spec).map_err(|error| arm.blame(error)));
        let others: Vec<Seated<'_>> = others.collect::<Result<_, _>>()?;

        let policies: BTreeSet<Policy> = std::iter::once(&own).chain(&others).flat_map(Seated::policies).collect();
        let policies: Vec<Policy> = policies.into_iter().collect();
        let read = !policies.is_empty();
        let readings = if !read {
            Readings::new()
        } else {
            self.backbone.read(context.tokens(), candidates, &policies).map_err(StepError::Backbone)?
        };
        let observation = Observation { context: context.tokens(), candidates, readings: &readings };
        let scores = self.others.iter().zip(&others);
        let scores = scores.map(|(arm, seated)| seated.score(&observation).map_err(|error| arm.blame(error)));
        Ok(((own.score(&observation)?, scores.collect::<Result<_, _>>()?), read))
    }

    /// Steps until a chosen candidate ends the response, `max_new_tokens` are appended, or
    /// `on_step` returns `false`.
    ///
    /// # Errors
    /// As [`step`](Self::step); what was appended before stays in `context`.
    pub fn generate(
        &mut self,
        context: &mut Context,
        max_new_tokens: usize,
        rng: &mut dyn Rng,
        mut on_step: impl FnMut(&StepTrace) -> bool,
    ) -> Result<Finish, StepError> {
        let end = context.tokens().len().saturating_add(max_new_tokens);
        for step in 0.. {
            let Some(limit) = end.checked_sub(context.tokens().len()).filter(|&left| left > 0) else { break };
            let trace = self.step(context, step, limit, rng)?;
            if !on_step(&trace) {
                return Ok(Finish::Stopped);
            }
            if trace.chosen().end == SpanEnd::EndOfText {
                return Ok(Finish::EndOfText);
            }
        }
        Ok(Finish::Limit)
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}
