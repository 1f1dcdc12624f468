#!/usr/bin/env bash
# Compiles the kernel BASE.cu for the CPU, into BASE.so.
set -euo pipefail
base=$1
kernel=$(sed -nE 's/.*__launch_bounds__\([0-9]+\)[^{(]* ([A-Za-z_0-9]+)\(.*/\1/p' "$base.cu" | head -n 1)
shared=$(sed -nE 's/.*extern __shared__ __align__\([0-9]+\) char ([A-Za-z_0-9]+)\[\].*/\1/p' "$base.cu" | sort -u)
{
  echo "#include \"$EMULATOR_SOURCE/kernel.h\""
  # kernel.h already defines types of these names, and has a function for the instruction.
  sed -E -e '/^typedef .* u?int(8|16|32|64)_t;$/d' \
    -e '/^ *asm volatile\("mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32 /{s/asm volatile\("[^"]*" : /emulated_mma(__LINE__, /;s/"=?[rf]"//g;s/ : /, /}' \
    "$base.cu"
  # The most shared memory that a block can request.
  for name in $shared; do echo "alignas(1024) char $name[233472];"; done
  echo "extern \"C\" void emulated_entry(void** arguments) { call(&$kernel, arguments); }"
  echo "extern \"C\" unsigned emulated_lengths(size_t* out) { return lengths(&$kernel, out); }"
} > "$base.cpp"
g++ -std=c++17 -O1 -w -fpermissive -fPIC -shared -fno-strict-aliasing -I "$EMULATOR_SOURCE/include" -o "$base.so.$$" "$base.cpp" \
  "$EMULATOR/lib/libcuda.so" -Wl,-rpath,"$EMULATOR/lib"
mv "$base.so.$$" "$base.so"
