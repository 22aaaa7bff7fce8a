#!/usr/bin/env bash
# Measures a GPU: floors, steps, peers, PyTorch. One call, on a machine with nvcc, CMake and no network.
# bench/gpu.sh [--quick | --dry-run | --built] [DIR] [-- options of the programs...]      bench/gpu.sh --prepare
# What matters most comes first: floors and radix at 2^27 elements and 25 MiB, whose rows are printed as they come; then
# the sweep, the peers and PyTorch. Each is built and run within its own time limit, and may fail without ending the
# others; what a part had until then is used. Under 10 minutes in all, with --quick under 2.
# DIR [$OUT, else bench/results/<gpu>] gets 8 files at most: core.json, sweep.json, peers.json, torch.json, report.md
# and three pictures.
# --prepare, on a connected machine, puts what the other may lack into build/carry: Google Benchmark, CMake,
# newer CCCL headers for the peer cub::DeviceTopK, and the commit's name. Take that folder along.
# --dry-run, on a machine without a GPU: configures, and has bench/gpu_stub.py say what would be compiled and run.
# --built: $BUILD_DIR has the programs, built on another machine; neither nvcc nor CMake is asked for.
# $GRADSIEVE_BENCHMARK_DIR and $GRADSIEVE_CCCL_DIR name other places of the two, $GRADSIEVE_DEVICE_LAUNCHER what runs
# the programs where there is no GPU, $BUILD_DIR the build tree [build/gpu_bench], $LIMIT the seconds for all [570].
set -euo pipefail
began=$SECONDS
command="$0 $*"
directory=
quick=()
options=()
prepare=no
dry=no
elsewhere=no
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=(--quick) ;;
    --prepare) prepare=yes ;;
    --dry-run) dry=yes ;;
    --built) elsewhere=yes ;;
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
  source cmake/setup.sh
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
tools=(python3)
if [ $elsewhere = no ]; then
  use_cmake build/cmake_carried || exit 1
  tools+=(nvcc cmake)
fi
for tool in "${tools[@]}"; do
  command -v "$tool" >/dev/null || {
    echo "bench/gpu.sh: no $tool" >&2
    exit 1
  }
done
launcher=()
[ -z "${GRADSIEVE_DEVICE_LAUNCHER:-}" ] || read -ra launcher <<<"$GRADSIEVE_DEVICE_LAUNCHER"
gpu=none
driver=none
if [ $dry = yes ]; then
  launcher=()
