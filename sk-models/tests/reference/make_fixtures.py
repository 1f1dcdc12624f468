#!/usr/bin/env python3
"""Writes the parity fixtures: tiny random Qwen2 models and LoRA adapters with what
transformers and PEFT compute on them.

    pip install torch transformers peft safetensors
    python sk-models/tests/reference/make_fixtures.py

Every tensor is random, norms and biases included, so that no missing term can hide behind a
zero or a one. Weights are rounded to the dtype they are stored in before anything is computed.
What is expected is the f64 forward pass, so that a difference is the rounding of the code under
test and not of the reference too; the script checks that the reference in f32 agrees with it.

For each model, `sk-models/tests/fixtures/<name>/` holds

    model/                  a checkpoint directory in Hugging Face format
    adapters/<adapter>/     adapters in PEFT format
    expected.json           steps, readings, mu, sigma, greedy continuations (see `expect`)
    expected.safetensors    `<reading>.logits`, f32 [S, V]: prompt of step 0 and its last candidate
"""

import copy
import dataclasses
import json
import math
import pathlib
import shutil
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
VOCAB = 96
BETA = 0.1
GREEDY_TOKENS = 12
# Require this gap between the two best tokens, so that rounding cannot change a greedy token.
GREEDY_MARGIN = 1e-3
# The largest allowed difference between f32 and f64 in transformers, in nats of a log-probability.
F32_ROUNDING = 5e-6


@dataclasses.dataclass
class Model:
    """One tiny backbone and the adapters trained "for" it."""

    name: str
    config: dict
    dtype: torch.dtype = torch.float32
    shard: str = "1GB"
    # Write config.json as transformers 4 did (`rope_theta`, `torch_dtype`).
    old_spelling: bool = False
    adapters: dict = dataclasses.field(default_factory=dict)
    adapter_dtype: torch.dtype = torch.float32


MODELS = [
    Model(
        name="tied",
        config=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2,
                    rope_theta=1e6, tie_word_embeddings=True),
        old_spelling=True,
        adapters={
            "list": dict(target_modules=["q_proj", "v_proj"], r=4, lora_alpha=8),
            "regex": dict(
                target_modules=r".*layers\.1\.(self_attn\.[ko]_proj|mlp\.down_proj)",
                r=3, lora_alpha=5),
            "embed_tokens": dict(target_modules=["embed_tokens", "k_proj"], r=4, lora_alpha=6),
            "lm_head": dict(target_modules=["lm_head", "up_proj"], r=2, lora_alpha=4),
        },
    ),
    Model(
        name="untied_sharded",
        config=dict(hidden_size=48, intermediate_size=40, num_hidden_layers=3,
                    num_attention_heads=6, num_key_value_heads=1,
                    rope_theta=1e6, tie_word_embeddings=False),
        dtype=torch.bfloat16,
        shard="40KB",
        adapters={
            "all_linear": dict(target_modules="all-linear", r=4, lora_alpha=8),
            "patterns": dict(
                target_modules=["q_proj", "o_proj", "down_proj", "gate_proj"], r=4, lora_alpha=4,
                rank_pattern={"q_proj": 6, "layers.0.mlp.down_proj": 2,
                              r"^model\.layers\.1\..*gate_proj": 3},
                alpha_pattern={"o_proj": 10, r"layers\.[02]\.mlp\.gate_proj": 6}),
            "rslora": dict(target_modules=["q_proj", "k_proj", "v_proj"], r=4, lora_alpha=4,
                           use_rslora=True),
            "layers": dict(target_modules=["v_proj", "up_proj"], r=4, lora_alpha=8,
                           layers_to_transform=[0, 2]),
            "layers_pattern": dict(target_modules=["q_proj", "down_proj"], r=4, lora_alpha=8,
                                   layers_to_transform=1, layers_pattern="layers"),
            "lm_head": dict(target_modules=["lm_head", "q_proj"], r=3, lora_alpha=6),
            "embed_tokens": dict(target_modules=["embed_tokens"], r=3, lora_alpha=6),
        },
        adapter_dtype=torch.bfloat16,
    ),
    Model(
        name="odd_head_dim",
        config=dict(hidden_size=40, intermediate_size=56, num_hidden_layers=2,
                    num_attention_heads=3, num_key_value_heads=3, head_dim=12,
                    rope_theta=1e4, rms_norm_eps=1e-5, tie_word_embeddings=True),
        dtype=torch.float16,
        adapters={
            "list": dict(target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], r=2,
                         lora_alpha=4),
        },
    ),
    Model(
        name="seven_heads",
        config=dict(hidden_size=28, intermediate_size=36, num_hidden_layers=2,
                    num_attention_heads=14, num_key_value_heads=2, head_dim=4,
                    rope_theta=1e6, tie_word_embeddings=False),
        adapters={
            "all_linear": dict(target_modules="all-linear", r=2, lora_alpha=3,
                               exclude_modules=["down_proj"]),
        },
    ),
]


def randomise(model, generator):
    """Fills every parameter at a scale that keeps the logits of order one and apart."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if "norm" in name:
            value = 1.0 + 0.3 * noise
        elif name.endswith("bias"):
            value = 0.3 * noise
        elif "embed_tokens" in name:
            value = 0.25 * noise
        else:
            value = noise * (0.7 / math.sqrt(p.shape[-1]))
        p.data.copy_(value)


def randomise_adapter(model, dtype, generator):
    """Fills A and B: PEFT starts B at zero, which would test nothing."""
    for name, p in model.named_parameters():
        if "lora_" in name:
            noise = torch.randn(p.shape, generator=generator) * 0.25
            p.data.copy_(noise.to(dtype).float())


def spell_as_transformers_4(path):
    """Rewrites a config.json of transformers 5 in the older spelling."""
    config = json.loads(path.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def logits_of(model, ids):
    """Logits [S, V] of one unpadded sequence, without a cache."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def read(model, prompt, candidate):
    """Per-token log pi(y_t) and logsumexp - max after `prompt`, in f64."""
    z = logits_of(model, prompt + candidate)[len(prompt) - 1 : -1].double()
    log_probs = torch.log_softmax(z, -1)[torch.arange(len(candidate)), candidate]
    min_entropy = torch.logsumexp(z, -1) - z.max(-1).values
    return log_probs.tolist(), min_entropy.tolist()


