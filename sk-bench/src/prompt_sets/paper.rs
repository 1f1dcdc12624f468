//! The prompt sets of the paper's experiments, rebuilt from row numbers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Prompt, PromptFormat, format};
use crate::Error;
use crate::named::named;

named! {
    /// One of the paper's two prompt sets.
    pub PaperSet {
        /// The frontier's 120 prompts, 40 per axis.
        Frontier = "paper-120",
        /// The normalisation ablation's 60 prompts: the first 20 of each axis of the frontier.
        Ablation = "paper-60",
    }
}

/// The axes, in the order of the prompts.
pub const AXES: [&str; 3] = ["helpfulness", "harmlessness", "honesty"];

/// The prompts of one axis: rows, from 0, of one file.
struct Block {
    axis: &'static str,
    format: PromptFormat,
    /// The possible paths of the file below the folder of data sets, most likely first.
    files: &'static [&'static str],
    /// The revision that is needed, for the error message.
    revision: &'static str,
    rows: [usize; 40],
    /// SHA-256 over the framed prompts, each followed by a zero byte.
    digest: &'static str,
}

const BLOCKS: [Block; 3] = [
    Block {
        axis: AXES[0],
        format: PromptFormat::Hh,
        files: &["hh-rlhf/helpful-base/test.jsonl.gz", "hh-rlhf/helpful-base/test.jsonl", "helpful-base/test.jsonl.gz"],
        revision: "helpful-base/test of anthropics/hh-rlhf",
        rows: [
            456, 102, 1126, 1003, 914, 571, 419, 2233, 356, 1728, 130, 122, 383, 895, 952, 2069, 108, 2298, 814, 2232, 1718, 902,
            1839, 1139, 26, 653, 1731, 1393, 1138, 636, 881, 1378, 418, 379, 1556, 396, 1470, 1408, 1083, 177,
        ],
        digest: "ec61a195774d3006c40bca6e599af335aa957de174c0a14e7957e0216e5dd4ce",
    },
    Block {
        axis: AXES[1],
        format: PromptFormat::Hh,
        files: &["hh-rlhf/harmless-base/test.jsonl.gz", "hh-rlhf/harmless-base/test.jsonl", "harmless-base/test.jsonl.gz"],
        revision: "harmless-base/test of anthropics/hh-rlhf",
        rows: [
            157, 1171, 589, 1894, 1515, 394, 1856, 2040, 78, 2105, 1771, 1525, 2240, 1777, 1613, 721, 236, 439, 510, 1539, 628,
            392, 657, 2098, 2031, 527, 1584, 2075, 1113, 744, 1543, 260, 200, 250, 764, 251, 678, 1213, 1127, 315,
        ],
        digest: "f051aefac5399c9d548ca60bec26f89b343cd28f86701c8ac73c304535c60611",
    },
    Block {
        axis: AXES[2],
        format: PromptFormat::TruthfulQa,
        files: &["truthfulqa/TruthfulQA-v1.csv", "truthfulqa/v1/TruthfulQA.csv", "truthfulqa/TruthfulQA.csv", "TruthfulQA.csv"],
        revision: "the TruthfulQA.csv of 817 questions (v1), not the 790 of 2025",
        rows: [
            418, 532, 554, 718, 119, 180, 388, 230, 296, 29, 582, 9, 102, 160, 793, 526, 705, 310, 710, 649, 387, 605, 414, 784,
            707, 686, 333, 366, 75, 346, 289, 632, 162, 114, 523, 71, 602, 96, 276, 322,
        ],
        digest: "5304ac2e78d5fd7ac8b4485c69c162c7b688875af5e1d86dc4af4e9d49efb8d0",
    },
];

impl PaperSet {
    /// Returns the set of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::by_name().find(|(known, _)| *known == name).map(|(_, set)| set)
    }

    /// Returns the files below `root` that sets may be read from.
    pub(super) fn files(root: &Path) -> impl Iterator<Item = PathBuf> {
        BLOCKS.iter().flat_map(|block| block.files).map(|file| root.join(file))
    }

    /// Loads the prompts, in the order of the paper: helpfulness, harmlessness, honesty.
    ///
    /// In both sets, the id of a prompt is `paper:i`, where i is its index in the frontier's set,
    /// so that records of the two sets can be paired. Its label `axis` is the axis that it was
    /// chosen for. The texts are checked against a digest of the published texts.
    ///
    /// # Errors
    /// If a data set is missing under `root`, cannot be read, or is a different revision from the
    /// one that the row numbers refer to.
    pub fn load(self, root: &Path) -> Result<Vec<Prompt>, Error> {
        let per_axis = match self {
            Self::Frontier => 40,
            Self::Ablation => 20,
        };
        let mut prompts = Vec::with_capacity(per_axis * BLOCKS.len());
        for (position, block) in BLOCKS.iter().enumerate() {
            let rows = block.load(root)?;
            let first = position * block.rows.len();
            prompts.extend((first..).zip(rows.into_iter().take(per_axis)).map(|(index, prompt)| Prompt {
                id: format!("paper:{index}"),
                labels: BTreeMap::from([("axis".to_owned(), block.axis.to_owned())]),
                ..prompt
            }));
        }
        Ok(prompts)
    }
}

impl Block {
    fn load(&self, root: &Path) -> Result<Vec<Prompt>, Error> {
        let path = self.find(root)?;
        let all = format::read(&path, Some(self.format))?;
        let mut digest = Sha256::new();
        let mut prompts = Vec::with_capacity(self.rows.len());
        for row in self.rows {
            let prompt = all.get(row).ok_or_else(|| {
                let (path, rows) = (path.display(), all.len());
                Error::Input(format!(
                    "{path}: no row {row} (counted from 0), since the file has only {rows}; use the revision of the data set that the paper used"
                ))
            })?;
            digest.update(&prompt.prompt);
            digest.update([0]);
            prompts.push(prompt.clone());
        }
        let digest = format!("{:x}", digest.finalize());
        if digest != self.digest {
            let Self { axis, revision, .. } = self;
            let reason = format!("its rows are not the {axis} prompts of the paper; use {revision}");
            return Err(Error::Input(format!("{}: {reason}", path.display())));
        }
        Ok(prompts)
    }

    fn find(&self, root: &Path) -> Result<PathBuf, Error> {
        let found = self.files.iter().map(|file| root.join(file)).find(|path| path.is_file());
        found.ok_or_else(|| {
            let (root, tried) = (root.display(), self.files.join(", "));
            Error::Input(format!(
                "{root}: none of {tried} is there; --data, or data under [prompts] of a plan, names the folder that holds the data sets"
            ))
        })
    }
}
