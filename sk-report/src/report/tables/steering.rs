use std::collections::BTreeMap;

use super::{At, LEVEL, Ledger, Table, TableContext};
use crate::report::{Method, Resampling};
use crate::stats::{Bootstrap, Interval, MOST_PERMUTED, Steering, holm};
use crate::table::Kind;

/// Which weight belongs to which axis.
struct Pairing {
    /// The name in the table.
    reading: &'static str,
    /// The places of objectives, and of their weights.
    places: Vec<(usize, usize)>,
    /// Whether the weights are those of the configurations' names, which have two decimals.
    rounded: bool,
}

/// How one axis of a method, or all of them, follow their weights.
#[derive(Debug, Clone)]
pub(in crate::report) struct SteeringRow {
    pub(in crate::report) method: String,
    /// Which weight belongs to which axis.
    reading: &'static str,
    /// The place of the objective; nothing of all axes pooled.
    pub(in crate::report) axis: Option<usize>,
    pub(in crate::report) n: usize,
    pub(in crate::report) rho: f64,
    /// The interval of `rho`, prompts resampled.
    pub(in crate::report) interval: Interval,
    p: f64,
    permutation: Option<f64>,
    /// p by permutation, or of Student's t where that is unknown, corrected: the pooled coefficients
    /// of all methods are one family, those of single axes another.
    pub(in crate::report) holm: f64,
    slope: f64,
    range: Option<f64>,
}

impl SteeringRow {
    /// Whether each axis has the weight of its own blade.
    pub(in crate::report) fn is_as_labelled(&self) -> bool {
        self.reading == LABELLED
    }
}

/// The pairing of each axis with its own blade.
const LABELLED: &str = "as labelled";

/// Whether achieved axes follow requested weights, per axis and pooled; of the paper's results also
/// as its table has it.
pub(super) fn rows(context: &TableContext<'_>, ledger: &mut Ledger) -> Vec<SteeringRow> {
    let sweep = context.sweep;
    let names = sweep.objectives.names();
    let mut pairings = vec![Pairing { reading: LABELLED, places: sweep.steered(), rounded: false }];
    if context.of_the_paper {
        // What the published table follows from.
        let places = vec![(0, 0), (1, 1), (2, 2)];
        pairings.push(Pairing { reading: "safety with w2, honesty with w3", places, rounded: true });
    }
    let mut rows: Vec<SteeringRow> = Vec::new();
    for method in &sweep.methods {
        let points = sweep.achieved(method);
        let is_judged = |place: usize| points.iter().any(|(_, _, axes)| !axes[place].is_nan());
        for &Pairing { reading, ref places, rounded } in &pairings {
            let places: Vec<(usize, usize)> = places.iter().copied().filter(|&(objective, _)| is_judged(objective)).collect();
            let seen = |weight: f64| if rounded { (weight * 100.0).round() / 100.0 } else { weight };
            let weights = |weights: &[f64]| places.iter().map(|&(_, blade)| seen(weights[blade])).collect::<Vec<f64>>();
            let axes = |axes: &[f64]| places.iter().map(|&(objective, _)| axes[objective]).collect::<Vec<f64>>();
            let (weights, achieved): (Vec<_>, Vec<_>) =
                points.iter().map(|(point, _, achieved)| (weights(&point.weights), axes(achieved))).unzip();
            let steering = Steering::of(&weights, &achieved, context.resampling.seed);
            let intervals = intervals(context, method, &weights, &places);
            let interval = |place: usize| intervals.get(place).copied().unwrap_or(Interval::NONE);
            let place = |part| At { source: "tab:steerability-full", subject: &method.name, part, reading };
            for (k, (&(objective, _), found)) in places.iter().zip(&steering.axes).enumerate() {
                let Some(found) = found else { continue };
                let at = place(names[objective]);
                let spearman = found.spearman;
                ledger.note(&at, "r_s", spearman.rho);
                ledger.note(&at, "p", spearman.p);
                ledger.note(&at, "slope", found.slope);
                ledger.note(&at, "range", found.range);
                rows.push(SteeringRow {
                    method: method.name.clone(),
                    reading,
                    axis: Some(objective),
                    n: found.n,
                    rho: spearman.rho,
                    interval: interval(k),
                    p: spearman.p,
                    permutation: spearman.exact_p,
                    holm: f64::NAN,
                    slope: found.slope,
                    range: Some(found.range),
                });
            }
            if let Some(pooled) = steering.pooled {
                let at = place("pooled");
                ledger.note(&at, "r_s", pooled.rho);
                ledger.note(&at, "p", pooled.p);
                ledger.note(&at, "slope", pooled.slope);
                rows.push(SteeringRow {
                    method: method.name.clone(),
                    reading,
                    axis: None,
                    n: pooled.n,
                    rho: pooled.rho,
                    interval: interval(places.len()),
                    p: pooled.p,
                    permutation: Some(pooled.permutation_p),
                    holm: f64::NAN,
                    slope: pooled.slope,
                    range: None,
                });
            }
        }
    }
    for Pairing { reading, .. } in pairings {
        for is_pooled in [false, true] {
            let family = || (0..).zip(&rows).filter(|(_, row)| row.reading == reading && row.axis.is_none() == is_pooled);
            let places: Vec<usize> = family().map(|(place, _)| place).collect();
            let corrected = holm(&family().map(|(_, row)| row.permutation.unwrap_or(row.p)).collect::<Vec<_>>());
            places.into_iter().zip(corrected).for_each(|(place, p)| rows[place].holm = p);
        }
    }
    rows
}

