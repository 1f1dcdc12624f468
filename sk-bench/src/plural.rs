//! Nouns after numbers.

/// Returns a count with its noun: `1 step`, `2 steps`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|count| super::counted(count, "step")), ["0 steps", "1 step", "2 steps"]);
    }
}
