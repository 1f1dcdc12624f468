use super::columns::{distinct, intervals, numbers, rows_of, texts};
use super::{PageContext, listed, with_tables};
use crate::chart::{Axis, Bars, Estimate, Intervals};
use crate::page::{Fact, Figure, Section};
use crate::stats::F1;
use crate::table::Table;

/// What each method achieves, and how far the reference is ahead.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let mut section = Section::new("headline", "Headline").facts(facts(context));
    if let Some(methods) = context.report.table("methods") {
        section = section.figure(achieved(context, methods));
    }
    if let Some(clustering) = context.report.table("clustering") {
        section = section.figure(ahead(context, clustering));
    }
    match context.report.table("fluency") {
        Some(fluency) if fluency.rows.len() > 1 => section = section.figure(perplexity(context, fluency)),
        Some(_) => {}
        None => section = section.missing("No fluency: the judgements hold no perplexity of the responses."),
    }
    let section = with_tables(section, context, &["methods", "contrasts", "clustering", "fluency", "classifiers"]);
    if context.report.table("contrasts").is_none() {
        return section.missing("There is one method, and nothing to compare it with.");
    }
    section
}

fn facts(context: &PageContext<'_>) -> Vec<Fact> {
    let fact = |name: String, value: String, detail: String| Fact { name, value, detail };
    let reference = &context.report.reference;
    let mut facts = Vec::new();
    if let Some(methods) = context.report.table("methods") {
        let own = rows_of(methods, "method", reference);
        let heading = format!("F1 {}", F1::OfMeanAxes.name());
        let of = |heading: &str| numbers(&own, heading).first().copied().unwrap_or(f64::NAN);
        let f1 = of(&heading);
        let f1 = if f1.is_nan() { "–".to_owned() } else { format!("{f1:.3}") };
        facts.push(fact(format!("F1 of {reference}"), f1, format!("of mean axes, n = {}", of("n"))));
    }
    if let Some(table) = context.report.table("clustering")
        && let (Some(name), Some(delta), Some([low, high])) =
            (texts(table, "contrast").into_iter().next(), numbers(table, "Δ").first(), intervals(table, "95%, prompts").first())
        && !low.is_nan()
    {
        let name = name.trim_start_matches("f1: ").to_owned();
        facts.push(fact(format!("ΔF1, {name}"), format!("{delta:+.3}"), format!("95% by prompt [{low:+.3}, {high:+.3}]")));
    }
    if let Some(table) = context.report.table("geometry") {
        let own = rows_of(table, "method", reference);
        let volume = numbers(&own, "hypervolume").first().copied().unwrap_or(f64::NAN);
        let shown = if volume.is_nan() { "–".to_owned() } else { format!("{volume:.3}") };
        let ahead = numbers(table, "hypervolume").iter().filter(|other| **other > volume).count();
        let methods = table.rows.len();
        facts.push(fact(
            "hypervolume".to_owned(),
            shown,
            if volume.is_nan() { "no frontier".to_owned() } else { format!("above the origin; rank {} of {methods}", ahead + 1) },
        ));
    }
    if let Some(table) = context.report.table("steering") {
        let own = rows_of(&rows_of(&rows_of(table, "method", reference), "axis", "pooled"), "weights", "as labelled");
        if let (Some(rho), Some(p)) = (numbers(&own, "r_s").first(), numbers(&own, "p, by permutation").first()) {
            let p = if *p < 0.001 { "< 0.001".to_owned() } else { format!("= {p:.3}") };
            facts.push(fact("pooled steering r_s".to_owned(), format!("{rho:+.2}"), format!("permutation p {p}")));
        }
    }
    facts.iter_mut().for_each(|fact| fact.value = fact.value.replace('-', "−"));
    facts.iter_mut().for_each(|fact| fact.detail = fact.detail.replace('-', "−"));
    facts
}

fn achieved(context: &PageContext<'_>, methods: &Table) -> Figure {
    let names = texts(methods, "method");
    let objectives = context.results.sweep.objectives.names();
    let empty = Bars::new(&names, Axis::new("mean score over all cells (0 to 1)").range([0.0, 1.0]));
    let chart = objectives.iter().fold(empty, |chart, objective| chart.series(objective, &numbers(methods, objective)));
    let n: Vec<String> = names.iter().zip(numbers(methods, "n")).map(|(name, n)| format!("{name} {n}")).collect();
    Figure::new("axes-by-method", "What each method achieves on each axis", chart)
        .caption(format!("Mean of each axis over the cells that have it; cells judged: {}.", n.join(", ")))
        .alt(format!("Bars of mean {} for every method", listed(&objectives)))
        .see("methods")
}

fn ahead(context: &PageContext<'_>, clustering: &Table) -> Figure {
    let reference = &context.report.reference;
    let ours: Vec<String> = distinct(clustering, "contrast").into_iter().filter(|name| name.starts_with("f1: ")).collect();
    let table = Table {
        rows: clustering.rows.iter().filter(|row| ours.iter().any(|name| row[0] == name.as_str().into())).cloned().collect(),
        ..clustering.clone()
    };
    let rows: Vec<String> = ours.iter().map(|name| name.trim_start_matches("f1: ").to_owned()).collect();
    let estimates = |heading: &str| -> Vec<Estimate> {
        let pairs = numbers(&table, "Δ").into_iter().zip(intervals(&table, heading));
        pairs.map(|(value, interval)| Estimate { value, interval }).collect()
    };
    let chart = Intervals::new(&rows, Axis::new("ΔF1 (mean paired difference)"))
        .series("by prompt", &estimates("95%, prompts"))
        .series("by cell", &estimates("95%, cells"));
    let counts = texts(&table, "cells").into_iter().zip(texts(&table, "prompts"));
    let n: Vec<String> =
        rows.iter().zip(counts).map(|(row, (cells, prompts))| format!("{row} {cells} cells of {prompts} prompts")).collect();
    Figure::new("ahead", format!("How far {reference} is ahead in F1"), chart)
        .caption(format!(
            "Mean difference, right of 0 where the reference is ahead, with 95% percentile bootstrap intervals, resampling whole prompts or single cells; n = {}. Cells of one prompt are \
             not independent, so the intervals by prompt are the ones to believe.",
            n.join(", ")
        ))
        .alt(format!("Differences in F1 between {reference} and every other method, with intervals"))
        .see("clustering")
}

fn perplexity(context: &PageContext<'_>, fluency: &Table) -> Figure {
    let reference = &context.report.reference;
    let others = Table {
        rows: fluency.rows.iter().filter(|row| row[0] != reference.as_str().into()).cloned().collect(),
        ..fluency.clone()
    };
    let ends = numbers(&others, "low").into_iter().zip(numbers(&others, "high"));
    let estimates: Vec<Estimate> = numbers(&others, "change")
        .into_iter()
        .zip(ends)
        .map(|(value, (low, high))| Estimate { value, interval: [low, high] })
        .collect();
    let names = texts(&others, "method");
    let chart = Intervals::new(&names, Axis::new(format!("change of perplexity against {reference}")).percent())
        .series("by prompt", &estimates);
    let n: Vec<String> = names.iter().zip(texts(&others, "pairs")).map(|(name, pairs)| format!("{name} {pairs}")).collect();
    Figure::new("fluency-change", format!("Perplexity against {reference}"), chart)
        .caption(format!(
            "Left of 0 is more fluent than {reference}. Under a language model that neither drafts nor steers; 95% intervals by prompt, n pairs = {}.",
            n.join(", ")
        ))
        .see("fluency")
}
