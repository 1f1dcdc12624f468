use super::frontier::MethodFrontier;
use super::{PageContext, isolated, listed, with_tables};
use crate::chart::{Axis, HeatMap, Lines, Series};
use crate::page::{Figure, Section};
use crate::report::distinct;
use crate::report::tables::SteeringRow;
use crate::stats::{MOST_PERMUTED, Spearman, extent, holm};

/// The section on steerability: whether the axes follow the requested weights.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let sweep = &context.results.sweep;
    let mut section = Section::new("steering", "Steerability");
    if sweep.steered().is_empty() {
        let blades = sweep.blades.join(", ");
        return section
            .missing(format!("No objective has a blade among {blades}: name the blade of each in the file of objectives."));
    }
    let rows: Vec<&SteeringRow> = context.report.rows.steering.iter().filter(|row| row.is_as_labelled()).collect();
    if rows.is_empty() && sweep.points.len() < 2 {
        return section.missing("No steering: all answers were asked for at one weight vector.");
    }
    section = section.paragraph("A scheme that can be steered achieves more on an axis the more weight it is asked to give it.");
    if !rows.is_empty() {
        section = section.figure(correlations(context, &rows));
    }
    let along = |k| MethodFrontier::along_axis(context, &context.reference.name, k);
    let axes: Vec<MethodFrontier<'_>> = (0..sweep.objectives.objectives.len()).map(along).collect();
    // The axes that were judged, and their blades.
    let steered: Vec<(usize, usize)> = sweep.steered().into_iter().filter(|&(k, _)| !axes[k].points.is_empty()).collect();
    if steered.is_empty() {
        section = section.missing(format!("No axis of {} that a blade steers was judged.", context.reference.name));
    } else {
        section = section.figure(followed(context, &axes, &steered));
        section = match &sweep.blades[..] {
            [_, _, _] => section.figure(on_the_simplex(context, &axes, &steered)),
            _ => section.figure(each_by_each(context, &axes)),
        };
    }
    with_tables(section, context, &["steering"])
}

fn correlations(context: &PageContext<'_>, rows: &[&SteeringRow]) -> Figure {
    let objectives = context.results.sweep.objectives.names();
    let methods: Vec<String> =
        context.methods().filter(|name| rows.iter().any(|row| row.method == *name)).map(str::to_owned).collect();
    let columns: Vec<String> = objectives.iter().copied().chain(["pooled"]).map(str::to_owned).collect();
    let of = |read: fn(&SteeringRow) -> f64| -> Vec<Vec<f64>> {
        let axes = || (0..objectives.len()).map(Some).chain([None]);
        let at = |method: &String, axis: Option<usize>| {
            rows.iter().find(|row| row.method == *method && row.axis == axis).map_or(f64::NAN, |row| read(row))
        };
        methods.iter().map(|method| axes().map(|axis| at(method, axis)).collect()).collect()
    };
    let chart = HeatMap {
        values: of(|row| row.found.rho),
        p: of(|row| row.holm),
        columns: ("axis".to_owned(), columns),
        rows: ("method".to_owned(), methods),
        scale: "Spearman's ρ (−1 to 1)".to_owned(),
        limit: Some(1.0),
    };
    let n = rows.iter().map(|row| row.found.n).max().unwrap_or(0);
    Figure::new("steering-map", "Rank correlation of requested weight and achieved axis", chart)
        .caption(format!(
            "Over the weight vectors of each method; pooled over the axes, each standardised, up to n = {n} pairs. A star (*) marks p < 0.05, by permutation \
             of the weight vectors, or by Student's t for single axes at more than {MOST_PERMUTED} of them, after Holm's correction, over the methods for \
             pooled coefficients and over methods and axes for the others. The table has intervals."
        ))
        .see("steering")
}

/// Formats the number of weight vectors of some axes, as `9`, or as `5 (calm) and 4 (terse)`.
fn sizes<'a>(axes: impl Iterator<Item = (&'a str, &'a MethodFrontier<'a>)>) -> String {
    let sizes: Vec<(&str, usize)> = axes.map(|(name, axis)| (name, axis.points.len())).filter(|&(_, n)| n > 0).collect();
    match distinct(sizes.iter().map(|&(_, n)| n))[..] {
        [n] => n.to_string(),
        _ => listed(&sizes.iter().map(|&(name, n)| format!("{n} ({})", isolated(name))).collect::<Vec<_>>()),
    }
}

