"""What a Qwen2 checkpoint thinks of texts, in double precision and a few lines: the server's engine by other means."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


class Qwen2:
    def __init__(self, folder):
        self.config = json.loads((Path(folder) / "config.json").read_text())
        self.weights = {name: value.astype(np.float64) for name, value in load_file(Path(folder) / "model.safetensors").items()}

    def log_likelihoods(self, tokens):
        """The log-probability of each token but the first, after those before it."""
        embedding = self.weights["model.embed_tokens.weight"]
        states = embedding[tokens]
        for layer in range(self.config["num_hidden_layers"]):
            states = self.layer(f"model.layers.{layer}", states)
        states = self.norm("model.norm", states)
        logits = states @ (embedding if self.config["tie_word_embeddings"] else self.weights["lm_head.weight"]).T
        logits -= logits.max(axis=-1, keepdims=True)
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        return log_probs[np.arange(len(tokens) - 1), tokens[1:]]

    def layer(self, name, states):
        states = states + self.attention(f"{name}.self_attn", self.norm(f"{name}.input_layernorm", states))
        inner = self.norm(f"{name}.post_attention_layernorm", states)
        gate = self.linear(f"{name}.mlp.gate_proj", inner)
        return states + self.linear(f"{name}.mlp.down_proj", gate / (1 + np.exp(-gate)) * self.linear(f"{name}.mlp.up_proj", inner))

    def attention(self, name, states):
        heads, of_keys = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        length = len(states)

        def split(projection, count):
            return self.linear(f"{name}.{projection}", states).reshape(length, count, -1).swapaxes(0, 1)

        queries, keys = self.rotate(split("q_proj", heads)), self.rotate(split("k_proj", of_keys))
        keys, values = (np.repeat(part, heads // of_keys, axis=0) for part in (keys, split("v_proj", of_keys)))
        scores = queries @ keys.swapaxes(1, 2) / np.sqrt(queries.shape[-1])
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = scores / scores.sum(axis=-1, keepdims=True) @ values
        return self.linear(f"{name}.o_proj", mixed.swapaxes(0, 1).reshape(length, -1))

    def rotate(self, heads):
        """RoPE over halves."""
        half = heads.shape[-1] // 2
        angles = np.outer(np.arange(heads.shape[1]), self.config["rope_theta"] ** (-np.arange(half) / half))
        cos, sin = np.cos(angles), np.sin(angles)
        first, second = heads[..., :half], heads[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def linear(self, name, states):
        return states @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def norm(self, name, states):
        scale = np.sqrt((states**2).mean(axis=-1, keepdims=True) + self.config["rms_norm_eps"])
        return states / scale * self.weights[f"{name}.weight"]
