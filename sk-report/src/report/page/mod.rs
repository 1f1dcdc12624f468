//! A report as a page: findings in words, charts, and all tables.

mod ablations;
mod choice;
mod configurations;
mod definitions;
mod examples;
mod frontier;
mod headline;
mod mechanism;
mod reproduction;
mod steering;
mod throughput;
mod verdict;

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::tables::SteeringRow;
use super::{Cell, Method, RawResults, Report, ReportError, WeightVector};
use crate::chart::Style;
use crate::page::{Page, Section};

/// The inputs of the sections.
struct PageContext<'a> {
    report: &'a Report,
    results: &'a RawResults,
    reference: &'a Method,
}

impl<'a> PageContext<'a> {
    /// Returns the method names, the reference first and the others by descending F1.
    fn methods(&self) -> impl Iterator<Item = &'a str> {
        let reference = self.reference.name.as_str();
        let others = self.results.sweep.methods.iter().map(|method| method.name.as_str()).filter(move |name| *name != reference);
        std::iter::once(reference).chain(others)
    }

    /// Returns the style of a method, the same on the whole page; the reference has the first hue.
    /// A name that is no method gets the grey tone `place`.
    fn style(&self, name: &str, place: usize) -> Style {
        self.methods().position(|method| method == name).map_or(Style::Tone(place), Style::Hue)
    }

    /// Formats a weight vector in words, as `weights: helpful 0.5, calm 0.5`.
    fn weights(&self, point: &WeightVector) -> String {
        let label = self.results.sweep.label(point);
        let parts = self.results.sweep.blades.iter().zip(label.split('/')).filter(|(_, weight)| *weight != "0");
        let parts: Vec<String> = parts.map(|(blade, weight)| format!("{blade} {weight}")).collect();
        format!("weights: {}", if parts.is_empty() { "none".to_owned() } else { parts.join(", ") })
    }

    /// Returns how the axes of a method, pooled, follow the weights; `None` if they are constant.
    fn pooled(&self, name: &str) -> Option<&'a SteeringRow> {
        let rows = &self.report.rows.steering;
        rows.iter().find(|row| row.method == name && row.axis.is_none() && row.is_as_labelled())
    }
}

/// Adds those of the named tables that the report has.
fn with_tables(section: Section, context: &PageContext<'_>, ids: &[&str]) -> Section {
    let tables = ids.iter().filter_map(|id| context.report.table(id));
    tables.fold(section, |section, table| section.table(table.clone()))
}

impl Report {
    /// Renders the report as a page: findings in words, its tables, charts of the same rows, and
    /// responses if `results` have their text. Sections without content are left out, and the page
    /// lists them with the reason.
    ///
    /// # Errors
    /// If the reference is not among the methods of `results`.
    pub fn page(&self, title: &str, results: &RawResults) -> Result<Page, ReportError> {
        let reference = results.sweep.method(&self.reference)?;
        let context = PageContext { report: self, results, reference };
        let builders = [
            headline::section,
            frontier::section,
            configurations::section,
            ablations::section,
            mechanism::section,
            steering::section,
            choice::section,
            throughput::section,
            examples::section,
            reproduction::section,
        ];
        let (mut sections, mut left_out) = (Vec::new(), Vec::new());
        for section in builders.map(|section| section(&context)) {
            match section.lacks() {
                Some(reasons) => left_out.push(format!("{} ({})", section.title(), clauses(&reasons))),
                None => sections.push(section),
            }
        }
        sections.push(definitions::section(&context, &left_out));
        let colophon = format!(
            "Made by swiss-knife report {}: {} resamples per interval, seed {}. The same input gives the same bytes. Charts: plotly.js, MIT \
             licence; nothing on this page is loaded from anywhere.",
            env!("CARGO_PKG_VERSION"),
            thousands(self.resamples),
            self.seed,
        );
        Ok(Page { title: title.to_owned(), verdict: verdict::sentences(&context), lead: lead(&context), sections, colophon })
    }
}

/// Joins sentences into one, as clauses.
fn clauses(sentences: &[&str]) -> String {
    let clause = |sentence: &&str| {
        let mut letters = sentence.trim_end_matches('.').chars();
        letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
    };
    sentences.iter().map(clause).collect::<Vec<_>>().join("; ")
}

fn lead(context: &PageContext<'_>) -> String {
    let sweep = &context.results.sweep;
    let (judged, others): (Vec<&Cell>, Vec<&Cell>) =
        sweep.methods.iter().flat_map(|method| &method.cells).partition(|cell| cell.is_judged());
    let points: BTreeSet<usize> = judged.iter().map(|cell| cell.configuration).collect();
    let prompts: BTreeSet<u32> = judged.iter().map(|cell| cell.prompt).collect();
    let others = match others.len() {
        0 => String::new(),
        others => format!(", and {} without a score", thousands(others)),
    };
    let names: Vec<_> = sweep.methods.iter().map(|method| isolated(&method.name)).collect();
    let reference = match names.len() {
        1 => String::new(),
        _ => format!(" The others are compared with {}.", isolated(&context.report.reference)),
    };
    format!(
        "{} judged response{}{others}: {} ({}) at {} on {}.{reference} Scores are in [0, 1], and more is better on every axis.",
        thousands(judged.len()),
        if judged.len() == 1 { "" } else { "s" },
        several(names.len(), "method"),
        names.join(", "),
        several(points.len(), "weight vector"),
        several(prompts.len(), "prompt"),
    )
}

/// Returns a name for a sentence, between isolates (UAX #9) unless it is ASCII: a name that is
/// written from right to left does not turn the numbers after it.
fn isolated(name: &str) -> Cow<'_, str> {
    if name.is_ascii() { name.into() } else { format!("\u{2068}{name}\u{2069}").into() }
}

/// Joins names as `a, b and c`.
fn listed<S: AsRef<str>>(names: &[S]) -> String {
    match names.iter().map(AsRef::as_ref).collect::<Vec<_>>().split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// Formats a score, as a dash if there is none.
fn score(value: f64) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.3}") }
}

/// Formats a count with its noun: `1 prompt`, `2 prompts`.
fn several(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Joins names and their counts as `a 3, b 4`.
fn counted<S: AsRef<str>>(counts: impl Iterator<Item = (S, usize)>) -> String {
    counts.map(|(name, count)| format!("{} {count}", isolated(name.as_ref()))).collect::<Vec<_>>().join(", ")
}

/// Formats a count with thin spaces between groups of three digits.
fn thousands(count: usize) -> String {
    let digits = count.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join("\u{202f}")
}

#[cfg(test)]
mod tests {
    use super::{clauses, thousands};

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
    }

    #[test]
    fn sentences_become_clauses() {
        assert_eq!(clauses(&["No times: there are none.", "Öl fehlt."]), "no times: there are none; öl fehlt");
    }
}
