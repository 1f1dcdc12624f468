use super::columns::numbers;
use super::{PageContext, listed, with_tables};
use crate::chart::{Axis, Lines, Scatter3d, Series, Ternary};
use crate::page::{Figure, Section};
use crate::report::Method;
use crate::stats::harmonic_mean;

/// Most objectives whose frontiers are drawn two at a time.
const MOST_IN_PLANES: usize = 5;

/// A point of a frontier: requested weights, achieved objectives, and their label.
pub(super) struct Point {
    pub(super) weights: Vec<f64>,
    pub(super) axes: Vec<f64>,
    pub(super) label: String,
}

/// Where each weight vector of a method leads.
pub(super) fn points(context: &PageContext<'_>, method: &Method) -> Vec<Point> {
    let frontier = context.results.sweep.frontier(method).into_iter();
    frontier.map(|(point, axes)| Point { weights: point.weights.clone(), axes, label: point.label() }).collect()
}

/// Every method's frontier in the space of axes and on the simplex of weights.
pub(super) fn section(context: &PageContext<'_>) -> Section {
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
    let sweep = &context.results.sweep;
    let objectives = sweep.objectives.names();
    let mut section = Section::new("frontier", "Frontier")
        .paragraph("One point per method and weight vector: the mean over prompts of what was achieved there.");
    if let [x, y, z] = objectives[..] {
        section = section.figure(in_space([x, y, z], &frontiers));
    }
    if (2..=MOST_IN_PLANES).contains(&objectives.len()) {
        section = section.figure(in_planes(&objectives, &frontiers));
    }
    section = match &sweep.blades[..] {
        [first, second] => section.figure(between_two([first, second], &frontiers)),
        [top, left, right] => {
            section.figure(on_the_simplex(&objectives, [top, left, right].map(String::as_str), &frontiers, range))
        }
        _ => section,
    };
    with_tables(section, context, &["geometry"])
}

fn columns(points: &[Point]) -> (Vec<Vec<f64>>, Vec<String>) {
    points.iter().map(|point| (point.axes.clone(), point.label.clone())).unzip()
}

fn count(frontiers: &[(&str, Vec<Point>)]) -> String {
    let counts: Vec<String> = frontiers.iter().map(|(name, points)| format!("{name} {}", points.len())).collect();
    format!("Points: {}.", counts.join(", "))
}

fn in_space(objectives: [&str; 3], frontiers: &[(&str, Vec<Point>)]) -> Figure {
    let empty = Scatter3d::new(objectives.map(Axis::new));
    let chart = frontiers.iter().fold(empty, |chart, (name, points)| {
        let (axes, labels) = columns(points);
        let axes: Vec<[f64; 3]> = axes.iter().map(|axes| [axes[0], axes[1], axes[2]]).collect();
        chart.series(name, &axes, &labels)
    });
    let all = listed(&objectives);
    Figure::new("frontier-3d", "Frontiers in three dimensions", chart)
        .caption(format!(
            "Mean {all} (0 to 1, more is better) at each weight vector; the axes show the range that occurs. Drag the figure to turn it. {}",
            count(frontiers)
        ))
        .alt(format!("Points of every method's frontier over {all}; the table of axes has them"))
        .see("axes")
}

fn in_planes(objectives: &[&str], frontiers: &[(&str, Vec<Point>)]) -> Figure {
    let figure = Figure::panels("frontier-planes", "Frontiers, two axes at a time");
    let pairs = (0..objectives.len()).flat_map(|x| (x + 1..objectives.len()).map(move |y| (x, y)));
    pairs
        .fold(figure, |figure, (x, y)| {
            let axis = |k: usize| Axis::new(format!("{} (0 to 1)", objectives[k]));
            let chart = frontiers.iter().fold(Lines::new(axis(x), axis(y)), |chart, (name, points)| {
                let (axes, labels) = columns(points);
                let along = |k: usize| axes.iter().map(|axes| axes[k]).collect::<Vec<_>>();
                chart.series(Series::points(name, &along(x), &along(y)).labelled(&labels))
            });
            figure.panel(format!("{} and {}", objectives[x], objectives[y]), chart)
        })
        .caption(format!("Means over prompts, one point per weight vector; up and to the right is better. {}", count(frontiers)))
        .see("axes")
}

/// F1 as weight moves from one of two blades to the other.
fn between_two(blades: [&String; 2], frontiers: &[(&str, Vec<Point>)]) -> Figure {
    let [first, second] = blades;
    let empty = Lines::new(
        Axis::new(format!("weight of {first} (0: all on {second}, 1: all on {first})")).range([-0.04, 1.04]),
        Axis::new("F1 of mean axes (0 to 1)"),
    );
    let chart = frontiers.iter().fold(empty, |chart, (name, points)| {
        let mut points: Vec<&Point> = points.iter().collect();
        points.sort_by(|a, b| a.weights[0].total_cmp(&b.weights[0]));
        let x: Vec<f64> = points.iter().map(|point| point.weights[0]).collect();
        let y: Vec<f64> = points.iter().map(|point| harmonic_mean(&point.axes, 0.0)).collect();
        chart.series(Series::line(name, &x, &y))
    });
    Figure::new("frontier-line", format!("F1 between {first} and {second}"), chart)
        .caption(format!("F1 of the mean axes achieved at each weight vector. {}", count(frontiers)))
        .see("configurations")
}

fn on_the_simplex(objectives: &[&str], corners: [&str; 3], frontiers: &[(&str, Vec<Point>)], range: [f64; 2]) -> Figure {
    let figure = Figure::panels("frontier-ternary", "F1 over the simplex of weights");
    frontiers
        .iter()
        .fold(figure, |figure, (name, points)| {
            let f1: Vec<f64> = points.iter().map(|point| harmonic_mean(&point.axes, 0.0)).collect();
            let labels = labels(objectives, points);
            figure.panel(*name, Ternary::new(corners).colored("F1 of mean axes (0 to 1)", &coordinates(points), &f1, range, &labels))
        })
        .caption("Each point is a requested weight vector, its colour the F1 of the mean axes achieved there; one scale for all methods.")
        .see("configurations")
}

/// The weights of points of three blades.
pub(super) fn coordinates(points: &[Point]) -> Vec<[f64; 3]> {
    points.iter().map(|point| [point.weights[0], point.weights[1], point.weights[2]]).collect()
}

/// What a point says when pointed at.
pub(super) fn labels(objectives: &[&str], points: &[Point]) -> Vec<String> {
    let label = |Point { axes, label, .. }: &Point| {
        let achieved: Vec<String> = objectives.iter().zip(axes).map(|(name, score)| format!("{name} {score:.3}")).collect();
        format!("{label}: {}", achieved.join(", "))
    };
    points.iter().map(label).collect()
}

/// Whether a table has a number in that column.
pub(super) fn has_numbers(table: &crate::table::Table, heading: &str) -> bool {
    numbers(table, heading).iter().any(|number| !number.is_nan())
}
