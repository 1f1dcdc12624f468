//! The heads of a scheme: their sources and kinds.

use std::path::{Path, PathBuf};

use sk_models::assets;
use sk_models::head::{Head, HeadKind};
use sk_models::hf::{CheckpointError, head_kind};
use sk_models::local::ModelError;

use super::Source;
use crate::Error;
use crate::scheme::{BladeRule, BladeSpec, SchemeError, SchemeSpec};

/// Returns the source of the head of each blade of `config`: from the command line, from the scheme
/// file, or from the bundled files. Heads on the command line that `config` does not name are
/// seated as blades of their own kind, unless its template uses heads of another kind.
pub(super) fn sources(
    config: &mut SchemeSpec,
    given: &[Source],
    adapters: &[Source],
    embedded: Option<assets::Embedded>,
) -> Result<Vec<(String, PathBuf)>, Error> {
    let built_in = embedded.map(assets::Embedded::heads).unwrap_or_default();
    for (i, head) in given.iter().enumerate() {
        if given[..i].iter().any(|other| other.name == head.name) {
            return Err(SchemeError::GivenTwice { option: "head", name: head.name.clone() }.into());
        }
        let seated = config.blades.iter().find(|blade| blade.name == head.name).or(config.template.as_ref());
        let read = seated.is_some_and(|blade| blade.rule.head_kind().is_some());
        if !read && adapters.iter().any(|adapter| adapter.name == head.name) {
            let kind = seated.map_or_else(|| "implicit-reward".to_owned(), |blade| blade.rule.kind());
            return Err(unused(&head.name, &kind));
        }
        if let Some(error) = misfit(config, head)? {
            return Err(error);
        }
        config.seat_head(&head.name, kind_of(head)?);
    }
    if let (Some(kind), true) = (config.template.as_ref().and_then(|template| template.rule.head_kind()), given.is_empty()) {
        for name in &built_in {
            let shipped = embedded.map(|embedded| head_kind(&embedded.head(name)));
            if shipped.transpose().map_err(|source| blame(name, source))? == Some(kind) {
                config.seat_head(name, kind);
            }
        }
    }
    for blade in &config.blades {
        if blade.rule.head_kind().is_none() && given.iter().any(|head| head.name == blade.name) {
            return Err(unused(&blade.name, &blade.rule.kind()));
        }
    }
    let readers = config.blades.iter().filter(|blade| blade.rule.head_kind().is_some());
    let source = |blade: &BladeSpec| {
        let name = blade.name.clone();
        let on_command_line = given.iter().find(|head| head.name == name).map(|head| PathBuf::from(&head.source));
        let shipped = || embedded.filter(|_| built_in.contains(&name.as_str())).map(|embedded| embedded.head(&name));
        match on_command_line.or_else(|| blade.head().cloned()).or_else(shipped) {
            Some(directory) => Ok((name, directory)),
            None => Err(Error::Input(format!(
                "blade \"{name}\" has no head; give --head {name}=DIR, or head = \"DIR\" in its section"
            ))),
        }
    };
    readers.map(source).collect()
}

/// Returns the error of a head of a blade that uses none.
fn unused(name: &str, kind: &str) -> Error {
    let cure = "use kind = \"discriminator\" or \"reward-head\"";
    Error::Input(format!("--head {name} does not apply: blade \"{name}\" is of kind \"{kind}\"; {cure}"))
}

/// Returns the reason why `config` cannot seat a head that it does not name: its template uses
/// heads of another kind. Returns `None` if it can.
pub(super) fn misfit(config: &SchemeSpec, head: &Source) -> Result<Option<Error>, Error> {
    let template = config.template.as_ref().filter(|_| !config.blades.iter().any(|blade| blade.name == head.name));
    let Some((template, kind)) = template.and_then(|template| Some((template, template.rule.head_kind()?))) else {
        return Ok(None);
    };
    let found = kind_of(head)?;
    let error = || {
        let (name, kind, found) = (&head.name, template.rule.kind(), BladeRule::kind_of_head(found));
        let kinds = format!("head \"{name}\" is of kind \"{found}\" and [blades.\"*\"] of kind \"{kind}\"");
        Error::Input(format!("{kinds}; give a head of that kind, or a [blades.{name}] section"))
    };
    Ok((found != kind).then(error))
}

pub(super) fn kind_of(head: &Source) -> Result<HeadKind, Error> {
    head_kind(Path::new(&head.source)).map_err(|source| blame(&head.name, source))
}

/// Checks that each head has the kind that its blade needs.
pub(crate) fn check(config: &SchemeSpec, heads: &[(String, Head)]) -> Result<(), Error> {
    for (name, head) in heads {
        let reads = |blade: &&BladeSpec| blade.name == *name && blade.rule.head_kind().is_some_and(|kind| kind != head.kind);
        if let Some(blade) = config.blades.iter().find(reads) {
            let (kind, found) = (blade.rule.kind(), BladeRule::kind_of_head(head.kind));
            let kinds = format!("blade \"{name}\" is of kind \"{kind}\" and its head of kind \"{found}\"");
            return Err(Error::Input(format!("{kinds}; change one of the two")));
        }
    }
    Ok(())
}

fn blame(name: &str, source: CheckpointError) -> Error {
    ModelError::Blade { name: name.to_owned(), source: Box::new(source) }.into()
}
