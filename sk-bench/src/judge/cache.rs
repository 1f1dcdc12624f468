//! A cache of scores on disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Identity, Judge, JudgeError, Question, Rubric, Scale, Score, Verdict};
use sk_models::whole_file;

/// Version of the layout below; it is part of every key.
const LAYOUT: u32 = 1;

/// A judge that caches the scores of another judge.
///
/// Each score is stored in its own file. The file name is the SHA-256 digest of the judge's
/// identity, the rubric's name, version and text, the pass, the conversation and the response.
/// Files are written atomically, so that processes can share a cache. Abstentions are not cached,
/// because another run may get a score. A damaged file counts as absent.
pub struct Cached<'j> {
    judge: &'j dyn Judge,
    directory: PathBuf,
    hits: AtomicUsize,
    fault: OnceLock<JudgeError>,
}

/// The data that a cache key is computed from.
#[derive(Serialize)]
struct Material<'a> {
    layout: u32,
    judge: &'a Identity,
    rubric: [&'a str; 5],
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<Scale>,
    version: u32,
    pass: u32,
    prompt: &'a str,
    response: &'a str,
}

/// The contents of a cache file: the score and, for human readers, what was scored.
#[derive(Serialize, Deserialize)]
struct Entry {
    judge: Identity,
    rubric: String,
    version: u32,
    pass: u32,
    score: Score,
}

impl<'j> Cached<'j> {
    /// Returns a judge whose scores are cached in `directory`. Creates the directory.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn new(judge: &'j dyn Judge, directory: &Path) -> Result<Self, JudgeError> {
        fs::create_dir_all(directory).map_err(|source| JudgeError::Cache { path: directory.to_owned(), source })?;
        Ok(Self { judge, directory: directory.to_owned(), hits: AtomicUsize::new(0), fault: OnceLock::new() })
    }

    /// Returns the number of questions answered from the cache.
    pub fn hits(&self) -> usize {
        self.hits.load(Ordering::Relaxed)
    }

    /// Returns the first error of writing to the cache. Such a score is returned, but not cached.
    pub fn fault(&self) -> Option<&JudgeError> {
        self.fault.get()
    }

    fn path(&self, question: &Question<'_>) -> PathBuf {
        let Rubric { name, version, scale, criterion, low, middle, high, .. } = question.rubric;
        let material = Material {
            layout: LAYOUT,
            judge: self.identity(),
            rubric: [name, criterion, low, middle, high],
            scale: *scale,
            version: *version,
            pass: question.pass,
            prompt: question.prompt,
            response: question.response,
        };
        // Serialisation of numbers and texts cannot fail. If it did, the entry would just never be
        // found.
        let key = format!("{:x}", Sha256::digest(serde_json::to_vec(&material).unwrap_or_default()));
        self.directory.join(&key[..2]).join(format!("{}.json", &key[2..]))
    }

    fn keep(&self, path: &Path, question: &Question<'_>, score: &Score) -> Result<(), JudgeError> {
        let Rubric { name, version, .. } = question.rubric;
        let entry = Entry {
            judge: self.identity().clone(),
            rubric: name.clone(),
            version: *version,
            pass: question.pass,
            score: score.clone(),
        };
        let folder = path.parent().unwrap_or(&self.directory);
        fs::create_dir_all(folder)
            .and_then(|()| whole_file::write(path, &serde_json::to_vec(&entry)?))
            .map_err(|source| JudgeError::Cache { path: path.to_owned(), source })
    }
}

impl Judge for Cached<'_> {
    fn identity(&self) -> &Identity {
        self.judge.identity()
    }

    fn judge(&self, question: &Question<'_>) -> Result<Verdict, JudgeError> {
        let path = self.path(question);
        let read = || path.is_file().then(|| fs::read(&path).ok())?;
        let entry = read().and_then(|bytes| serde_json::from_slice::<Entry>(&bytes).ok());
        if let Some(entry) = entry {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(Verdict::Score(entry.score));
        }
        let verdict = self.judge.judge(question)?;
        if let Verdict::Score(score) = &verdict
            && let Err(fault) = self.keep(&path, question, score)
        {
            self.fault.get_or_init(|| fault);
        }
        Ok(verdict)
    }

    fn stop(&self) {
        self.judge.stop();
    }
}
