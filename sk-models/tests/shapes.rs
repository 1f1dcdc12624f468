//! The shapes of the published Qwen2.5 models, from the values of their `config.json` files.

use burn::{module::Module, tensor::Device};
use safetensors::{Dtype, tensor::TensorView};
use serde_json::{Value, json};
use sk_models::{
    Qwen2Config,
    hf::{TensorFiles, load_model, tensor_shapes},
};

/// The values of a `config.json`, and sizes that follow from them.
struct Published {
    name: &'static str,
    hidden: usize,
    intermediate: usize,
    layers: usize,
    heads: usize,
    key_value_heads: usize,
    vocabulary: usize,
    tied: bool,
    /// Width of a head, which is not in the file.
    head_dim: usize,
    /// Width of the keys, which is also that of the values.
    key_value_size: usize,
    /// The number of parameters that the hub shows.
    parameters: usize,
}

#[rustfmt::skip]
const PUBLISHED: [Published; 4] = [
    Published { name: "Qwen2.5-0.5B", hidden: 896, intermediate: 4864, layers: 24, heads: 14, key_value_heads: 2,
        vocabulary: 151_936, tied: true, head_dim: 64, key_value_size: 128, parameters: 494_032_768 },
    Published { name: "Qwen2.5-1.5B", hidden: 1536, intermediate: 8960, layers: 28, heads: 12, key_value_heads: 2,
        vocabulary: 151_936, tied: true, head_dim: 128, key_value_size: 256, parameters: 1_543_714_304 },
    Published { name: "Qwen2.5-3B", hidden: 2048, intermediate: 11_008, layers: 36, heads: 16, key_value_heads: 2,
        vocabulary: 151_936, tied: true, head_dim: 128, key_value_size: 256, parameters: 3_085_938_688 },
    Published { name: "Qwen2.5-7B", hidden: 3584, intermediate: 18_944, layers: 28, heads: 28, key_value_heads: 4,
        vocabulary: 152_064, tied: false, head_dim: 128, key_value_size: 512, parameters: 7_615_616_512 },
];

impl Published {
    /// The file as published, in the format of transformers 4.
    fn json(&self) -> Value {
        json!({
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu",
            "hidden_size": self.hidden, "intermediate_size": self.intermediate, "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads, "num_key_value_heads": self.key_value_heads,
            "vocab_size": self.vocabulary, "tie_word_embeddings": self.tied,
            "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6, "rope_theta": 1_000_000.0,
            "sliding_window": 32_768, "max_window_layers": self.layers, "use_sliding_window": false,
            "attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": true,
            "bos_token_id": 151_643, "eos_token_id": 151_645, "torch_dtype": "bfloat16",
        })
    }

    /// The same values in the format of transformers 5.
    fn newer_json(&self) -> Value {
        let mut file = self.json();
        let fields = file.as_object_mut().unwrap();
        let theta = fields.remove("rope_theta").unwrap();
        fields.insert("rope_parameters".into(), json!({"rope_theta": theta, "rope_type": "default"}));
        let dtype = fields.remove("torch_dtype").unwrap();
        fields.insert("dtype".into(), dtype);
        fields.insert("sliding_window".into(), Value::Null);
        fields.insert("layer_types".into(), json!(vec!["full_attention"; self.layers]));
        fields.insert("pad_token_id".into(), Value::Null);
        file
    }

    fn config(&self) -> Qwen2Config {
        Qwen2Config::from_json(self.name, &self.json().to_string()).unwrap()
    }
}

#[test]
fn both_spellings_give_every_field() {
    for model in &PUBLISHED {
        let config = model.config();
        assert_eq!(config, Qwen2Config::from_json(model.name, &model.newer_json().to_string()).unwrap(), "{}", model.name);
        let expected = Qwen2Config {
            vocab_size: model.vocabulary,
            hidden_size: model.hidden,
            intermediate_size: model.intermediate,
            num_hidden_layers: model.layers,
            num_attention_heads: model.heads,
            num_key_value_heads: model.key_value_heads,
            head_dim: model.head_dim,
            rope_theta: 1e6,
            rms_norm_eps: 1e-6,
            max_position_embeddings: 32_768,
            tie_word_embeddings: model.tied,
            bos_token_id: Some(151_643),
            eos_token_ids: vec![151_645],
            pad_token_id: None,
        };
        assert_eq!(config, expected, "{}", model.name);
        assert_eq!(config.query_size(), model.hidden, "{}", model.name);
        assert_eq!(config.key_value_size(), model.key_value_size, "{}", model.name);
        assert_eq!(config.queries_per_key() * model.key_value_heads, model.heads, "{}", model.name);
    }
}

