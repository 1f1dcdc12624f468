//! The text form of the report.

use sk_report::grid::Grid;

use super::reconfiguration::Reconfiguration;
use super::report::{BenchReport, OpponentFigure};
use super::sweep::AxisReport;
use crate::plural::counted;
use crate::ruler::{Figure, Spread};
use crate::terminal;

/// Formats the report as text: the limits of the device, the figures with their floors, and a table
/// for each sweep.
pub(super) fn render(report: &BenchReport) -> String {
    let load = report.load_average.map_or_else(String::new, |load| format!(", load average {load:.2}"));
    let threads = if report.device == "cpu" { format!(", {} threads", report.threads) } else { String::new() };
    let instructions = report.instructions.as_ref().map_or_else(String::new, |name| format!(" in {name}"));
    let head = format!(
        "{}, {}{instructions}{threads}, medians of {}{load}",
        report.device,
        report.precision,
        counted(report.repeat, "repetition")
    );
    let mut parts = vec![head, roof(report), figures(report)];
    parts.extend(report.sweeps.iter().map(|sweep| format!("\nstep along {}\n{}", sweep.axis, steps(sweep))));
    parts.join("\n")
}

fn roof(report: &BenchReport) -> String {
    let roof = &report.roof;
    let giga = |spread: Spread| format!("{:.1}", spread.median / 1e9);
    let registers = roof.registers.map_or_else(String::new, |registers| format!(", {} in registers", giga(registers)));
    format!(
        "bandwidth at the backbone's size {} GB/s read, {} triad; at the drafter's {} read, {} triad; matrix product {} GFLOP/s{registers}",
        giga(roof.backbone_read),
        giga(roof.backbone_triad),
        giga(roof.drafter_read),
        giga(roof.drafter_triad),
        giga(roof.product),
    )
}

/// The unit of a number.
#[derive(Clone, Copy)]
enum Unit {
    /// Tokens per second.
    Rate,
    /// Seconds, shown with a suitable prefix.
    Time,
    Ratio,
}

impl Unit {
    /// Returns, for numbers of the size of `value`, the factor, the unit, and the number of
    /// decimals.
    fn scale(self, value: f64) -> (f64, &'static str, usize) {
        match self {
            Self::Rate => (1.0, " tokens/s", 1),
            Self::Ratio => (1.0, "", 2),
            Self::Time if value >= 1.0 || value == 0.0 => (1.0, " s", 2),
            Self::Time if value >= 1e-3 => (1e3, " ms", 2),
            Self::Time if value >= 1e-6 => (1e6, " µs", 2),
            Self::Time => (1e9, " ns", 1),
        }
    }

    fn show(self, value: f64) -> String {
        let (scale, unit, digits) = self.scale(value);
        format!("{:.digits$}{unit}", scale * value)
    }

    /// Formats the range in the unit of the median, which is shown beside it.
    fn range(self, spread: Spread) -> String {
        let (scale, _, digits) = self.scale(spread.median);
        format!("{:.digits$} – {:.digits$}", scale * spread.min, scale * spread.max)
    }
}

/// A table of figures: name, median, range, floor, and the ratio to the floor.
struct Figures(Grid);

impl Figures {
    fn new() -> Self {
        Self(Grid::new(["", "median", "range", "floor", "× floor"]).numbers(1..))
    }

    fn row(&mut self, name: &str, median: String, range: String) {
        self.0.row([name.to_owned(), median, range, String::new(), String::new()]);
    }

    fn figure(&mut self, name: &str, figure: &Figure, unit: Unit) {
        let floor = figure.floor.map_or_else(String::new, |floor| unit.show(floor));
        self.0.row([name.to_owned(), unit.show(figure.spread.median), unit.range(figure.spread), floor, times(figure)]);
    }

    fn spread(&mut self, name: &str, spread: Spread, unit: Unit) {
        self.row(name, unit.show(spread.median), unit.range(spread));
    }
}

/// Formats the ratio to the floor.
fn times(figure: &Figure) -> String {
    figure.to_floor.map_or_else(String::new, |times| format!("{times:.2}"))
}

