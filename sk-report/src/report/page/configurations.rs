use super::columns::{numbers, texts};
use super::{PageContext, listed, with_tables};
use crate::chart::HeatMap;
use crate::page::{Figure, Section};
use crate::table::Table;

/// Rows of the table that are no weight vectors.
const SUMMARIES: [&str; 2] = ["mean", "range"];

/// F1 and axes at every weight vector.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let mut section = Section::new("configurations", "Per configuration");
    if let Some(table) = context.report.table("configurations") {
        section = section.figure(heat(context, table));
    }
    with_tables(section, context, &["configurations", "axes"])
}

fn heat(context: &PageContext<'_>, table: &Table) -> Figure {
    let labels = texts(table, &table.columns[0].heading);
    let methods: Vec<String> = table.columns[1..].iter().map(|column| column.heading.clone()).collect();
    let by_method: Vec<Vec<f64>> = methods.iter().map(|method| numbers(table, method)).collect();
    let places: Vec<usize> = (0..labels.len()).filter(|&row| !SUMMARIES.contains(&labels[row].as_str())).collect();
    let rows: Vec<String> = places.iter().map(|&row| labels[row].clone()).collect();
    let values: Vec<Vec<f64>> = places.iter().map(|&row| by_method.iter().map(|scores| scores[row]).collect()).collect();
    let chart = HeatMap::new(&methods, &rows, &values, "F1 of mean axes (0 to 1)");
    Figure::new("configuration-map", "F1 by weight vector and method", chart)
        .caption(format!(
            "F1 of the mean axes over the prompts of a weight vector. Rows: weights of {}.",
            listed(&context.results.sweep.blades)
        ))
        .alt("F1 of every method at every weight vector, as colours and numbers")
        .see("configurations")
}
