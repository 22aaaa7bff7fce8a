"""One training run with one hook."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import math
import os
import pathlib
import statistics
import time
import zlib
from typing import Any, Callable, Union

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import accumulators
import checkpoint
import hooks
from data import Images, Ratings, Reversed, Text
from models import Cnn, Lstm, Mixer, Ncf, Transformer, Translator, loss_and_hits
from novograd import NovoGrad
from options import Hook, UsageError

Samples = Union[Text, Images, Ratings]
TRACED = 12  # steps that a plan is made of


@dataclasses.dataclass
class Result:
    """Step by step, losses as means over the ranks, the rest as rank 0 saw it."""

    hook: str
    first: int = 0  #: steps that were done before
    every: int = 1  #: steps from one exchange to the next
    dense: float = 0  #: bytes of a dense step, sent by a rank
    losses: list[float] = dataclasses.field(default_factory=list)
    sent: list[float] = dataclasses.field(default_factory=list)
    received: list[float] = dataclasses.field(default_factory=list)
    traced: list[list[float]] = dataclasses.field(default_factory=list)  #: with --trace: hooks.TRACED
    shapes: list[list[object]] = dataclasses.field(default_factory=list)  #: with --accumulators, on rank 0
    wire: list[int] = dataclasses.field(default_factory=list)  #: what left the network interface, where there is one
    seconds: list[float] = dataclasses.field(default_factory=list)
    test_loss: float = math.nan
    accuracy: float = math.nan
    digest: str = ""  #: of the parameters at the end
    passed: int = 0  #: elements that a step sends whole
    buckets: int = 0  #: with --plan, of this run
    predicted: float = math.nan  #: with --plan, seconds of an iteration
    measured: float = math.nan  #: likewise, median

    def per_step(self, values: list[float]) -> float:
        """Median, of steps that each exchange; else of rounds, shared out to their steps."""
        rounds = [values[i:i + self.every] for i in range(0, max(1, len(values) - self.every + 1), self.every)]
        return statistics.median(statistics.fmean(each) for each in rounds)

    @property
    def loss(self) -> float:
        """Mean over the last tenth of the steps."""
        return float(np.mean(self.losses[-max(1, len(self.losses) // 10):]))


def read_data(chosen: argparse.Namespace) -> Samples:
    """What the model trains on."""
    if chosen.model in ("cnn", "mixer"):
        return Images(chosen.data)
    if chosen.model == "translator":
        return Reversed(chosen.text, chosen.context)
    return Ratings(chosen.ratings) if chosen.model == "ncf" else Text(chosen.text, chosen.context)


def build(chosen: argparse.Namespace, data: Samples) -> torch.nn.Module:
    """The model, the same on all ranks, with weights from the seed."""
    torch.manual_seed(chosen.seed)
    model: torch.nn.Module
    if isinstance(data, Ratings):
        model = Ncf(data.classes, len(data.users), len(data.items), chosen.width)
    elif isinstance(data, Reversed):
        model = Translator(data.classes, chosen.context, chosen.width, chosen.layers)
    elif isinstance(data, Images) and chosen.model == "mixer":
        model = Mixer(data.classes, data.side, chosen.width, chosen.layers)
    elif isinstance(data, Text) and chosen.model == "lstm":
        model = Lstm(data.classes, chosen.width, chosen.layers)
    elif isinstance(data, Text):
        model = Transformer(data.classes, chosen.context, chosen.width, chosen.layers, chosen.heads)
    else:
        model = Cnn(data.classes, data.side, chosen.width)
    return model.to(getattr(torch, chosen.dtype))


def learning_rate(chosen: argparse.Namespace, step: int) -> float:
    """Rises over the first twentieth of the steps, at least 20, then falls as a cosine to a tenth."""
    ramp = max(20, chosen.steps // 20)
    if step < ramp:
        return chosen.lr * (step + 1) / ramp
    share = (step - ramp) / max(1, chosen.steps - ramp)
    return chosen.lr * (0.55 + 0.45 * math.cos(math.pi * share))


def make_optimizer(chosen: argparse.Namespace, hook: Hook, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Without momentum where the hook has it."""
    if chosen.optimizer in ("adam", "adamw"):
        kind = torch.optim.Adam if chosen.optimizer == "adam" else torch.optim.AdamW
        return kind(model.parameters(), lr=chosen.lr, betas=(chosen.momentum, 0.999))
    if chosen.optimizer == "adafactor":
        if not hasattr(torch.optim, "Adafactor"):
            raise UsageError("--optimizer adafactor needs torch 2.5 or newer")
        return torch.optim.Adafactor(model.parameters(), lr=chosen.lr)
    if chosen.optimizer == "novograd":
        return NovoGrad(model.parameters(), lr=chosen.lr, momentum=chosen.momentum)
    return torch.optim.SGD(model.parameters(), lr=chosen.lr, momentum=0 if hook.carries_momentum else chosen.momentum)


