#!/bin/sh
# Adds twenty prompts per axis to the paper's forty per axis, from the same files. Writes more.jsonl.
# SWISS_KNIFE_DATA names the folder of the data sets.
set -e
data=$SWISS_KNIFE_DATA
sample() { swiss-knife prompts sample "$2" --count 60 --seed 42 -o "$1.jsonl"; }
sample helpfulness "$data/hh-rlhf/helpful-base/test.jsonl.gz"
sample harmlessness "$data/hh-rlhf/harmless-base/test.jsonl.gz"
sample honesty "$data/truthfulqa/TruthfulQA-v1.csv"
swiss-knife prompts export paper-120 -o paper-120.jsonl
python3 - <<'PYTHON'
import json

def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]

taken = {row["prompt"] for row in lines("paper-120.jsonl")}
with open("more.jsonl", "w", encoding="utf-8") as out:
    for axis in ["helpfulness", "harmlessness", "honesty"]:
        fresh = [row for row in lines(f"{axis}.jsonl") if row["prompt"] not in taken][:20]
        assert len(fresh) == 20
        for index, row in enumerate(fresh):
            row = {"id": f"more:{axis}:{index}", "prompt": row["prompt"], "labels": {"axis": axis}}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
PYTHON
