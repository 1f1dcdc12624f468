/// Characters of a prompt that name it.
const CLIPPED: usize = 60;

/// The beginning of what a prompt asks, by which a page names it: the last turn of a dialogue in
/// the framing of HH-RLHF, and otherwise the text, on one line.
pub(super) fn clipped(prompt: &str) -> String {
    let turn = prompt.rsplit_once("Human:").map_or(prompt, |(_, turn)| turn);
    let turn = turn.trim().strip_suffix("Assistant:").unwrap_or(turn);
    let text = turn.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= CLIPPED {
        return text;
    }
    let beginning: String = text.chars().take(CLIPPED).collect();
    // A word is not cut if there is a space to cut at.
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
