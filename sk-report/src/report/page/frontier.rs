use super::{PageContext, counted, listed, score, with_tables};
use crate::chart::{Axis, Lines, Scatter3d, Series, Style, Ternary};
use crate::page::{Figure, Section};
use crate::report::tables::PointRow;
use crate::stats::{Interval, extent};

/// The most objectives for which frontiers are drawn for every pair of axes.
const MOST_IN_PLANES: usize = 5;

/// The frontier of a method: its style, and its point at each weight vector.
pub(super) struct MethodFrontier<'a> {
    pub(super) method: &'a str,
    pub(super) style: Style,
    pub(super) points: Vec<&'a PointRow>,
}

impl<'a> MethodFrontier<'a> {
    /// Selects the points of a method at which every objective was judged.
    fn of(context: &PageContext<'a>, method: &'a str) -> Self {
        Self::where_judged(context, method, PointRow::is_whole)
    }

    /// Selects the points of a method at which one objective was judged.
    pub(super) fn along_axis(context: &PageContext<'a>, method: &'a str, axis: usize) -> Self {
        Self::where_judged(context, method, |row| !row.axes[axis].is_nan())
    }

    fn where_judged(context: &PageContext<'a>, method: &'a str, is_judged: impl Fn(&PointRow) -> bool) -> Self {
        let points = context.report.rows.points.iter().filter(|row| row.method == method && is_judged(row)).collect();
        Self { method, style: context.style(method, 0), points }
    }

    /// Returns the tooltip title of each point: its weights.
    pub(super) fn labels(&self, context: &PageContext<'_>) -> Vec<String> {
        self.points.iter().map(|row| context.weights(&row.point)).collect()
    }

    /// Returns the values of one objective and their confidence intervals.
    pub(super) fn along(&self, axis: usize) -> (Vec<f64>, Vec<Interval>) {
        self.points.iter().map(|row| (row.axes[axis], row.intervals[axis])).unzip()
    }

    /// Draws three-dimensional weights as points of the simplex, coloured by `values` on a scale
    /// over `range`. The tooltips list the weights and all axes.
    pub(super) fn on_the_simplex(&self, context: &PageContext<'_>, scale: &str, values: &[f64], range: [f64; 2]) -> Ternary {
        let sweep = &context.results.sweep;
        let corners = std::array::from_fn(|blade| sweep.blades[blade].as_str());
        let points: Vec<[f64; 3]> = self.points.iter().map(|row| std::array::from_fn(|blade| row.point.weights[blade])).collect();
        let names = sweep.objectives.names();
        let summary = |row: &&PointRow| {
            let achieved: Vec<String> =
                names.iter().zip(&row.axes).map(|(name, value)| format!("{name}: {}", score(*value))).collect();
            format!("{}\n{}\nF1: {}\n{}", self.method, context.weights(&row.point), score(row.f1), achieved.join("\n"))
        };
        let summaries: Vec<String> = self.points.iter().map(summary).collect();
        Ternary::new(corners).colored(scale, &points, values, range, &summaries)
    }
}

/// The section on frontiers, in the space of axes and on the simplex of weights.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let frontiers: Vec<MethodFrontier<'_>> = context.methods().map(|method| MethodFrontier::of(context, method)).collect();
    if frontiers.iter().all(|frontier| frontier.points.is_empty()) {
        let section = Section::new("frontier", "Frontier");
        return with_tables(section.missing("No frontier: an axis was not judged."), context, &["geometry"]);
    }
    let sweep = &context.results.sweep;
    let objectives = sweep.objectives.names();
    let mut section = Section::new("frontier", "Frontier")
        .paragraph("One point per method and weight vector: the mean over prompts of what was achieved there.");
    if let [x, y, z] = objectives[..] {
        section = section.figure(in_space(context, [x, y, z], &frontiers));
    }
    if (2..=MOST_IN_PLANES).contains(&objectives.len()) {
        section = section.figure(in_planes(context, &objectives, &frontiers));
    } else {
        section = section.missing(format!("No figure of the axes: it is drawn for 2 to {MOST_IN_PLANES} objectives."));
    }
    section = match &sweep.blades[..] {
        [first, second] => section.figure(between_two(context, [first, second], &frontiers)),
        [_, _, _] => section.figure(on_the_simplex(context, &frontiers)),
        _ => section.missing("No figure of F1 over the weights: it is drawn for two or three blades."),
    };
    with_tables(section, context, &["geometry"])
}

