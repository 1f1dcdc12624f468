//! Sweeps: the cost of a step along one axis of its operating point.

use std::path::Path;

use serde::Serialize;
use sk_core::{Seconds, TokenId};

use super::Subject;
use crate::Error;
use crate::progress::Work;
use crate::ruler::{Axis, AxisArg, Figure, Floors, Operating, Roofs, Spread, Steered};
use crate::scheme::{GranularitySpec, SchemeError, SchemeSpec};

/// A scheme without adapters: candidates are scored by the backbone alone.
const NO_BLADE: &str = "[blades.fluency]\nkind = \"fluency\"\n[blades.backbone]\nkind = \"backbone-likelihood\"\n";

/// The steps of one sweep.
#[derive(Debug, Clone, Serialize)]
pub(super) struct AxisReport {
    /// The axis: `prefix`, `n`, `k` or `l`.
    pub(super) axis: &'static str,
    /// The measured points.
    pub(super) points: Vec<PointReport>,
    /// The values that were skipped because they exceed the context length of the models.
    pub(super) skipped: Vec<usize>,
}

/// A step at one point.
#[derive(Debug, Clone, Serialize)]
pub(super) struct PointReport {
    /// The value on the axis.
    pub(super) value: usize,
    /// Seconds of drafting.
    pub(super) draft: Figure,
    /// Seconds of scoring.
    pub(super) score: Figure,
    /// Seconds of normalisation, rating and selection.
    pub(super) select: Spread,
    /// Seconds of committing the chosen candidate.
    pub(super) commit: Spread,
    /// Seconds of the whole step.
    pub(super) step: Figure,
    /// The time of the step divided by the time at the centre of all sweeps, repetition by
    /// repetition.
    pub(super) to_centre: Spread,
}

impl Subject<'_> {
    /// Measures steps along one axis through the operating point of the main measurement,
    /// alternating between the points. Each point has its own KV caches and starts with one warm-up
    /// step that is not counted.
    pub(super) fn sweep(&self, arg: &AxisArg, roofs: &Roofs, work: &mut Work) -> Result<AxisReport, Error> {
        let (models, axis, centre) = (&self.models, arg.axis, self.operating());
        let adapters = if axis == Axis::Blades { &self.adapters[..] } else { self.own_adapters() };
        let limit = models.context_limit();
        let (points, too_long): (Vec<Operating>, Vec<Operating>) =
            arg.points(centre).into_iter().partition(|point| point.prefix.saturating_add(point.span) <= limit);
        if points.is_empty() {
            return Err(Error::Input(format!(
                "--sweep {}: the models hold {limit} tokens, fewer than any of its points needs; shorten --prompt-tokens",
                axis.name()
            )));
        }
        let mut measured = Vec::with_capacity(points.len());
        work.begin(self.args.repeat as u64, 0);
        for &point in &points {
            work.show(0, &format!("warming up: {} = {}", axis.name(), point.at(axis)));
            let config = self.scheme_at(axis, point)?;
            let prompt: Vec<TokenId> = self.text.iter().copied().cycle().take(point.prefix).collect();
            let mut steered = Steered::new(models, &config, adapters, self.args.seed)?;
            steered.step(&prompt)?;
            let floors = Floors::new(models, &config, adapters, roofs)?;
            measured.push((point, steered, prompt, floors, Vec::<Seconds>::new()));
        }
        work.begin(self.args.repeat as u64, 0);
        for done in 0..self.args.repeat {
            work.show(done as u64, &format!("sweep of {}", axis.name()));
            for (_, steered, prompt, _, steps) in &mut measured {
                steps.push(steered.step(prompt)?);
            }
        }
        let middle = measured.iter().find(|(point, ..)| *point == centre).unwrap_or(&measured[0]);
        let totals = |steps: &[Seconds]| steps.iter().map(Seconds::total).collect::<Vec<_>>();
        let middle = totals(&middle.4);
        let report = |(point, _, _, floors, steps): &(Operating, _, _, Floors, Vec<Seconds>)| PointReport {
            value: point.at(axis),
            draft: Figure::seconds(steps.iter().map(|s| s.draft), floors.draft(*point)),
            score: Figure::seconds(steps.iter().map(|s| s.score), floors.score(*point)),
            select: Spread::of(steps.iter().map(|s| s.select)),
            commit: Spread::of(steps.iter().map(|s| s.commit)),
            step: Figure::seconds(totals(steps), floors.step(*point)),
            to_centre: Spread::of_ratios(totals(steps), middle.iter().copied()),
        };
        let points = measured.iter().map(report).collect();
        Ok(AxisReport { axis: axis.name(), points, skipped: too_long.iter().map(|point| point.at(axis)).collect() })
    }

    /// Returns the scheme at a point: drafted spans have a fixed length, and along K only the first K
    /// adapters are used.
    fn scheme_at(&self, axis: Axis, point: Operating) -> Result<SchemeSpec, SchemeError> {
        let mut config = self.config.clone();
        if let Some(draft) = config.proposal.draft_mut() {
            draft.candidates = point.candidates;
            config.granularity = GranularitySpec::FixedLength { span_tokens: point.span };
        }
        if axis == Axis::Blades {
            config.weights = None;
            if point.blades == 0 {
                config.overlay("a sweep", NO_BLADE, Path::new(""))?;
            } else {
                config.blades.clear();
                self.adapters.iter().take(point.blades).for_each(|(name, _)| config.seat(name));
            }
        }
        Ok(config)
    }
}
