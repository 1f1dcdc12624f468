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

/// Why a command did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum Error {
    /// Models that cannot be loaded or used together.
    #[error(transparent)]
    Models(#[from] ModelError),
    /// Models that cannot be had, wherever they run.
    #[error(transparent)]
    Host(Box<HostError>),
    /// An option that models behind servers do not have, or lack.
    #[error("{option}: {reason}")]
    Remote { option: &'static str, reason: &'static str },
    /// A tokenizer or adapter that cannot be loaded.
    #[error(transparent)]
    Checkpoint(Box<CheckpointError>),
    /// A device that cannot be had.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An adapter that cannot be loaded.
    #[error("blade \"{name}\": {source}")]
    Blade { name: String, source: Box<CheckpointError> },
    /// A text that cannot be framed or tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A scheme that cannot be built.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// Blades or weights that were refused.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A step that failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// A dialogue that cannot be answered.
    #[error(transparent)]
    Session(SessionError),
    /// A model that failed by itself, unsteered.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No model was named and none is built in.
    #[error("this build of the program holds no model; give --backbone DIR")]
    NothingEmbedded,
    /// An option, or a command of a chat, that cannot be obeyed.
    #[error("{0}")]
    Usage(String),
    /// A prompt without a character to continue.
    #[error("the prompt is empty; give it as an argument, with --file, or on standard input")]
    EmptyPrompt,
    /// A prompt that leaves no room for a response.
    #[error("the prompt has {tokens} tokens and the model holds {limit}; shorten the prompt")]
    PromptTooLong { tokens: usize, limit: usize },
    /// A dialogue that leaves no room for another response.
    #[error("the dialogue has {tokens} tokens and the model holds {limit}; /new starts another")]
    DialogueTooLong { tokens: usize, limit: usize },
    /// More to measure than the models hold.
    #[error("{prompt} prompt tokens and {new} new ones do not fit into {limit}; lower --prompt-tokens or --new-tokens")]
    NoRoom { prompt: usize, new: usize, limit: usize },
    /// A file or standard input that cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// An address that cannot be served at.
    #[error("cannot listen at {address}: {source}; --port chooses another")]
    Listen { address: std::net::SocketAddr, source: io::Error },
    /// A file of a key that cannot be read.
    #[error("{}: {source}", file.display())]
    KeyFile { file: PathBuf, source: io::Error },
    /// A file of a key that holds none.
    #[error("{}: the file holds no key; write one into it", file.display())]
    EmptyKeyFile { file: PathBuf },
    /// A file without batches of scores.
    #[error("{file}: {reason}")]
    Batches { file: String, reason: String },
    /// A scheme whose choices have no certificate.
    #[error("no certificate: {reason}; --audit searches for the worst jump instead")]
    Uncertified { reason: String },
    /// A choice that is none, or that moves further than its certificate allows.
    #[error("{reason}; the guarantee does not hold here, which is a fault of the program or of an operator")]
    Unsound { reason: String },
    /// A file that cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A folder that is to be filled and holds something, or is no folder.
    #[error("{} is there already; give a new or an empty folder", path.display())]
    NotEmpty { path: PathBuf },
    /// Pairs that cannot be found.
    #[error("preferences {name}: {reason}")]
    Preferences { name: String, reason: String },
    /// A folder that holds the blade of another model or of other pairs.
    #[error("{} holds a blade of {model}, from {pairs}; give another --output, or move it away", path.display())]
    OtherBlade { path: PathBuf, model: String, pairs: String },
    /// An output that would take the place of an input.
    #[error("{} is read, and would be overwritten by what is written; give another file", path.display())]
    Overwrites { path: PathBuf },
    /// Lines of a dialogue that came from a file or a pipe, and were not obeyed.
    #[error("{failed} of the lines had no effect; what is wrong with each is said above")]
    Lines { failed: usize },
    /// Standard output or the terminal failed.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
    /// Prompts that cannot be had.
    #[error(transparent)]
    Prompts(#[from] PromptSetError),
    /// Schemes that cannot share their candidates.
    #[error(transparent)]
    Pool(Box<PoolError>),
    /// A sweep that cannot start or go on.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// Judging that cannot start or go on.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// A search that cannot start or go on.
    #[error(transparent)]
    Tune(#[from] TuneError),
    /// Results that cannot be reported.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A page that cannot be made.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A simulation that contradicts a theorem, or cannot be done.
    #[error(transparent)]
    Simulation(Box<SimulationError>),
    /// Something that cannot be measured.
    #[error(transparent)]
    Ruler(#[from] RulerError),
    /// Training failed.
    #[error(transparent)]
    Train(Box<TrainError>),
}

impl From<CheckpointError> for Error {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(Box::new(error))
    }
}

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

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Self {
        Self::Pool(Box::new(error))
    }
}

impl From<TrainError> for Error {
    fn from(error: TrainError) -> Self {
        Self::Train(Box::new(error))
    }
}

impl From<SimulationError> for Error {
    fn from(error: SimulationError) -> Self {
        Self::Simulation(Box::new(error))
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::EmptyPrompt => Self::EmptyPrompt,
            SessionError::PromptTooLong { tokens, limit } => Self::PromptTooLong { tokens, limit },
            SessionError::Step(error) => Self::Step(error),
            error => Self::Session(error),
        }
    }
}

/// The exit status of what went wrong with servers: 2 where other input cures it.
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
    /// Blames a file for what went wrong while it was read.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    /// Blames a file for what went wrong while it was written.
    pub(crate) fn writing(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    /// The exit status: 2 where the input or what it names is at fault, 1 where the program or the
    /// machine is, 130 after Ctrl-C.
    pub fn exit_code(&self) -> u8 {
        match self {
            // A theorem that does not hold is no fault of the input.
            Self::Output(_) | Self::Page(_) | Self::Simulation(_) | Self::Unsound { .. } => 1,
            Self::Sweep(SweepError::Replaced { .. }) => 1,
            Self::Judge(error) if error.is_interruption() => interrupt::EXIT_CODE,
            // The server's fault; run again.
            Self::Judge(error) if error.is_external() => 1,
            // Servers that fail, or that cannot be trusted, are no fault of the input.
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
            // A device that fails is most often out of memory, which other settings cure; so is a
            // context that is full.
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

    /// Whether the reader of standard output went away, as `head` does: no fault of anybody's.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// The message on one line, whatever the sources put into theirs.
    pub fn one_line(&self) -> String {
        self.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
