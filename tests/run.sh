#!/usr/bin/env bash
# Sets this machine up, builds, and runs the tests; says what it skipped and why.
#   tests/run.sh [--all]    without --all: that this machine runs the library right, in a quarter of an hour;
#                           --all: every test that this machine can run, in hours
# Each preset is tested when it is built; the last lines say what each took, and how many tests passed.
# Where nvcc and no GPU is found, device tests run on the CPU: tests/ptxcpu. Environment: GRADSIEVE_DEVICE_LAUNCHER is
# another command that runs a device test on a machine without a GPU; GRADSIEVE_DEVICE_MODES, GRADSIEVE_DEVICE_RACES and
# GRADSIEVE_DEVICE_STATISTICS, as tests/CMakeLists.txt has them, make it run them in several ways and count what a step
# does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tier=first
case "${1-}" in
  "") ;;
  --all) tier=all ;;
  --ci) tier=ci ;; # the first tier, and then as much of the rest as there is time for
  *)
    echo "usage: tests/run.sh [--all]" >&2
    exit 2
    ;;
esac

source cmake/setup.sh
need doctest-dev header doctest/doctest.h
want libeigen3-dev header eigen3/Eigen/Core
want zlib1g-dev header zlib.h
want libopenmpi-dev command -v mpicxx
want python3-mpi4py /usr/bin/python3 -c "import mpi4py, numpy"
want openmpi-bin command -v mpirun
want nlohmann-json3-dev header nlohmann/json.hpp
want doxygen command -v doxygen
want doxygen-awesome-css test -e /usr/share/doxygen-awesome-css/doxygen-awesome.css
want codespell command -v codespell
want_torch
if [ $tier != first ]; then
  want libbenchmark-dev header benchmark/benchmark.h
  want g++-aarch64-linux-gnu command -v aarch64-linux-gnu-g++
  want g++-11 command -v g++-11
  want qemu-user command -v qemu-aarch64
fi

skipped=()
# unless_skipped <what would be missing> <check command...>
unless_skipped() {
  local what=$1
  shift
  quietly "$@" || { skipped+=("$what (this failed: $*)"); return 1; }
}

unless_skipped "all tests on MPI ranks" eval 'command -v mpicxx && command -v mpirun' || true
unless_skipped "example train" eval 'header eigen3/Eigen/Core && header zlib.h' || true
unless_skipped "reading JSON that the library writes, and traces as JSON" header nlohmann/json.hpp || true
unless_skipped "the API reference" command -v doxygen || true
unless_skipped "spelling" command -v codespell || true
unless_skipped "GoogLeNet as MG-WFBP's authors measured it (GRADSIEVE_MGWFBP_LOG names their tmp8comm.log)" test -e "${GRADSIEVE_MGWFBP_LOG-}" || true
pytorch=OFF
if unless_skipped "gradsieve.torch, a Python with torch" torch_python; then
  python=$(torch_python)
  unless_skipped "example libtorch_step, torch's headers" torch_headers "$python" && pytorch=ON
fi

# Device tests run on a GPU, or through a launcher that stands in for one. Where neither is there they are compiled,
# and each is skipped: exit status 77.
launcher=${GRADSIEVE_DEVICE_LAUNCHER-}
modes=${GRADSIEVE_DEVICE_MODES-}
races=${GRADSIEVE_DEVICE_RACES-}
statistics=${GRADSIEVE_DEVICE_STATISTICS-}
cuda=no
if unless_skipped "preset cuda" env PATH="$PATH:/usr/local/cuda/bin" nvcc --version; then
  cuda=yes
  want python3 command -v python3
  if [ -z "$launcher" ] && ! quietly nvidia-smi -L; then
    want libzstd1 eval 'test -e "$(g++ -print-file-name=libzstd.so.1)"'
    launcher=$(printf %q "$PWD/tests/ptxcpu/run.sh")
    modes="order:PTXCPU_SEED=1,GRADSIEVE_TEST_BLOCKS=3,PTXCPU_ASYNC=lazy" # threads and streams in another order
    [ $tier != all ] || modes="seed:PTXCPU_SEED=1,GRADSIEVE_TEST_BLOCKS=3;lazy:PTXCPU_ASYNC=lazy;one:PTXCPU_WORKERS=1;preempt:PTXCPU_SEED=2,PTXCPU_PREEMPT=30"
    races=PTXCPU_RACE=1,GRADSIEVE_TEST_BLOCKS=3
    statistics=PTXCPU_STATS=1
  fi
  if [ -z "$launcher" ]; then
    echo "setup: device tests run on the GPU"
  elif unless_skipped "running device tests, which are only compiled" eval "$launcher true"; then
    echo "setup: device tests run through $launcher"
  else
    launcher='sh -c "exit 77"' modes='' races='' statistics=''
  fi
