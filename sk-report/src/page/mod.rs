//! A page of figures and tables: one self-contained HTML file.
//!
//! [`Page`] holds sections of text, [`Figure`]s, [`Table`](crate::table::Table)s and [`Exchange`]s.
//! [`Page::html`] renders them with the style sheet, the scripts and plotly.js inlined. A content
//! security policy in the file forbids all network requests and all scripts but the inlined ones.
//! Equal pages give identical bytes. All content is plain text, which the template escapes.

mod block;
mod document;
mod figure;
mod prompt;
mod table;

pub use block::{Answer, Exchange, Fact, Section};
pub use document::{Page, PageError};
pub use figure::Figure;
