use std::collections::BTreeMap;
use std::ops::Range;

use super::{At, LEVEL, Ledger, Table, TableContext};
use crate::report::{Method, Resampling, grouped};
use crate::stats::{Bootstrap, Interval, MOST_PERMUTED, Steered, Steering, holm};
use crate::table::Kind;

/// How one axis of a method, or all axes pooled, follow their weights.
#[derive(Debug, Clone)]
pub(in crate::report) struct SteeringRow {
    pub(in crate::report) method: String,
    /// The assignment of weights to axes.
    reading: &'static str,
    /// The index of the objective; `None` for all axes pooled.
    pub(in crate::report) axis: Option<usize>,
    pub(in crate::report) found: Steered,
    /// The confidence interval of the coefficient, from a bootstrap over prompts.
    pub(in crate::report) interval: Interval,
    /// The permutation p-value, or that of Student's t if there is none, after correction. The
    /// pooled coefficients of all methods form one family, those of single axes another.
    pub(in crate::report) holm: f64,
    /// The least p-value that permuting this many weight vectors can give in a single test.
    pub(in crate::report) alone: f64,
    /// The least value of `holm` that this many weight vectors and tests can give.
    pub(in crate::report) least: f64,
    /// The least share of its prompts that a weight vector has in common with another.
    shared: f64,
    /// The number of prompts.
    prompts: usize,
}

impl SteeringRow {
    /// Returns whether each axis is paired with the weight of its own blade.
    pub(in crate::report) fn is_as_labelled(&self) -> bool {
        self.reading == LABELLED
    }

    /// Returns whether there is no interval although there are prompts to resample, because some
    /// resamples have no coefficient.
    pub(in crate::report) fn lacks_interval(&self) -> bool {
        self.interval.is_none() && self.prompts > 1
    }

    /// Returns whether some weight vectors share fewer than half of their prompts, so that the
    /// coefficient is of prompts as much as of weights.
    pub(in crate::report) fn is_on_different_prompts(&self) -> bool {
        self.shared < 0.5
    }
}

/// The assignment of each axis to its own blade.
const LABELLED: &str = "as labelled";

