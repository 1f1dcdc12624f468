use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use rand::{Rng, RngExt};

use crate::arm::{Scores, Seated};
use crate::trace::{ArmTrace, BatchTrace, CandidateTrace, Ended, Seconds, StepTrace};
use crate::{
    AlignmentSpec, Arm, Backbone, Candidate, Candidates, Context, Decision, DraftRequest, Granularity, Observation, Policy,
    Proposal, Race, Readings, Search, SpanEnd, StepError, TokenId, Waves,
};

/// An externalised alignment scheme 𝔸 = ⟨π_B, Π_prop, ρ, 𝓑, 𝓝, 𝓐, 𝓢⟩ (`def:scheme`), ready to run.
pub struct Scheme {
    /// π_B.
    pub backbone: Box<dyn Backbone>,
    /// Π_prop.
    pub proposal: Box<dyn Proposal>,
    /// ρ.
    pub granularity: Arc<dyn Granularity>,
    /// How many of the drafted tokens are scored.
    pub search: Search,
    /// The proposal to use if none of the candidates is good enough.
    pub fallback: Option<Fallback>,
    /// ⟨Ω, b₀, 𝓝, 𝓐, 𝓢⟩, whose selected candidate is appended.
    pub arm: Arm,
    /// Other arms that select from the same candidates. Their decisions are recorded in the trace
    /// only.
    pub others: Vec<Arm>,
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme")
            .field("search", &self.search)
            .field("fallback", &self.fallback)
            .field("arm", &self.arm)
            .field("others", &self.others)
            .finish_non_exhaustive()
    }
}

/// A second proposal, which replaces a batch whose selected candidate is not good enough: the
/// second half of guided speculative inference (GSI, Geuter et al. 2025).
pub struct Fallback {
    /// The source of the candidates.
    pub proposal: Box<dyn Proposal>,
    /// The least composite score at which a selected candidate is kept.
    pub threshold: f64,
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").field("threshold", &self.threshold).finish_non_exhaustive()
    }
}

impl Scheme {
    /// Runs one step: drafts candidates of at most `limit` tokens, scores them, selects one and
    /// appends it to `context`. [`StepTrace::step`] is zero.
    ///
    /// Blades of weight zero are not read unless the selector uses them. Arms use the same
    /// candidates, readings and uniform number, so that arms with the same distribution select the
    /// same candidate.
    ///
    /// Cost: one proposal, one reading of N candidates under the distinct policies that the blades
    /// of the scheme and its arms request, and per arm O(K·N) arithmetic (`prop:cost`) and sorts of
    /// N values, in addition to the rule for **w** and the aggregator. A [`Search`] reads fewer
    /// tokens, in several passes. A [`Fallback`] costs a second proposal and reading when it is
    /// used.
    ///
    /// # Errors
    /// If `limit` is zero; if the granularity needs an entropy that the proposal does not know; if
    /// a slot fails; if candidates are too long, readings incomplete, or a score or distribution
    /// invalid; or if the selector of the scheme or of an arm uses a blade that is not seated.
    /// `context` is then unchanged.
    pub fn step(&mut self, context: &mut Context, limit: usize, rng: &mut dyn Rng) -> Result<StepTrace, StepError> {
        if limit == 0 {
            return Err(StepError::NoTokens);
        }
        let spec = self.arm.spec.snapshot();
        let sent = self.backbone.traffic();
        let mut seconds = Seconds::default();
        let mut rejected = None;
        let mut batch = self.choose(&spec, context, limit, false, rng, &mut seconds)?;
        let threshold = self.fallback.as_ref().map_or(f64::NEG_INFINITY, |fallback| fallback.threshold);
        let is_poor = batch.decision.mu[batch.decision.chosen] < threshold;
        if is_poor {
            let second = self.choose(&spec, context, limit, true, rng, &mut seconds)?;
            rejected = Some(Box::new(std::mem::replace(&mut batch, second).into_trace()));
        }

        let chosen = batch.decision.chosen;
        let (committed, commit) = timed(|| {
            // The backbone keeps its last reading only; a selected candidate that was not in it is
            // read again.
            if let Some(row) = batch.last.iter().position(|&index| index == chosen) {
                self.backbone.commit(row).map_err(StepError::Backbone)?;
            }
            match &mut self.fallback {
                Some(fallback) if is_poor => fallback.proposal.commit(chosen),
                _ => self.proposal.commit(chosen),
            }
            .map_err(StepError::Proposal)
        });
        committed?;
        seconds.commit = commit;
        let position = context.tokens().len();
        context.extend(&batch.candidates[chosen].tokens);
        let (head, traffic) = (batch.candidates.head(), self.backbone.traffic().since(sent));
        let arms = std::mem::take(&mut batch.arms);
        let BatchTrace { candidates, unscored, blades, fluency, decision } = batch.into_trace();
        Ok(StepTrace {
            step: 0,
            position,
            candidates,
            unscored,
            blades,
            fluency,
            decision,
            arms,
            rejected,
            head,
            traffic,
            seconds,
        })
    }

