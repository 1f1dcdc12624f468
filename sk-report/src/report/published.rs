use super::grouped;
use crate::table::{Kind, Table};

/// The paper's printed numbers: source, subject, part, quantity, number as printed.
const PUBLISHED: &str = include_str!("published.csv");

/// The tolerance when comparing with printed digits, for values that another order of summation
/// would round to them.
const ROUNDING: f64 = 1e-9;

/// The recomputed numbers, collected while tables are computed, for comparison with the published
/// ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ledger {
    entries: Vec<Entry>,
}

/// A recomputed number.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// The table or section, by its label in the paper's source.
    source: &'static str,
    /// The subject: a method, an axis or a contrast.
    subject: String,
    /// The part of the subject: a weight vector, an axis or a blade; often empty.
    part: String,
    quantity: String,
    /// The convention of the recomputation if that of the paper is ambiguous; otherwise empty.
    reading: &'static str,
    value: f64,
    /// The most that resampling changes it.
    noise: f64,
}

/// A published number and the recomputed one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Comparison {
    entry: Entry,
    /// The number as printed.
    published: &'static str,
    /// The outcome of the comparison.
    pub(super) verdict: Verdict,
}

/// The outcome of comparing a recomputed number with the printed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It rounds to the printed digits.
    Same,
    /// It is the end of a confidence interval, and the deviation is within resampling noise.
    WithinResampling,
    /// It differs.
    Differs,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::WithinResampling => "same within resampling",
            Self::Differs => "differs",
        }
    }
}

/// The source, subject, part and reading of a number.
pub(super) struct At<'a> {
    pub(super) source: &'static str,
    pub(super) subject: &'a str,
    pub(super) part: &'a str,
    pub(super) reading: &'static str,
}

impl Ledger {
    /// Records a number.
    pub(super) fn note(&mut self, at: &At<'_>, quantity: &str, value: f64) {
        self.note_noisy(at, quantity, value, 0.0);
    }

    /// Records a number whose resampling noise is at most `noise`.
    pub(super) fn note_noisy(&mut self, at: &At<'_>, quantity: &str, value: f64, noise: f64) {
        let (subject, part) = (at.subject.to_owned(), at.part.to_owned());
        let quantity = quantity.to_owned();
        self.entries.push(Entry { source: at.source, subject, part, quantity, reading: at.reading, value, noise });
    }

    /// Returns every recorded number that the paper prints, in the paper's order.
    pub(super) fn comparisons(&self) -> Vec<Comparison> {
        let fields = |line: &'static str| <[&str; 5]>::try_from(line.split(',').collect::<Vec<_>>()).ok();
        let mut comparisons = Vec::new();
        for [source, subject, part, quantity, printed] in PUBLISHED.lines().skip(1).filter_map(fields) {
            let here = |entry: &&Entry| {
                (entry.source, &*entry.subject, &*entry.part, &*entry.quantity) == (source, subject, part, quantity)
            };
            comparisons.extend(self.entries.iter().filter(here).map(|entry| Comparison {
                entry: entry.clone(),
                published: printed,
                verdict: verdict(printed, entry.value, entry.noise),
            }));
        }
        comparisons
    }
}

/// Returns the comparison as tables: counts, differences, and all numbers.
pub(super) fn tables(comparisons: &[Comparison]) -> Vec<Table> {
    if comparisons.is_empty() {
        return Vec::new();
    }
    let all: Vec<&Comparison> = comparisons.iter().collect();
    let differing: Vec<&Comparison> = comparisons.iter().filter(|c| c.verdict == Verdict::Differs).collect();
    vec![
        summary(comparisons),
        list("differences", "Published figures that do not follow from the raw cells, as read", &differing),
        Table { appendix: true, ..list("comparison", "Every published figure beside the recomputed one", &all) },
    ]
}

