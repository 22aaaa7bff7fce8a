#!/usr/bin/env bash
# Measures this machine: builds, runs the sweep, draws it and writes the table of the goals.
#   bench/report.sh [--full] [--peers] [DIR] [-- options of gradsieve_bench...]
# DIR [bench/results/<processor and cores>] gets bench.json, report.md and the pictures. --peers installs libtorch.
# Measures each row three times, in random order. Takes 10 minutes on two cores, much longer with --full. Other processes
# may run: what they disturb is measured again, and gets no verdict if it stays so.
set -euo pipefail
directory=
options=()
build=(-DGRADSIEVE_BENCH_TORCH=OFF)
while [ $# -gt 0 ]; do
  case "$1" in
    --full) options+=("$1") ;;
    --peers)
      options+=("$1")
      build=(-DGRADSIEVE_BENCH_TORCH=ON)
      ;;
    --)
      shift
      options+=("$@")
      break
      ;;
    -*)
      sed -n '3,4s/^# *//p' "$0" >&2
      exit 2
      ;;
    *) directory=$(realpath -m "$1") ;;
  esac
  shift
done
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source cmake/setup.sh
need libbenchmark-dev header benchmark/benchmark.h
need doctest-dev header doctest/doctest.h # the build tree is also that of the tests
want python3-matplotlib plotting_python
[ "${build[0]}" != -DGRADSIEVE_BENCH_TORCH=ON ] || want libtorch-dev header c10/macros/Macros.h

# "Intel(R) Xeon(R) Processor @ 2.80GHz" on two cores: xeon-2.8ghz-2cores
host_name() {
  local model
  model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1)
  echo "${model:-$(uname -m)}" | tr '[:upper:]' '[:lower:]' |
    sed -E 's/\((r|tm)\)//g; s/\b(intel|amd|cpu|processor|with|[0-9]+-core)\b//g; s/([0-9]\.[0-9]*[1-9])0+ghz/\1ghz/
            s/[^a-z0-9.]+/-/g; s/^-+//; s/-*$/-'"$(nproc)"'cores/'
}
directory=${directory:-bench/results/$(host_name)}

build_directory=${BUILD_DIR:-build/release}
cmake --preset release -B "$build_directory" "${build[@]}"
cmake --build "$build_directory" -j"$(nproc)" --target gradsieve_bench

mkdir -p "$directory"
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null || echo none)
# Each thread keeps its core: two that share one for a while take turns of 8 ms, the floor's as well as ours.
export OMP_PROC_BIND=${OMP_PROC_BIND-true}
"$build_directory/bench/gradsieve_bench" --seconds=0.2 --benchmark_repetitions=3 \
  --benchmark_enable_random_interleaving=true "${options[@]}" --benchmark_context=commit="$commit" \
  --benchmark_out="$directory/bench.json" --benchmark_out_format=json

if python=$(plotting_python); then
  "$python" bench/plot.py "$directory/bench.json"
elif python=$(command -v python3); then
  echo "bench/report.sh: no pictures, there is no Python with matplotlib"
else
  echo "bench/report.sh: no pictures and no table, there is no Python"
  exit
fi
"$python" bench/table.py "$directory/bench.json"
