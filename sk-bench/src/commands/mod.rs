//! The commands of the program.

pub mod arms;
pub mod axioms;
pub mod bench;
pub mod blades;
pub mod certify;
pub mod chat;
pub mod compare;
pub mod export;
pub mod generate;
pub mod init;
pub mod judge;
pub mod prompts;
pub mod report;
pub mod schemes;
pub mod serve;
pub mod simulate;
pub mod sweep;
pub mod train;
pub mod tune;
