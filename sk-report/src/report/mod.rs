//! Reports on judged sweeps: from raw cells to tables, and from tables to text.
//!
//! [`RawResults`] are what was measured: judged responses, and candidate batches. [`Report::of`]
//! makes [`Table`]s of them, whose values are numbers until a renderer prints them:
//! [`Report::plain`], [`Table::csv`], [`Table::latex`], or JSON through serde. Where the results
//! are those of the paper, the report holds every published figure beside the one that follows from
//! the cells.

mod contrast;
mod document;
mod error;
mod examples;
mod mechanism;
mod page;
mod published;
mod raw;
mod recorded;
mod sweep;
mod tables;

pub use crate::table::{Column, Kind, Table, Value};
pub use contrast::{Contrast, Resampling};
pub use document::Report;
pub use error::ReportError;
pub use examples::Example;
pub use mechanism::{BladeSpread, Choice, Mechanism};
pub use published::{Comparison, Ledger, Verdict};
pub use raw::{Ablation, Arm, CandidateStep, Classified, RawResults};
pub use recorded::{Recorded, Runs, Text};
pub use sweep::{Cell, Method, Sweep, WeightVector};

/// Items by what they share, groups and their items in the order in which they occur.
fn grouped<K: PartialEq, T>(items: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, item) in items {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}
