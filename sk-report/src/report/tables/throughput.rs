use super::Table;
use crate::report::{Recorded, Runs};
use crate::table::{Kind, Value};

/// What responses took, by scheme.
pub(super) fn table(recorded: &Recorded) -> Table {
    let columns = [
        ("scheme", Kind::Text),
        ("responses", Kind::Count),
        ("tokens", Kind::Count),
        ("tokens/s", Kind::Number(1)),
        ("median s per response", Kind::Number(2)),
        ("tokens per step", Kind::Number(1)),
        ("drafted per kept token", Kind::Number(1)),
        ("draft %", Kind::Percent),
        ("score %", Kind::Percent),
        ("select %", Kind::Percent),
        ("commit %", Kind::Percent),
        ("at the limit %", Kind::Percent),
        ("device", Kind::Text),
    ];
    let mut table = Table::new("throughput", "What responses took", &columns);
    for runs in &recorded.runs {
        let total = runs.seconds.total();
        let share = |seconds: f64| Value::from(seconds / total);
        let per = |count: usize, of: usize| count as f64 / of as f64;
        let Runs { seconds, .. } = runs;
        table.row(vec![
            runs.scheme.as_str().into(),
            runs.responses.into(),
            runs.tokens.into(),
            runs.tokens_per_second().into(),
            runs.median_elapsed.into(),
            per(runs.tokens, runs.steps).into(),
            runs.drafted.map(|drafted| per(drafted, runs.tokens)).into(),
            share(seconds.draft),
            share(seconds.score),
            share(seconds.select),
            share(seconds.commit),
            per(runs.limited, runs.responses).into(),
            runs.devices.iter().cloned().collect::<Vec<_>>().join(", ").into(),
        ]);
    }
    if recorded.unjudged > 0 {
        let note = format!("Of judged responses; records of responses that were not judged are left out: {}.", recorded.unjudged);
        table = table.note(note);
    }
    if recorded.unrecorded > 0 {
        table = table.note(format!("Judged responses that have no record: {}.", recorded.unrecorded));
    }
    table
        .note("Tokens of responses over the wall time of their generation, one response at a time; processes that share a machine slow each other.")
        .note("Shares of the time in steps: Π_prop drafts, π_B and the blades score, 𝓝, 𝓐 and 𝓢 select, and the winner is kept.")
}
