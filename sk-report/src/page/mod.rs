//! A page of figures and tables: one HTML file that asks nobody for anything.
//!
//! [`Page`] holds sections of text, [`Figure`]s, [`Table`](crate::table::Table)s and [`Exchange`]s,
//! and [`Page::html`] writes them down with style, script and plotly.js inside. A content security
//! policy in the file forbids every request and every script but those two. The same page gives the
//! same bytes. What goes into it is text: the template escapes it.

mod block;
mod document;
mod figure;
mod prompt;
mod table;

pub use block::{Answer, Exchange, Fact, Section};
pub use document::{Page, PageError};
pub use figure::Figure;
