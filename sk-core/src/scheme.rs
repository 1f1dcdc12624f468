use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;

use crate::trace::{CandidateTrace, ScoreTrace, StepTrace, Timings};
use crate::{
    Aggregator, AlignmentSpec, Backbone, Batch, Blade, Candidates, Composite, Context, DraftRequest, Granularity, Normalizer,
    Observation, Policy, Proposal, Readings, Score, ScoreTable, Seat, Selector, Simplex, SpanEnd, SpecHandle, StepError, draw,
};

/// How far the sum of a selector's probabilities may be from one: N roundings of f64.
const PROBABILITY_TOLERANCE: f64 = 1e-9;

/// An externalised alignment scheme 𝔸 = ⟨π_B, Π_prop, ρ, 𝓑, 𝓝, 𝓐, 𝓢⟩ (`def:scheme`), ready to run.
pub struct Scheme {
    /// π_B.
    pub backbone: Box<dyn Backbone>,
    /// Π_prop.
    pub proposal: Box<dyn Proposal>,
    /// ρ.
    pub granularity: Arc<dyn Granularity>,
    /// Ω = (𝓑, **w**), read once a step.
    pub spec: SpecHandle,
    /// b₀, the fluency blade. It stands outside the simplex: the aggregator gives it its coefficient α.
    pub fluency: Option<Arc<dyn Blade>>,
    /// 𝓝.
    pub normalizer: Arc<dyn Normalizer>,
    /// 𝓐.
    pub aggregator: Arc<dyn Aggregator>,
    /// 𝓢.
    pub selector: Arc<dyn Selector>,
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
    /// Runs one step: drafts candidates of at most `limit` tokens, scores them, draws the winner and appends it to `context`.
    ///
    /// Blades of weight zero are not read, unless the selector looks at them. Cost: one proposal, one reading of N candidates under the K+1 policies that count, and
    /// arithmetic in K·N plus the aggregator's own (`prop:cost`).
    ///
    /// # Errors
    /// When a slot fails or returns what is not a score or a distribution, or the selector looks at a blade that is not seated; `context`
    /// is then as it was.
    pub fn step(&mut self, context: &mut Context, step: usize, limit: usize, rng: &mut dyn Rng) -> Result<StepTrace, StepError> {
        let spec = self.spec.snapshot();
        let (drafted, draft) = timed(|| {
            let request = DraftRequest { context: context.tokens(), granularity: &*self.granularity, limit };
            self.proposal.propose(request, rng)
        });
        let candidates = drafted.map_err(StepError::Proposal)?;

        let (scored, score) = timed(|| self.score(&spec, context, &candidates));
        let (blades, fluency) = scored?;

        let (selected, select) = timed(|| self.select(&blades, fluency.as_deref(), rng));
        let Selected { composite, ratings, probabilities, chosen } = selected?;

        let (committed, commit) = timed(|| {
            self.proposal.commit(chosen).map_err(StepError::Proposal)?;
            self.backbone.commit(chosen).map_err(StepError::Backbone)
        });
        committed?;
        context.extend(&candidates[chosen].tokens);

        let candidates = candidates.iter().map(|c| CandidateTrace { tokens: c.tokens.clone(), end: c.end }).collect();
        Ok(StepTrace {
            step,
            candidates,
            blades,
            fluency,
            mu: composite.mu,
            sigma: composite.sigma,
            ratings,
            probabilities,
            chosen,
            timings: Timings { draft, score, select, commit },
        })
    }

    /// Steps until a chosen candidate ends the response, `max_new_tokens` are appended, or `on_step` returns `false`.
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
        let end = context.tokens().len() + max_new_tokens;
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

