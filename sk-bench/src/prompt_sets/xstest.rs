//! XSTest: safe prompts that look unsafe, and unsafe ones that look alike.

use std::collections::BTreeMap;
use std::path::Path;

use super::{Prompt, PromptSetError, framing, naming, table::Table};

/// The columns read; a file with all of them is XSTest.
pub(super) const COLUMNS: [&str; 5] = ["id", "prompt", "type", "label", "focus"];

/// The prompts of a file, each as a dialogue of one turn. `label` is `safe` or `unsafe`.
pub(super) fn read(path: &Path) -> Result<Vec<Prompt>, PromptSetError> {
    let stem = naming::stem(path);
    let table = Table::read(path, COLUMNS)?;
    let mut prompts = Vec::with_capacity(table.rows.len());
    for (row, (start, [id, prompt, kind, label, focus])) in table.rows.iter().enumerate() {
        if prompt.trim().is_empty() {
            return Err(table.wrong(*start, "its prompt is empty".to_owned()));
        }
        if !matches!(label.as_str(), "safe" | "unsafe") {
            return Err(table.wrong(*start, format!("its label is \"{label}\", not safe or unsafe")));
        }
        prompts.push(Prompt {
            id: format!("{stem}:{id}"),
            prompt: framing::frame(prompt),
            source: naming::name(path),
            row,
            labels: BTreeMap::from([
                ("type".to_owned(), kind.clone()),
                ("label".to_owned(), label.clone()),
                ("focus".to_owned(), focus.clone()),
            ]),
        });
    }
    Ok(prompts)
}
