//! Loading of models, and of the adapters and heads that schemes use.

mod heads;

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use sk_models::assets;
use sk_models::decoder::Precision;
use sk_models::device::DeviceName;
use sk_models::head::Head;
use sk_models::hf::{CheckpointError, ModelId};
use sk_models::local::{ModelError, ModelOptions, Models};
use sk_models::lora::LoraAdapter;
use sk_remote::RemoteError;
use sk_serve::host::{Adapter, Host, NAMED, RemoteSources};

use crate::judge::key_from_env;
use crate::pool::PlannedArm;
use crate::progress::Loading;
use crate::scheme::{BladeRule, BladeSpec, SchemeError, SchemeSpec};
use crate::{Error, interrupt, message, suggest};

pub use crate::args::Sources;
pub(crate) use heads::check as check_heads;

impl Sources {
    /// Returns whether the backbone is behind servers.
    pub fn are_remote(&self) -> bool {
        self.backbone.as_deref().is_some_and(RemoteSources::is_address)
    }

    /// Returns the servers, if the backbone is behind servers. Returns an error for options that
    /// servers do not support, or that do not apply to local models.
    fn remote(&self) -> Result<Option<RemoteSources>, Error> {
        let refused = |option, reason| Err(Error::Input(format!("{option}: {reason}")));
        let Some(backbone) = self.backbone.as_deref().filter(|_| self.are_remote()) else {
            if self.drafter.as_deref().is_some_and(RemoteSources::is_address) {
                return refused(
                    "--drafter",
                    "a drafter on a server needs a backbone on a server; give its address with --backbone",
                );
            }
            if self.tokenizer.is_some() {
                return refused(
                    "--tokenizer",
                    "a model of this process has its own; leave it out, or name servers with --backbone",
                );
            }
            return Ok(None);
        };
        if self.drafter.as_deref().is_some_and(|drafter| !RemoteSources::is_address(drafter)) {
            return refused("--drafter", "it must be behind servers as the backbone is, such as vllm+http://HOST:PORT");
        }
        if !self.heads.is_empty() {
            return refused("--head", "servers return no hidden states; use an adapter or an instruction");
        }
        if self.precision != Precision::default() {
            return refused("--precision", "servers choose their own; leave it out");
        }
        if self.device != DeviceName::default() {
            return refused("--device", "servers choose their own; leave it out");
        }
        let Some(tokenizer) = self.tokenizer.clone() else {
            return refused("--tokenizer", "give the directory with the tokenizer.json of the model that the servers have");
        };
        let Ok(key) = key_from_env(REMOTE_KEY) else {
            return refused(REMOTE_KEY, "the key holds a space or another character that a key cannot have");
        };
        Ok(Some(RemoteSources::new(backbone, self.drafter.as_deref(), tokenizer, key.as_ref())?))
    }

    /// Opens the models, without adapters and heads.
    ///
    /// # Errors
    /// If a model cannot be loaded, or the servers do not support an option.
    pub(crate) fn open(&self, loading: &mut Loading) -> Result<Host, Error> {
        Ok(match self.remote()? {
            Some(remote) => {
                if remote.expose_key() {
                    message::exposed_key();
                }
                Host::remote(remote)?.with_time_left(interrupt::time_left())
            }
            None => {
                let (backbone, drafter) = (self.backbone.clone(), self.drafter.clone());
                let options = ModelOptions { backbone, drafter, device: self.device, precision: self.precision };
                Models::open(&options, loading)?.into()
            }
        })
    }

    /// Returns the sources with only the adapters for `config`: those that it names, or all if it
    /// has a template that seats every adapter.
    #[must_use]
    fn for_scheme(&self, config: &SchemeSpec) -> Self {
        let named = |name: &str| config.blades.iter().any(|blade| blade.name == name);
        let reads_heads = config.template.as_ref().is_some_and(|template| template.rule.head_kind().is_some());
        let mut args = self.clone();
        args.blades.retain(|given| (config.template.is_some() && !reads_heads) || named(&given.name));
        args
    }

    /// Returns whether backbone and drafter are the bundled ones.
    pub fn are_shipped(&self) -> bool {
        self.backbone.is_none() && self.drafter.is_none()
    }
}

