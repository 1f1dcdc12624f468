use super::Table;
use crate::report::{Recorded, Runs};
use crate::table::Kind;

/// The table of time and tokens, by scheme.
pub(super) fn table(recorded: &Recorded) -> Table {
    let per = |count: usize, of: usize| count as f64 / of as f64;
    let mut table = Table::of("throughput", "What responses took", &recorded.runs)
        .column("scheme", Kind::Text, |runs| runs.scheme.as_str())
        .column("responses", Kind::Count, |runs| runs.responses)
        .column("tokens", Kind::Count, |runs| runs.tokens)
        .column("tokens/s", Kind::Number(1), Runs::tokens_per_second)
        .column("median s per response", Kind::Number(2), |runs| runs.median_elapsed)
        .column("tokens per step", Kind::Number(1), |runs| per(runs.tokens, runs.steps))
        .column("drafted per kept token", Kind::Number(1), |runs| runs.drafted.map(|drafted| per(drafted, runs.tokens)))
        .column("draft %", Kind::Percent, |runs| runs.seconds.draft / runs.seconds.total())
        .column("score %", Kind::Percent, |runs| runs.seconds.score / runs.seconds.total())
        .column("select %", Kind::Percent, |runs| runs.seconds.select / runs.seconds.total())
        .column("commit %", Kind::Percent, |runs| runs.seconds.commit / runs.seconds.total())
        .column("at the limit %", Kind::Percent, |runs| per(runs.limited, runs.responses))
        .column("device", Kind::Text, |runs| runs.devices.iter().cloned().collect::<Vec<_>>().join(", "))
        .build();
    if recorded.unjudged > 0 {
        let note = format!(
            "Of judged responses; records of responses that are not in judged_frontier.csv are left out: {}.",
            recorded.unjudged
        );
        table = table.note(note);
    }
    if recorded.unrecorded > 0 {
        table = table.note(format!("Judged responses that have no record: {}.", recorded.unrecorded));
    }
    table
        .note("Tokens over the wall time of each response. Responses that ran at once (--at-once) and processes that share a machine slow each other.")
        .note("Shares of the time in steps: Π_prop drafts, π_B and the blades score, 𝓝, 𝓐 and 𝓢 select, and the winner is kept.")
}
