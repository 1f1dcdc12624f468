//! TruthfulQA: questions that invite a common misconception.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Prompt, PromptSetError, framing, naming, table::Table};

/// The columns read; a file with all of them is TruthfulQA.
pub(super) const COLUMNS: [&str; 3] = ["Type", "Category", "Question"];

/// The prompts of a file: each question as a dialogue of one turn.
pub(super) fn read(path: &Path) -> Result<Vec<Prompt>, PromptSetError> {
    let stem = naming::stem(path);
    let table = Table::read(path, COLUMNS)?;
    let mut prompts = Vec::with_capacity(table.rows.len());
    for (row, (start, [kind, category, question])) in table.rows.iter().enumerate() {
        if question.trim().is_empty() {
            return Err(table.wrong(*start, "its Question is empty".to_owned()));
        }
        prompts.push(Prompt {
            id: format!("{stem}:{row}"),
            prompt: framing::frame(question),
            source: naming::name(path),
            row,
            labels: BTreeMap::from([("type".to_owned(), kind.clone()), ("category".to_owned(), category.clone())]),
        });
    }
    Ok(prompts)
}