/// Computes the correlation of axes with requested weights, per axis and pooled. For the paper's
/// results the published assignment is added.
pub(super) fn rows(context: &TableContext<'_>, ledger: &mut Ledger) -> Vec<SteeringRow> {
    let sweep = context.sweep;
    let names = sweep.objectives.names();
    // An assignment of weights to axes: its name, the index of each objective and of its weight,
    // and whether weights are as in the names of the configurations, which have two decimals.
    let mut pairings = vec![(LABELLED, sweep.steered(), false)];
    if context.of_the_paper {
        // The published table uses this assignment.
        pairings.push(("safety with w2, honesty with w3", vec![(0, 0), (1, 1), (2, 2)], true));
    }
    let mut rows: Vec<SteeringRow> = Vec::new();
    for method in &sweep.methods {
        let points = sweep.means(method);
        let is_judged = |place: usize| points.iter().any(|(_, _, axes)| !axes[place].is_nan());
        for &(reading, ref places, rounded) in &pairings {
            let places: Vec<(usize, usize)> = places.iter().copied().filter(|&(objective, _)| is_judged(objective)).collect();
            let seen = |weight: f64| if rounded { (weight * 100.0).round() / 100.0 } else { weight };
            let weights = |weights: &[f64]| places.iter().map(|&(_, blade)| seen(weights[blade])).collect::<Vec<f64>>();
            let axes = |axes: &[f64]| places.iter().map(|&(objective, _)| axes[objective]).collect::<Vec<f64>>();
            let (weights, achieved): (Vec<_>, Vec<_>) =
                points.iter().map(|(place, _, achieved)| (weights(&sweep.points[*place].weights), axes(achieved))).unzip();
            let steering = Steering::of(&weights, &achieved, context.resampling.seed);
            let prompts = scores_by_prompt(context, method, &places);
            let intervals = intervals(context.resampling, &weights, &prompts);
            let per_axis = places.iter().zip(&steering.axes).map(|(&(objective, _), found)| (Some(objective), *found));
            for (k, (axis, found)) in per_axis.chain([(None, steering.pooled)]).enumerate() {
                let Some(found) = found else { continue };
                let part = axis.map_or("pooled", |axis| names[axis]);
                let at = At { source: "tab:steerability-full", subject: &method.name, part, reading };
                ledger.note(&at, "r_s", found.rho);
                ledger.note(&at, "p", found.p);
                ledger.note(&at, "slope", found.slope);
                found.range.into_iter().for_each(|range| ledger.note(&at, "range", range));
                let interval = intervals.get(k).copied().unwrap_or(Interval::NONE);
                let axes = if axis.is_some() { k..k + 1 } else { 0..places.len() };
                let has_axes = |&point: &usize| achieved[point][axes.clone()].iter().all(|value| !value.is_nan());
                let vectors: Vec<usize> = (0..points.len()).filter(has_axes).collect();
                let alone = least_p(vectors.iter().map(|&point| &weights[point][axes.clone()]));
                let shared = least_shared(&prompts, places.len(), &vectors, axes);
                let (method, holm) = (method.name.clone(), found.permutation_p.unwrap_or(found.p));
                rows.push(SteeringRow {
                    method,
                    reading,
                    axis,
                    found,
                    interval,
                    holm,
                    alone,
                    least: alone,
                    shared,
                    prompts: prompts.len(),
                });
            }
        }
    }
    for (reading, ..) in pairings {
        for is_pooled in [false, true] {
            let family = || (0..).zip(&rows).filter(|(_, row)| row.reading == reading && row.axis.is_none() == is_pooled);
            let places: Vec<usize> = family().map(|(place, _)| place).collect();
            let corrected = |p: fn(&SteeringRow) -> f64| holm(&family().map(|(_, row)| p(row)).collect::<Vec<_>>());
            let (holm, least) = (corrected(|row| row.holm), corrected(|row| row.least));
            for ((place, holm), least) in places.into_iter().zip(holm).zip(least) {
                (rows[place].holm, rows[place].least) = (holm, least);
            }
        }
    }
    rows
}

/// Returns the least p-value by permutation of n weight vectors: 2/n!, times m! for every m vectors
/// with equal weights.
fn least_p<'a>(weights: impl Iterator<Item = &'a [f64]>) -> f64 {
    let (mut n, mut orders) = (0.0, 1.0);
    for (_, equal) in grouped(weights.map(|row| (row, ()))) {
        for k in 1..=equal.len() {
            n += 1.0;
            orders *= n / k as f64;
        }
    }
    (2.0 / orders).min(1.0)
}

/// Returns the least share of its prompts that one of these points has in common with another, on
/// any of these axes.
fn least_shared(prompts: &[Vec<f64>], width: usize, points: &[usize], axes: Range<usize>) -> f64 {
    let of_both = |a: usize, b: usize| prompts.iter().filter(|scores| !scores[a].is_nan() && !scores[b].is_nan()).count() as f64;
    let mut least = 1.0_f64;
    for axis in axes {
        for a in points.iter().map(|point| point * width + axis) {
            let own = of_both(a, a);
            least = points.iter().map(|point| of_both(a, point * width + axis) / own).fold(least, f64::min);
        }
    }
    least
}