fn count(frontiers: &[MethodFrontier<'_>]) -> String {
    format!("Points: {}.", counted(frontiers.iter().map(|frontier| (frontier.method, frontier.points.len()))))
}

fn in_space(context: &PageContext<'_>, objectives: [&str; 3], frontiers: &[MethodFrontier<'_>]) -> Figure {
    let empty = Scatter3d::new(objectives.map(Axis::new));
    let chart = frontiers.iter().fold(empty, |chart, frontier| {
        let points: Vec<[f64; 3]> = frontier.points.iter().map(|row| std::array::from_fn(|k| row.axes[k])).collect();
        chart.series(frontier.method, frontier.style, &points, &frontier.labels(context))
    });
    let all = listed(&objectives);
    Figure::new("frontier-3d", "Frontiers in three dimensions", chart)
        .caption(format!(
            "Mean {all} (0 to 1, more is better) at each weight vector; the axes show the range that occurs. Points that no other of their method \
             dominates are larger. Drag the figure to turn it. {}",
            count(frontiers)
        ))
        .alt(format!("Points of every method's frontier over {all}; the table of axes has them"))
        .see("axes")
}

fn in_planes(context: &PageContext<'_>, objectives: &[&str], frontiers: &[MethodFrontier<'_>]) -> Figure {
    let pairs = (0..objectives.len()).flat_map(|x| (x + 1..objectives.len()).map(move |y| (x, y)));
    let panels = pairs.map(|(x, y)| {
        let axis = |k: usize| Axis::new(format!("{} (0 to 1)", objectives[k]));
        let series = frontiers.iter().map(|frontier| {
            let ((across, of_x), (along, of_y)) = (frontier.along(x), frontier.along(y));
            Series {
                labels: frontier.labels(context),
                intervals: [of_x, of_y],
                front: true,
                style: Some(frontier.style),
                ..Series::points(frontier.method, across, along)
            }
        });
        (format!("{} and {}", objectives[x], objectives[y]), Lines::new(axis(x), axis(y), series.collect()))
    });
    Figure::panels("frontier-planes", "Frontiers, two axes at a time", panels)
        .caption(format!(
            "Means over prompts, one point per weight vector, with 95% bootstrap intervals by prompt; up and to the right is better. A staircase \
             joins the points that no other of the method dominates on these two axes. {}",
            count(frontiers)
        ))
        .see("axes")
}

/// F1 as the weight shifts from one of two blades to the other.
fn between_two(context: &PageContext<'_>, blades: [&String; 2], frontiers: &[MethodFrontier<'_>]) -> Figure {
    let [first, second] = blades;
    let line = |MethodFrontier { method, style, points }: &MethodFrontier<'_>| {
        let mut points = points.clone();
        points.sort_by(|a, b| a.point.weights[0].total_cmp(&b.point.weights[0]));
        let x = points.iter().map(|row| row.point.weights[0]).collect();
        let (y, intervals) = points.iter().map(|row| (row.f1, row.f1_interval)).unzip();
        let labels = points.iter().map(|row| context.weights(&row.point)).collect();
        Series { labels, intervals: [Vec::new(), intervals], style: Some(*style), ..Series::line(method, x, y) }
    };
    let weight = Axis::new(format!("weight of {first} (0: all on {second}, 1: all on {first})"));
    let weight = Axis { range: Some([-0.04, 1.04]), ..weight };
    let chart = Lines::new(weight, Axis::new("F1 of mean axes (0 to 1)"), frontiers.iter().map(line).collect());
    Figure::new("frontier-line", format!("F1 between {first} and {second}"), chart)
        .caption(format!(
            "F1 of the mean axes achieved at each weight vector, with 95% bootstrap intervals by prompt. {}",
            count(frontiers)
        ))
        .see("axes")
}

fn on_the_simplex(context: &PageContext<'_>, frontiers: &[MethodFrontier<'_>]) -> Figure {
    let range = extent(frontiers.iter().flat_map(|frontier| &frontier.points).map(|row| row.f1));
    let panels = frontiers.iter().map(|frontier| {
        let f1: Vec<f64> = frontier.points.iter().map(|row| row.f1).collect();
        (frontier.method, frontier.on_the_simplex(context, "F1 of mean axes (0 to 1)", &f1, range))
    });
    Figure::panels("frontier-ternary", "F1 over the simplex of weights", panels)
        .caption("Each point is a requested weight vector, its colour the F1 of the mean axes achieved there; one scale for all methods.")
        .see("configurations")
}
