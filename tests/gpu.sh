#!/usr/bin/env bash
# Runs the device tests on this machine's GPU: first the small cases of one, then all, then the small ones under
# compute-sanitizer. Writes one file, a report. Needs a GPU, nvcc, CMake and a C++ compiler; no network. Exit status: 0
# if all passed, 1 if not, 2 if it could not start.
#   tests/gpu.sh [--quick]   ends inside 10 minutes; --quick: inside 2, without tests called large, memcheck only
#   tests/gpu.sh --built     runs what BUILD_DIR has, built on another machine: no nvcc, and all time for the tests
#   tests/gpu.sh --prepare   on a connected machine: puts what the other may lack into build/carry, to take along
#   tests/gpu.sh --dry-run   on a machine without a GPU: bench/gpu_stub.py says what would be compiled and run
# A test that does not compile fails and leaves the others. A step that its time limit ends is "not run to its end", which
# is no failure; nor is what is left out for want of memory.
# Environment: OUT, the folder of the report [bench/results/<GPU>]; LIMIT, the seconds that all may take [540];
# GRADSIEVE_DOCTEST_DIR, the folder that has doctest/doctest.h [build/carry, if it is there]; BUILD_DIR [build/gpu];
# GRADSIEVE_DEVICE_LAUNCHER [none].
set -euo pipefail
command_line="tests/gpu.sh${*:+ $*}"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source .ci/carry.sh
die() {
  echo "tests/gpu.sh: $*" >&2
  exit 2
}

prepare() {
  local header=${GRADSIEVE_DOCTEST_DIR:+$GRADSIEVE_DOCTEST_DIR/doctest/doctest.h}
  [ -n "$header" ] || header=$(echo '#include <doctest/doctest.h>' | g++ -x c++ -M - | grep -o '/[^ ]*doctest/doctest\.h') ||
    die "doctest is not installed here (Debian: apt-get install doctest-dev)"
  mkdir -p build/carry/doctest
  cp "$header" build/carry/doctest/doctest.h
  carry_cmake
  git describe --always --dirty --exclude '*' >build/carry/commit 2>/dev/null || rm -f build/carry/commit
  echo "build/carry has doctest.h, CMake and the commit's name: take it along with the source"
}

quick=no
dry=no
elsewhere=no
limit=${LIMIT:-540} # seconds in all, with a margin below the promise
case "${1-}" in
  "") ;;
  --quick) quick=yes limit=${LIMIT:-110} ;;
  --dry-run) dry=yes ;;
  --built) elsewhere=yes ;;
  --prepare)
    prepare
    exit
    ;;
  *)
    sed -n 5,8p tests/gpu.sh >&2
    exit 2
    ;;
esac
SECONDS=0
reserve=0 # seconds of it that are not for the next step
left() { echo $((limit - reserve - SECONDS > 1 ? limit - reserve - SECONDS : 1)); }

# ---- This machine ----------------------------------------------------------------------------------------------

launcher=${GRADSIEVE_DEVICE_LAUNCHER-}
PATH=$PATH:/usr/local/cuda/bin
cuda=/usr/local/cuda
compiler=none
if command -v nvcc >/dev/null; then
  cuda=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
  compiler=$(nvcc --version | sed -n 's/.*\(release.*\)/\1/p')
elif [ $elsewhere = no ]; then
  die "nvcc is not on PATH nor in /usr/local/cuda/bin"
fi
# Where libcudart is not in the system's list of libraries.
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$cuda/lib64:$cuda/lib

query() { nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null | head -n 1; }
if gpu=$(query name) && [ -n "$gpu" ]; then
  driver=$(query driver_version)
  memory="$(query memory.total) MiB"
  architecture=$(query compute_cap | tr -d .)
elif [ -n "$launcher" ] || [ $dry = yes ]; then
  gpu=none driver=none memory=none architecture=90
else
  die "nvidia-smi finds no GPU, and GRADSIEVE_DEVICE_LAUNCHER is not set"
fi
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null || cat build/carry/commit 2>/dev/null || echo unknown)