fi

debug_compiler=clang++-19
tsan=no
clang=no
if [ $tier = first ]; then
  skipped+=("what tests/README.md calls later: presets debug, tsan and clang, most combinations of policies, other orders of threads and streams on a device, other compilers and flags, each header alone, the benchmarks (--all)")
else
  unless_skipped "the benchmarks" header benchmark/benchmark.h || true
  unless_skipped "training over network namespaces" eval '[ "$(id -u)" = 0 ] && command -v ip && command -v tc' || true
  unless_skipped "AArch64's kernels, by a cross compiler and an emulator" eval 'command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64' || true
  tsan_links() { echo 'int main() {}' | clang++-19 -fsanitize=thread -o /dev/null -x c++ -; }
  archer=/usr/lib/llvm-19/lib/libarcher.so
  want clang-19 command -v clang++-19
  want libclang-rt-19-dev tsan_links
  want libomp-19-dev test -e $archer
  unless_skipped "clang in preset debug, which g++ builds" tsan_links || debug_compiler=g++
  unless_skipped "preset tsan" tsan_links && tsan=yes
  unless_skipped "OpenMP in presets clang and tsan" test -e $archer || true
  if [ $tier = all ]; then
    unless_skipped "presets clang and clang-fast-math" command -v clang++-19 && clang=yes
  else
    skipped+=("presets clang and clang-fast-math, its optimised builds (--all)")
    skipped+=("without a GPU, device tests with --use_fast_math, of in_bfloat16 and of published selectors, and example train on a device; other orders of threads and streams but for six device tests (--all)")
  fi
fi

# Compilations of an earlier run are taken from a compiler cache, where ccache is installed.
cache=()
if quietly command -v ccache; then
  cache=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_CUDA_COMPILER_LAUNCHER=ccache)
  export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS-pch_defines,time_macros}
fi
for reason in "${skipped[@]}"; do
  echo "skipped: $reason"
done

status=0
passed=0
failed=0
left_out=0
times=()
# run_preset <preset> <first | later | all> [options of CMake...]: builds it, then runs its tests of this tier.
run_preset() {
  local preset=$1 which=$2 started=$SECONDS built counts
  local choose=()
  shift 2
  echo "== building $preset, $which"
  if [ "$which" = later ]; then # in the tree of the first tier: the preset would set its flags back
    choose=(-L later)
    PATH=$PATH:/usr/local/cuda/bin cmake -B "build/$preset" -DGRADSIEVE_TEST_FIRST=OFF "$@"
  elif [ "$which" = first ]; then
    choose=(-LE later)
    cmake --preset "$preset" "${cache[@]}" -DGRADSIEVE_TEST_FIRST=ON -DGRADSIEVE_TEST_ONCE=OFF "$@"
  else
    cmake --preset "$preset" "${cache[@]}" -DGRADSIEVE_TEST_FIRST=OFF -DGRADSIEVE_TEST_ONCE=OFF "$@"
  fi
  cmake --build --preset "$preset" -j"$(nproc)"
  built=$SECONDS
  echo "== testing $preset, $which"
  ctest --preset "$preset" -j"$(nproc)" --no-tests=error --output-junit results.xml "${choose[@]}" || status=1
  # tests, failures and skipped of the report's head
  counts=$(tr '\n' ' ' <"build/$preset/results.xml" |
    sed -n 's/.*<testsuite [^>]*tests="\([0-9]*\)"[^>]*failures="\([0-9]*\)"[^>]*skipped="\([0-9]*\)".*/\1 \2 \3/p')
  read -r all_tests failures skips <<<"$counts"
  passed=$((passed + all_tests - failures - skips)) failed=$((failed + failures)) left_out=$((left_out + skips))
  times+=("$preset, $which: built in $((built - started)) s, $all_tests tests in $((SECONDS - built)) s, $failures failed, $skips skipped")
}

