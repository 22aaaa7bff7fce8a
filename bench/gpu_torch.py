#!/usr/bin/env python3
"""Times the same step in PyTorch on a GPU: rows as gradsieve_bench_cuda's, in the same JSON.

topk: what users write (accumulate, torch.topk of magnitudes, gather, zero), eagerly, in a CUDA graph, compiled.
threshold: a compiled mask, nonzero_static and gather with the true threshold, which somebody says: no host sync.
dgc: Deep Gradient Compression's path: a sample gives the threshold, nonzero, again if it is too little.
Gradients, starts and samples are as in bench/cuda_bench.cuh. Each row's result is checked; what fails is an error."""

import argparse
import datetime
import json
import math
import statistics
import sys
import time

BUCKET = 25 * 2**20 // 4
SHIFTS = 2**16


def laplace(torch, n):
    """Drawn in parts: the random numbers of 2^28 elements would take several times their memory."""
    out = torch.empty(n, device="cuda")
    for part in out.split(2**26):
        part.exponential_()
        part.mul_(torch.randint(0, 2, part.shape, device="cuda", dtype=torch.int8).mul_(2).sub_(1))
    return out


class Inputs:
    """Gradients of one size: another one at each step, at the cost of three arrays."""

    def __init__(self, torch, n):
        self.n, self.step = n, 0
        self.arrays = [laplace(torch, n + SHIFTS) for _ in range(3)]

    def next(self):
        self.step += 1
        start = self.step * 2654435761 % (SHIFTS // 64) * 64
        return self.arrays[self.step % 3][start:start + self.n]


def make_steps(torch):
    """By name: a step, (residual, gradient, k) -> indices and values; least and most entries in units of k."""
    def topk(r, g, k):
        r.add_(g)
        i = torch.topk(r.abs(), k, sorted=False)[1]
        v = r[i]
        r.index_fill_(0, i, 0)
        return i, v

    compiled_topk = torch.compile(topk, fullgraph=True)

    @torch.compile
    def mask(r, g, t):
        r.add_(g)
        return r.abs() >= t

    def threshold(r, g, k, t, room):  # r has a slot more, which takes what fills the list up
        n = g.numel()
        i = torch.nonzero_static(mask(r[:n], g, t), size=room, fill_value=n).view(-1)
        v = r[i]
        r.index_fill_(0, i, 0)
        return i, v

    def dgc(r, g, k):
        r.add_(g)
        a = r.abs()
        s = a[::100]
        t = torch.topk(s, math.ceil(k / r.numel() * s.numel()), sorted=False)[0].min()
        i = (a >= t).nonzero().view(-1)
        for _ in range(10):
            if i.numel() >= 0.8 * k:
                break
            t = t * 0.8
            i = (a >= t).nonzero().view(-1)
        if i.numel() > 1.3 * k:
            i = i[torch.topk(a[i], k, sorted=False)[1]]
        v = r[i]
        r.index_fill_(0, i, 0)
        return i, v

    return {"topk": (topk, 1, 1), "topk_compiled": (compiled_topk, 1, 1), "threshold": (threshold, 1, 1.02),
            "dgc": (dgc, 0.79, 1.3)}


def wrong_with(torch, before, r, n, i, v, k, least, most):
    """Empty, or what is wrong with a step, as bench::audit has it."""
    i, v = i[i < n], v[:i.numel()][i < n]
    if not math.floor(least * k) <= i.numel() <= math.ceil(most * k):
        return f"{i.numel()} entries instead of {least:g} to {most:g} k"
    sent = torch.zeros_like(before, dtype=torch.bool)
    sent[i] = True
    if int(sent.sum()) != i.numel():
        return "an entry is there twice"
    if not torch.equal(before[i], v):
        return "entries are not the accumulator's"
    if not torch.equal(torch.where(sent, 0.0, before), r[:n]):
        return "elements of the residual are wrong"
    if float(v.abs().min()) < float(r[:n].abs().max()):
        return "something left is larger than something sent"
    return ""


class Bench:
    def __init__(self, torch, chosen):
        self.torch, self.samples, self.settle, self.path = torch, chosen.samples, chosen.settle, chosen.json
        self.context = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                        "command": " ".join(sys.argv), "gpu": torch.cuda.get_device_name(0), "torch": torch.__version__}
        properties = torch.cuda.get_device_properties(0)
        cache = getattr(properties, "L2_cache_size", 50 * 2**20)
        self.flush = torch.zeros(4 * cache // 4, device="cuda")
        self.steps = make_steps(torch)
        self.deadline = time.monotonic() + chosen.seconds
        self.rows = []

    def seconds(self, body):
        """As bench::stopwatch: the L2 cache holds nothing of use, and the host has time to enqueue."""
        torch = self.torch
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        self.flush.sum()
        begin.record()
        body()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3

    def row(self, inputs, name, density, run):
        torch, n = self.torch, inputs.n
        k = math.ceil(density * n)
        step, least, most = self.steps[name]
        oracle = name == "threshold"
        r = torch.zeros(n + 1 if oracle else n, device="cuda")
        walk = r[:n]
        walk.uniform_().add_(torch.rand(n, device="cuda")).sub_(1).mul_(math.sqrt(2 / density))
        fixed = torch.empty(n, device="cuda") if run == "graph" else None
        threshold = torch.zeros((), device="cuda")
        room = math.ceil(1.02 * k) if oracle else 0

        def prepare(g):
            if oracle:  # n - k + 1-th smallest: of what topk gives, the least
                threshold.copy_(torch.topk((walk + g).abs(), k, sorted=False)[0].min())
            if fixed is None:
                return g
            fixed.copy_(g)
            return fixed

        def once(g):
            return step(r, g, k, threshold, room) if oracle else step(r, g, k)

        for _ in range(self.settle):
            once(prepare(inputs.next()))
        graph, outputs = None, None
        if run == "graph":
            graph = torch.cuda.CUDAGraph()
            prepare(inputs.next())
            with torch.cuda.graph(graph):
                outputs = once(fixed)
        job = (lambda g: graph.replay()) if graph else once
        times = []
        for sample in range(-2, self.samples):
            g = prepare(inputs.next())
            time_taken = self.seconds(lambda: job(g))
            if sample >= 0:
                times.append(time_taken)
        g = prepare(inputs.next())
        before = walk + g
        result = job(g)
        torch.cuda.synchronize()
        i, v = outputs if graph else result
        wrong = wrong_with(torch, before, r, n, i, v, k, least, most)
        times.sort()
        ms = 1e3 * statistics.median(times)
        figures = {"real_time": ms, "cpu_time": ms, "time_unit": "ms", "ns_per_element": ms * 1e6 / n,
                   "bytes_per_second": 12 * n / (ms * 1e-3), "q1_ms": 1e3 * times[len(times) // 4],
                   "q3_ms": 1e3 * times[len(times) * 3 // 4], "samples": len(times),
                   "selected_per_k": int((i < n).sum()) / k}
        return figures, wrong

    def measure(self, inputs, name, density, run):
        who = "torch_" + name
        text = f"peer/{who}/n:{inputs.n}/density:{density:g}/law:laplace/dtype:fp32/run:{run}"
        if time.monotonic() > self.deadline:
            print(f"gpu_torch.py: no time left for {text}")
            return
        entry = {"name": text, "run_name": text, "run_type": "iteration", "iterations": 1}
        try:
            figures, wrong = self.row(inputs, name, density, run)
            entry |= figures
        except Exception as error:  # one row's: memory, a compiler that is not there
            wrong = f"{type(error).__name__}: {error}".splitlines()[0]
        self.torch.cuda.empty_cache()
        if wrong:
            entry |= {"error_occurred": True, "error_message": wrong}
        self.rows.append(entry)
        with open(self.path, "w", encoding="utf-8") as file:  # each time: a run that is cut off leaves what it has
            json.dump({"context": self.context, "benchmarks": self.rows}, file, indent=1)
        print(f"{text}: " + (f"ERROR OCCURRED: {wrong}" if wrong else f"{entry['real_time']:.4g} ms"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", help="what to write")
    parser.add_argument("--quick", action="store_true", help="few sizes and densities")
    parser.add_argument("--samples", type=int, default=21)
    parser.add_argument("--settle", type=int, default=12, help="steps before them")
    parser.add_argument("--seconds", type=float, default=150, help="after which no row is begun")
    chosen = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("gpu_torch.py: no PyTorch here; its rows are left out")
    if not torch.cuda.is_available():
        sys.exit("gpu_torch.py: PyTorch sees no GPU; its rows are left out")
    torch.manual_seed(1)
    bench = Bench(torch, chosen)
    sizes = (2**26, 2**20, BUCKET) if chosen.quick else (2**28, 2**26, BUCKET, 2**20, 2**24)
    for n in sizes:
        inputs = Inputs(torch, n)
        for density in (0.01, 0.001) if chosen.quick else (0.01, 0.001, 0.1):
            for name in ("topk", "dgc", "threshold", "topk_compiled"):
                bench.measure(inputs, name, density, "eager")
                if name == "topk":
                    bench.measure(inputs, name, density, "graph")
        del inputs
        torch.cuda.empty_cache()
    print(f"gpu_torch.py: wrote {chosen.json}")


if __name__ == "__main__":
    main()
