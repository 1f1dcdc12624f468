#!/usr/bin/env bash
# Runs a command with the CPU in place of a CUDA device; see README.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export EMULATOR=${EMULATOR:-$here/../../../target/emulator} EMULATOR_SOURCE=$here
mkdir -p "$EMULATOR/kernels" "$EMULATOR/lib" "$EMULATOR/cache"
EMULATOR=$(cd "$EMULATOR" && pwd)

# NVIDIA's runtime compiler for kernels, its headers and its assembler.
if [ ! -d "$EMULATOR/nvidia" ]; then
  python3 -m venv "$EMULATOR/venv"
  "$EMULATOR/venv/bin/pip" install --quiet nvidia-cuda-{nvrtc,runtime,nvcc,crt,cccl}~=13.0
  ln -s "$("$EMULATOR/venv/bin/python" -c 'import nvidia; print(list(nvidia.__path__)[0])')/cu13" "$EMULATOR/nvidia"
fi

build() { # LIBRARY SOURCE
  if [ "$here/$2" -nt "$EMULATOR/lib/$1" ]; then
    g++ -std=c++17 -O2 -fPIC -shared -I "$EMULATOR/nvidia/include" -Wl,-soname,"$1" -o "$EMULATOR/lib/$1.new" "$here/$2" -ldl
    mv "$EMULATOR/lib/$1.new" "$EMULATOR/lib/$1"
  fi
}
build libcuda.so driver.cpp
build libnvrtc.so nvrtc.cpp

# Compiled kernels are cached apart from those of a real GPU.
export LD_LIBRARY_PATH=$EMULATOR/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} CUDA_PATH=$EMULATOR/nvidia
export XDG_CACHE_HOME=$EMULATOR/cache SWISS_KNIFE_TEST_DEVICE=${SWISS_KNIFE_TEST_DEVICE:-cuda}
exec "$@"