slow=$([ $tier = all ] && echo ON || echo OFF)
common=("-DGRADSIEVE_TEST_SLOW=$slow" "-DGRADSIEVE_TEST_HEADERS=$slow")
release=("${common[@]}" "-DGRADSIEVE_BUILD_BENCH=$slow" "-DGRADSIEVE_BUILD_PYTORCH=$pytorch" "-DPython3_EXECUTABLE=${python-}")
# -O1 takes a third less time than -O3. Test same_bits_for_any_flags has -O3 too.
[ $tier = all ] || release+=("-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG")
device=("${common[@]}" "-DGRADSIEVE_BUILD_BENCH=$slow" "-DGRADSIEVE_DEVICE_LAUNCHER=$launcher"
        "-DGRADSIEVE_DEVICE_MODES=$modes" "-DGRADSIEVE_DEVICE_RACES=$races" "-DGRADSIEVE_DEVICE_STATISTICS=$statistics")
# Without a GPU nothing runs what ptxas makes; test spills has it compile every kernel. The host's part computes
# little; at -O1 g++ 12 warns of CUB.
[ -z "$launcher" ] || device+=(-DCMAKE_CUDA_ARCHITECTURES=90-virtual
  "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -Wno-maybe-uninitialized"
  "-DCMAKE_CUDA_FLAGS_RELEASE=-O1 -Xcompiler=-Wno-maybe-uninitialized")

# The package of Python on device memory; nvcc takes minutes for its recipes.
[ $tier != all ] || device+=(-DGRADSIEVE_BUILD_C=ON -DGRADSIEVE_BUILD_COMPILED=ON -DBUILD_SHARED_LIBS=ON)

# in_time <what> <command...>: in CI, if it can begin in time to end before the limit of 90 minutes.
in_time() {
  local what=$1
  shift
  if [ $tier = ci ] && [ $SECONDS -gt 3000 ]; then
    echo "skipped: $what, after $SECONDS s"
    times+=("$what: not begun after $SECONDS s")
  else
    "$@"
  fi
}

which=$([ $tier = all ] && echo all || echo first)
run_preset release "$which" "${release[@]}"
[ $cuda = no ] || run_preset cuda "$which" "${device[@]}"
if [ $tier != first ]; then # what guards memory first, then threads, then values
  examples=$([ $tier = all ] && echo ON || echo OFF) # policies of one's own are in the tests, too
  run_preset debug all "${common[@]}" "-DCMAKE_CXX_COMPILER=$debug_compiler" "-DGRADSIEVE_BUILD_EXAMPLES=$examples"
  [ $tsan = no ] || in_time "preset tsan" run_preset tsan all "${common[@]}"
fi
if [ $tier = ci ]; then
  in_time "the later tests of preset release" run_preset release later -DGRADSIEVE_TEST_ONCE=ON
  [ $cuda = no ] || in_time "the later tests of preset cuda" run_preset cuda later
fi
if [ $clang = yes ]; then
  run_preset clang all "${common[@]}"
  run_preset clang-fast-math all "${common[@]}"
fi

printf '%s\n' "${times[@]}" "all: $SECONDS s"
echo "tests: $passed passed, $failed failed, $left_out skipped"
exit $status
