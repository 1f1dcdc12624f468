//! Options that several commands share, and their conversion to plain data.

// Doc comments of arguments are help texts, in which brackets mark optional parts.
#![allow(rustdoc::broken_intra_doc_links)]

mod choice;
mod model;
mod output;
mod prompt;
mod random;
mod steering;

pub(crate) use choice::{choice, one_of};
pub use model::Sources;
pub(crate) use model::files_in;
pub use output::{GenerationArgs, OutputArgs, TableFormat};
pub(crate) use output::{MAX_COUNT, at_most, not_standard_output, positive, tolerance, written};
pub use prompt::PromptArgs;
pub use random::RandomArgs;
pub use steering::{NumberArgs, OperatingArgs, SteeringArgs};
