//! Symbolic colours, and the markers that distinguish series without colour.

/// The number of hues in the page's style sheet.
pub(super) const HUES: usize = 8;
/// The number of grey tones in the page's style sheet.
const TONES: usize = 4;

/// The appearance of a series: its colour, marker and dash.
///
/// The page has eight hues, which remain distinguishable under any dichromacy, and four grey tones.
/// Larger indices reuse the colours with other markers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// The i-th hue.
    Hue(usize),
    /// The i-th grey tone, for series that must not be confused with those that have a hue.
    Tone(usize),
}

impl Style {
    /// Returns the symbolic name of the colour. The page's script replaces it by the value for
    /// light, dark or print.
    pub(super) fn color(self) -> String {
        match self {
            Self::Hue(i) => format!("@{}", i % HUES),
            Self::Tone(i) => format!("@tone-{}", i % TONES),
        }
    }

    /// Returns the pattern of a bar, which differs between series of the same colour.
    pub(super) fn pattern(self) -> &'static str {
        let turn = match self {
            Self::Hue(i) => i / HUES,
            Self::Tone(i) => i / TONES,
        };
        ["", "/", "\\", "x", "-", "|", "+", "."][turn % 8]
    }

    /// Returns the colour with this opacity.
    pub(super) fn faded(self, opacity: f64) -> String {
        format!("{}/{opacity}", self.color())
    }

    /// Returns the marker. Only markers that exist in two and in three dimensions are used. Their
    /// number is coprime to [`HUES`], so that pairs of colour and marker repeat only after 56
    /// series.
    pub(super) fn symbol(self) -> &'static str {
        const SYMBOLS: [&str; 7] = ["circle", "square", "diamond", "cross", "x", "circle-open", "square-open"];
        let (Self::Hue(i) | Self::Tone(i)) = self;
        SYMBOLS[i % SYMBOLS.len()]
    }

    /// Returns the dash pattern of lines.
    pub(super) fn dash(self) -> &'static str {
        const DASHES: [&str; 5] = ["solid", "dash", "dot", "dashdot", "longdash"];
        let (Self::Hue(i) | Self::Tone(i)) = self;
        DASHES[i % DASHES.len()]
    }
}

/// Text, and marks that belong to no series.
pub(super) const INK: &str = "@ink";
/// Axis titles and ticks.
pub(super) const MUTED: &str = "@muted";
/// Grid lines.
pub(super) const GRID: &str = "@grid";
/// The page background.
pub(super) const PAPER: &str = "@paper";
/// Transparent: the page provides the background.
pub(super) const NONE: &str = "rgba(0,0,0,0)";

/// The sequential colour scale, low to high: cividis, which looks nearly the same with and without
/// colour blindness.
pub(super) const SEQUENTIAL: &str = "Cividis";

/// Text colours on the dark lower half of [`SEQUENTIAL`] and on its light upper half, for light and
/// dark pages.
pub(super) const BRIGHT: &str = "#ffffff";
pub(super) const DARK: &str = "#1b1f24";

/// The diverging colour scale: negative, zero, positive.
pub(super) const DIVERGING: [(f64, &str); 3] = [(0.0, "@low"), (0.5, "@mid"), (1.0, "@high")];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_one_colour_differ_in_their_pattern() {
        let styles: Vec<_> = (0..64).map(|i| (Style::Hue(i).color(), Style::Hue(i).pattern())).collect();
        assert!(styles.iter().enumerate().all(|(i, style)| !styles[..i].contains(style)), "{styles:?}");
        assert!(styles[..8].iter().all(|(_, pattern)| pattern.is_empty()));
    }
}
