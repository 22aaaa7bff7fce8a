"""A run in one file: model, optimizer, and of each rank its hook's state and its generator's."""

from __future__ import annotations

import argparse
import os
import pathlib
from typing import Any

import torch
import torch.distributed as dist

from hooks import Plain
from options import UsageError

FORMAT = 1
SAME = ("model", "width", "layers", "heads", "context", "dtype", "steps", "batch", "optimizer", "lr", "momentum", "seed",
        "density", "dense", "warmup")


def settings(chosen: argparse.Namespace, data_digest: int) -> dict[str, Any]:
    """What must be the same when a run goes on. The number of ranks need not."""
    return {"hook": chosen.hook[0].name, **{name: getattr(chosen, name) for name in SAME}, "data": data_digest}


def save(path: pathlib.Path, kept: dict[str, Any], step: int, model: torch.nn.Module,
         optimizer: torch.optim.Optimizer, exchange: Plain) -> None:
    """Collective; rank 0 writes. The file is replaced as a whole, or not at all."""
    mine = {"hook": exchange.state(), "generator": torch.get_rng_state()}
    every = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, every)
    if dist.get_rank() != 0:
        return
    draft = path.with_name(path.name + ".part")
    try:
        torch.save({"format": FORMAT, "settings": kept, "step": step, "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(), "ranks": every}, draft)
        os.replace(draft, path)
    except (OSError, RuntimeError) as error:
        raise RuntimeError(f"--save: cannot write '{path}': {error}") from None


def load(path: pathlib.Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """@throws UsageError if this is no checkpoint, or one of other settings."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        kept = found["settings"]
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}, expected {FORMAT}")
    except Exception as error:  # whatever a damaged file makes of the reader
        why = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"--resume: '{path}' is no checkpoint of this program: {why}") from None
    for name, value in wanted.items():
        if kept.get(name) != value:
            what = "other data" if name == "data" else f"--{name} {kept.get(name)}, not {value}"
            raise UsageError(f"--resume: '{path}' was made with {what}")
    return found


def restore(found: dict[str, Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer, exchange: Plain) -> int:
    """Puts everything back, and returns the number of steps that were done."""
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    every = found["ranks"]
    exchange.restore([each["hook"] for each in every])
    torch.set_rng_state(every[dist.get_rank() % len(every)]["generator"])
    return found["step"]
