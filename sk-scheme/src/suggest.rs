//! Suggestions of the known name closest to a misspelt one.

/// The least similarity of a suggestion: normalised Damerau–Levenshtein, where `thurston` and
/// `thurstone` have 0.89.
const ALIKE: f64 = 0.6;

/// Returns the known name most similar to `name`, if one is similar enough.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The distance is at least the difference of the numbers of characters, which have one to four
    // bytes each. This spares the distance to a text of any length.
    let may_be_alike = |candidate: &&str| {
        let (shorter, longer) = (name.len().min(candidate.len()), name.len().max(candidate.len()));
        shorter as f64 >= ALIKE * longer as f64 / 4.0
    };
    known
        .into_iter()
        .filter(may_be_alike)
        .map(|candidate| (strsim::normalized_damerau_levenshtein(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Returns the hint for an error on an unknown name: the closest known name, or all known names.
pub fn hint<S: AsRef<str>>(name: &str, known: impl IntoIterator<Item = S>) -> String {
    let known: Vec<S> = known.into_iter().collect();
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    match closest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean \"{meant}\"?"),
        None if known.is_empty() => "none is known here".to_owned(),
        None => format!("known: {}", known.join(", ")),
    }
}

/// Parses `name` as one of the `known` choices. `what` names the kind of choice in errors.
///
/// # Errors
/// If there is no choice of this name. The error suggests one.
pub fn choice<T: Copy>(what: &str, name: &str, known: &[(&'static str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, choice)| *choice);
    found.ok_or_else(|| format!("unknown {what} \"{name}\"; {}", hint(name, known.iter().map(|(name, _)| name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["swiss-elo", "round-robin", "identity"];
        assert_eq!(hint("round-robbin", known), "did you mean \"round-robin\"?");
        assert_eq!(hint("Swiss-elo", known), "did you mean \"swiss-elo\"?");
        assert_eq!(hint("borda", known), "known: swiss-elo, round-robin, identity");
        assert_eq!(choice("link", "asinh", &[("asinh", 1), ("tanh", 2)]), Ok(1));
        assert_eq!(
            choice("link", "tan", &[("asinh", 1), ("tanh", 2)]),
            Err("unknown link \"tan\"; did you mean \"tanh\"?".to_owned())
        );
        assert_eq!(closest("helpfull", ["honest", "helpful", "harmless"]), Some("helpful"));
    }
}