    /// Drafts candidates by the proposal or the fallback, and selects one.
    fn choose(
        &mut self,
        spec: &AlignmentSpec,
        context: &Context,
        limit: usize,
        fall_back: bool,
        rng: &mut dyn Rng,
        seconds: &mut Seconds,
    ) -> Result<Chosen, StepError> {
        let proposal = match &mut self.fallback {
            Some(fallback) if fall_back => &mut fallback.proposal,
            _ => &mut self.proposal,
        };
        if self.granularity.needs_entropy() && !proposal.knows_entropy() {
            return Err(StepError::NoEntropy);
        }
        let request = DraftRequest { context: context.tokens(), granularity: &*self.granularity, limit };
        let (drafted, draft) = timed(|| proposal.propose(request, rng));
        let candidates = drafted.map_err(StepError::Proposal)?;
        let lengths = candidates.iter().map(|candidate| candidate.tokens.len());
        if let Some((candidate, tokens)) = lengths.enumerate().find(|&(_, tokens)| tokens > limit) {
            return Err(StepError::TooLong { candidate, tokens, limit });
        }
        seconds.draft += draft;
        // The uniform number is always drawn after the candidates, whatever the search.
        let mut uniform = None;
        let mut uniform = || *uniform.get_or_insert_with(|| rng.random());

        let own = self.arm.seated(spec)?;
        let specs: Vec<Arc<AlignmentSpec>> = self.others.iter().map(|arm| arm.spec.snapshot()).collect();
        let others = self.others.iter().zip(&specs).map(|(arm, spec)| arm.seated(spec).map_err(|error| arm.blame(error)));
        let others: Vec<Seated<'_>> = others.collect::<Result<_, _>>()?;
        let policies: BTreeSet<Policy> = std::iter::once(&own).chain(&others).flat_map(Seated::policies).collect();
        let reader = &mut Reader {
            backbone: &mut *self.backbone,
            context: context.tokens(),
            policies: policies.into_iter().collect(),
            own: &own,
            seconds: 0.0,
        };
        let mut select = 0.0;
        let mut decide = |scores: &Scores, among: Option<&[usize]>| {
            let (decision, time) = timed(|| scores.decide(&self.arm, uniform(), among));
            select += time;
            decision
        };

        let search = if self.others.is_empty() { self.search } else { Search::Full };
        let batch = match search {
            Search::Waves(waves) => Chosen::in_waves(waves, &candidates, reader, &mut decide)?,
            Search::Race(race) => Chosen::by_race(race, candidates, reader, &mut decide)?,
            Search::Full => {
                let readings = reader.read(&candidates, Span::Whole)?;
                let observation = Observation { context: context.tokens(), candidates: &candidates, readings: &readings };
                let (scored, time) = timed(|| {
                    let others = self.others.iter().zip(&others);
                    let others = others.map(|(arm, seated)| seated.score(&observation).map_err(|error| arm.blame(error)));
                    Ok::<_, StepError>((own.score(&observation)?, others.collect::<Result<Vec<_>, _>>()?))
                });
                reader.seconds += time;
                let (own, others) = scored?;
                let decision = decide(&own, None)?;
                let arms = self.others.iter().zip(others).map(|(arm, scores)| {
                    let decision = scores.decide(arm, uniform(), None).map_err(|error| arm.blame(error))?;
                    let (blades, fluency) = scores.into_trace();
                    Ok(ArmTrace { name: arm.name.to_string(), blades, fluency, decision })
                });
                let arms = arms.collect::<Result<_, StepError>>()?;
                let last = reader.last((0..candidates.len()).collect());
                Chosen { scored: Vec::new(), unscored: Vec::new(), scores: own, decision, arms, last, candidates }
            }
        };
        seconds.score += reader.seconds;
        seconds.select += select;
        Ok(batch)
    }

    /// Runs steps until a selected candidate ends the response, `max_new_tokens` are appended, or
    /// `on_step` returns `false`. Returns which of these it was: [`Ended::EndOfText`],
    /// [`Ended::Limit`] or [`Ended::Interrupted`].
    ///
    /// # Errors
    /// As [`step`](Self::step). Tokens appended by earlier steps stay in `context`.
    pub fn generate(
        &mut self,
        context: &mut Context,
        max_new_tokens: usize,
        rng: &mut dyn Rng,
        mut on_step: impl FnMut(&StepTrace) -> bool,
    ) -> Result<Ended, StepError> {
        let end = context.tokens().len().saturating_add(max_new_tokens);
        for step in 0.. {
            let Some(limit) = end.checked_sub(context.tokens().len()).filter(|&left| left > 0) else { break };
            let trace = StepTrace { step, ..self.step(context, limit, rng)? };
            let goes_on = on_step(&trace);
            if trace.chosen().end == SpanEnd::EndOfText {
                return Ok(Ended::EndOfText);
            }
            if !goes_on {
                return Ok(Ended::Interrupted);
            }
        }
        Ok(Ended::Limit)
    }
}

