#!/usr/bin/env bash
# Measures a GPU: floors, steps, peers, PyTorch. One call, on a machine with nvcc, CMake and no network.
# bench/gpu.sh [--quick] [DIR] [-- options of gradsieve_bench_cuda...]      bench/gpu.sh --prepare
# DIR [$OUT, else bench/results/<gpu>] gets core.json, torch.json, peers.json, sweep.json, report.md and pictures.
# Under 10 minutes, with --quick under 2. Parts have time limits; what a part had until then is used.
# --prepare, on a connected machine, puts what the other may lack into build/carry: Google Benchmark, CMake,
# newer CCCL headers for the peer cub::DeviceTopK, and the commit's name. Take that folder along.
# $GRADSIEVE_BENCHMARK_DIR and $GRADSIEVE_CCCL_DIR name other places of the two, $GRADSIEVE_DEVICE_LAUNCHER what runs the
# program where there is no GPU, $BUILD_DIR the build tree [build/gpu_bench].
set -euo pipefail
began=$SECONDS
command="$0 $*"
directory=
quick=()
options=()
prepare=no
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=(--quick) ;;
    --prepare) prepare=yes ;;
    --)
      shift
      options=("$@")
      break
      ;;
    -*)
      sed -n '3s/^# *//p' "$0" >&2
      exit 2
      ;;
    *) directory=$(realpath -m "$1") ;;
  esac
  shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."
carry=$PWD/build/carry
source .ci/carry.sh
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null || cat "$carry/commit" 2>/dev/null || echo unknown)

if [ $prepare = yes ]; then
  source .ci/setup.sh
  need libbenchmark-dev header benchmark/benchmark.h
  rm -rf "$carry/benchmark" "$carry/cccl"
  mkdir -p "$carry/benchmark/include" "$carry/benchmark/lib"
  cp -r /usr/include/benchmark "$carry/benchmark/include/"
  for library in /usr/lib/*/libbenchmark.{a,so*}; do
    [ ! -e "$library" ] || cp -L "$library" "$carry/benchmark/lib/"
  done
  carry_cmake
  echo "$commit" >"$carry/commit"
  if [ -n "${GRADSIEVE_CCCL_DIR:-}" ]; then
    mkdir -p "$carry/cccl"
    cp -r "$GRADSIEVE_CCCL_DIR"/{cub,cuda,nv,thrust} "$carry/cccl/"
  else # the wheel of these headers: 4 MB, unpacked where it is used
    python3 -m pip download -q --no-deps --only-binary=:all: -d "$carry/cccl" nvidia-cuda-cccl==13.3.5.0.6 ||
      echo "bench/gpu.sh: no newer CCCL headers; the peer cub::DeviceTopK depends on the toolkit's"
  fi
  du -sh "$carry"
  exit
fi

export PATH=$PATH:/usr/local/cuda/bin
use_cmake build/cmake_carried || exit 1
for tool in nvcc cmake python3; do
  command -v $tool >/dev/null || {
    echo "bench/gpu.sh: no $tool" >&2
    exit 1
  }
done
launcher=()
[ -z "${GRADSIEVE_DEVICE_LAUNCHER:-}" ] || read -ra launcher <<<"$GRADSIEVE_DEVICE_LAUNCHER"
gpu=none
driver=none
if nvidia-smi -L >/dev/null 2>&1; then
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
elif [ ${#launcher[@]} = 0 ]; then
  echo "bench/gpu.sh: no GPU here" >&2
  exit 1
fi
if [ -z "$directory" ]; then
  name=$(echo "$gpu" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9]+/-/g; s/^-+|-+$//g')
  directory=${OUT:-$PWD/bench/results/$name}
fi
mkdir -p "$directory"
rm -f "$directory"/{core,torch,peers,sweep}.json
date=$(date -u +%Y-%m-%dT%H:%M:%SZ)
printf '%s\n' "device: $gpu" "driver: $driver" "date: $date" "commit: $commit" "command: $command"

# ---- Build --------------------------------------------------------------------------------------------------

build=${BUILD_DIR:-$PWD/build/gpu_bench}
mkdir -p "$build"
cccl=${GRADSIEVE_CCCL_DIR:-}
if [ -z "$cccl" ] && [ -d "$carry/cccl" ]; then
  cccl=$carry/cccl
  if wheel=$(ls "$cccl"/*.whl 2>/dev/null); then
    python3 -m zipfile -e "$wheel" "$build/cccl"
    cccl=$(dirname "$(find "$build/cccl" -type d -path '*/cccl/cub')")
  fi
