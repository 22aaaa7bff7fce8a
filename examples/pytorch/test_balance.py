"""The balance of values over random steps: what came in as gradients has come out as updates, or still waits.

`python3 test_balance.py [--sequences 2] [--ranks 2,3] [--kinds ddp,sharded,local] [--seed 0] [--every 1] [recipe ...]`
runs so many sequences of each recipe and kind. A sequence is a model, a hook and some steps, chosen at random:
parameters that one rank, some or none use, frozen ones, backward passes without exchange, failed steps, updates that
are discarded or undone. For each element: sum of all ranks' gradients = ranks * sum of the updates + sum of what all
ranks keep.
"""

import argparse
import contextlib
import functools
import os
import random
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsieve.torch
import test_hook
from gradsieve.torch import _shards
from test_hook import assert_raises
from test_sharded import FSDP2, FSDP_ON_CPU

FEEDS_BACK = ("none", "momentum")  # residuals for which an update in .grad must not enter again
SKIPS = "skip_all_reduce_unused_params"


class Part(nn.Module):
    """A matrix, of which two or three ranks can have equal parts, and a bias, which passes through."""

    def __init__(self, weight, bias=0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, weight // 6))
        if bias:
            self.bias = nn.Parameter(torch.randn(bias))

    def forward(self, told):
        mine = {name: getattr(self, name) for name in told}
        return sum((mine[name] * gradient.view(mine[name].shape)).sum() for name, gradient in told.items())


class Told(nn.Module):
    """Parameters whose gradients are what forward() is told; of parts that it is told nothing of, none."""

    def __init__(self):
        super().__init__()
        parts = {"always": (24, 0), "one": (42, 6), "two": (36, 0), "three": (30, 6), "last": (18, 0)}
        for name, sizes in parts.items():
            self.add_module(name, Part(*sizes))

    def forward(self, told):
        parts = {}
        for name, gradient in told.items():
            part, own = name.split(".")
            parts.setdefault(part, {})[own] = gradient
        return sum(getattr(self, part)(own) for part, own in parts.items())


class Ledger:
    """Of one rank, element by element: gradients that came in, updates that came out, and what is kept."""

    def __init__(self, sizes):
        self.came_in = {name: torch.zeros(size, dtype=torch.double) for name, size in sizes.items()}
        self.came_out = {name: torch.zeros(size, dtype=torch.double) for name, size in sizes.items()}
        self.moved = 0.0

    def take_in(self, name, gradient):
        self.came_in[name] += gradient
        self.moved += gradient.abs().max().item()

    def check(self, kept, scale=1.0):
        """`kept`: of this rank by name. `scale`: how many gradients each one that came in counts for."""
        names = list(self.came_in)
        flat = [torch.cat([each[name] for name in names]) for each in (self.came_in, kept)]
        both = torch.cat([*flat, torch.tensor([self.moved], dtype=torch.double)])
        dist.all_reduce(both)
        n = len(flat[0])
        out = torch.cat([self.came_out[name] for name in names]) * dist.get_world_size()
        wrong = (both[:n] * scale - out - both[n : 2 * n]).abs()
        limit = 2e-5 * scale * (1 + both[-1].item())
        if wrong.max() > limit:
            sizes = [len(self.came_in[name]) for name in names]
            bad = {name: f"{int((part > limit).sum())} of {len(part)}, by {part.max().item():.3g}"
                   for name, part in zip(names, wrong.split(sizes)) if part.max() > limit}
            raise AssertionError(f"out of balance: {bad}")


class Hooked:
    """A hook, and the law of its recipe. With nodes each rank keeps a part of its node's mean."""

    def __init__(self, hook, recipe, sizes, inside=None):
        self.hook, self.recipe, self.sizes = hook, recipe, sizes
        self.node = (1, 0) if inside is None else (dist.get_world_size(inside), dist.get_rank(inside))
        self.keeps = "none" not in recipe.split("+")
        self.momentum = 0.9 if "momentum" in recipe else 0.0

    def saved(self):
        """The states of each name, one row each."""
        found = {}
        ranks, rank = self.node
        for names, saved in self.hook.state_dict()["groups"]:
            saved = saved if isinstance(saved, bytes) else bytes(saved.numpy().tobytes())
            count, n = int.from_bytes(saved[6:8], "little"), int.from_bytes(saved[8:16], "little")
            whole = sum(self.sizes[name] for name in names)
            begin = min(whole, -(-whole // ranks) * rank)
            rows = torch.zeros(count, whole, dtype=torch.double)
            rows[:, begin : begin + n] = torch.frombuffer(
                bytearray(saved[len(saved) - 4 * n * count :]), dtype=torch.float32).view(count, n) * ranks
            for name, part in zip(names, rows.split([self.sizes[name] for name in names], 1)):
                found[name] = part
        return found

    def kept(self):
        """Of each name: what waits, as gradients that came in are counted."""
        found = self.saved()
        result = {}
        for name, size in self.sizes.items():
            rows = found.get(name, torch.zeros(2, size, dtype=torch.double))
            if self.momentum:  # a gradient comes in 1 / (1 - momentum) times, some of them later
                result[name] = rows[0] + self.momentum / (1 - self.momentum) * rows[1]
            else:
                result[name] = rows[1] if "filtered" in self.recipe else rows[0]
        return result

    def check(self, ledger):
        if self.keeps:
            ledger.check(self.kept(), 1 / (1 - self.momentum))


def options_of(recipe):
    if "momentum" in recipe:
        return {"momentum": 0.9, "masking": False}
    return {"beta": 0.5} if "filtered" in recipe else {}


def gradients_of(model):
    return {name: None if each.grad is None else each.grad.detach().double().flatten().clone()
            for name, each in model.named_parameters()}


def same_on_all_ranks(rows):
    mine = torch.stack(rows)
    everyone = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    for each in everyone:
        assert torch.equal(each, everyone[0]), "ranks have different updates"


# ---- DistributedDataParallel -----------------------------------------------------------------------------------------


class DdpSequence:
    """`group`: the hook's own, or those of nodes. `dtype`: of gradients at density 1, which float64 only has."""

    def __init__(self, recipe, seed, group, dtype=None):
        groups = {"inside": group[0], "across": group[1]} if isinstance(group, tuple) else {"process_group": group}
        self.chance, self.own = random.Random(seed), random.Random(1000 * seed + dist.get_rank() + 1)
        chance = self.chance
        torch.manual_seed(1000 * seed + dist.get_rank())
        modes = ["all", "unused", "unused", "static"]
        if SKIPS in DistributedDataParallel.__init__.__code__.co_varnames:
            modes.append("skipping")
        self.mode = chance.choice(modes)
        how = {"unused": {"find_unused_parameters": True}, "static": {"static_graph": True},
               "skipping": {"find_unused_parameters": True, SKIPS: True}}.get(self.mode, {})
        self.view = chance.random() < 0.5
        self.dense, module = dtype is not None, Told().to(dtype)
        self.doubles = dtype == torch.double
        self.ddp = DistributedDataParallel(module, bucket_cap_mb=chance.choice([2e-4, 3e-4, 1]),
                                           gradient_as_bucket_view=self.view, **how)
        self.module, self.parameters = module, dict(module.named_parameters())
        self.sizes = {name: each.numel() for name, each in self.parameters.items()}
        self.bad = "skip" if self.doubles else chance.choice(["skip", "fail", "fail", "propagate"])
        self.route = chance.choice(["python", "cpp"])
        undo = {"undo": True} if chance.random() < 0.5 else {}
        density = 1.0 if self.dense else test_hook.density_of(recipe, chance.choice([0.05, 0.2]))
        hook = gradsieve.torch.register(self.ddp, recipe, density,
                                        on_non_finite=self.bad, route=self.route, **groups, **undo,
                                        **options_of(recipe))
        self.can_undo = bool(undo)
        self.nodes = "inside" in groups
        self.hooked, self.hook = Hooked(hook, recipe, self.sizes, groups.get("inside")), hook
        self.ledger = Ledger(self.sizes)
        self.may_add_up = not any(each in recipe.split("+") for each in FEEDS_BACK)
        self.static = {self.own.choice(["", name]) for name in self.parameters} | {"always.weight"}
        self.rows, self.passes = [], 0
        self.forget()

    def forget(self):
        self.since = {name: torch.zeros(size, dtype=torch.double) for name, size in self.sizes.items()}
        self.used = set()

    def choose(self):
        """Parameters of the next backward pass of this rank."""
        if self.mode == "all":
            chosen = set(self.parameters)
        elif self.mode == "static":
            chosen = self.static & set(self.parameters)
        elif self.mode == "skipping":  # DDP wants these to be the same on all ranks, and in all passes of an update
            chosen = self.common
        else:
            chosen = self.some_of(self.own)
        return {name for name in chosen if self.parameters[name].requires_grad}

    def some_of(self, chance):
        share = chance.choice([0.2, 0.6])
        return {name for name in self.parameters if chance.random() < share} | {"always.weight"}

    def backward(self, chosen, bad=False):
        told = {name: torch.randn(self.sizes[name], dtype=self.parameters[name].dtype) for name in sorted(chosen)}
        if bad:
            name = self.own.choice(sorted(chosen))
            told[name][0] = self.own.choice([float("nan"), float("inf"), float("-inf")])
        for name, gradient in told.items():
            self.since[name] += gradient.double()
        self.used |= chosen
        self.ddp(told).backward()

    def zero(self):
        """As optimizer.zero_grad(), in both of its ways; frozen parameters may keep what they have."""
        to_none = self.chance.random() < 0.5
        frozen_too = self.chance.random() < 0.5
        for each in self.parameters.values():
            if each.grad is not None and (each.requires_grad or frozen_too):
                if to_none:
                    each.grad = None
                else:
                    each.grad.requires_grad_(False).zero_()

    def step(self, first):
        chance = self.chance
        kind = chance.choices(["plain", "bad", "discard", "undo", "add up"], [6, 2, 1, 1, 1])[0]
        if (kind == "undo" and not self.can_undo or kind == "add up" and (first or not self.may_add_up)
                or kind in ("bad", "discard") and self.doubles  # float64 is neither checked nor kept
                or kind == "bad" and self.nodes and self.bad != "fail"):  # NaN hides what it was added to
            kind = "plain"
        if kind != "add up":
            self.zero()
        if self.mode == "unused":
            for name in self.parameters:
                if name != "always.weight" and chance.random() < 0.1:
                    self.parameters[name].requires_grad_(not self.parameters[name].requires_grad)
        self.forget()
        self.common = self.some_of(chance)
        waiting = self.hooked.kept() if kind in ("bad", "undo") else None
        before = gradients_of(self.module)
        alone = chance.choice([0, 0, 0, 1, 2])
        if self.mode == "static" and first or self.mode != "all" and torch.__version__.startswith("1."):
            alone = 0  # torch 1.13 forgets what such passes used
        for _ in range(alone):
            with self.ddp.no_sync():
                self.backward(self.choose())
        where = chance.randrange(dist.get_world_size())
        error = None
        local = gradients_of(self.module)
        try:
            self.backward(self.choose(), kind == "bad" and dist.get_rank() == where)
        except RuntimeError as raised:
            error = raised
        self.passes += 1
        if kind == "bad" and self.bad == "fail":
            assert error is not None and (self.nodes or "NaN or infinite" in str(error)), f"{error}"
            self.same_waits(waiting)
            self.zero_all()
            return
        if error is not None:
            raise error
        self.settle(kind, before, local, waiting)

    def same_waits(self, waiting):
        now = self.hooked.kept()
        wrong = [name for name in now if not torch.equal(now[name], waiting[name])]
        assert not wrong, f"what waits is not what it was: {wrong}"

    def zero_all(self):
        for each in self.parameters.values():
            each.grad = None

    def used_by_any(self):
        maps = torch.tensor([name in self.used for name in self.parameters], dtype=torch.int)
        dist.all_reduce(maps)
        return {name for name, count in zip(self.parameters, maps.tolist()) if count > 0}

    def settle(self, kind, before, local, waiting):
        after = gradients_of(self.module)
        used = self.used_by_any()
        hurt = {name for name, each in after.items() if each is not None and not torch.isfinite(each).all()}
        assert bool(hurt) == (kind == "bad" and self.bad == "propagate"), hurt
        self.rows.append(torch.cat([torch.full((size,), -1.0, dtype=torch.double) if after[name] is None else
                                    torch.nan_to_num(after[name]) for name, size in self.sizes.items()]))
        for name in self.parameters:
            if name not in used:
                same = after[name] is None if before[name] is None else torch.equal(after[name], before[name])
                assert same, f"'{name}', which no rank used, has another gradient than before"
        if kind == "undo":
            self.hook.undo_step()
            self.same_waits(waiting)
            self.zero_all()
            return
        if hurt:
            self.hook.discard_step()
        for name in used - hurt:
            gradient = self.since[name]
            self.ledger.take_in(name, torch.where(torch.isfinite(gradient), gradient, torch.zeros_like(gradient)))
            if not hurt:
                old = before[name] if before[name] is not None else torch.zeros(self.sizes[name], dtype=torch.double)
                self.ledger.came_out[name] += after[name] - old
        if kind == "discard":
            self.hook.discard_step()
            for name in used:
                self.ledger.came_out[name] -= after[name]
        if hurt or kind == "discard":
            self.zero_all()

    def run(self):
        for number in range(self.chance.randint(3, 8)):
            self.step(number == 0)
        for each in self.parameters.values():
            each.requires_grad_(True)
        same_on_all_ranks(self.rows) if self.rows else None
        self.hooked.check(self.ledger)
        counted = self.hook.report()["total_steps"]
        assert counted == self.passes, f"{counted} steps were counted, there were {self.passes}"

    def __str__(self):
        return (f"{self.mode}, on_non_finite={self.bad}, route={self.route}, gradient_as_bucket_view={self.view}, "
                f"undo={self.can_undo}")


# ---- sharded models --------------------------------------------------------------------------------------------------


class ShardedSequence:
    """Units of one Part each, which all ranks use in a step, or none."""

    def __init__(self, shard, recipe, seed, group):
        self.chance, self.own = random.Random(seed), random.Random(1000 * seed + dist.get_rank() + 1)
        chance = self.chance
        torch.manual_seed(1000 * seed + dist.get_rank())
        module = Told()
        self.parts = dict(module.named_children())
        self.shapes = {name: {own: each.numel() for own, each in part.named_parameters()}
                       for name, part in self.parts.items()}
        self.shard = shard.__name__
        self.model = shard(module)
        self.pieces = {unit.name: unit.pieces for unit in _shards.units_of(self.model)}
        sizes = {f"{name}[{r}]": size for unit in self.pieces.values() for r, part in enumerate(unit)
                 for name, size in part}
        self.bad = chance.choice(["skip", "fail", "fail", "propagate"])
        self.can_undo = chance.random() < 0.5
        undo = {"undo": True} if self.can_undo else {}
        density = test_hook.density_of(recipe, chance.choice([0.05, 0.2]))
        self.hook = gradsieve.torch.register(self.model, recipe, density, on_non_finite=self.bad, process_group=group,
                                             **undo, **options_of(recipe))
        self.hooked, self.ledger = Hooked(self.hook, recipe, sizes), Ledger(sizes)
        self.passes = 0

    def modules(self, name):
        return getattr(self.model, name)

    def grads(self):
        """Of each unit, this rank's shard."""
        found = {}
        for name in self.parts:
            each = [p.grad for p in self.modules(name).parameters()]
            found[name] = None if any(g is None for g in each) else torch.cat(
                [(g.to_local() if hasattr(g, "to_local") else g).detach().double().flatten() for g in each])
        return found

    def zero(self):
        for each in self.model.parameters():
            each.grad = None

    def flat(self, name, told):
        """A unit's gradient in the order of its pieces."""
        world = dist.get_world_size()
        if self.shard == "wrap_flat":
            return torch.cat([each.flatten() for each in told.values()])
        return torch.cat([each.chunk(world)[r] for r in range(world) for each in told.values()])

    def backward(self, used, bad=False):
        told = {name: {own: torch.randn(size) for own, size in self.shapes[name].items()} for name in sorted(used)}
        if bad:
            told[self.own.choice(sorted(used))]["weight"][0] = self.own.choice([float("nan"), float("inf")])
        for name, each in told.items():
            self.since[name] = self.since.get(name, 0) + self.flat(name, each).double()
        flat = {f"{name}.{own}": gradient for name, each in told.items() for own, gradient in each.items()}
        self.model(flat).backward()

    def without_exchange(self):
        if self.shard == "wrap_flat":
            return self.model.no_sync()

        @contextlib.contextmanager
        def off():
            self.model.set_requires_gradient_sync(False)
            yield
            self.model.set_requires_gradient_sync(True)
        return off()

    def step(self):
        chance = self.chance
        kind = chance.choices(["plain", "bad", "discard", "undo", "add up"], [6, 2, 1, 1, 1])[0]
        if kind == "undo" and not self.can_undo:
            kind = "plain"
        if kind != "add up":
            self.zero()
        self.since = {}
        before = self.grads()
        used = {name for name in self.parts if name == "always" or chance.random() < 0.7}
        waiting = self.hooked.kept()
        if kind != "add up" and chance.random() < 0.25:
            with self.without_exchange():
                self.backward(used)
        where, error = chance.randrange(dist.get_world_size()), None
        try:
            self.backward(used, kind == "bad" and dist.get_rank() == where)
        except RuntimeError as raised:
            error = raised
        self.passes += 1
        if kind == "bad" and self.bad == "fail":
            assert error is not None and "NaN or infinite" in str(error), f"{error}"
            DdpSequence.same_waits(self, waiting)
            return self.zero()
        if error is not None:
            raise error
        if kind == "undo":
            self.hook.undo_step()
            DdpSequence.same_waits(self, waiting)
            return self.zero()
        after = self.grads()
        bad = torch.tensor([after[name] is not None and not torch.isfinite(after[name]).all() for name in self.parts],
                           dtype=torch.int)
        dist.all_reduce(bad)
        hurt = {name for name, count in zip(self.parts, bad.tolist()) if count}
        assert bool(hurt) == (kind == "bad" and self.bad == "propagate"), hurt
        if hurt or kind == "discard":
            self.hook.discard_step()
        for name in used - hurt:
            pieces = [(f"{piece}[{r}]", size) for r, part in enumerate(self.pieces[name]) for piece, size in part]
            flat = torch.where(torch.isfinite(self.since[name]), self.since[name], 0.0)
            for (piece, _), part in zip(pieces, flat.split([size for _, size in pieces])):
                self.ledger.take_in(piece, part)
            if not hurt and kind != "discard":
                wrote = after[name] if before[name] is None else after[name] - before[name]
                mine = self.pieces[name][dist.get_rank()]
                for (piece, _), part in zip(mine, wrote.split([size for _, size in mine])):
                    self.ledger.came_out[f"{piece}[{dist.get_rank()}]"] += part
        if hurt or kind == "discard":
            self.zero()

    def run(self):
        for _ in range(self.chance.randint(3, 8)):
            self.step()
        for each in self.ledger.came_out.values():
            dist.all_reduce(each)
        self.hooked.check(self.ledger)
        counted = self.hook.report()["total_steps"]
        assert counted == self.passes, f"{counted} steps were counted, there were {self.passes}"

    def __str__(self):
        return f"{self.shard}, on_non_finite={self.bad}, undo={self.can_undo}"


def wrap_flat(module):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return FullyShardedDataParallel(module, device_id=torch.device("cpu"), auto_wrap_policy=ModuleWrapPolicy({Part}))


def wrap_each(module):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for each in module.children():
        fully_shard(each, mesh=mesh)
    return fully_shard(module, mesh=mesh)


# ---- local steps -----------------------------------------------------------------------------------------------------


class LocalSequence:
    """Steps of rate 1 whose gradients are told, and exchanges that put the mean of what was sent in place."""

    def __init__(self, recipe, seed, group):
        self.chance = random.Random(seed)
        chance = self.chance
        torch.manual_seed(seed)
        self.model = Told()
        self.parameters = dict(self.model.named_parameters())
        sizes = {name: each.numel() for name, each in self.parameters.items()}
        self.bad = chance.choice(["skip", "fail"])
        self.outer = gradsieve.torch.CompressedStep(
            self.model, torch.optim.SGD(self.model.parameters(), lr=1.0), recipe, every=chance.choice([1, 2, 3]),
            local_weight=None if "filtered" in recipe else chance.choice([None, 0, 0.5, 1]), density=test_hook.density_of(recipe, chance.choice([0.05, 0.2])),
            on_non_finite=self.bad, hook_group=group, **options_of(recipe))
        self.begin = self.common()
        self.hooked, self.ledger = Hooked(self.outer.hook, recipe, sizes), Ledger(sizes)
        self.round = []  # gradients since the last exchange
        torch.manual_seed(1000 * seed + dist.get_rank())

    def common(self):
        return {name: each.detach().double().flatten().clone()
                for name, each in zip(self.parameters, self.outer._common)}

    def step(self):
        told = {name: torch.randn(each.numel()) for name, each in self.parameters.items()}
        for each in self.parameters.values():
            each.grad = None
        self.model(told).backward()
        ends = self.outer._done + 1 == self.outer.every
        if ends and self.bad == "fail" and self.chance.random() < 0.4:
            where = self.chance.randrange(dist.get_world_size())
            name = self.chance.choice(sorted(self.parameters))
            waiting, common = self.hooked.kept(), self.common()
            if dist.get_rank() == where:
                self.parameters[name].grad[0] = float("nan")
            try:
                self.outer.step()
            except RuntimeError as error:
                assert "NaN or infinite" in str(error), error
            else:
                raise AssertionError("a round with NaN did not fail")
            DdpSequence.same_waits(self, waiting)
            assert all(torch.equal(common[name], each) for name, each in self.common().items())
            assert all(torch.isfinite(each).all() for each in self.parameters.values())
            self.round = []  # all ranks drop it
            return
        self.outer.step()
        self.round.append(told)
        if ends:
            for told in self.round:
                for name, gradient in told.items():
                    self.ledger.take_in(name, gradient.double())
            self.round = []

    def run(self):
        for _ in range(self.chance.randint(2, 6)):
            for _ in range(self.outer.every):
                self.step()
        now = self.common()
        for name in now:
            self.ledger.came_out[name] = self.begin[name] - now[name]
        same_on_all_ranks([torch.cat(list(now.values()))])
        self.hooked.check(self.ledger)

    def __str__(self):
        return f"on_non_finite={self.bad}, every={self.outer.every}, local_weight={self.outer.local_weight}"


# ---- all of it -------------------------------------------------------------------------------------------------------


def reported(recipe, seed, sequence):
    try:
        sequence.run()
    except Exception as error:
        raise AssertionError(f"{recipe}, sequence {seed}: {sequence}") from error


def run_ddp(recipe, seed, group):
    reported(recipe, seed, DdpSequence(recipe, seed, group))


@functools.lru_cache
def nodes_of_two():
    return gradsieve.torch.nodes(2)


def run_dense(recipe, seed, group):
    for dtype in (torch.float, torch.double):
        reported(recipe, seed, DdpSequence(recipe, seed, group, dtype))


def run_nodes(recipe, seed, group):
    if dist.get_world_size() == 4:
        reported(recipe, seed, DdpSequence(recipe, seed, nodes_of_two()))


def run_sharded(recipe, seed, group):
    if any(summing in recipe for summing in ("deft", "cyclic", "micro")):  # not for shards
        return
    for shard in [wrap_flat] * FSDP_ON_CPU + [wrap_each] * FSDP2:
        reported(recipe, seed, ShardedSequence(shard, recipe, seed, group))


def run_local(recipe, seed, group):
    if "momentum" in recipe:  # an optimizer's steps are no gradients to it
        return
    reported(recipe, seed, LocalSequence(recipe, seed, group))


def told_of(module):
    return {name: torch.randn(each.numel()) for name, each in module.named_parameters()}


def case_an_update_never_counts_as_a_gradient(group):
    """Several exchanged backward passes an update: right, or refused by a sentence that names the remedy."""
    for recipe in ("radix+momentum", "radix+none", "radix+deft+momentum"):
        for view, unused, route in ((False, False, "python"), (True, True, "cpp"), (True, False, "cpp")):
            torch.manual_seed(dist.get_rank())
            ddp = DistributedDataParallel(Told(), gradient_as_bucket_view=view, find_unused_parameters=unused)
            hook = gradsieve.torch.register(ddp, recipe, 0.2, process_group=group, route=route, undo=True)
            ddp(told_of(ddp.module)).backward()
            before = hook.state_dict()["groups"]
            with ddp.no_sync():  # gradients that are thrown away, as those that a GAN's generator leaves elsewhere
                ddp(told_of(ddp.module)).backward()
            for each in ddp.parameters():
                each.grad = None
            ddp(told_of(ddp.module)).backward()
            for _ in range(2):  # the sentence, and not a DDP that waits
                assert_raises(RuntimeError, "no_sync()", lambda: ddp(told_of(ddp.module)).backward())
                for each in ddp.parameters():
                    each.grad = None
                for _ in range(2):
                    with ddp.no_sync():
                        ddp(told_of(ddp.module)).backward()
                ddp(told_of(ddp.module)).backward()
            hook.undo_step()
            for each in ddp.parameters():
                each.grad.zero_()  # as set_to_none=False
            ddp(told_of(ddp.module)).backward()
            assert len(hook.state_dict()["groups"]) >= len(before)


def case_a_layer_that_is_thawed(group):
    """Frozen when register() is called, trained later: its first gradients are no earlier updates."""
    for route in ("python", "cpp"):
        ddp = DistributedDataParallel(Told(), find_unused_parameters=True)
        ddp.module.two.requires_grad_(False)
        hook = gradsieve.torch.register(ddp, "radix+momentum", 0.2, process_group=group, route=route)
        assert not ddp.module.two.weight.requires_grad
        told = told_of(ddp.module)
        few = {name: gradient for name, gradient in told.items() if not name.startswith("two.")}
        for _ in range(3):
            ddp.zero_grad(set_to_none=True)
            ddp(few).backward()
        ddp.module.two.requires_grad_(True)
        for _ in range(2):
            ddp.zero_grad(set_to_none=True)
            ddp(told).backward()
        assert hook.report()["total_steps"] == 5
        for each in ddp.parameters():
            if each is not ddp.module.two.weight:
                each.grad = None
        assert_raises(RuntimeError, "'two.weight' still holds the update", lambda: ddp(told).backward())


def case_undo_needs_its_copy(group):
    ddp = DistributedDataParallel(Told())
    hook = gradsieve.torch.register(ddp, "radix", 0.2, process_group=group)
    ddp(told_of(ddp.module)).backward()
    assert_raises(ValueError, "register(..., undo=True)", hook.undo_step)


def case_a_frozen_parameter_of_a_unit(group):
    """FSDP2 goes on after a sentence from within its own work."""
    if not FSDP2:
        return
    model = wrap_each(Told())
    hook = gradsieve.torch.register(model, "radix", 0.2, process_group=group)
    names = [name for name, _ in Told().named_parameters()]
    told = {name: torch.randn(each.numel()) for name, each in Told().named_parameters()}
    model(told).backward()
    frozen = model.one.bias
    frozen.requires_grad_(False)
    for _ in range(2):
        assert_raises(RuntimeError, "requires_grad has changed", lambda: model(told).backward())
    frozen.requires_grad_(True)
    model.zero_grad()
    for _ in range(3):
        model(told).backward()
    assert all(each.grad is not None and each.grad.to_local().abs().sum() > 0 for name, each in
               zip(names, model.parameters()) if name.endswith("weight"))
    assert hook.report()["total_steps"] == 6


def case_a_backward_pass_that_was_broken_off(group):
    """The next one is a step of its own, whose failure is raised."""
    if not FSDP_ON_CPU:
        return

    def breaks(gradient):
        raise OverflowError("broken off")

    model = wrap_flat(Told())
    hook = gradsieve.torch.register(model, "radix", 0.2, process_group=group, on_non_finite="fail")
    told = told_of(Told())
    model(told).backward()
    watched = told["always.weight"].clone().requires_grad_()  # of the last unit
    watched.register_hook(breaks)
    assert_raises(OverflowError, "broken off", lambda: model({**told, "always.weight": watched}).backward())
    model.zero_grad()
    model(told).backward()
    bad = {**told, "one.weight": told["one.weight"] * float("nan")}
    assert_raises(RuntimeError, "NaN or infinite", lambda: model(bad).backward())
    assert hook.report()["total_steps"] >= 3


CASES = [case_an_update_never_counts_as_a_gradient, case_a_layer_that_is_thawed, case_undo_needs_its_copy,
         case_a_frozen_parameter_of_a_unit, case_a_backward_pass_that_was_broken_off]


def run_cases(group):
    for case in CASES:
        case(group)
        dist.barrier()


RUNS = {"ddp": run_ddp, "dense": run_dense, "nodes": run_nodes, "sharded": run_sharded, "local": run_local}


def run_all(rank, world, store, asked):
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 200
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    group = dist.new_group()
    recipes = asked.recipes or test_hook.every_recipe()[:: asked.every]
    run_cases(group)
    for kind in asked.kinds.split(","):
        began = time.monotonic()
        for recipe in ["radix"] if kind == "dense" else recipes:
            for number in range(asked.sequences):
                RUNS[kind](recipe, asked.seed + number, group)
            if rank == 0 and asked.sequences >= 50:
                print(f"  {kind}, {recipe}: {time.monotonic() - began:.0f} s", flush=True)
        if rank == 0:
            print(f"{kind} on {world} ranks: {asked.sequences} sequences of {len(recipes)} recipes each, "
                  f"{time.monotonic() - began:.1f} s", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=2)
    parser.add_argument("--ranks", default="2,3")
    parser.add_argument("--kinds", default=",".join(RUNS), help="nodes takes --ranks 4")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="take every so-many-th recipe")
    parser.add_argument("recipes", nargs="*")
    asked = parser.parse_args()
    for world in map(int, asked.ranks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(run_all, args=(world, os.path.join(folder, "store"), asked), nprocs=world)


if __name__ == "__main__":
    main()
