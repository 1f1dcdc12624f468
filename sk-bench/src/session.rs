//! Sessions of schemes on loaded models.

use sk_core::InstructionRack;
use sk_models::dialogue::Session;
use sk_models::head::Head;
use sk_serve::host::{Adapters, Host};

use crate::Error;
use crate::scheme::SchemeSpec;

/// The scheme `config` at work on the models of `host` with heads and adapters; draws follow from
/// `seed`.
///
/// # Errors
/// When the scheme cannot be built, or an instruction not be read.
pub fn open<'m>(
    host: &'m Host,
    config: &SchemeSpec,
    heads: &[(String, Head)],
    adapters: &Adapters,
    seed: u64,
) -> Result<Session<'m>, Error> {
    let engine = host.engine(adapters, heads, &InstructionRack::default()).with_readers(config.readers())?;
    let scheme = config.build(&engine)?;
    Ok(Session::new(engine.footing(), scheme, instructions(config), seed)?)
}

/// Puts another scheme in the place of that of a session, on the same models, adapters and heads.
/// The draws go on.
///
/// # Errors
/// When the scheme cannot be built, or an instruction not be read; the session is then as it was.
pub fn replace(session: &mut Session<'_>, host: &Host, adapters: &Adapters, config: &SchemeSpec) -> Result<(), Error> {
    let engine = host.engine(adapters, host.heads(), session.instruction_rack()).with_readers(config.readers())?;
    let scheme = config.build(&engine)?;
    Ok(session.replace(scheme, instructions(config))?)
}

/// The instructions of a scheme by the names of their lanes.
pub(crate) fn instructions(config: &SchemeSpec) -> impl Iterator<Item = (String, String)> {
    config.instructions().map(|(name, text)| (name, text.to_owned()))
}