build=${BUILD_DIR:-build/gpu}
directory=${OUT:-bench/results/$(echo "$gpu" | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9]+/-/g; s/^-+//; s/-+$//')}
mkdir -p "$build/logs" "$directory"
[ $elsewhere = yes ] || use_cmake "$build/cmake_carried" || exit 2
rm -f "$build"/logs/*
report=$directory/gpu-tests.md

# ---- Steps and their results -----------------------------------------------------------------------------------

rows=()    # of the report
failed=()  # names of steps
not_run=() # that the time limit has ended
notes=()
note() {
  notes+=("$1")
  echo "note: $1"
}

# step <name> <seconds> <command...>: within so many and the time that is left; its output goes to a log, its end to
# the report.
step() {
  local name=$1 begin=$SECONDS status=0 most
  most=$(left)
  [ "$most" -lt "$2" ] || most=$2
  shift 2
  echo "== $name"
  timeout --kill-after=5 "$most" "$@" >"$build/logs/$name.log" 2>&1 || status=$?
  result "$name" $status $((SECONDS - begin))
}

# result <name> <status> <seconds>
result() {
  local text=passed
  case $2 in
    0) ;;
    77) text=skipped ;;
    124 | 137)
      text="not run to its end: out of time"
      not_run+=("$1")
      ;;
    *) text="FAILED: exit status $2" ;;
  esac
  rows+=("| $1 | $text | $3 |")
  echo "   $text, $3 s"
  [[ $text != FAILED* ]] || failed+=("$1")
}

write_report() {
  {
    echo "# Device tests on $gpu"
    echo
    echo "| | |"
    echo "| --- | --- |"
    echo "| GPU | $gpu, $memory, sm_$architecture |"
    echo "| driver | $driver |"
    echo "| nvcc | $compiler$([ $elsewhere = no ] || echo ", the programs were built on another machine") |"
    echo "| host | $(uname -m), $(nproc) cores, $(g++ --version 2>&1 | head -n 1) |"
    echo "| date | $(date -u '+%Y-%m-%d %H:%M UTC') |"
    echo "| commit | $commit |"
    echo "| command | \`$command_line\`${launcher:+, launcher \`$launcher\`} |"
    echo "| took | $SECONDS s |"
    echo
    echo "| step | result | seconds |"
    echo "| --- | --- | ---: |"
    printf '%s\n' "${rows[@]}"
    [ ${#notes[@]} = 0 ] || printf '\nNote: %s.\n' "${notes[@]}"
    if [ -s "$build/logs/tests.log" ]; then
      printf '\n```\n'
      grep -E '^ *[0-9]+/[0-9]+ Test|tests passed' "$build/logs/tests.log" || true
      echo '```'
    fi
    local name
    for name in "${failed[@]}"; do
      printf '\n## The end of %s\n```\n' "$name"
      tail -n 60 "$build/logs/$name.log" | cut -c1-300
      echo '```'
    done
  } >"$report"
  echo "report: $report"
}
trap write_report EXIT

# ---- Build -----------------------------------------------------------------------------------------------------

options=(-B "$build" "-DCMAKE_CUDA_ARCHITECTURES=$architecture" "-DGRADSIEVE_DEVICE_LAUNCHER=$launcher"
  -DGRADSIEVE_BUILD_BENCH=OFF -DGRADSIEVE_WARNINGS_AS_ERRORS=OFF) # compilers that nobody has seen warn of other things
doctest=${GRADSIEVE_DOCTEST_DIR:-}
[ -n "$doctest" ] || ! [ -e build/carry/doctest/doctest.h ] || doctest=$PWD/build/carry
[ -z "$doctest" ] || options+=("-DGRADSIEVE_DOCTEST_DIR=$(realpath "$doctest")")
# NCCL as Python's package brings it, where the system has none.
nccl=$(python3 -c 'import nvidia.nccl as it; print(list(it.__path__)[0])' 2>/dev/null || true)
if [ -n "$nccl" ] && [ -e "$nccl/include/nccl.h" ] && ! [ -e "$cuda/include/nccl.h" ] && ! [ -e /usr/include/nccl.h ]; then
  libraries=("$nccl"/lib/libnccl.so*)
  LD_LIBRARY_PATH+=:$nccl/lib
  options+=("-DGRADSIEVE_NCCL_INCLUDE_DIR=$nccl/include" "-DGRADSIEVE_NCCL_LIBRARY=${libraries[0]}")
fi

if [ $dry = yes ]; then # instead of the compilers, the linker and the programs
  stub=$PWD/bench/gpu_stub.py
  options+=("-DCMAKE_CUDA_COMPILER_LAUNCHER=$stub;--compile" "-DCMAKE_CXX_COMPILER_LAUNCHER=$stub;--compile"
    "-DCMAKE_CUDA_LINK_EXECUTABLE=\"$stub\" --link <TARGET>" "-DCMAKE_CXX_LINK_EXECUTABLE=\"$stub\" --link <TARGET>")
fi

read -ra launch <<<"$launcher"
built=no
if [ $elsewhere = yes ]; then
  [ -x "$build/tests/cuda_select_test" ] || die "$build/tests has no programs"
  built=yes
  step first 60 "${launch[@]}" "$build/tests/cuda_select_test" '-tc=*small*'
else
  step configure 120 cmake --preset cuda "${options[@]}"
  grep -q 'NCCL_LIBRARY:FILEPATH=/' "$build/CMakeCache.txt" 2>/dev/null || note "no NCCL here; its tests were left out"
fi
if [ $built = no ] && [ ${#failed[@]} = 0 ]; then
  step build_first 150 cmake --build "$build" --target gradsieve_cuda_select_test -j"$(nproc)"
  if [ ${#failed[@]} = 0 ] && [ ${#not_run[@]} = 0 ]; then
    built=yes
    step first 60 "${launch[@]}" "$build/tests/cuda_select_test" '-tc=*small*'
    # The others; what does not compile fails below, and leaves the rest.
    keep_going=(-k)
    ! grep -q 'CMAKE_GENERATOR:INTERNAL=Ninja' "$build/CMakeCache.txt" || keep_going=(-k 0)
    step build 270 cmake --build "$build" --target gradsieve_device_tests -j"$(nproc)" -- "${keep_going[@]}"
  fi
fi
[ $dry = no ] || grep -h 'would compile' "$build"/logs/build*.log || true

# ---- Tests -----------------------------------------------------------------------------------------------------

# With a few at a time, one program's host part runs beside another's kernels.
# Sizes up to 2^30 elements: about 13 GiB on the GPU, and 26 on the host.
if [ -z "$launcher" ] && [ -z "${GRADSIEVE_TEST_MOST-}" ]; then
  GRADSIEVE_TEST_MOST=30
  if [ "$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)" -lt 40 ] || [ "${memory%% *}" -lt 20000 ]; then
    GRADSIEVE_TEST_MOST=27
    note "tests of 2^30 elements were left out: they need 40 GiB of memory and 20 GB on the GPU"
  fi
  export GRADSIEVE_TEST_MOST
fi
# in_parallel <name> <command...>: as step, but four at a time, of a sanitizer's more; `finish` waits for all.
running=()
at_once=4
in_parallel() {
  local name=$1
  shift
  while [ "$(jobs -rp | wc -l)" -ge $at_once ]; do wait -n || true; done
  {
    status=0
    begin=$SECONDS
    timeout --kill-after=5 "$(left)" "$@" >"$build/logs/$name.log" 2>&1 || status=$?
    echo "$status $((SECONDS - begin))" >"$build/logs/$name.end"
  } &
  running+=("$name")
}
finish() {
  wait
  local name status seconds
  for name in "${running[@]}"; do
    read -r status seconds <"$build/logs/$name.end" || status=1 seconds=0
    echo "== $name"
    result "$name" "$status" "$seconds"
  done
  running=()
}

programs=()
if [ $built = yes ]; then
  for program in "$build"/tests/*_test; do
    if [ $elsewhere = yes ] && ldd "$program" | grep -q 'not found'; then
      note "${program##*/} was left out: it needs a library that is not here"
    else
      programs+=("$program")
    fi
  done
