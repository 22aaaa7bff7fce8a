"""What the communication hook costs on one rank, where nothing is sent, as a ratio to the accumulate floor.

    python3 bench/pytorch_hook.py [--elements N] [--density D]     # with the package installed

Every step DDP's backward pass fills one bucket of N float32 elements, other random ones than before; the clock runs from
when DDP calls the hook until its future is complete. In turn with it the floor is timed: residual.add_(gradient) on
tensors of the same size, by one thread as well. Medians, once 2 / D steps have brought the residual to where it stays.
"""

import argparse
import os
import statistics
import tempfile
import time

import gradsieve.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


SHIFTS = 2**16


class OneParameter(torch.nn.Module):
    """Its gradient is the input."""

    def __init__(self, elements):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(elements))

    def forward(self, x):
        return self.weight @ x


STAGES = ("accumulate", "partition", "select", "exchange", "apply")


class TimedParallel(DistributedDataParallel):
    """Puts a clock around the hook that is registered."""

    def register_comm_hook(self, state, hook):
        self.spent = []

        def timed(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            began = time.perf_counter()
            future = hook(state, bucket)
            future.wait()
            self.spent.append(time.perf_counter() - began)
            return future

        super().register_comm_hook(state, timed)


def measure(recipe, elements, density, steps, pool):
    """Seconds of floor, hook, and the hook's stages: medians."""
    model = TimedParallel(OneParameter(elements), bucket_cap_mb=4 * elements / 2**20 + 1)
    hook = gradsieve.torch.register(model, recipe=recipe, density=None if recipe == "adacomp" else density,
                                    passthrough=())  # the parameter is a vector, which would pass through
    residual = torch.zeros(elements)
    floors, stages = [], []
    warm = int(2 / density)
    for step in range(warm + steps):
        start = step * 2654435761 % (SHIFTS // 64) * 64
        gradient = pool[start : start + elements]
        began = time.perf_counter()
        residual.add_(gradient)
        floors.append(time.perf_counter() - began)
        model.zero_grad()
        model(gradient).backward()
        report = hook.report()
        stages.append({stage: report[f"seconds_{stage}"] for stage in STAGES})
    middle = {name: statistics.median(each[name] for each in stages[warm:]) for name in stages[0]}
    return statistics.median(floors[warm:]), statistics.median(model.spent[warm:]), middle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=2**25)
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--recipes", default="radix+coo,laplacian+coo,laplacian,chunked,adacomp")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    pool = torch.randn(chosen.elements + SHIFTS, generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        print(f"torch {torch.__version__}, {chosen.elements} elements, density {chosen.density}")
        print(f"{'recipe':12} {'floor ms':>9} {'hook ms':>9} {'ratio':>6}  stages, ms")
        for recipe in chosen.recipes.split(","):
            floor, hook, seconds = measure(recipe, chosen.elements, chosen.density, chosen.steps, pool)
            stages = ", ".join(f"{name} {1e3 * each:.1f}" for name, each in seconds.items())
            print(f"{recipe:12} {1e3 * floor:9.1f} {1e3 * hook:9.1f} {hook / floor:6.2f}  {stages}", flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
