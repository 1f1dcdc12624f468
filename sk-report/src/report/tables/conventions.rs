use super::{Table, TableContext};
use crate::stats::ZeroRule;
use crate::table::Kind;

/// The table of how conventions change a contrast: the floor under the axes, and the treatment of
/// ties.
pub(super) fn table(context: &TableContext<'_>) -> Option<Table> {
    let others = context.others().into_iter();
    let rows: Vec<_> = others.map(|other| (other.name.as_str(), context.floored(other), context.exact(other))).collect();
    let title = format!("Wins of {} and p-values under each convention", context.reference.name);
    Table::of("conventions", title, &rows)
        .column("method", Kind::Text, |(name, ..)| *name)
        .column("wins %, floor 1e-6", Kind::Percent, |(_, floored, _)| floored.win_rate().of_all())
        .column("wins %, no floor", Kind::Percent, |(.., exact)| exact.win_rate().of_all())
        .column("ties half %", Kind::Percent, |(.., exact)| exact.win_rate().halving_ties())
        .column("of decided %", Kind::Percent, |(.., exact)| exact.win_rate().of_decided())
        .column("p, floor 1e-6", Kind::PValue, |(_, floored, _)| floored.wilcoxon(ZeroRule::Wilcox).p)
        .column("p, wilcox", Kind::PValue, |(.., exact)| exact.wilcoxon(ZeroRule::Wilcox).p)
        .column("p, pratt", Kind::PValue, |(.., exact)| exact.wilcoxon(ZeroRule::Pratt).p)
        .column("p, zsplit", Kind::PValue, |(.., exact)| exact.wilcoxon(ZeroRule::Zsplit).p)
        .build()
        .note("With the floor, two cells that both have an axis at zero still differ, by 1e-6 where not as many are zero and else by some 1e-12, and one of them wins; without, they tie.")
        .non_empty()
}
