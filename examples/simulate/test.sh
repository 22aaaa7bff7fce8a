#!/usr/bin/env bash
# What simulate and advise read, and what they say of files that they cannot: test.sh SIMULATE FOLDER ADVISE
set -uo pipefail
program=$1
folder=$2
advise=$3
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

# both TEXT FILE ARGUMENTS...: neither reads this trace, and both say this
both() {
  local text=$1 out
  takes 1 "$text" --trace "${@:2}"
  out=$("$advise" --trace "$2" 2>&1)
  if [[ $? != 1 || $out != *"$text"* || $out == *[[:cntrl:]]* ]]; then
    echo "advise --trace $2: expected '$text', got: ${out:0:600}"
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
printf 'name,bytes,backward,forward,dtype,element_bytes\n,4000,0.001,0,0,4\n,8000,0.002,0,0,4\n' >long.csv
takes 0 '2 layers' --trace short.csv --write-trace written.csv
same long.csv
printf 'bytes,backward,dtype\n4000,0.001,3\n8002,0.002,1\n8004,0.002,1\n8,1,8\n' >old.csv # before element_bytes
printf ',4000,0.001,0,3,2\n,8002,0.002,0,1,2\n,8004,0.002,0,1,2\n,8,1,0,8,8\n' >new.csv
sed -i '1i name,bytes,backward,forward,dtype,element_bytes' new.csv
takes 0 '4 layers' --trace old.csv --write-trace written.csv
same new.csv
takes 0 '4 layers' --trace new.csv --write-trace written.csv
same new.csv
takes 0 '4 layers' --trace new.csv --write-trace written.json
takes 0 '4 layers' --trace written.json --write-trace written.csv
same new.csv
printf '[{"bytes": 4, "backward": 1, "element_bytes": 2}, {"bytes": 4, "backward": 1}]' >some.json
takes 1 "some of its layers have 'element_bytes'" --trace some.json
printf 'bytes,backward,element_bytes\n4000,1,0\n' >zero.csv
takes 2 "bytes of an element of layer '' is 0" --trace zero.csv
# Entries are of binary32 gradients: a model in half precision takes what it takes in single precision.
printf 'bytes,backward,element_bytes\n4000000,0.001,4\n' >single.csv
printf 'bytes,backward,element_bytes\n2000000,0.001,2\n' >half.csv
for trace in single half; do
  "$program" --trace $trace.csv --workers 8 --planners single --exchange gather --csv $trace.rows >/dev/null
  cut -d, -f2- $trace.rows >$trace.cut
done
cmp -s single.cut half.cut || { echo "gather: $(cat single.cut half.cut)"; failed=1; }
takes 2 "--bytes: goes with dense exchanges" --trace single.csv --exchange gather --bytes 2
takes 0 '1 layers, 2.0 MB' --trace single.csv --bytes 2
takes 0 '1 layers, 4.0 MB' --trace half.csv --bytes 4
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
takes 1 "it has no 'torch::autograd::AccumulateGrad' of a gradient" --trace forward.json
# Gradients that were not defined have no size and no type: they are left out, their time counts.
cat >undefined.json <<'TEXT'
{"traceEvents": [
{"ph": "X", "cat": "cpu_op", "name": "autograd::engine::evaluate_function: AddmmBackward0", "ts": 100, "dur": 90, "args": {"Sequence number": 1}},
{"ph": "X", "cat": "cpu_op", "name": "torch::autograd::AccumulateGrad", "ts": 200, "dur": 10, "args": {"Input Dims": [[]], "Input type": [""]}},
{"ph": "X", "cat": "cpu_op", "name": "torch::autograd::AccumulateGrad", "ts": 290, "dur": 10, "args": {"Input Dims": [[7]], "Input type": ["float"]}},
{"ph": "X", "cat": "cpu_op", "name": "torch::autograd::AccumulateGrad", "ts": 310, "dur": 10, "args": {"Input Dims": [[]], "Input type": ["float"]}},
{"ph": "X", "cat": "cpu_op", "name": "torch::autograd::AccumulateGrad", "ts": 330, "dur": 10, "args": {"Input Dims": [[]], "Input type": [""]}}
]}
TEXT
takes 0 '2 layers' --trace undefined.json --write-trace written.csv
cut -d, -f1,2 written.csv >written
printf 'name,bytes\ngradient 1 7,28\ngradient 2,4\n' >expected
cmp -s written expected || { echo "undefined: $(cat written)"; failed=1; }
sed 's/\[7\]/[]/; s/"float"/""/' undefined.json >nothing.json
takes 1 "it has no 'torch::autograd::AccumulateGrad' of a gradient" --trace nothing.json

# Networks as they were measured: 4000 bytes wait 1 ms for 2 ms, 8000 are ready at 3 ms and take 4 ms.
printf 'bytes,seconds\n4000,0.002\n8000,0.004\n' >net.csv
takes 0 '*7.0 (43)' --trace short.csv --network net.csv --planners wfbp
takes 2 'does not say of how many workers' --trace short.csv --network net.csv --workers 2,4
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
printf 'bytes,seconds\n4000,-0.002\n8000,0.002\n' >negative.csv
takes 2 'seconds at 4000 bytes in a cost table is -0.002' --trace short.csv --network negative.csv --workers 4
printf 'bytes,seconds\n4000,0.002\n8000,-1\n' >negative.csv
takes 2 'seconds at 8000 bytes in a cost table is -1' --trace short.csv --network negative.csv --workers 4
printf 'bytes,seconds\n4000,inf\n8000,1\n' >infinite.csv
takes 2 'seconds at 8000 bytes in a cost table is 1' --trace short.csv --network infinite.csv --workers 4

# Noise: a time below that of a smaller size.
printf 'bytes,seconds\n2000,0.002\n4000,0.00198\n6000,0.0019\n8000,0.004\n' >noisy.csv
takes 0 'noisy: 2 of 4 times are below that of a smaller size, by up to 5 %; the running maximum is taken' \
  --trace short.csv --network noisy.csv
takes 0 '*7.0 (43)' --trace short.csv --network noisy.csv --planners wfbp
printf 'bytes,seconds\n1000,0.0010\n2000,0.0020\n3000,0.0031\n3500,0.0030\n' >plateau.csv # 1 ms, and 8 ms for 8000 bytes
takes 0 'above the largest size the slope of a line' --trace short.csv --network plateau.csv
takes 0 '*12.0 (25)' --trace short.csv --network plateau.csv --planners wfbp

# What osu_allreduce prints: sizes in bytes, microseconds; with -f more columns.
cat >osu.txt <<'TEXT'

# OSU MPI Allreduce Latency Test v7.4
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                       1.53
4000                 2000.00
6000                 1999.00
8000                 4000.00
TEXT
takes 0 '*7.0 (43)' --trace short.csv --network osu.txt --planners wfbp
takes 0 'osu: 1 of 4 times are below' --trace short.csv --network osu.txt
takes 2 'does not say of how many workers' --trace short.csv --network osu.txt --workers 2,4
cat >osu_full.txt <<'TEXT'
WARNING: a launcher says something
# OSU MPI Allreduce Latency Test v5.9
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4000                 2000.00           1900.00           2100.00         100
8000                 4000.00           3900.00           4100.00         100
TEXT
takes 0 '*7.0 (43)' --trace short.csv --network osu_full.txt --planners wfbp
printf '# OSU MPI Bandwidth Test v5.9\n# Size      Bandwidth (MB/s)\n1  2.5\n' >osu_bw.txt
takes 1 "line 3 of 'osu_bw.txt' follows columns without an average time" --trace short.csv --network osu_bw.txt
printf '1  2.5\n' >headless.txt
takes 1 'stands before the line that names the columns' --trace short.csv --network headless.txt
printf '# Size Avg Latency(us)\n4 abc\n' >damaged.txt
takes 1 "line 2 of 'damaged.txt' has no size and time" --trace short.csv --network damaged.txt
printf 'no rows\n' >empty.txt
takes 1 'there was no row' --trace short.csv --network empty.txt
printf '# Size Avg Latency(us)\n2,4000 1000\n4,4000 2000\n4,8000 4000\n' >osu_workers.txt
sed -i 's/^4,8000.*/&\n/' osu_workers.txt
takes 0 '*7.0 (43)' --trace short.csv --network osu_workers.txt --planners wfbp

# What nccl-tests print: ranks, then out of place and in place.
cat >nccl.txt <<'TEXT'
# nThread 1 nGpus 1 minBytes 0 maxBytes 8000 step: 4000(bytes) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid   4242 on      node1 device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   4243 on      node1 device  1 [0x0f] NVIDIA A100-SXM4-40GB
#  Rank  2 Group  0 Pid   4244 on      node2 device  0 [0x07] NVIDIA A100-SXM4-40GB
#  Rank  3 Group  0 Pid   4245 on      node2 device  1 [0x0f] NVIDIA A100-SXM4-40GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           0             0     float     sum      -1     6.20    0.00    0.00      0     5.95    0.00    0.00      0
           0             0     float     sum      -1     5.20    0.00    0.00      0     4.95    0.00    0.00      0
        4000          1000     float     sum      -1   2222.2    0.00    0.00      0   2000.0    0.00    0.00      0
        8000          2000     float     sum      -1   4444.4    0.00    0.00      0   4000.0    0.00    0.00      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.0031
#
TEXT
takes 0 '*7.0 (43)' --trace short.csv --network nccl.txt --planners wfbp
takes 2 'has no times of 8 workers' --trace short.csv --network nccl.txt --workers 8
sed 's/ root / /; s/ -1 / /g' nccl.txt >nccl_old.txt
takes 0 '*7.0 (43)' --trace short.csv --network nccl_old.txt --planners wfbp
sed -E 's/ 0 +[0-9.]+ +0.00 +0.00 +0$/ 0 N\/A N\/A N\/A N\/A/' nccl.txt >nccl_out.txt # out of place only
sed -i -E 's/2222.2/2000.0/; s/4444.4/4000.0/' nccl_out.txt
takes 0 '*7.0 (43)' --trace short.csv --network nccl_out.txt --planners wfbp

# Selection: 1 ms a group holds up the backward pass: 4000 bytes are ready at 2 ms, 8000 at 5, done at 9.
takes 0 '*9.0 (33)' --trace short.csv --network net.csv --planners wfbp --selection 0.001,0
takes 0 'optimal_sparse' --trace short.csv --planners all --selection 0.001,1e-9,1e-10
takes 2 'two or three numbers' --trace short.csv --selection 1
takes 0 'of one exchange of gradients of so many' --help

# Options that would have no effect.
takes 2 '--density: goes with a sparse' --trace short.csv --density 0.1
takes 2 '--sizes: goes with a profile' --trace short.csv --sizes 1,2
takes 2 '--csv needs a value' --trace short.csv --csv --planners wfbp
takes 1 "cannot read '/tmp'" --trace /tmp
takes 2 "--trace 'absent.csv'" --trace absent.csv
printf 'bytes,backward\n8000000,0.001\n' >eight.csv
takes 0 '1 layers' --trace eight.csv --priority 100 # 80,000 pieces, each in constant time
takes 2 '8000000 pieces of 1 bytes in an iteration, 2^22 at most' --trace eight.csv --priority 1
# What could not be written is no success.
for option in --csv --chrome --write-trace; do takes 1 "cannot write '/dev/full'" --trace short.csv $option /dev/full; done
printf '{"name": "a, \\"b\\"", "layers": [{"bytes": 4, "backward": 1}]}' >comma.json
takes 0 'a, "b" on v100' --trace comma.json --csv comma.csv
grep -q '^"a, ""b""",v100-10gbe,4,optimal,' comma.csv || { echo "comma.csv: $(cat comma.csv)"; failed=1; }

# What is no text, by its first bytes, whatever its name is.
printf '\037\213\010\000\000' >profile.json.gz
both "'profile.json.gz' is compressed by gzip; decompress it: gunzip -k 'profile.json.gz'" profile.json.gz
takes 1 'is compressed by gzip' --trace short.csv --network profile.json.gz
takes 1 'is compressed by gzip' --log profile.json.gz
printf '\050\265\057\375ab' >zstd.json
both 'is compressed by zstd' zstd.json
printf 'PK\003\004' >model.csv
both 'is a zip archive' model.csv
printf '\377\376b\000y\000' >wide.csv
both "is text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8 'wide.csv'" wide.csv
printf 'bytes\000' >zero.csv
both 'is binary; export it as text' zero.csv
printf '<!DOCTYPE html>' >page.csv
both 'is a web page; download the file itself' page.csv
# JSON goes by its first character; a mark before it does not count. advise says who reads it.
printf '\357\273\277 {"traceEvents": []}' >profile.txt
takes 1 "'profile' is a profile, and it has no" --trace profile.txt
out=$("$advise" --trace undefined.json 2>&1)
[[ $out == *"'undefined.json' is JSON, which simulate reads"*"simulate --trace 'undefined.json' --write-trace"* ]] ||
  { echo "advise --trace undefined.json: $out"; failed=1; }
takes 1 'is JSON; a network is a CSV' --trace short.csv --network undefined.json
printf '[node1:7] a launcher says something\n' | cat - osu.txt >launched.txt
takes 0 '*7.0 (43)' --trace short.csv --network launched.txt --planners wfbp
takes 0 '2 layers' --trace <(cat short.csv) # a pipe

# A byte order mark, as spreadsheets write it.
for file in short net; do printf '\357\273\277' | cat - $file.csv >${file}_mark.csv; done
takes 0 '*7.0 (43)' --trace short_mark.csv --network net_mark.csv --planners wfbp
exit $failed
