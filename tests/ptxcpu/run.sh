#!/usr/bin/env bash
# tests/ptxcpu/run.sh <program> [arguments...]   runs a CUDA program, or one that starts some, on the CPU: README.md
# tests/ptxcpu/run.sh --build                    only builds the runtime library, prints its folder
# The library is built at the first use, in $PTXCPU_CACHE; nothing is written beside this script.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
die() {
  echo "ptxcpu: $*" >&2
  exit 125
}

[ $# -ge 1 ] || die "usage: run.sh <program> [arguments...]"
[ "$(uname -m)" = x86_64 ] || die "needs an x86-64 machine"
grep -qw f16c /proc/cpuinfo && grep -qw avx2 /proc/cpuinfo || die "needs a CPU with AVX2 and F16C"
command -v g++ >/dev/null || die "g++ is missing (Debian: apt-get install g++)"
command -v python3 >/dev/null || die "python3 is missing (Debian: apt-get install python3)"
zstd=$(g++ -print-file-name=libzstd.so.1)
[ -e "$zstd" ] || die "libzstd.so.1 is missing (Debian: apt-get install libzstd1)"

# A folder of the user's own that can be written to.
usable() { mkdir -p -m 700 "$1" 2>/dev/null && [ -w "$1" ] && [ -x "$1" ]; }
if [ -n "${PTXCPU_CACHE-}" ]; then
  usable "$PTXCPU_CACHE" || die "cannot write to the cache folder $PTXCPU_CACHE (set PTXCPU_CACHE)"
else
  PTXCPU_CACHE=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/ptxcpu
  usable "$PTXCPU_CACHE" || PTXCPU_CACHE=${TMPDIR:-/tmp}/ptxcpu-$(id -u)
  usable "$PTXCPU_CACHE" && [ -O "$PTXCPU_CACHE" ] || die "no folder for a cache (set PTXCPU_CACHE)"
fi
PTXCPU_CACHE=$(cd "$PTXCPU_CACHE" && pwd -P)
export PTXCPU_CACHE

# What compiled kernels depend on besides their PTX: the translator, the compiler and the CPU (-march=native).
version=$({
  g++ --version | head -n 1
  grep -m 1 '^flags' /proc/cpuinfo
  cat "$here"/{ptxrt.h,ptx2cpp.py} "$here"/ptx/*.py
} | sha256sum | cut -c1-16)
key=$({
  echo "$version"
  cat "$here"/{run.sh,runtime.cpp} "$here"/runtime/*.h
} | sha256sum | cut -c1-16)
lib=$PTXCPU_CACHE/lib-$key

if [ ! -e "$lib/libcudart.so.13" ]; then
  inc=
  for nvcc in "$(command -v nvcc)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc; do
    [ -n "$nvcc" ] && [ -x "$nvcc" ] || continue
    root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    for folder in "$root/include" "$root"/targets/x86_64-linux/include; do
      [ -e "$folder/cuda_runtime_api.h" ] && inc=$folder && break 2
    done
  done
  [ -n "$inc" ] || die "CUDA headers not found: put nvcc of CUDA 13 on PATH, or set CUDA_HOME"
  v=$(sed -n 's/^#define *CUDART_VERSION *\([0-9]*\).*/\1/p' "$inc/cuda_runtime_api.h")
  [ "${v:-0}" -ge 13000 ] && [ "${v:-0}" -lt 14000 ] ||
    die "needs CUDA 13 headers, found CUDART_VERSION ${v:-?} in $inc"
  echo "ptxcpu: building the runtime library in $lib (once)" >&2
  tmp=$(mktemp -d "$PTXCPU_CACHE/tmp.XXXXXX") || die "mktemp failed"
  trap 'rm -rf "$tmp"' EXIT
  mkdir "$tmp/ptx"
  cp "$here"/{ptxrt.h,ptx2cpp.py} "$tmp/"
  cp "$here"/ptx/*.py "$tmp/ptx/"
  echo "$version" >"$tmp/version"
  # Precompiled for kernels, with the flags of runtime/modules.h: a quarter of a second for each.
  mkdir "$tmp/ptxrt.h.gch"
  for watch in "" -DPTX_WATCH; do
    g++ -std=c++17 -Og $watch -w -march=native -fPIC -fno-strict-aliasing -ffp-contract=off -fwrapv \
      -fno-stack-protector -x c++-header "$tmp/ptxrt.h" -o "$tmp/ptxrt.h.gch/kernels$watch" ||
      die "precompiling ptxrt.h failed"
  done
  echo 'libcudart.so.13 { global: cuda*; __cuda*; rt_*; local: *; };' >"$tmp/symbols.map"
  g++ -std=c++17 -O2 -g -w -march=native -frounding-math -fno-strict-aliasing -fPIC -shared -I"$inc" \
    -Wl,-soname,libcudart.so.13 -Wl,--version-script="$tmp/symbols.map" "$here/runtime.cpp" \
    -o "$tmp/libcudart.so.13" "$zstd" -ldl -lpthread || die "building the runtime library failed"
  ln -s libcudart.so.13 "$tmp/libcudart.so"
  # The first of several processes wins; the others use what it made.
  mv -T "$tmp" "$lib" 2>/dev/null || [ -e "$lib/libcudart.so.13" ] || die "could not move the library to $lib"
  trap - EXIT
  rm -rf "$tmp"
fi
if [ "$1" = --build ]; then
  echo "$lib"
  exit 0
fi

export PTXCPU=1 LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
