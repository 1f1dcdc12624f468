#![doc = include_str!("../README.md")]

pub mod chart;
pub mod grid;
pub mod lines;
pub mod objectives;
pub mod page;
pub mod points;
pub mod record;
pub mod report;
pub mod settings;
pub mod simulate;
pub mod stats;
pub mod table;
