//! Sessions of schemes on loaded models.

use sk_core::{InstructionRack, StepTrace, TokenId};
use sk_models::dialogue::{Conversation, Framing, Reply, Session};
use sk_models::head::Head;
use sk_serve::host::{Adapters, Host};

use crate::scheme::SchemeSpec;
use crate::{Error, interrupt};

/// Opens a session of the scheme `config` on the models of `host`, with heads and adapters, for
/// dialogues in `framing`. `seed` determines all random draws. After Ctrl-C, replies do not wait for
/// memory or for models behind servers.
pub(crate) fn open<'m>(
    host: &'m Host,
    config: &SchemeSpec,
    framing: &Framing,
    heads: &[(String, Head)],
    adapters: &Adapters,
    seed: u64,
) -> Result<Session<'m>, Error> {
    let (engine, parts) = host.engine(config, adapters, heads, &InstructionRack::default(), Some(interrupt::time_left()))?;
    let scheme = config.build(&*engine)?;
    let session = Session::new(parts, scheme, config.instructions(), seed)?;
    Ok(if matches!(framing, Framing::Bare) { session.continuing() } else { session })
}

/// Replaces the scheme of a session, on the same models, adapters and heads. The random generator
/// continues. After an error, the session is unchanged.
pub(crate) fn replace(session: &mut Session<'_>, host: &Host, adapters: &Adapters, config: &SchemeSpec) -> Result<(), Error> {
    let left = Some(interrupt::time_left());
    let (engine, parts) = host.engine(config, adapters, host.heads(), session.instruction_rack(), left)?;
    let scheme = config.build(&*engine)?;
    Ok(session.replace(scheme, parts.extent, config.instructions())?)
}

/// Answers a dialogue, whose tokens are `prompt`, until Ctrl-C. `on_step` receives each step and
/// the text that can be shown after it; the last call has no step.
pub(crate) fn reply(
    session: &mut Session<'_>,
    host: &Host,
    conversation: &Conversation,
    prompt: &[TokenId],
    max_new_tokens: usize,
    mut on_step: impl FnMut(Option<&StepTrace>, &str) -> Result<(), Error>,
) -> Result<Reply, Error> {
    session.instruct(|text| conversation.instructed(host.tokenizer(), text))?;
    session.reply(prompt, conversation.framing().stops(), max_new_tokens, |step, text| {
        on_step(step, text)?;
        Ok(interrupt::flow())
    })
}
