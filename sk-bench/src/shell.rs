//! Quoting for shell commands that are printed.

/// Quotes a text as one shell word.
pub(crate) fn word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | ':' | '=' | '@' | '+' | ',' | '%');
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_text_stays_one_word() {
        for (text, word) in [
            ("a/b-c_1.toml", "a/b-c_1.toml"),
            ("c++,50%", "c++,50%"),
            ("my runs", "'my runs'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
            ("", "''"),
        ] {
            assert_eq!(super::word(text), word);
        }
    }
}
