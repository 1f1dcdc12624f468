//! The `swiss-knife` program as a user runs it: its output, its files, its errors.

mod bad_input;
mod chat;
mod common;
mod generate;