def greedy(model, prompt):
    """The most probable continuation."""
    ids = list(prompt)
    for _ in range(GREEDY_TOKENS):
        top = torch.topk(logits_of(model, ids)[-1], 2)
        assert top.values[0] - top.values[1] > GREEDY_MARGIN, "an ambiguous greedy token: new seed"
        ids.append(int(top.indices[0]))
    return ids[len(prompt):]


def expect(readers, generator):
    """The expected values of all readers (`backbone` first) on two consecutive steps.

    Step 1 starts where step 0 ended: its prompt is the prompt and the committed candidate of step 0.
    """
    def draw(n):
        return torch.randint(0, VOCAB, (n,), generator=generator).tolist()

    steps = []
    prompt = draw(9)
    for lengths in ([3, 1, 6, 4], [5, 2, 4]):
        candidates = [draw(n) for n in lengths]
        readings = {}
        for name, model in readers.items():
            pairs = [read(model, prompt, c) for c in candidates]
            readings[name] = {"log_probs": [p for p, _ in pairs],
                              "min_entropy": [h for _, h in pairs]}
        for name, r in readings.items():
            if name != "backbone":
                base = readings["backbone"]["log_probs"]
                r["mu"] = [BETA * (sum(k) - sum(b)) / len(k)
                           for k, b in zip(r["log_probs"], base)]
                r["sigma"] = [sum(h) / len(h) for h in r["min_entropy"]]
        committed = 2
        steps.append({"prompt": prompt, "candidates": candidates, "committed": committed,
                      "readings": readings})
        prompt = prompt + candidates[committed]
    return {"beta": BETA, "steps": steps,
            "greedy": {n: greedy(m, steps[0]["prompt"]) for n, m in readers.items()}}


def make(spec, seed):
    """Writes one fixture directory."""
    out = ROOT / spec.name
    shutil.rmtree(out, ignore_errors=True)
    generator = torch.Generator().manual_seed(seed)
    config = Qwen2Config(vocab_size=VOCAB, max_position_embeddings=64, bos_token_id=None,
                         eos_token_id=1, pad_token_id=0, **spec.config)
    config._attn_implementation = "eager"
    model = Qwen2ForCausalLM(config)
    randomise(model, generator)
    model.to(spec.dtype).save_pretrained(out / "model", max_shard_size=spec.shard)
    (out / "model/generation_config.json").unlink(missing_ok=True)
    if spec.old_spelling:
        spell_as_transformers_4(out / "model/config.json")

    def backbone():
        return Qwen2ForCausalLM.from_pretrained(
            out / "model", dtype=torch.float32, attn_implementation="eager").eval()

    in_f32 = {"backbone": backbone()}
    for name, options in spec.adapters.items():
        path = out / "adapters" / name
        tuned = get_peft_model(backbone(), LoraConfig(task_type="CAUSAL_LM", **options))
        randomise_adapter(tuned, spec.adapter_dtype, generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tuned.save_pretrained(path)
        (path / "README.md").unlink(missing_ok=True)
        config_path = path / "adapter_config.json"
        saved = json.loads(config_path.read_text())
        # PEFT saves the list from a set, in no fixed order, and saves a path of this machine.
        if isinstance(saved["target_modules"], list):
            saved["target_modules"].sort()
        if options["target_modules"] == "all-linear":
            saved["target_modules"] = "all-linear"
        saved["base_model_name_or_path"] = f"fixtures/{spec.name}"
        config_path.write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
        weights = path / "adapter_model.safetensors"
        save_file({k: v.to(spec.adapter_dtype) for k, v in load_file(weights).items()}, weights)
        # Load the adapter from its files: they define the expected values, not the model in memory.
        in_f32[name] = PeftModel.from_pretrained(backbone(), path).eval()

    readers = {name: copy.deepcopy(model).double() for name, model in in_f32.items()}
    expected = expect(readers, generator)
    rounding = max(
        abs(a - b)
        for step in expected["steps"]
        for name, model in in_f32.items()
        for candidate, row in zip(step["candidates"], step["readings"][name]["log_probs"])
        for a, b in zip(read(model, step["prompt"], candidate)[0], row))
    print(f"{spec.name}: f32 rounds by {rounding:.1e}")
    assert rounding < F32_ROUNDING, f"{spec.name}: f32 rounds by {rounding:.1e}"
    (out / "expected.json").write_text(json.dumps(expected) + "\n")
    first = expected["steps"][0]
    ids = first["prompt"] + first["candidates"][-1]
    save_file({f"{n}.logits": logits_of(m, ids).float().contiguous() for n, m in readers.items()},
              out / "expected.safetensors")
    for name in readers:
        if name != "backbone":
            moved = max(map(abs, first["readings"][name]["mu"]))
            assert moved > 1e-3, f"{spec.name}/{name} barely differs from its backbone"
            print(f"{spec.name}/{name}: largest |mu| {moved:.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for i, spec in enumerate(MODELS):
        make(spec, seed=1 + i)
