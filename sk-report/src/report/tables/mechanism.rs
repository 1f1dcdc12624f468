use super::{At, Ledger, Table};
use crate::report::Mechanism;
use crate::table::{Kind, Value};

/// Spreads and shares of blades, and the scale of the two terms of the champion's logit.
///
/// `cut` are the schemes whose steps could not be had whole.
pub(super) fn tables(mechanisms: &[Mechanism], cut: &[String], ledger: &mut Ledger) -> Vec<Table> {
    if mechanisms.is_empty() {
        return Vec::new();
    }
    let spread_columns = [
        ("arm", Kind::Text),
        ("blade", Kind::Text),
        ("median std(μ)", Kind::Number(5)),
        ("ratio", Kind::Number(2)),
        ("share at equal weights %", Kind::Percent),
    ];
    let mut spreads =
        Table::new("spreads", "Raw spread of each blade's scores in a batch, and the influence it implies", &spread_columns);
    let scale_columns = [("arm", Kind::Text), ("steps", Kind::Count), ("median scale ratio", Kind::Number(3))];
    let choice_columns = [
        ("arm", Kind::Text),
        ("steps", Kind::Count),
        ("median N", Kind::Number(0)),
        ("best μ chosen %", Kind::Percent),
        ("by chance %", Kind::Percent),
        ("entropy, nats", Kind::Number(3)),
        ("entropy / ln N", Kind::Number(3)),
    ];
    let mut choices = Table::new("choice", "How one of several candidates was drawn", &choice_columns);
    let mut scales = Table::new("scales", "Tournament and blade terms in the champion's logit", &scale_columns);
    for mechanism in mechanisms {
        let arm = mechanism.arm.as_str();
        for blade in &mechanism.blades {
            let at = At { source: "sec:cbn", subject: arm, part: &blade.blade, reading: "" };
            ledger.note(&at, "median std", blade.median_std);
            ledger.note(&at, "ratio", blade.ratio);
            blade.share.into_iter().for_each(|share| ledger.note(&at, "share%", 100.0 * share));
            spreads.row(vec![
                arm.into(),
                blade.blade.as_str().into(),
                blade.median_std.into(),
                blade.ratio.into(),
                Value::from(blade.share),
            ]);
        }
        ledger.note(&At { source: "sec:cbn", subject: arm, part: "", reading: "" }, "scale ratio", mechanism.scale_ratio);
        if !mechanism.scale_ratio.is_nan() {
            scales.row(vec![arm.into(), mechanism.steps.into(), mechanism.scale_ratio.into()]);
        }
        let choice = &mechanism.choice;
        choices.row(vec![
            arm.into(),
            choice.steps.into(),
            choice.candidates.into(),
            choice.best.into(),
            choice.best_by_chance.into(),
            choice.entropy.into(),
            choice.relative_entropy.into(),
        ]);
    }
    let spreads = spreads
        .note("Medians over the steps a blade was seated at; ratio to the smallest; mean share over the steps with every blade (Theorem 3(i)).");
    let scales = scales.note("Scale ratio: std of the tournament term over std of the blade term, within a batch.");
    let choices = choices
        .note("Over steps of at least two candidates. Best μ: no candidate had a higher composite. By chance: had every draw been uniform.")
        .note("Entropy of the probabilities a candidate was drawn with: 0 is a certain choice, ln N a uniform one.");
    let without = |table: Table| match cut {
        [] => table,
        _ => table.note(format!("Left out, since they choose among a whole vocabulary: {}.", cut.join(", "))),
    };
    [without(spreads), scales, without(choices)].into_iter().filter(|table| !table.rows.is_empty()).collect()
}