    fn score(
        &mut self,
        spec: &AlignmentSpec,
        context: &Context,
        candidates: &Candidates,
    ) -> Result<(Vec<ScoreTrace>, Option<Vec<f64>>), StepError> {
        let seats = self.seats(spec)?;
        let policies: BTreeSet<Policy> =
            seats.iter().map(|(seat, _)| seat.blade()).chain(&self.fluency).flat_map(Blade::policies).collect();
        let policies: Vec<Policy> = policies.into_iter().collect();
        let readings = if policies.is_empty() {
            Readings::new()
        } else {
            self.backbone.read(context.tokens(), candidates, &policies).map_err(StepError::Backbone)?
        };
        let observation = Observation { context: context.tokens(), candidates, readings: &readings };

        let mut scores = vec![Score::new(0.0, 0.0).expect("zero is a score"); candidates.len()];
        let mut run = |name: &str, blade: &dyn Blade| {
            blade.score(&observation, &mut scores).map_err(|source| StepError::Blade { name: name.to_owned(), source })?;
            Ok::<_, StepError>(scores.iter().map(|s| (s.mu(), s.sigma())).unzip::<_, _, Vec<f64>, Vec<f64>>())
        };
        let mut blades = Vec::new();
        for (seat, weight) in seats {
            let (mu, sigma) = run(seat.name(), &**seat.blade())?;
            blades.push(ScoreTrace { name: seat.name().to_string(), weight, mu, sigma });
        }
        let fluency = match &self.fluency {
            Some(blade) => Some(run("fluency", &**blade)?.0),
            None => None,
        };
        Ok((blades, fluency))
    }

    /// The seats to be read, with their weights: those that count, and those that the selector looks at.
    fn seats<'s>(&self, spec: &'s AlignmentSpec) -> Result<Vec<(&'s Seat, f64)>, StepError> {
        let looked_at = self.selector.blades();
        if let Some(name) = looked_at.iter().find(|name| spec.weight(name).is_none()) {
            let seated: Vec<&str> = spec.seats().iter().map(|seat| &**seat.name()).collect();
            return Err(StepError::Unseated { name: name.to_string(), seated: seated.join(", ") });
        }
        let weighed = spec.seats().iter().zip(spec.weights().as_slice().iter().copied());
        Ok(weighed.filter(|(seat, weight)| *weight > 0.0 || looked_at.contains(seat.name())).collect())
    }

    fn select(&self, blades: &[ScoreTrace], fluency: Option<&[f64]>, rng: &mut dyn Rng) -> Result<Selected, StepError> {
        let counting = || blades.iter().filter(|blade| blade.weight > 0.0);
        let weights = Simplex::normalized(counting().map(|blade| blade.weight).collect::<Vec<_>>())
            .expect("the positive weights of a simplex have a positive sum");
        let mut composite = Composite::default();
        self.normalizer.combine(&table(counting()), &weights, &mut composite);

        let all = table(blades);
        let n = all.candidates();
        let mut batch = Batch::new(&composite.mu, &composite.sigma).with_blades(&all);
        if let Some(fluency) = fluency {
            batch = batch.with_fluency(fluency);
        }
        let mut ratings = vec![0.0; n];
        self.aggregator.rate(&batch, &mut ratings);
        let mut probabilities = vec![0.0; n];
        self.selector.distribution(&ratings, &batch, &mut probabilities);
        check_distribution(&probabilities)?;
        let chosen = draw(&probabilities, rng);
        Ok(Selected { composite, ratings, probabilities, chosen })
    }
}

struct Selected {
    composite: Composite,
    ratings: Vec<f64>,
    probabilities: Vec<f64>,
    chosen: usize,
}

/// The scores of `blades` under their names.
fn table<'b>(blades: impl IntoIterator<Item = &'b ScoreTrace> + Clone) -> ScoreTable {
    // Each value came out of a `Score`, a simplex has a positive weight, and seats have names of their own: the table is valid.
    ScoreTable::new(blades.clone().into_iter().map(|b| (&b.mu, &b.sigma)))
        .and_then(|table| table.with_names(blades.into_iter().map(|b| b.name.as_str())))
        .expect("blades return scores")
}

fn check_distribution(probabilities: &[f64]) -> Result<(), StepError> {
    if let Some(index) = probabilities.iter().position(|p| !(0.0..=1.0 + PROBABILITY_TOLERANCE).contains(p)) {
        return Err(StepError::Distribution { index, value: probabilities[index] });
    }
    let sum: f64 = probabilities.iter().sum();
    if (sum - 1.0).abs() > PROBABILITY_TOLERANCE * probabilities.len() as f64 {
        return Err(StepError::Mass { sum });
    }
    Ok(())
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}