/// How much of a candidate is read.
#[derive(Clone, Copy)]
enum Span {
    Whole,
    /// Its first tokens. The rest of some candidates is read later.
    Head,
}

/// Reads candidates with the backbone, and scores them.
struct Reader<'a> {
    backbone: &'a mut dyn Backbone,
    context: &'a [TokenId],
    policies: Vec<Policy>,
    /// The blades of the scheme's own arm.
    own: &'a Seated<'a>,
    /// The time spent on reading and scoring.
    seconds: f64,
}

impl Reader<'_> {
    /// Reads candidates.
    fn read(&mut self, candidates: &Candidates, span: Span) -> Result<Readings, StepError> {
        if self.policies.is_empty() {
            return Ok(Readings::new());
        }
        let (readings, time) = timed(|| match span {
            Span::Whole => self.backbone.read(self.context, candidates, &self.policies),
            Span::Head => self.backbone.read_beginnings(self.context, candidates, &self.policies),
        });
        self.seconds += time;
        let readings = readings.map_err(StepError::Backbone)?;
        readings.check(&self.policies, candidates).map_err(StepError::Readings)?;
        Ok(readings)
    }

    fn score(&mut self, candidates: &Candidates, readings: &Readings) -> Result<Scores, StepError> {
        let (scores, time) = timed(|| self.own.score(&Observation { context: self.context, candidates, readings }));
        self.seconds += time;
        scores
    }

    /// Returns the indices of the last reading; empty if nothing was read.
    fn last(&self, indices: Vec<usize>) -> Vec<usize> {
        if self.policies.is_empty() { Vec::new() } else { indices }
    }
}

/// Decides by scores, selecting among the given candidates.
type Decide<'a> = &'a mut dyn FnMut(&Scores, Option<&[usize]>) -> Result<Decision, StepError>;

/// Candidates, and the selected one.
struct Chosen {
    /// The scored candidates.
    candidates: Candidates,
    /// The number of scored tokens of each candidate; empty if all were scored.
    scored: Vec<usize>,
    /// The candidates that were not scored.
    unscored: Vec<Candidate>,
    scores: Scores,
    decision: Decision,
    arms: Vec<ArmTrace>,
    /// The indices of the candidates in the backbone's last reading.
    last: Vec<usize>,
}

impl Chosen {
    /// Scores candidates in waves.
    fn in_waves(waves: Waves, candidates: &Candidates, reader: &mut Reader<'_>, decide: Decide<'_>) -> Result<Self, StepError> {
        let (mut readings, mut end, n) = (Readings::new(), 0, candidates.len());
        loop {
            let begin = end;
            end = waves.next(begin, n);
            readings.append(reader.read(&candidates.pick(begin..end), Span::Whole)?);
            let scored = candidates.pick(0..end);
            let scores = reader.score(&scored, &readings)?;
            let decision = decide(&scores, None)?;
            if end == n || waves.is_settled(&decision) {
                let unscored = candidates[end..].to_vec();
                let last = reader.last((begin..end).collect());
                return Ok(Self { candidates: scored, scored: Vec::new(), unscored, scores, decision, arms: Vec::new(), last });
            }
        }
    }

    /// Scores the first tokens of all candidates, and the rest of those that can still be selected.
    fn by_race(race: Race, candidates: Candidates, reader: &mut Reader<'_>, decide: Decide<'_>) -> Result<Self, StepError> {
        let heads = race.heads(&candidates);
        let first = heads.as_ref().unwrap_or(&candidates);
        let mut readings = reader.read(first, if heads.is_some() { Span::Head } else { Span::Whole })?;
        let mut scores = reader.score(first, &readings)?;
        let mut decision = decide(&scores, None)?;
        let (mut scored, mut last) = (Vec::new(), (0..candidates.len()).collect());
        if let Some(heads) = heads {
            let survivors = race.survivors(&decision.probabilities);
            let rest = candidates.pick(survivors.iter().copied());
            readings.replace(&survivors, reader.read(&rest, Span::Whole)?);
            let mixed = heads.with(&survivors, &rest);
            scores = reader.score(&mixed, &readings)?;
            decision = decide(&scores, Some(&survivors))?;
            scored = mixed.iter().map(|candidate| candidate.tokens.len()).collect();
            last = survivors;
        }
        let last = reader.last(last);
        Ok(Self { candidates, scored, unscored: Vec::new(), scores, decision, arms: Vec::new(), last })
    }

    fn into_trace(self) -> BatchTrace {
        let (blades, fluency) = self.scores.into_trace();
        let mut candidates: Vec<CandidateTrace> = self.candidates.iter().map(CandidateTrace::new).collect();
        for (candidate, scored) in candidates.iter_mut().zip(self.scored) {
            candidate.scored = Some(scored).filter(|&scored| scored < candidate.tokens.len());
        }
        let unscored = self.unscored.iter().map(CandidateTrace::new).collect();
        BatchTrace { candidates, unscored, blades, fluency, decision: self.decision }
    }
}

/// Returns the result of `work` and its wall time in seconds.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed().as_secs_f64())
}
