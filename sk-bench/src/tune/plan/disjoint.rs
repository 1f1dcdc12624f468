//! A check that tuning prompts and evaluation prompts are disjoint.

use std::collections::HashMap;

use crate::prompt_sets::Prompt;
use crate::tune::TuneError;

/// Returns a prompt's text in lower case and with normalised white space, for comparison.
fn essence(prompt: &Prompt) -> String {
    prompt.prompt.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// Returns an error if a prompt is in both sets. Prompts are compared by text, without regard to
/// case and white space. Ids are not compared, because the same text may have several ids.
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
