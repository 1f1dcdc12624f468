//! XSTest: safe prompts that look unsafe, and unsafe ones that look alike.

use std::path::Path;

use super::{Prompt, PromptSetError, frame, table::Table};

/// The columns to read. A file with all of them is recognised as XSTest.
pub(super) const COLUMNS: [&str; 5] = ["id", "prompt", "type", "label", "focus"];

/// Reads the prompts of a file, each as a dialogue of one turn. `label` is `safe` or `unsafe`.
pub(super) fn read(path: &Path) -> Result<Vec<Prompt>, PromptSetError> {
    let table = Table::read(path, COLUMNS)?;
    let mut prompts = Vec::with_capacity(table.rows.len());
    for (row, (start, [id, prompt, kind, label, focus])) in table.rows.iter().enumerate() {
        if prompt.trim().is_empty() {
            return Err(table.wrong(*start, "its prompt is empty".to_owned()));
        }
        if !matches!(label.as_str(), "safe" | "unsafe") {
            return Err(table.wrong(*start, format!("its label is \"{label}\", not safe or unsafe")));
        }
        let labels = [("type", kind.as_str()), ("label", label.as_str()), ("focus", focus.as_str())];
        prompts.push(Prompt::of_row(path, row, id, frame(prompt), &labels));
    }
    Ok(prompts)
}
