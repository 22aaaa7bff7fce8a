#!/usr/bin/env python3
"""What bench/gpu.sh --dry-run and tests/gpu.sh --dry-run have instead of compiler, linker and programs.
gpu_stub.py --compile COMMAND...  says which file would be compiled, and makes an empty object
gpu_stub.py --link PROGRAM        makes the program: a copy of this file
PROGRAM OPTION...                 says what would be run, refuses options that the benchmarks do not have, and writes
                                  rows with made-up times
gpu_stub.py python3 SCRIPT... FILE  the same for a script
A program that is no benchmark only says what would be run."""

import json
import pathlib
import re
import shutil
import sys

OPTIONS = ("--quick", "--n=", "--samples=", "--settle=", "--flush=", "--benchmark_filter=", "--benchmark_out=",
           "--benchmark_out_format=json")
SIZES = (2**16, 2**20, 25 * 2**20 // 4, 2**26)


def names(sizes):
    """As gradsieve_bench_cuda names its rows."""
    for n in sizes:
        yield f"floor/accumulate/n:{n}/dtype:fp32"
        yield f"floor/copy/n:{n}/dtype:fp32"
        for density in (0.001, 0.01):
            for who in ("step/radix", "step/laplacian", "cold/radix", "peer/select_oracle"):
                yield f"{who}/n:{n}/density:{density:g}/law:laplace/dtype:fp32/run:eager"
            yield f"step/radix/n:{n}/density:{density:g}/law:laplace/dtype:fp32/run:graph"


def write(path, found):
    rows = [{"name": name, "real_time": 1.0, "floor_ratio": 1.0, "q1_ms": 1.0, "q3_ms": 1.0, "bytes_per_second": 1e12,
             "samples": 1} for name in found]
    path.write_text(json.dumps({"context": {"gpu": "none: a dry run"}, "benchmarks": rows}), encoding="utf-8")


def compile_file(command):
    source = command[command.index("-c") + 1]
    target = command[command.index("-o") + 1]
    if not pathlib.Path(source).is_file():
        sys.exit(f"gpu_stub.py: no {source}")
    print("would compile", source)
    pathlib.Path(target).touch()
    if "-MF" in command:
        pathlib.Path(command[command.index("-MF") + 1]).write_text(f"{target}: {source}\n", encoding="utf-8")


def run_script(script, *options):
    if not pathlib.Path(script).is_file():
        sys.exit(f"gpu_stub.py: no {script}")
    write(pathlib.Path(options[-1]), ["peer/torch_topk/n:67108864/density:0.01/law:laplace/dtype:fp32/run:eager"])


def run_program(program, *options):
    if not program.endswith("_bench_cuda") and "_bench_cuda_" not in program:  # a test
        return
    values = {}
    for option in options:
        if not option.startswith(OPTIONS):
            sys.exit(f"gpu_stub.py: {program} has no option {option}")
        name, _, value = option.partition("=")
        values[name] = value
    chosen = re.compile(values["--benchmark_filter"])
    sizes = [int(n) for n in values["--n"].split(",")] if "--n" in values else SIZES
    found = [name for name in names(sizes) if chosen.search(name)]
    if not found:
        sys.exit("gpu_stub.py: the filter leaves no row")
    write(pathlib.Path(values["--benchmark_out"]), found)
    print(f"  {len(found)} rows")


def main():
    first, *rest = sys.argv[1:] if pathlib.Path(sys.argv[0]).name == "gpu_stub.py" else sys.argv
    if first == "--compile":
        compile_file(rest)
    elif first == "--link":
        shutil.copy(__file__, rest[0])
    else:
        print("would run:", first, *rest)
        if first.startswith("python"):
            run_script(*rest)
        else:
            run_program(first, *rest)


if __name__ == "__main__":
    main()
