use super::{At, Context, Ledger, Table};
use crate::stats::harmonic_mean;
use crate::table::Kind;

/// Mean axes and their F1, for every method at every weight vector.
pub(super) fn table(context: &Context<'_>, ledger: &mut Ledger) -> Table {
    let columns = [
        ("method", Kind::Text),
        ("help/honest/harmless", Kind::Text),
        ("n", Kind::Count),
        ("quality", Kind::Number(3)),
        ("safety", Kind::Number(3)),
        ("honesty", Kind::Number(3)),
        ("F1", Kind::Number(3)),
    ];
    let mut table = Table::new("axes", "Achieved axes at every weight vector", &columns);
    table.appendix = true;
    for method in &context.sweep.methods {
        for (point, n, axes) in context.sweep.achieved(method) {
            let label = point.label();
            let f1 = harmonic_mean(&axes, 0.0);
            let at = At { source: "tab:per-config-full", subject: &method.name, part: &label, reading: "" };
            let figures = [("n", n as f64), ("quality", axes[0]), ("safety", axes[1]), ("honesty", axes[2]), ("f1", f1)];
            figures.into_iter().for_each(|(quantity, value)| ledger.note(&at, quantity, value));
            let [quality, safety, honesty] = axes.map(Into::into);
            table.row(vec![method.name.as_str().into(), label.as_str().into(), n.into(), quality, safety, honesty, f1.into()]);
        }
    }
    table
}