elif nvidia-smi -L >/dev/null 2>&1; then
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
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${GRADSIEVE_BENCHMARK_DIR:-$carry/benchmark}/lib:/usr/local/cuda/lib64
cccl=${GRADSIEVE_CCCL_DIR:-}
if [ $elsewhere = no ] && [ -z "$cccl" ] && [ -d "$carry/cccl" ]; then
  cccl=$carry/cccl
  if wheel=$(ls "$cccl"/*.whl 2>/dev/null); then
    python3 -m zipfile -e "$wheel" "$build/cccl"
    cccl=$(dirname "$(find "$build/cccl" -type d -path '*/cccl/cub')")
  fi
fi
target=(-DCMAKE_CUDA_ARCHITECTURES=native)
[ "$gpu" != none ] || target=(-DCMAKE_CUDA_ARCHITECTURES=90-virtual -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared)
stub=$PWD/bench/gpu_stub.py # for a dry run: instead of the compiler, the linker and the programs
[ $dry = no ] || target+=("-DCMAKE_CUDA_COMPILER_LAUNCHER=$stub;--compile"
  "-DCMAKE_CUDA_LINK_EXECUTABLE=\"$stub\" --link <TARGET>")
if [ $elsewhere = no ]; then
  cmake --preset cuda -B "$build" "${target[@]}" -DGRADSIEVE_BUILD_TESTS=OFF -DGRADSIEVE_BUILD_EXAMPLES=OFF \
    -DGRADSIEVE_BENCH_SWEEP=ON -DGRADSIEVE_WARNINGS_AS_ERRORS=OFF \
    -DGRADSIEVE_CCCL_DIR="$cccl" -DGRADSIEVE_BENCHMARK_DIR="${GRADSIEVE_BENCHMARK_DIR:-$carry/benchmark}" \
    >"$build.log" 2>&1 || {
    cat "$build.log"
    exit 1
  }
fi
echo "bench/gpu.sh: configured in $((SECONDS - began)) s"

most=${LIMIT:-570} # seconds that all may take
[ ${#quick[@]} = 0 ] || most=${LIMIT:-112}
[ "$gpu" != none ] || most=${LIMIT:-3600}
# The seconds that are left, at most $1; 8 are for the report.
within() {
  local left=$((most - (SECONDS - began) - 8))
  echo $(($1 < left ? $1 : left))
}

# compile <share of the time> <target>
compile() {
  local limit start=$SECONDS status=0
  if [ $elsewhere = yes ]; then
    [ -x "$build/bench/$2" ] || echo "bench/gpu.sh: $build/bench has no $2"
    [ -x "$build/bench/$2" ]
    return
  fi
  limit=$(within $((most * $1 / 100)))
  if [ "$limit" -lt 5 ]; then
    echo "bench/gpu.sh: no time left to build $2"
    return 1
  fi
  timeout -k 5 "$limit" cmake --build "$build" -j"$(nproc)" --target "$2" >"$build.$2.log" 2>&1 || status=$?
  echo "bench/gpu.sh: built $2 in $((SECONDS - start)) s of $limit, exit status $status"
  [ $dry = no ] || grep 'would compile' "$build.$2.log" || true
  [ $status = 0 ] || tail -n 50 "$build.$2.log"
  return $status
}

# part <share of the time> <file> <command...>: a part that fails does not end the others.
part() {
  local limit start=$SECONDS status=0 file=$2
  limit=$(within $((most * $1 / 100)))
  shift 2
  if [ "$limit" -lt 5 ]; then
    echo "bench/gpu.sh: no time left for $file"
    return
  fi
  # What the first part finds is printed at once.
  { timeout -k 5 "$limit" "$@" 2>&1 || echo $? >"$build.status"; } | if [ $dry = yes ] || [ "$file" = core.json ]; then
    tee "$build.$file.log"
  else
    cat >"$build.$file.log"
  fi
  [ ! -e "$build.status" ] || status=$(cat "$build.status")
  rm -f "$build.status"
  echo "bench/gpu.sh: $file: $((SECONDS - start)) s of $limit, exit status $status"
  [ "$status" = 0 ] || tail -n 5 "$build.$file.log"
}
# bench <share of the time> <file> <target> <options...>
bench() {
  part "$1" "$2" "${launcher[@]}" "$build/bench/$3" "${quick[@]}" "${@:4}" "${options[@]}" \
    --benchmark_out="$directory/$2" --benchmark_out_format=json
}
report() {
  python3 bench/gpu_report.py "$directory" --fact "device=$gpu" --fact "driver=$driver" --fact "measured=$date" \
    --fact "commit=$commit" --fact "command=\`$command\`"
}

# ---- Measure ------------------------------------------------------------------------------------------------

rm -f "$build.status"
compile 40 gradsieve_bench_cuda_first || exit 1
bench 15 core.json gradsieve_bench_cuda_first --n=134217728,6553600 --quick \
  "--benchmark_filter=^(floor/accumulate/.*fp32|(step|cold)/radix/.*law:laplace/dtype:fp32)"
report >"$build.report.log" 2>&1 || true # whatever ends this call now, there is a report
if compile 35 gradsieve_bench_cuda; then
  bench 35 sweep.json gradsieve_bench_cuda "--benchmark_filter=^(floor|step|cold|exchange)/"
fi
if [ ${#quick[@]} = 0 ] && compile 25 gradsieve_bench_cuda_peers; then
  bench 20 peers.json gradsieve_bench_cuda_peers "--benchmark_filter=^peer/"
fi
torch=(python3 bench/gpu_torch.py "${quick[@]}" --seconds $((most / 5)) "$directory/torch.json")
[ $dry = no ] || torch=("$stub" "${torch[@]}")
part 25 torch.json "${torch[@]}"

status=0
if [ $dry = no ]; then
  report || status=$?
else # what the stub made up is nothing to show
  report >"$build.report.log" 2>&1 || status=$?
fi
echo "bench/gpu.sh: $((SECONDS - began)) s in all"
ls -l "$directory"
if [ "$(find "$directory" -type f | wc -l)" -gt 8 ]; then
  echo "bench/gpu.sh: more than 8 files in $directory" >&2
  status=1
fi
exit $status
