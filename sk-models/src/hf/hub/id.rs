//! Names of models on the hub.

use std::{fmt, str::FromStr};

use super::error::HubError;

/// The revision of an id that names none.
const DEFAULT_REVISION: &str = "main";

/// The kind of contents of a repository on the hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A model or an adapter.
    Model,
    /// A data set.
    Data,
}

impl Kind {
    /// Returns its name in the hub's API, which is also the prefix of an id in the cache.
    pub(super) fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Data => "datasets",
        }
    }

    /// Returns the prefix of an id in the URL of a file.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::Data => "datasets/",
        }
    }
}

/// A model or a data set on the hub: `name`, `owner/name`, and either with `@revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    pub(super) repository: String,
    pub(super) revision: String,
}

impl ModelId {
    /// Returns the name of its directory in the cache.
    pub(super) fn cache_name(&self, kind: Kind) -> String {
        format!("{}--{}", kind.plural(), self.repository.replace('/', "--"))
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repository)?;
        if self.revision == DEFAULT_REVISION { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

impl FromStr for ModelId {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let (repository, revision) = text.split_once('@').unwrap_or((text, DEFAULT_REVISION));
        let plain = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
                && !part.starts_with(['.', '-'])
                && !part.ends_with(['.', '-'])
                && !part.contains("--")
                && !part.contains("..")
        };
        let parts: Vec<&str> = repository.split('/').collect();
        if parts.len() > 2 || !parts.iter().all(|part| plain(part)) || !revision.split('/').all(plain) {
            return Err(HubError::NotAnId(text.to_owned()));
        }
        Ok(Self { repository: repository.to_owned(), revision: revision.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_distinguished_from_paths() {
        for good in ["gpt2", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B@v1.0", "a_b/c.d@0123abcd", "a/b@refs/pr/1"] {
            assert_eq!(good.parse::<ModelId>().unwrap().to_string(), good);
        }
        for bad in ["", "a/b/c", "../x", "/abs", "./model", "a//b", "a/b@", "a b", "a/.hidden", "a/b@../c", "a/b@c/", "a--b"] {
            let error = bad.parse::<ModelId>().unwrap_err();
            assert!(error.to_string().contains("neither a directory nor a hub id"), "{error}");
        }
    }

    #[test]
    fn the_cache_directory_is_named_as_by_other_tools() {
        let id: ModelId = "Qwen/Qwen2.5-7B-Instruct".parse().unwrap();
        assert_eq!(id.cache_name(Kind::Model), "models--Qwen--Qwen2.5-7B-Instruct");
        let id: ModelId = "Anthropic/hh-rlhf".parse().unwrap();
        assert_eq!(id.cache_name(Kind::Data), "datasets--Anthropic--hh-rlhf");
    }
}
