use super::columns::{distinct, numbers, rows_of, texts};
use super::frontier::{Point, coordinates, labels, points};
use super::{PageContext, with_tables};
use crate::chart::{Axis, HeatMap, Lines, Series, Ternary};
use crate::page::{Figure, Section};
use crate::stats::Spearman;
use crate::table::Table;

/// Whether achieved axes follow requested weights.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let sweep = &context.results.sweep;
    let mut section = Section::new("steering", "Steerability")
        .paragraph("A scheme that can be steered achieves more on an axis the more weight it is asked to give it.");
    if sweep.steered().is_empty() {
        let blades = sweep.blades.join(", ");
        return section
            .missing(format!("No objective has a blade among {blades}: name the blade of each in the file of objectives."));
    }
    if let Some(table) = context.report.table("steering") {
        section = section.figure(correlations(context, table));
    }
    let points = points(context, context.reference);
    section = section.figure(followed(context, &points));
    section = match &sweep.blades[..] {
        [top, left, right] => section.figure(on_the_simplex(context, [top, left, right].map(String::as_str), &points)),
        _ => section.figure(each_by_each(context, &points)),
    };
    with_tables(section, context, &["steering"])
}

fn correlations(context: &PageContext<'_>, table: &Table) -> Figure {
    let labelled = rows_of(table, "weights", "as labelled");
    let methods = distinct(&labelled, "method");
    let objectives = context.results.sweep.objectives.names();
    let columns: Vec<String> = objectives.into_iter().chain(["pooled"]).map(str::to_owned).collect();
    let row = |method: &String| {
        let own = rows_of(&labelled, "method", method);
        let (names, rho) = (texts(&own, "axis"), numbers(&own, "r_s"));
        let at = |axis: &String| names.iter().position(|name| name == axis).map_or(f64::NAN, |place| rho[place]);
        columns.iter().map(at).collect::<Vec<_>>()
    };
    let values: Vec<Vec<f64>> = methods.iter().map(row).collect();
    let chart = HeatMap::new(&columns, &methods, &values, "Spearman's r_s (−1 to 1)").signed().range([-1.0, 1.0]);
    let n = numbers(&labelled, "n").into_iter().fold(0.0, f64::max);
    Figure::new("steering-map", "Rank correlation of requested weight and achieved axis", chart)
        .caption(format!("Over the weight vectors of each method; pooled over the axes, each standardised, up to n = {n} pairs. p-values are in the table."))
        .see("steering")
}

fn followed(context: &PageContext<'_>, points: &[Point]) -> Figure {
    let sweep = &context.results.sweep;
    let objectives = sweep.objectives.names();
    let figure =
        Figure::panels("weight-and-axis", format!("What {} achieves for the weight it is given", context.report.reference));
    let names: Vec<String> = points.iter().map(|point| point.label.clone()).collect();
    sweep
        .steered()
        .into_iter()
        .fold(figure, |figure, (k, place)| {
            let (objective, blade) = (objectives[k], &sweep.blades[place]);
            let x: Vec<f64> = points.iter().map(|point| point.weights[place]).collect();
            let y: Vec<f64> = points.iter().map(|point| point.axes[k]).collect();
            let chart = Lines::new(
                Axis::new(format!("weight of {blade} (0 to 1)")).range([-0.04, 1.04]),
                Axis::new(format!("{objective} (0 to 1)")),
            )
            .series(Series::points(objective, &x, &y).labelled(&names));
            figure.panel(format!("{objective} for {blade}"), chart)
        })
        .caption(format!(
            "Means over prompts, n = {} weight vectors each. Steering that works rises from left to right.",
            points.len()
        ))
        .see("axes")
}

fn on_the_simplex(context: &PageContext<'_>, corners: [&str; 3], points: &[Point]) -> Figure {
    let sweep = &context.results.sweep;
    let objectives = sweep.objectives.names();
    let weights = coordinates(points);
    let figure = Figure::panels("steering-ternary", format!("Where {} achieves what", context.report.reference));
    sweep
        .steered()
        .into_iter()
        .fold(figure, |figure, (k, place)| {
            let (objective, blade) = (objectives[k], &sweep.blades[place]);
            let values: Vec<f64> = points.iter().map(|point| point.axes[k]).collect();
            let range = [
                values.iter().copied().fold(f64::INFINITY, f64::min),
                values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ];
            let chart = Ternary::new(corners);
            let chart = chart.colored(&format!("{objective} (0 to 1)"), &weights, &values, range, &labels(&objectives, points));
            figure.panel(format!("{objective}: should be brightest at {blade}"), chart)
        })
        .caption("Each point is a requested weight vector, its colour the mean of the axis over prompts; each panel has its own scale.")
        .see("axes")
}

/// How every objective follows every weight: what the simplex shows of three blades, for any
/// number.
fn each_by_each(context: &PageContext<'_>, points: &[Point]) -> Figure {
    let sweep = &context.results.sweep;
    let objectives: Vec<String> = sweep.objectives.names().into_iter().map(str::to_owned).collect();
    let correlation = |objective: usize, blade: usize| {
        let (x, y): (Vec<f64>, Vec<f64>) = points.iter().map(|point| (point.weights[blade], point.axes[objective])).unzip();
        Spearman::of(&x, &y).map_or(f64::NAN, |spearman| spearman.rho)
    };
    let row = |objective: usize| (0..sweep.blades.len()).map(|blade| correlation(objective, blade)).collect();
    let values: Vec<Vec<f64>> = (0..objectives.len()).map(row).collect();
    let chart = HeatMap::new(&sweep.blades, &objectives, &values, "Spearman's r_s (−1 to 1)").signed().range([-1.0, 1.0]);
    Figure::new("steering-crossed", format!("How every axis of {} follows every weight", context.report.reference), chart)
        .caption(format!(
            "Rank correlation over n = {} weight vectors. Rows: axes; columns: blades. An axis should follow its own blade; weight on \
             another blade is taken from it.",
            points.len()
        ))
        .see("axes")
}
