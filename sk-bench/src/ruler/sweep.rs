//! Sweeps: the cost of a step along one axis of its operating point.

use std::path::Path;

use serde::Serialize;
use sk_core::{Seconds, TokenId};
use sk_models::lora::LoraAdapter;

use super::{Axis, AxisArg, Figure, Floors, Operating, Roofs, RulerError, Spread, Steered};
use crate::scheme::{GranularitySpec, SchemeError, SchemeSpec};
use crate::{Error, Models};

/// A scheme without adapters: candidates are scored by the backbone alone.
const NO_BLADE: &str = "[blades.fluency]\nkind = \"fluency\"\n[blades.backbone]\nkind = \"backbone-likelihood\"\n";

/// The steps of one sweep.
#[derive(Debug, Clone, Serialize)]
pub struct AxisReport {
    /// The axis: `prefix`, `n`, `k` or `l`.
    pub axis: &'static str,
    /// The measured points.
    pub points: Vec<PointReport>,
    /// The values that were skipped because they exceed the context length of the models.
    pub skipped: Vec<usize>,
}

/// A step at one point.
#[derive(Debug, Clone, Serialize)]
pub struct PointReport {
    /// The value on the axis.
    pub value: usize,
    /// Seconds of drafting.
    pub draft: Figure,
    /// Seconds of scoring.
    pub score: Figure,
    /// Seconds of normalisation, rating and selection.
    pub select: Spread,
    /// Seconds of committing the chosen candidate.
    pub commit: Spread,
    /// Seconds of the whole step.
    pub step: Figure,
    /// The time of the step divided by the time at the centre of all sweeps, repetition by
    /// repetition.
    pub to_centre: Spread,
}

/// Measures steps of `config` along one axis through `centre`, alternating between the points.
///
/// `adapters` must hold as many adapters as the largest K. Each point has its own KV caches and
/// starts with one warm-up step that is not counted. `show` is called with a description of the
/// current work.
///
/// # Errors
/// If no point fits the models, a scheme cannot be built or a step fails.
#[expect(clippy::too_many_arguments, reason = "one call, whose arguments have nothing else in common")]
pub fn sweep(
    arg: &AxisArg,
    centre: Operating,
    models: &Models,
    config: &SchemeSpec,
    adapters: &[(String, LoraAdapter)],
    text: &[TokenId],
    (repeat, seed): (usize, u64),
    roofs: &Roofs,
    mut show: impl FnMut(String),
) -> Result<AxisReport, Error> {
    let limit = models.context_limit();
    let (points, too_long): (Vec<Operating>, Vec<Operating>) =
        arg.points(centre).into_iter().partition(|point| point.prefix.saturating_add(point.span) <= limit);
    if points.is_empty() {
        return Err(RulerError::NoRoom { axis: arg.axis.name(), limit }.into());
    }
    let mut measured = Vec::with_capacity(points.len());
    for &point in &points {
        show(format!("warming up: {} = {}", arg.axis.name(), point.at(arg.axis)));
        let config = at(config, arg.axis, point, adapters)?;
        let prompt: Vec<TokenId> = text.iter().copied().cycle().take(point.prefix).collect();
        let mut steered = Steered::new(models, &config, adapters, seed)?;
        steered.step(&prompt)?;
        let floors = Floors::new(models, &config, adapters, roofs)?;
        measured.push((point, steered, prompt, floors, Vec::<Seconds>::new()));
    }
    for i in 0..repeat {
        show(format!("sweep {}, {} of {repeat}", arg.axis.name(), i + 1));
        for (_, steered, prompt, _, steps) in &mut measured {
            steps.push(steered.step(prompt)?);
        }
    }
    let middle = measured.iter().find(|(point, ..)| *point == centre).unwrap_or(&measured[0]);
    let totals = |steps: &[Seconds]| steps.iter().map(Seconds::total).collect::<Vec<_>>();
    let middle = totals(&middle.4);
    let report = |(point, _, _, floors, steps): &(Operating, _, _, Floors, Vec<Seconds>)| PointReport {
        value: point.at(arg.axis),
        draft: Figure::seconds(steps.iter().map(|s| s.draft), floors.draft(*point)),
        score: Figure::seconds(steps.iter().map(|s| s.score), floors.score(*point)),
        select: Spread::of(steps.iter().map(|s| s.select)),
        commit: Spread::of(steps.iter().map(|s| s.commit)),
        step: Figure::seconds(totals(steps), floors.step(*point)),
        to_centre: Spread::of_ratios(totals(steps), middle.iter().copied()),
    };
    let points = measured.iter().map(report).collect();
    Ok(AxisReport { axis: arg.axis.name(), points, skipped: too_long.iter().map(|point| point.at(arg.axis)).collect() })
}

/// Returns `config` at a point: spans have a fixed length, and along K only the first K adapters
/// are used.
fn at(config: &SchemeSpec, axis: Axis, point: Operating, adapters: &[(String, LoraAdapter)]) -> Result<SchemeSpec, SchemeError> {
    let mut config = config.clone();
    if let Some(draft) = config.proposal.draft_mut() {
        draft.candidates = point.candidates;
    }
    config.granularity = GranularitySpec::FixedLength { span_tokens: point.span };
    if axis == Axis::Blades {
        config.weights = None;
        if point.blades == 0 {
            config.overlay("a sweep", NO_BLADE, Path::new(""))?;
        } else {
            config.blades.clear();
            adapters.iter().take(point.blades).for_each(|(name, _)| config.seat(name));
        }
    }
    Ok(config)
}
