//! Everything that determines the result of a run, so that a checkpoint is resumed only by the same
//! run.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    data::{DataOptions, Source},
    error::TrainError,
    run::RunOptions,
};
use crate::{files, hf::Checkpoint};

/// The number of hexadecimal digits that are kept of a digest.
const DIGITS: usize = 32;

/// The options of a run and the digests of their files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Values by option.
    values: Vec<(String, String)>,
    /// Digests by the option that names the file.
    contents: Vec<(String, String)>,
}

impl Recipe {
    /// Adds an option.
    pub(super) fn value(mut self, option: &str, value: impl Display) -> Self {
        self.values.push((option.to_owned(), value.to_string()));
        self
    }

    /// Adds the options of a run that determine its steps.
    pub(super) fn run(self, run: &RunOptions) -> Self {
        // A resumed run may have another number of steps, whose learning rates it then takes, and
        // report and save at other steps.
        let RunOptions {
            steps: _,
            evaluate_every: _,
            save_every: _,
            batch,
            accumulate,
            length,
            rate,
            warmup,
            floor,
            weight_decay,
            clip,
            seed,
        } = run;
        self.value("batch", batch)
            .value("accumulate", accumulate)
            .value("length", length)
            .value("rate", rate)
            .value("warmup", warmup)
            .value("floor", floor)
            .value("weight-decay", weight_decay)
            .value("clip", clip)
            .value("seed", seed)
    }

    /// Adds data files with their weights, and the files of excluded questions.
    pub(super) fn data(mut self, options: &DataOptions) -> Result<Self, TrainError> {
        let DataOptions { sources, exclude, held_out } = options;
        let weighted = |source: &Source| Ok(format!("{}={}", file_digest(&source.path)?, source.weight));
        let data: Vec<String> = sources.iter().map(weighted).collect::<Result<_, TrainError>>()?;
        let exclude: Vec<String> = exclude.iter().map(|path| file_digest(path)).collect::<Result<_, _>>()?;
        self = self.value("held-out", held_out);
        self.contents.extend([("data".to_owned(), data.join(",")), ("exclude".to_owned(), exclude.join(","))]);
        Ok(self)
    }

    /// Adds a file.
    pub(super) fn file(mut self, option: &str, path: &Path) -> Result<Self, TrainError> {
        self.contents.push((option.to_owned(), file_digest(path)?));
        Ok(self)
    }

    /// Adds the digest of a model's weights, or an empty one.
    pub(super) fn model(mut self, option: &str, model: Option<&Checkpoint>) -> Result<Self, TrainError> {
        let mut contents = String::new();
        if let Some(model) = model {
            let mut digest = Sha256::new();
            digest.update(model.config().to_json("float32"));
            model.tensors().visit(&mut |bytes| digest.update(bytes))?;
            contents = format!("{:.DIGITS$x}", digest.finalize());
        }
        self.contents.push((option.to_owned(), contents));
        Ok(self)
    }

    /// Returns the first file or option that differs from `kept`, as in `--rank 8, not 16`; `None`
    /// if the recipes are equal.
    #[must_use]
    pub fn difference(&self, kept: &Self) -> Option<String> {
        let lacks = |recipe: &Self, file: &str| recipe.contents.iter().all(|(name, _)| name != file);
        match (differing(&self.contents, &kept.contents), differing(&self.values, &kept.values)) {
            // A file that one run alone reads is due to an option.
            (Some((file, ..)), None) => Some(format!("another --{file}")),
            (Some((file, ..)), _) if !lacks(self, &file) && !lacks(kept, &file) => Some(format!("another --{file}")),
            (_, Some((option, value, before))) => Some(format!("--{option} {before}, not {value}")),
            (None, None) => None,
        }
    }

    /// Checks that a checkpoint at `path` was made by this recipe. The error names the first file
    /// or option that differs.
    pub(super) fn check(&self, kept: &Self, path: &Path) -> Result<(), TrainError> {
        let Some(with) = self.difference(kept) else { return Ok(()) };
        let reason = format!("was made with {with}: repeat that, delete the checkpoint or choose another --output");
        Err(TrainError::Checkpoint { path: path.display().to_string(), reason })
    }

    /// Checks that no file has changed since `earlier`, a recipe of the same options. The error
    /// names the first file of `data` that has, or else the `folder` of the option whose file has.
    pub(super) fn check_unchanged<'a>(
        &self,
        earlier: &Self,
        data: &'a DataOptions,
        folder: impl FnOnce(&str) -> &'a Path,
    ) -> Result<(), TrainError> {
        let Some((option, now, before)) = differing(&self.contents, &earlier.contents) else { return Ok(()) };
        let place = now.split(',').zip(before.split(',')).position(|(now, before)| now != before).unwrap_or(0);
        let path = match option.as_str() {
            "data" => data.sources.get(place).map(|source| source.path.as_path()),
            "exclude" => data.exclude.get(place).map(PathBuf::as_path),
            _ => None,
        };
        let path = path.unwrap_or_else(|| folder(&option));
        Err(TrainError::Changed { path: path.display().to_string() })
    }
}

/// Returns the first option whose values differ, its own value and the kept one.
fn differing(own: &[(String, String)], kept: &[(String, String)]) -> Option<(String, String, String)> {
    let of = |entries: &[(String, String)], option: &str| {
        let entry = entries.iter().find(|(name, _)| name == option);
        entry.map_or_else(|| unrecorded(option).to_owned(), |(_, value)| value.clone())
    };
    let mut values = own.iter().chain(kept).map(|(option, _)| (option.clone(), of(own, option), of(kept, option)));
    values.find(|(_, value, before)| value != before)
}

/// Returns the value of an option of `train dpo` in a recipe that does not record it.
fn unrecorded(option: &str) -> &'static str {
    match option {
        "accumulate" => "1",
        "precision" => "f32",
        "framing" => "hh",
        _ => "the default",
    }
}

fn file_digest(path: &Path) -> Result<String, TrainError> {
    files::read(path).map(|bytes| format!("{:.DIGITS$x}", Sha256::digest(bytes))).map_err(|source| TrainError::io(path, source))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_recipe_from_before_an_option_has_its_default() {
        let before = Recipe::default().value("rank", 8);
        let now = |precision: &str| before.clone().value("precision", precision).value("accumulate", 1);
        assert_eq!(now("f32").difference(&before), None);
        assert_eq!(now("bf16").difference(&before).as_deref(), Some("--precision f32, not bf16"));
    }

    #[test]
    fn a_file_that_changes_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let names = ["one.jsonl", "other.jsonl", "excluded.jsonl", "tokenizer.json"];
        names.iter().for_each(|name| fs::write(path(name), name).unwrap());
        let source = |name: &str| Source { path: path(name), weight: 2.0 };
        let options = DataOptions {
            sources: vec![source("one.jsonl"), source("other.jsonl")],
            exclude: vec![path("excluded.jsonl")],
            held_out: 0.1,
        };
        let recipe = || Recipe::default().data(&options).unwrap().file("tokenizer", &path("tokenizer.json")).unwrap();
        let before = recipe();
        let check = || recipe().check_unchanged(&before, &options, |_| folder.path());
        check().unwrap();
        for (name, said) in names.into_iter().zip([path(names[0]), path(names[1]), path(names[2]), folder.path().to_owned()]) {
            fs::write(path(name), "changed").unwrap();
            let says = format!("{} changed during the run; run again", said.display());
            assert_eq!(check().unwrap_err().to_string(), says);
            fs::write(path(name), name).unwrap();
        }
    }
}
