use std::fmt;
use std::sync::Arc;

use crate::{
    AlignmentSpec, Blade, Decision, Observation, Operators, Policy, Score, ScoreTable, ScoreTrace, Seat, SpecHandle, StepError,
};

/// Ω with its rule for **w**, and ⟨b₀, 𝓝, 𝓐, 𝓢⟩: the part of a scheme that selects among given
/// candidates and readings.
///
/// A [`Scheme`](crate::Scheme) has one arm whose selected candidate it appends. For an ablation it
/// has further arms, which score, rate and select from the same candidates at every step; the trace
/// records their decisions. The backbone reads the candidates once for all arms.
#[derive(Clone)]
pub struct Arm {
    /// The name of the arm in traces and errors. The arms of a scheme have different names.
    pub name: Arc<str>,
    /// Ω = (𝓑, **w**), read once per step. Adapters and heads are those of the scheme's backbone.
    pub spec: SpecHandle,
    /// The fluency blade b₀. It has no simplex weight; the aggregator applies its coefficient α.
    pub fluency: Option<Arc<dyn Blade>>,
    /// The rule for **w** and ⟨𝓝, 𝓐, 𝓢⟩.
    pub operators: Operators,
}

impl fmt::Debug for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arm").field("name", &self.name).field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Arm {
    /// Returns the blades to read in a step under `spec`, a snapshot of this arm's.
    pub(crate) fn seated<'s>(&'s self, spec: &'s AlignmentSpec) -> Result<Seated<'s>, StepError> {
        let looked_at = self.operators.selector.blades();
        if let Some(name) = looked_at.iter().find(|name| spec.weight(name).is_none()) {
            let seated: Vec<&str> = spec.seats().iter().map(|seat| &**seat.name()).collect();
            return Err(StepError::Unseated { name: name.to_string(), seated: seated.join(", ") });
        }
        let weighed = spec.seats().iter().zip(spec.weights().as_slice().iter().copied());
        let seats = weighed.filter(|(seat, weight)| *weight > 0.0 || looked_at.contains(seat.name())).collect();
        Ok(Seated { seats, fluency: self.fluency.as_deref() })
    }

    pub(crate) fn blame(&self, source: StepError) -> StepError {
        StepError::Arm { name: self.name.to_string(), source: Box::new(source) }
    }
}

/// The blades that are read in a step: those of positive weight, those that the selector uses, and
/// b₀.
pub(crate) struct Seated<'s> {
    seats: Vec<(&'s Seat, f64)>,
    fluency: Option<&'s dyn Blade>,
}

/// The scores of the blades in a step.
pub(crate) struct Scores {
    table: ScoreTable,
    /// One per blade of the table.
    weights: Vec<f64>,
    /// ℓ_S of each candidate, if b₀ is seated.
    fluency: Option<Vec<f64>>,
}

impl Scores {
    /// Decides, selecting among the given candidates; `None` for all.
    pub(crate) fn decide(&self, arm: &Arm, uniform: f64, among: Option<&[usize]>) -> Result<Decision, StepError> {
        arm.operators.decide(&self.table, &self.weights, self.fluency.as_deref(), uniform, among)
    }

    pub(crate) fn into_trace(self) -> (Vec<ScoreTrace>, Option<Vec<f64>>) {
        let Self { table, weights, fluency } = self;
        let blade = |(k, weight)| ScoreTrace {
            name: table.name(k).unwrap_or_default().to_owned(),
            weight,
            mu: table.mu(k).to_vec(),
            sigma: table.sigma(k).to_vec(),
        };
        (weights.into_iter().enumerate().map(blade).collect(), fluency)
    }
}

impl Seated<'_> {
    pub(crate) fn policies(&self) -> impl Iterator<Item = Policy> {
        self.seats.iter().map(|(seat, _)| &**seat.blade()).chain(self.fluency).flat_map(Blade::policies)
    }

    pub(crate) fn score(&self, observation: &Observation<'_>) -> Result<Scores, StepError> {
        let mut scores = vec![Score::UNSET; observation.candidates.len()];
        let mut run = |name: &str, blade: &dyn Blade| {
            scores.fill(Score::UNSET);
            blade.score(observation, &mut scores).map_err(|source| StepError::Blade { name: name.to_owned(), source })?;
            if let Some(candidate) = scores.iter().position(|score| score.mu().is_nan()) {
                return Err(StepError::Unscored { name: name.to_owned(), candidate });
            }
            Ok::<_, StepError>(scores.iter().map(|s| (s.mu(), s.sigma())).unzip::<_, _, Vec<f64>, Vec<f64>>())
        };
        let rows = self.seats.iter().map(|(seat, _)| run(seat.name(), &**seat.blade())).collect::<Result<Vec<_>, _>>()?;
        let fluency = self.fluency.map(|blade| run("fluency", blade)).transpose()?.map(|(mu, _)| mu);
        let names = self.seats.iter().map(|(seat, _)| Arc::clone(seat.name()));
        let table = ScoreTable::new(rows).and_then(|table| table.with_names(names)).map_err(StepError::Scores)?;
        Ok(Scores { table, weights: self.seats.iter().map(|(_, weight)| *weight).collect(), fluency })
    }
}
