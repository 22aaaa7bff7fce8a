#!/usr/bin/env python3
"""A model of a step of radix on a GPU, kernel by kernel, from what the machine code does; not a measurement.
device_model.py           writes its tables as Markdown
device_model.py --counts  kernels and memsets of a warm step at 2^20 elements, which test step_traffic compares

A kernel takes bytes / bandwidth and what it waits for, in microseconds and bytes a microsecond. Both are fitted to kernel
times that CUPTI gave on an H200 (2026-11-26; whole steps are in results/nvidia-h200). For an H100 only the bandwidth
differs. What is waited for may be off by UNCERTAIN either way. small_step was not measured: it is modelled as the sum of
the kernels that it replaces, less their launches. Nor were accumulate and write_entries since candidates are stored in
index order: accumulate waits for other blocks' counts as it waited for a place, and write_entries has no searches."""

import argparse
import math
import sys
import typing

GPUS = {"H100": 3.0e6, "H200": 4.22e6}  # what a stream of bytes reaches
MULTIPROCESSORS = 132
UNCERTAIN = 0.15
FLOOR = 2.6        # start and end of r += lr * g
ACCUMULATE = 4.3   # the same of accumulate
SLOWER = 1.05      # its bytes, as a block's loads wait for its tables and its barriers
LAUNCH = 1.8       # of a kernel with nothing to do
SEARCH = 6.4       # select_entries, where one block searches
SHARED_SEARCH = 9.4  # where several do: they join, and meet at two barriers; not fitted
A_KEY = (3.3e-4, 1.6e-4)  # of a block, in each round of such a search, and where a block searches in registers
TICKET = 0.7       # of the last block of small_step: an atomic operation and what it waits for; not fitted
WRITE = 3.2        # write_entries, and its bytes; neither is fitted:
SCATTERED = 1.3
COLD = 40          # `predict`, without a hint
READING = 2.2e6    # of a pass over n by a group of blocks

# What the library does: cuda/tuning.cuh.
ALONE = 16384 - 8  # candidates that a block searches alone
SHARE = 4096       # of a block where several do, unless more than all multiprocessors would be used
SMALL = 2**18      # elements of small_step
SPARE = {0.001: 1.5, 0.01: 1.2, 0.1: 1.07}  # candidates / k in a steady state

BUCKET = 25 * 2**20 // 4
SIZES = (2**16, 2**20, BUCKET, 2**25, 2**27, 2**28)


def is_small(n, density):
    """Whether a step is small_step."""
    return n <= SMALL and density * n <= ALONE * 3 / 4


class Kernel(typing.NamedTuple):
    """Microseconds of it that bytes take, and that it waits."""

    name: str
    bytes: float
    waits: float


def step(n, density, bandwidth, cold=False, passes=0.0):
    """The kernels of compress(); `cold`: without a hint, `passes`: over n by a group of blocks."""
    k = density * n
    candidates = SPARE[density] * k
    # Candidates are stored behind those of another block: more transactions than bytes.
    stored = n * (12 + 8 * (SPARE[density] + 1) * density) * (1 + density)
    kernels = []
    if cold:
        samples = min(max(8192, 32 / density, n / 4096), 131072)
        kernels.append(Kernel("predict", samples * 4 * 32 / bandwidth, COLD))
    read = 4 * candidates / bandwidth
    written = SCATTERED * (12 * candidates + 8 * k) / bandwidth
    if is_small(n, density):
        waits = ACCUMULATE + TICKET + SEARCH - LAUNCH + candidates * A_KEY[1] + WRITE - LAUNCH
        return kernels + [Kernel("small_step", SLOWER * stored / bandwidth + read + written, waits)]
    kernels.append(Kernel("accumulate", SLOWER * stored / bandwidth, ACCUMULATE))
    if candidates <= ALONE:
        waits, rounds = SEARCH + candidates * A_KEY[1], 1
    else:
        waits, rounds = SHARED_SEARCH + 2 * max(SHARE, candidates / MULTIPROCESSORS) * A_KEY[0], 2
    kernels.append(Kernel("select_entries", rounds * read + 4 * passes * n / READING, waits))
    kernels.append(Kernel("write_entries", written, WRITE))
    return kernels


def waited(n, density, bandwidth, **how):
    """Microseconds that a step in a graph waits, and that it moves bytes."""
    kernels = step(n, density, bandwidth, **how)
    return sum(kernel.waits for kernel in kernels), sum(kernel.bytes for kernel in kernels)


def microseconds(n, density, bandwidth, waiting=1.0, **how):
    waits, moves = waited(n, density, bandwidth, **how)
    return waiting * waits + moves


def floor(n, bandwidth, waiting=1.0):
    """r += lr * g in place."""
    return n * 12 / bandwidth + waiting * FLOOR


def in_floors(n, density, bandwidth, waiting=1.0, **how):
    return microseconds(n, density, bandwidth, waiting, **how) / floor(n, bandwidth)


def spread(figure, digits):
    """A figure with the least and the most that it may be, for each GPU."""
    def text(bandwidth):
        shares = (1, 1 - UNCERTAIN, 1 + UNCERTAIN)
        middle, least, most = (f"{figure(bandwidth, waiting):.{digits}f}" for waiting in shares)
        return f"{middle} ({least}–{most})"
    return "; ".join(f"{gpu} {text(bandwidth)}" for gpu, bandwidth in GPUS.items())


def floors_of(n, density, **how):
    return spread(lambda bandwidth, waiting: in_floors(n, density, bandwidth, waiting, **how), 2)


def microseconds_of(n, density):
    return spread(lambda bandwidth, waiting: microseconds(n, density, bandwidth, waiting), 0)


def write_tables(out):
    print("## Predicted times of a whole step in a graph, µs (in floors)\n", file=out)
    heads = [f"{gpu}, {text}" for gpu in GPUS for text in ("floor", "with hint", "without")]
    print("| n | density | " + " | ".join(heads) + " |", "|--:|--:|" + "--:|" * len(heads), sep="\n", file=out)
    for n in SIZES:
        for density in SPARE:
            cells = []
            for bandwidth in GPUS.values():
                cells.append(f"{floor(n, bandwidth):.1f}")
                for cold in (False, True):
                    cells.append(f"{microseconds(n, density, bandwidth, cold=cold):.1f} "
                                 f"({in_floors(n, density, bandwidth, cold=cold):.2f})")
            print(f"| {n:,} | {density:g} | " + " | ".join(cells) + " |", file=out)
    print("\n## Where the time of a step with a hint goes: H100, µs that bytes take + µs that are waited\n", file=out)
    points = [(n, density) for n in (2**16, 2**20, BUCKET, 2**27) for density in (0.001, 0.01)]
    print("| | " + " | ".join(f"{n:,}, {density:g}" for n, density in points) + " |", "|---|" + "--:|" * len(points),
          sep="\n", file=out)
    steps = [{kernel.name: kernel for kernel in step(n, density, GPUS["H100"])} for n, density in points]
    for name in ("small_step", "accumulate", "select_entries", "write_entries"):
        found = [kernels.get(name) for kernels in steps]
        cells = [f"{kernel.bytes:.1f} + {kernel.waits:.1f}" if kernel else "–" for kernel in found]
        print(f"| {name} | " + " | ".join(cells) + " |", file=out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", action="store_true")
    if not parser.parse_args().counts:
        write_tables(sys.stdout)
        return
    for density in SPARE:
        print(f"{density:g}: {len(step(2**20, density, GPUS['H100']))} kernels, 0 memsets")


if __name__ == "__main__":
    main()
