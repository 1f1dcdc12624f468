//! A byte-level BPE tokenizer: text to token ids, token ids to bytes.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use sha2::{Digest, Sha256, digest::Output};
use tokenizers::{DecoderWrapper, PostProcessorWrapper, Tokenizer as Inner};

use super::error::{TextError, one_line};

/// A tokenizer in Hugging Face's `tokenizer.json` format.
///
/// Special tokens that occur in a text are recognised, and none are added: a prompt is exactly the
/// text of its framing.
///
/// Clones share their memory. So do tokenizers that are read one after the other from equal files,
/// such as those of a backbone and its drafter.
#[derive(Debug, Clone)]
pub struct Tokenizer(Arc<Parts>);

/// What a tokenizer is read into.
#[derive(Debug, Clone)]
struct Parts {
    inner: Inner,
    /// The bytes that each id stands for; empty for ids that no token has.
    bytes: Vec<Box<[u8]>>,
    /// Whether each id is a special token.
    special: Vec<bool>,
}

/// The tokenizer that was read last. Reading that of Qwen2.5 takes a second.
static LATEST: Latest = Latest(Mutex::new(None));

/// The tokenizer that was read last, if it is still in use, with the digest of its file.
struct Latest(Mutex<Option<(Output<Sha256>, Weak<Parts>)>>);

impl Latest {
    /// Returns the tokenizer of a file with these contents, which is read if it is another one.
    fn of(&self, name: &str, text: &[u8]) -> Result<Tokenizer, TextError> {
        let digest = Sha256::digest(text);
        let latest = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = latest().as_ref().filter(|(of, _)| *of == digest).and_then(|(_, parts)| parts.upgrade());
        if let Some(parts) = known {
            return Ok(Tokenizer(parts));
        }
        let parts = Arc::new(Parts::read(name, text)?);
        *latest() = Some((digest, Arc::downgrade(&parts)));
        Ok(Tokenizer(parts))
    }
}

/// The largest number of bytes of a text that is tokenised: 32 for each of the 131,072 tokens that
/// the longest Qwen2.5 reads.
///
/// The library takes sixty times as much memory, and fails if a pattern backtracks through some ten
/// million characters.
pub(crate) const MOST_BYTES: usize = 1 << 22;

/// Qwen2's pattern, which splits a text before byte pairs are merged.
pub(crate) const PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Llama 3's pattern, which keeps up to three digits together.
const LLAMA_PATTERN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The parts of a `tokenizer.json` that decide what it computes.
///
/// The file comes from a download, and the library panics, hangs or takes gigabytes on some of the
/// parts that it knows. So only the parts of common byte-level tokenizers are accepted: those of
/// Qwen2, Llama 3 and their relatives.
#[derive(Deserialize)]
struct Components {
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
    decoder: Option<Value>,
    added_tokens: Option<Vec<Added>>,
    model: ModelPart,
}

#[derive(Deserialize)]
struct Added {
    id: u32,
    content: String,
}

