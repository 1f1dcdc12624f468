//! Sessions of schemes on loaded models.

use sk_core::InstructionRack;
use sk_models::dialogue::Session;
use sk_models::head::Head;
use sk_serve::host::{Adapters, Host};

use crate::Error;
use crate::scheme::SchemeSpec;

/// Opens a session of the scheme `config` on the models of `host`, with heads and adapters. `seed`
/// determines all random draws.
///
/// # Errors
/// If the scheme cannot be built, or an instruction is invalid.
pub fn open<'m>(
    host: &'m Host,
    config: &SchemeSpec,
    heads: &[(String, Head)],
    adapters: &Adapters,
    seed: u64,
) -> Result<Session<'m>, Error> {
    let (engine, footing) = host.engine(adapters, heads, &InstructionRack::default(), config.readers())?;
    let scheme = config.build(&*engine)?;
    Ok(Session::new(footing, scheme, instructions(config), seed)?)
}

/// Replaces the scheme of a session, on the same models, adapters and heads. The random generator
/// continues.
///
/// # Errors
/// If the scheme cannot be built, or an instruction is invalid. The session is then unchanged.
pub fn replace(session: &mut Session<'_>, host: &Host, adapters: &Adapters, config: &SchemeSpec) -> Result<(), Error> {
    let (engine, _) = host.engine(adapters, host.heads(), session.instruction_rack(), config.readers())?;
    let scheme = config.build(&*engine)?;
    Ok(session.replace(scheme, instructions(config))?)
}

/// Returns the instructions of a scheme, by lane name.
pub(crate) fn instructions(config: &SchemeSpec) -> impl Iterator<Item = (String, String)> {
    config.instructions().map(|(name, text)| (name, text.to_owned()))
}
