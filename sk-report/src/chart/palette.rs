//! Colours by name, and the marks that tell series apart without them.

/// Colours of series in the page's style.
const COLORS: usize = 8;

/// The colour of the i-th series: a name that the page's script replaces. After the eighth they
/// begin again, with other marks.
pub fn series_color(i: usize) -> String {
    format!("@{}", i % COLORS)
}

/// The same colour, this opaque.
pub(super) fn faded(i: usize, opacity: f64) -> String {
    format!("{}/{opacity}", series_color(i))
}

/// Text and the marks that belong to no series.
pub(super) const INK: &str = "@ink";
/// Axis titles and ticks.
pub(super) const MUTED: &str = "@muted";
/// Grid lines.
pub(super) const GRID: &str = "@grid";
/// What is behind everything.
pub(super) const PAPER: &str = "@paper";
/// Drawn by the page, not by the chart.
pub(super) const NONE: &str = "rgba(0,0,0,0)";

/// From little to much, the same to every eye: cividis.
pub(super) const SEQUENTIAL: &str = "Cividis";

/// Writing on the lower half of [`SEQUENTIAL`], which is dark, and on its upper half, on light and
/// dark pages alike.
pub(super) const BRIGHT: &str = "#ffffff";
pub(super) const DARK: &str = "#1b1f24";

/// From negative over nothing to positive.
pub(super) const DIVERGING: [(f64, &str); 3] = [(0.0, "@low"), (0.5, "@mid"), (1.0, "@high")];

/// Marks of series, which two and three dimensions have alike; the number is prime to [`COLORS`],
/// so that pairs repeat late.
pub(super) fn symbol(i: usize) -> &'static str {
    const SYMBOLS: [&str; 7] = ["circle", "square", "diamond", "cross", "x", "circle-open", "square-open"];
    SYMBOLS[i % SYMBOLS.len()]
}

/// Dashes of lines.
pub(super) fn dash(i: usize) -> &'static str {
    const DASHES: [&str; 5] = ["solid", "dash", "dot", "dashdot", "longdash"];
    DASHES[i % DASHES.len()]
}
