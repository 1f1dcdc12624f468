/// The most characters of a prompt that are shown as its name.
const CLIPPED: usize = 60;

/// Returns the beginning of a prompt on one line, as its name on a page. For a dialogue in the
/// HH-RLHF format this is the last human turn.
pub(super) fn clipped(prompt: &str) -> String {
    let turn = prompt.rsplit_once("Human:").map_or(prompt, |(_, turn)| turn);
    let turn = turn.trim().strip_suffix("Assistant:").unwrap_or(turn);
    let text = turn.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= CLIPPED {
        return text;
    }
    let beginning: String = text.chars().take(CLIPPED).collect();
    // Cut at a space if there is one.
    let end = beginning.rfind(' ').unwrap_or(beginning.len());
    format!("{}…", &beginning[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_named_by_what_it_asks() {
        assert_eq!(clipped("  Why is\n the sky blue?\n"), "Why is the sky blue?");
        assert_eq!(clipped("\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: And now?\n\nAssistant:"), "And now?");
        let long = clipped(&"word ".repeat(40));
        assert!(long.ends_with(" word…") && long.chars().count() <= CLIPPED + 1, "{long}");
        assert_eq!(clipped(&"ö".repeat(70)), format!("{}…", "ö".repeat(60)));
        assert_eq!(clipped(""), "");
    }
}
