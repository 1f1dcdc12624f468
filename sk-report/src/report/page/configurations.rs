use super::{PageContext, listed, several, with_tables};
use crate::chart::HeatMap;
use crate::page::{Figure, Section};
use crate::report::WeightVector;
use crate::report::tables::{PointRow, SUMMARY};

/// The section on single weight vectors: F1 and axes at each.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let section = Section::new("configurations", "Per configuration").figure(heat(context));
    let table = context.report.table("configurations");
    let section = table.into_iter().fold(section, |section, table| section.table_with_summary(table.clone(), SUMMARY.len()));
    with_tables(section, context, &["axes"])
}

fn heat(context: &PageContext<'_>) -> Figure {
    let (sweep, reference) = (&context.results.sweep, &context.report.reference);
    let methods: Vec<String> = sweep.methods.iter().map(|method| method.name.clone()).collect();
    let labels: Vec<String> = sweep.points.iter().map(|point| sweep.label(point)).collect();
    let of = |read: &dyn Fn(&PointRow) -> f64| -> Vec<Vec<f64>> {
        let at = |point: &WeightVector, method: &String| {
            let row = context.report.rows.points.iter().find(|row| row.point == *point && row.method == *method);
            row.filter(|row| row.is_whole()).map_or(f64::NAN, read)
        };
        sweep.points.iter().map(|point| methods.iter().map(|method| at(point, method)).collect()).collect()
    };
    let p = of(&|row| row.p);
    let tests = p.iter().flatten().filter(|p| !p.is_nan()).count();
    let chart = HeatMap {
        values: of(&|row| row.f1),
        columns: ("method".to_owned(), methods),
        rows: (format!("weights of {}", sweep.blades.join("/")), labels),
        scale: "F1 of mean axes (0 to 1)".to_owned(),
        p,
        limit: None,
    };
    let mark = match tests {
        0 => String::new(),
        tests => format!(
            " A star (*) marks where the F1 of cells differs from that of {reference} at the same weights: signed-rank test over prompts, p < 0.05 \
             after Holm's correction for {}.",
            several(tests, "test")
        ),
    };
    Figure::new("configuration-map", "F1 by weight vector and method", chart)
        .caption(format!(
            "F1 of the mean axes over the prompts of a weight vector. Rows: weights of {}.{mark}",
            listed(&sweep.blades)
        ))
        .alt("F1 of every method at every weight vector, as colours and numbers")
        .see("configurations")
}
