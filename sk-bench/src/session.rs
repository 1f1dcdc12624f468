//! Sessions of schemes on loaded models.

use std::sync::Arc;

use sk_models::dialogue::Session;
use sk_models::engine::{AdapterRack, InstructionRack};
use sk_models::head::Head;
use sk_models::lora::LoraAdapter;

use crate::scheme::SchemeSpec;
use crate::{Error, Models};

/// The scheme `config` at work on `models` with heads and adapters; draws follow from `seed`.
///
/// # Errors
/// When the scheme cannot be built, or an instruction not be read.
pub fn open<'m>(
    models: &'m Models,
    config: &SchemeSpec,
    heads: &[(String, Head)],
    adapters: impl IntoIterator<Item = (String, impl Into<Arc<LoraAdapter>>)>,
    seed: u64,
) -> Result<Session<'m>, Error> {
    let rack = AdapterRack::default();
    for (name, adapter) in adapters {
        rack.insert(name, adapter);
    }
    let engine = models.engine(&rack, heads).with_instructions(&InstructionRack::default()).with_readers(config.readers())?;
    let scheme = config.build(&engine)?;
    Ok(Session::new(&engine, scheme, instructions(config), seed)?)
}

/// Puts another scheme in the place of that of a session, on the same models, adapters and heads.
/// The draws go on.
///
/// # Errors
/// When the scheme cannot be built, or an instruction not be read; the session is then as it was.
pub fn replace(session: &mut Session<'_>, models: &Models, config: &SchemeSpec) -> Result<(), Error> {
    let engine = models.engine(session.rack(), &models.heads).with_instructions(session.instruction_rack());
    let scheme = config.build(&engine)?;
    Ok(session.replace(scheme, instructions(config))?)
}

/// The instructions of a scheme by the names of their lanes.
pub(crate) fn instructions(config: &SchemeSpec) -> impl Iterator<Item = (String, String)> {
    config.instructions().map(|(name, text)| (name, text.to_owned()))
}