fi
reserve=$((limit < 300 ? limit / 2 : 150)) # for the sanitizer
if [ $quick = yes ] || [ $elsewhere = yes ]; then
  [ $quick = no ] || reserve=0
  few=()
  [ $quick = no ] || few=('-tce=*large*')
  for program in "${programs[@]}"; do
    in_parallel "${program##*/}" "${launch[@]}" "$program" "${few[@]}"
  done
  finish
elif [ $built = yes ]; then
  step tests "$limit" ctest --test-dir "$build" -L device -j4 --output-on-failure --no-tests=error
fi
reserve=0

[ "$(nproc)" -lt 16 ] || at_once=8
tools=(memcheck racecheck initcheck)
[ $quick = no ] || tools=(memcheck)
if [ ${#programs[@]} = 0 ]; then
  note "nothing was run under compute-sanitizer"
elif [ -n "$launcher" ]; then
  note "with a launcher nothing is run under compute-sanitizer"
elif ! command -v compute-sanitizer >/dev/null; then
  note "no compute-sanitizer here: memcheck, racecheck and initcheck were not run"
else
  for tool in "${tools[@]}"; do
    for program in "${programs[@]}"; do
      "$program" --count '-tc=*small*' | grep -q ': 0$' || in_parallel "$tool-${program##*/}" \
        compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 "$program" '-tc=*small*'
    done
  done
  finish
fi

if [ ${#failed[@]} != 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
[ $built = yes ] || die "there was no time to build a first test"
if [ ${#not_run[@]} != 0 ]; then
  echo "what was run passed; not run to its end: ${not_run[*]}"
else
  echo "all passed"
fi
