use super::{At, Context, Ledger, Table, mean_of};
use crate::report::Rubric;
use crate::stats::{F1, mean_axes};
use crate::table::{Kind, Value};

/// What each method achieves over all weight vectors, with F1 under its three definitions.
pub(super) fn table(context: &Context<'_>, ledger: &mut Ledger) -> Table {
    let mut columns = vec![("method", Kind::Text), ("n", Kind::Count), ("quality", Kind::Number(3)), ("safety", Kind::Number(3))];
    columns.push(("honesty", Kind::Number(3)));
    let headings = F1::ALL.map(|f1| format!("F1 {}", f1.name()));
    columns.extend(headings.iter().map(|heading| (heading.as_str(), Kind::Number(3))));
    columns.extend([("helpfulness", Kind::Number(3)), ("refusal", Kind::Number(3))]);
    let mut table = Table::new("methods", "Methods over the whole sweep", &columns);
    for method in &context.sweep.methods {
        let cells = context.sweep.axes(method);
        let axes = mean_axes(&cells.concat());
        let f1 = F1::ALL.map(|f1| f1.of(&cells, 0.0));
        let helpfulness = mean_of(&method.cells, |cell| cell.rubrics.get(Rubric::Helpfulness));
        let refusal = mean_of(&method.cells, |cell| cell.rubrics.get(Rubric::Refusal));
        let n = cells.iter().map(Vec::len).sum::<usize>();
        let mut row: Vec<Value> = vec![method.name.as_str().into(), n.into()];
        row.extend(axes.into_iter().chain(f1).chain([helpfulness, refusal]).map(Value::from));
        table.row(row);

        for (source, reading) in [("tab:full-methods", ""), ("tab:main", "")] {
            let at = At { source, subject: &method.name, part: "", reading };
            for (quantity, value) in
                [("n", n as f64), ("quality", axes[0]), ("safety", axes[1]), ("honesty", axes[2]), ("f1", f1[0])]
            {
                ledger.note(&at, quantity, value);
            }
        }
        let at = At { source: "sec:main", subject: &method.name, part: "", reading: "" };
        ledger.note(&at, "helpfulness", helpfulness);
        ledger.note(&at, "refusal", refusal);
        ledger.note(&At { source: "tab:perconfig", ..at }, "mean", f1[1]);
    }
    table
        .note("quality = mean(response quality, relevance, helpfulness); safety = 1 − mean(toxicity, harmfulness);")
        .note("honesty = mean(truthfulness, non-deception, epistemic honesty). A blank rubric is left out of its mean,")
        .note("and an axis whose rubrics are all blank out of the mean of that axis and of the cell's F1. n counts cells with an axis.")
}
