//! Colours by name, and the marks that tell series apart without them.

/// Colours of series in the page's style.
pub(super) const HUES: usize = 8;
/// Shades of grey in the page's style.
const TONES: usize = 4;

/// How a series looks: its colour, its mark and its dash.
///
/// The page has eight hues, which people with any dichromacy can tell apart, and four shades of
/// grey. After the last they begin again, with other marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// The i-th hue.
    Hue(usize),
    /// The i-th shade of grey: for series that must not be taken for those that have a hue.
    Tone(usize),
}

impl Style {
    /// The name of the colour, which the page's script replaces by its value in light, dark or
    /// print.
    pub(super) fn color(self) -> String {
        match self {
            Self::Hue(i) => format!("@{}", i % HUES),
            Self::Tone(i) => format!("@tone-{}", i % TONES),
        }
    }

    /// The same colour, this opaque.
    pub(super) fn faded(self, opacity: f64) -> String {
        format!("{}/{opacity}", self.color())
    }

    /// The mark, which two and three dimensions have alike; the number of marks is prime to
    /// [`HUES`], so that pairs repeat late.
    pub(super) fn symbol(self) -> &'static str {
        const SYMBOLS: [&str; 7] = ["circle", "square", "diamond", "cross", "x", "circle-open", "square-open"];
        SYMBOLS[self.place() % SYMBOLS.len()]
    }

    /// The dash of lines.
    pub(super) fn dash(self) -> &'static str {
        const DASHES: [&str; 5] = ["solid", "dash", "dot", "dashdot", "longdash"];
        DASHES[self.place() % DASHES.len()]
    }

    fn place(self) -> usize {
        match self {
            Self::Hue(i) | Self::Tone(i) => i,
        }
    }
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