fn followed(context: &PageContext<'_>, axes: &[MethodFrontier<'_>], steered: &[(usize, usize)]) -> Figure {
    let sweep = &context.results.sweep;
    let objectives = sweep.objectives.names();
    let panels = steered.iter().map(|&(k, place)| {
        let (frontier, objective, blade) = (&axes[k], objectives[k], &sweep.blades[place]);
        let x = frontier.points.iter().map(|row| row.point.weights[place]).collect();
        let (y, intervals) = frontier.along(k);
        let series = Series {
            labels: frontier.labels(context),
            intervals: [Vec::new(), intervals],
            style: Some(frontier.style),
            ..Series::points(frontier.method, x, y)
        };
        let weight = Axis { range: Some([-0.04, 1.04]), ..Axis::new(format!("weight of {blade} (0 to 1)")) };
        let achieved = Axis::new(format!("{objective} (0 to 1)"));
        (format!("{objective} for {blade}"), Lines::new(weight, achieved, vec![series]))
    });
    Figure::panels("weight-and-axis", format!("What {} achieves for the weight it is given", context.reference.name), panels)
        .caption(format!(
            "Means over prompts with 95% bootstrap intervals by prompt, n = {} weight vectors each. Steering that works rises from left to right.",
            sizes(steered.iter().map(|&(k, _)| (objectives[k], &axes[k])))
        ))
        .see("axes")
}

fn on_the_simplex(context: &PageContext<'_>, axes: &[MethodFrontier<'_>], steered: &[(usize, usize)]) -> Figure {
    let sweep = &context.results.sweep;
    let objectives = sweep.objectives.names();
    let panels = steered.iter().map(|&(k, place)| {
        let (frontier, objective, blade) = (&axes[k], objectives[k], &sweep.blades[place]);
        let (values, _) = frontier.along(k);
        let range = extent(values.iter().copied());
        let chart = frontier.on_the_simplex(context, &format!("{objective} (0 to 1)"), &values, range);
        (format!("{objective}: should be brightest at {blade}"), chart)
    });
    Figure::panels("steering-ternary", format!("Where {} achieves what", context.reference.name), panels)
        .caption("Each point is a requested weight vector, its colour the mean of the axis over prompts; each panel has its own scale.")
        .see("axes")
}

/// Every objective against every weight, for any number of blades.
fn each_by_each(context: &PageContext<'_>, axes: &[MethodFrontier<'_>]) -> Figure {
    let sweep = &context.results.sweep;
    let objectives: Vec<String> = sweep.objectives.names().into_iter().map(str::to_owned).collect();
    let correlation = |objective: usize, blade: usize| {
        let points = axes[objective].points.iter();
        let (x, y): (Vec<f64>, Vec<f64>) = points.map(|row| (row.point.weights[blade], row.axes[objective])).unzip();
        Spearman::of(&x, &y)
    };
    let found: Vec<Vec<Option<Spearman>>> = (0..objectives.len())
        .map(|objective| (0..sweep.blades.len()).map(|blade| correlation(objective, blade)).collect())
        .collect();
    let of = |read: fn(&Spearman) -> f64| -> Vec<Vec<f64>> {
        found.iter().map(|row| row.iter().map(|cell| cell.as_ref().map_or(f64::NAN, read)).collect()).collect()
    };
    let p = holm(&of(|spearman| spearman.exact_p.unwrap_or(spearman.p)).concat());
    let chart = HeatMap {
        columns: ("weight of".to_owned(), sweep.blades.clone()),
        rows: ("axis".to_owned(), objectives),
        values: of(|spearman| spearman.rho),
        scale: "Spearman's ρ (−1 to 1)".to_owned(),
        p: p.chunks(sweep.blades.len()).map(<[f64]>::to_vec).collect(),
        limit: Some(1.0),
    };
    Figure::new("steering-crossed", format!("How every axis of {} follows every weight", context.report.reference), chart)
        .caption(format!(
            "Rank correlation over n = {} weight vectors. Rows: axes; columns: blades. An axis should follow its own blade; weight on \
             another blade is taken from it. A star (*) marks p < 0.05, by permutation of the weight vectors, or by Student's t at more than \
             {MOST_PERMUTED} of them, after Holm's correction over the map.",
            sizes(sweep.objectives.names().into_iter().zip(axes))
        ))
        .see("axes")
}
