#!/usr/bin/env python3
"""Times NumPy's way to choose the k largest, as rows of gradsieve_bench: copies of |x|, partition and argpartition.

  bench/peer_numpy.py --n 2^20,2^25 --density 0.001,0.01 -o numpy.json
  bench/plot.py bench.json numpy.json

NumPy selects on one thread whatever --threads says, which only names the rows it is drawn beside. From version 2.0 on
it does so with x86-simd-sort on processors with AVX-512 or AVX2."""

import argparse
import datetime
import json
import os
import statistics
import sys
import time


def whole_number(text):
    base, _, power = text.partition("^")
    value = float(base) ** int(power) if power else float(text)
    if value != int(value) or not 1 <= value < 1 << 30:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 to 2^30 - 1")
    return int(value)


def density(text):
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


def listed(each):
    return lambda text: [each(item) for item in text.split(",")]


def timed(job, seconds):
    """Median of at least five runs, in seconds."""
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def rows_of(numpy, n, share, chosen):
    """partition: the k-th largest magnitude alone; argpartition: where the k largest are."""
    k = -(-int(share * n * 2**20) // 2**20) or 1  # rounded up, as the library does
    x = numpy.random.default_rng(1).laplace(size=n).astype(numpy.float32)
    residual = numpy.zeros(n, numpy.float32)
    floor = timed(lambda: numpy.add(residual, x, out=residual), chosen.seconds)
    for name, job in (("numpy_partition", lambda: numpy.partition(numpy.abs(x), n - k)),
                      ("numpy_argpartition", lambda: numpy.argpartition(numpy.abs(x), n - k)[n - k:])):
        took = timed(job, chosen.seconds)
        label = f"peer/{name}/n:{n}/density:{share:g}/law:laplace/dtype:fp32/threads:{chosen.threads}"
        print(f"{label}: {1e3 * took:.4g} ms")
        yield {"name": label, "run_name": label, "run_type": "iteration", "repetitions": 1, "repetition_index": 0,
               "threads": 1, "iterations": 1, "real_time": 1e3 * took, "cpu_time": 1e3 * took, "time_unit": "ms",
               "ns_per_element": 1e9 * took / n, "floor_ratio": took / floor, "floor_ms": 1e3 * floor,
               "q1_ms": 1e3 * took, "q3_ms": 1e3 * took, "samples": 5, "k": k, "bytes_per_second": 4 * n / took}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=listed(whole_number), default=[1 << 25], help="elements [2^25]")
    parser.add_argument("--density", type=listed(density), default=[0.001, 0.01], help="k / n [0.001,0.01]")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of the rows that it is drawn beside")
    parser.add_argument("--seconds", type=float, default=1, help="that a row is measured for [1]")
    parser.add_argument("-o", "--output", default="numpy.json")
    chosen = parser.parse_args()
    try:
        import numpy
    except ImportError:
        sys.exit("peer_numpy.py: needs numpy (Debian and Ubuntu: apt install python3-numpy)")
    rows = [row for n in chosen.n for share in chosen.density for row in rows_of(numpy, n, share, chosen)]
    context = {"date": datetime.datetime.now().isoformat(timespec="seconds"), "command": " ".join(sys.argv),
               "numpy": numpy.__version__, "num_cpus": os.cpu_count()}
    with open(chosen.output, "w", encoding="utf-8") as file:
        json.dump({"context": context, "benchmarks": rows}, file, indent=1)
    print(f"peer_numpy.py: wrote {chosen.output} (NumPy {numpy.__version__})")


if __name__ == "__main__":
    main()