fn summary(comparisons: &[Comparison]) -> Table {
    let count = |group: &[Verdict], verdict| group.iter().filter(|own| **own == verdict).count();
    let groups = grouped(
        comparisons
            .iter()
            .map(|Comparison { entry, verdict, .. }| ((entry.source, entry.quantity.as_str(), entry.reading), *verdict)),
    );
    Table::of("reproduction", "Published figures against the raw cells", &groups)
        .column("where", Kind::Text, |((source, _, _), _)| *source)
        .column("figure", Kind::Text, |((_, quantity, _), _)| *quantity)
        .column("read as", Kind::Text, |((_, _, reading), _)| *reading)
        .column("figures", Kind::Count, |(_, group)| group.len())
        .column("same", Kind::Count, |(_, group)| count(group, Verdict::Same))
        .column("within resampling", Kind::Count, |(_, group)| count(group, Verdict::WithinResampling))
        .column("differ", Kind::Count, |(_, group)| count(group, Verdict::Differs))
        .build()
        .note("\"read as\" names the convention where the paper's words and its figures part; both readings are listed.")
}

fn list(id: &str, title: &str, comparisons: &[&Comparison]) -> Table {
    Table::of(id, title, comparisons)
        .column("where", Kind::Text, |c| c.entry.source)
        .column("subject", Kind::Text, |c| c.entry.subject.as_str())
        .column("part", Kind::Text, |c| c.entry.part.as_str())
        .column("figure", Kind::Text, |c| c.entry.quantity.as_str())
        .column("read as", Kind::Text, |c| c.entry.reading)
        .column("published", Kind::Text, |c| c.published)
        .column("recomputed", Kind::Text, |c| alike(c.published, c.entry.value))
        .column("verdict", Kind::Text, |c| c.verdict.name())
        .build()
}

/// Formats `value` with one digit more than `printed`.
fn alike(printed: &str, value: f64) -> String {
    let decimals = |mantissa: &str| mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len()) + 1;
    match printed.split_once('e') {
        Some((mantissa, _)) => format!("{value:.*e}", decimals(mantissa)),
        None if printed.contains('.') => format!("{value:.*}", decimals(printed)),
        None if value.fract() == 0.0 => format!("{value}"),
        None => format!("{value:.1}"),
    }
}

fn verdict(printed: &str, value: f64, noise: f64) -> Verdict {
    let Ok(figure) = printed.parse::<f64>() else { return Verdict::Differs };
    let (mantissa, exponent) = printed.split_once('e').unwrap_or((printed, "0"));
    let decimals = mantissa.split_once('.').map_or(0, |(_, decimals)| decimals.len()) as i32;
    let unit = 10_f64.powi(exponent.parse::<i32>().unwrap_or_default() - decimals);
    let off = (value - figure).abs();
    let half = unit * (0.5 + ROUNDING);
    if off <= half {
        Verdict::Same
    } else if off <= half + noise {
        Verdict::WithinResampling
    } else {
        Verdict::Differs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_digits_decide() {
        assert_eq!(verdict("0.797", 0.7974, 0.0), Verdict::Same);
        assert_eq!(verdict("0.797", 0.7976, 0.0), Verdict::Differs);
        assert_eq!(verdict("0.797", 0.7976, 0.001), Verdict::WithinResampling);
        assert_eq!(verdict("2.46e-15", 2.464e-15, 0.0), Verdict::Same);
        assert_eq!(verdict("2.46e-15", 2.51e-15, 0.0), Verdict::Differs);
        assert_eq!(verdict("524", 524.35, 0.0), Verdict::Same);
        assert_eq!(verdict("4", f64::NAN, 0.0), Verdict::Differs);
        assert_eq!(
            (alike("0.797", 0.79712), alike("6e-35", 6.114e-35), alike("4", 4.0)),
            ("0.7971".into(), "6.1e-35".into(), "4".into())
        );
    }

    #[test]
    fn the_published_figures_are_numbers_and_named_once() {
        let mut keys: Vec<&str> = Vec::new();
        for line in PUBLISHED.lines().skip(1) {
            let (key, printed) = line.rsplit_once(',').unwrap();
            assert_eq!(key.split(',').count(), 4, "{line}");
            assert!(printed.parse::<f64>().is_ok() && !keys.contains(&key), "{line}");
            keys.push(key);
        }
        assert!(keys.len() > 500);
    }
}
