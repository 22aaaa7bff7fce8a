#!/usr/bin/env bash
# bench/gpu_dry_run.sh DIR   bench/gpu.sh --dry-run and tests/gpu.sh --dry-run in a network namespace, where a download
# fails; checks what they say and what they leave in DIR. Skipped, with status 77, where no such namespace can be made.
set -euo pipefail
directory=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
alone=(unshare --net)
[ "$(id -u)" = 0 ] || alone=(unshare --net --map-root-user)
"${alone[@]}" true 2>/dev/null || {
  echo "skipped: no network namespace can be made here"
  exit 77
}
rm -rf "$directory"
mkdir -p "$directory"

# expect <output> <text...>: lines of it have these, in this order.
expect() {
  local rest=$1 text line
  shift
  for text in "$@"; do
    line=$(grep -n -m 1 -E -- "$text" <<<"$rest" | cut -d: -f1 || true)
    [ -n "$line" ] || {
      echo "gpu_dry_run.sh: it does not say '$text', or too early" >&2
      exit 1
    }
    rest=$(tail -n +"$((line + 1))" <<<"$rest")
  done
}

said=$(BUILD_DIR=$directory/build OUT='' "${alone[@]}" bench/gpu.sh --dry-run "$directory/out" 2>&1) || {
  echo "$said"
  echo "gpu_dry_run.sh: bench/gpu.sh --dry-run failed" >&2
  exit 1
}
echo "$said"
expect "$said" "built gradsieve_bench_cuda_first .* status 0" "would compile .*cuda_floors.cu" \
  "would run: .*_first --n=134217728,6553600" "core.json: .* status 0" "built gradsieve_bench_cuda in .* status 0" \
  "would compile .*cuda_partitions.cu" "sweep.json: .* status 0" "built gradsieve_bench_cuda_peers .* status 0" \
  "would compile .*cuda_peers.cu" "peers.json: .* status 0" "would run: .*gpu_torch.py" "torch.json: .* status 0"
for file in core.json sweep.json peers.json torch.json report.md; do
  [ -s "$directory/out/$file" ] || {
    echo "gpu_dry_run.sh: no $file" >&2
    exit 1
  }
done

said=$(BUILD_DIR=$directory/tests OUT=$directory/report "${alone[@]}" tests/gpu.sh --dry-run 2>&1) || {
  echo "$said"
  echo "gpu_dry_run.sh: tests/gpu.sh --dry-run failed" >&2
  exit 1
}
echo "$said"
expect "$said" "== configure" "passed" "== build_first" "passed" "== first" "passed" "== build" "passed" \
  "would compile .*cuda_step_test.cu" "== tests" "passed" "all passed"
[ "$(ls "$directory/report")" = gpu-tests.md ] || {
  echo "gpu_dry_run.sh: tests/gpu.sh leaves more than its report: $(ls "$directory/report")" >&2
  exit 1
}
