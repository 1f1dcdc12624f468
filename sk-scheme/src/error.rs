use std::path::PathBuf;

/// The reason why a scheme cannot be built. Lines count from 1; line 0 stands for an option.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum SchemeError {
    /// The file cannot be read.
    #[error("cannot read scheme {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The name is neither a file nor a shipped scheme.
    #[error("unknown scheme \"{name}\"; {hint}")]
    NoScheme { name: String, hint: String },
    /// A plan lacks a required section.
    #[error("{file}: there is no [{section}] section; {hint}")]
    Missing { file: String, section: &'static str, hint: String },
    /// The text is not TOML.
    #[error("{}: {message}", at(file, *line))]
    Syntax { file: String, line: usize, message: String },
    /// A slot, kind, field or choice that does not exist.
    #[error("{}: unknown {what} \"{name}\"; {hint}", at(file, *line))]
    Unknown { file: String, line: usize, what: String, name: String, hint: String },
    /// A value has the wrong type or is out of range.
    #[error("{}: {place}: {reason}", at(file, *line))]
    Value { file: String, line: usize, place: String, reason: String },
    /// A parameter given on the command line is out of range.
    #[error("{slot}: {reason}")]
    Parameter { slot: &'static str, reason: String },
    /// A number does not apply to the scheme. `option` is its command-line option or its name.
    #[error("{option} does not apply: the {slot} is \"{kind}\"")]
    Inapplicable { option: String, slot: &'static str, kind: String },
    /// An option gives a name that is in use.
    #[error("--{option}: \"{name}\" is the name of another {option}; give each a name of its own")]
    GivenTwice { option: &'static str, name: String },
    /// A gate refers to a blade that is not seated.
    #[error(
        "[selector.gates.{name}]: no blade \"{name}\" is seated (seated: {seated}); seat one, give on = \"score\", or remove the gate"
    )]
    Gate { name: String, seated: String },
    /// A blade that a gate is on would be unseated.
    #[error("a gate is on blade \"{name}\", so it cannot be unseated; give it weight 0")]
    Gated { name: String },
    /// A gate is on the fluency, and there is no fluency blade.
    #[error("[selector.gates.{name}]: no blade of kind \"fluency\" is seated; seat one, give on = \"score\", or remove the gate")]
    FluencyGate { name: String },
    /// The engine cannot make the candidates of the scheme.
    #[error(transparent)]
    Engine(sk_core::BoxError),
    /// Two blades are of kind `fluency`.
    #[error("blades \"{first}\" and \"{second}\" are both of kind \"fluency\"; a scheme has at most one")]
    TwoFluencyBlades { first: String, second: String },
    /// The name of a blade is that of a lane of another blade.
    #[error("blades \"{first}\" and \"{second}\" would both read the lane \"{lane}\"; rename one of them")]
    SharedLane { first: String, second: String, lane: String },
    /// No blade is seated.
    #[error(
        "no blade is seated; give an instruction with --blade NAME=\"instruction:TEXT\", an adapter with --blade NAME=DIR (swiss-knife \
         blades trains one), or a [blades] section"
    )]
    NoBlade,
    /// The blades of the scheme have heads, and none of these is seated.
    #[error(
        "the blades of this scheme are of kind \"{kind}\", and none is seated; give a head with --head NAME=DIR, or [model.heads] of a \
         plan (`swiss-knife train` makes one)"
    )]
    NoHead { kind: String },
    /// The blades or weights do not form an alignment specification Ω.
    #[error(transparent)]
    Spec(#[from] sk_core::SpecError),
}

/// A line of a file, or an option.
fn at(file: &str, line: usize) -> String {
    if line == 0 { file.to_owned() } else { format!("{file}:{line}") }
}
