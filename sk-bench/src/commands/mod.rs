//! The commands of the program.

pub(crate) mod arms;
pub(crate) mod axioms;
pub(crate) mod bench;
pub(crate) mod blades;
pub(crate) mod certify;
pub(crate) mod chat;
pub(crate) mod compare;
pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod init;
pub(crate) mod judge;
pub(crate) mod prompts;
pub(crate) mod report;
pub(crate) mod schemes;
pub(crate) mod serve;
pub(crate) mod simulate;
pub(crate) mod sweep;
pub(crate) mod train;
pub(crate) mod tune;