/// The intervals of the coefficients of a method, per axis and last pooled; `weights` are those of
/// the points that it achieved.
fn intervals(context: &TableContext<'_>, method: &Method, weights: &[Vec<f64>], places: &[(usize, usize)]) -> Vec<Interval> {
    let sweep = context.sweep;
    let judged: Vec<usize> =
        sweep.achieved(method).iter().filter_map(|(point, _, _)| sweep.points.iter().position(|known| known == *point)).collect();
    let mut prompts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for cell in &method.cells {
        let Some(point) = judged.iter().position(|&place| place == cell.configuration) else { continue };
        let scores = prompts.entry(cell.prompt).or_insert_with(|| vec![f64::NAN; judged.len() * places.len()]);
        for (k, &(objective, _)) in places.iter().enumerate() {
            scores[point * places.len() + k] = cell.scores.objectives[objective];
        }
    }
    let Resampling { resamples, seed } = context.resampling;
    let prompts: Vec<Vec<f64>> = prompts.into_values().collect();
    let interval = |bootstrap: &Bootstrap| {
        let interval = bootstrap.normal(LEVEL);
        if interval.is_none() { interval } else { Interval { low: interval.low.max(-1.0), high: interval.high.min(1.0) } }
    };
    Steering::bootstrap(weights, &prompts, resamples, seed).iter().map(interval).collect()
}

/// The coefficients, their intervals and p-values.
pub(super) fn table(context: &TableContext<'_>, rows: &[SteeringRow]) -> Table {
    let sweep = context.sweep;
    let names = sweep.objectives.names();
    let table = Table::of("steering", "Rank correlation of requested weight and achieved axis", rows)
        .column("method", Kind::Text, |row| row.method.as_str())
        .column("weights", Kind::Text, |row| row.reading)
        .column("axis", Kind::Text, |row| row.axis.map_or("pooled", |axis| names[axis]))
        .column("n", Kind::Count, |row| row.n)
        .column("r_s", Kind::Signed(3), |row| row.rho)
        .column("95%, prompts", Kind::Interval(3), |row| row.interval)
        .column("p, t", Kind::PValue, |row| row.p)
        .column("p, by permutation", Kind::PValue, |row| row.permutation)
        .column("p, Holm", Kind::PValue, |row| row.holm)
        .column("slope", Kind::Signed(4), |row| row.slope)
        .column("range", Kind::Number(4), |row| row.range)
        .build()
        .note("Pooled: axes standardised first. \"p, t\" takes the pairs for independent; \"p, by permutation\" permutes the weight vectors,")
        .note(format!("in all ways for up to {MOST_PERMUTED} points, and of more, pooled only, in 99,999 drawn ones: no less than 2.0e-5 can come out."))
        .note("95%, prompts: r_s ∓ 1.96 standard errors, by resampling whole prompts, within [−1, 1]. Quantiles of resamples would lie too low: these hold fewer different prompts, and noise in the axes lowers r_s.")
        .note("p, Holm: of the p by permutation, or else p, t; pooled r_s of all methods are one family, those of single axes another.")
        .note(format!("As labelled: {}, from weights ({}).", labelled(context), sweep.blades.join(", ")));
    if context.of_the_paper {
        table.note("The published table follows from the other pairing: safety against the honesty weight and the reverse, thirds taken for 0.33.")
    } else {
        table
    }
}

/// Which blade each axis belongs to, as `quality with helpfulness, safety with harmlessness`.
fn labelled(context: &TableContext<'_>) -> String {
    let (sweep, names) = (context.sweep, context.sweep.objectives.names());
    let pairs =
        sweep.steered().into_iter().map(|(objective, blade)| format!("{} with {}", names[objective], sweep.blades[blade]));
    pairs.collect::<Vec<_>>().join(", ")
}
