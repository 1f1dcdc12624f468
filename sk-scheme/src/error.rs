use std::path::PathBuf;

/// A scheme that cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// The file cannot be read.
    #[error("cannot read scheme {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A name that is neither a file nor a scheme that ships.
    #[error("unknown scheme \"{name}\"; {hint}")]
    NoScheme {
        /// The name.
        name: String,
        /// The closest name known, or all.
        hint: String,
    },
    /// A plan without a section that it needs.
    #[error("{file}: there is no [{section}] section; {hint}")]
    Missing {
        /// The plan.
        file: String,
        /// The section.
        section: &'static str,
        /// What it would say.
        hint: String,
    },
    /// The text is not TOML.
    #[error("{}: {message}", at(file, *line))]
    Syntax {
        /// The file.
        file: String,
        /// Line, from 1; 0 for an option.
        line: usize,
        /// What the parser found.
        message: String,
    },
    /// A slot, kind, field or choice that does not exist.
    #[error("{}: unknown {what} \"{name}\"; {hint}", at(file, *line))]
    Unknown {
        /// The file.
        file: String,
        /// Line, from 1; 0 for an option.
        line: usize,
        /// What it would have been, such as `aggregator` or `field of [selector]`.
        what: String,
        /// The name found.
        name: String,
        /// The closest name known, or all.
        hint: String,
    },
    /// A value of another type or outside its range.
    #[error("{}: {place}: {reason}", at(file, *line))]
    Value {
        /// The file.
        file: String,
        /// Line, from 1; 0 for an option.
        line: usize,
        /// Slot and field.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// A parameter given on the command line is outside its range.
    #[error("{slot}: {reason}")]
    Parameter {
        /// The slot.
        slot: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A command-line option for a part that the scheme does not have.
    #[error("--{option} does not apply: the {slot} is \"{kind}\"")]
    Inapplicable {
        /// The option, without dashes.
        option: &'static str,
        /// The slot it would set.
        slot: &'static str,
        /// What fills the slot.
        kind: &'static str,
    },
    /// A blade without an adapter.
    #[error("blade \"{name}\" has no adapter; {hint}")]
    NoAdapter {
        /// The blade.
        name: String,
        /// What to do.
        hint: String,
    },
    /// A blade without a head.
    #[error("blade \"{name}\" has no head; give --head {name}=DIR, or head = \"DIR\" in its section")]
    NoHead {
        /// The blade.
        name: String,
    },
    /// A head for a blade that reads none.
    #[error(
        "--head {name} does not apply: blade \"{name}\" is of kind \"{kind}\"; use kind = \"discriminator\" or \"reward-head\""
    )]
    UnusedHead {
        /// The blade.
        name: String,
        /// Its kind.
        kind: &'static str,
    },
    /// An option that gives two things of one name.
    #[error("--{option} gives \"{name}\" twice; give each a name of its own")]
    GivenTwice {
        /// The option, without dashes.
        option: &'static str,
        /// The name.
        name: String,
    },
    /// A head of another kind than those that a scheme reads.
    #[error(
        "head \"{name}\" is of kind \"{found}\" and [blades.\"*\"] of kind \"{kind}\"; give a head of that kind, or a [blades.{name}] section"
    )]
    HeadTemplate {
        /// The head.
        name: String,
        /// The kind of the blades without a section.
        kind: &'static str,
        /// The kind of blade that the head makes.
        found: &'static str,
    },
    /// A gate on a blade that has no seat.
    #[error(
        "[selector.gates.{name}]: no blade \"{name}\" is seated (seated: {seated}); seat one, give on = \"score\", or remove the gate"
    )]
    Gate {
        /// The gate, and the blade that it looks at.
        name: String,
        /// The names seated, comma-separated.
        seated: String,
    },
    /// An engine that cannot make the candidates of the scheme.
    #[error(transparent)]
    Engine(sk_core::BoxError),
    /// A head of another kind than its blade.
    #[error("blade \"{name}\" is of kind \"{kind}\" and its head of kind \"{found}\"; change one of the two")]
    HeadKind {
        /// The blade.
        name: String,
        /// Its kind.
        kind: &'static str,
        /// The kind of blade that its head makes.
        found: &'static str,
    },
    /// Two fluency blades.
    #[error("blades \"{first}\" and \"{second}\" are both of kind \"fluency\"; a scheme has at most one")]
    TwoFluencyBlades {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// No blade to weigh.
    #[error(
        "no blade is seated; give an instruction with --blade NAME=\"instruction:TEXT\", an adapter with --blade NAME=DIR (swiss-knife \
         blades trains one), or a [blades] section"
    )]
    NoBlade,
    /// Blades or weights that Ω refuses.
    #[error(transparent)]
    Spec(#[from] sk_core::SpecError),
}

/// A line of a file, or an option.
fn at(file: &str, line: usize) -> String {
    if line == 0 { file.to_owned() } else { format!("{file}:{line}") }
}
