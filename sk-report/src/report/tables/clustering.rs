use super::normalization::measures;
use super::{LEVEL, Table, TableContext, few_prompts};
use crate::report::{Contrast, Method};
use crate::stats::{Interval, Wilcoxon, ZeroRule, holm};
use crate::table::Kind;

/// The contrast of the reference with another method, by cell and by prompt.
#[derive(Debug, Clone)]
pub(in crate::report) struct LeadRow {
    pub(in crate::report) measure: String,
    pub(in crate::report) other: String,
    /// Whether the other is a separate method, not the reference without normalisation.
    pub(in crate::report) is_rival: bool,
    /// Reference minus other.
    pub(in crate::report) contrast: Contrast,
    pub(in crate::report) difference: f64,
    pub(in crate::report) by_cell: Interval,
    pub(in crate::report) by_prompt: Interval,
    bca: Interval,
    /// The p-value by prompt, corrected within its family.
    pub(in crate::report) holm: f64,
    /// The least value of `holm` for so many prompts and tests; NaN if there was no test.
    pub(in crate::report) least: f64,
}

/// Returns the least p-value of the signed-rank test: that of so many differences of one sign.
fn least_p(prompts: usize) -> f64 {
    Wilcoxon::of(&(1..=prompts).map(|rank| rank as f64).collect::<Vec<_>>(), ZeroRule::Wilcox).p
}

/// Compares F1 with every other method, and all measures with the reference without normalisation.
pub(super) fn rows(context: &TableContext<'_>) -> Vec<LeadRow> {
    let against = context.rivals().map(|other| ("f1".to_owned(), other, context.exact(other)));
    let normalization = context.raw.into_iter().flat_map(|raw| {
        measures(context, 0.0).into_iter().map(move |measure| {
            let contrast = Contrast::of(&context.reference.cells, &raw.cells, &measure.of).snapped();
            (measure.name, raw, contrast)
        })
    });
    let mut rows = Vec::new();
    for (is_rival, family) in [(true, against.collect::<Vec<_>>()), (false, normalization.collect())] {
        let tests: Vec<f64> = family.iter().map(|(_, _, contrast)| contrast.wilcoxon_by_prompt(ZeroRule::Wilcox).p).collect();
        let least = |((_, _, contrast), p): (&(String, &Method, Contrast), &f64)| match p.is_nan() {
            true => f64::NAN,
            false => least_p(contrast.clusters().len()),
        };
        let least: Vec<f64> = family.iter().zip(&tests).map(least).collect();
        for (((measure, other, contrast), holm), least) in family.into_iter().zip(holm(&tests)).zip(holm(&least)) {
            let by_prompt = contrast.bootstrap_by_prompt(context.resampling);
            rows.push(LeadRow {
                measure,
                other: other.name.clone(),
                is_rival,
                difference: contrast.mean(),
                by_cell: contrast.bootstrap(context.resampling).percentile(LEVEL),
                by_prompt: by_prompt.percentile(LEVEL),
                bca: by_prompt.bca(LEVEL),
                contrast,
                holm,
                least,
            });
        }
    }
    rows
}

/// The table of contrasts with prompts as the units, since the cells of a prompt are not
/// independent.
pub(super) fn table(context: &TableContext<'_>, rows: &[LeadRow]) -> Option<Table> {
    let reference = &context.reference.name;
    Table::of("clustering", "Contrasts by cell and by prompt", rows)
        .column("contrast", Kind::Text, |row| format!("{}: {reference} − {}", row.measure, row.other))
        .column("cells", Kind::Count, |row| row.contrast.n())
        .column("prompts", Kind::Count, |row| row.contrast.clusters().len())
        .column("Δ", Kind::Signed(4), |row| row.difference)
        .column("95%, cells", Kind::Interval(4), |row| row.by_cell)
        .column("95%, prompts", Kind::Interval(4), |row| row.by_prompt)
        .column("95% BCa, prompts", Kind::Interval(4), |row| row.bca)
        .column("p, cells", Kind::PValue, |row| row.contrast.wilcoxon(ZeroRule::Wilcox).p)
        .column("p, prompts", Kind::PValue, |row| row.contrast.wilcoxon_by_prompt(ZeroRule::Wilcox).p)
        .column("p, prompts, Holm", Kind::PValue, |row| row.holm)
        .build()
        .note("By prompt: whole prompts are resampled, and the signed-rank test is over the mean differences of prompts.")
        .note("F1 is 0 where an axis is, and differences equal on paper tie. Holm's correction within methods and within normalisation.")
        .notes(few_prompts(rows.iter().map(|row| row.contrast.clusters().len())))
        .non_empty()
}
