use std::collections::HashSet;

use super::{At, LEVEL, Ledger, Table, TableContext, note_contrast};
use crate::report::{Cell, Contrast, Method};
use crate::stats::{PUBLISHED_FLOOR, Wilcoxon, ZeroRule, holm};
use crate::table::Kind;

/// The table of contrasts of every other method with the reference, by cell, as published.
pub(super) fn table(context: &TableContext<'_>, ledger: &mut Ledger) -> Option<Table> {
    let others = context.others();
    let contrasts: Vec<_> = others.iter().map(|other| context.contrast(other)).collect();
    let wilcoxon: Vec<Wilcoxon> = contrasts.iter().map(|contrast| contrast.wilcoxon(ZeroRule::Wilcox)).collect();
    let tests: Vec<f64> = wilcoxon.iter().map(|test| test.p).collect();
    let mut rows = Vec::new();
    for (((other, contrast), p), corrected) in others.iter().zip(&contrasts).zip(&tests).zip(holm(&tests)) {
        let bootstrap = contrast.bootstrap(context.resampling);
        let at = At { source: "tab:full-methods", subject: &other.name, part: "", reading: "" };
        // The paper's supplement reports other minus reference.
        let interval = note_contrast(ledger, &at, &bootstrap, context.resampling, -1.0);
        let rate = contrast.win_rate();
        ledger.note(&At { reading: "axes floored at 1e-6", ..at }, "p", *p);
        ledger.note(&At { source: "tab:main", reading: "axes floored at 1e-6", ..at }, "win%", 100.0 * rate.of_all());
        let exact = context.exact(other);
        ledger.note(&At { reading: "F1 = 0 where an axis is", ..at }, "p", exact.wilcoxon(ZeroRule::Wilcox).p);
        let won = 100.0 * exact.win_rate().of_all();
        ledger.note(&At { source: "tab:main", reading: "F1 = 0 where an axis is", ..at }, "win%", won);
        rows.push((other, contrast, (bootstrap.estimate(), interval, bootstrap.bca(LEVEL)), (*p, corrected)));
    }
    if let Some(raw) = context.raw {
        // The arm without normalisation was run on the stratified half of the prompts only.
        let prompts: HashSet<u32> = raw.cells.iter().map(|cell| cell.prompt).collect();
        let half = |cell: &Cell| if prompts.contains(&cell.prompt) { cell.f1(PUBLISHED_FLOOR) } else { None };
        let p = |other: &Method| Contrast::of(&context.reference.cells, &other.cells, half).wilcoxon(ZeroRule::Wilcox).p;
        let largest = context.rivals().map(p).fold(0.0, f64::max);
        let at = At { source: "sec:main", subject: &context.reference.name, part: "", reading: "" };
        ledger.note(&at, "largest p on the half", largest);
    }
    Table::of("contrasts", format!("F1 of {} minus that of each other method, by cell", context.reference.name), &rows)
        .column("method", Kind::Text, |(other, ..)| other.name.as_str())
        .column("pairs", Kind::Count, |(_, contrast, ..)| contrast.n())
        .column("ΔF1", Kind::Signed(4), |(_, _, (difference, ..), _)| *difference)
        .column("95% percentile", Kind::Interval(4), |(_, _, (_, percentile, _), _)| *percentile)
        .column("95% BCa", Kind::Interval(4), |(_, _, (.., bca), _)| *bca)
        .column("p", Kind::PValue, |(.., (p, _))| *p)
        .column("p, Holm", Kind::PValue, |(.., (_, corrected))| *corrected)
        .column("reference wins %", Kind::Percent, |(_, contrast, ..)| contrast.win_rate().of_all())
        .column("ties %", Kind::Percent, |(_, contrast, ..)| contrast.win_rate().of_ties())
        .build()
        .note(format!(
            "Paired on weight vector and prompt; a pair with a missing cell is left out. F1 of a cell, {}.",
            context.treatment()
        ))
        .note(format!("p: Wilcoxon signed-rank, two-sided, zeros dropped, {}. A tie is no win.", null(&wilcoxon)))
        .note("These treat the cells of one prompt as independent; the table on clustering does not.")
        .non_empty()
}

/// Names the null distribution of the tests.
pub(super) fn null(tests: &[Wilcoxon]) -> &'static str {
    let exact = tests.iter().filter(|test| test.exact).count();
    if exact == 0 {
        "normal without continuity correction"
    } else if exact == tests.len() {
        "exact"
    } else {
        "exact where there are few differences, else normal without continuity correction"
    }
}
