//! Tests of the `swiss-knife` program: its output, its files and its errors.

mod arms;
mod axioms;
mod bad_input;
mod bench;
mod blades;
mod certify;
mod chat;
mod common;
mod compare;
#[allow(dead_code)] // shared with the tests of remote engines
#[path = "../../../sk-remote/tests/servers/fake.rs"]
mod fake;
mod generate;
mod heads;
#[allow(dead_code)] // shared with the tests of pages
#[path = "../../../sk-report/tests/page/html.rs"]
mod html;
mod init;
mod instructions;
#[allow(dead_code)] // shared with the tests of remote engines
#[path = "../../../sk-remote/tests/servers/model.rs"]
mod model;
mod remote;
mod report;
mod schemes;
mod serve;
mod simulate;
mod train;

/// Vocabulary size of the test servers, which is that of the tiny model's tokenizer.
const VOCABULARY: sk_core::TokenId = 259;
