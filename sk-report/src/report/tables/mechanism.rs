use super::{At, Ledger, Table};
use crate::report::{BladeSpread, Mechanism};
use crate::table::Kind;

/// The tables of blade spreads and influence shares, and of the scale ratio of the two terms in the
/// champion's logit.
///
/// `cut` lists the schemes whose steps are truncated in the traces.
pub(super) fn tables(mechanisms: &[Mechanism], cut: &[String], ledger: &mut Ledger) -> Vec<Table> {
    if mechanisms.is_empty() {
        return Vec::new();
    }
    let blades: Vec<(&str, &BladeSpread)> =
        mechanisms.iter().flat_map(|own| own.blades.iter().map(|blade| (own.arm.as_str(), blade))).collect();
    for (arm, blade) in &blades {
        let at = At { source: "sec:cbn", subject: arm, part: &blade.blade, reading: "" };
        ledger.note(&at, "median std", blade.median_std);
        ledger.note(&at, "ratio", blade.ratio);
        blade.share.into_iter().for_each(|share| ledger.note(&at, "share%", 100.0 * share));
    }
    for Mechanism { arm, scale_ratio, .. } in mechanisms {
        ledger.note(&At { source: "sec:cbn", subject: arm, part: "", reading: "" }, "scale ratio", *scale_ratio);
    }
    let spreads = Table::of("spreads", "Raw spread of each blade's scores in a batch, and the influence it implies", &blades)
        .column("arm", Kind::Text, |(arm, _)| *arm)
        .column("blade", Kind::Text, |(_, blade)| blade.blade.as_str())
        .column("median std(μ)", Kind::Number(5), |(_, blade)| blade.median_std)
        .column("ratio", Kind::Number(2), |(_, blade)| blade.ratio)
        .column("share at equal weights %", Kind::Percent, |(_, blade)| blade.share)
        .build()
        .note("Medians over the steps a blade was seated at; ratio to the smallest; mean share over the steps with every blade (Theorem 3(i)).");
    let with_terms: Vec<&Mechanism> = mechanisms.iter().filter(|mechanism| !mechanism.scale_ratio.is_nan()).collect();
    let scales = Table::of("scales", "Tournament and blade terms in the champion's logit", &with_terms)
        .column("arm", Kind::Text, |mechanism| mechanism.arm.as_str())
        .column("steps", Kind::Count, |mechanism| mechanism.steps)
        .column("median scale ratio", Kind::Number(3), |mechanism| mechanism.scale_ratio)
        .build()
        .note("Scale ratio: std of the tournament term over std of the blade term, within a batch.");
    let choices = Table::of("choice", "How one of several candidates was drawn", mechanisms)
        .column("arm", Kind::Text, |mechanism| mechanism.arm.as_str())
        .column("steps", Kind::Count, |mechanism| mechanism.choice.steps)
        .column("median N", Kind::Number(0), |mechanism| mechanism.choice.candidates)
        .column("best μ chosen %", Kind::Percent, |mechanism| mechanism.choice.best)
        .column("by chance %", Kind::Percent, |mechanism| mechanism.choice.best_by_chance)
        .column("entropy, nats", Kind::Number(3), |mechanism| mechanism.choice.entropy)
        .column("entropy / ln N", Kind::Number(3), |mechanism| mechanism.choice.relative_entropy)
        .build()
        .note("Over steps of at least two candidates. Best μ: no candidate had a higher composite. By chance: had every draw been uniform.")
        .note("Entropy of the probabilities a candidate was drawn with: 0 is a certain choice, ln N a uniform one.");
    let without = |table: Table| match cut {
        [] => table,
        _ => table.note(format!("Left out, since they choose among a whole vocabulary: {}.", cut.join(", "))),
    };
    [without(spreads), scales, without(choices)].into_iter().filter(|table| !table.rows.is_empty()).collect()
}
