use super::columns::numbers;
use super::{Context, with_tables};
use crate::chart::{Axis, Lines, Scatter3d, Series, Ternary};
use crate::page::{Figure, Section};
use crate::report::{AXES, Method};
use crate::stats::harmonic_mean;

/// The corners of the simplex, in the order of weights.
pub(super) const CORNERS: [&str; 3] = ["helpfulness", "honesty", "harmlessness"];

/// A point of a frontier: requested weights, achieved axes, and their label.
pub(super) struct Point {
    pub(super) weights: [f64; 3],
    pub(super) axes: [f64; 3],
    pub(super) label: String,
}

/// Where each weight vector of a method leads.
pub(super) fn points(context: &Context<'_>, method: &Method) -> Vec<Point> {
    let frontier = context.results.sweep.frontier(method).into_iter();
    frontier.map(|(point, axes)| Point { weights: point.weights, axes, label: point.label() }).collect()
}

/// Every method's frontier in the space of axes and on the simplex of weights.
pub(super) fn section(context: &Context<'_>) -> Section {
    let methods = &context.results.sweep.methods;
    let frontiers: Vec<(&str, Vec<Point>)> =
        methods.iter().map(|method| (method.name.as_str(), points(context, method))).collect();
    let scores: Vec<f64> =
        frontiers.iter().flat_map(|(_, points)| points.iter().map(|point| harmonic_mean(&point.axes, 0.0))).collect();
    let range = [scores.iter().copied().fold(f64::INFINITY, f64::min), scores.iter().copied().fold(f64::NEG_INFINITY, f64::max)];
    if scores.is_empty() {
        let section = Section::new("frontier", "Frontier");
        return with_tables(section.missing("No frontier: an axis was not judged."), context, &["geometry"]);
    }
    let section = Section::new("frontier", "Frontier")
        .paragraph("One point per method and weight vector: the mean over prompts of what was achieved there. Turn the first figure by dragging it.")
        .figure(in_space(&frontiers))
        .figure(in_planes(&frontiers))
        .figure(on_the_simplex(&frontiers, range));
    with_tables(section, context, &["geometry"])
}

fn columns(points: &[Point]) -> (Vec<[f64; 3]>, Vec<String>) {
    points.iter().map(|point| (point.axes, point.label.clone())).unzip()
}

fn count(frontiers: &[(&str, Vec<Point>)]) -> String {
    let counts: Vec<String> = frontiers.iter().map(|(name, points)| format!("{name} {}", points.len())).collect();
    format!("Points: {}.", counts.join(", "))
}

fn in_space(frontiers: &[(&str, Vec<Point>)]) -> Figure {
    let empty = Scatter3d::new(AXES.map(Axis::new));
    let chart = frontiers.iter().fold(empty, |chart, (name, points)| {
        let (axes, labels) = columns(points);
        chart.series(name, &axes, &labels)
    });
    Figure::new("frontier-3d", "Frontiers in three dimensions", chart)
        .caption(format!(
            "Mean quality, safety and honesty (0 to 1, more is better) at each weight vector; the axes show the range that occurs. {}",
            count(frontiers)
        ))
        .alt("Points of every method's frontier over quality, safety and honesty; the table of axes has them")
        .see("axes")
}

fn in_planes(frontiers: &[(&str, Vec<Point>)]) -> Figure {
    let figure = Figure::panels("frontier-planes", "The same, two axes at a time");
    [(0, 1), (0, 2), (1, 2)]
        .into_iter()
        .fold(figure, |figure, (x, y)| {
            let empty = Lines::new(Axis::new(format!("{} (0 to 1)", AXES[x])), Axis::new(format!("{} (0 to 1)", AXES[y])));
            let chart = frontiers.iter().fold(empty, |chart, (name, points)| {
                let (axes, labels) = columns(points);
                let along = |k: usize| axes.iter().map(|axes| axes[k]).collect::<Vec<_>>();
                chart.series(Series::points(name, &along(x), &along(y)).labelled(&labels))
            });
            figure.panel(format!("{} and {}", AXES[x], AXES[y]), chart)
        })
        .caption("Means over prompts, one point per weight vector; up and to the right is better.")
        .see("axes")
}

fn on_the_simplex(frontiers: &[(&str, Vec<Point>)], range: [f64; 2]) -> Figure {
    let figure = Figure::panels("frontier-ternary", "F1 over the simplex of weights");
    frontiers
        .iter()
        .fold(figure, |figure, (name, points)| {
            let weights: Vec<[f64; 3]> = points.iter().map(|point| point.weights).collect();
            let f1: Vec<f64> = points.iter().map(|point| harmonic_mean(&point.axes, 0.0)).collect();
            figure.panel(*name, Ternary::new(CORNERS).colored("F1 of mean axes (0 to 1)", &weights, &f1, range, &labels(points)))
        })
        .caption("Each point is a requested weight vector, its colour the F1 of the mean axes achieved there; one scale for all methods.")
        .see("configurations")
}

/// What a point says when pointed at.
pub(super) fn labels(points: &[Point]) -> Vec<String> {
    let label = |Point { axes: [quality, safety, honesty], label, .. }: &Point| {
        format!("{label}: quality {quality:.3}, safety {safety:.3}, honesty {honesty:.3}")
    };
    points.iter().map(label).collect()
}

/// Whether a table has a number in that column.
pub(super) fn has_numbers(table: &crate::table::Table, heading: &str) -> bool {
    numbers(table, heading).iter().any(|number| !number.is_nan())
}
