#!/usr/bin/env bash
# What simulate reads, and what it says of files that it cannot: test.sh PROGRAM FOLDER
set -uo pipefail
program=$1
folder=$2
profiles=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/profiles
mkdir -p "$folder"
cd "$folder" || exit 1
failed=0

# takes STATUS TEXT ARGUMENTS...: the exit status, and a text that is in the output
takes() {
  local status=$1 text=$2
  shift 2
  local out code
  out=$("$program" --workers 4 --planners optimal "$@" 2>&1)
  code=$?
  if [[ $code != "$status" || $out != *"$text"* ]]; then
    echo "simulate $*: exit $code, expected $status and '$text', got: ${out:0:600}"
    failed=1
  fi
}

# same FILE: the trace that was written last is this one
same() {
  if ! cmp -s written.csv "$1"; then
    echo "written.csv is not $1:"
    diff written.csv "$1" | head -5
    failed=1
  fi
}

# CSV: columns may be left out, and come in any order.
printf 'backward,bytes\n0.001,4000\n0.002,8000\n' >short.csv
printf 'name,bytes,backward,forward,dtype\n,4000,0.001,0,0\n,8000,0.002,0,0\n' >long.csv
takes 0 '2 layers' --trace short.csv --write-trace written.csv
same long.csv
printf 'bytes,forward\n4000,1\n' >without.csv
takes 2 'bytes and backward are needed' --trace without.csv
printf 'bytes,backward,colour\n4000,1,2\n' >unknown.csv
takes 2 "begins with 'bytes,backward,colour'" --trace unknown.csv
printf 'bytes,backward,bytes\n4000,1,4000\n' >twice.csv
takes 2 "begins with 'bytes,backward,bytes'" --trace twice.csv
printf 'bytes,backward\n4000\n' >torn.csv
takes 2 'line 2 of a trace' --trace torn.csv

# JSON: the library's own, and lists.
printf '{"name": "a", "layers": [{"bytes": 4000, "backward": 0.001}, {"bytes": 8000, "backward": 2e-3}]}' >own.json
takes 0 'a on v100' --trace own.json --write-trace written.csv
same long.csv
printf '[{"bytes": 4000, "backward": 0.001}, {"bytes": 8000, "backward": 2e-3}]' >list.json
takes 0 'list on v100' --trace list.json --write-trace written.csv
same long.csv
printf '[{"bytes": 4000}]' >few.json
takes 1 "layer 1 has no 'backward'" --trace few.json
printf '[{"bytes": 4000.5, "backward": 1}]' >half.json
takes 1 "whole number, not negative, as 'bytes'" --trace half.json
printf '[{"bytes": 4000, "backward": "1"}]' >text.json
takes 1 "has no number as 'backward'" --trace text.json
printf '{"weights": [1, 2]}' >other.json
takes 1 "is JSON, and no trace" --trace other.json
for broken in '' '{' '[1,]' '{"a" 1}' '[1' '"a' 'nul' '[inf]' '"\u12"' '1 2' "$(printf '%0300d' 0 | tr 0 '[')"; do
  printf '%s' "$broken" >broken.json
  takes 1 "'broken' is not JSON" --trace broken.json
done

# Profiles of PyTorch.
takes 0 '4 layers' --trace "$profiles/torch-2.15.json" --write-trace written.csv
cut -d, -f1,2 written.csv >shapes
printf 'name,bytes\ngradient 1 10,40\ngradient 2 10x128,5120\ngradient 3 128,512\ngradient 4 128x64,32768\n' >expected
cmp -s shapes expected || { echo "torch-2.15: $(cat shapes)"; failed=1; }
takes 1 'it has no shapes' --trace "$profiles/torch-1.13.json"
takes 0 '4 layers, 0.0 MB, 0.4 ms on one worker' --trace "$profiles/torch-1.13.json" --sizes 40,5120,512,32768
takes 1 'has 4 gradients, --sizes names 3' --trace "$profiles/torch-1.13.json" --sizes 40,5120,512
printf '{"traceEvents": [{"ph": "X", "name": "aten::mm", "ts": 1, "dur": 1}]}' >forward.json
takes 1 "it has no 'torch::autograd::AccumulateGrad'" --trace forward.json

# Networks as they were measured: 4000 bytes wait 1 ms for 2 ms, 8000 are ready at 3 ms and take 4 ms.
printf 'bytes,seconds\n4000,0.002\n8000,0.004\n' >net.csv
takes 0 '*7.0 (43)' --trace short.csv --network net.csv --planners wfbp
takes 2 'has no column workers' --trace short.csv --network net.csv --workers 2,4
takes 2 "are those of its own exchange" --trace short.csv --network net.csv --exchange gather
takes 2 "'robust': goes with" --trace short.csv --network net.csv --planners robust
printf 'workers,bytes,seconds\n4,4000,0.002\n4,8000,0.004\n2,4000,0.001\n' >nets.csv
takes 0 '*7.0 (43)' --trace short.csv --network nets.csv --planners wfbp --workers 1,2,4
takes 2 'has no times of 8 workers' --trace short.csv --network nets.csv --workers 4,8
printf 'bytes,seconds\n8000,0.002\n4000,0.004\n' >falls.csv
takes 2 'sizes rise' --trace short.csv --network falls.csv
printf 'size,seconds\n8000,0.002\n' >named.csv
takes 1 "line 1 of 'named.csv'" --trace short.csv --network named.csv
printf 'bytes,seconds\n8000\n' >cut.csv
takes 1 "line 2 of 'cut.csv'" --trace short.csv --network cut.csv

# Selection: 1 ms a group holds up the backward pass: 4000 bytes are ready at 2 ms, 8000 at 5, done at 9.
takes 0 '*9.0 (33)' --trace short.csv --network net.csv --planners wfbp --selection 0.001,0
takes 0 'optimal_sparse' --trace short.csv --planners all --selection 0.001,1e-9,1e-10
takes 2 'two or three numbers' --trace short.csv --selection 1
takes 0 'of one exchange of gradients of so many' --help
exit $failed
