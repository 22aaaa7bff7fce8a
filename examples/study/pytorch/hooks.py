"""What a hook's name registers with DDP, and what it sends.

Each hook here has `sent()` and `received()`, the bytes of the last step on this rank, `state()`, what the next steps
depend on beside model and optimizer, and `restore(states)`, which takes that of all ranks.

Annotations are not postponed here: DDP looks at those of a hook.

Bytes of an all-reduce of n bytes over P ranks are those of a ring, Gloo's own choice: 2 (P - 1) / P n, sent and
received.
"""

import argparse
import contextlib
import logging
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from options import Hook, UsageError

COUNTED = {
    "none": "all gradients",
    "fp16": "all gradients, 2 bytes each",
    "powersgd": "the elements that its state counts",
    "gradsieve": "bytes_sent and bytes_received of its report: all that is handed to the transport and taken from it",
    "step": "the same, of an exchange",
}


USUAL = ("<biases and norms>",)  #: what gradsieve sends whole
STAGES = ("accumulate", "partition", "select", "exchange", "apply")
#: Elements asked for, sent and in the update, what passes through included; the same over all elements; entries of the
#: update over the budget; norm of what was not sent; seconds.
TRACED = ["asked", "sent", "updated", "density_asked", "density_sent", "density_updated", "build_up", "residual_norm",
          *(f"{stage}_s" for stage in STAGES)]


class Plain:
    """No hook: DDP all-reduces its buckets."""

    def __init__(self, ddp: torch.nn.Module) -> None:
        self.ddp, self.world = ddp, dist.get_world_size()
        self.dense = sum(each.numel() * each.element_size() for each in ddp.parameters())
        self.payload = self.dense

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def finish(self) -> None:
        """After the last step: all ranks get the same weights."""

    def ring(self, payload: int) -> float:
        return 2 * (self.world - 1) / self.world * payload

    def sent(self) -> float:
        return self.ring(self.payload)

    def received(self) -> float:
        return self.sent()

    def passed(self) -> int:
        """Elements that are sent whole."""
        return sum(each.numel() for each in self.ddp.parameters())

    def traced(self) -> list[float]:
        """Empty: it chooses nothing."""
        return []

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, states: list[dict[str, Any]]) -> None:
        pass


class Half(Plain):
    """Gradients cast to binary16, all-reduced, and cast back."""

    def __init__(self, ddp: DistributedDataParallel) -> None:
        super().__init__(ddp)
        self.payload = 2 * sum(each.numel() for each in ddp.parameters())
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)