#[derive(Deserialize)]
struct ModelPart {
    #[serde(rename = "type")]
    kind: Option<String>,
    dropout: Option<f64>,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    vocab: HashMap<String, IgnoredAny>,
    #[serde(default)]
    merges: Vec<Merge>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a merge: two tokens, or a text of two tokens")]
enum Merge {
    Pair(String, String),
    Text(String),
}

impl Merge {
    /// Returns the length in bytes of the token that it makes.
    fn bytes(&self) -> usize {
        match self {
            Self::Pair(left, right) => left.len() + right.len(),
            Self::Text(text) => text.len().saturating_sub(1),
        }
    }
}

impl Components {
    /// Rejects, by name, features that none of these tokenizers has.
    fn check(&self) -> Result<(), String> {
        let Self { normalizer, pre_tokenizer, post_processor, decoder, added_tokens: _, model } = self;
        match model.kind.as_deref() {
            Some("BPE") => {}
            kind => return Err(format!("its model is {}; only BPE is supported", kind.unwrap_or("of no type"))),
        }
        if let Some(dropout) = model.dropout.filter(|&dropout| dropout != 0.0) {
            return Err(format!("its model has dropout {dropout}, so that one text has many encodings; set dropout to null"));
        }
        for (field, affix) in
            [("continuing_subword_prefix", &model.continuing_subword_prefix), ("end_of_word_suffix", &model.end_of_word_suffix)]
        {
            if affix.as_ref().is_some_and(|affix| !affix.is_empty()) {
                return Err(format!("its model has a {field}, which is not supported"));
            }
        }
        // The library joins the tokens of a merge in a buffer of the length of the longest token.
        let longest = model.vocab.keys().map(String::len).max();
        if model.merges.iter().map(Merge::bytes).max() > longest {
            return Err("one of its merges makes a token that is not in the vocabulary".to_owned());
        }
        let byte_level = |part: &Value| part["type"] == "ByteLevel";
        let splits = |part: &Value| match part["type"].as_str() {
            Some("Split") => part["pattern"]["Regex"].as_str().is_some_and(|regex| [PATTERN, LLAMA_PATTERN].contains(&regex)),
            kind => matches!(kind, Some("ByteLevel" | "Digits")),
        };
        check_part("normalizer", "normalizers", normalizer.as_ref(), |part| part["type"] == "NFC")?;
        check_part("pre_tokenizer", "pretokenizers", pre_tokenizer.as_ref(), splits)?;
        // Removed once the file is read.
        check_part("post_processor", "processors", post_processor.as_ref(), |part| {
            byte_level(part) || part["type"] == "TemplateProcessing"
        })?;
        check_part("decoder", "decoders", decoder.as_ref(), byte_level)
    }
}

/// Checks a part of a tokenizer, or each part of a sequence. Sequences must not be nested.
fn check_part(field: &str, list: &str, part: Option<&Value>, known: impl Fn(&Value) -> bool) -> Result<(), String> {
    let Some(part) = part else { return Ok(()) };
    let all = match (part["type"].as_str(), &part[list]) {
        (Some("Sequence"), Value::Array(all)) => all.as_slice(),
        _ => std::slice::from_ref(part),
    };
    match all.iter().find(|part| !known(part)) {
        None => Ok(()),
        Some(part) => {
            let kind = part["type"].as_str().unwrap_or("of no type");
            let what = if kind == "Split" {
                "Split with another pattern than those of Qwen2 and Llama 3".to_owned()
            } else {
                kind.chars().take(64).collect()
            };
            Err(format!("its {field} is {what}, which is not supported"))
        }
    }
}

/// The largest number of tokens, some thirty times the vocabulary of Qwen2.5. Decoding takes 16
/// bytes of memory for each id, used or not.
pub(crate) const MOST_TOKENS: usize = 1 << 22;

impl Parts {
    /// Reads the text of a `tokenizer.json`; `name` stands for it in errors.
    fn read(name: &str, text: &[u8]) -> Result<Self, TextError> {
        let refuse = |reason: String| TextError::Tokenizer { name: name.to_owned(), reason };
        let added = {
            let parts: Components = serde_json::from_slice(text).map_err(|error| refuse(one_line(&error)))?;
            parts.check().map_err(refuse)?;
            // The rest is a second copy of vocabulary and merges, and takes no memory from here on.
            parts.added_tokens
        };
        let mut inner = Inner::from_bytes(text).map_err(|error| refuse(one_line(&*error)))?;
        if !matches!(inner.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            return Err(TextError::NotByteLevel { name: name.to_owned() });
        }
        // The library numbers added tokens itself, one after the other, whatever the file says.
        for (added, found) in added.iter().flatten().filter_map(|added| Some((added, inner.token_to_id(&added.content)?))) {
            if found != added.id {
                let token: String = added.content.chars().take(64).collect();
                let reason =
                    format!("its added token {token:?} has id {} where {found} is next; leave no gap between ids", added.id);
                return Err(refuse(reason));
            }
        }
        // Some files carry the settings of the last training run; a prompt must never be cut or
        // padded silently. Nor must a post-processor drop or repeat a part of it.
        inner.with_post_processor(None::<PostProcessorWrapper>);
        inner.with_padding(None).with_truncation(None).map_err(|error| refuse(one_line(&*error)))?;

        let alphabet = byte_alphabet();
        let vocabulary = inner.get_vocab(true);
        let added = inner.get_added_tokens_decoder();
        let size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
        if size > MOST_TOKENS {
            return Err(refuse(format!("its largest token id is {}; {MOST_TOKENS} tokens are the most", size - 1)));
        }
        let mut bytes = vec![Box::default(); size];
        let mut special = vec![false; size];
        for (token, id) in vocabulary {
            let slot = id as usize;
            bytes[slot] = match added.get(&id) {
                Some(added) => added.content.as_bytes().into(),
                None => token_bytes(&token, &alphabet),
            };
            special[slot] = added.get(&id).is_some_and(|added| added.special);
        }
        Ok(Self { inner, bytes, special })
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is not a tokenizer, or is not a byte-level one.
    pub fn from_file(path: &Path) -> Result<Self, TextError> {
        let text = crate::files::read(path).map_err(|source| TextError::Io { path: path.to_owned(), source })?;
        Self::from_json(&path.display().to_string(), &text)
    }

    /// Reads the text of a `tokenizer.json`; `name` stands for it in errors.
    ///
    /// # Errors
    ///
    /// As [`from_file`](Self::from_file).
    pub fn from_json(name: &str, text: &[u8]) -> Result<Self, TextError> {
        LATEST.of(name, text)
    }

    /// Returns whether two tokenizers share their memory, and so are equal.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns a tokenizer with one token per byte, whose id is the byte, for models without a
    /// checkpoint.
    ///
    /// ```
    /// use sk_models::text::Tokenizer;
    ///
    /// assert_eq!(Tokenizer::bytes().encode("é!")?, [0xc3, 0xa9, u32::from(b'!')]);
    /// # Ok::<(), sk_models::text::TextError>(())
    /// ```
    #[must_use]
    pub fn bytes() -> Self {
        let vocabulary: HashMap<String, u8> = byte_alphabet().into_iter().map(|(c, byte)| (c.to_string(), byte)).collect();
        let byte_level =
            serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let json = serde_json::json!({
            "version": "1.0", "added_tokens": [], "pre_tokenizer": byte_level, "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        });
        Self::from_json("bytes", json.to_string().as_bytes()).expect("a vocabulary of all bytes is a tokenizer")
    }

    /// Returns the token ids of a text.
    ///
    /// # Errors
    ///
    /// If the text is longer than four mebibytes, or the tokenizer refuses it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        if text.len() > MOST_BYTES {
            return Err(TextError::TooLong { bytes: text.len(), most: MOST_BYTES });
        }
        let encoding = self.0.inner.encode_fast(text, false).map_err(|error| TextError::Encode(one_line(&*error)))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Returns the text of token ids. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    ///
    /// If an id is outside the vocabulary.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TextError> {
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(self.token_bytes(id)?);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the bytes that a token stands for. They need not be whole UTF-8 characters.
    ///
    /// # Errors
    ///
    /// If the id is outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Result<&[u8], TextError> {
        self.0.bytes.get(id as usize).map(|bytes| &**bytes).ok_or(TextError::UnknownId { id, size: self.0.bytes.len() })
    }

    /// Returns the id of a token given by its content, such as `<|im_end|>`.
    #[must_use]
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.0.inner.token_to_id(token)
    }

