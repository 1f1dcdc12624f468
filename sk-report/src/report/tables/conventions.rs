use super::{Table, TableContext};
use crate::report::{Contrast, Method};
use crate::stats::ZeroRule;
use crate::table::Kind;

/// The table of how conventions change a contrast: the floor under the axes, and the treatment of
/// ties.
pub(super) fn table(context: &TableContext<'_>) -> Option<Table> {
    struct Contrasts {
        method: String,
        floored: Contrast,
        exact: Contrast,
    }
    let contrasts =
        |other: &Method| Contrasts { method: other.name.clone(), floored: context.floored(other), exact: context.exact(other) };
    let rows: Vec<Contrasts> = context.others().into_iter().map(contrasts).collect();
    let title = format!("Wins of {} and p-values under each convention", context.reference.name);
    Table::of("conventions", title, &rows)
        .column("method", Kind::Text, |row| row.method.as_str())
        .column("wins %, floor 1e-6", Kind::Percent, |row| row.floored.win_rate().of_all())
        .column("wins %, no floor", Kind::Percent, |row| row.exact.win_rate().of_all())
        .column("ties half %", Kind::Percent, |row| row.exact.win_rate().halving_ties())
        .column("of decided %", Kind::Percent, |row| row.exact.win_rate().of_decided())
        .column("p, floor 1e-6", Kind::PValue, |row| row.floored.wilcoxon(ZeroRule::Wilcox).p)
        .column("p, wilcox", Kind::PValue, |row| row.exact.wilcoxon(ZeroRule::Wilcox).p)
        .column("p, pratt", Kind::PValue, |row| row.exact.wilcoxon(ZeroRule::Pratt).p)
        .column("p, zsplit", Kind::PValue, |row| row.exact.wilcoxon(ZeroRule::Zsplit).p)
        .build()
        .note("With the floor, two cells that both have an axis at zero still differ, by 1e-6 where not as many are zero and else by some 1e-12, and one of them wins; without, they tie.")
        .non_empty()
}
