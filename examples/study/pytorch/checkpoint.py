"""A run in one file: model, optimizer, and of each rank its hook's state and its generator's.

The file holds tensors, and as JSON how they are nested: torch reads that without running what it reads, in 1.13 too.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hooks import Plain
from options import UsageError

FORMAT = 1
SAME = ("model", "width", "layers", "heads", "context", "dtype", "steps", "batch", "optimizer", "lr", "momentum",
        "seed", "density", "passthrough", "warmup")


def settings(chosen: argparse.Namespace, data_digest: int) -> dict[str, Any]:
    """What must be the same when a run goes on. The number of ranks need not."""
    return {"hook": chosen.hook[0].name, **{name: getattr(chosen, name) for name in SAME}, "data": data_digest}


def pack(value: Any, tensors: list[torch.Tensor]) -> Any:
    """What JSON can hold of it; tensors and bytes are appended to `tensors`. @throws TypeError for other classes"""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}
    if isinstance(value, (bytes, bytearray)):
        tensors.append(torch.from_numpy(np.frombuffer(value, dtype=np.uint8).copy()))
        return {"bytes": len(tensors) - 1}
    if isinstance(value, dict):
        return {"dict": [[pack(key, tensors), pack(each, tensors)] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [pack(each, tensors) for each in value]}
    raise TypeError(f"a checkpoint does not hold a {type(value).__name__}")


def unpack(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The opposite of pack()."""
    if not isinstance(value, dict):
        return value
    (kind, held), = value.items()
    if kind == "tensor":
        return tensors[held]
    if kind == "bytes":
        return tensors[held].numpy().tobytes()
    if kind == "dict":
        return {unpack(key, tensors): unpack(each, tensors) for key, each in held}
    return {"list": list, "tuple": tuple}[kind](unpack(each, tensors) for each in held)


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
        write(draft, {"format": FORMAT, "settings": kept, "step": step, "model": dict(model.state_dict()),
                      "optimizer": optimizer.state_dict(), "ranks": every})
        os.replace(draft, path)
    except (OSError, RuntimeError) as error:
        raise RuntimeError(f"--save: cannot write '{path}': {error}") from None


def write(path: pathlib.Path, value: Any) -> None:
    tensors: list[torch.Tensor] = []
    tree = json.dumps(pack(value, tensors))
    torch.save({"tree": tree, "tensors": tensors}, path)


def load(path: pathlib.Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """@throws UsageError if this is no checkpoint, or one of other settings."""
    try:
        read = torch.load(path, map_location="cpu", weights_only=True)
        found = unpack(json.loads(read["tree"]), read["tensors"])
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
