"""Compares the log-probabilities of a vLLM server with those of transformers, adapters merged.

Requirements: torch, transformers, safetensors; a server of the model that ships, with its three blades as adapters, as the page
"Models behind a server" of the book says.

    python sk-remote/tests/reference/oracle.py http://localhost:8000 sk-models/assets
"""

import copy
import json
import sys
import urllib.request
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file

URL, ASSETS = sys.argv[1], Path(sys.argv[2])
PROMPT = "\n\nHuman: What should I do before I lend my bicycle to a friend?\n\nAssistant: First, check the brakes and"
# Both sides compute in float32, with sums in different orders.
TOLERANCE = 1e-4


def post(path, body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))


def completions(model, prompt, **fields):
    return post("/v1/completions", {"model": model, "prompt": prompt, **fields})["choices"]


def read(model, context, span):
    """Per token of the span: its log-probability, and that of the most probable token."""
    [choice] = completions(model, [context + span], max_tokens=1, temperature=0, prompt_logprobs=1)
    entries = choice["prompt_logprobs"][len(context) :]
    return [(e[str(t)]["logprob"], max(v["logprob"] for v in e.values())) for t, e in zip(span, entries, strict=True)]


def merged(model, name):
    directory = ASSETS / "blades" / name
    config = json.loads((directory / "adapter_config.json").read_text())
    weights = load_file(directory / "adapter_model.safetensors")
    rank = config["r"]
    scale = config["lora_alpha"] / (rank**0.5 if config.get("use_rslora") else rank)
    model = copy.deepcopy(model)
    modules = dict(model.named_modules())
    for key in [key for key in weights if ".lora_A." in key]:
        module = modules[key.removeprefix("base_model.model.").split(".lora_A.")[0]]
        module.weight.data += scale * (weights[key.replace("lora_A", "lora_B")].float() @ weights[key].float())
    return model


def main():
    context = post("/tokenize", {"prompt": PROMPT, "add_special_tokens": False})["tokens"]
    sampling = {"temperature": 1.0, "top_p": 0.95, "seed": 5, "ignore_eos": True}
    drafts = completions("base", context, n=4, max_tokens=8, logprobs=0, return_token_ids=True, **sampling)
    spans = [draft["token_ids"] for draft in drafts]
    drafted = max(
        abs(own - again)
        for draft, span in zip(drafts, spans)
        for own, (again, _) in zip(draft["logprobs"]["token_logprobs"], read("base", context, span), strict=True)
    )
    print(f"drafted against read: {drafted:.1e} nats at most")
    base = transformers.AutoModelForCausalLM.from_pretrained(ASSETS / "backbone", dtype=torch.float32).eval()
    farthest = drafted
    for name in ["base", "helpful", "honest", "harmless"]:
        model, worst = base if name == "base" else merged(base, name), 0.0
        for span in spans:
            with torch.no_grad():
                log_probs = model(torch.tensor([context + span])).logits[0].double().log_softmax(-1)[len(context) - 1 :]
            for row, token, (target, top) in zip(log_probs, span, read(name, context, span)):
                worst = max(worst, abs(row[token].item() - target), abs(row.max().item() - top))
        print(f"{name} against transformers: {worst:.1e} nats at most")
        farthest = max(farthest, worst)
    sys.exit(farthest > TOLERANCE)


main()
