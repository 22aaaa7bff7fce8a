#!/usr/bin/env bash
# tests/ptxcpu/selftest.sh [suite...]   compiles the self-tests (once) into the cache and runs them; 0 when all pass
# tests/ptxcpu/selftest.sh --quick      some suites, compiled for one architecture, each run once
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
run=$here/run.sh
nvcc=$(command -v nvcc || echo "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc")
[ -x "$nvcc" ] || {
  echo "selftest: nvcc not found" >&2
  exit 125
}
quick=no
archs="75 90"
[ "${1-}" != --quick ] || {
  quick=yes
  archs=90
  shift
  set -- graph neg race
}
lib=$("$run" --build) || exit 125
key=$({
  "$nvcc" --version
  cat "$here"/selftest/*.cu "$here"/selftest/check.h
} | sha256sum | cut -c1-16)
bin=$(dirname "$lib")/selftest-$key-${archs// /-}
mkdir -p "$bin" || exit 125
suites=${*:-handwritten cubt misc api graph neg last race}
fail=0

compile() { # one binary holds the PTX of all targets
  [ ! -e "$bin/$1" ] || return 0
  local targets=() arch
  for arch in $archs; do targets+=(-gencode "arch=compute_$arch,code=compute_$arch"); done
  "$nvcc" -std=c++20 -O1 -w --extended-lambda -cudart shared "${targets[@]}" "$here/selftest/$1.cu" -o "$bin/$1.$$" &&
    mv "$bin/$1.$$" "$bin/$1"
}
export -f compile
export here bin nvcc archs
t0=$SECONDS
printf '%s\n' $suites | xargs -P "$(nproc)" -I{} bash -c 'compile {}' || {
  echo "selftest: compilation failed"
  exit 1
}
echo "compiled in $((SECONDS - t0)) s"

say() { printf '%-14s %-26s %s\n' "$@"; }
# suites that check themselves and print "<n> failures"
check() { # suite, label, environment ...
  local s=$1 l=$2 t=$SECONDS o
  shift 2
  o=$(env "$@" timeout 600 "$run" "$bin/$s" 2>&1)
  if [ $? = 0 ] && grep -qx '0 failures' <<<"$o"; then
    say "$s" "$l" "ok    $(grep -c ' ok$' <<<"$o") checks, $((SECONDS - t)) s"
  else
    say "$s" "$l" FAIL
    tail -n 30 <<<"$o" | sed 's/^/    /'
    fail=1
  fi
}
# programs that must fail in a certain way
n=0
bad=0
expect() { # suite, argument, extended regexp in the output, environment ...
  local s=$1 a=$2 w=$3 o
  shift 3
  o=$(env PTXCPU_HANG=2 "$@" timeout 120 "$run" "$bin/$s" "$a" 2>&1)
  n=$((n + 1))
  grep -qE -- "$w" <<<"$o" || {
    echo "    $s $a: wanted /$w/, got:"
    tail -n 8 <<<"$o" | sed 's/^/      /'
    bad=1
  }
}
# PTXCPU_RACE: the good cases without a report, and a report of each bad one
races() { # environment
  local o r w
  o=$(env PTXCPU_HANG=30 PTXCPU_RACE=1 "$@" timeout 600 "$run" "$bin/race" good 2>&1)
  r=$?
  n=$((n + 1))
  if [ $r != 0 ] || ! grep -qx '0 failures' <<<"$o" || ! grep -q '^.ptxcpu. 0 races' <<<"$o" ||
    [ "$(grep -c '^.ptxcpu. note: RACE in kernel same(' <<<"$o")" != 1 ]; then
    echo "    race good: rc $r"
    grep -A 6 -E '^.ptxcpu. (RACE|NON)' <<<"$o" | head -30 | sed 's/^/      /'
    bad=1
  fi
  o=$(env PTXCPU_HANG=30 PTXCPU_RACE=1 PTXCPU_RACE_IGNORE='plusplus;nothing' PTXCPU_STATS=1 "$@" \
    timeout 600 "$run" "$bin/race" bad 2>&1)
  r=$?
  n=$((n + 1))
  [ $r = 66 ] && grep -qx '0 failures' <<<"$o" || {
    echo "    race bad: rc $r"
    bad=1
  }
  for w in 'RACE.* flag<false, true>' 'RACE.* flag<true, false>' 'RACE.* ref<.*2>' 'RACE.* chain<0>' \
    'RACE.* weakflag' 'RACE.* sizes' 'RACE.* grid<false>' 'RACE.* gridlate' 'NON-COHERENT LOAD.* nc<0>' \
    'NON-COHERENT LOAD.* nc<1>' 'RACE.* last<2>' 'RACE.* last<3>' 'RACE.* lock<false>' 'RACE.* vec' \
    'RACE.* shared<false>' 'RACE.* again' 'RACE.* warp<false>' 'RACE.* part<false>' \
    'RACE.* named<false>' 'RACE.* bytes2' \
    'stats .*grid<false>.*: launches 1, .*threads 2048, grid barriers 1, global loads 16384 B .16384 distinct.*, most stores of a thread 3,'; do
    n=$((n + 1))
    grep -qE "^.ptxcpu. $w" <<<"$o" || {
      echo "    race bad: no /$w/"
      bad=1
    }
  done
  n=$((n + 1))
  ! grep -q '^.ptxcpu. RACE.* plusplus' <<<"$o" || {
    echo "    race bad: PTXCPU_RACE_IGNORE is not heeded"
    bad=1
  }
  expect race plusplus 'RACE in kernel plusplus' "$@" PTXCPU_RACE=report
  env PTXCPU_RACE=report "$@" "$run" "$bin/race" plusplus >/dev/null 2>&1 || {
    echo "    race plusplus: report gives rc $?"
    bad=1
  }
}
total() {
  if [ $bad = 0 ]; then
    say "$1" "$2" "ok    $n checks"
  else
    say "$1" "$2" FAIL
    fail=1
  fi
  n=0
  bad=0
}

for s in $suites; do
  for arch in $archs; do
    A=PTXCPU_ARCH=$arch
    case $s in
      neg)
        m='an illegal memory access was encountered'
        for a in oob shoob hostp uaf; do expect neg $a "$m" $A; done
        expect neg misal 'misaligned address' $A
        expect neg badmask 'an illegal instruction was encountered' $A
        for a in deadl barw hang; do expect neg $a 'timed out and was terminated' $A; done
        expect neg nowait 'ended without griddepcontrol.wait' $A
        expect neg nowait 'unspecified launch failure' $A
        expect neg latewait 'EARLY ACCESS before griddepcontrol.wait in kernel late' $A PTXCPU_RACE=1
        expect neg assert 'device-side assert triggered' $A
        expect neg cpyover 'invalid argument' $A
        expect neg printf 'hello 1 str 1.50 1099511627776' $A
        expect neg nosync 'nosync: [1-9][0-9]* wrong' $A
        expect neg racy 'racy: [1-4]?[0-9]?[0-9] of 512' $A PTXCPU_PREEMPT=20
        expect neg nostreamsync 'before sync -' $A PTXCPU_ASYNC=lazy
        expect neg nostreamsync 'after sync 7' $A PTXCPU_ASYNC=lazy
        total neg "sm_$arch"
        ;;
      last)
        expect last stack 'stack: unspecified launch failure' $A
        expect last multi 'dev 2 val 3 attr.dev 2' $A PTXCPU_DEVICES=3
        expect last bad '2000 threads: invalid configuration' $A
        expect last bad '0 blocks: invalid configuration' $A
        expect last bad 'no opt-in: invalid argument' $A
        expect last bad 'with opt-in: no error' $A
        total last "sm_$arch"
        ;;
      race)
        races $A
        [ $quick = yes ] || races $A PTXCPU_SEED=1
        total race "sm_$arch"
        ;;
      *)
        check $s "sm_$arch" $A
        [ $quick = no ] || continue
        check $s "sm_$arch SEED=1" $A PTXCPU_SEED=1
        check $s "sm_$arch ASYNC=lazy" $A PTXCPU_ASYNC=lazy
        case $s in
          handwritten | cubt | misc) # casmax reads plainly what others change by atomics
            check $s "sm_$arch RACE=1" $A PTXCPU_RACE=1 PTXCPU_RACE_IGNORE=casmax
            ;;
        esac
        ;;
    esac
  done
done
[ $fail != 0 ] || echo "selftest: all passed in $((SECONDS - t0)) s"
[ $fail = 0 ] || echo "selftest: FAILED"
exit $fail
