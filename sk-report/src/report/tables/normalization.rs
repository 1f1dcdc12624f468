use std::collections::HashSet;

use super::{At, Context, LEVEL, Ledger, Table, note_contrast, published_f1};
use crate::report::{AXES, Cell};
use crate::stats::{ZeroRule, holm, mean};
use crate::table::Kind;

/// What is compared: a name and how a cell is measured by it.
pub(super) type Measure = (&'static str, fn(&Cell) -> Option<f64>);

/// The name of F1 among [`MEASURES`].
pub(super) const F1: &str = "f1";

/// F1 and its axes.
pub(super) const MEASURES: [Measure; 4] = [
    (F1, published_f1),
    (AXES[0], |cell| cell.rubrics.quality()),
    (AXES[2], |cell| cell.rubrics.honesty()),
    (AXES[1], |cell| cell.rubrics.safety()),
];

/// The scheme with and without normalisation, on the prompts that both answered.
pub(super) fn table(context: &Context<'_>, ledger: &mut Ledger) -> Option<Table> {
    let raw = context.raw?;
    let columns = [
        ("", Kind::Text),
        ("pairs", Kind::Count),
        ("with", Kind::Number(3)),
        ("without", Kind::Number(3)),
        ("Δ", Kind::Signed(3)),
        ("95% percentile", Kind::Interval(3)),
        ("95% BCa", Kind::Interval(3)),
        ("95%, prompts", Kind::Interval(3)),
        ("p", Kind::PValue),
        ("p, Holm", Kind::PValue),
    ];
    let mut table = Table::new("normalization", format!("{} with normalisation and without", context.reference.name), &columns);
    let (with, without) = (&context.reference.cells, &raw.cells);
    let measures = MEASURES.map(|(name, measure)| (name, if name == F1 { context.f1() } else { measure }));
    let contrasts = measures.map(|(_, measure)| context.pair(with, without, measure));
    let tests: Vec<f64> = contrasts.iter().map(|contrast| contrast.wilcoxon(ZeroRule::Wilcox).p).collect();
    let family = holm(&tests);
    for (i, ((name, measure), contrast)) in measures.into_iter().zip(&contrasts).enumerate() {
        let at = At { source: "tab:cbn", subject: name, part: "", reading: "" };
        let bootstrap = contrast.bootstrap(context.resampling);
        let interval = note_contrast(ledger, &at, &bootstrap, context.resampling, 1.0);
        let (on, off) = (mean_of_paired(with, without, measure), mean_of_paired(without, with, measure));
        [("with", on), ("without", off), ("p", tests[i])]
            .into_iter()
            .for_each(|(quantity, value)| ledger.note(&at, quantity, value));
        table.row(vec![
            name.into(),
            contrast.n().into(),
            on.into(),
            off.into(),
            contrast.mean().into(),
            interval.into(),
            bootstrap.bca(LEVEL).into(),
            contrast.bootstrap_by_prompt(context.resampling).percentile(LEVEL).into(),
            tests[i].into(),
            family[i].into(),
        ]);
    }
    let table = table.note(format!(
        "f1 is the mean over cells of the cell's F1, {}. Means are over the cells of pairs. Pairs, tests and intervals as in the contrasts above; by \
         prompt, whole prompts are resampled.",
        context.floor()
    ));
    Some(if context.of_the_paper {
        table.note(
            "The paper's arm without normalisation also dropped two other standardisations and was post-processed differently.",
        )
    } else {
        table
    })
}

/// The mean over those cells that have a partner, both measured.
fn mean_of_paired(cells: &[Cell], partners: &[Cell], measure: fn(&Cell) -> Option<f64>) -> f64 {
    let key = |cell: &Cell| (cell.configuration, cell.prompt);
    let measured: HashSet<_> = partners.iter().filter(|cell| measure(cell).is_some()).map(key).collect();
    mean(&cells.iter().filter(|cell| measured.contains(&key(cell))).filter_map(measure).collect::<Vec<_>>())
}