def power_sgd_in_turn(engine: powerSGD_hook.PowerSGDState,
                      bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Torch's hook starts its second and third all-reduce from threads of Gloo's, so that those of two buckets may go
    out in another order on another rank. Waiting for each bucket keeps them apart.
    """
    future = powerSGD_hook.powerSGD_hook(engine, bucket)
    future.wait()
    return future


class PowerSgd(Plain):
    """Torch's PowerSGD, with error feedback. It keeps its errors by bucket and rank."""

    def __init__(self, ddp: DistributedDataParallel, matrix_rank: int, warmup: int) -> None:
        super().__init__(ddp)
        logging.getLogger(powerSGD_hook.__name__).setLevel(logging.ERROR)  # it warns of what state() leaves out
        self.element_size = next(ddp.parameters()).element_size()
        self.counted = 0
        self.engine = powerSGD_hook.PowerSGDState(
            process_group=None, matrix_approximation_rank=matrix_rank, start_powerSGD_iter=max(2, warmup),
            orthogonalization_epsilon=1e-8)
        ddp.register_comm_hook(self.engine, power_sgd_in_turn)

    def sent(self) -> float:
        """To be called once a step: what its counter grew by; nothing, while it still sends dense."""
        before, self.counted = self.counted, self.engine.compression_stats()[2]
        grown = self.element_size * (self.counted - before)
        self.payload = grown if grown > 0 else self.dense
        return super().sent()

    def received(self) -> float:
        return self.ring(self.payload)

    def state(self) -> dict[str, Any]:
        """Plain values and tensors, which torch.load reads without running what it reads."""
        found = dict(self.engine.__getstate__())
        algorithm, keys, *rest = found["rng"].get_state()
        found["rng"] = [algorithm, torch.from_numpy(keys.astype(np.int64)), *rest]
        return found

    def restore(self, states: list[dict[str, Any]]) -> None:
        """@throws UsageError if the number of ranks is another: errors that no rank takes over would be lost."""
        if len(states) != self.world:
            raise UsageError(f"--resume: powersgd keeps errors by rank, and was saved by {len(states)} ranks, not "
                             f"{self.world}")
        found = dict(states[dist.get_rank()])
        algorithm, keys, *rest = found["rng"]
        generator = np.random.RandomState()
        generator.set_state((algorithm, keys.numpy().astype(np.uint32), *rest))
        self.engine.__setstate__({**found, "rng": generator})
        self.engine.process_group = None
        self.counted = self.engine.compression_stats()[2]


def package(hook: Hook) -> Any:
    """gradsieve.torch; the other hooks do without."""
    try:
        import gradsieve.torch
    except ImportError as error:
        raise UsageError(f"--hook {hook.name}: there is no gradsieve.torch for this Python: "
                         f"pip install ./examples/python ({error})") from None
    return gradsieve.torch


def passthrough_of(chosen: argparse.Namespace, usual: tuple[str, ...] = USUAL) -> tuple[str, ...]:
    return usual if chosen.passthrough is None else chosen.passthrough


class Gradsieve(Plain):
    """The hook of this repository."""

    def __init__(self, ddp: DistributedDataParallel, hook: Hook, chosen: argparse.Namespace) -> None:
        super().__init__(ddp)
        self.element_size = next(ddp.parameters()).element_size()
        ours = package(hook)
        try:
            has_momentum = "momentum" in ours.options(hook.recipe)
            adapts = "adacomp" in hook.recipe.split("+")
            self.engine = ours.register(ddp, recipe=hook.recipe, passthrough=passthrough_of(chosen),
                                                 density=None if adapts else chosen.density,
                                                 warmup=0 if adapts else chosen.warmup, route=chosen.route,
                                                 **({"momentum": chosen.momentum} if has_momentum else {}))
        except (ValueError, TypeError) as error:
            raise UsageError(f"--hook {hook.name}: {error}") from None

    def sent(self) -> float:
        return float(self.engine.report()["bytes_sent"])

    def received(self) -> float:
        return float(self.engine.report()["bytes_received"])

    def passed(self) -> int:
        return int(self.engine.report()["passthrough_elements"])

    def traced(self) -> list[float]:
        """The last step's TRACED of this rank."""
        found, n = self.engine.report(), self.dense / self.element_size
        counts = [found[name] + found["passthrough_elements"] for name in ("budget", "selected", "union_size")]
        return [*counts, *(count / n for count in counts), found["union_size"] / max(1, found["budget"]),
                self.engine.residual_norm(), *(found[f"seconds_{stage}"] for stage in STAGES)]

    def pending(self) -> dict[str, np.ndarray]:
        """What this rank has not sent, by name, of the layers that do not pass through."""
        sizes = {name: each.numel() for name, each in self.ddp.module.named_parameters()}
        found = zip(sizes.items(), self.engine._native.residuals(list(sizes.values())))
        return {name: np.zeros(size, np.float32) if each is None else each.numpy().copy()
                for (name, size), each in found if name not in self.engine.passthrough}

    def state(self) -> dict[str, Any]:
        return self.engine.state_dict()

    def restore(self, states: list[dict[str, Any]]) -> None:
        """Of another number of ranks too: what ranks that are gone had not sent is shared out."""
        same = len(states) == self.world
        self.engine.load_state_dict(states[dist.get_rank()] if same else states)


class Step(Plain):
    """CompressedStep. The model is the bare one."""

    def __init__(self, model: torch.nn.Module, hook: Hook, chosen: argparse.Namespace,
                 optimizer: torch.optim.Optimizer) -> None:
        super().__init__(model)
        try:
            own = hook.preset is not None
            self.sync = package(hook).CompressedStep(
                model, optimizer, hook.recipe or None, 0.01 if chosen.density is None and not own else chosen.density,
                preset=hook.preset, every=None if own else hook.every, fragments=chosen.fragments, delay=chosen.delay,
                outer_lr=chosen.outer_lr, outer_momentum=chosen.outer_momentum,
                passthrough=passthrough_of(chosen, () if own else USUAL))
            hook.every = self.sync.every
        except (ValueError, TypeError) as error:
            raise UsageError(f"--hook {hook.name}: {error}") from None
        self.ended, self.at_end = False, contextlib.ExitStack()

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        self.ended = self.sync.step()

    def finish(self) -> None:
        """The model has the common parameters from now on."""
        if not self.ended or self.sync.fragments > 1 or self.sync.delay > 0:
            self.sync.exchange()
        self.at_end.enter_context(self.sync.common_parameters())

    def sent(self) -> float:
        return float(self.sync.report()["bytes_sent"]) if self.ended else 0.0

    def received(self) -> float:
        return float(self.sync.report()["bytes_received"]) if self.ended else 0.0


def register(ddp: torch.nn.Module, hook: Hook, chosen: argparse.Namespace,
             optimizer: torch.optim.Optimizer) -> Plain:
    """`ddp`: DistributedDataParallel, of step the bare model. @throws UsageError if the hook cannot be had."""
    if hook.kind == "fp16":
        return Half(ddp)
    if hook.kind == "powersgd":
        return PowerSgd(ddp, hook.matrix_rank, chosen.warmup)
    if hook.kind == "gradsieve":
        return Gradsieve(ddp, hook, chosen)
    if hook.kind == "step":
        return Step(ddp, hook, chosen, optimizer)
    return Plain(ddp)
