//! The framing of HH-RLHF: `"\n\nHuman: …\n\nAssistant: …"`.

pub(super) use sk_models::text::ASSISTANT;
use sk_models::text::HUMAN;

/// Returns a question as a dialogue of one turn.
pub(super) fn frame(question: &str) -> String {
    format!("{HUMAN} {question}{ASSISTANT}")
}

/// Returns a dialogue up to and including its last `"
///
///
/// Assistant:"`, if it has one.
pub(super) fn before_last_answer(dialogue: &str) -> Option<&str> {
    dialogue.rfind(ASSISTANT).map(|start| &dialogue[..start + ASSISTANT.len()])
}

#[cfg(test)]
mod tests {
    use super::super::is_framed;
    use super::*;

    #[test]
    fn the_last_answer_is_cut_and_earlier_ones_stay() {
        let dialogue = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Bye\n\nAssistant: Farewell.";
        let prompt = before_last_answer(dialogue).unwrap();
        assert_eq!(prompt, "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Bye\n\nAssistant:");
        assert!(is_framed(prompt) && !is_framed(dialogue) && is_framed(&frame("Why?")));
        assert_eq!(before_last_answer("Human: Hi"), None);
    }
}
