//! The shape of a Qwen2-family decoder, as Hugging Face's `config.json` states it.

use std::path::Path;

use serde::{Deserialize, Serializer};
use serde_json::{Value, json};
use thiserror::Error;

use crate::json;

/// A `config.json` that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a message names the fields of its variant")]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io { path: String, source: std::io::Error },
    /// The text is not JSON, or a field is missing or of the wrong type.
    #[error("{path}: not a model configuration: {source}")]
    Json { path: String, source: serde_json::Error },
    /// A field has a value that this architecture does not support.
    #[error("{path}: `{field}` is {value}: {reason}")]
    Field { path: String, field: &'static str, value: String, reason: &'static str },
}

/// Hyper-parameters of a Qwen2 decoder.
///
/// Reads both spellings in use: `rope_theta` and `torch_dtype` (transformers 4) and
/// `rope_parameters` and `dtype` (transformers 5). Writes the first spelling, which every reader
/// understands.
///
/// ```
/// use sk_models::Qwen2Config;
///
/// let config = Qwen2Config::from_json(
///     "inline",
///     r#"{"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
///         "num_attention_heads": 4, "num_key_value_heads": 2, "rope_parameters": {"rope_theta": 10000.0}}"#,
/// )?;
/// assert_eq!(config.head_dim, 16);
/// assert_eq!(config.rope_theta, 10000.0);
/// # Ok::<(), sk_models::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Qwen2Config {
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width of the gated feed-forward layer.
    pub intermediate_size: usize,
    /// Decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides the query heads.
    pub num_key_value_heads: usize,
    /// Width of a head; even, since RoPE rotates pairs of halves.
    pub head_dim: usize,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// The longest context.
    pub max_position_embeddings: usize,
    /// Whether the head is the embedding.
    pub tie_word_embeddings: bool,
    /// Begin-of-sequence token, if there is one.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a response. [`to_json`](Self::to_json) writes only the first.
    pub eos_token_ids: Vec<u32>,
    /// Padding token, if there is one.
    pub pad_token_id: Option<u32>,
}

#[derive(Deserialize)]
struct RopeParameters {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    /// The earlier name of `rope_type`; files that were saved again have both.
    #[serde(rename = "type")]
    kind: Option<String>,
    factor: Option<f64>,
}

impl RopeParameters {
    /// Returns the kind of position scaling, which is not supported, if there is one.
    fn scaling(&self) -> Option<String> {
        let kinds = [&self.rope_type, &self.kind];
        let scaled = kinds.into_iter().flatten().find(|kind| *kind != "default").cloned();
        let is_plain = kinds.into_iter().any(Option::is_some);
        scaled.or_else(|| self.factor.filter(|factor| !is_plain && *factor != 1.0).map(|factor| format!("factor {factor}")))
    }
}

/// `config.json` as read.
#[derive(Deserialize)]
struct ConfigJson {
    model_type: Option<String>,
    architectures: Option<Vec<String>>,
    quantization_config: Option<Value>,
    hidden_act: Option<String>,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    rope_theta: Option<f64>,
    rope_parameters: Option<RopeParameters>,
    rope_scaling: Option<RopeParameters>,
    rms_norm_eps: Option<f64>,
    max_position_embeddings: Option<usize>,
    tie_word_embeddings: Option<bool>,
    use_sliding_window: Option<bool>,
    #[serde(default, deserialize_with = "json::ids")]
    bos_token_id: Vec<u32>,
    #[serde(default, deserialize_with = "json::ids")]
    eos_token_id: Vec<u32>,
    #[serde(default, deserialize_with = "json::ids")]
    pad_token_id: Vec<u32>,
}

/// The base of the rotary frequencies if the file has none, as in transformers.
const DEFAULT_ROPE_THETA: f64 = 10_000.0;
/// The epsilon of RMSNorm if the file has none, as in transformers.
const DEFAULT_RMS_NORM_EPS: f64 = 1e-6;
/// The context length if the file has none, as in transformers.
const DEFAULT_MAX_POSITIONS: usize = 32_768;

impl Qwen2Config {
    /// Returns the number of entries of the seven matrices of all layers.
    pub(crate) fn matrix_entries(&self) -> usize {
        let attention = 2 * self.hidden_size * (self.query_size() + self.key_value_size());
        self.num_hidden_layers * (attention + 3 * self.hidden_size * self.intermediate_size)
    }