fi
target=(-DCMAKE_CUDA_ARCHITECTURES=native)
[ "$gpu" != none ] || target=(-DCMAKE_CUDA_ARCHITECTURES=90-virtual -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared)
cmake --preset cuda -B "$build" "${target[@]}" -DGRADSIEVE_BUILD_TESTS=OFF -DGRADSIEVE_BUILD_EXAMPLES=OFF \
  -DGRADSIEVE_BENCH_SWEEP=ON -DGRADSIEVE_WARNINGS_AS_ERRORS=OFF \
  -DGRADSIEVE_CCCL_DIR="$cccl" -DGRADSIEVE_BENCHMARK_DIR="${GRADSIEVE_BENCHMARK_DIR:-$carry/benchmark}" \
  >"$build.log" 2>&1 || { cat "$build.log" && exit 1; }
# At most half of the time: with less there is nothing to report.
limit=$((${#quick[@]} == 0 ? 285 : 60))
[ "$gpu" != none ] || limit=3600
timeout -k 5 $limit cmake --build "$build" -j"$(nproc)" --target gradsieve_bench_cuda >"$build.log" 2>&1 || {
  status=$?
  tail -n 50 "$build.log"
  [ $status != 124 ] || echo "bench/gpu.sh: the build was not done in $limit s" >&2
  exit 1
}
echo "bench/gpu.sh: built in $((SECONDS - began)) s"

# ---- Measure ------------------------------------------------------------------------------------------------

most=570 # seconds that all may take
[ ${#quick[@]} = 0 ] || most=112
[ "$gpu" != none ] || most=3600

# part <seconds at most> <file> <command...>: in the time that is left; a part that fails does not end the others.
part() {
  local limit=$(($1 < most - (SECONDS - began) - 8 ? $1 : most - (SECONDS - began) - 8)) file=$2 start=$SECONDS status=0
  shift 2
  if [ $limit -lt 5 ]; then
    echo "bench/gpu.sh: no time left for $file"
    return
  fi
  timeout -k 5 "$limit" "$@" >"$build.$file.log" 2>&1 || status=$?
  echo "bench/gpu.sh: $file: $((SECONDS - start)) s of $limit, exit status $status"
  [ $status = 0 ] || tail -n 5 "$build.$file.log"
}
bench() {
  part "$1" "$2" "${launcher[@]}" "$build/bench/gradsieve_bench_cuda" "${@:3}" "${options[@]}" \
    --benchmark_out="$directory/$2" --benchmark_out_format=json
}
bench $((most / 2)) core.json --quick
part $((most / 4)) torch.json python3 bench/gpu_torch.py "${quick[@]}" --seconds $((most / 5)) "$directory/torch.json"
if [ ${#quick[@]} = 0 ]; then
  bench 120 peers.json "--benchmark_filter=^peer/"
  bench "$most" sweep.json "--benchmark_filter=^(floor|step|cold|exchange)/"
fi

status=0
python3 bench/gpu_report.py "$directory" --fact "device=$gpu" --fact "driver=$driver" --fact "measured=$date" \
  --fact "commit=$commit" --fact "command=\`$command\`" || status=$?
echo "bench/gpu.sh: $((SECONDS - began)) s in all"
ls -l "$directory"
exit $status
