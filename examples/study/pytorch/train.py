#!/usr/bin/env python3
"""Trains a small model with DDP over Gloo, once a communication hook, and compares loss, bytes and time.

    train.py --ranks 2 --hook none,fp16,powersgd:4,gradsieve:laplacian+deft
    torchrun --nproc_per_node 2 train.py --hook none
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import sys
from typing import TextIO

import launch
import options
from options import UsageError


def open_output(path: pathlib.Path, option: str) -> TextIO:
    """Opened before the work starts: a wrong path is told at once, not after the last step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "w", newline="", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{option}: cannot write '{path}': {error.strerror}") from None


def check_outputs(chosen: argparse.Namespace, files: contextlib.ExitStack) -> dict[str, TextIO]:
    """The CSV files, open; what else will be written can be."""
    import plot
    if chosen.plot is not None:
        if not plot.matplotlib_is_there():
            raise UsageError("--plot needs matplotlib (Debian and Ubuntu: apt install python3-matplotlib)")
        if chosen.plot.suffix.lower() not in (".png", ".pdf", ".svg"):
            raise UsageError(f"--plot: '{chosen.plot}' should end in .png, .pdf or .svg")
        open_output(chosen.plot, "--plot").close()
    if chosen.save is not None:
        open_output(chosen.save.with_name(chosen.save.name + ".part"), "--save").close()
    paths = {name: getattr(chosen, name) for name in ("csv", "table", "trace", "accumulators")}
    return {name: files.enter_context(open_output(path, f"--{name}")) for name, path in paths.items() if path}


def compare(chosen: argparse.Namespace) -> None:
    """Trains once a hook. Collective."""
    import torch

    import plot
    import report
    from trainer import Result, Run, read_data, train_in_turn

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    rank, world = launch.join()
    options.check_world(chosen, world)
    data = read_data(chosen)
    with contextlib.ExitStack() as files:
        outputs = check_outputs(chosen, files) if rank == 0 else {}
        results: list[Result] = []
        together: list[Run] = []
        for hook in chosen.hook:
            run = Run(chosen, hook, data)
            if rank == 0 and not results and not together:
                count = sum(each.numel() for each in run.model.parameters())
                print(f"{chosen.model} of {count} parameters ({chosen.dtype}); {data.describe()}\n{world} ranks, torch "
                      f"{torch.__version__}, {chosen.steps} steps of {chosen.batch} samples, {chosen.optimizer}, "
                      f"learning rate {chosen.lr:g}, seed {chosen.seed}", flush=True)
            if chosen.interleave:
                together.append(run)
                continue
            with contextlib.closing(report.Progress(hook.name, run.result.first, chosen.stop or chosen.steps,
                                                    rank == 0)) as bar:
                results.append(run.train(bar))
        if together:
            with contextlib.closing(report.Progress("all hooks", 0, chosen.steps, rank == 0)) as bar:
                results = train_in_turn(together, bar)
        if rank != 0:
            return
        print(f"\n{report.table(results)}\n\n{report.notes(results)}")
        if "csv" in outputs:
            report.write_csv(outputs["csv"], report.steps(results))
        if "trace" in outputs:
            report.write_csv(outputs["trace"], report.traces(results))
        if "accumulators" in outputs:
            report.write_csv(outputs["accumulators"], report.shapes(results))
        if "table" in outputs:
            report.write_csv(outputs["table"], report.summary(results))
        if chosen.plot is not None:
            plot.draw({each.hook: list(zip(each.losses, each.sent, each.seconds)) for each in results}, chosen.plot)


def main(arguments: list[str]) -> int:
    """0, or 2 for a command line that cannot be obeyed, or 1 for all else."""
    chosen = options.parse(arguments)
    if not launch.started_by_a_launcher():
        world = chosen.ranks or 2
        try:
            options.check_world(chosen, world)
        except UsageError as wrong:
            options.parser().error(str(wrong))
        return launch.start(world, arguments)
    rank = int(launch.os.environ["RANK"])
    try:
        compare(chosen)
    except UsageError as wrong:  # the same on all ranks: one says it
        if rank == 0:
            options.parser().error(str(wrong))
        return 2
    except (RuntimeError, OSError) as error:
        print(f"train.py: rank {rank}: {error}", file=sys.stderr)
        return 1
    import torch.distributed as dist
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
