"""lm-evaluation-harness through `local-completions`: its log-likelihoods are those of the checkpoint, computed elsewhere."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from transformers import AutoTokenizer

from qwen2 import Qwen2

URL, BACKBONE = sys.argv[1:]
# The server computes in f32.
TOLERANCE = 1e-4

ASKED = [
    ("To clean a bicycle, use a brush and", ["soapy water", "the moon"], 0),
    ("The sun rises in the", ["bicycle", "east"], 1),
    ("A year has twelve", ["months", "soups"], 0),
]
TASK = """\
task: small
dataset_path: json
dataset_kwargs:
  data_files: {{test: {}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
metric_list:
  - metric: acc
"""


def harness(folder):
    """What the harness finds: the log-likelihood of each choice."""
    data = folder / "small.jsonl"
    data.write_text("".join(json.dumps({"question": q, "choices": c, "answer": a}) + "\n" for q, c, a in ASKED))
    (folder / "small.yaml").write_text(TASK.format(data))
    model = f"base_url={URL}/v1/completions,model=swiss-knife,tokenizer={BACKBONE},tokenizer_backend=huggingface"
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", model, "--tasks", "small"]
    command += ["--include_path", folder, "--log_samples", "--output_path", folder / "out", "--batch_size", "2"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (samples,) = folder.glob("out/**/samples_small_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    return [[float(response[0][0]) for response in line["resps"]] for line in sorted(lines, key=lambda line: line["doc_id"])]


with tempfile.TemporaryDirectory() as folder:
    found = harness(Path(folder))
tokenizer = AutoTokenizer.from_pretrained(BACKBONE)
backbone = Qwen2(BACKBONE)
for (question, choices, _), log_likelihoods in zip(ASKED, found):
    opening = len(tokenizer(question).input_ids)
    for choice, log_likelihood in zip(choices, log_likelihoods):
        tokens = tokenizer(f"{question} {choice}").input_ids
        own = backbone.log_likelihoods(tokens)[opening - 1 :].sum()
        assert abs(own - log_likelihood) < TOLERANCE, (question, choice, own, log_likelihood)
print("lm-evaluation-harness")
