"""Starts the ranks on this machine, as torchrun would, and joins them. Needs no torch before join()."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time

RENDEZVOUS = "GRADSIEVE_RENDEZVOUS"  # where ranks that start() started meet; torchrun's meet by its own variables


def started_by_a_launcher() -> bool:
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def start(world: int, arguments: list[str]) -> int:
    """Runs this program once a rank, and returns the exit code: of the first rank that failed, or 0.

    A rank that fails leaves the others waiting for it: they are ended after a few seconds.
    """
    with tempfile.TemporaryDirectory(prefix="gradsieve-ranks-") as folder:
        meeting = (pathlib.Path(folder) / "store").as_uri()
        shared = {**os.environ, "WORLD_SIZE": str(world), RENDEZVOUS: meeting}
        shared.setdefault("OMP_NUM_THREADS", "1")
        if sys.platform == "linux":
            shared.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a host name need not resolve
        ranks = [subprocess.Popen([sys.executable, *sys.argv[:1], *arguments],
                                  env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(world)]
        try:
            return wait(ranks)
        finally:
            for each in ranks:
                each.kill()
                each.wait()


def wait(ranks: list[subprocess.Popen], patience: float = 5.0) -> int:
    """Until all have ended, or `patience` seconds after the first that failed."""
    failed, deadline = 0, float("inf")
    while any(each.poll() is None for each in ranks) and time.monotonic() < deadline:
        codes = [each.returncode for each in ranks if each.returncode]
        if codes and not failed:
            failed, deadline = codes[0], time.monotonic() + patience
        time.sleep(0.02)
    failed = failed or next((each.returncode for each in ranks if each.returncode), 0)
    return failed if failed >= 0 else 128 - failed  # by a signal, as a shell has it


def join() -> tuple[int, int]:
    """Meets the other ranks; this one's number, and how many there are."""
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=os.environ.get(RENDEZVOUS, "env://"), rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]))
    return dist.get_rank(), dist.get_world_size()
