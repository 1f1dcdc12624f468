use super::normalization::measures;
use super::{LEVEL, Table, TableContext};
use crate::report::Contrast;
use crate::stats::{ZeroRule, holm};
use crate::table::Kind;

/// The contrasts again, with prompts as the units: what changes when the cells of a prompt are not
/// taken for independent.
pub(super) fn table(context: &TableContext<'_>) -> Option<Table> {
    let columns = [
        ("contrast", Kind::Text),
        ("cells", Kind::Count),
        ("prompts", Kind::Count),
        ("Δ", Kind::Signed(4)),
        ("95%, cells", Kind::Interval(4)),
        ("95%, prompts", Kind::Interval(4)),
        ("95% BCa, prompts", Kind::Interval(4)),
        ("p, cells", Kind::PValue),
        ("p, prompts", Kind::PValue),
        ("p, prompts, Holm", Kind::PValue),
    ];
    let mut table = Table::new("clustering", "Contrasts by cell and by prompt", &columns);
    let against = context.baselines().into_iter().map(|other| {
        let contrast = Contrast::of(&context.reference.cells, &other.cells, super::exact_f1).snapped();
        (format!("f1: {} − {}", context.reference.name, other.name), contrast)
    });
    let normalization = context.raw.into_iter().flat_map(|raw| {
        measures(context, super::exact_f1).into_iter().map(|measure| {
            let contrast = Contrast::of(&context.reference.cells, &raw.cells, &measure.of).snapped();
            (format!("{}: {} − {}", measure.name, context.reference.name, raw.name), contrast)
        })
    });
    for family in [against.collect::<Vec<_>>(), normalization.collect()] {
        let tests: Vec<f64> = family.iter().map(|(_, contrast)| contrast.wilcoxon_by_prompt(ZeroRule::Wilcox).p).collect();
        for (((name, contrast), p), corrected) in family.iter().zip(&tests).zip(holm(&tests)) {
            let by_prompt = contrast.bootstrap_by_prompt(context.resampling);
            table.row(vec![
                name.as_str().into(),
                contrast.n().into(),
                contrast.clusters().len().into(),
                contrast.mean().into(),
                contrast.bootstrap(context.resampling).percentile(LEVEL).into(),
                by_prompt.percentile(LEVEL).into(),
                by_prompt.bca(LEVEL).into(),
                contrast.wilcoxon(ZeroRule::Wilcox).p.into(),
                (*p).into(),
                corrected.into(),
            ]);
        }
    }
    (!table.rows.is_empty()).then(|| {
        table
            .note("By prompt: whole prompts are resampled, and the signed-rank test is over the mean differences of prompts.")
            .note("F1 is 0 where an axis is, and differences equal on paper tie. Holm's correction within methods and within normalisation.")
    })
}
