#!/usr/bin/env python3
"""What PEFT's set_adapter takes, for `swiss-knife bench --against`.

A Qwen2 model of the shape of a config.json, with adapters on all seven linear layers, between which set_adapter goes back and forth. Setting an
adapter changes Python objects and flags and touches no weight, so that the model is built on the meta device unless told otherwise: any shape
fits any memory. Needs torch, transformers and peft.

    swiss-knife bench --backbone-config 7b.json --drafter-config 3b.json --against 'python3 peft_set_adapter.py 7b.json'

Answers each line on standard input with a line such as {"peft_set_adapter_seconds": 0.004}, the mean of `--edits` calls.
"""
import argparse
import json
import sys
import time

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def build(path, device, adapters, rank):
    """The model with its adapters, called 0, 1, …"""
    with open(path, encoding="utf-8") as file:
        config = Qwen2Config.from_dict(json.load(file))
    lora = LoraConfig(task_type="CAUSAL_LM", r=rank, lora_alpha=2 * rank, target_modules=TARGETS)
    with torch.device(device):
        model = get_peft_model(Qwen2ForCausalLM(config), lora, adapter_name="0")
        for name in range(1, adapters):
            model.add_adapter(str(name), lora)
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="a config.json")
    parser.add_argument("--device", default="meta", help="where the model is built (default: meta)")
    parser.add_argument("--adapters", type=int, default=3, help="adapters (default: 3)")
    parser.add_argument("--rank", type=int, default=16, help="their rank (default: 16)")
    parser.add_argument("--edits", type=int, default=20, help="calls in a repetition (default: 20)")
    args = parser.parse_args()
    if args.adapters < 2:
        parser.error("there is nothing to change with fewer than two adapters")
    model = build(args.config, args.device, args.adapters, args.rank)
    for _ in sys.stdin:
        start = time.perf_counter()
        for edit in range(args.edits):
            model.set_adapter(str(edit % args.adapters))
        seconds = (time.perf_counter() - start) / args.edits
        print(json.dumps({"peft_set_adapter_seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
