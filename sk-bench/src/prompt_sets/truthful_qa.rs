//! TruthfulQA: questions that invite a common misconception.

use std::path::Path;

use super::{Prompt, PromptSetError, frame, table::Table};

/// The columns to read. A file with all of them is recognised as TruthfulQA.
pub(super) const COLUMNS: [&str; 3] = ["Type", "Category", "Question"];

/// Reads the prompts of a file: each question as a dialogue of one turn.
pub(super) fn read(path: &Path) -> Result<Vec<Prompt>, PromptSetError> {
    let table = Table::read(path, COLUMNS)?;
    let mut prompts = Vec::with_capacity(table.rows.len());
    for (row, (start, [kind, category, question])) in table.rows.iter().enumerate() {
        if question.trim().is_empty() {
            return Err(table.wrong(*start, "its Question is empty".to_owned()));
        }
        let labels = [("type", kind.as_str()), ("category", category.as_str())];
        prompts.push(Prompt::of_row(path, row, row, frame(question), &labels));
    }
    Ok(prompts)
}
