use super::columns::{distinct, numbers, rows_of, texts};
use super::frontier::{CORNERS, Point, labels, points};
use super::{Context, with_tables};
use crate::chart::{Axis, HeatMap, Lines, Series, Ternary};
use crate::page::{Figure, Section};
use crate::report::AXES;
use crate::table::Table;

/// Per axis of [`AXES`] the place of its weight: quality follows helpfulness, safety harmlessness, honesty honesty.
const WEIGHT_OF: [usize; 3] = [0, 2, 1];

/// Whether achieved axes follow requested weights.
pub(super) fn section(context: &Context<'_>) -> Section {
    let mut section = Section::new("steering", "Steerability")
        .paragraph("A scheme that can be steered achieves more on an axis the more weight it is asked to give it.");
    if let Some(table) = context.report.table("steering") {
        section = section.figure(correlations(table));
    }
    let points = points(context, context.reference);
    let section = section.figure(followed(context, &points)).figure(on_the_simplex(context, &points));
    with_tables(section, context, &["steering"])
}

fn correlations(table: &Table) -> Figure {
    let labelled = rows_of(table, "weights", "as labelled");
    let methods = distinct(&labelled, "method");
    let columns: Vec<String> = AXES.iter().copied().chain(["pooled"]).map(str::to_owned).collect();
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
        .caption(format!("Over the weight vectors of each method; pooled over the three axes, each standardised, up to n = {n} pairs. p-values are in the table."))
        .see("steering")
}

fn followed(context: &Context<'_>, points: &[Point]) -> Figure {
    let figure =
        Figure::panels("weight-and-axis", format!("What {} achieves for the weight it is given", context.report.reference));
    AXES.into_iter()
        .zip(WEIGHT_OF)
        .enumerate()
        .fold(figure, |figure, (k, (axis, place))| {
            let x: Vec<f64> = points.iter().map(|point| point.weights[place]).collect();
            let y: Vec<f64> = points.iter().map(|point| point.axes[k]).collect();
            let names: Vec<String> = points.iter().map(|point| point.label.clone()).collect();
            let chart = Lines::new(
                Axis::new(format!("weight of {} (0 to 1)", CORNERS[place])).range([-0.04, 1.04]),
                Axis::new(format!("{axis} (0 to 1)")),
            )
            .series(Series::points(axis, &x, &y).labelled(&names));
            figure.panel(format!("{axis} for {}", CORNERS[place]), chart)
        })
        .caption(format!(
            "Means over prompts, n = {} weight vectors each. Steering that works rises from left to right.",
            points.len()
        ))
        .see("axes")
}

fn on_the_simplex(context: &Context<'_>, points: &[Point]) -> Figure {
    let weights: Vec<[f64; 3]> = points.iter().map(|point| point.weights).collect();
    let figure = Figure::panels("steering-ternary", format!("Where {} achieves what", context.report.reference));
    AXES.into_iter()
        .zip(WEIGHT_OF)
        .enumerate()
        .fold(figure, |figure, (k, (axis, place))| {
            let values: Vec<f64> = points.iter().map(|point| point.axes[k]).collect();
            let range = [
                values.iter().copied().fold(f64::INFINITY, f64::min),
                values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ];
            let chart = Ternary::new(CORNERS).colored(&format!("{axis} (0 to 1)"), &weights, &values, range, &labels(points));
            figure.panel(format!("{axis}: should be brightest at {}", CORNERS[place]), chart)
        })
        .caption("Each point is a requested weight vector, its colour the mean of the axis over prompts; each panel has its own scale.")
        .see("axes")
}
