use super::{PageContext, counted, with_tables};
use crate::chart::{Axis, Bars, Style};
use crate::page::{Figure, Section};
use crate::report::Runs;

/// The section on the time and the tokens that responses took.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let section = Section::new("throughput", "Throughput");
    let Some(recorded) = &context.results.recorded else {
        return section.missing("No times: judged results have none, the records of the sweep do.");
    };
    let section = section.figure(speed(&recorded.runs)).figure(parts(&recorded.runs));
    with_tables(section, context, &["throughput", "settings"])
}

fn speed(runs: &[Runs]) -> Figure {
    let speeds: Vec<f64> = runs.iter().map(Runs::tokens_per_second).collect();
    let speed = Axis::new("tokens of responses per second of wall time");
    let chart = Bars::new(runs.iter().map(|runs| &runs.scheme), speed).series("tokens/s", Style::Tone(0), &speeds, &[]);
    Figure::new("tokens-per-second", "Tokens per second", chart)
        .caption(format!(
            "Tokens over wall time; n responses = {}.",
            counted(runs.iter().map(|runs| (&runs.scheme, runs.responses)))
        ))
        .see("throughput")
}

fn parts(runs: &[Runs]) -> Figure {
    let share = Axis { percent: true, range: Some([0.0, 1.0]), ..Axis::new("share of the time in steps") };
    let shares = |of: fn(&Runs) -> f64| runs.iter().map(|runs| of(runs) / runs.seconds.total()).collect::<Vec<f64>>();
    let chart = Bars::new(runs.iter().map(|runs| &runs.scheme), share)
        .stacked()
        .series("draft", Style::Tone(0), &shares(|runs| runs.seconds.draft), &[])
        .series("score", Style::Tone(1), &shares(|runs| runs.seconds.score), &[])
        .series("select", Style::Tone(2), &shares(|runs| runs.seconds.select), &[])
        .series("commit", Style::Tone(3), &shares(|runs| runs.seconds.commit), &[]);
    Figure::new("time-by-part", "Where the time goes", chart)
        .caption("Draft: Π_prop. Score: π_B and the blades. Select: 𝓝, 𝓐 and 𝓢. Commit: keeping the winner.")
        .see("throughput")
}