/// A parsed `NAME=DIR`, `NAME=lora:NAME` or `NAME=instruction:TEXT`: an adapter, a head or an
/// instruction, with the name of its blade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The name.
    pub name: String,
    /// Directory or hub id, `lora:` and the name of an adapter on the servers, or `instruction:`
    /// and a text.
    pub source: String,
}

/// The environment variable with the key for model servers.
pub(crate) const REMOTE_KEY: &str = "SWISS_KNIFE_REMOTE_KEY";

/// The prefix of a blade source that is an instruction.
const INSTRUCTION: &str = "instruction:";

impl Source {
    /// Creates the source of the blade `name`.
    ///
    /// # Errors
    /// If the source is `lora:` without the name of an adapter, or `instruction:` without a text.
    pub(crate) fn new(name: String, source: String) -> Result<Self, String> {
        match source.strip_prefix(NAMED) {
            Some(adapter) if adapter.trim().is_empty() => Err(format!(
                "\"{NAMED}\" names no adapter; give {name}={NAMED}ADAPTER, with the name that the servers know it by"
            )),
            _ if source.strip_prefix(INSTRUCTION).is_some_and(|text| text.trim().is_empty()) => {
                Err(format!("\"{INSTRUCTION}\" has no text; give {name}={INSTRUCTION}TEXT"))
            }
            _ => Ok(Self { name, source }),
        }
    }

    /// Returns the text of the instruction, if the source is one.
    pub fn instruction(&self) -> Option<&str> {
        self.source.strip_prefix(INSTRUCTION).map(str::trim)
    }
}

impl FromStr for Source {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, source)) if !name.trim().is_empty() && !source.is_empty() => {
                let name = name.trim();
                if name == "*" {
                    return Err("\"*\" stands for every blade; give the blade a name of its own".to_owned());
                }
                // Such a name would end early in `/swap OLD NEW=DIR` and in `-w NAME=W,…`.
                if name.contains([',', ':']) || name.contains(char::is_whitespace) {
                    return Err(format!("\"{name}\" has a blank, a comma or a colon; give the blade a name without them"));
                }
                Self::new(name.to_owned(), source.to_owned())
            }
            _ => Err(
                "a blade is given as NAME=DIR, such as helpful=adapters/helpful, as NAME=instruction:TEXT, or as NAME=lora:NAME"
                    .to_owned(),
            ),
        }
    }
}

/// Loads backbone and drafter, and the heads and adapters that `config` and the command line name.
/// Heads and adapters of the command line that `config` does not name are seated in it. Bundled
/// adapters are seated only if `config` has a template for them.
///
/// # Errors
/// If a model, adapter or head cannot be loaded, backbone and drafter do not share a tokenizer, the
/// device is not available, a blade has no adapter, there is no blade, or no model is given and
/// none is bundled.
pub fn load(args: &Sources, config: &mut SchemeSpec, loading: &mut Loading) -> Result<(Host, Vec<(String, Adapter)>), Error> {
    load_pool(args, config, &mut [], loading)
}

/// Like [`load_pool`], for commands that need local models.
///
/// # Errors
/// As [`load_pool`], or if the backbone is behind servers.
pub(crate) fn load_here(
    args: &Sources,
    config: &mut SchemeSpec,
    arms: &mut [PlannedArm],
    loading: &mut Loading,
) -> Result<(Models, Vec<(String, LoraAdapter)>), Error> {
    let refused = || Error::Input("--backbone: servers cannot be measured here; give a directory or a hub id".to_owned());
    if args.are_remote() {
        return Err(refused());
    }
    let (Host::Local(models), adapters) = load_pool(args, config, arms, loading)? else { return Err(refused()) };
    let local = |(name, adapter)| match adapter {
        Adapter::Local(adapter) => Some((name, Arc::unwrap_or_clone(adapter))),
        Adapter::Remote(_) => None,
    };
    Ok((*models, adapters.into_iter().filter_map(local).collect()))
}

fn configs<'c>(config: &'c SchemeSpec, arms: &'c [PlannedArm]) -> impl Iterator<Item = &'c SchemeSpec> {
    std::iter::once(config).chain(arms.iter().map(|arm| &arm.config))
}

