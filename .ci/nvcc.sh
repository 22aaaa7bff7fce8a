#!/usr/bin/env bash
# .ci/nvcc.sh [folder]   puts nvcc of CUDA 13 there [/usr/local/cuda], from Python's packages: 270 MB, in seconds
# For a machine without a GPU that shall compile device code, and run it on the CPU: tests/ptxcpu.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-/usr/local/cuda}
if [ -x "$folder/bin/nvcc" ]; then
  echo "there is $folder/bin/nvcc"
  exit
fi
source cmake/setup.sh
need python3-pip python3 -m pip --version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m pip install -q --no-deps --only-binary=:all: --target "$work" nvidia-cuda-nvcc==13.0.88 \
  nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-cccl==13.0.85 nvidia-cuda-runtime==13.0.96
ln -s libcudart.so.13 "$work/nvidia/cu13/lib/libcudart.so"
ln -s lib "$work/nvidia/cu13/lib64"
mkdir -p "$folder"
cp -a "$work/nvidia/cu13/." "$folder/"
"$folder/bin/nvcc" --version
