#!/usr/bin/env python3
"""Tokens per second of training a Qwen2 model in transformers on a CPU, beside `swiss-knife train lm` (docs/src/training.md).

    python train_speed.py CONFIG.json [--bf16] [--steps 10] [--batch 8] [--length 256]

Random tokens, AdamW, a clipped gradient. Steps after the second count. Needs torch and transformers.
"""
import argparse
import json
import statistics
import time

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", help="a config.json")
    parser.add_argument("--bf16", action="store_true", help="autocast to bf16")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    args = parser.parse_args()
    with open(args.config, encoding="utf-8") as file:
        config = Qwen2Config.from_dict(json.load(file))
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seconds = []
    for _ in range(args.steps):
        tokens = torch.randint(config.vocab_size, (args.batch, args.length))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    rate = args.batch * args.length / statistics.median(seconds[2:])
    print(json.dumps({"bf16": args.bf16, "threads": torch.get_num_threads(), "tokens_per_second": round(rate, 1)}))


if __name__ == "__main__":
    main()