    /// Returns the number of parameters of the layers and the final norm.
    pub(crate) fn body_parameters(&self) -> usize {
        let vectors = self.query_size() + 2 * self.key_value_size() + 2 * self.hidden_size;
        self.matrix_entries() + self.num_hidden_layers * vectors + self.hidden_size
    }

    /// Returns the number of parameters: embedding, layers, norms, and the head if it is not tied.
    #[must_use]
    pub fn parameters(&self) -> usize {
        let tables = if self.tie_word_embeddings { 1 } else { 2 };
        tables * self.vocab_size * self.hidden_size + self.body_parameters()
    }

    /// Returns the number of elements in the keys and values of one token under one policy:
    /// `2·layers·Hkv·D`.
    #[must_use]
    pub fn cache_numbers(&self) -> usize {
        2 * self.num_hidden_layers * self.key_value_size()
    }

    /// Reads `config.json`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is not JSON, or describes another architecture or an impossible
    /// shape.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let name = path.display().to_string();
        let text = crate::files::read_to_string(path).map_err(|source| ConfigError::Io { path: name.clone(), source })?;
        Self::from_json(&name, &text)
    }

    /// Reads the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    ///
    /// As [`from_file`](Self::from_file).
    pub fn from_json(path: &str, text: &str) -> Result<Self, ConfigError> {
        let raw: ConfigJson = json::parse(text).map_err(|source| ConfigError::Json { path: path.to_owned(), source })?;
        let refuse = |field, value: String, reason| Err(ConfigError::Field { path: path.to_owned(), field, value, reason });
        if let Some(kind) = &raw.model_type
            && kind != "qwen2"
        {
            return refuse("model_type", kind.clone(), "only qwen2 is supported");
        }
        if let Some(architectures) = &raw.architectures
            && !architectures.is_empty()
            && !architectures.iter().any(|name| name.ends_with("ForCausalLM"))
        {
            return refuse("architectures", architectures.join(", "), "only language models, as Qwen2ForCausalLM, are supported");
        }
        if let Some(quantization) = &raw.quantization_config {
            let method = quantization["quant_method"].as_str().unwrap_or("given").to_owned();
            return refuse("quantization_config", method, "quantised weights are not read; use the model in F32, F16 or BF16");
        }
        if let Some(act) = &raw.hidden_act
            && act != "silu"
        {
            return refuse("hidden_act", act.clone(), "only silu is supported");
        }
        if raw.use_sliding_window == Some(true) {
            return refuse("use_sliding_window", "true".into(), "sliding-window attention is not supported");
        }
        for (field, rope) in [("rope_parameters", &raw.rope_parameters), ("rope_scaling", &raw.rope_scaling)] {
            if let Some(kind) = rope.as_ref().and_then(RopeParameters::scaling) {
                return refuse(field, kind, "only unscaled rotary embeddings are supported");
            }
        }
        let heads = raw.num_attention_heads;
        if heads == 0 {
            return refuse("num_attention_heads", "0".into(), "at least one head is needed");
        }
        let head_dim = match raw.head_dim {
            Some(given) => given,
            None if raw.hidden_size.is_multiple_of(heads) => raw.hidden_size / heads,
            None => {
                return refuse(
                    "hidden_size",
                    raw.hidden_size.to_string(),
                    "not a multiple of num_attention_heads, and head_dim is not given",
                );
            }
        };
        let config = Self {
            vocab_size: raw.vocab_size,
            hidden_size: raw.hidden_size,
            intermediate_size: raw.intermediate_size,
            num_hidden_layers: raw.num_hidden_layers,
            num_attention_heads: heads,
            num_key_value_heads: raw.num_key_value_heads.unwrap_or(heads),
            head_dim,
            // If a file has the base twice, the inner one counts, as in transformers 5.
            rope_theta: [&raw.rope_scaling, &raw.rope_parameters]
                .into_iter()
                .find_map(|rope| rope.as_ref()?.rope_theta)
                .or(raw.rope_theta)
                .unwrap_or(DEFAULT_ROPE_THETA),
            rms_norm_eps: raw.rms_norm_eps.unwrap_or(DEFAULT_RMS_NORM_EPS),
            max_position_embeddings: raw.max_position_embeddings.unwrap_or(DEFAULT_MAX_POSITIONS),
            tie_word_embeddings: raw.tie_word_embeddings.unwrap_or(false),
            bos_token_id: raw.bos_token_id.first().copied(),
            eos_token_ids: raw.eos_token_id,
            pad_token_id: raw.pad_token_id.first().copied(),
        };
        config.validate(path)?;
        Ok(config)
    }

    /// Checks that the shape is possible.
    ///
    /// # Errors
    ///
    /// If a field is impossible. The error names the first one.
    pub(crate) fn validate(&self, path: &str) -> Result<(), ConfigError> {
        let refuse = |field, value: String, reason| Err(ConfigError::Field { path: path.to_owned(), field, value, reason });
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.num_key_value_heads),
            ("head_dim", self.head_dim),
            ("max_position_embeddings", self.max_position_embeddings),
        ];
        // A `head_dim` of zero has a message of its own below.
        if let Some((field, _)) = sizes.into_iter().find(|(field, size)| *size == 0 && *field != "head_dim") {
            return refuse(field, "0".into(), "must be at least one");
        }
        // With sizes up to this one, nothing overflows or reserves absurd memory before the weights
        // are read. Existing models have layers hundreds of times smaller.
        const LARGEST: usize = 1 << 31;
        const MOST_LAYERS: usize = 1 << 16;
        const MOST_PARAMETERS: u128 = 1 << 50;
        for (field, size) in sizes {
            let most = if field == "num_hidden_layers" { MOST_LAYERS } else { LARGEST };
            if size > most {
                return refuse(field, size.to_string(), "no model is as large");
            }
        }
        let [vocabulary, hidden, inner] = [self.vocab_size, self.hidden_size, self.intermediate_size].map(|size| size as u128);
        let heads = (2 * self.num_attention_heads + 2 * self.num_key_value_heads) as u128 * self.head_dim as u128;
        let layer = hidden.saturating_mul(heads).saturating_add(3 * hidden * inner);
        if (2 * vocabulary * hidden).saturating_add(layer.saturating_mul(self.num_hidden_layers as u128)) > MOST_PARAMETERS {
            let sizes = format!(
                "{hidden} with {vocabulary} tokens, {} layers, {inner} inside and {heads} of heads",
                self.num_hidden_layers
            );
            return refuse("hidden_size", sizes, "no model has as many parameters");
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            return refuse("num_key_value_heads", self.num_key_value_heads.to_string(), "must divide num_attention_heads");
        }
        if self.head_dim == 0 || !self.head_dim.is_multiple_of(2) {
            return refuse("head_dim", self.head_dim.to_string(), "must be even and at least two");
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 0.0) {
            return refuse("rope_theta", self.rope_theta.to_string(), "must be positive and finite");
        }
        if !(self.rms_norm_eps.is_finite() && self.rms_norm_eps >= 0.0) {
            return refuse("rms_norm_eps", self.rms_norm_eps.to_string(), "must be finite and not negative");
        }
        Ok(())
    }

    /// Returns the text of a `config.json`; `dtype` is the type of the stored weights (`float16`,
    /// `float32`).
    #[must_use]
    pub fn to_json(&self, dtype: &str) -> String {
        let fields = [
            ("architectures", json!(["Qwen2ForCausalLM"])),
            ("model_type", json!("qwen2")),
            ("hidden_act", json!("silu")),
            ("vocab_size", json!(self.vocab_size)),
            ("hidden_size", json!(self.hidden_size)),
            ("intermediate_size", json!(self.intermediate_size)),
            ("num_hidden_layers", json!(self.num_hidden_layers)),
            ("num_attention_heads", json!(self.num_attention_heads)),
            ("num_key_value_heads", json!(self.num_key_value_heads)),
            ("head_dim", json!(self.head_dim)),
            ("rope_theta", json!(self.rope_theta)),
            ("rms_norm_eps", json!(self.rms_norm_eps)),
            ("max_position_embeddings", json!(self.max_position_embeddings)),
            ("tie_word_embeddings", json!(self.tie_word_embeddings)),
            ("use_sliding_window", json!(false)),
            ("attention_dropout", json!(0.0)),
            ("initializer_range", json!(0.02)),
            ("use_cache", json!(true)),
            ("bos_token_id", json!(self.bos_token_id)),
            ("eos_token_id", json!(self.eos_token_ids.first())),
            ("pad_token_id", json!(self.pad_token_id)),
            ("torch_dtype", json!(dtype)),
        ];
        let mut text = Vec::new();
        serde_json::Serializer::pretty(&mut text).collect_map(fields).expect("plain fields always serialise");
        text.push(b'\n');
        String::from_utf8(text).expect("JSON is UTF-8")
    }

    /// Returns the width of all query heads together.
    #[must_use]
    pub fn query_size(&self) -> usize {
        self.num_attention_heads * self.head_dim
    }

    /// Returns the width of all key (or value) heads together.
    #[must_use]
    pub fn key_value_size(&self) -> usize {
        self.num_key_value_heads * self.head_dim
    }

    /// Returns the number of query heads that share a key head.
    #[must_use]
    pub fn queries_per_key(&self) -> usize {
        self.num_attention_heads / self.num_key_value_heads
    }
}