/// Returns the model that the blade `name` of the schemes uses, if it is not the backbone.
pub(crate) fn on<'c>(name: &str, configs: impl IntoIterator<Item = &'c SchemeSpec>) -> Option<String> {
    let blade = configs.into_iter().flat_map(|config| &config.blades).find(|blade| blade.name == name)?;
    blade.on().map(str::to_owned)
}

/// Like [`load`], for a scheme and the arms that choose from its candidates. Loads the heads and
/// adapters of all of them. A head or adapter of the command line is used by the arms that name it
/// or have a template for it. Weights that name no blade of an arm are ignored by that arm.
///
/// # Errors
/// As [`load`], for any arm, or if two arms use the same name for different adapters or heads.
pub fn load_pool(
    args: &Sources,
    config: &mut SchemeSpec,
    arms: &mut [PlannedArm],
    loading: &mut Loading,
) -> Result<(Host, Vec<(String, Adapter)>), Error> {
    args.remote()?;
    let found = find(args, config, arms)?;
    let mut host = args.open(loading)?;
    let heads = load_heads(&host, &found.heads, configs(config, arms))?;
    if let Host::Local(models) = &mut host {
        models.heads = heads;
    }
    for (lane, on) in configs(config, arms).flat_map(SchemeSpec::readers) {
        host.open_reader(&lane, on, loading)?;
    }
    let sources = found.adapters.into_iter().map(|(name, source)| {
        let on = on(&name, configs(config, arms));
        (name, source, on)
    });
    let adapters = load_adapters(&host, sources, loading)?;
    Ok((host, adapters))
}

/// Loads adapters, and checks servers with all of them. Each adapter is given by the name of its
/// blade, its source, and its model if that is not the backbone.
///
/// # Errors
/// If an adapter cannot be loaded, or a server fails the check.
pub(crate) fn load_adapters(
    host: &Host,
    sources: impl IntoIterator<Item = (String, String, Option<String>)>,
    loading: &mut Loading,
) -> Result<Vec<(String, Adapter)>, Error> {
    let mut adapters: Vec<(String, Adapter)> = Vec::new();
    for (name, source, on) in sources {
        let adapter = host.adapter(&name, &source, on.as_deref(), loading)?;
        adapters.push((name, adapter));
    }
    if host.local().is_none() {
        loading.show("checking the servers");
    }
    host.check()?;
    Ok(adapters)
}

/// Loads heads by blade name, and checks that each has the kind that its blade in `configs` needs.
///
/// # Errors
/// If a head cannot be loaded or has another kind, or the backbone is behind servers, which return
/// no hidden states.
pub(crate) fn load_heads<'c>(
    host: &Host,
    sources: &[(String, PathBuf)],
    configs: impl IntoIterator<Item = &'c SchemeSpec>,
) -> Result<Vec<(String, Head)>, Error> {
    match (host.local(), sources.first()) {
        (Some(models), _) => {
            let heads = models.load_heads(sources)?;
            configs.into_iter().try_for_each(|config| check_heads(config, &heads))?;
            Ok(heads)
        }
        (None, None) => Ok(Vec::new()),
        (None, Some((name, _))) => Err(RemoteError::Unsupported {
            what: format!("head \"{name}\""),
            reason: "servers return no hidden states; use an adapter or an instruction",
        }
        .into()),
    }
}

/// The sources of the heads and adapters of schemes, by blade name.
#[derive(Debug, Clone)]
pub(crate) struct PartSources {
    pub(crate) heads: Vec<(String, PathBuf)>,
    pub(crate) adapters: Vec<(String, String)>,
}

/// Finds the sources of the heads and adapters of `config`, and seats in it those of `args` that it
/// does not name.
///
/// # Errors
/// If a blade has no adapter or no head, or no model is given and none is bundled.
pub(crate) fn sources_of(args: &Sources, config: &mut SchemeSpec) -> Result<PartSources, Error> {
    let args = args.for_scheme(config);
    Ok(PartSources { heads: head_sources(&args, config)?, adapters: adapter_sources(&args, config)? })
}

