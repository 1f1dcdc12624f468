use super::{PageContext, with_tables};
use crate::chart::{Axis, Bars, Style};
use crate::page::{Figure, Section};
use crate::report::Runs;

/// What responses took.
pub(super) fn section(context: &PageContext<'_>) -> Section {
    let section = Section::new("throughput", "Throughput");
    let Some(recorded) = &context.results.recorded else {
        return section.missing("No times: judged results have none, the records of the sweep do.");
    };
    let section = section.figure(speed(&recorded.runs)).figure(parts(&recorded.runs));
    with_tables(section, context, &["throughput", "settings"])
}

fn schemes(runs: &[Runs]) -> Vec<String> {
    runs.iter().map(|runs| runs.scheme.clone()).collect()
}

fn speed(runs: &[Runs]) -> Figure {
    let speeds: Vec<f64> = runs.iter().map(Runs::tokens_per_second).collect();
    let chart = Bars::new(&schemes(runs), Axis::new("tokens of responses per second of wall time")).series(
        "tokens/s",
        Style::Tone(0),
        &speeds,
    );
    let n: Vec<String> = runs.iter().map(|runs| format!("{} {}", runs.scheme, runs.responses)).collect();
    Figure::new("tokens-per-second", "Tokens per second", chart)
        .caption(format!("Tokens over wall time, one response at a time; n responses = {}.", n.join(", ")))
        .see("throughput")
}

fn parts(runs: &[Runs]) -> Figure {
    let empty = Bars::new(&schemes(runs), Axis::new("share of the time in steps").percent().range([0.0, 1.0])).stacked();
    let parts: [(&str, fn(&Runs) -> f64); 4] = [
        ("draft", |runs| runs.seconds.draft),
        ("score", |runs| runs.seconds.score),
        ("select", |runs| runs.seconds.select),
        ("commit", |runs| runs.seconds.commit),
    ];
    let chart = parts.into_iter().enumerate().fold(empty, |chart, (i, (part, of))| {
        let shares: Vec<f64> = runs.iter().map(|runs| of(runs) / runs.seconds.total()).collect();
        chart.series(part, Style::Tone(i), &shares)
    });
    Figure::new("time-by-part", "Where the time goes", chart)
        .caption("Draft: Π_prop. Score: π_B and the blades. Select: 𝓝, 𝓐 and 𝓢. Commit: keeping the winner.")
        .see("throughput")
}