fn figures(report: &BenchReport) -> String {
    let mut table = Figures::new();
    table.figure("load", &report.load, Unit::Time);
    let warm_up = report.warm_up;
    table.row("warm-up, frozen", Unit::Time.show(warm_up.frozen), String::new());
    table.row("warm-up, steered", Unit::Time.show(warm_up.steered), String::new());
    table.figure(&format!("prefill of {} tokens", report.prompt_tokens), &report.prefill, Unit::Rate);
    table.figure("frozen, greedy", &report.frozen, Unit::Rate);
    table.figure("frozen, with prefill", &report.frozen_with_prompt, Unit::Rate);
    let scheme = format!("N = {}, K = {}", report.candidates, report.blades);
    table.figure(&format!("steered, {scheme}, with prefill"), &report.steered, Unit::Rate);
    if let Some(later) = &report.later_steps {
        table.figure("steered, steps after the first", later, Unit::Rate);
    }
    let parts = report.steered_seconds;
    for (part, value) in [("draft", parts.draft), ("score", parts.score), ("select", parts.select), ("commit", parts.commit)] {
        let share = format!("{:.1} % of {} tokens", 100.0 * value / parts.total(), report.new_tokens);
        table.row(&format!("  {part}"), Unit::Time.show(value), share);
    }
    table.spread("steered / frozen, with prefill", report.steered_over_frozen, Unit::Ratio);
    if let Some(over) = report.later_steps_over_frozen {
        table.spread("steps after the first / frozen", over, Unit::Ratio);
    }
    if let Some(generations) = &report.generations {
        table.figure(&format!("steered, {} concurrent", generations.count), &generations.steered, Unit::Rate);
        table.spread("  against one", generations.over_one, Unit::Ratio);
    }
    if let Some(edits) = &report.reconfiguration {
        reconfiguration(&mut table, edits);
    }
    if let Some(kernels) = report.kernels {
        table.row("kernels launched, frozen", format!("{:.1}", kernels.frozen_token), "a token".to_owned());
        table.row("kernels launched, steered", kernels.step.to_string(), format!("a step of {} tokens", report.span_tokens));
    }
    memory(&mut table, report);
    for opponent in &report.against {
        table.row(&format!("against {}", opponent.command), String::new(), String::new());
        for figure in &opponent.figures {
            let unit = if OpponentFigure::is_time(&figure.name) { Unit::Time } else { Unit::Rate };
            table.spread(&format!("  {}", figure.name), figure.value, unit);
            for (name, over) in [("frozen, with prefill", figure.frozen_over), ("steered", figure.steered_over)] {
                if let Some(over) = over {
                    table.spread(&format!("    {name} / it"), over, Unit::Ratio);
                }
            }
        }
    }
    table.0.render(terminal::columns())
}

fn reconfiguration(table: &mut Figures, edits: &Reconfiguration) {
    for (name, spread) in
        [("weight edit", edits.weight_edit), ("seat", edits.seat), ("unseat", edits.unseat), ("swap", edits.swap)]
    {
        table.spread(name, spread, Unit::Time);
    }
    table.figure("step", &edits.step, Unit::Time);
    table.figure("step after a swap", &edits.step_after_swap, Unit::Time);
    if let Some(bytes) = edits.resident_bytes_added {
        table.row("memory added by the edits", mebibytes(bytes as f64), String::new());
    }
}

fn memory(table: &mut Figures, report: &BenchReport) {
    let need = report.memory;
    let parts =
        [("backbone", need.backbone), ("drafter", need.drafter), ("adapters", need.adapters), ("keys and values", need.cache)];
    table.row("memory by the formula", mebibytes(need.total), String::new());
    for (name, bytes) in parts {
        table.row(&format!("  {name}"), mebibytes(bytes), String::new());
    }
    if let Some(peak) = report.peak_memory {
        table.row("peak memory", mebibytes(peak as f64), format!("{:.2} of the formula", peak as f64 / need.total));
    }
}

fn steps(sweep: &AxisReport) -> String {
    let headings = [sweep.axis, "draft", "× floor", "score", "× floor", "step", "range", "floor", "× floor", "/ centre"];
    let mut grid = Grid::new(headings).numbers(1..);
    for point in &sweep.points {
        grid.row([
            point.value.to_string(),
            Unit::Time.show(point.draft.spread.median),
            times(&point.draft),
            Unit::Time.show(point.score.spread.median),
            times(&point.score),
            Unit::Time.show(point.step.spread.median),
            Unit::Time.range(point.step.spread),
            point.step.floor.map_or_else(String::new, |floor| Unit::Time.show(floor)),
            times(&point.step),
            format!("{:.2}", point.to_centre.median),
        ]);
    }
    let skipped = if sweep.skipped.is_empty() {
        String::new()
    } else {
        let values: Vec<String> = sweep.skipped.iter().map(ToString::to_string).collect();
        format!("\nnot measured, beyond the models' context: {}", values.join(", "))
    };
    grid.render(terminal::columns()) + &skipped
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_suitable_unit_and_ranges_that_of_the_median() {
        let shown = [0.0, 2.5, 0.012, 3.4e-5, 1.5e-7].map(|value| Unit::Time.show(value));
        assert_eq!(shown, ["0.00 s", "2.50 s", "12.00 ms", "34.00 µs", "150.0 ns"]);
        let spread = Spread { median: 0.5e-3, min: 0.25e-3, max: 1.5e-3 };
        assert_eq!(Unit::Time.range(spread), "250.00 – 1500.00");
        assert_eq!((Unit::Rate.show(12.34), Unit::Ratio.show(0.5)), ("12.3 tokens/s".to_owned(), "0.50".to_owned()));
    }
}
