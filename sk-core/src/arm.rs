use std::sync::Arc;

use crate::{
    Aggregator, AlignmentSpec, Blade, Normalizer, Observation, Operators, Policy, Score, ScoreTrace, Seat, Selector, SpecHandle,
    StepError,
};

/// A scheme without what makes and reads its candidates: ⟨Ω, b₀, 𝓝, 𝓐, 𝓢⟩.
///
/// An arm of an ablation. Arms of a [`Scheme`](crate::Scheme) score, rate and select from the candidates that the scheme drafts, at every
/// step, and what they would have chosen stands in the trace; the scheme's own choice is what is appended. The backbone reads the candidates
/// once for all of them.
#[derive(Clone)]
pub struct Arm {
    /// What traces call it.
    pub name: Arc<str>,
    /// Ω = (𝓑, **w**). Variants and heads are those of the scheme's backbone.
    pub spec: SpecHandle,
    /// b₀.
    pub fluency: Option<Arc<dyn Blade>>,
    /// 𝓝.
    pub normalizer: Arc<dyn Normalizer>,
    /// 𝓐.
    pub aggregator: Arc<dyn Aggregator>,
    /// 𝓢.
    pub selector: Arc<dyn Selector>,
}

impl Arm {
    /// ⟨𝓝, 𝓐, 𝓢⟩.
    pub fn operators(&self) -> Operators<'_> {
        Operators { normalizer: &*self.normalizer, aggregator: &*self.aggregator, selector: &*self.selector }
    }

    /// The blades to be read in a step under `spec`, which is a snapshot of this arm's.
    pub(crate) fn seated<'s>(&'s self, spec: &'s AlignmentSpec) -> Result<Seated<'s>, StepError> {
        Seated::new(spec, self.fluency.as_deref(), &*self.selector).map_err(|error| self.blame(error))
    }

    pub(crate) fn blame(&self, source: StepError) -> StepError {
        StepError::Arm { name: self.name.to_string(), source: Box::new(source) }
    }
}

/// The blades that are read in a step: those that count, those that the selector looks at, and b₀.
pub(crate) struct Seated<'s> {
    seats: Vec<(&'s Seat, f64)>,
    fluency: Option<&'s dyn Blade>,
}

/// Scores of each blade that was read, and ℓ_S of each candidate where b₀ is seated.
pub(crate) type Scores = (Vec<ScoreTrace>, Option<Vec<f64>>);

impl<'s> Seated<'s> {
    pub(crate) fn new(
        spec: &'s AlignmentSpec,
        fluency: Option<&'s dyn Blade>,
        selector: &dyn Selector,
    ) -> Result<Self, StepError> {
        let looked_at = selector.blades();
        if let Some(name) = looked_at.iter().find(|name| spec.weight(name).is_none()) {
            let seated: Vec<&str> = spec.seats().iter().map(|seat| &**seat.name()).collect();
            return Err(StepError::Unseated { name: name.to_string(), seated: seated.join(", ") });
        }
        let weighed = spec.seats().iter().zip(spec.weights().as_slice().iter().copied());
        let seats = weighed.filter(|(seat, weight)| *weight > 0.0 || looked_at.contains(seat.name())).collect();
        Ok(Self { seats, fluency })
    }

    pub(crate) fn policies(&self) -> impl Iterator<Item = Policy> {
        self.seats.iter().map(|(seat, _)| &**seat.blade()).chain(self.fluency).flat_map(Blade::policies)
    }

    pub(crate) fn score(&self, observation: &Observation<'_>) -> Result<Scores, StepError> {
        let mut scores = vec![Score::new(0.0, 0.0).expect("zero is a score"); observation.candidates.len()];
        let mut run = |name: &str, blade: &dyn Blade| {
            blade.score(observation, &mut scores).map_err(|source| StepError::Blade { name: name.to_owned(), source })?;
            Ok::<_, StepError>(scores.iter().map(|s| (s.mu(), s.sigma())).unzip::<_, _, Vec<f64>, Vec<f64>>())
        };
        let mut blades = Vec::with_capacity(self.seats.len());
        for &(seat, weight) in &self.seats {
            let (mu, sigma) = run(seat.name(), &**seat.blade())?;
            blades.push(ScoreTrace { name: seat.name().to_string(), weight, mu, sigma });
        }
        let fluency = match self.fluency {
            Some(blade) => Some(run("fluency", blade)?.0),
            None => None,
        };
        Ok((blades, fluency))
    }
}
