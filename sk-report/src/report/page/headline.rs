use super::verdict::p_value;
use super::{PageContext, counted, isolated, listed, score, several, with_tables};
use crate::chart::{Axis, Bars, Intervals, Style};
use crate::page::{Fact, Figure, Section};
use crate::report::tables::{FluencyRow, LeadRow};
use crate::stats::Interval;

/// The section with the main results: the axes of each method, and the lead of the reference.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let rows = &context.report.rows;
    let mut section = Section::new("headline", "Headline").facts(facts(context)).figure(achieved(context));
    let leads: Vec<&LeadRow> = rows.leads.iter().filter(|row| row.measure == "f1").collect();
    if !leads.is_empty() {
        section = section.figure(ahead(context, &leads));
    }
    match rows.fluency.len() {
        0 => section = section.missing("No fluency: the judgements hold no perplexity of the responses."),
        1 => {}
        _ => section = section.figure(perplexity(context, &rows.fluency)),
    }
    let section = with_tables(section, context, &["methods", "contrasts", "clustering", "fluency", "classifiers"]);
    if context.report.table("contrasts").is_none() {
        return section.missing("There is one method, and nothing to compare it with.");
    }
    section
}

fn facts(context: &PageContext<'_>) -> Vec<Fact> {
    let (rows, reference) = (&context.report.rows, &context.report.reference);
    let fact = |name: String, value: String, detail: String| Fact { name, value, detail: detail.replace('-', "−") };
    let mut facts = Vec::new();
    if let Some(own) = rows.methods.iter().find(|row| row.name == *reference) {
        facts.push(fact(format!("F1 of {reference}"), score(own.f1[0]), format!("of mean axes, n = {}", own.n)));
    }
    if let Some(lead) = rows.leads.first()
        && !lead.by_prompt.is_none()
    {
        let Interval { low, high } = lead.by_prompt;
        let value = format!("{:+.3}", lead.difference).replace('-', "−");
        facts.push(fact(format!("ΔF1, {reference} − {}", lead.other), value, format!("95% by prompt [{low:+.3}, {high:+.3}]")));
    }
    if let Some(own) = rows.shapes.iter().find(|row| row.method == *reference && !row.hypervolume.is_nan()) {
        let ahead = rows.shapes.iter().filter(|other| other.hypervolume > own.hypervolume).count();
        let ranked = rows.shapes.iter().filter(|row| !row.hypervolume.is_nan()).count();
        let detail = format!("above the origin; rank {} of {ranked}", ahead + 1);
        facts.push(fact("hypervolume".to_owned(), score(own.hypervolume), detail));
    }
    if let Some(pooled) = context.pooled(reference) {
        let Interval { low, high } = pooled.interval;
        let interval = (!low.is_nan()).then(|| format!("95% by prompt [{low:.2}, {high:.2}]"));
        let p = (!pooled.holm.is_nan()).then(|| format!("{}, Holm", p_value(pooled.holm)));
        let apart = pooled.is_on_different_prompts().then(|| "weight vectors on different prompts".to_owned());
        let detail = interval.into_iter().chain(p).chain(apart).collect::<Vec<_>>().join("; ");
        facts.push(fact("pooled steering ρ".to_owned(), format!("{:+.2}", pooled.found.rho).replace('-', "−"), detail));
    }
    facts
}

fn achieved(context: &PageContext<'_>) -> Figure {
    let rows = &context.report.rows.methods;
    let objectives = context.results.sweep.objectives.names();
    let empty = Bars::new(
        objectives.iter().copied(),
        Axis { range: Some([0.0, 1.0]), ..Axis::new("mean score over all cells (0 to 1)") },
    );
    let chart = context
        .methods()
        .filter_map(|name| rows.iter().find(|row| row.name == name))
        .fold(empty, |chart, row| chart.series(&row.name, context.style(&row.name, 0), &row.axes, &row.intervals));
    Figure::new("axes-by-method", "What each method achieves on each axis", chart)
        .caption(format!(
            "Mean of each axis over the cells that have it, with 95% bootstrap intervals, resampling whole prompts; cells judged: {}.",
            counted(rows.iter().map(|row| (&row.name, row.n)))
        ))
        .alt(format!("Bars of mean {} for every method", listed(&objectives)))
        .see("methods")
}

fn ahead(context: &PageContext<'_>, leads: &[&LeadRow]) -> Figure {
    let reference = &context.report.reference;
    let rows: Vec<String> = leads.iter().map(|row| format!("{} − {}", isolated(reference), isolated(&row.other))).collect();
    let estimates = |of: fn(&LeadRow) -> Interval| leads.iter().map(|row| (row.difference, of(row))).collect::<Vec<_>>();
    let chart = Intervals::new(&rows, Axis::new("ΔF1 (mean paired difference)"))
        .series("by prompt", Style::Tone(0), &estimates(|row| row.by_prompt))
        .series("by cell", Style::Tone(1), &estimates(|row| row.by_cell));
    let n: Vec<String> = rows
        .iter()
        .zip(leads)
        .map(|(row, lead)| {
            let [cells, prompts] = [lead.contrast.n(), lead.contrast.clusters().len()];
            format!("{row} {} of {}", several(cells, "cell"), several(prompts, "prompt"))
        })
        .collect();
    Figure::new("ahead", format!("How far {reference} is ahead in F1"), chart)
        .caption(format!(
            "Mean difference, right of 0 where the reference is ahead, with 95% percentile bootstrap intervals, resampling whole prompts or single cells; n = {}. Cells of one prompt are \
             not independent, so the intervals by prompt are the ones to believe.",
            n.join(", ")
        ))
        .alt(format!("Differences in F1 between {reference} and every other method, with intervals"))
        .see("clustering")
}

fn perplexity(context: &PageContext<'_>, fluency: &[FluencyRow]) -> Figure {
    let reference = &context.report.reference;
    let others: Vec<&FluencyRow> = fluency.iter().filter(|row| row.method != *reference).collect();
    let changes: Vec<_> = others.iter().map(|row| row.change.unwrap_or((f64::NAN, Interval::NONE))).collect();
    let change = Axis { percent: true, ..Axis::new(format!("change of perplexity against {reference}")) };
    let chart = Intervals::new(others.iter().map(|row| &row.method), change).series("by prompt", Style::Tone(0), &changes);
    Figure::new("fluency-change", format!("Perplexity against {reference}"), chart)
        .caption(format!(
            "Left of 0 is more fluent than {reference}. Under a language model that neither drafts nor steers; 95% intervals by prompt, n pairs = {}.",
            counted(others.iter().map(|row| (&row.method, row.pairs)))
        ))
        .see("fluency")
}
