//! Charts, drawn in the reader's browser by plotly.js.
//!
//! Each chart is a small type that converts into a [`Plot`], the data and layout objects
//! of plotly.js. Colours are symbolic names ([`Style`]) that the page resolves separately for light
//! and dark. Series also differ in their markers. A [`Page`](crate::page::Page) holds plots in
//! figures, each with a caption and the table of the plotted numbers.
//!
//! ```
//! use sk_report::chart::{Axis, Lines, Series};
//! use sk_report::page::{Figure, Page, Section};
//! use sk_report::table::{Kind, Table};
//!
//! let x = [0.0, 1.0, 2.0];
//! let band = Some([vec![0.0, 0.4, 0.8], vec![0.2, 0.6, 1.0]]);
//! let entropy = Axis { range: Some([0.0, 1.0]), ..Axis::new("entropy (share of ln N)") };
//! let champion = Series { band, ..Series::line("champion", x.to_vec(), vec![0.1, 0.5, 0.9]) };
//! let chart = Lines::new(Axis::new("temperature (nats)"), entropy, vec![champion]);
//! let table = Table::of("entropy", "Entropy by temperature", &[(0.0, 0.1), (1.0, 0.5), (2.0, 0.9)])
//!     .column("T", Kind::Number(1), |(t, _)| *t)
//!     .column("entropy", Kind::Number(2), |(_, entropy)| *entropy)
//!     .build();
//! let figure = Figure::new("entropy", "Entropy rises with temperature", chart)
//!     .caption("Mean over n = 12 steps; the band is a 95% interval.")
//!     .behind(table);
//! let sections = vec![Section::new("selection", "Selection").figure(figure)];
//! let html = Page { title: "A page".to_owned(), sections, ..Page::default() }.html()?;
//! assert!(html.starts_with("<!DOCTYPE html>"));
//! # Ok::<(), sk_report::page::PageError>(())
//! ```

mod axis;
mod bars;
mod heat_map;
mod intervals;
mod lines;
mod palette;
mod plot;
mod scatter3d;
mod ternary;

pub use axis::Axis;
pub use bars::Bars;
pub use heat_map::HeatMap;
pub use intervals::Intervals;
pub use lines::{Lines, Series};
pub use palette::Style;
pub use plot::Plot;
pub use scatter3d::Scatter3d;
pub use ternary::Ternary;