/// Returns the scores of each prompt, by point that the method achieved and then by axis, NaN if
/// missing.
fn scores_by_prompt(context: &TableContext<'_>, method: &Method, places: &[(usize, usize)]) -> Vec<Vec<f64>> {
    let sweep = context.sweep;
    let judged: Vec<usize> = sweep.achieved(method).into_iter().map(|(place, ..)| place).collect();
    let mut prompts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for cell in &method.cells {
        let Some(point) = judged.iter().position(|&place| place == cell.configuration) else { continue };
        // A prompt without a score tells nothing. A sample of such prompts only would leave the
        // coefficients undefined, and with them their intervals.
        if places.iter().all(|&(objective, _)| cell.scores.objectives[objective].is_nan()) {
            continue;
        }
        let scores = prompts.entry(cell.prompt).or_insert_with(|| vec![f64::NAN; judged.len() * places.len()]);
        for (k, &(objective, _)) in places.iter().enumerate() {
            scores[point * places.len() + k] = cell.scores.objectives[objective];
        }
    }
    prompts.into_values().collect()
}

/// Bootstraps the coefficients of a method, per axis and last pooled. `weights` are those of the
/// points that the method achieved.
fn intervals(resampling: Resampling, weights: &[Vec<f64>], prompts: &[Vec<f64>]) -> Vec<Interval> {
    let Resampling { resamples, seed } = resampling;
    let interval = |bootstrap: &Bootstrap| {
        let interval = bootstrap.normal(LEVEL);
        if interval.is_none() { interval } else { Interval { low: interval.low.max(-1.0), high: interval.high.min(1.0) } }
    };
    Steering::bootstrap(weights, prompts, resamples, seed).iter().map(interval).collect()
}

/// The table of coefficients, their confidence intervals and p-values.
pub(super) fn table(context: &TableContext<'_>, rows: &[SteeringRow]) -> Table {
    let sweep = context.sweep;
    let names = sweep.objectives.names();
    let steered = sweep.steered().into_iter();
    let labelled: Vec<String> = steered.map(|(k, blade)| format!("{} with {}", names[k], sweep.blades[blade])).collect();
    let table = Table::of("steering", "Rank correlation of requested weight and achieved axis", rows)
        .column("method", Kind::Text, |row| row.method.as_str())
        .column("weights", Kind::Text, |row| row.reading)
        .column("axis", Kind::Text, |row| row.axis.map_or("pooled", |axis| names[axis]))
        .column("n", Kind::Count, |row| row.found.n)
        .column("r_s", Kind::Signed(3), |row| row.found.rho)
        .column("95%, prompts", Kind::Interval(3), |row| row.interval)
        .column("p, t", Kind::PValue, |row| row.found.p)
        .column("p, by permutation", Kind::PValue, |row| row.found.permutation_p)
        .column("p, Holm", Kind::PValue, |row| row.holm)
        .column("slope", Kind::Signed(4), |row| row.found.slope)
        .column("range", Kind::Number(4), |row| row.found.range)
        .build()
        .note(format!("Pooled: axes standardised first. \"p, t\" takes the pairs for independent; \"p, by permutation\" permutes the weight vectors, in all ways for up to {MOST_PERMUTED} points, and of more, pooled only, in 99,999 drawn ones: no less than 2.0e-5 can come out."))
        .note("95%, prompts: r_s ∓ 1.96 standard errors, by resampling whole prompts, within [−1, 1]. Quantiles of resamples would lie too low: these hold fewer different prompts, and noise in the axes lowers r_s.")
        .note("The interval is of the r_s that this many prompts give on average. r_s of the true means, without noise, is further from 0. r_s of sweeps with different numbers of prompts cannot be compared.")
        .note("p, Holm: of the p by permutation, or else p, t; pooled r_s of all methods are one family, those of single axes another.")
        .note(format!("As labelled: {}, from weights ({}).", labelled.join(", "), sweep.blades.join(", ")));
    let shared = rows.iter().map(|row| row.shared).fold(1.0, f64::min);
    let apart = (shared < 1.0).then(|| {
        format!(
            "Weight vectors are judged on different prompts: two of one method share as few as {}%. r_s is then also of how these prompts differ.",
            (100.0 * shared + 1e-9).floor()
        )
    });
    let table = table.notes(apart);
    if context.of_the_paper {
        table.note("The published table follows from the other pairing: safety against the honesty weight and the reverse, thirds taken for 0.33.")
    } else {
        table
    }
}