def sent_by_interface() -> int | None:
    """Bytes that Gloo's network interface has sent so far; None for loopback, and where that is unknown."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    try:
        return None if name == "lo" else int(pathlib.Path(f"/sys/class/net/{name}/statistics/tx_bytes").read_text())
    except (OSError, ValueError):
        return None


class Run:
    """A model on its way. Collective, from the constructor on."""

    def __init__(self, chosen: argparse.Namespace, hook: Hook, data: Samples) -> None:
        self.chosen, self.data = chosen, data
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.dtype = getattr(torch, chosen.dtype)
        self.plan = None
        self.wrap(hook, **({} if chosen.plan is None else self.planned(hook)))
        self.result = Result(hook.name, every=hook.every, dense=self.exchange.ring(self.exchange.dense))
        self.kept = checkpoint.settings(chosen, zlib.crc32(data.train.tobytes()))
        if chosen.resume is not None:
            self.result.first = checkpoint.restore(checkpoint.load(chosen.resume, self.kept), self.model,
                                                   self.optimizer, self.exchange)

    def wrap(self, hook: Hook, **buckets: Any) -> None:
        """A new model, in DDP but for CompressedStep, with its optimizer and the hook."""
        self.model = self.ddp = build(self.chosen, self.data)
        if hook.kind != "step":
            self.ddp = DistributedDataParallel(self.model, **buckets)
            self.settle_buckets()
        self.optimizer = make_optimizer(self.chosen, hook, self.model)
        self.exchange = hooks.register(self.ddp, hook, self.chosen, self.optimizer)

    def planned(self, hook: Hook) -> dict[str, Any]:
        """DDP's options for the buckets of a plan, which is made of steps with buckets of several sizes."""
        import gradsieve.torch
        size = sum(each.numel() * each.element_size() for each in build(self.chosen, self.data).parameters())
        self.wrap(hook, bucket_cap_mb=size / 2**20 / 8)
        with self.traced() as recorder:
            for number in range(TRACED):
                self.ddp.zero_grad(set_to_none=True)
                self.forward(*self.data.batch(self.chosen.seed, number, self.chosen.batch, self.rank,
                                              self.world))[0].backward()
        try:
            self.plan = gradsieve.torch.plan(recorder.trace, planner=self.chosen.plan)
        except ValueError as error:
            raise UsageError(f"--plan: {error}; a model of some megabytes has several buckets") from None
        if self.rank == 0:
            print(f"{self.chosen.plan}: {len(recorder.trace.layers)} parameters\n{self.plan}", flush=True)
        return self.plan.ddp_options()

    def traced(self) -> Any:
        """Times layers and exchanges; nothing without --plan."""
        return contextlib.nullcontext() if self.chosen.plan is None else self.exchange.engine.trace()

    def settle_buckets(self) -> None:
        """DDP finds its buckets anew after the first backward pass, and torch's PowerSGD keeps its errors by bucket.
        Two passes whose gradients nobody uses come first, so that a run that goes on has the buckets it had before.
        """
        for _ in range(2):
            self.forward(*self.data.batch(self.chosen.seed, 0, self.world, self.rank, self.world))[0].backward()
        self.ddp.zero_grad(set_to_none=True)

    def forward(self, inputs: np.ndarray, targets: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean loss and hits of this rank's samples."""
        return loss_and_hits(self.ddp(self.tensor(inputs)), torch.from_numpy(targets))

    def tensor(self, inputs: np.ndarray) -> torch.Tensor:
        """Codes as they are, pixels as the model's type."""
        found = torch.from_numpy(inputs)
        return found.to(self.dtype) if found.is_floating_point() else found

    def sample(self, number: int) -> None:
        """Looks at this rank's gradient of a step that is to come, and at what it had not sent; local."""
        inputs, targets = self.data.batch(self.chosen.seed, number, self.chosen.batch, self.rank, self.world)
        loss, _ = loss_and_hits(self.model(self.tensor(inputs)), torch.from_numpy(targets))
        gradients = torch.autograd.grad(loss, list(self.model.parameters()))  # which calls no hook of DDP's
        pending = self.exchange.pending()
        layers = {name: (gradient.flatten().numpy(), pending[name])
                  for (name, _), gradient in zip(self.model.named_parameters(), gradients) if name in pending}
        self.result.shapes += accumulators.rows(number + 1, layers)

    def step(self, number: int) -> None:
        if (self.chosen.accumulators is not None and self.rank == 0 and number % self.chosen.accumulators_every == 0
                and isinstance(self.exchange, hooks.Gradsieve)):
            self.sample(number)
        began, before, result = time.perf_counter(), sent_by_interface(), self.result
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.chosen, number)
        samples = self.data.batch(self.chosen.seed, number, self.chosen.batch, self.rank, self.world)
        self.optimizer.zero_grad(set_to_none=True)
        loss, _ = self.forward(*samples)
        loss.backward()
        self.exchange.step(self.optimizer)
        result.losses.append(loss.item())
        result.seconds.append(time.perf_counter() - began)
        result.sent.append(self.exchange.sent())
        result.received.append(self.exchange.received())
        if self.chosen.trace is not None:
            result.traced.append(self.exchange.traced())
        if before is not None:
            result.wire.append((sent_by_interface() or before) - before)

    def train(self, show: Callable[[int, float], None]) -> Result:
        """All steps from the first or the checkpoint's on; show(step, loss) after each.

        @throws RuntimeError if the ranks' parameters differ in a bit at the end.
        """
        last = self.chosen.stop or self.chosen.steps
        with self.traced() as recorder:
            for number in range(self.result.first, last):
                self.step(number)
                show(number + 1, self.result.losses[-1])
        if self.plan is not None:
            self.result.buckets = len(recorder.trace.exchanges) // max(1, recorder.trace.steps - 1)
            self.result.predicted, self.result.measured = self.plan.predicted_here, recorder.trace.iteration
            if self.rank == 0:
                print(self.plan.compared(recorder.trace), flush=True)
        return self.end()

    def end(self) -> Result:
        """After the last step. @throws RuntimeError as train()."""
        self.exchange.finish()
        losses = torch.tensor(self.result.losses, dtype=torch.float64)
        dist.all_reduce(losses)  # once, not in every step, where it would count
        self.result.losses = (losses / self.world).tolist()
        self.result.passed = self.exchange.passed()
        self.evaluate()
        self.compare_replicas()
        if self.chosen.save is not None:
            done = self.result.first + len(self.result.seconds)
            checkpoint.save(self.chosen.save, self.kept, done, self.model, self.optimizer, self.exchange)
        return self.result

    @torch.no_grad()
    def evaluate(self, at_once: int = 64) -> None:
        """Loss and accuracy of the samples held out; each rank judges its part."""
        inputs, targets = (each[self.rank::self.world] for each in self.data.evaluation())
        sums = torch.zeros(3, dtype=torch.float64)  # loss, hits, targets
        for i in range(0, len(inputs), at_once):
            wanted = torch.from_numpy(targets[i:i + at_once])
            loss, hits = loss_and_hits(self.model(self.tensor(inputs[i:i + at_once])), wanted)
            sums += torch.tensor([loss.item() * wanted.numel(), hits.item(), wanted.numel()], dtype=torch.float64)
        dist.all_reduce(sums)
        self.result.test_loss, self.result.accuracy = (sums[:2] / sums[2]).tolist()

    def compare_replicas(self) -> None:
        """Every rank applied the same updates to the same start: one differing bit means a broken exchange."""
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            found.update(parameter.detach().numpy().tobytes())
        self.result.digest = found.hexdigest()[:16]
        mine = torch.tensor([int(self.result.digest[:15], 16)])
        every = [torch.zeros_like(mine) for _ in range(self.world)]
        dist.all_gather(every, mine)
        for rank, other in enumerate(every):
            if other != every[0]:
                raise RuntimeError(f"replicas differ after the last step with {self.result.hook}: rank {rank} does not "
                                   "hold rank 0's parameters")


def train_in_turn(runs: list[Run], show: Callable[[int, float], None]) -> list[Result]:
    """All steps of several runs, step by step; each step begins with another run.

    @throws RuntimeError as Run.train().
    """
    for number in range(runs[0].chosen.steps):
        for i in range(len(runs)):
            runs[(number + i) % len(runs)].step(number)
        show(number + 1, runs[0].result.losses[-1])
    return [each.end() for each in runs]