#[cfg(test)]
impl Qwen2Config {
    /// Returns a small shape: tokens, width, inner width, layers, query heads and key heads.
    pub(crate) fn small([tokens, hidden, inner, layers, queries, keys]: [usize; 6]) -> Self {
        let json = serde_json::json!({
            "vocab_size": tokens,
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": queries,
            "num_key_value_heads": keys,
        });
        Self::from_json("small", &json.to_string()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"{"model_type": "qwen2", "hidden_act": "silu", "vocab_size": 151936, "hidden_size": 896,
        "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "rope_theta": 1000000.0, "rms_norm_eps": 1e-06, "max_position_embeddings": 32768, "tie_word_embeddings": true,
        "bos_token_id": 151643, "eos_token_id": 151645, "torch_dtype": "bfloat16", "use_sliding_window": false}"#;

    #[test]
    fn both_spellings_of_the_rotary_base_agree() {
        let old = Qwen2Config::from_json("old", OLD).unwrap();
        let new =
            OLD.replace(r#""rope_theta": 1000000.0"#, r#""rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"}"#);
        assert_eq!(old, Qwen2Config::from_json("new", &new).unwrap());
        assert_eq!(old.head_dim, 64);
        assert_eq!(old.eos_token_ids, [151_645]);
    }

    #[test]
    fn of_two_rotary_bases_the_inner_one_counts() {
        for field in ["rope_parameters", "rope_scaling"] {
            let both = OLD.replace(
                r#""rope_theta": 1000000.0"#,
                &format!(r#""rope_theta": 1000000.0, "{field}": {{"rope_theta": 5000.0, "rope_type": "default"}}"#),
            );
            assert_eq!(Qwen2Config::from_json("both", &both).unwrap().rope_theta, 5000.0, "{field}");
        }
        let without = OLD.replace(
            r#""rope_theta": 1000000.0"#,
            r#""rope_theta": 1000000.0, "rope_scaling": {"rope_type": "default"}, "rope_parameters": null"#,
        );
        assert_eq!(Qwen2Config::from_json("without", &without).unwrap().rope_theta, 1e6);
    }

    #[test]
    fn negative_tokens_are_none_and_lists_are_read() {
        let edited = OLD.replace(r#""bos_token_id": 151643"#, r#""bos_token_id": [1], "pad_token_id": -1"#);
        let config = Qwen2Config::from_json("edited", &edited).unwrap();
        assert_eq!((config.bos_token_id, config.pad_token_id), (Some(1), None));
    }

    #[test]
    fn written_configurations_are_read_back() {
        let config = Qwen2Config::from_json("old", OLD).unwrap();
        assert_eq!(config, Qwen2Config::from_json("again", &config.to_json("float16")).unwrap());
    }

    #[test]
    fn unsupported_settings_are_refused_by_name() {
        for (from, to, field) in [
            (r#""qwen2""#, r#""llama""#, "model_type"),
            (r#""use_sliding_window": false"#, r#""use_sliding_window": true"#, "use_sliding_window"),
            (r#""num_key_value_heads": 2"#, r#""num_key_value_heads": 3"#, "num_key_value_heads"),
            (r#""hidden_size": 896"#, r#""hidden_size": 897"#, "hidden_size"),
            (r#""num_hidden_layers": 24"#, r#""num_hidden_layers": 0"#, "num_hidden_layers"),
            (r#""qwen2""#, r#""qwen2", "quantization_config": {"quant_method": "awq"}"#, "`quantization_config` is awq"),
            (r#""qwen2""#, r#""qwen2", "architectures": ["Qwen2ForSequenceClassification"]"#, "`architectures`"),
        ] {
            let message = Qwen2Config::from_json("c", &OLD.replace(from, to)).unwrap_err().to_string();
            assert!(message.contains(field), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
