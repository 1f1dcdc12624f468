#!/usr/bin/env python3
"""Writes `fixtures/mixtures.json`: what PEFT and transformers compute for several adapters at once.

    pip install torch transformers peft safetensors
    python sk-models/tests/reference/make_mixtures.py

On the model and three adapters of the fixture `untied_sharded`, in f64:

    soups.exact         logits under add_weighted_adapter(combination_type="cat"): Rewarded Soups
    soups.peft_linear   logits under add_weighted_adapter(combination_type="linear")
    mod.<divergence>    log of the mixture of the three next-token distributions (Shi et al. 2024, eq. 6), written as
                        the mean that each divergence stands for

each for the token after `prompt`.
"""

import json
import pathlib
import warnings

import torch
from peft import PeftModel
from transformers import Qwen2ForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
MODEL = "untied_sharded"
WEIGHTS = {"all_linear": 0.5, "rslora": 0.3, "layers": 0.2}
PROMPT = [5, 71, 18, 33, 90, 2, 64]
ALPHA = 0.5


def last_logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([PROMPT]), use_cache=False).logits[0, -1].double()


def main():
    warnings.filterwarnings("ignore")
    folder = ROOT / MODEL
    base = Qwen2ForCausalLM.from_pretrained(folder / "model", dtype=torch.float64, attn_implementation="eager")
    log_pi_b = torch.log_softmax(last_logits(base.eval()), -1)
    names = list(WEIGHTS)
    model = PeftModel.from_pretrained(base, folder / "adapters" / names[0], adapter_name=names[0])
    for name in names[1:]:
        model.load_adapter(folder / "adapters" / name, adapter_name=name)
    weights = list(WEIGHTS.values())
    for rule in ("cat", "linear"):
        model.add_weighted_adapter(names, weights, adapter_name=rule, combination_type=rule)
    model = model.double().eval()

    def under(name):
        model.set_adapter(name)
        return last_logits(model)

    pi = torch.stack([torch.softmax(under(name), -1) for name in names])
    w = torch.tensor(weights, dtype=torch.float64)[:, None]
    b = log_pi_b.exp()
    x = pi / b
    z = (w * torch.log(2 * x / (1 + x))).sum(0).exp()
    mixtures = {
        "reverse-kl": (w * pi.log()).sum(0),
        "forward-kl": -(w / pi).sum(0).log(),
        "jensen-shannon": (b * z / (2 - z)).log(),
        "alpha": -(w * pi.pow(-ALPHA)).sum(0).log() / ALPHA,
    }
    result = {
        "model": MODEL,
        "weights": WEIGHTS,
        "prompt": PROMPT,
        "alpha": ALPHA,
        "soups": {"exact": under("cat").tolist(), "peft_linear": under("linear").tolist()},
        "mod": {name: torch.log_softmax(value, -1).tolist() for name, value in mixtures.items()},
    }
    (ROOT / "mixtures.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
