use std::io;
use std::path::{Path, PathBuf};

use sk_core::{SpecError, StepError};
use sk_models::device::DeviceError;
use sk_models::dialogue::SessionError;
use sk_models::engine::EngineError;
use sk_models::hf::CheckpointError;
use sk_models::local::ModelError;
use sk_models::text::TextError;
use sk_models::train::TrainError;
use sk_remote::RemoteError;
use sk_serve::host::HostError;

use crate::interrupt;
use crate::judge::JudgeError;
use crate::pool::PoolError;
use crate::prompt_sets::PromptSetError;
use crate::ruler::RulerError;
use crate::scheme::SchemeError;
use crate::sweep::SweepError;
use crate::tune::TuneError;
use sk_report::page::PageError;
use sk_report::report::ReportError;
use sk_report::simulate::SimulationError;

/// An error of a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum Error {
    /// Models that cannot be loaded or used together.
    #[error(transparent)]
    Models(#[from] ModelError),
    /// Models, local or behind servers, that cannot be opened.
    #[error(transparent)]
    Host(Box<HostError>),
    /// An option that models behind servers do not support, or that they require.
    #[error("{option}: {reason}")]
    Remote { option: &'static str, reason: &'static str },
    /// A tokenizer or adapter that cannot be loaded.
    #[error(transparent)]
    Checkpoint(Box<CheckpointError>),
    /// A device that is not available.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A text that cannot be framed or tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A scheme that cannot be built.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// A blade has no adapter.
    #[error("blade \"{name}\" has no adapter; {hint}")]
    NoAdapter { name: String, hint: String },
    /// A blade has no head.
    #[error("blade \"{name}\" has no head; give --head {name}=DIR, or head = \"DIR\" in its section")]
    NoHead { name: String },
    /// A head was given for a blade that uses none.
    #[error(
        "--head {name} does not apply: blade \"{name}\" is of kind \"{kind}\"; use kind = \"discriminator\" or \"reward-head\""
    )]
    UnusedHead { name: String, kind: String },
    /// A head is of another kind than the scheme's blades use.
    #[error(
        "head \"{name}\" is of kind \"{found}\" and [blades.\"*\"] of kind \"{kind}\"; give a head of that kind, or a [blades.{name}] section"
    )]
    HeadTemplate { name: String, kind: String, found: String },
    /// A head is of another kind than its blade.
    #[error("blade \"{name}\" is of kind \"{kind}\" and its head of kind \"{found}\"; change one of the two")]
    HeadKind { name: String, kind: String, found: String },
    /// Invalid blades or weights.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A step that failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A dialogue that cannot be answered.
    #[error(transparent)]
    Session(SessionError),
    /// A model that failed outside a steered step.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An invalid option or chat command.
    #[error("{0}")]
    Usage(String),
    /// An empty prompt.
    #[error("the prompt is empty; give it as an argument, with --file, or on standard input")]
    EmptyPrompt,
    /// A dialogue that leaves no room for another response.
    #[error("the dialogue has {tokens} tokens and the model holds {limit}; /new starts another")]
    DialogueTooLong { tokens: usize, limit: usize },
    /// A measurement that exceeds the context length of the models.
    #[error("{prompt} prompt tokens and {new} new ones do not fit into {limit}; lower --prompt-tokens or --new-tokens")]
    NoRoom { prompt: usize, new: usize, limit: usize },
    /// A file or standard input that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// An address at which the server cannot listen.
    #[error("cannot listen at {address}: {source}; --port chooses another")]
    Listen { address: std::net::SocketAddr, source: io::Error },
    /// A key file without a key.
    #[error("{}: the file holds no key; write one into it", file.display())]
    EmptyKeyFile { file: PathBuf },
    /// A key file whose text no client can send.
    #[error("{}: the key holds a space, a line end or another character that a key cannot have", file.display())]
    KeyFile { file: PathBuf },
    /// A file without batches of scores.
    #[error("{file}: {reason}")]
    Batches { file: String, reason: String },
    /// A scheme whose choices have no certificate.
    #[error("no certificate: {reason}; give --delta and --audit to search for the largest change instead")]
    Uncertified { reason: String },
    /// A choice that is not a distribution, or that changes by more than its certificate allows.
    #[error("{reason}; the guarantee does not hold; this is a bug in the program or in an operator")]
    Unsound { reason: String },
    /// A file that cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// An output folder that is not empty or is not a folder.
    #[error("{} is there already; give a new or an empty folder", path.display())]
    NotEmpty { path: PathBuf },
    /// Preference pairs that cannot be found.
    #[error("preferences {name}: {reason}")]
    Preferences { name: String, reason: String },
    /// A folder that holds the blade of another model or of other preference pairs.
    #[error("{} holds a blade of {model}, from {pairs}; give another --output, or move it away", path.display())]
    OtherBlade { path: PathBuf, model: String, pairs: String },
    /// A folder that holds a blade of other options, pairs or weights.
    #[error("{} holds a blade that was made with {with}; repeat that, give another --output, or move it away", path.display())]
    OtherRecipe { path: PathBuf, with: String },
    /// An output that would overwrite an input.
    #[error("{} is an input and would be overwritten; give another output file", path.display())]
    Overwrites { path: PathBuf },
    /// Failed lines of a chat whose input is a file or a pipe.
    #[error("{failed} {} failed; see the messages above", if *failed == 1 { "line" } else { "lines" })]
    Lines { failed: usize },
    /// A write to standard output or the terminal failed.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
    /// Prompts that cannot be loaded.
    #[error(transparent)]
    Prompts(#[from] PromptSetError),
    /// Schemes that cannot share their candidates.
    #[error(transparent)]
    Pool(Box<PoolError>),
    /// A sweep that cannot start or continue.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// Judging that cannot start or continue.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// A search that cannot start or continue.
    #[error(transparent)]
    Tune(#[from] TuneError),
    /// Results that cannot be reported.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A page that cannot be rendered.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A simulation that contradicts a theorem or cannot be run.
    #[error(transparent)]
    Simulation(Box<SimulationError>),
    /// Something that cannot be measured.
    #[error(transparent)]
    Ruler(#[from] RulerError),
    /// Training failed.
    #[error(transparent)]
    Train(Box<TrainError>),
}

/// Boxes large errors.
macro_rules! boxed {
    ($($error:ident => $variant:ident),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

boxed!(CheckpointError => Checkpoint, PoolError => Pool, SimulationError => Simulation, TrainError => Train);

impl From<HostError> for Error {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Local(error) => Self::Models(error),
            error => Self::Host(Box::new(error)),
        }
    }
}

impl From<RemoteError> for Error {
    fn from(error: RemoteError) -> Self {
        HostError::from(error).into()
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::EmptyPrompt => Self::EmptyPrompt,
            SessionError::Step(error) => Self::Step(error),
            error => Self::Session(error),
        }
    }
}

/// Returns the exit status of a server error: 2 if other input would fix it.
fn exit_code_of(error: &RemoteError) -> u8 {
    match error {
        RemoteError::Address(_)
        | RemoteError::Refused { .. }
        | RemoteError::ContextFull { .. }
        | RemoteError::UnknownPolicy { .. }
        | RemoteError::EmptyContext { .. }
        | RemoteError::Unsupported { .. }
        | RemoteError::AdapterModule { .. }
        | RemoteError::AdapterRefused { .. }
        | RemoteError::Tokenizer { .. } => 2,
        _ => 1,
    }
}

impl Error {
    /// Returns a function that wraps an I/O error from reading `path`.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    /// Returns a function that wraps an I/O error from writing `path`.
    pub(crate) fn writing(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    /// Returns the exit status: 2 if the cause is the input or something that it names, 1 if it is
    /// the program or the machine, 130 after Ctrl-C.
    pub fn exit_code(&self) -> u8 {
        match self {
            // A theorem that does not hold is not caused by the input.
            Self::Output(_) | Self::Page(_) | Self::Simulation(_) | Self::Unsound { .. } => 1,
            Self::Sweep(SweepError::Replaced { .. }) => 1,
            _ if self.is_full_disk() => 1,
            Self::Judge(error) if error.is_interruption() => interrupt::EXIT_CODE,
            // Caused by the server; a retry may help.
            Self::Judge(error) if error.is_external() => 1,
            // Failed or untrustworthy servers are not caused by the input.
            Self::Host(error) => match &**error {
                HostError::Remote(error) => exit_code_of(error),
                _ => 2,
            },
            Self::Sweep(SweepError::Cell { source, .. }) | Self::Tune(TuneError::Trial { source, .. }) => source.exit_code(),
            Self::Pool(error) => match &**error {
                PoolError::Arm { source, .. } => source.exit_code(),
                PoolError::Step { .. } => 1,
                _ => 2,
            },
            Self::Step(StepError::EmptyContext | StepError::Unseated { .. }) => 2,
            // A device usually fails because it is out of memory, which other settings fix. The
            // same holds for a full context.
            Self::Step(StepError::Proposal(source) | StepError::Backbone(source)) => {
                if source.is::<EngineError>() {
                    2
                } else {
                    source.downcast_ref().map_or(1, exit_code_of)
                }
            }
            Self::Step(_) => 1,
            _ => 2,
        }
    }

    /// Returns whether a file could not be written for want of space.
    fn is_full_disk(&self) -> bool {
        match self {
            Self::Write { source, .. }
            | Self::Sweep(SweepError::Write { source, .. })
            | Self::Judge(JudgeError::Write { source, .. })
            | Self::Tune(TuneError::Write { source, .. }) => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
            }
            _ => false,
        }
    }

    /// Returns whether the reader of standard output closed it, as `head` does. This is not a
    /// failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_error_in_the_input() {
        let written = |kind: io::ErrorKind| {
            let (path, source) = (PathBuf::from("file"), || io::Error::from(kind));
            [
                Error::Write { path: path.clone(), source: source() },
                SweepError::Write { path: path.clone(), source: source() }.into(),
                JudgeError::Write { path: path.clone(), source: source() }.into(),
                TuneError::Write { path, source: source() }.into(),
            ]
        };
        assert!(written(io::ErrorKind::StorageFull).iter().all(|error| error.exit_code() == 1));
        assert!(written(io::ErrorKind::PermissionDenied).iter().all(|error| error.exit_code() == 2));
    }
}
