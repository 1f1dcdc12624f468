use super::{Table, TableContext};
use crate::report::Contrast;
use crate::stats::ZeroRule;
use crate::table::Kind;

/// What a contrast's figures owe to conventions: the floor under the axes, and what is done with
/// ties.
pub(super) fn table(context: &TableContext<'_>) -> Option<Table> {
    let columns = [
        ("method", Kind::Text),
        ("wins %, floor 1e-6", Kind::Percent),
        ("wins %, no floor", Kind::Percent),
        ("ties half %", Kind::Percent),
        ("of decided %", Kind::Percent),
        ("p, floor 1e-6", Kind::PValue),
        ("p, wilcox", Kind::PValue),
        ("p, pratt", Kind::PValue),
        ("p, zsplit", Kind::PValue),
    ];
    let mut table =
        Table::new("conventions", format!("Wins of {} and p-values under each convention", context.reference.name), &columns);
    for other in context.others() {
        let floored = context.floored(other);
        let exact = Contrast::of(&context.reference.cells, &other.cells, super::exact_f1).snapped();
        let rate = exact.win_rate();
        table.row(vec![
            other.name.as_str().into(),
            floored.win_rate().of_all().into(),
            rate.of_all().into(),
            rate.halving_ties().into(),
            rate.of_decided().into(),
            floored.wilcoxon(ZeroRule::Wilcox).p.into(),
            exact.wilcoxon(ZeroRule::Wilcox).p.into(),
            exact.wilcoxon(ZeroRule::Pratt).p.into(),
            exact.wilcoxon(ZeroRule::Zsplit).p.into(),
        ]);
    }
    (!table.rows.is_empty()).then(|| {
        table.note("With the floor, two cells that both have an axis at zero still differ, by 1e-6 where not as many are zero and else by some 1e-12, and one of them wins; without, they tie.")
    })
}