#[test]
fn the_tensors_have_the_published_number_of_parameters() {
    for model in &PUBLISHED {
        let shapes = tensor_shapes(&model.config());
        let count: usize = shapes.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        assert_eq!(count, model.parameters, "{}", model.name);
        // Seven linear layers, three of them with a bias, and two norms per layer.
        assert_eq!(shapes.len(), 12 * model.layers + 2 + usize::from(!model.tied), "{}", model.name);

        let (hidden, keys) = (model.hidden, model.key_value_size);
        let last = format!("model.layers.{}", model.layers - 1);
        for (part, expected) in [
            ("input_layernorm.weight", vec![hidden]),
            ("post_attention_layernorm.weight", vec![hidden]),
            ("self_attn.q_proj.weight", vec![hidden, hidden]),
            ("self_attn.q_proj.bias", vec![hidden]),
            ("self_attn.k_proj.weight", vec![keys, hidden]),
            ("self_attn.k_proj.bias", vec![keys]),
            ("self_attn.v_proj.weight", vec![keys, hidden]),
            ("self_attn.v_proj.bias", vec![keys]),
            ("self_attn.o_proj.weight", vec![hidden, hidden]),
            ("mlp.gate_proj.weight", vec![model.intermediate, hidden]),
            ("mlp.up_proj.weight", vec![model.intermediate, hidden]),
            ("mlp.down_proj.weight", vec![hidden, model.intermediate]),
        ] {
            let entry = (format!("{last}.{part}"), expected);
            assert!(shapes.contains(&entry), "{}: {entry:?}", model.name);
        }
        let head = ("lm_head.weight".to_owned(), vec![model.vocabulary, hidden]);
        assert_eq!(shapes.contains(&head), !model.tied, "{}", model.name);
        assert!(shapes.contains(&("model.embed_tokens.weight".to_owned(), vec![model.vocabulary, hidden])));
    }
}

/// A small shape whose widths are all different, so a mix-up of two widths fails.
fn small(tied: bool) -> Qwen2Config {
    Qwen2Config {
        vocab_size: 61,
        hidden_size: 24,
        intermediate_size: 40,
        num_hidden_layers: 2,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 6,
        tie_word_embeddings: tied,
        ..PUBLISHED[0].config()
    }
}

#[test]
fn the_loader_takes_exactly_these_tensors() {
    for tied in [true, false] {
        let config = small(tied);
        let shapes = tensor_shapes(&config);
        let zeros = vec![0; 4 * config.vocab_size * config.intermediate_size];
        let write = |shapes: &[(String, Vec<usize>)]| {
            let directory = tempfile::tempdir().unwrap();
            let views = shapes.iter().map(|(name, shape)| {
                let bytes = &zeros[..4 * shape.iter().product::<usize>()];
                (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
            });
            safetensors::serialize_to_file(views, None, &directory.path().join("model.safetensors")).unwrap();
            directory
        };
        let load = |shapes: &[(String, Vec<usize>)]| {
            let directory = write(shapes);
            load_model(&config, &TensorFiles::open(directory.path()).unwrap(), &Device::flex())
        };
        let count: usize = shapes.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        assert_eq!(load(&shapes).unwrap().num_params(), count, "every tensor has a place in the model");
        for missing in 0..shapes.len() {
            let mut fewer = shapes.clone();
            let (name, _) = fewer.remove(missing);
            let message = load(&fewer).unwrap_err().to_string();
            assert!(message.contains(&format!("`{name}` is missing")), "{message}");
        }
    }
}
