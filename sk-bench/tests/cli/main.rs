//! The `swiss-knife` program as a user runs it: its output, its files, its errors.

mod arms;
mod axioms;
mod bad_input;
mod bench;
mod blades;
mod certify;
mod chat;
mod common;
mod compare;
mod generate;
mod heads;
#[allow(dead_code)] // shared with the tests of pages
#[path = "../../../sk-report/tests/page/html.rs"]
mod html;
mod init;
mod instructions;
mod report;
mod schemes;
mod serve;
mod simulate;
