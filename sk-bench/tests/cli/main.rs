//! The `swiss-knife` program as a user runs it: its output, its files, its errors.

mod axioms;
mod bad_input;
mod bench;
mod certify;
mod chat;
mod common;
mod generate;
mod heads;
mod report;
mod simulate;
