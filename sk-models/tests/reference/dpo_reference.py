#!/usr/bin/env python3
"""Writes tests/fixtures/dpo.json: the DPO loss and its gradient with respect to the policy's logits, by PyTorch.

Independent of the Rust code: log-softmax, gather and sums are torch's, in float64, and the gradient is autograd's.

    python sk-models/tests/reference/dpo_reference.py
"""
import json
import pathlib

import torch

VOCAB, PAIRS = 11, 4
LENGTHS = [(3, 5), (2, 2), (6, 1), (4, 7)]  # completion tokens of the chosen side and of the rejected side
VARIANTS = [
    {"beta": 0.1, "label_smoothing": 0.0, "length_normalised": False},
    {"beta": 0.5, "label_smoothing": 0.1, "length_normalised": False},
    {"beta": 2.0, "label_smoothing": 0.0, "length_normalised": True},
    {"beta": 5.0, "label_smoothing": 0.2, "length_normalised": True},
]


def sequence_log_probs(logits, targets, owners):
    picked = torch.log_softmax(logits, -1).gather(-1, targets[:, None])[:, 0]
    return torch.stack([picked[owners == i].sum() for i in range(2 * PAIRS)])


def loss_of(logits, reference, targets, owners, beta, label_smoothing, length_normalised):
    ratio = sequence_log_probs(logits, targets, owners) - sequence_log_probs(reference, targets, owners)
    if length_normalised:
        ratio = ratio / torch.bincount(owners).to(ratio.dtype)
    z = beta * (ratio[:PAIRS] - ratio[PAIRS:])
    right, wrong = torch.nn.functional.logsigmoid(z), torch.nn.functional.logsigmoid(-z)
    return -((1 - label_smoothing) * right + label_smoothing * wrong).mean()


def main():
    torch.manual_seed(20)
    sides = [c for c, _ in LENGTHS] + [r for _, r in LENGTHS]
    owners = torch.repeat_interleave(torch.arange(2 * PAIRS), torch.tensor(sides))
    rows = len(owners)
    # Round to f32, so that both implementations start from the same numbers.
    policy = (2 * torch.randn(rows, VOCAB)).float()
    reference = (policy + 0.7 * torch.randn(rows, VOCAB)).float()
    targets = torch.randint(VOCAB, (rows,))
    cases = []
    for variant in VARIANTS:
        logits = policy.double().requires_grad_()
        loss = loss_of(logits, reference.double(), targets, owners, **variant)
        (grad,) = torch.autograd.grad(loss, logits)
        cases.append({**variant, "loss": loss.item(), "gradient": grad.flatten().tolist()})
    fixture = {
        "vocab": VOCAB,
        "pairs": PAIRS,
        "owners": owners.tolist(),
        "targets": targets.tolist(),
        "policy": policy.flatten().tolist(),
        "reference": reference.flatten().tolist(),
        "cases": cases,
    }
    path = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "dpo.json"
    path.write_text(json.dumps(fixture) + "\n")


if __name__ == "__main__":
    main()
