#!/bin/sh
# Serves the model that ships with SGLang on this machine's CPU, and compares 50 steps with the
# engine of this repository, as vllm.sh does.
#
#     sk-remote/tests/sglang.sh FOLDER
#
# FOLDER gets a Python environment (6 GB, once) and the model. Needs Linux, Python 3.11 to 3.13 and
# pip.
set -eu

version=0.5.23
. "$(dirname "$0")/steps.sh"

# Most requirements of the package are for GPUs. Install only what it imports on a CPU, in the
# versions that it pins; torch is the version of vllm.sh.
if [ ! -e "$folder/venv/installed" ]; then
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/pip" install -q torch==2.13.0 torchvision==0.28.0 transformers==5.19.0 tokenizers==0.23.2 \
        compressed-tensors==0.18.0 xgrammar==0.2.7 openai==2.8.0 sentencepiece==0.2.1 soundfile==0.13.1 \
        aiohttp dill einops fastapi gguf IPython jsonschema msgspec orjson partial_json_parser psutil pybase64 python-multipart \
        pyzmq requests setproctitle uvicorn uvloop
    "$folder/venv/bin/pip" install -q --no-deps "sglang==$version"
    site=$("$folder/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # Adapters use pinned memory even on a CPU, which needs a GPU driver
    # (https://github.com/sgl-project/sglang/issues/31894).
    sed -i 's/pin_memory=True/pin_memory=False/; s/\.pin_memory()//' \
        "$site/sglang/srt/lora/layers.py" "$site/sglang/srt/lora/backend/torch_backend.py"
    # The CPU kernels are not on PyPI. SGLang imports these functions, but calls none of them for
    # this model.
    mkdir -p "$site/sgl_kernel"
    cat > "$site/sgl_kernel/__init__.py" <<'PYTHON'
def refuse(*_, **__):
    raise NotImplementedError("the kernels of SGLang are not installed")


assign_draft_cache_locs_contiguous_cpu = assign_extend_cache_locs_cpu = assign_req_to_token_pool_cpu = refuse
build_tree_kernel_efficient_cpu = copy_all_layer_kv_cache_cpu = fill_accept_out_cache_loc_cpu = refuse
fill_bonus_tokens_cpu = rotate_input_ids_cpu = verify_tree_greedy_cpu = refuse
PYTHON
    touch "$folder/venv/installed"
fi

record
export CUDA_VISIBLE_DEVICES= HF_HUB_OFFLINE=1 SGLANG_USE_CPU_ENGINE=1
"$folder/venv/bin/python" -m sglang.launch_server \
    --model-path "$model/backbone" --host 127.0.0.1 --port "$port" \
    --device cpu --dtype float32 --attention-backend torch_native --max-total-tokens 16384 \
    --enable-lora --lora-backend torch_native --max-loras-per-batch 4 \
    --lora-paths "helpful=$model/blades/helpful" "honest=$model/blades/honest" "harmless=$model/blades/harmless" \
    > "$folder/sglang.log" 2>&1 &
compare "sglang+http://127.0.0.1:$port" "$folder/sglang.log"
