//! Reports on judged sweeps: tables computed from raw cells, and their rendering.
//!
//! [`RawResults`] holds the measurements: judged responses and candidate batches. [`Report::of`]
//! computes [`Table`]s from them, whose values stay numbers until they are rendered by
//! [`Report::plain`], [`Table::csv`], [`Table::latex`], or as JSON through serde. For the results
//! of the paper, the report compares every published number with the recomputed one.

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
pub use raw::{Ablation, CandidateStep, Classified, RawResults};
pub use recorded::{Recorded, Runs, Text};
pub use sweep::{Cell, Method, Sweep, WeightVector};

/// Groups items by key. Groups, and items within a group, keep the order of first occurrence.
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

/// Returns each item once, in order of first occurrence.
fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    grouped(items.into_iter().map(|item| (item, ()))).into_iter().map(|(item, _)| item).collect()
}
