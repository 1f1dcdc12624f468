use std::path::PathBuf;

/// The reason why a scheme cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// The file cannot be read.
    #[error("cannot read scheme {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The name is neither a file nor a shipped scheme.
    #[error("unknown scheme \"{name}\"; {hint}")]
    NoScheme {
        /// The name.
        name: String,
        /// The closest known name, or all known names.
        hint: String,
    },
    /// A plan lacks a required section.
    #[error("{file}: there is no [{section}] section; {hint}")]
    Missing {
        /// The plan.
        file: String,
        /// The section.
        section: &'static str,
        /// What the section would contain.
        hint: String,
    },
    /// The text is not TOML.
    #[error("{}: {message}", at(file, *line))]
    Syntax {
        /// The file.
        file: String,
        /// The line, from 1; 0 for an option.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// A slot, kind, field or choice that does not exist.
    #[error("{}: unknown {what} \"{name}\"; {hint}", at(file, *line))]
    Unknown {
        /// The file.
        file: String,
        /// The line, from 1; 0 for an option.
        line: usize,
        /// The kind of name, such as `aggregator` or `field of [selector]`.
        what: String,
        /// The name found.
        name: String,
        /// The closest known name, or all known names.
        hint: String,
    },
    /// A value has the wrong type or is out of range.
    #[error("{}: {place}: {reason}", at(file, *line))]
    Value {
        /// The file.
        file: String,
        /// The line, from 1; 0 for an option.
        line: usize,
        /// The slot and the field.
        place: String,
        /// The error.
        reason: String,
    },
    /// A parameter given on the command line is out of range.
    #[error("{slot}: {reason}")]
    Parameter {
        /// The slot.
        slot: &'static str,
        /// The error.
        reason: String,
    },
    /// A command-line option does not apply to the scheme.
    #[error("--{option} does not apply: the {slot} is \"{kind}\"")]
    Inapplicable {
        /// The option, without dashes.
        option: &'static str,
        /// The slot that it would set.
        slot: &'static str,
        /// The kind of the slot.
        kind: &'static str,
    },
    /// A blade has no adapter.
    #[error("blade \"{name}\" has no adapter; {hint}")]
    NoAdapter {
        /// The blade.
        name: String,
        /// How to fix it.
        hint: String,
    },
    /// A blade has no head.
    #[error("blade \"{name}\" has no head; give --head {name}=DIR, or head = \"DIR\" in its section")]
    NoHead {
        /// The blade.
        name: String,
    },
    /// A head was given for a blade that uses none.
    #[error(
        "--head {name} does not apply: blade \"{name}\" is of kind \"{kind}\"; use kind = \"discriminator\" or \"reward-head\""
    )]
    UnusedHead {
        /// The blade.
        name: String,
        /// Its kind.
        kind: &'static str,
    },
    /// An option gives two values for one name.
    #[error("--{option} gives \"{name}\" twice; give each a name of its own")]
    GivenTwice {
        /// The option, without dashes.
        option: &'static str,
        /// The name.
        name: String,
    },
    /// A head is of another kind than the scheme's blades use.
    #[error(
        "head \"{name}\" is of kind \"{found}\" and [blades.\"*\"] of kind \"{kind}\"; give a head of that kind, or a [blades.{name}] section"
    )]
    HeadTemplate {
        /// The head.
        name: String,
        /// The kind of the blades without a section.
        kind: &'static str,
        /// The kind of blade that the head is for.
        found: &'static str,
    },
    /// A gate refers to a blade that is not seated.
    #[error(
        "[selector.gates.{name}]: no blade \"{name}\" is seated (seated: {seated}); seat one, give on = \"score\", or remove the gate"
    )]
    Gate {
        /// The gate, which has the name of its blade.
        name: String,
        /// The names of the seated blades, comma-separated.
        seated: String,
    },
    /// The engine cannot make the candidates of the scheme.
    #[error(transparent)]
    Engine(sk_core::BoxError),
    /// A head is of another kind than its blade.
    #[error("blade \"{name}\" is of kind \"{kind}\" and its head of kind \"{found}\"; change one of the two")]
    HeadKind {
        /// The blade.
        name: String,
        /// Its kind.
        kind: &'static str,
        /// The kind of blade that its head is for.
        found: &'static str,
    },
    /// Two blades are of kind `fluency`.
    #[error("blades \"{first}\" and \"{second}\" are both of kind \"fluency\"; a scheme has at most one")]
    TwoFluencyBlades {
        /// The first blade.
        first: String,
        /// The second blade.
        second: String,
    },
    /// No blade is seated.
    #[error(
        "no blade is seated; give an instruction with --blade NAME=\"instruction:TEXT\", an adapter with --blade NAME=DIR (swiss-knife \
         blades trains one), or a [blades] section"
    )]
    NoBlade,
    /// The blades or weights do not form an alignment specification Ω.
    #[error(transparent)]
    Spec(#[from] sk_core::SpecError),
}

/// A line of a file, or an option.
fn at(file: &str, line: usize) -> String {
    if line == 0 { file.to_owned() } else { format!("{file}:{line}") }
}
