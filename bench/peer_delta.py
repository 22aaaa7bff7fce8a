#!/usr/bin/env python3
"""Weight deltas beside NumPy, zstd and xdelta3, on one thread: a table as Markdown.
peer_delta.py [ELEMENTS]   default 2^26; PYTHONPATH=examples/python GRADSIEVE_LIBRARY=.../libgradsieve_python.so

Weights are normal, of 16 bits, and a random share of them changes by the lowest bit, as in a small step of an
optimizer. NumPy: `nonzero` of two views as integers, u32 indices and values; `weights[indices] = values`, without a
check. zstd --patch-from and xdelta3 -S none work on files in memory; where they are missing, that is said. The least of
three runs."""

import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy

import gradsieve.delta

RUNS = 3


def least(what):
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        result = what()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times), result


def library(before, after):
    layers = [("weights", before.size)]
    encoder, weights = gradsieve.delta.Encoder(layers), before.copy()
    encode, message = least(lambda: encoder.encode(after, before, from_version=0, to_version=1))

    def apply():
        gradsieve.delta.Decoder(layers).apply(message, weights)
    return encode, least(apply)[0], len(message), weights


def by_numpy(before, after):
    weights = before.copy()
    old, new = before.view(numpy.uint16), after.view(numpy.uint16)

    def find():
        indices = numpy.nonzero(old != new)[0].astype(numpy.uint32)
        return indices, after[indices]
    encode, (indices, values) = least(find)

    def apply():
        weights[indices] = values
    return encode, least(apply)[0], indices.nbytes + values.nbytes, weights


def by_files(make, take):
    def run(before, after):
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            old, new, patch, made = (os.path.join(folder, name) for name in ("old", "new", "patch", "made"))
            before.tofile(old)
            after.tofile(new)
            encode, _ = least(lambda: subprocess.run(make(old, new, patch), check=True, capture_output=True))
            apply, _ = least(lambda: subprocess.run(take(old, patch, made), check=True, capture_output=True))
            return encode, apply, os.path.getsize(patch), numpy.fromfile(made, before.dtype)
    return run


def peers(size):
    yield "gradsieve.delta", library
    yield "NumPy", by_numpy
    window = str(max(size, 2**26))
    zstd, xdelta3 = ["zstd", "--long=31", "-fq"], ["xdelta3", "-f", "-B", window]
    files = {"zstd -1 --patch-from": (
                 lambda old, new, patch: [*zstd, "-1", f"--patch-from={old}", new, "-o", patch],
                 lambda old, patch, made: [*zstd, "-d", "--memory=2048MB", f"--patch-from={old}", patch, "-o", made]),
             "xdelta3 -1 -S none": (
                 lambda old, new, patch: [*xdelta3, "-1", "-S", "none", "-e", "-s", old, new, patch],
                 lambda old, patch, made: [*xdelta3, "-d", "-s", old, patch, made])}
    for name, how in files.items():
        if shutil.which(name.split()[0]):
            yield name, by_files(*how)
        else:
            print(f"skipped: there is no {name.split()[0]}", file=sys.stderr)


def main():
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 2**26
    chance = numpy.random.default_rng(1)
    before = (0.02 * chance.standard_normal(n, numpy.float32)).astype(numpy.float16).view(numpy.uint16)
    print(f"{n:,} weights of 16 bits\n\n| changed | | encode, ms | apply, ms | bits per change |\n|--:|---|--:|--:|--:|")
    for share in (0.001, 0.01, 0.08):
        after = before.copy()
        after[chance.random(n, numpy.float32) < share] ^= 1
        count = numpy.count_nonzero(before != after)
        for name, run in peers(before.nbytes):
            encode, apply, size, made = run(before.view(numpy.float16), after.view(numpy.float16))
            assert numpy.array_equal(made.view(numpy.uint16), after), name
            print(f"| {share:.1%} | {name} | {encode:.3g} | {apply:.3g} | {8 * size / count:.1f} |", flush=True)


if __name__ == "__main__":
    main()