/// Seats the heads of `args` in `config`, as [`load`] does, unless its blades are fixed or of heads
/// of another kind.
///
/// # Errors
/// If a head cannot be read, or the servers do not support an option.
pub(crate) fn seat_heads(args: &Sources, config: &mut SchemeSpec) -> Result<(), Error> {
    args.remote()?;
    for head in &args.heads {
        if config.template.is_some() && heads::misfit(config, head)?.is_none() {
            config.seat_head(&head.name, heads::kind_of(head)?);
        }
    }
    Ok(())
}

/// Returns whether a path exists. A path in a folder that the user may not read counts as existing.
pub(crate) fn exists(path: &Path) -> bool {
    path.try_exists().unwrap_or_else(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Finds the heads and adapters of [`load_pool`], and seats those that the schemes do not name.
pub(crate) fn find(args: &Sources, config: &mut SchemeSpec, arms: &mut [PlannedArm]) -> Result<PartSources, Error> {
    // Report errors that can be found before reading gigabytes of weights.
    for source in args.backbone.iter().chain(&args.drafter) {
        let path = Path::new(source);
        if !RemoteSources::is_address(source) && !exists(path) && assets::files(path).next().is_none() {
            let _: ModelId = source.parse().map_err(CheckpointError::Hub)?;
        }
    }
    let embedded = embedded_for(args)?;
    let fits = |head: &&Source| Ok(arms.is_empty() || heads::misfit(config, head)?.is_none());
    let fitting = args.heads.iter().filter_map(|head| fits(&head).map(|fits| fits.then(|| head.clone())).transpose());
    let fitting: Vec<Source> = fitting.collect::<Result<_, Error>>()?;
    let mut heads = heads::sources(config, &fitting, &args.blades, embedded)?;
    let mut adapters = adapter_sources(args, config)?;
    config.check_start()?;
    for PlannedArm { name, config } in &mut *arms {
        let mut resolve = || {
            let own = sources_of(args, config)?;
            join(&mut heads, own.heads)?;
            join(&mut adapters, own.adapters)?;
            config.forget_foreign_weights();
            config.check_start()?;
            Ok(())
        };
        resolve().map_err(|error: Error| error.within(format!("arm \"{name}\"")))?;
    }
    for head in args.heads.iter().filter(|head| !heads.iter().any(|(name, _)| *name == head.name)) {
        if let Some(error) = heads::misfit(config, head)? {
            return Err(error);
        }
    }
    Ok(PartSources { heads, adapters })
}

/// Checks that every adapter and head that `config` needs has a source, without loading any.
///
/// # Errors
/// As [`load`], as far as they can be detected without loading.
pub fn resolve(args: &Sources, config: &SchemeSpec) -> Result<(), Error> {
    let mut config = config.clone();
    sources_of(args, &mut config)?;
    config.check_start()?;
    Ok(())
}

/// Adds the sources of another arm. Returns an error if a name has two different sources.
fn join<T: PartialEq + AsRef<Path>>(all: &mut Vec<(String, T)>, more: Vec<(String, T)>) -> Result<(), Error> {
    for (name, source) in more {
        match all.iter().find(|(known, _)| *known == name) {
            None => all.push((name, source)),
            Some((_, known)) if *known == source => {}
            Some((_, known)) => {
                let [first, second] = [known, &source].map(|source| source.as_ref().display().to_string());
                return Err(Error::Input(format!(
                    "\"{name}\" is {first} for one arm and {second} for another; call one of them something else"
                )));
            }
        }
    }
    Ok(())
}

/// Returns the bundled model, if no other backbone is given.
fn embedded_for(args: &Sources) -> Result<Option<assets::Embedded>, ModelError> {
    match &args.backbone {
        Some(_) => Ok(None),
        None => assets::embedded().ok_or(ModelError::NothingEmbedded).map(Some),
    }
}

/// Returns the source of the head of each blade of `config`: from `args`, if the kind matches, from
/// the scheme file, or from the bundled files. Heads of `args` that `config` does not name are
/// seated in it if its template uses heads of their kind.
///
/// # Errors
/// If a head of `args` cannot be read, or a blade has no head.
fn head_sources(args: &Sources, config: &mut SchemeSpec) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut given = Vec::new();
    for head in &args.heads {
        let kind = Some(heads::kind_of(head)?);
        let listed = config.blades.iter().find(|blade| blade.name == head.name);
        if listed.or(config.template.as_ref()).is_some_and(|blade| blade.rule.head_kind() == kind) {
            given.push(head.clone());
        }
    }
    heads::sources(config, &given, &args.blades, embedded_for(args)?)
}

/// Returns the source of the adapter of each blade of `config`: from the command line, from the
/// scheme file, or from the bundled files. Adapters that `config` does not name are seated in it.
///
/// # Errors
/// If a blade has no adapter or is given twice, or no model is given and none is bundled.
fn adapter_sources(args: &Sources, config: &mut SchemeSpec) -> Result<Vec<(String, String)>, Error> {
    let (given, embedded) = (&args.blades, embedded_for(args)?);
    for (i, blade) in given.iter().enumerate() {
        if given[..i].iter().any(|other| other.name == blade.name) {
            return Err(SchemeError::GivenTwice { option: "blade", name: blade.name.clone() }.into());
        }
    }
    let built_in = embedded.map(assets::Embedded::blades).unwrap_or_default();
    if config.template.as_ref().is_some_and(|template| template.rule.head_kind().is_none()) {
        // An instruction replaces the bundled blade with its name.
        let instructed = |name: &&&str| given.iter().any(|blade| blade.name == ***name && blade.instruction().is_some());
        built_in.iter().filter(|name| !instructed(name)).for_each(|name| config.seat(name));
    }
    for blade in given {
        // A scheme file or `--set` gives such a blade its settings, and this option its source.
        let lacks_source = |seated: &BladeSpec| {
            seated.name == blade.name && matches!(seated.rule, BladeRule::ImplicitReward { adapter: None, .. })
        };
        match blade.instruction() {
            Some(instruction) if config.blades.iter().any(lacks_source) => {
                config.swap_instruction(&blade.name, &blade.name, instruction)?;
            }
            Some(instruction) => config.seat_instruction(&blade.name, instruction)?,
            None => config.seat(&blade.name),
        }
    }

    let source = |(name, in_file): (String, Option<&PathBuf>)| {
        let on_command_line = given.iter().find(|blade| blade.name == name).map(|blade| blade.source.clone());
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let source = on_command_line.or_else(|| in_file.cloned().map(text)).or_else(|| {
            let embedded = embedded.filter(|_| built_in.contains(&name.as_str()))?;
            Some(text(embedded.blade(&name)))
        });
        let hint = || {
            let known = built_in.iter().copied().chain(given.iter().map(|blade| blade.name.as_str()));
            let meant =
                suggest::closest(&name, known).map_or_else(String::new, |meant| format!("did you mean \"{meant}\"? Otherwise "));
            format!("{meant}give --blade {name}=DIR, or adapter = \"DIR\" in its section")
        };
        match source {
            Some(source) => Ok((name, source)),
            None => Err(Error::Input(format!("blade \"{name}\" has no adapter; {}", hint()))),
        }
    };
    config.adapters().map(source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blade_has_a_name_and_a_source() {
        let blade: Source = "helpful=a=b/c".parse().unwrap();
        assert_eq!((blade.name.as_str(), blade.source.as_str()), ("helpful", "a=b/c"));
        for wrong in ["helpful", "=dir", "helpful=", " =x"] {
            assert!(wrong.parse::<Source>().is_err(), "{wrong}");
        }
        assert_eq!("helpful=lora:a".parse::<Source>().unwrap().source, "lora:a");
        for wrong in ["helpful=lora:", "helpful=lora: "] {
            let error = wrong.parse::<Source>().unwrap_err();
            assert!(error.contains("names no adapter") && error.contains("helpful=lora:ADAPTER"), "{error}");
        }
        for wrong in ["calm=instruction:", "calm=instruction: "] {
            let error = wrong.parse::<Source>().unwrap_err();
            assert!(error.contains("has no text; give calm=instruction:TEXT"), "{error}");
        }
        for wrong in ["be calm=dir", "calm,kind=dir", "calm:kind=dir"] {
            assert!(wrong.parse::<Source>().unwrap_err().contains("a name without them"), "{wrong}");
        }
    }
}
