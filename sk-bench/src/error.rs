use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::{io, iter};

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
use crate::models::REMOTE_KEY;
use crate::record_file::RecordFileError;
use crate::scheme::SchemeError;
use sk_report::page::PageError;
use sk_report::record::RecordError;
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
    /// A tokenizer or adapter that cannot be loaded.
    #[error(transparent)]
    Checkpoint(Box<CheckpointError>),
    /// A device that is not available.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A text that cannot be framed or tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A scheme or a plan that cannot be read or built.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
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
    /// Invalid input: an option, a file, or what another program answers.
    #[error("{0}")]
    Input(String),
    /// An empty prompt.
    #[error("the prompt is empty; give it as an argument, with --file, or on standard input")]
    EmptyPrompt,
    /// A choice that is not a distribution, or that changes by more than its certificate allows.
    #[error("{reason}; the guarantee does not hold; this is a bug in the program or in an operator")]
    Unsound { reason: String },
    /// A file that cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A write to standard output or the terminal failed.
    #[error("cannot write to standard output: {0}")]
    Output(#[source] io::Error),
    /// A file cannot be read, or one of its lines is not valid.
    #[error(transparent)]
    Records(#[from] RecordError),
    /// A file of records that cannot be used.
    #[error(transparent)]
    File(#[from] RecordFileError),
    /// An output of a sweep that was deleted or replaced while the sweep ran.
    #[error("{} was deleted or replaced while the sweep ran; {cure}", path.display())]
    Replaced { path: PathBuf, cure: &'static str },
    /// An error of a part of the work, such as a cell of a sweep.
    #[error("{what}: {source}")]
    Within { what: String, source: Box<Self> },
    /// Judging that cannot start or continue.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// Results that cannot be reported.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A page that cannot be rendered.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A simulation that contradicts a theorem or cannot be run.
    #[error(transparent)]
    Simulation(Box<SimulationError>),
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

boxed!(CheckpointError => Checkpoint, SimulationError => Simulation, TrainError => Train);

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
        | RemoteError::AdapterKnown { .. }
        | RemoteError::Tokenizer { .. } => 2,
        RemoteError::Stopped { .. } => interrupt::EXIT_CODE,
        _ => 1,
    }
}

/// Returns whether a file could not be written for want of space.
fn is_full_disk(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => true,
        // The system refuses to write so much. The program itself refuses to read too long a text.
        io::ErrorKind::FileTooLarge => error.raw_os_error().is_some(),
        _ => false,
    }
}

impl Error {
    /// Returns a function that wraps an I/O error from reading `path`.
    pub(crate) fn reading(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| RecordError::reading(path)(source).into()
    }

    /// Returns a function that wraps an I/O error from writing `path`.
    pub(crate) fn writing(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write { path: path.to_owned(), source }
    }

    /// Returns an error that says that the system does not start a thread.
    #[must_use]
    pub fn starting_threads(error: impl Display) -> Self {
        Self::Input(format!("cannot start threads: {error}; raise the limits of this process"))
    }

    /// Returns the error with the part of the work that it concerns.
    pub(crate) fn within(self, what: impl Into<String>) -> Self {
        Self::Within { what: what.into(), source: Box::new(self) }
    }

    /// Returns the error of the model servers, if it is the cause.
    fn remote(&self) -> Option<&RemoteError> {
        match self {
            Self::Host(error) => match &**error {
                HostError::Remote(error) => Some(error),
                _ => None,
            },
            Self::Step(StepError::Proposal(source) | StepError::Backbone(source)) => source.downcast_ref(),
            Self::Within { source, .. } => source.remote(),
            _ => None,
        }
    }

    /// Returns the message. If model servers refuse the key, the message names the variable that holds
    /// the key.
    pub fn message(&self) -> String {
        match self.remote() {
            Some(RemoteError::Refused { status: 401 | 403, .. }) => format!("{self} ({REMOTE_KEY})"),
            _ => self.to_string(),
        }
    }

    /// Returns the exit status: 2 if the cause is the input or something that it names, 1 if it is
    /// the program or the machine, 130 after Ctrl-C.
    pub fn exit_code(&self) -> u8 {
        let mut causes = iter::successors(std::error::Error::source(self), |&cause| cause.source());
        if causes.any(|cause| cause.downcast_ref().is_some_and(is_full_disk)) {
            return 1;
        }
        match self {
            // A theorem that does not hold is not caused by the input.
            Self::Output(_) | Self::Page(_) | Self::Simulation(_) | Self::Unsound { .. } | Self::Replaced { .. } => 1,
            // Another process has the file or the folder.
            Self::File(RecordFileError::Locked { .. }) | Self::Judge(JudgeError::File(RecordFileError::Locked { .. })) => 1,
            Self::Train(error) if matches!(**error, TrainError::Busy { .. }) => 1,
            Self::Judge(JudgeError::Interrupted) => interrupt::EXIT_CODE,
            // Caused by the server; a retry may help.
            Self::Judge(error) if error.is_external() => 1,
            // Failed or untrustworthy servers are not caused by the input.
            Self::Host(error) => match &**error {
                HostError::Remote(error) => exit_code_of(error),
                _ => 2,
            },
            Self::Within { source, .. } => source.exit_code(),
            Self::Step(StepError::EmptyContext | StepError::Unseated { .. } | StepError::NoEntropy) => 2,
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

    /// Returns whether the reader of standard output closed it, as `head` does. This is not a
    /// failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

#[cfg(test)]
mod tests {
    use sk_models::hf::HubError;

    use super::*;

    #[test]
    fn a_full_disk_is_no_error_in_the_input() {
        let written = |kind: io::ErrorKind| {
            let (path, source) = (PathBuf::from("file"), || io::Error::from(kind));
            let file = || RecordFileError::Write { path: path.clone(), source: source() };
            let checkpoint = || CheckpointError::Io { action: "write", path: path.clone(), source: source() };
            [
                Error::Write { path: path.clone(), source: source() },
                RecordFileError::Open { path: path.clone(), source: source() }.into(),
                file().into(),
                JudgeError::from(file()).into(),
                JudgeError::Cache { path: path.clone(), source: source() }.into(),
                Error::from(file()).within("trial 0"),
                TrainError::Io { path: "file".to_owned(), source: source() }.into(),
                TrainError::from(checkpoint()).into(),
                checkpoint().into(),
                CheckpointError::from(HubError::Io { action: "write", path: path.clone(), source: source() }).into(),
            ]
        };
        for (kind, code) in [
            (io::ErrorKind::StorageFull, 1),
            (io::ErrorKind::PermissionDenied, 2),
            // A line that is too long to be read.
            (io::ErrorKind::FileTooLarge, 2),
        ] {
            for error in written(kind) {
                assert_eq!(error.exit_code(), code, "{error:?}");
            }
        }
    }

    #[test]
    fn what_another_process_has_is_no_error_in_the_input() {
        let locked = || RecordFileError::Locked { path: PathBuf::from("file") };
        let busy = TrainError::Busy { path: "folder".to_owned() };
        for error in [locked().into(), JudgeError::from(locked()).into(), busy.into()] {
            assert_eq!(Error::exit_code(&error), 1, "{error}");
        }
    }

    #[test]
    fn a_refused_key_names_its_variable() {
        let refused = |status| RemoteError::Refused {
            server: "http://a:1".to_owned(),
            task: "reading".to_owned(),
            status,
            message: "no".to_owned(),
            repeated: false,
        };
        let step = |status| Error::from(StepError::Backbone(refused(status).into())).within("cell 0");
        for error in [Error::from(refused(401)), step(403)] {
            assert!(error.message().ends_with("no; check the API key of the servers (SWISS_KNIFE_REMOTE_KEY)"), "{error}");
        }
        assert_eq!(step(404).message(), step(404).to_string());
    }
}
