#!/usr/bin/env bash
# Trains with PyTorch's DDP over a real, slow network on one Linux machine, once a communication hook: every rank in a
# network namespace of its own, links limited both ways, Gloo over TCP between them. Prints step time, bytes, loss and
# speed-up. `bench/pytorch_network.sh --help` lists the options. Needs root and iproute2; exits with 77, and says why,
# where that cannot be had.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$here"

ranks=2
rates=1gbit,100mbit
steps=30
hooks=none,fp16,powersgd:2,powersgd:6,gradsieve:laplacian+deft,gradsieve:radix+fp16
density=0.01
width=384
layers=4
context=64
batch=4
limit=1800
csv=
python=python3
install=yes

usage() {
  cat <<TEXT
usage: bench/pytorch_network.sh [option value]... [-- option of examples/study/pytorch/train.py...]

  --ranks N       namespaces, 2 to 8 [$ranks]
  --rates R,R     of every link, each way: 100mbit, 1gbit, 10gbit, ... [$rates]
  --steps N       optimizer steps of each hook [$steps]
  --hooks A,B     as train.py --hook; none is the measure of all [$hooks]
  --density X     [$density]
  --width N       of the transformer; with 4 layers 384 make 7.2 million parameters [$width]
  --layers N      [$layers]
  --context N     characters it sees [$context]
  --batch N       samples a step, all ranks together [$batch]
  --limit S       seconds after which the runs at one rate are ended [$limit]
  --csv FILE      writes one row a rate and hook
  --python FILE   the Python that has torch [$python]
  --no-install    without iproute2: skips, and does not install it
TEXT
}

while [ $# -gt 0 ]; do
  case $1 in
    --help) usage && exit 0 ;;
    --) shift && break ;;
    --no-install) install=no && shift ;;
    --ranks | --rates | --steps | --hooks | --density | --width | --layers | --context | --batch | --limit | --csv | --python)
      [ $# -ge 2 ] || { echo "pytorch_network.sh: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" '%s' "$2"
      shift 2
      ;;
    *) echo "pytorch_network.sh: unknown option '$1'; --help lists all" >&2; exit 2 ;;
  esac
done
[[ $ranks =~ ^[2-8]$ ]] || { echo "pytorch_network.sh: --ranks '$ranks': choose 2 to 8" >&2; exit 2; }
[[ $limit =~ ^[1-9][0-9]*$ ]] || { echo "pytorch_network.sh: --limit '$limit': a whole number above 0" >&2; exit 2; }

# shellcheck source=bench/network_links.sh
source bench/network_links.sh
need_network_tools
"$python" -c 'import torch' 2>/dev/null || skip "$python has no torch (--python names one that has)"

make_network "$ranks"

# Rank 0 says what there is to say; what the others say is for a failure.
on_ranks() {
  local r pids=() failed=0
  for ((r = ranks; r >= 1; --r)); do
    local log=$scratch/log.$r
    : >"$log"
    ip netns exec "$tag-$r" env RANK=$((r - 1)) LOCAL_RANK=0 WORLD_SIZE="$ranks" MASTER_ADDR="$subnet.1" MASTER_PORT=29400 \
      GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TQDM_DISABLE=1 \
      timeout --kill-after=10 "$limit" "$python" examples/study/pytorch/train.py "$@" \
      > >(if [ "$r" = 1 ]; then cat >&2; else cat >"$log"; fi) 2>&1 &
    pids+=($!)
  done
  wait "${pids[-1]}" || failed=$? # rank 0's
  if [ $failed != 0 ]; then
    echo "pytorch_network.sh: rank 0 ended with $failed (124: took more than $limit seconds); of the others:" >&2
    tail -qn 5 "$scratch"/log.* >&2 || true
    exit 1
  fi
  wait "${pids[@]}"
}

echo "$ranks ranks on $(nproc) cores, one thread each, $steps steps a hook"
rows=$scratch/rows.csv
IFS=, read -ra rate_list <<<"$rates"
for rate in "${rate_list[@]}"; do
  limit_links "$rate"
  echo "== $rate"
  on_ranks --hook "$hooks" --density "$density" --steps "$steps" --width "$width" --layers "$layers" --context "$context" \
    --batch "$batch" --table "$scratch/table.csv" "$@"
  awk -v OFS=, -v rate="$rate" -v head="$([ -e "$rows" ] && echo no || echo yes)" \
    'NR == 1 { if (head == "yes") print "rate", $0; next } { print rate, $0 }' "$scratch/table.csv" >>"$rows"
done

[ -z "$csv" ] || cp "$rows" "$csv"
echo
awk -F, 'NR == 1 { for (i = 1; i <= NF; ++i) at[$i] = i; next }
  { row[NR] = $0; if ($at["hook"] == "none") dense[$1] = $at["median_step_ms"] }
  END {
    printf "%-8s %-40s %10s %10s %11s %9s %9s %10s %9s\n", "rate", "hook", "step ms", "sent kB", "received kB", "wire kB",
           "speed-up", "final loss", "test loss"
    for (i = 2; i <= NR; ++i) {
      split(row[i], c, ",")
      printf "%-8s %-40s %10.1f %10.1f %11.1f %9.1f %9s %10.4f %9.4f\n", c[1], c[at["hook"]], c[at["median_step_ms"]],
             c[at["median_sent"]] / 1e3, c[at["median_received"]] / 1e3, c[at["median_wire"]] / 1e3,
             (c[1] in dense) ? sprintf("%.2f", dense[c[1]] / c[at["median_step_ms"]]) : "-", c[at["final_loss"]],
             c[at["test_loss"]]
    }
  }' "$rows"
echo "medians of steps, of local ones of rounds, shared out to their steps; bytes of a rank and step; wire: all that left rank 0's interface, headers and acknowledgements too"
