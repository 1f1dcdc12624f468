//! Sources of prompts: files, and the paper's sets by name.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sk_report::record::RecordError;

use super::{PaperSet, Prompt, PromptFormat, format};
use crate::Error;

/// The environment variable with the default folder of the data sets.
const DATA_VARIABLE: &str = "SWISS_KNIFE_DATA";

/// Returns the files that a source may be read from.
pub(crate) fn files(source: &str, data: Option<&Path>) -> Vec<PathBuf> {
    match PaperSet::named(source) {
        None => vec![source.into()],
        Some(_) => root(data).map_or_else(Vec::new, |root| PaperSet::files(&root).collect()),
    }
}

/// Returns the folder of the data sets.
fn root(data: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os(DATA_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    data.map(Path::to_owned).or_else(variable)
}

/// Loads the prompts of a file, or of a set of the paper, which is rebuilt from the data sets below
/// `data` or `$SWISS_KNIFE_DATA`.
///
/// # Errors
/// As [`read`](super::read) and [`PaperSet::load`], or if the folder of the data sets is not given.
pub fn load(source: &str, format: Option<PromptFormat>, data: Option<&Path>) -> Result<Vec<Prompt>, Error> {
    let Some(set) = PaperSet::named(source) else {
        return format::read(Path::new(source), format).map_err(|error| match error {
            Error::Records(RecordError::Read { path, source }) if source.kind() == ErrorKind::NotFound => {
                let sets: Vec<&str> = PaperSet::by_name().map(|(name, _)| name).collect();
                let (path, sets) = (path.display(), sets.join(", "));
                Error::Input(format!("there is no file {path}, and no set of that name; sets are {sets}"))
            }
            error => error,
        });
    };
    let root = root(data).ok_or_else(|| {
        Error::Input(format!(
            "{} is rebuilt from HH-RLHF and TruthfulQA; give their folder with --data (in a plan, data under [prompts]) or {DATA_VARIABLE}",
            set.name()
        ))
    })?;
    set.load(&root)
}

/// Loads the prompts of several sources, one after another.
///
/// # Errors
/// As [`load`], or if two prompts have the same id.
pub fn load_all(sources: &[String], format: Option<PromptFormat>, data: Option<&Path>) -> Result<Vec<Prompt>, Error> {
    let (mut prompts, mut ids) = (Vec::new(), HashMap::new());
    for source in sources {
        for prompt in load(source, format, data)? {
            if let Some(first) = ids.insert(prompt.id.clone(), source) {
                let id = prompt.id;
                return Err(Error::Input(format!(
                    "two prompts are called \"{id}\", in {first} and in {source}; ids must differ"
                )));
            }
            prompts.push(prompt);
        }
    }
    Ok(prompts)
}