    /// Returns the library's tokenizer, without truncation and padding.
    pub(crate) fn into_inner(self) -> Inner {
        Arc::unwrap_or_clone(self.0).inner
    }

    /// Returns whether an id is a special token, which framings use and output omits.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.0.special.get(id as usize).copied().unwrap_or(false)
    }

    /// Returns one more than the largest id.
    ///
    /// A model's embedding may have more rows than this; the spare rows are padding.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.0.bytes.len()
    }
}

/// Returns the bytes of a vocabulary entry, or its UTF-8 if it is not spelled in the byte alphabet.
fn token_bytes(token: &str, alphabet: &HashMap<char, u8>) -> Box<[u8]> {
    let mapped: Option<Vec<u8>> = token.chars().map(|c| alphabet.get(&c).copied()).collect();
    mapped.unwrap_or_else(|| token.as_bytes().to_vec()).into()
}

/// Returns the inverse of the byte-level alphabet: printable Latin-1 bytes stand for themselves,
/// and the other 68 for the characters from U+0100 on, in order.
fn byte_alphabet() -> HashMap<char, u8> {
    let mut next = 0x100;
    (0..=u8::MAX)
        .map(|byte| {
            let itself = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
            let c = if itself {
                char::from(byte)
            } else {
                let c = char::from_u32(next).expect("U+0100 to U+0143 are characters");
                next += 1;
                c
            };
            (c, byte)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_that_of_the_tokenizers_library() {
        use tokenizers::pre_tokenizers::byte_level::ByteLevel;

        let ours = byte_alphabet();
        assert_eq!(ours.len(), 256);
        assert!(ByteLevel::alphabet().iter().all(|c| ours.contains_key(c)));
        assert_eq!(ours[&'Ġ'], b' ');
        assert_eq!(ours[&'Ċ'], b'\n');
        assert_eq!(ours[&'A'], b'A');
    }

    #[test]
    fn equal_files_that_are_read_one_after_the_other_share_memory() {
        let file = |merges: &[&str]| {
            serde_json::json!({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false},
                "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false},
                "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": merges}})
            .to_string()
        };
        let (merging, plain) = (file(&["a b"]), file(&[]));
        let latest = Latest(Mutex::new(None));
        let read = |text: &str| latest.of("t.json", text.as_bytes()).unwrap();
        let first = read(&merging);
        assert!(read(&merging).is_shared_with(&first));
        assert!(latest.of("t.json", b"{").is_err() && read(&merging).is_shared_with(&first));
        let second = read(&plain);
        assert_eq!((first.encode("ab").unwrap(), second.encode("ab").unwrap()), (vec![2], vec![0, 1]));
        assert!(!second.is_shared_with(&first) && !read(&merging).is_shared_with(&first));
    }

    #[test]
    fn tokenizers_that_are_not_byte_level_are_refused() {
        let message = Tokenizer::from_json("t.json", b"{").unwrap_err().to_string();
        assert!(message.starts_with("t.json: not a tokenizer"), "{message}");
        let plain = r#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
            "post_processor": null, "decoder": null, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
        let message = Tokenizer::from_json("t.json", plain.as_bytes()).unwrap_err().to_string();
        assert!(message.contains("ByteLevel"), "{message}");
    }

    /// A tokenizer with one part replaced.
    fn with(part: &str, value: Value) -> String {
        let byte_level =
            serde_json::json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let mut json = serde_json::json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
            "decoder": byte_level, "model": {"type": "BPE", "dropout": null, "vocab": {"a": 0}, "merges": []},
        });
        json.pointer_mut(part).map(|slot| *slot = value).unwrap();
        json.to_string()
    }

    #[test]
    fn parts_of_other_families_are_refused_by_name() {
        use serde_json::json;

        let refused = |part: &str, value: Value, words: &[&str]| {
            let error = Tokenizer::from_json("t.json", with(part, value).as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("t.json: ") && words.iter().all(|word| error.contains(word)), "{error}");
        };
        refused("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": ""}), &["normalizer", "Precompiled"]);
        let replace = json!({"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""});
        refused("/normalizer", json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, replace]}), &["Replace"]);
        let split = json!({"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": false});
        refused("/pre_tokenizer", split.clone(), &["pre_tokenizer", "Split", "pattern"]);
        refused("/pre_tokenizer", json!({"type": "Sequence", "pretokenizers": [split]}), &["Split"]);
        refused("/pre_tokenizer", json!({"type": "FixedLength", "length": 0}), &["FixedLength"]);
        let nested = json!({"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": []}]});
        refused("/decoder", nested, &["decoder", "Sequence"]);
        refused("/model", json!({"type": "WordPiece", "vocab": {"a": 0}}), &["WordPiece", "BPE"]);
        refused("/model/dropout", json!(0.5), &["dropout 0.5"]);
        let prefixed = json!({"type": "BPE", "continuing_subword_prefix": "##", "vocab": {"a": 0}, "merges": []});
        refused("/model", prefixed, &["continuing_subword_prefix"]);
        let merge = json!({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]});
        refused("/model", merge, &["merges", "vocabulary"]);
        let merge = json!({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]});
        refused("/model", merge, &["merges", "vocabulary"]);
        assert!(Tokenizer::from_json("t.json", with("/normalizer", json!({"type": "NFC"})).as_bytes()).is_ok());
    }

    /// The parts of Llama 3 and SmolLM2. A template does not change a prompt.
    #[test]
    fn parts_of_related_families_are_read() {
        use serde_json::json;

        let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
        let ids = |part: &str, value: Value, text: &str| {
            let vocabulary = json!({"1": 0, "2": 1, "12": 2, "21": 3, "121": 4, "2121": 5, "<s>": 6});
            let model = json!({"type": "BPE", "vocab": vocabulary, "merges": [["1", "2"], ["2", "1"], ["2", "121"]]});
            let mut tokenizer: Value = serde_json::from_str(&with("/model", model)).unwrap();
            tokenizer[part] = value;
            Tokenizer::from_json("t.json", tokenizer.to_string().as_bytes()).unwrap().encode(text).unwrap()
        };
        let split = |first: Value| json!({"type": "Sequence", "pretokenizers": [first, byte_level]});
        let pattern = json!({"Regex": LLAMA_PATTERN});
        let llama = json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false});
        assert_eq!(ids("pre_tokenizer", split(llama), "1212"), [2, 0, 1]);
        assert_eq!(ids("pre_tokenizer", split(json!({"type": "Digits", "individual_digits": true})), "1212"), [0, 1, 0, 1]);
        let template = json!({
            "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}},
        });
        assert_eq!(ids("post_processor", json!({"type": "Sequence", "processors": [byte_level, template]}), "1212"), [2, 2]);
    }

    #[test]
    fn an_added_token_that_would_get_another_id_is_refused() {
        let added = |id: u32| {
            let flags = serde_json::json!({
                "id": id, "content": "<end>", "special": true, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false,
            });
            Tokenizer::from_json("t.json", with("/added_tokens", serde_json::json!([flags])).as_bytes())
        };
        assert_eq!(added(1).unwrap().id_of("<end>"), Some(1));
        let message = added(7).unwrap_err().to_string();
        assert!(message.contains(r#""<end>" has id 7 where 1 is next"#), "{message}");
    }

    #[test]
    fn a_text_is_bounded_before_it_is_tokenised() {
        let tokenizer = Tokenizer::bytes();
        let error = tokenizer.encode(&" ".repeat(MOST_BYTES + 1)).unwrap_err();
        assert!(matches!(error, TextError::TooLong { bytes, most: MOST_BYTES } if bytes == MOST_BYTES + 1));
        // The longest text of blanks before a letter, which the pattern scans from every position.
        let model = crate::assets::embedded().map(|embedded| Tokenizer::from_file(&embedded.backbone().join("tokenizer.json")));
        let ids = model.map(|tokenizer| tokenizer.unwrap().encode(&(" ".repeat(MOST_BYTES - 1) + "a")).unwrap());
        assert!(ids.is_none_or(|ids| !ids.is_empty()));
    }
}
