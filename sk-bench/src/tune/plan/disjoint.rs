//! Prompts to tune on are none of those to evaluate on.

use std::collections::HashMap;

use crate::prompt_sets::Prompt;
use crate::tune::TuneError;

/// A prompt's text without what does not tell two prompts apart.
fn essence(prompt: &Prompt) -> String {
    prompt.prompt.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Refuses prompts that are in both sets, by their text but for case and white space: ids name
/// places, and the same text has several.
pub(super) fn disjoint(tuned: &[Prompt], evaluated: &[Prompt]) -> Result<(), TuneError> {
    let kept: HashMap<String, &str> = evaluated.iter().map(|prompt| (essence(prompt), prompt.id.as_str())).collect();
    let shared = |prompt: &Prompt| kept.get(&essence(prompt)).map(|id| (prompt.id.clone(), (*id).to_owned()));
    let mut shared: Vec<(String, String)> = tuned.iter().filter_map(shared).collect();
    let count = shared.len();
    if count == 0 {
        return Ok(());
    }
    let (tuned_id, evaluated) = shared.swap_remove(0);
    Err(TuneError::Overlap { count, prompts: tuned.len(), tuned: tuned_id, evaluated })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn prompt(id: &str, text: &str) -> Prompt {
        Prompt { id: id.to_owned(), prompt: text.to_owned(), source: String::new(), row: 0, labels: BTreeMap::new() }
    }

    #[test]
    fn a_prompt_in_both_sets_is_found_by_its_text() {
        let tuned = [prompt("a", "\n\nHuman: Hi\n\nAssistant:"), prompt("b", "\n\nHuman: Go  on\n\nAssistant:")];
        disjoint(&tuned, &[prompt("a", "\n\nHuman: another text under the same id\n\nAssistant:")]).unwrap();
        let error = disjoint(&tuned, &[prompt("x", "\n\nHuman: go on \n\nAssistant:")]).unwrap_err();
        assert!(
            matches!(&error, TuneError::Overlap { count: 1, prompts: 2, tuned, evaluated } if tuned == "b" && evaluated == "x"),
            "{error}"
        );
    }
}
