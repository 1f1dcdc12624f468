//! The `swiss-knife` program.

fn main() {}
