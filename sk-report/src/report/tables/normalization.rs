use super::contrasts::null;
use super::{At, LEVEL, Ledger, Measure, Table, TableContext, few_prompts, note_contrast};
use crate::report::contrast::pairs;
use crate::report::{Cell, Contrast};
use crate::stats::{Interval, Wilcoxon, ZeroRule, holm, mean};
use crate::table::Kind;

/// Returns the measures: F1, then the objectives. Objectives with a blade come in the order of the
/// weights.
pub(super) fn measures(context: &TableContext<'_>, floor: f64) -> Vec<Measure> {
    let sweep = context.sweep;
    let mut places: Vec<usize> = (0..sweep.objectives.objectives.len()).collect();
    let blade = |place: usize| sweep.steered().iter().find(|(own, _)| *own == place).map_or(usize::MAX, |&(_, blade)| blade);
    places.sort_by_key(|&place| blade(place));
    let objectives = places.into_iter().map(|place| Measure::objective(&sweep.objectives, place));
    std::iter::once(Measure::new("f1", move |cell| cell.f1(floor))).chain(objectives).collect()
}

/// The scheme with and without normalisation, compared by one measure.
#[derive(Debug, Clone)]
pub(in crate::report) struct NormalizationRow {
    pub(in crate::report) measure: String,
    pub(in crate::report) contrast: Contrast,
    with: f64,
    without: f64,
    pub(in crate::report) difference: f64,
    /// The percentile and the BCa interval by cell.
    pub(in crate::report) percentile: Interval,
    pub(in crate::report) bca: Interval,
    pub(in crate::report) by_prompt: Interval,
    test: Wilcoxon,
    holm: f64,
}

/// Computes one row per measure, on the prompts that both arms answered; none if the arm without
/// normalisation was not run.
pub(super) fn rows(context: &TableContext<'_>, ledger: &mut Ledger) -> Vec<NormalizationRow> {
    let Some(raw) = context.raw else { return Vec::new() };
    let (with, without) = (&context.reference.cells, &raw.cells);
    let measures = measures(context, context.floor());
    let contrasts: Vec<_> = measures.iter().map(|measure| context.pair(with, without, &measure.of)).collect();
    let tests: Vec<Wilcoxon> = contrasts.iter().map(|contrast| contrast.wilcoxon(ZeroRule::Wilcox)).collect();
    let corrected = holm(&tests.iter().map(|test| test.p).collect::<Vec<_>>());
    let mut rows = Vec::new();
    for (((Measure { name, of }, contrast), test), holm) in measures.into_iter().zip(contrasts).zip(tests).zip(corrected) {
        let at = At { source: "tab:cbn", subject: &name, part: "", reading: "" };
        let bootstrap = contrast.bootstrap(context.resampling);
        let percentile = note_contrast(ledger, &at, &bootstrap, context.resampling, 1.0);
        let (on, off) = (mean_of_paired(with, without, &of), mean_of_paired(without, with, &of));
        ledger.note(&at, "with", on);
        ledger.note(&at, "without", off);
        ledger.note(&at, "p", test.p);
        rows.push(NormalizationRow {
            measure: name,
            with: on,
            without: off,
            difference: contrast.mean(),
            percentile,
            bca: bootstrap.bca(LEVEL),
            by_prompt: contrast.bootstrap_by_prompt(context.resampling).percentile(LEVEL),
            contrast,
            test,
            holm,
        });
    }
    rows
}

/// The table that compares the scheme with and without normalisation, on the prompts that both
/// answered.
pub(super) fn table(context: &TableContext<'_>, rows: &[NormalizationRow]) -> Option<Table> {
    let table = Table::of("normalization", format!("{} with normalisation and without", context.reference.name), rows)
        .column("measure", Kind::Text, |row| row.measure.as_str())
        .column("pairs", Kind::Count, |row| row.contrast.n())
        .column("with", Kind::Number(3), |row| row.with)
        .column("without", Kind::Number(3), |row| row.without)
        .column("Δ", Kind::Signed(3), |row| row.difference)
        .column("95% percentile", Kind::Interval(3), |row| row.percentile)
        .column("95% BCa", Kind::Interval(3), |row| row.bca)
        .column("95%, prompts", Kind::Interval(3), |row| row.by_prompt)
        .column("p", Kind::PValue, |row| row.test.p)
        .column("p, Holm", Kind::PValue, |row| row.holm)
        .build();
    let tests: Vec<Wilcoxon> = rows.iter().map(|row| row.test).collect();
    let table = table
        .note(format!(
            "f1 is the mean over cells of the cell's F1, {}. Means are over the cells of pairs. Pairs and intervals as in the contrasts above; by \
             prompt, whole prompts are resampled.",
            context.treatment()
        ))
        .note(format!("p: Wilcoxon signed-rank, two-sided, zeros dropped, {}.", null(&tests)));
    let paper =
        "The paper's arm without normalisation also dropped two other standardisations and was post-processed differently.";
    let table = if context.of_the_paper { table.note(paper) } else { table };
    table.notes(few_prompts(rows.iter().map(|row| row.contrast.clusters().len()))).non_empty()
}

/// Returns the mean over the cells whose partner has the measure too.
fn mean_of_paired(cells: &[Cell], partners: &[Cell], measure: impl Fn(&Cell) -> Option<f64>) -> f64 {
    mean(&pairs(cells, partners, measure).map(|(_, own, _)| own).collect::<Vec<_>>())
}
