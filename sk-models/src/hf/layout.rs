//! The layout of a checkpoint: every tensor of a decoder, by name and shape.

use crate::{config::Qwen2Config, lora::Target};

/// The embedding, `[V, H]`.
pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
/// The final norm, `[H]`.
pub(super) const FINAL_NORM: &str = "model.norm.weight";
/// The head, `[V, H]`, unless it is the embedding.
pub(super) const HEAD: &str = "lm_head.weight";

/// Returns the prefix of the names of a layer's tensors.
pub(super) fn layer(index: usize) -> String {
    format!("model.layers.{index}")
}

/// Returns the name and shape of every tensor of a decoder of this shape, as in files: linear
/// layers are `[out, in]`.
///
/// A tied head is the embedding and is not listed again, so the products of the shapes sum to the
/// number of parameters.
///
/// ```
/// use sk_models::{Qwen2Config, hf::tensor_shapes};
///
/// let config = Qwen2Config::from_json(
///     "inline",
///     r#"{"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
///         "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true}"#,
/// )?;
/// let shapes = tensor_shapes(&config);
/// assert!(shapes.contains(&("model.layers.1.self_attn.k_proj.weight".to_owned(), vec![32, 64])));
/// # Ok::<(), sk_models::ConfigError>(())
/// ```
#[must_use]
pub fn tensor_shapes(config: &Qwen2Config) -> Vec<(String, Vec<usize>)> {
    let hidden = config.hidden_size;
    let mut shapes = vec![(EMBEDDING.to_owned(), vec![config.vocab_size, hidden])];
    for index in 0..config.num_hidden_layers {
        let layer = layer(index);
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            shapes.push((format!("{layer}.{norm}.weight"), vec![hidden]));
        }
        for target in Target::ALL {
            let (input, output) = target.dims(config);
            let path = format!("{layer}.{}", target.path());
            shapes.push((format!("{path}.weight"), vec![output, input]));
            if target.has_bias() {
                shapes.push((format!("{path}.bias"), vec![output]));
            }
        }
    }
    shapes.push((FINAL_NORM.to_owned(), vec![hidden]));
    if !config.tie_word_embeddings {
        shapes.push((HEAD.to_owned(), vec![config.vocab_size, hidden]));
    }
    shapes
}
