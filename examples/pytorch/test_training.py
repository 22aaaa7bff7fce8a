"""What CompressedStep promises, on two ranks and for some of it on three: `python3 test_training.py [cases]`."""

import datetime
import gc
import io
import math
import os
import signal
import sys
import threading
import types
import warnings
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks

import gradsieve.torch
import test_hook
from gradsieve.torch import _buffers, _replica, _second_moments
from test_hook import assert_raises, assert_same_on_all_ranks, batches, sgd, small_model, weights

OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0.1),
    "Adam, decay in the gradient": lambda parameters: torch.optim.Adam(parameters, lr=3e-3, weight_decay=0.1),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
    "RMSprop, centered": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3, centered=True),
    "Adadelta": lambda parameters: torch.optim.Adadelta(parameters),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=1e-3),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
}


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x).float(), y)


def train(model, sync, optimizer, steps, seed=0, dtype=torch.float32, clip=None):
    for x, y in batches(steps, dtype, seed):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        if clip is not None:
            sync.clip_grad_norm_(clip)
        sync.step()


def adamw(model):
    return OPTIMIZERS["AdamW"](model.parameters())


def started(seed=1, of=adamw, dtype=torch.float32, **options):
    model = small_model(dtype, seed)
    optimizer = of(model)
    return model, optimizer, gradsieve.torch.CompressedStep(
        model, optimizer, **{"recipe": "radix", "density": 0.05, **options})


def common_of(model, sync):
    with sync.common_parameters():
        return weights(model)


def pending_of(sync):
    """What this rank has not sent, of all parameters in order."""
    found = sync.hook._native.residuals([each.numel() for each in sync._common])
    return -torch.cat([(torch.zeros(common.numel()) if each is None else each).double()
                       for each, common in zip(found, sync._common)])  # the hook has gradients, which are subtracted


def mean_of(values):
    values = values.clone()
    dist.all_reduce(values)
    return values / dist.get_world_size()


def case_dense_exchange_is_the_mean():
    """At density 1 all ranks take the mean of where their optimizers went."""
    for every in (1, 4):
        model, optimizer, sync = started(density=1.0, every=every, second_moments=False, common_momentum=every == 1)
        alone = small_model()
        apart = adamw(alone)
        for x, y in batches(every):
            apart.zero_grad()
            loss_of(alone, x, y).backward()
            apart.step()
        train(model, sync, optimizer, every)
        away = (weights(model) - mean_of(weights(alone))).abs().max().item()
        assert away < 1e-6, away
        assert sync.rounds == 1


def case_everything_in_few_bits():
    """At density 1 a recipe of values sends all changes both ways in their bits, and at most 0.2 bits more for each."""
    world = dist.get_world_size()
    for recipe, bits in (("int8", 8), ("radix+int4", 4), ("Int2+Layerwise", 2), ("sign+hierarchical", 1)):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        sync = gradsieve.torch.CompressedStep(model, optimizer, recipe, 1.0, second_moments=False)
        n = sum(each.numel() for each in model.parameters())
        losses = []
        x = torch.randn(64, 300, generator=torch.Generator().manual_seed(dist.get_rank()))
        for _ in range(12):
            optimizer.zero_grad()
            loss = loss_of(model, x, x[:, :10].argmax(1))
            loss.backward()
            losses.append(mean_of(loss.detach()).item())
            sync.step()
        report = sync.report()
        assert report["selected"] == n and report["passthrough_elements"] == 0
        received = report["bytes_received"] - report["bytes_measured"] - report["bytes_buffers"] - 48 * (world - 1)
        each = 8 * received / (2 * n * (world - 1) / world)
        assert bits < each <= bits + 0.2, (recipe, each)
        assert report["ring_ratio"] > 32 / (bits + 0.25), report["ring_ratio"]
        assert losses[-1] < 0.9 * losses[0], losses
        assert_same_on_all_ranks(common_of(model, sync), recipe)
    for text, options in (("name values alone, such as int4", {"recipe": "int4+bitmap"}),
                          ("name values alone, such as int4", {"recipe": "coo"}),
                          ("with an exchange that the recipe names", {"recipe": "gather+int4"}),
                          ("deft, cyclic and micro sum up values", {"recipe": "deft+int4"})):
        assert_raises(ValueError, text, lambda options=options: started(density=1.0, **options))


def weights_behind_steps(model, optimizer, sync):
    """A list whose last one is what this rank's last step has made of the weights."""
    after, step, enlarge = [], optimizer.step, sync._enlarge
    optimizer.step = lambda: (step(), after.append(weights(model)))
    sync._enlarge = lambda begun: (enlarge(begun), after.append(weights(model)))
    return after


def case_what_is_updated_is_sent_or_pending():
    """Common parameters and the mean of what ranks have not sent are what all updates sum up to; each rank trains on the
    common parameters and its share of what it has not sent."""
    recipes = ["radix", "laplacian+deft", "radix+cyclic", "chunked+int4", "radix+sign", "hierarchical+layerwise+fp16",
               "radix+micro", "adacomp", "sign+coded_all_reduce", "radix+filtered+cyclic", "radix+none", "int4", "layerwise+sign",
               "int2+laplacian"]
    for number, (recipe, optimizer_name) in enumerate(zip(recipes, list(OPTIMIZERS) * 2)):
        density = 1.0 if number > 10 else test_hook.density_of(recipe, 0.05)
        model, optimizer, sync = started(of=lambda model: OPTIMIZERS[optimizer_name](model.parameters()), recipe=recipe,
                                         density=density, every=1 + number % 3, common_momentum=False,
                                         **({"returned": 0.5} if "coded" in recipe else {}))
        total, after = weights(model), weights_behind_steps(model, optimizer, sync)
        for x, y in batches(12, seed=number):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            before = weights(model)
            sync.step()
            total += mean_of(after[-1] - before)
        common = common_of(model, sync)
        assert_same_on_all_ranks(common, recipe)
        if "none" not in recipe and "filtered" not in recipe:
            away = (common + mean_of(pending_of(sync)) - total).abs().max().item()
            assert away < 2e-6, (recipe, away)
            assert pending_of(sync).abs().max() > 0
        share = 0 if "filtered" in recipe or "none" in recipe else 0.5
        away = (weights(model) - common - share * pending_of(sync)).abs().max().item()
        assert away < 1e-7, (recipe, away)


MOMENTA = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01),
    "Nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.8, nesterov=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=3e-3, betas=(0.8, 0.99)),
    "AdamW, amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3, weight_decay=0, amsgrad=True),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=1e-3),
    "Adamax": lambda parameters: torch.optim.Adamax(parameters, lr=1e-3),
    "RAdam": lambda parameters: torch.optim.RAdam(parameters, lr=1e-3),
}


def case_common_momentum_is_the_optimizers():
    """Where nothing is lost, and what ranks exchange is linear in their gradients or these are constant, training is that
    of one optimizer: from the beginning, from a state of it, and back."""
    for name, of in MOMENTA.items():
        model, alone = small_model(), small_model()
        optimizer, apart = of(model.parameters()), of(alone.parameters())
        chance = torch.Generator().manual_seed(5)
        constant = [torch.randn(each.shape, generator=chance) for each in model.parameters()]
        sync = None
        for step in range(24):
            if step in (8, 16):  # without gradsieve, with it, and without it
                if sync is not None:
                    with sync.common_parameters():
                        saved, ends = optimizer.state_dict(), [each.clone() for each in model.parameters()]
                        saved = torch.load(saved_to(saved))
                    if name != "RAdam":  # whose first steps are not normalised
                        model = small_model()
                        optimizer = of(model.parameters())
                        optimizer.load_state_dict(saved)
                        with torch.no_grad():
                            for each, end in zip(model.parameters(), ends):
                                each.copy_(end)
                    sync = None
                else:
                    sync = gradsieve.torch.CompressedStep(model, optimizer, "radix", 1.0, second_moments=False,
                                                          common_momentum=True)
                    assert sync._momentum is not None
            mine = [each + torch.randn(each.shape, generator=chance) if isinstance(apart, torch.optim.SGD) else each
                    for each in constant]
            for one in (model, alone):
                for each, gradient in zip(one.parameters(), mine):
                    each.grad = gradient.clone()
            (optimizer if sync is None else sync).step()
            apart.step()
            away = ((weights(model) if sync is None else common_of(model, sync)) - weights(alone)).abs().max().item()
            assert away < (1e-5 if name != "RAdam" else 0.02), (name, step, away)
            if name == "RAdam" and step == 15:
                break


def case_common_momentum_moves_in_steps_alone():
    """As with one optimizer, where nothing is lost: what else changes weights between steps counts once and in full, of
    ranks that change other things the mean of it; without a gradient a parameter and its momentum stand still. Also from
    the optimizer's own steps to a CompressedStep, and to another one."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, of in MOMENTA.items():
        if name == "RAdam":  # whose first steps are not normalised
            continue
        model, alone = small_model(), small_model()
        optimizer, apart = of(model.parameters()), of(alone.parameters())
        chance = torch.Generator().manual_seed(5)
        constant = [torch.randn(each.shape, generator=chance) for each in model.parameters()]
        for step in range(20):
            for one, of_mean in ((model, False), (alone, True)):
                if step == 4:
                    one.load_state_dict(small_model(seed=3).state_dict())
                for number, (each, gradient) in enumerate(zip(one.parameters(), constant)):
                    with torch.no_grad():
                        if step == 9:
                            each.data.mul_(0.5)
                        if step == 12 and (of_mean or rank == 0):
                            each[:1] += 1 / world if of_mean else 1
                    late = number == 1 and (step < 3 or 6 <= step < 9)
                    each.grad = None if late or step == 14 else gradient.clone()
                    if step in (15, 16) and not of_mean:
                        each.grad.view(-1)[0] = float("inf")
            if step < 2:
                optimizer.step(), apart.step()
                continue
            if step in (2, 10):
                sync = gradsieve.torch.CompressedStep(model, optimizer, "radix", 1.0, second_moments=False,
                                                      common_momentum=True)
            before = common_of(model, sync)
            sync.step()
            if step not in (15, 16):
                apart.step()
            if 14 <= step <= 16:
                assert torch.equal(common_of(model, sync), before), (name, step)
            away = (common_of(model, sync) - weights(alone)).abs().max().item()
            assert away < (4e-5 if name == "NAdam" else 1e-5), (name, step, away)
            in_full = 4 * sum(each.numel() for each in constant) * (step in (4, 9, 12))
            assert sync.report()["bytes_buffers"] == in_full, (name, step)


def case_what_waits_does_not_move_without_steps():
    """To the bit, while a change of weights reaches the common parameters in full."""
    for dtype, rounding in ((torch.float32, 1e-6), (torch.bfloat16, 5e-3)):
        model, optimizer, sync = started(dtype=dtype)
        train(model, sync, optimizer, 6, dtype=dtype)
        before, own, waits = common_of(model, sync), weights(model), pending_of(sync)
        optimizer.zero_grad(set_to_none=True)
        assert sync.step() and sync.rounds == 7 and not sync.report()["total_bytes_buffers"]
        assert torch.equal(weights(model), own)
        assert torch.equal(common_of(model, sync), before) and torch.equal(pending_of(sync), waits) and waits.any()
        with torch.no_grad():
            for each in model.parameters():
                each += 0.5
        assert sync.step() and (weights(model) - own - 0.5).abs().max() < rounding
        assert (common_of(model, sync) - before - 0.5).abs().max() < rounding and torch.equal(pending_of(sync), waits)
        if dist.get_rank() == 0:  # its share of the mean moves all
            loss_of(model, *next(iter(batches(1, dtype)))).backward()
        sync.step()
        assert all(each.steps == 7 for each in sync._momentum._held.values())
        assert_same_on_all_ranks(common_of(model, sync), "a step of one rank")

    def clamped():
        for x, y in batches(10, dtype):
            with torch.no_grad():
                for each in model.parameters():
                    each.clamp_(-0.05, 0.05)
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            sync.step()
    found = test_hook.warnings_of(clamped)
    assert len(found) == 1 and "something else than the optimizer" in found[0], found
    assert_same_on_all_ranks(common_of(model, sync), "clamped")


def saved_to(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return file


def case_common_momentum_is_the_same_on_all_ranks():
    """Also where a scheduler runs on one rank only; and what is saved goes on to the bit."""
    def scheduled(model, optimizer, sync, steps, seed):
        for number, (x, y) in enumerate(batches(steps, seed=seed)):
            for group in optimizer.param_groups:
                group["betas"] = (0.95 - 0.05 * (number % 7) * dist.get_rank(), 0.99)
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            betas = [group["betas"] for group in optimizer.param_groups]
            sync.step()
            assert [group["betas"] for group in optimizer.param_groups] == betas

    model, optimizer, sync = started(density=0.06)
    scheduled(model, optimizer, sync, 9, 1)
    assert_same_on_all_ranks(common_of(model, sync), "momenta that differ")
    agreed = 0.95 - 0.05 * (dist.get_world_size() - 1) / 2  # in exchange 8, the last one that agrees
    assert abs(sync._momentum._momenta[0] - agreed) < 1e-6
    saved = torch.load(saved_to({"sync": sync.state_dict(), "optimizer": optimizer.state_dict()}))
    scheduled(model, optimizer, sync, 5, 2)
    other, its_optimizer, again = started(seed=7, density=0.06)
    its_optimizer.load_state_dict(saved["optimizer"])
    again.load_state_dict(saved["sync"])
    scheduled(other, its_optimizer, again, 5, 2)
    assert torch.equal(weights(model), weights(other))
    damaged = {**saved["sync"], "momentum": {**saved["sync"]["momentum"], "held": {}}}
    assert_raises(ValueError, "'momentum' of the state", lambda: again.load_state_dict(damaged))


def case_common_momentum_forgets_faster_at_a_low_density():
    """How far ranks train ahead of the common parameters shows the momentum that these have."""
    def sgd(model):
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for b, share, options in ((0.9, 1, {"density": 0.06}), (0.7, 1, {"density": 0.02}), (0.5, 1, {"density": 0.002}),
                              (0.9, 1, {"density": 0.02, "common_momentum": 0.9}), (0.4, 1, {"common_momentum": 0.4}),
                              (0.0, 1, {"common_momentum": 0}),
                              (0.9, 1, {"density": 1.0, "recipe": "fixed_threshold", "magnitude": 1e-4}),
                              (0.8, 0, {"density": 0.02, "common_momentum": 0.8, "of": sgd}),
                              (0.9, 0, {"density": 0.02, "common_momentum": True, "of": sgd})):
        model, optimizer, sync = started(**{"of": adamw, "density": 0.06, "local_weight": 0.0, "recipe": "radix+sign", **options})
        train(model, sync, optimizer, 5)
        moves = torch.cat([(each.values / (1 - share * b ** each.steps)).double().flatten()
                           for each in sync._momentum._held.values()])
        away = (weights(model) - common_of(model, sync) + b * moves).abs().max().item()
        assert moves.any() and away < 1e-6, (b, options, away)
        assert f"of 8 of 8, {b:g}" in sync.describe(), sync.describe()
    sync = started(of=adamw, density=0.02, recipe="radix+none")[2]  # nothing waits
    assert sync._momentum._momenta[0] == 0.9 and not sync._looks_ahead
    model, optimizer, sync = started(of=adamw, density=0.02)
    for group, b in zip(optimizer.param_groups, (0.95, 0.5)):  # as a scheduler does
        group["betas"] = (b, 0.99)
    train(model, sync, optimizer, 1)
    assert [round(b, 6) for b in sync._momentum._momenta] == [0.85, 0.0][:len(optimizer.param_groups)]
    assert started(of=adamw, density=0.02, every=2)[2]._momentum._momenta[0] == 0.9


def case_what_takes_no_common_momentum():
    def muon(model):
        return torch.optim.Adagrad(model.parameters())
    for text, options in (("outer step", {"outer_momentum": 0.9}), ("outer step", {"outer_lr": 0.5}),
                          ("recipe carries momentum", {"recipe": "radix+momentum"}), ("no optimizer", {"of": muon})):
        assert_raises(ValueError, text, lambda: started(common_momentum=True, **options))
        assert started(**options)[2]._momentum is None
    assert_raises(TypeError, "common_momentum", lambda: started(common_momentum="yes"))
    for value in (1, -0.1, float("nan")):
        assert_raises(ValueError, "from 0 and below 1", lambda: started(common_momentum=value))
    assert_raises(ValueError, "common_momentum is 0.5, but", lambda: started(common_momentum=0.5, outer_momentum=0.9))
    assert_raises(ValueError, "not the same on all ranks", lambda: started(common_momentum=dist.get_rank() == 0 or False))
    assert_raises(ValueError, "not the same on all ranks", lambda: started(common_momentum=dist.get_rank() == 0 or 0.9))

    class Lookahead(torch.optim.Optimizer):  # changes weights after another's step
        def __init__(self, optimizer):
            self.optimizer = optimizer
            super().__init__(optimizer.param_groups, {})

        def step(self, closure=None):
            return self.optimizer.step()
    assert started(of=lambda model: Lookahead(adamw(model)))[2]._momentum is None
    model, optimizer, sync = started()
    train(model, sync, optimizer, 2)
    sync.load_state_dict({**sync.state_dict(), "momentum": {}})  # of each rank's own
    assert not any(each.steps or each.values.any() for each in sync._momentum._held.values())
    optimizer.step()
    assert_raises(ValueError, "the optimizer's own step()", sync.exchange)
    own = small_model()
    its = torch.optim.SGD(own.parameters(), lr=0.1, momentum=0.9)
    assert gradsieve.torch.CompressedStep(own, its)._momentum is None
    late = gradsieve.torch.CompressedStep(own, its, common_momentum=True)
    for each in own.parameters():
        its.state[each]["momentum_buffer"] = torch.ones_like(each)
        each.grad = torch.zeros_like(each)
    assert "begins at zero" in test_hook.warnings_of(late.step)[0]
    assert started()[2].local_weight == 0.25 and started(common_momentum=False)[2].local_weight == 0.5


def case_weights_of_ranks():
    """The mean of changes is the weighted one, and what is pending has its weight."""
    rank, world = dist.get_rank(), dist.get_world_size()
    nodes = dict(zip(("inside", "across"), gradsieve.torch.nodes(2))) if world == 4 else {}
    for density, every in ((1.0, 1), (0.05, 1), (0.05, 3)):
        model, optimizer, sync = started(density=density, every=every, common_momentum=False, **nodes)
        total, weight, begun = common_of(model, sync), 0, weights(model)
        for number, (x, y) in enumerate(batches(12)):
            optimizer.zero_grad()
            (loss_of(model, x, y) * float("inf" if number == 4 and rank == 1 and every == 1 else 1)).backward()
            mine = 1 + 30 * rank + number
            if (number + rank) % (2 * world) == 1 or number == 4 and rank == 1 and every == 1:
                mine = 0
            sync._exchange, exchange = (lambda *_, **__: None), sync._exchange
            sync.step(weight=mine)
            sync._exchange = exchange
            weight += mine
            if sync._done < every:
                continue
            factor = gradsieve.torch.mean_factor(weight)
            total += mean_of(factor * (weights(model) - begun) if weight else torch.zeros_like(total))
            sync.exchange()
            assert sync._done == 0 and torch.isfinite(weights(model)).all()
            common, weight, begun = common_of(model, sync), 0, weights(model)
            if number == 4:
                for state in optimizer.state.values():  # of the loss that was not finite
                    state["exp_avg"].zero_(), state["exp_avg_sq"].fill_(1e-4)
            if not nodes:
                away = (common + mean_of(pending_of(sync)) - total).abs().max().item()
                assert away < 3e-6, (density, every, number, away)
                share = min(sync.local_weight, 1 / max(factor, 1))
                assert (weights(model) - common - share * pending_of(sync)).abs().max() < 1e-6, factor
            elif density == 1:
                assert (common - total).abs().max() < 3e-6, number
        assert_same_on_all_ranks(common, "weights")


def case_weights_save_and_refuse():
    rank = dist.get_rank()

    def steps(model, optimizer, sync, count, weight_of, seed=3):
        for number, (x, y) in enumerate(batches(count, seed=seed)):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            sync.step(weight=weight_of(number))

    def uneven(number):
        return 1 if rank else 100 + number
    through = started(every=2)
    steps(*through, 5, uneven)
    saved = torch.load(saved_to((through[1].state_dict(), through[2].state_dict())))  # torch 2.15 would share the steps
    again = started(seed=7, every=2)
    again[1].load_state_dict(saved[0])
    again[2].load_state_dict(saved[1])
    for each in (through, again):
        steps(*each, 3, uneven, seed=4)
    assert torch.equal(weights(through[0]), weights(again[0]))
    for damaged in ([1.0], [1.0, 0.0, float("nan")]):
        assert_raises(ValueError, "'weights' of the state", lambda: again[2].load_state_dict({**saved[1], "weights": damaged}))

    last = dist.get_world_size() - 1
    model, optimizer, sync = started()
    for weight_of, mine, others in (
        (lambda _: -1 if rank == last else 1, "weight is -1, expected a number from 0", "weight of another rank"),
        (lambda _: float("nan") if rank == last else 1, "weight is nan", "weight of another rank"),
        (lambda _: torch.ones(()) if rank == last else 1, "take .item()", "weight of another rank"),
        (lambda _: None if rank == last else 1, "some steps have a weight", "some steps have a weight"),
        (lambda _: 0, "weights of all ranks are 0", "weights of all ranks are 0"),
    ):
        for _ in range(2):
            rounds, before = sync.rounds, common_of(model, sync)
            assert_raises((ValueError, TypeError), mine if rank == last else others,
                          lambda: steps(model, optimizer, sync, 1, weight_of))
            assert sync.rounds == rounds and torch.equal(common_of(model, sync), before)
            steps(model, optimizer, sync, 1, lambda _: rank + 1)
            assert sync.rounds == rounds + 1
            assert_same_on_all_ranks(common_of(model, sync), mine)
        if "some" not in mine:
            assert_raises((ValueError, TypeError), mine if rank == last else others,
                          lambda: gradsieve.torch.mean_factor(weight_of(0)))
    assert_raises(ValueError, "some steps have a weight", lambda: steps(model, optimizer, sync, 1, lambda _: None))
    model, optimizer, sync = started()
    steps(model, optimizer, sync, 2, lambda _: None)
    before = weights(model)
    assert_raises(ValueError, "exchanges so far had none", lambda: steps(model, optimizer, sync, 1, lambda _: 1))
    assert torch.equal(weights(model), before)
    steps(model, optimizer, sync, 1, lambda _: None)


def case_weights_do_not_vanish_in_adam():
    """Rank 0 has 15 samples for each one of another rank, and another aim: the mean of all samples is the aim."""
    rank, world = dist.get_rank(), dist.get_world_size()
    count, aim = (15, 1.0) if rank == 0 else (1, -1.0)
    right = (15 - (world - 1)) / (15 + world - 1)
    noise = torch.Generator().manual_seed(rank)
    model = nn.Linear(1, 300, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0)
    sync = gradsieve.torch.CompressedStep(model, optimizer, "radix", density=0.1)
    for i in range(250):
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - i / 250)
        optimizer.zero_grad()
        (model(torch.ones(count, 1)) - aim - 0.3 * torch.randn(count, 300, generator=noise)).square().mean().backward()
        sync.step(weight=count)
    found = common_of(model, sync).mean().item()
    assert abs(found - right) < 0.06, (found, right)  # with each rank's own size 0.98, without weights 0.04


class Moving(nn.Module):
    """Buffers of many kinds, some of which a forward pass changes; a balancing bias; and a teacher."""

    def __init__(self):
        super().__init__()
        self.student, self.teacher = nn.Linear(6, 6), nn.Linear(6, 6).requires_grad_(False)
        self.bias = nn.Parameter(torch.zeros(3), requires_grad=False)
        self.norm = nn.BatchNorm1d(6)
        self.register_buffer("codes", torch.zeros(3, 4, dtype=torch.float64).t())
        self.register_buffer("short", torch.ones(5, dtype=torch.float16))
        self.register_buffer("large", torch.zeros(40_000))
        self.register_buffer("mask", torch.full((6, 6), -float("inf")).triu(1))
        self.register_buffer("grows", torch.zeros(2))
        self.register_buffer("expanded", torch.zeros(1, 3).expand(4, 3))
        self.register_buffer("flags", torch.ones(3, dtype=torch.bool))
        self.register_buffer("late", torch.zeros(3))
        self.passes = 0

    def forward(self, x):
        y = self.norm(self.student(x))
        if self.training:
            with torch.no_grad():
                self.passes += 1
                for mine, theirs in zip(self.teacher.parameters(), self.student.parameters()):
                    mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)
                self.bias.data += y.mean().sign() * 0.01
                self.codes.data += y.mean().double()
                self.short = self.short * 0.5 + y.var().half()  # another tensor
                self.large[5] += y.mean()
                self.grows = torch.zeros(2 + dist.get_rank() + self.passes)
                if self.passes == 3 and dist.get_rank() == 0:
                    self.flags = torch.ones(5, dtype=torch.bool)
                if self.passes > 6:
                    self.late += y.mean()
        return y


def case_buffers_that_training_changes():
    _buffers.FROZEN = 10  # of 54
    rank, world = dist.get_rank(), dist.get_world_size()
    moving = ("bias", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "codes",
              "short", "large")
    for buffers, weighs in (("mean", False), ("mean", True), ("broadcast", False), ("own", False)):
        torch.manual_seed(rank)
        model = Moving()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        sync = gradsieve.torch.CompressedStep(model, optimizer, density=0.5, buffers=buffers)
        assert all(name in sync.describe().split("not exchanged: ")[1] for name in (*moving, "mask", "late"))
        for number, (x, _) in enumerate(batches(18, seed=5)):
            optimizer.zero_grad()
            model(x[:4 + 4 * (rank % 2), :6]).square().mean().backward()
            if number == 7 and rank == world - 1:
                model.norm.running_var[2] = float("nan")
                model.norm.num_batches_tracked += 5
            weight = 1.0 + 3 * rank + number if weighs else None
            held = {**dict(model.named_buffers()), **dict(model.named_parameters())}
            before = {name: held[name].double().clone() for name in moving}
            sync.step(weight=weight)
            held = {**dict(model.named_buffers()), **dict(model.named_parameters())}
            for name in moving if number % 7 == 0 else ():
                counts = float(torch.isfinite(before[name]).all())
                factor = (1 if weight is None else weight) * counts
                sums = torch.cat([(before[name] * factor if counts else torch.zeros_like(before[name])).flatten(),
                                  torch.tensor([factor], dtype=torch.float64)])
                dist.all_reduce(sums)
                first = before[name].contiguous().clone()
                dist.broadcast(first, 0)
                right = {"mean": (sums[:-1] / sums[-1]).view(first.shape), "broadcast": first, "own": before[name]}[buffers]
                right = first if name.endswith("tracked") and buffers == "mean" else right
                near = 2e-3 if name == "short" else 1e-6
                assert torch.allclose(held[name].double(), right, rtol=near, atol=near, equal_nan=True), (buffers, number, name)
        assert torch.equal(model.mask, torch.full((6, 6), -float("inf")).triu(1))
        told, report = sync.describe(), sync.report()
        assert ("and are many: teacher.weight, teacher.bias;" in told) == (buffers != "own"), told
        assert len(model.grows) == 2 + rank + model.passes  # of another shape on each rank
        assert model.flags.all() and len(model.flags) == (3 if rank else 5)  # of another one on the first rank
        if buffers == "own":
            assert "not exchanged: buffers and frozen parameters: " in told and report["total_bytes_buffers"] == 0
            continue
        assert_same_on_all_ranks(model.late.double(), "a buffer that begins to change later")
        assert model.late.abs().max() > 0 and all(name in told.split("not exchanged")[0] for name in (*moving, "late"))
        assert "not exchanged: unchanged so far: mask" in told and "without values: expanded" in told, told
        again = Moving()  # after a restart they are exchanged at once
        optimizer = torch.optim.AdamW(again.parameters(), lr=1e-3)
        other = gradsieve.torch.CompressedStep(again, optimizer, density=0.5, buffers=buffers)
        other.load_state_dict(sync.state_dict())
        again(x[:, :6]).square().mean().backward()
        other.step(weight=weight)
        assert_same_on_all_ranks(again.norm.running_mean.double(), "a buffer after a restart")
        assert other.describe() == told
        assert_raises(ValueError, "'buffers' of the state", lambda: other.load_state_dict(
            {**other.state_dict(), "buffers": [1]}))
        assert 4 * 40_000 < report["bytes_buffers"] < 4 * 90_000 and report["bytes_sent"] > report["bytes_buffers"]
    plain = started()
    train(plain[0], plain[2], plain[1], 2)
    assert plain[2].report()["total_bytes_buffers"] == 0 and "exchanged" not in plain[2].describe()
    assert_raises(ValueError, "buffers is 'sum', expected mean, broadcast or own", lambda: started(buffers="sum"))


def case_ranks_agree_after_each_exchange():
    for recipe, decay in (("chunked+int4", 0.95), ("chunked+int2", 0.95), ("radix+fp16", 1.0), ("laplacian+deft", 0.5)):
        model, optimizer, sync = started(of=sgd, recipe=recipe, decay=decay, every=4, local_weight=0.0, outer_lr=0.7,
                                         outer_momentum=0.9)
        train(model, sync, optimizer, 40)
        assert_same_on_all_ranks(weights(model), recipe)
        report = sync.report()
        assert report["step"] == 9 and sync.rounds == 10, report
        assert 0 < report["bytes_sent"] < report["baseline_bytes"]
        train(model, sync, optimizer, 2)
        mine = weights(model)
        other = mine.clone()
        dist.broadcast(other, 0)
        assert dist.get_rank() == 0 or not torch.equal(mine, other), "ranks do not train alone"


def case_stopped_and_continued_is_as_if_not():
    for steps, every, early in ((9, 1, False), (20, 4, False), (22, 4, False), (23, 4, True)):
        through, optimizer, sync = started(every=every, outer_momentum=0.5)
        train(through, sync, optimizer, steps, seed=1, clip=1.0)
        if early:
            sync.exchange()
        file = io.BytesIO()
        with sync.common_parameters(), sync.common_parameters():
            torch.save([optimizer.state_dict(), sync.state_dict()], file)
        train(through, sync, optimizer, 14, seed=2, clip=1.0)

        file.seek(0)
        inner, state = torch.load(file)
        model, optimizer, again = started(seed=7, every=every, outer_momentum=0.5)
        optimizer.load_state_dict(inner)
        again.load_state_dict(state)
        train(model, again, optimizer, 14, seed=2, clip=1.0)
        assert torch.equal(weights(model), weights(through)), steps
        assert torch.equal(common_of(model, again), common_of(through, sync)), steps
        assert again.rounds == sync.rounds and again.factors() == sync.factors()


def case_decay_lets_the_old_fade():
    """Ranks that stand still send what is left: half of it is gone before each exchange."""
    model, optimizer, sync = started(decay=0.5, recipe="radix", passthrough=[], of=sgd)
    train(model, sync, optimizer, 3)
    before = sync.hook.residual_norm()
    sync.exchange()  # no step since: the update is zero
    after = sync.hook.residual_norm()
    assert 0 < after <= before / 2 * 1.000001, (before, after)


class Lost:
    """In place of the exchange, which ends with an error."""

    def __init__(self, native):
        self.native = native

    def __getattr__(self, name):
        return getattr(self.native, name)

    def exchange(self, *arguments):
        self.native.exchange(*arguments)
        raise RuntimeError("lost")


def case_an_exchange_that_failed_is_tried_again():
    """As if it had not failed, to the bit, though its changes were exchanged."""
    for decay in (0.5, 1):
        ends = []
        for fails in (False, True):
            model, optimizer, sync = started(every=100, decay=decay)
            train(model, sync, optimizer, 3)
            sync.exchange()
            train(model, sync, optimizer, 3, seed=1)
            if fails:
                norm, before, native = sync.hook.residual_norm(), weights(model), sync.hook._native
                sync.hook._native = Lost(native)
                assert_raises(RuntimeError, "lost", sync.exchange)
                sync.hook._native = native
                assert torch.equal(weights(model), before) and sync.rounds == 1
                assert abs(sync.hook.residual_norm() - norm) < 1e-9 * norm
            sync.exchange()
            assert_same_on_all_ranks(common_of(model, sync), "second attempt")
            assert sync.rounds == 2
            ends.append((weights(model), sync.hook.residual_norm()))
        assert all(torch.equal(ends[0][0], own) and ends[0][1] == norm for own, norm in ends[1:])


def case_an_optimizer_that_raises():
    """Second moments that were scaled for its step are not left below zero."""
    model, optimizer, sync = started()
    train(model, sync, optimizer, 3)
    moments = [state["exp_avg_sq"].clone() for state in optimizer.state.values()]

    def refuse(*_):
        raise KeyError("mine")
    hook = optimizer.register_step_pre_hook(refuse) if hasattr(optimizer, "register_step_pre_hook") else None
    if hook is None:  # before torch 2
        return
    for each in model.parameters():
        each.grad = torch.full_like(each, 50.0 * (1 + dist.get_rank()) * (-1) ** dist.get_rank())
    assert_raises(KeyError, "mine", sync.step)
    hook.remove()
    for state, moment in zip(optimizer.state.values(), moments):
        assert (state["exp_avg_sq"] >= 0).all() and torch.allclose(state["exp_avg_sq"], moment, rtol=1e-3, atol=1e-5)
    train(model, sync, optimizer, 3)
    assert torch.isfinite(weights(model)).all() and sync.report()["non_finite"] == 0


class Interrupted(Lost):
    """Ctrl-C in the middle."""

    def exchange(self, *arguments):
        self.native.exchange(*arguments)
        os.kill(os.getpid(), signal.SIGINT)


def case_an_interrupt_waits_for_the_exchange():
    """Whoever catches it goes on as if nothing had been, to the bit."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background of a shell ignores it
    ends = []
    for interrupted in (False, True):
        model, optimizer, sync = started()
        train(model, sync, optimizer, 3)
        native = sync.hook._native
        for call in (lambda: train(model, sync, optimizer, 1, seed=1), sync.exchange):
            if interrupted:
                sync.hook._native = Interrupted(native)
                assert_raises(KeyboardInterrupt, "", call)
                sync.hook._native = native
            else:
                call()
        assert sync.rounds == 5 and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        train(model, sync, optimizer, 3, seed=2)
        ends.append(weights(model))
    assert torch.equal(*ends)
    elsewhere = threading.Thread(target=sync.exchange)  # where Python lets nobody handle signals
    elsewhere.start()
    elsewhere.join()
    assert sync.rounds == 9


def case_with_fail_steps_with_nan_are_dropped():
    for every, options in ((1, {}), (2, {"decay": 0.5})):
        model, optimizer, sync = started(of=lambda model: torch.optim.SGD(model.parameters(), lr=0.05), every=every,
                                         on_non_finite="fail", **options)
        train(model, sync, optimizer, 2 * every)
        begun, norm = weights(model), sync.hook.residual_norm()
        for step, (x, y) in enumerate(batches(every, seed=1)):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            if step == 0 and dist.get_rank() == 1:
                next(model.parameters()).grad[0, 0] = float("nan")
            if step == every - 1:
                assert_raises(RuntimeError, "are dropped on all ranks", sync.step)
            else:
                sync.step()
        assert torch.equal(weights(model), begun) and sync.rounds == 2
        assert abs(sync.hook.residual_norm() - norm) < 1e-9 * norm
        train(model, sync, optimizer, 2 * every, seed=2)
        assert sync.rounds == 4 and torch.isfinite(weights(model)).all()
        assert_same_on_all_ranks(common_of(model, sync), "after a dropped round")
        if dist.get_rank() == 1:
            optimizer.param_groups[0]["lr"] = float("inf")
        whose = "what this rank's optimizer has changed" if dist.get_rank() == 1 else "another rank's"
        if every == 1:  # else its own next gradients are NaN
            assert_raises(RuntimeError, whose, lambda: train(model, sync, optimizer, 1, seed=3))


class Kinds(nn.Module):
    """Frozen parameters and buffers of many types and layouts, and modules with names that nn.Module has, too."""

    def __init__(self, names=("order", "type", "half", "float", "apply", "stands_for", "_in_order", "module")):
        super().__init__()
        for name in names:
            self._modules[name] = nn.Linear(6, 6)
        self._modules["order"].requires_grad_(False)
        self.conv = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last).requires_grad_(False)
        self.norm = nn.BatchNorm1d(6)
        for name, each in {"whole": torch.randint(0, 999, (5,)), "short": torch.randint(0, 999, (5,)).short(),
                           "flags": torch.rand(40) < 0.5, "number": torch.randint(0, 999, ()),
                           "empty": torch.zeros(0, 3), "wide": torch.rand(3, 1).expand(3, 4),
                           "wide_one": torch.rand(1).expand(9), "one": torch.rand(5, 3).t()[:1, :1],
                           "half_": torch.rand(4).bfloat16(),
                           "double_": torch.rand(4).double(), "complex_": torch.rand(4) + 1j, "none": None}.items():
            self.register_buffer(name, each)

    def forward(self, x):
        for each in [each for each in self._modules.values() if isinstance(each, nn.Linear)]:
            x = each(x).tanh()
        return self.norm(x)

    def whatever(self):
        return torch.cat([torch.view_as_real(each.detach().to(torch.complex128)).flatten() for each in
                          [*self.parameters(), *self.buffers()]])


def case_all_begin_with_the_first_rank():
    """Frozen parameters and buffers too; what is unfrozen, added or different is refused."""
    torch.manual_seed(dist.get_rank())
    model = Kinds()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync = gradsieve.torch.CompressedStep(model, optimizer, density=0.1)
    assert_same_on_all_ranks(model.whatever(), "at the beginning")
    assert set(sync.factors()) == {name for name, each in model.named_parameters() if each.requires_grad}

    def step():
        optimizer.zero_grad()
        model(torch.randn(4, 6)).square().mean().backward()
        return sync.step()
    assert step() and step()
    assert_same_on_all_ranks(common_of(model, sync), "names of methods")
    for changes in (lambda: model._modules["order"].requires_grad_(True),
                    lambda: optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})):
        before = weights(model)
        changes()
        assert_raises(ValueError, "make a new CompressedStep", step)
        assert torch.equal(weights(model), before)
        model._modules["order"].requires_grad_(False)
    other = Kinds()
    other.whole = other.whole[:4 + dist.get_rank() % 2]
    assert_raises(ValueError, "different parameters or buffers", lambda: gradsieve.torch.CompressedStep(
        other, sgd(other)))


def case_a_group_without_rank_0():
    groups = [dist.new_group([1, 2]) for _ in range(2)]
    if dist.get_rank() == 0:
        return
    torch.manual_seed(dist.get_rank())
    model = Kinds()
    expected = model.whatever()
    gradsieve.torch.CompressedStep(model, sgd(model), process_group=groups[0], hook_group=groups[1])
    if dist.get_rank() == 2:
        torch.manual_seed(1)
        expected = Kinds().whatever()
    assert torch.equal(model.whatever(), expected)


class OtherRule(torch.optim.Optimizer):
    """With names of Adam, and a second moment of its own."""

    enters = 1e-4

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-3, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure=None):
        for each in self.param_groups[0]["params"]:
            moment = self.state[each].setdefault("exp_avg_sq", torch.zeros_like(each))
            moment.mul_(0.99).addcmul_(each.grad, each.grad, value=self.enters)
            each.addcdiv_(each.grad, moment.sqrt() + 1e-8, value=-1e-3)


class AdamsRule(OtherRule):
    enters = 0.01


class TorchsOwn(torch.optim.AdamW):
    pass


def case_only_second_moments_of_known_rules_are_scaled():
    for rule, further in ((OtherRule, True), (AdamsRule, True), (AdamsRule, [AdamsRule])):
        made = []
        warned = test_hook.warnings_of(
            lambda: made.extend(started(of=lambda model: rule(model.parameters()), second_moments=further)))
        assert len(warned) == (further is True) and all(f"second_moments=[{rule.__name__}]" in each for each in warned), warned
        (model, optimizer, sync), expected = made, 0
        first = next(model.parameters())
        for x, y in batches(20):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            expected = 0.99 * expected + rule.enters * first.grad.square()
            sync.step()
        found = optimizer.state[first]["exp_avg_sq"]
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-12) == (further is True), (rule, further)
        assert (found >= 0).all() and sync.report()["non_finite"] == 0, (rule, further)
    known = {name: _second_moments.is_known(of([nn.Parameter(torch.zeros(1))])) for name, of in OPTIMIZERS.items()}
    assert all(is_known == (name != "SGD") for name, is_known in known.items()), known
    loss = fitted(torch.optim.Adadelta, 300)[0]  # which diverges where they are scaled, and whose steps are enlarged
    assert loss < 0.1, loss
    assert _second_moments.is_known(TorchsOwn(small_model().parameters()))
    for of in (*OPTIMIZERS.values(), OtherRule):
        named = {"second_moments": False} if of is OtherRule else {}
        assert not test_hook.warnings_of(lambda: started(of=lambda model: of(model.parameters()), **named)), named


class Adafactor(torch.optim.Optimizer):
    """Its steps have one size, whatever the gradient's."""

    def __init__(self, parameters, decay):
        super().__init__(parameters, {"lr": 0.125, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.mul_(1 - group["lr"] * group["weight_decay"]).sub_(sized(each.grad), alpha=group["lr"])


def sized(gradient):
    return gradient / gradient.square().mean().sqrt()


def with_noise(model, number=0):
    """Gives the parameters gradients that have something in common on the two ranks, in all steps, and noise. Returns those of
    both."""
    always, chance, gradients = torch.Generator().manual_seed(3), torch.Generator().manual_seed(4 + number), []
    for each in model.parameters():
        signal, noise = torch.randn(each.shape, generator=always), torch.randn(each.shape, generator=chance)
        gradients.append((signal + 2 * noise, signal - 2 * noise))
        each.grad = gradients[-1][dist.get_rank()].to(each.dtype, copy=True)
    return gradients


def case_steps_of_limited_size_are_enlarged():
    for decay, enlarges in ((0.5, True), (0.0, True), (0.5, False)):
        model, _, sync = started(of=lambda model: Adafactor(model.parameters(), decay), density=1, local_weight=0.0,
                                 second_moments=enlarges)
        gradients, last = with_noise(model), list(model.parameters())[-1]
        last.grad = None  # is not decayed
        with torch.no_grad():
            for each in model.parameters():  # what else changes weights stays as it is
                each.mul_(0.5)
        first = [each.detach().clone() for each in model.parameters()]
        sync.clip_grad_norm_(1e9)
        sync.step()
        factors = list(sync.factors().values()) if enlarges else [1.0] * len(gradients)
        assert not enlarges or all(0.5 <= factor < 0.9 for factor in factors[:-1]), factors
        with sync.common_parameters():
            for before, now, (one, other), factor in zip(first, model.parameters(), gradients, factors):
                expected = (1 - 0.125 * decay) * before - 0.125 / factor ** 0.5 * (sized(one) + sized(other)) / 2
                expected = before if now is last else expected
                assert torch.allclose(now, expected, atol=1e-6), (decay, enlarges, (now - expected).abs().max())


class Lion8bit(torch.optim.Optimizer):
    """Signs, with a momentum in another format. `idle`: a step does nothing; `averages`: the state has a mean of the weights,
    which equals them for three steps; `clears`: a step ends without gradients."""

    def __init__(self, parameters, idle=False, averages=False, clears=False, **decay):
        super().__init__(parameters, {"lr": 0.01, "betas": (0.9, 0.99), **(decay or {"weight_decay": 0.1})})
        self.idle, self.averages, self.clears, self.steps = idle, averages, clears, 0

    @torch.no_grad()
    def step(self, closure=None):
        self.steps += 1
        for each in self.param_groups[0]["params"] if not self.idle else ():
            held = self.state[each].setdefault("state1", torch.zeros_like(each, dtype=torch.float16))
            each.mul_(1 - 0.01 * self.defaults.get("weight_decay", self.defaults.get("wd")))
            each.sub_(torch.lerp(held.to(each.dtype), each.grad, 0.1).sign(), alpha=0.01)
            held.copy_(torch.lerp(held.float(), each.grad.float(), 0.01))
            if self.averages:
                self.state[each].setdefault("average", each.clone()).lerp_(each, 1.0 if self.steps < 4 else 0.1)
            each.grad = None if self.clears else each.grad


class AdaMuon(torch.optim.Optimizer):
    """With Adam's names, and a second moment of what it has normalised."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01, "betas": (0.9, 0.999)})

    @torch.no_grad()
    def step(self, closure=None):
        for each in self.param_groups[0]["params"]:
            moment = self.state[each].setdefault("exp_avg_sq", torch.zeros_like(each))
            moment.lerp_(sized(each.grad).square(), 0.001)
            each.sub_(sized(each.grad), alpha=0.01)
            assert (moment >= 0).all()


class Signs(torch.optim.Optimizer):
    """Without any state."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for each in self.param_groups[0]["params"]:
            each.sub_(each.grad.sign(), alpha=0.01)


def case_which_steps_are_enlarged():
    """Against second_moments=False: not those of Adam; in the first step and in the second."""
    kinds = {"Adamax": lambda of: torch.optim.Adamax(of, lr=0.01, weight_decay=0.1), "Adadelta": torch.optim.Adadelta,
             "Rprop": torch.optim.Rprop, "Lion": Lion8bit, "wd": lambda of: Lion8bit(of, wd=0.1),
             "AdaMuon": AdaMuon,
             "RMSprop, centered": lambda of: torch.optim.RMSprop(of, lr=0.01, centered=True)}
    if hasattr(torch.optim, "Muon"):
        kinds["Muon"] = lambda of: torch.optim.Muon([each for each in of if each.dim() == 2], weight_decay=0.1)
    for name, of, scales, enlarges in (
            *((name, of, True, True) for name, of in kinds.items()), ("named", Signs, [Signs], True),
            ("gets one", AdamsRule, [AdamsRule], None),
            ("not named", Signs, True, False), ("Adam", lambda of: torch.optim.Adam(of, lr=0.01), True, None)):
        for steps in (1, 2):
            ends = []
            for second_moments in (scales, False):
                model, optimizer, sync = started(
                    of=lambda model: of([each for each in model.parameters() if each.dim() == 2]), density=1,
                    local_weight=0.0, second_moments=second_moments)
                first = [each.clone() for each in sync._common]
                for number in range(steps):
                    with_noise(model)  # the same ones, so that what momenta hold has their direction
                    sync.clip_grad_norm_(1e9)
                    sync.step()
                factors = list(sync.factors().values()) or factors
                decay = 0.1 * optimizer.param_groups[0]["lr"] * (name in ("Lion", "wd", "Muon"))
                ends.append([now - (1 - decay) ** steps * before for now, before in zip(sync._common, first)])
            assert all(0.5 <= factor < 0.9 for factor in factors), (name, factors)
            for more, less, factor in zip(*ends, factors):
                if less.dim() == 1:
                    continue
                ratio = float((more * less).sum() / less.square().sum())
                wanted = factor ** -0.5 if enlarges else 1.0
                if enlarges is not None or steps == 1:
                    assert abs(ratio - wanted) < 0.01, (name, steps, ratio, wanted)


def case_the_mean_of_enlarged_steps_has_their_size():
    """A momentum averages noise, so that steps have more in common than gradients."""
    model, _, sync = started(of=lambda model: Lion8bit(model.parameters()), density=1, local_weight=0.0)
    for number in range(80):
        before = common_of(model, sync)
        with_noise(model, number)
        sync.step()
    move = float((common_of(model, sync) - before).norm()) / len(before) ** 0.5
    assert abs(move / 0.01 - 1) < 0.08, move
    for (name, of_steps), of_gradients in zip(sync.factors().items(), sync._factors.values):
        assert model.get_parameter(name).dim() == 1 or of_steps > of_gradients + 0.05, (name, of_steps, of_gradients)


class MuonWithAdamW:
    """Passes calls on to optimizers, as one; has no state, and Muon in its name."""

    def __init__(self, *optimizers):
        self.of, self.param_groups = optimizers, [group for each in optimizers for group in each.param_groups]

    def step(self):
        for each in self.of:
            each.step()

    def zero_grad(self):
        for each in self.of:
            each.zero_grad()


def case_what_of_a_step_is_enlarged():
    def moved(of, steps=1, dtype=torch.float32):
        ends = []
        for second_moments in (True, False):
            model, optimizer, sync = started(of=of, density=1, local_weight=0.0, second_moments=second_moments, dtype=dtype)
            first = [each.clone() for each in sync._common]
            for _ in range(steps):
                with_noise(model)
                sync.step()
            factors = sync.factors() or factors
            ends.append([now - before for now, before in zip(sync._common, first)])
        return factors.values(), ends, optimizer, weights(model)

    def of(**options):
        return lambda model: Lion8bit(model.parameters(), **options)
    for dtype in (torch.float32, torch.bfloat16):
        model, optimizer, sync = started(of=of(), density=1, local_weight=0.0, dtype=dtype)
        for what in ("steps", "has no finite gradient", "is idle"):
            with_noise(model)
            if what == "has no finite gradient":
                next(model.parameters()).grad[0] = math.nan
            optimizer.idle = what == "is idle"
            before = common_of(model, sync)
            sync.step()
            moves = not torch.equal(common_of(model, sync), before)
            assert moves == (what == "steps"), (what, dtype)  # nor decayed the other way
    for options, dtype in (({"clears": True, "weight_decay": 0.0}, torch.float32), ({"weight_decay": 0.0}, torch.bfloat16)):
        factors, (more, less), *_ = moved(of(**options), dtype=dtype)
        for factor, one, other in zip(factors, more, less):
            assert factor < 0.9 and torch.allclose(one, other * factor ** -0.5, rtol=0.02), (options, factor)
    optimizer, own = moved(of(averages=True), 8)[2:]
    average = torch.cat([state["average"].double().flatten() for state in optimizer.state.values()])
    assert (average - own).abs().max() > 1e-3  # which no exchange overwrites
    factors, (more, less), *_ = moved(lambda model: MuonWithAdamW(torch.optim.SGD(model.parameters(), lr=0.1)))
    assert all(torch.allclose(one, other * factor ** -0.5, atol=1e-6) for factor, one, other in zip(factors, more, less))
    model, _, sync = started(of=lambda model: Signs(model.parameters()), density=1, local_weight=0.0, second_moments=[Signs])
    first = common_of(model, sync)
    gradients = with_noise(model)
    for each in model.parameters():
        each.grad.mul_(1 + 3 * dist.get_rank())
    sync.step(weight=1.0)  # ranks get one size: 17 / 2 is the mean square, in multiples of the first rank's
    one, other = (torch.cat([each[i].double().sign().flatten() for each in gradients]) for i in range(2))
    scale = torch.cat([torch.full((each.numel(),), factor ** -0.5) for each, factor in
                       zip(model.parameters(), sync.factors().values())]).double()
    sizes = [each ** 0.5 for each in all_of(sync._factors.size)]
    assert sizes[0] > 1.5 > 1 > sizes[1], sizes
    moved_by = (first - common_of(model, sync)) / 0.01
    assert torch.allclose(moved_by, scale * (one / sizes[0] + other / sizes[1]) / 2, atol=1e-3)


def case_what_16_bits_would_round_is_sent_once():
    def started_in_16_bits(**options):
        return started(of=lambda model: Lion8bit(model.parameters(), weight_decay=0.0), density=1, local_weight=0.0,
                       dtype=torch.bfloat16, **options)
    ends = []
    for fails in (False, True):  # as all weights are 0, or by an error that undo puts right
        model, optimizer, sync = started_in_16_bits(undo=True)
        first = common_of(model, sync)
        with_noise(model)
        if fails:
            exchange = sync.hook._native.exchange
            sync.hook._native.exchange = lambda *of: (exchange(*of), (_ for _ in ()).throw(RuntimeError("as a test")))
            assert_raises(RuntimeError, "as a test", sync.step)
            sync.hook._native.exchange = exchange
            sync.exchange()
        else:
            sync.step()
        ends.append(common_of(model, sync) - first)
    assert ends[0].any() and torch.equal(*ends), (ends[0] - ends[1]).abs().max()
    model, optimizer, sync = started_in_16_bits(delay=1, on_non_finite="fail")
    for number in range(3):
        with_noise(model)
        if number == 1:
            next(model.parameters()).grad.fill_(math.nan)
        if number == 2:
            assert_raises(RuntimeError, "dropped on all ranks", sync.step)
        else:
            sync.step()
    before = common_of(model, sync)
    optimizer.zero_grad(set_to_none=True)
    sync.exchange()
    assert torch.equal(common_of(model, sync), before)


def all_of(number):
    found = torch.zeros(dist.get_world_size())
    found[dist.get_rank()] = number
    dist.all_reduce(found)
    return found.tolist()


def case_enlarged_steps_go_on_from_a_checkpoint():
    def goes_on(restarts):
        model, optimizer, sync = started(of=lambda model: Lion8bit(model.parameters()))
        for number in range(14):
            with_noise(model, number)
            sync.step()
            if number == 5 and restarts:
                saved = [optimizer.state_dict(), sync.state_dict()]
                model, optimizer, sync = started(seed=7, of=lambda model: Lion8bit(model.parameters()))
                optimizer.load_state_dict(saved[0])
                for state, before in zip(optimizer.state.values(), saved[0]["state"].values()):
                    state["state1"] = before["state1"]  # which torch has made float32
                sync.load_state_dict(saved[1])
        return common_of(model, sync)
    assert torch.equal(goes_on(False), goes_on(True))


def case_enlarged_steps_inside_join():
    model, _, sync = started(of=lambda model: Lion8bit(model.parameters()))
    with sync.join():
        for number in range(3 + 6 * dist.get_rank()):
            with_noise(model, number)
            sync.clip_grad_norm_(1.0)
            sync.step()
    assert_same_on_all_ranks(common_of(model, sync), "join")
    assert_same_on_all_ranks(torch.tensor(list(sync.factors().values())), "factors")


def case_copies_of_weights_whose_steps_are_enlarged():
    for every, delay in ((1, 0), (1, 1), (3, 0)):
        model, optimizer, sync = started(of=lambda model: Copying(model.parameters()), dtype=torch.bfloat16, density=0.5,
                                         every=every, delay=delay, second_moments=[Copying])
        for number in range(7):
            with_noise(model, number)
            sync.step()
            for each, state in optimizer.state.items():
                assert torch.equal(state["master"].to(each.dtype), each), (every, number)
        sync.exchange()
        assert_same_on_all_ranks(common_of(model, sync), f"every {every}, delay {delay}")


def case_without_gradients_and_with_another_default():
    for mode in (torch.no_grad, torch.inference_mode):
        model, optimizer, sync = started()
        for x, y in batches(3):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            with mode():
                sync.clip_grad_norm_(1.0)
                assert sync.step()
        assert_same_on_all_ranks(common_of(model, sync), mode.__name__)
    model, optimizer, sync = started()
    torch.set_default_dtype(torch.bfloat16)
    try:
        for step in range(2):
            optimizer.zero_grad()
            if step or dist.get_rank() == 0:  # else this rank has no gradient at all
                model(torch.randn(4, 16, dtype=torch.float32)).square().mean().backward()
            sync.clip_grad_norm_(1.0)
            sync.step()
    finally:
        torch.set_default_dtype(torch.float32)
    assert_same_on_all_ranks(common_of(model, sync), "default dtype")
    if hasattr(torch, "set_default_device"):  # torch 2
        torch.set_default_device("meta")
        try:
            sync = gradsieve.torch.CompressedStep(model, optimizer, density=0.1)
            sync.clip_grad_norm_(1.0)
            assert sync.step()
        finally:
            torch.set_default_device(None)
        assert_same_on_all_ranks(common_of(model, sync), "default device")


def case_updates_that_are_not_finite_count_as_zero():
    model, optimizer, sync = started(of=lambda model: torch.optim.SGD(model.parameters(), lr=0.05))
    for step, (x, y) in enumerate(batches(8)):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        if step == 3 and dist.get_rank() == 1:  # after the optimizer's step, as clamps and the like are
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                next(model.parameters())[0, :5] = float("nan")
        found = test_hook.warnings_of(sync.step)
        assert torch.isfinite(weights(model)).all()
        assert sync.report()["non_finite"] == (5 if step == 3 and dist.get_rank() == 1 else 0)
        assert len(found) == (step == 3 and dist.get_rank() == 1) and all("in 5 elements" in each for each in found), found
    assert_same_on_all_ranks(common_of(model, sync), "after NaN")


def regression():
    """Inputs and targets in an order in which each rank's part is of another kind."""
    chance = torch.Generator().manual_seed(1)
    x = torch.randn(256, 16, generator=chance)
    x = x[x[:, 0].argsort()]
    return x, torch.sin(x @ torch.randn(16, 1, generator=chance) / 4) + (x[:, :1] > 0) * 0.5


def square_of(model, x, y):
    return (model(x).float() - y).square().mean()


def fitted(of, steps=80, bad=None, at=5, clip=None, dtype=torch.float32, **options):
    """The loss on all ranks' data that the common parameters end with. `bad`: by which rank 1's loss is multiplied in step
    `at`. Also the CompressedStep, the optimizer, and the errors of the steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)).to(dtype)
    optimizer = of(model.parameters())
    sync = gradsieve.torch.CompressedStep(model, optimizer, **options)
    x, y = (each.chunk(dist.get_world_size())[dist.get_rank()] for each in regression())
    errors = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = square_of(model, x.to(dtype), y)
        (loss * bad if bad and step == at and dist.get_rank() == 1 else loss).backward()
        if clip:
            sync.clip_grad_norm_(clip)
        try:
            sync.step()
        except RuntimeError as error:
            errors.append(str(error))
    with sync.common_parameters(), torch.no_grad():
        return float(square_of(model, regression()[0].to(dtype), regression()[1])), sync, optimizer, errors


def quick_adamw(parameters):
    return torch.optim.AdamW(parameters, lr=4e-3, weight_decay=0)


def case_a_step_without_a_finite_gradient_is_left_out():
    """On its rank alone, which goes on afterwards as if it had not been."""
    here = dist.get_rank() == 1
    for every, cases in ((1, ((float("nan"), {}), (float("inf"), {"clip": 1.0}))),
                         (3, ((1e25, {}), (float("nan"), {"on_non_finite": "fail", "passthrough": ["*.bias", "0.*"]})))):
        clean = fitted(quick_adamw, every=every)[0]
        for bad, options in cases:
            loss, sync, optimizer, errors = fitted(quick_adamw, bad=bad, every=every, **options)
            assert loss < 1.25 * clean, (every, bad, loss, clean)
            assert all(torch.isfinite(each).all() for state in optimizer.state.values() for each in state.values())
            report = sync.report()
            assert (report["total_steps_left_out"], report["steps_left_out"], report["total_non_finite"]) == (here, 0, 0)
            assert len(errors) == ("on_non_finite" in options), errors
            assert all("may go on" in each and ("this rank's gradients" in each) == here for each in errors), errors
    assert len(fitted(quick_adamw, 6, bad=float("inf"), on_non_finite="fail")[3]) == 1
    assert fitted(quick_adamw, 6, bad=float("nan"), at=4)[1]._factors._measured == 2  # of the first step and the last
    assert fitted(quick_adamw, 6, bad=float("nan"), every=3)[1].report()["steps_left_out"] == here


def case_an_optimizer_that_is_broken_says_so_at_once():
    for value in (float("nan"), float("inf")):
        model, optimizer, sync = started()
        train(model, sync, optimizer, 2)
        state = optimizer.state[next(model.parameters())]
        good = state["exp_avg"].clone()
        if dist.get_rank() == 1:
            state["exp_avg"][0] = value
        found = test_hook.warnings_of(lambda: train(model, sync, optimizer, 25))
        assert (len(found) == 1 and "this rank's optimizer has changed" in found[0]) == (dist.get_rank() == 1), found
        assert_raises(ValueError, "'exp_avg' in the optimizer's state of parameter '0.weight' is NaN or infinite"
                      if dist.get_rank() == 1 else "another rank",
                      lambda: gradsieve.torch.CompressedStep(model, optimizer))
        state["exp_avg"].copy_(good)
        sync = gradsieve.torch.CompressedStep(model, optimizer)
        state["exp_avg"][0] = value  # as an optimizer's state that is loaded afterwards
        assert_raises(ValueError, "load an earlier state", lambda: train(model, sync, optimizer, 1))
    model, optimizer, sync = started()
    found = test_hook.warnings_of(lambda: [
        (loss_of(model, x, y) * float("nan" if dist.get_rank() else 1)).backward() or sync.step() for x, y in batches(25)])
    assert (len(found) == 1 and "gradients were NaN or infinite in each" in found[0]) == (dist.get_rank() == 1), found
    assert sync.report()["total_steps_left_out"] == 25 * dist.get_rank()


class Copying(torch.optim.Optimizer):
    """Adam on a copy of the weights, which it then writes into the parameters. `place`: of the copies: "state", "early" in
    the state before the first step, "none", or one where no exchange reaches them."""

    def __init__(self, parameters, place="state", lr=4e-3, dtype=torch.float32):
        super().__init__(parameters, {"lr": lr})
        self.place, self.dtype, self.find = place, dtype, lambda number: None
        own = self.param_groups[0]["params"]
        for each in own if place == "early" else ():
            self.state[each]["master"] = each.detach().to(dtype, copy=True)
        if place in ("none", "state", "early"):
            return
        flat = torch.cat([each.detach().flatten() for each in own])
        copies = [part.view_as(each) for part, each in zip(flat.split([each.numel() for each in own]), own)]
        self.find = lambda number: copies[number]
        if place in ("list", "flat", "object"):
            self.copies = {"list": copies, "flat": flat, "object": types.SimpleNamespace(of=copies)}[place]
        elif place == "keys":
            self.state.update({number: {"master": each} for number, each in enumerate(copies)})
        elif place == "row":
            self.state[own[0]]["flat"] = flat
        else:
            self.state[own[2]]["kept"] = {"master": copies[2]}

    @torch.no_grad()
    def step(self, closure=None):
        own = [each for each in self.param_groups[0]["params"] if each.grad is not None]
        for number, each in enumerate(own):
            state = self.state[each]
            if "step" not in state:
                state.update(step=0, m=torch.zeros_like(each, dtype=self.dtype), v=torch.zeros_like(each, dtype=self.dtype))
                if self.place == "state":
                    state["master"] = each.to(self.dtype, copy=True)
            copy = self.find(number)
            weight = state.get("master", each) if copy is None else copy
            state["step"] += 1
            state["m"].lerp_(each.grad.to(self.dtype), 0.1)
            state["v"].lerp_(each.grad.to(self.dtype).square(), 0.001)
            rate = self.param_groups[0]["lr"] * (1 - 0.999 ** state["step"]) ** 0.5 / (1 - 0.9 ** state["step"])
            weight.addcdiv_(state["m"], state["v"].sqrt() + 1e-8, value=-rate)
            each.copy_(weight)


def copying(place, **options):
    return lambda parameters: Copying(parameters, place, **options)


def case_copies_of_the_weights_follow_the_exchange():
    for every in (1, 3):  # to the bit as without a copy, also where rank 1 leaves its first step out
        ends = [fitted(copying(place), 40, every=every, bad=float("nan"), at=0)[0] for place in ("none", "state", "early")]
        assert ends[0] == ends[1] == ends[2], ends
    for place, name in [*((each, "copies") for each in ("list", "flat", "object")),
                        *((each, "state") for each in ("keys", "row", "nested"))]:
        assert_raises(ValueError, f"in its attribute '{name}'", lambda: fitted(copying(place), 2))

    def masters(optimizer):
        return torch.cat([state["master"].double().flatten() for state in optimizer.state.values()])
    # Of 16 bits, with steps that are too small for the parameters themselves.
    _, sync, optimizer, _ = fitted(copying("state", lr=1e-5), 40, dtype=torch.bfloat16, recipe="radix", density=1.0)
    begun = fitted(copying("state", lr=0.0), 3, dtype=torch.bfloat16, recipe="radix",
                   density=1.0)[2]
    assert_same_on_all_ranks(masters(optimizer), "master weights")
    away = (masters(optimizer) - masters(begun)).abs()
    assert 1e-4 < away.mean() < 4e-4, away.mean()

    def goes_on(every, first, order):
        model, optimizer, sync = started(of=lambda model: Copying(model.parameters()), every=every)
        train(model, sync, optimizer, first)
        saved = [optimizer.state_dict(), sync.state_dict()]
        if order:
            model, optimizer, sync = started(seed=7, of=lambda model: Copying(model.parameters()), every=every)
            for number in order:
                (optimizer, sync)[number].load_state_dict(saved[number])
        train(model, sync, optimizer, 7, seed=2)
        return common_of(model, sync)
    for every, first in ((1, 4), (4, 10)):
        for order in ((0, 1), (1, 0)):
            assert torch.equal(goes_on(every, first, None), goes_on(every, first, order)), (every, first, order)
    torch.manual_seed(dist.get_rank())  # copies that were there before all ranks have the first one's parameters
    model = nn.Linear(16, 4)
    optimizer = Copying(model.parameters())
    loss_of(model, *next(batches(1))).backward()
    optimizer.step()
    sync = gradsieve.torch.CompressedStep(model, optimizer, "radix", density=1.0)
    assert_same_on_all_ranks(masters(optimizer), "master weights at the beginning")
    train(model, sync, optimizer, 3)
    assert_same_on_all_ranks(masters(optimizer), "master weights")
    assert torch.equal(masters(optimizer), weights(model))


class Lookahead(torch.optim.SGD):
    """Slow weights, in the state or where nobody finds them."""

    def __init__(self, parameters, hidden, every=3):
        super().__init__(parameters, lr=0.1)
        kept = {each: {"slow": each.detach().clone()} for group in self.param_groups for each in group["params"]}
        self.slow, self.every, self.count = (lambda each: kept[each]) if hidden else (lambda each: self.state[each]), every, 0
        if not hidden:
            for each, state in kept.items():
                self.state[each].update(state)

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        self.count += 1
        if self.count % self.every == 0:
            for group in self.param_groups:
                for each in group["params"]:
                    each.copy_(self.slow(each)["slow"].lerp_(each, 0.5))


class TwoSets(torch.optim.SGD):
    """As ScheduleFree."""

    def train(self):
        pass

    def eval(self):
        pass


def case_weights_that_are_no_copies_stay_as_they_are():
    """Slow weights, and those that the training began with: equal to the parameters once, not after each step; and an
    average that begins later."""
    for every in (1, 2):
        assert len({fitted(lambda parameters: Lookahead(parameters, hidden), 30, every=every)[0] for hidden in (True, False)}) == 1
    assert_raises(ValueError, "average the weights inside sync.common_parameters()",
                  lambda: fitted(lambda parameters: TwoSets(parameters, lr=0.1)))
    loss, _, optimizer, _ = fitted(lambda parameters: torch.optim.ASGD(parameters, lr=0.1, t0=5), 30)
    assert loss < 0.3 and all((state["ax"] - each).abs().max() > 1e-3 for each, state in optimizer.state.items()), loss


def case_graphs_are_not_kept():
    """backward(create_graph=True), as optimizers of second order and gradient penalties need it."""
    class Marked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark = Mark()
            marks.append(weakref.ref(ctx.mark))
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * 2 if ctx.mark else grad

    class Mark:
        pass

    for name in ("AdamW", "RMSprop", "SGD"):
        marks = []
        model, optimizer, sync = started(of=lambda model: OPTIMIZERS[name](model.parameters()), every=1 + (name == "SGD"))
        for x, y in batches(6):
            optimizer.zero_grad(set_to_none=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nn.functional.cross_entropy(Marked.apply(model(x)), y).backward(create_graph=True)
            sync.clip_grad_norm_(0.5)
            sync.step()
            optimizer.zero_grad(set_to_none=True)
        gc.collect()
        assert len(marks) == 6 and all(mark() is None for mark in marks), name
        assert not any(each.requires_grad for state in optimizer.state.values() for each in state.values()
                       if isinstance(each, torch.Tensor)), name


class Sam(torch.optim.Optimizer):
    """Sharpness-aware minimisation, as it is published."""

    def __init__(self, parameters, rate=0.1):
        super().__init__(parameters, {"lr": rate})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=rate, momentum=0.9)

    @torch.no_grad()
    def first_step(self):
        for each in self.param_groups[0]["params"]:
            self.state[each]["old"] = each.detach().clone()
            each.add_(each.grad, alpha=0.05)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for each in self.param_groups[0]["params"]:
            each.data = self.state[each]["old"]
        self.base_optimizer.step()

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is not None, "needs a closure"
        self.first_step()
        with torch.enable_grad():
            closure()
        self.second_step()


class Searching(torch.optim.SGD):
    """Calls its closure twice a step, and keeps what it gave."""

    losses = ()

    @torch.no_grad()
    def step(self, closure=None):
        first = float(closure())
        super().step()
        self.losses = (first, float(closure()))


def case_closures():
    """As optimizer.step(closure): called once, or as often as the optimizer calls it, and its loss comes back."""
    def steps(of, way, **options):
        model, optimizer, sync = started(of=of, **options)
        for x, y in batches(4):
            calls = []

            def closure():
                optimizer.zero_grad()
                calls.append(loss_of(model, x, y))
                calls[-1].backward()
                sync.clip_grad_norm_(10.0)
                return calls[-1]
            with torch.set_grad_enabled(way != "no_grad"):
                assert sync.step(closure) is calls[0] if way else (closure() is calls[0] and sync.step())
            assert len(calls) == 1 + (of is searching), calls
        return weights(model), optimizer, calls

    def searching(model):
        return Searching(model.parameters(), lr=0.1)

    for of in (adamw, sgd):
        ends = [steps(of, way)[0] for way in (None, "closure", "no_grad")]
        assert all(torch.equal(ends[0], each) for each in ends), of
    end, optimizer, calls = steps(searching, "closure")
    assert optimizer.losses == tuple(map(float, calls)) and calls[0] > calls[1]

    def two_passes(way, every, bad_pass=None):
        model, optimizer, sync = started(of=lambda model: Sam(model.parameters()), every=every)
        for step, (x, y) in enumerate(batches(6)):
            number, ends = 0, (step + 1) % every == 0

            def closure():
                nonlocal number
                number += 1
                loss = loss_of(model, x, y)
                (loss * (float("nan") if (step, number, dist.get_rank()) == (3, bad_pass, 1) else 1)).backward()
                return loss
            before = weights(model)
            optimizer.zero_grad()
            closure()
            if way == "closure":
                sync.step(closure)
                assert number == (1 if bad_pass == 1 and step == 3 and dist.get_rank() == 1 else 2)
                if bad_pass and step == 3 and dist.get_rank() == 1 and not ends:
                    assert torch.equal(weights(model), before)
            else:
                optimizer.first_step()
                closure()
                optimizer.second_step()
                if ends:
                    sync.exchange()
        assert torch.isfinite(common_of(model, sync)).all()
        assert_same_on_all_ranks(common_of(model, sync), "two passes")
        assert sync.report()["total_steps_left_out"] == (bad_pass is not None and dist.get_rank() == 1)
        return weights(model)

    for every in (1, 3):
        assert torch.equal(two_passes("closure", every), two_passes("exchange()", every))
        for bad_pass in (1, 2):
            two_passes("closure", every, bad_pass)
    model, optimizer, sync = started(of=lambda model: Sam(model.parameters()))
    model(torch.randn(4, 16)).sum().backward()
    before = weights(model)
    assert_raises(KeyError, "mine", lambda: sync.step(lambda: {}["mine"]))
    assert torch.equal(weights(model), before)
    assert_raises(ValueError, "step(closure)", sync.step)
    assert_raises(TypeError, "closure is 3", lambda: sync.step(3))
    half = list(model.parameters())
    assert_raises(ValueError, "steps alone",
                  lambda: gradsieve.torch.CompressedStep(model, [Sam(half[:2]), Sam(half[2:])]))


def case_ranks_with_different_numbers_of_batches():
    for every, clip, weight, options in ((1, None, None, {}), (1, 1.0, 5.0, {}), (3, 1.0, 2.0, {}),
                                         (2, None, None, {"of": sgd, "on_non_finite": "fail"})):
        model, optimizer, sync = started(every=every, **options)
        raised, refused = [], []
        for epoch in range(3):
            with sync.join():
                for step, (x, y) in enumerate(batches(7 - 3 * dist.get_rank(), seed=epoch)):
                    optimizer.zero_grad()
                    (loss_of(model, x, y) * float("nan" if options and (step, epoch) == (6, 1) else 1)).backward()
                    if clip:
                        sync.clip_grad_norm_(clip)
                        if (step, epoch) == (5, 0):  # as after a norm that is not finite
                            continue
                    try:
                        sync.step(weight=-1.0 if weight and every == 1 and (step, epoch) == (5, 1) else weight)
                    except RuntimeError as error:
                        raised.append(str(error))
                    except ValueError as error:  # once, and not on the ranks that are through
                        refused.append(str(error))
            assert mean_of(torch.ones(1)) == 1  # no rank is elsewhere
            assert_same_on_all_ranks(common_of(model, sync), ("join", every))
            assert_same_on_all_ranks(torch.tensor([sync.rounds]), "exchanges")
        assert all("may go on" in each for each in raised) and len(raised) == (bool(options) and dist.get_rank() == 0), raised
        assert len(refused) == (weight is not None and every == 1 and dist.get_rank() == 0), refused
        with sync.join():
            assert_raises(ValueError, "inside another join()", sync.join().__enter__)
    model, optimizer, sync = started(density=0.06)
    with sync.join():
        train(model, sync, optimizer, 3)
        if dist.get_rank() == 0:
            train(model, sync, optimizer, 2)
            sync.exchange()  # ends without the look ahead, on all ranks
    away = (weights(model) - common_of(model, sync) - 0.25 * pending_of(sync)).abs().max().item()
    assert away < 1e-6, away


def case_a_rank_that_is_missing():
    """Where nobody joins, the error says what to do."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    model, optimizer, sync = started(process_group=group)
    train(model, sync, optimizer, 2)
    if dist.get_rank() == 0:
        assert_raises(RuntimeError, "train inside sync.join()", lambda: train(model, sync, optimizer, 1))
    dist.barrier()


def case_factors_are_those_of_the_gradients():
    """With as many places as elements, to rounding; and second moments are those that the factors give."""
    model, optimizer, sync = started(of=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95)))
    world, expected, moments = dist.get_world_size(), None, None
    for step, (x, y) in enumerate(batches(9)):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        gradients = [each.grad.clone() for each in model.parameters()]
        known = sync._factors._measured
        sync.step()
        assert sync._factors._measured == step // gradsieve.torch.compressed_step.MEASURE_EVERY + 1
        if step == 0:  # small parameters have all of their elements drawn, each once or more often: not exact
            expected = [float(mean_of(g.double()).square().sum() / mean_of(g.double().square().sum())) for g in gradients]
            for factor, own in zip(sync.factors().values(), expected):
                assert 1 / world <= factor <= 1 and abs(factor - max(own, 1 / world)) < 0.25, (factor, own)
        factors = list(sync.factors().values())
        first = moments is None
        if first:
            moments = [(1 - 0.95) * g.square() for g in gradients]  # there was no state to scale yet
        else:
            moments = [0.95 * v + 0.05 * f * g.square() for v, f, g in zip(moments, factors, gradients)]
        for each, v in zip(model.parameters(), moments):
            found = optimizer.state[each]["exp_avg_sq"]
            assert torch.allclose(found, v, rtol=1e-4, atol=1e-12), (step, known, (found - v).abs().max())


def case_factors_know_noise_from_signal():
    """Gradients that are alike have the factor 1, independent ones 1 / P, also where a rank has none that is finite."""
    parameters = [nn.Parameter(torch.zeros(100, 1000)) for _ in range(3)]
    found = _second_moments.Factors(parameters, _replica.Replica(dist.group.WORLD, parameters=len(parameters)))
    world = dist.get_world_size()
    alike, apart = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2 + dist.get_rank())
    for number in range(100):
        same, own = torch.randn(100, 1000, generator=alike), torch.randn(100, 1000, generator=apart)
        absent = number % 3 == 1 and dist.get_rank() == world - 1
        for each, grad in zip(parameters, (same, own, same + own)):
            each.grad = (None if number % 2 else grad * float("nan")) if absent else grad
        found.measure(number, (each.grad for each in parameters))
    for factor, right in zip(found.values, (1.0, 1 / world, (1 + 1 / world) / 2)):
        assert abs(factor - right) < 0.05, (found.values, right)
    norm = found.clip(1.0, together=True)
    assert_same_on_all_ranks(torch.tensor([norm]), "norms")
    assert abs(norm / (1e5 * (1 + 1 / world + 2 * (1 + 1 / world) / 2)) ** 0.5 - 1) < 0.05, norm
    clipped = sum(float(each.grad.square().sum()) * factor for each, factor in zip(parameters, found.values)) ** 0.5
    assert abs(clipped - 1) < 1e-3, clipped
    first = torch.tensor([found.clip(math.inf, together=False)])
    dist.broadcast(first, 0)
    for each in parameters if dist.get_rank() else ():  # only the first rank's counts
        each.grad = None
    assert abs(found.clip(math.inf, together=True) - first) < 1e-6 * first


def case_sixteen_bits_have_float_common_parameters():
    for dtype in (torch.bfloat16, torch.float16):
        model, optimizer, sync = started(of=lambda model: torch.optim.SGD(model.parameters(), lr=0.1), dtype=dtype)
        if dtype == torch.float16 and torch.__version__.startswith("1."):
            continue  # its layer norm knows no half on the CPU
        train(model, sync, optimizer, 8, dtype=dtype)
        assert all(each.dtype == torch.float32 for each in sync._common)
        share = torch.cat([each.detach().double().flatten() for each in sync._common]) + (
            pending_of(sync) / 2)
        assert torch.equal(weights(model), share.float().to(dtype).double()) or (
            weights(model) - share).abs().max() < 0.01, dtype
        assert_same_on_all_ranks(common_of(model, sync), dtype)


def case_doubles_at_density_one():
    model, optimizer, sync = started(dtype=torch.float64, density=1.0)
    train(model, sync, optimizer, 6, dtype=torch.float64, clip=1.0)
    assert all(each.dtype == torch.float64 for each in sync._common)
    assert_same_on_all_ranks(weights(model), "doubles")


def case_a_centered_variance_stays_positive():
    """As second moments are scaled and the mean that is subtracted from them is not."""
    parameter = nn.Parameter(torch.zeros(2000))
    model = nn.ParameterList([parameter])
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, centered=True)
    sync = gradsieve.torch.CompressedStep(model, optimizer, density=0.5)
    own = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(30):
        parameter.grad = torch.randn(2000, generator=own)
        parameter.grad[:10] = 1
        sync.step()
        assert torch.isfinite(parameter).all() and sync.report()["non_finite"] == 0


def case_loss_scale():
    if not (hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")):
        print("skipped: this torch has a GradScaler for GPUs only")
        return
    model, optimizer, sync = started(recipe="radix")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6)
    for step, (x, y) in enumerate(batches(12)):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        if step == 6 and dist.get_rank() == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if step % 2:
            scaler.unscale_(optimizer)
            sync.clip_grad_norm_(1.0)
        sync.step(scaler=scaler)
        assert torch.isfinite(weights(model)).all()
    assert scaler.get_scale() == (512.0 if dist.get_rank() == 1 else 1024.0)
    assert all(torch.isfinite(state["exp_avg_sq"]).all() for state in optimizer.state.values())
    assert_same_on_all_ranks(common_of(model, sync), "loss scale")

    class Together(torch.amp.GradScaler):  # as FSDP's: what is not finite on one rank is left out on all
        def unscale_(self, optimizer):
            super().unscale_(optimizer)
            for each in self._found_inf_per_device(optimizer).values():
                dist.all_reduce(each, dist.ReduceOp.MAX)
    together, before = Together("cpu", init_scale=1024.0), common_of(model, sync)
    moments = [state["exp_avg_sq"].clone() for state in optimizer.state.values()]
    together.scale(loss_of(model, x, y) * (float("inf") if dist.get_rank() else 1)).backward()
    sync.step(scaler=together)
    assert torch.equal(common_of(model, sync), before) and sync.report()["steps_left_out"] == 1
    assert all(torch.allclose(state["exp_avg_sq"], each) for state, each in zip(optimizer.state.values(), moments))
    table = nn.Embedding(50, 8, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    sync = gradsieve.torch.CompressedStep(table, optimizer, density=0.1)
    for factor in (1.0, float("inf")):
        before = weights(table)
        optimizer.zero_grad()
        scaler.scale(table(torch.randint(0, 50, (4,))).square().mean() * factor).backward()
        sync.step(scaler=scaler)
        assert torch.isfinite(weights(table)).all() and not torch.equal(weights(table), before)


def case_several_optimizers_frozen_and_sparse_parameters():
    torch.manual_seed(3)
    model = nn.ModuleDict({"table": nn.Embedding(50, 8, sparse=True), "frozen": nn.Linear(8, 8), "head": nn.Linear(8, 3)})
    model["frozen"].requires_grad_(False)
    optimizers = [torch.optim.SparseAdam([model["table"].weight], lr=0.01), torch.optim.AdamW(model["head"].parameters())]
    sync = gradsieve.torch.CompressedStep(model, optimizers, density=0.1)
    for step in range(6):
        for each in optimizers:
            each.zero_grad()
        x = torch.randint(0, 50, (4,))
        if step != 3 or dist.get_rank() == 0:  # else this rank has no gradient at all, and clips nothing
            model["head"](model["frozen"](model["table"](x))).square().mean().backward()
        sync.clip_grad_norm_(1e-3)
        sync.step()
    assert_same_on_all_ranks(common_of(model, sync), "several optimizers")
    assert torch.isfinite(weights(model)).all()


def case_adam_trains_where_compressed_gradients_do_not():
    """After equally many steps and bytes, on a task of one's own size."""
    def final(way):
        torch.manual_seed(5)
        teacher = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
        model = small_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if way == "step":
            sync = gradsieve.torch.CompressedStep(model, optimizer)
        else:
            ddp = test_hook.in_buckets(model)
            if way == "hook":
                gradsieve.torch.register(ddp, density=0.06)
        generator = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(300):
            x = torch.randn(16, 16, generator=generator)
            optimizer.zero_grad()
            loss_of(model if way == "step" else ddp, x, teacher(x).argmax(1)).backward()
            sync.step() if way == "step" else optimizer.step()
        x = torch.randn(2000, 16, generator=torch.Generator().manual_seed(99))
        with torch.no_grad():
            if way == "step":
                with sync.common_parameters():
                    return float(loss_of(model, x, teacher(x).argmax(1)))
            return float(loss_of(model, x, teacher(x).argmax(1)))
    losses = {way: final(way) for way in ("dense", "step", "hook")}
    assert losses["step"] < losses["hook"], losses


def case_profiler_shows_an_exchange():
    model, optimizer, sync = started(every=4)
    with torch.profiler.profile() as profiled:
        train(model, sync, optimizer, 8)
    assert [each.name for each in profiled.events()].count("gradsieve: exchange") == 2


def case_a_model_that_is_averaged_already():
    """As in a trainer that wraps it, where nobody has registered a hook that does nothing."""
    def told(wrapped, clip=None, alone=False, optimizer=adamw):
        model = small_model()
        ddp = torch.nn.parallel.DistributedDataParallel(model) if wrapped else model
        if wrapped == "noop":
            ddp.register_comm_hook(None, debugging_hooks.noop_hook)
        stepping = optimizer(model)
        sync = gradsieve.torch.CompressedStep(model, stepping)

        def steps():
            generator = torch.Generator().manual_seed(0 if alone else dist.get_rank())
            for _ in range(12):
                stepping.zero_grad()
                x = torch.randn(8, 16, generator=generator)
                ddp(x).square().mean().backward()
                if clip is not None:
                    sync.clip_grad_norm_(clip)
                sync.step()

        return test_hook.warnings_of(steps)

    for clip in (None, 1.0):
        found = told("mean", clip)
        assert len(found) == 1 and "noop_hook" in found[0], found
        assert told("noop", clip) == told(None, clip) == []
    assert len(told("mean", 1.0, optimizer=sgd)) == 1
    assert "the same data" in told(None, alone=True)[0]
    model, optimizer, sync = started()
    assert test_hook.warnings_of(lambda: [model.zero_grad(set_to_none=False) or sync.step() for _ in range(12)]) == []


def case_reports_count_measurements():
    model, optimizer, sync = started()
    train(model, sync, optimizer, 5)
    report = sync.report()
    agreed, total = sync._momentum.bytes, 5 * sync._momentum.bytes + 2 * sync._factors.bytes
    assert agreed <= 2 * len(list(model.parameters())) + 8 * 4 * len(optimizer.param_groups), agreed
    assert report["bytes_measured"] == agreed + sync._factors.bytes > agreed
    assert report["total_bytes_measured"] == total
    world = dist.get_world_size()
    ring = 2 * (world - 1) / world * report["baseline_bytes"]
    assert abs(report["ring_ratio"] * report["bytes_received"] / ring - 1) < 1e-9 and report["bytes_measured"] > 0
    assert report["total_bytes_sent"] == sync.hook.report()["total_bytes_sent"] + total
    for clips in (False, True):  # with the ranks' own second moments it is for clipping alone
        other, optimizer, plain = started(second_moments=False)
        train(other, plain, optimizer, 5, clip=1.0 if clips else None)
        measured = clips * 2 * plain._factors.bytes + 5 * plain._momentum.bytes
        assert plain.report()["total_bytes_measured"] == measured and plain.factors() == {}
        if clips:
            for each in other.parameters():
                each.grad.fill_(float(dist.get_rank()))
            norms = torch.tensor([plain.clip_grad_norm_(1e9)])
            assert_same_on_all_ranks(norms, "norms with the ranks' own second moments")
    assert "bytes" not in sync.factors() and set(sync.factors()) == {name for name, _ in model.named_parameters()}


def case_the_old_name():
    model = small_model()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert gradsieve.torch.OuterStep(model, adamw(model), every=2, lr=1.0, momentum=0.0)._momentum is None
        outer = gradsieve.torch.OuterStep(model, sgd(model), every=2, recipe="radix", density=0.1)
    assert any("CompressedStep" in str(each.message) for each in found)
    assert outer.every == 2 and outer.local_weight == 0 and outer.factors() == {}
    train(model, outer, None or outer._optimizers[0], 4)
    assert_same_on_all_ranks(weights(model), "OuterStep")


def case_what_cannot_be_is_refused():
    model = small_model()
    for text, options in (
        ("every is 0", {"every": 0}),
        ("every is 2.5", {"every": 2.5}),
        ("decay is 1.5", {"decay": 1.5}),
        ("local_weight is 2", {"local_weight": 2}),
        ("keeps something else than what was not sent", {"recipe": "radix+momentum", "momentum": 0.5, "local_weight": 0.5}),
        ("decay goes with error_feedback", {"decay": 0.5, "recipe": "radix+momentum"}),
        ("carries the momentum", {"recipe": "radix+momentum", "outer_momentum": 0.9}),
    ):
        assert_raises((ValueError, TypeError), text, lambda options=options: gradsieve.torch.CompressedStep(
            model, sgd(model), **options))
    assert_raises(ValueError, "bare module", lambda: gradsieve.torch.CompressedStep(
        test_hook.in_buckets(model), sgd(model)))
    empty = nn.Linear(4, 4, device="meta")
    assert_raises(ValueError, "meta device", lambda: gradsieve.torch.CompressedStep(empty, sgd(empty)))
    inside = nn.Sequential(test_hook.in_buckets(model))
    assert_raises(ValueError, "bare module", lambda: gradsieve.torch.CompressedStep(inside, sgd(inside)))
    try:
        from torch.distributed.tensor import distribute_module
    except ImportError:
        print("  skipped: this torch has no distributed tensors there")
    else:
        parts = distribute_module(small_model(), dist.init_device_mesh("cpu", (dist.get_world_size(),)))
        assert_raises(ValueError, "process_group=mesh['across']", lambda: gradsieve.torch.CompressedStep(parts, sgd(parts)))
    other = torch.optim.SGD([*model.parameters(), nn.Parameter(torch.zeros(3))], lr=0.1)
    assert_raises(ValueError, "not the model's", lambda: gradsieve.torch.CompressedStep(model, other))
    from torch.distributed.optim import ZeroRedundancyOptimizer
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    assert_raises(ValueError, "ZeroRedundancyOptimizer", lambda: gradsieve.torch.CompressedStep(model, zero))
    model, optimizer, sync = started(every=4)
    train(model, sync, optimizer, 2)
    state = sync.state_dict()
    assert_raises(ValueError, "middle of local steps", lambda: sync.load_state_dict([state, state]))
    assert_raises(ValueError, "lacks a part", lambda: sync.load_state_dict({**state, "version": 9}))


def case_ranks_join_and_leave():
    for old, new in ((3, 2), (2, 3)):
        train_groups = {size: dist.new_group(list(range(size))) for size in (old, new)}
        hook_groups = {size: dist.new_group(list(range(size))) for size in (old, new)}
        states, mine, pending = [None] * 3, None, torch.zeros(sum(each.numel() for each in small_model().parameters()),
                                                              dtype=torch.float64)
        if dist.get_rank() < old:
            model, optimizer, sync = started(process_group=train_groups[old], hook_group=hook_groups[old])
            train(model, sync, optimizer, 8)
            mine, pending = sync.state_dict(), pending_of(sync)
        dist.all_reduce(pending)
        dist.all_gather_object(states, mine)
        states = [each for each in states if each is not None]
        if dist.get_rank() < new:
            model, optimizer, sync = started(seed=9, process_group=train_groups[new], hook_group=hook_groups[new])
            sync.load_state_dict(states)
            begun = torch.cat([each.double().flatten() for each in states[0]["common"]])
            assert torch.equal(common_of(model, sync), begun)
            kept = pending_of(sync)
            dist.all_reduce(kept, group=train_groups[new])
            assert (kept / new - pending / old).abs().max() < 1e-6, "what was pending is lost"
            train(model, sync, optimizer, 8, seed=3)
            assert sync.rounds == 16
            found = [torch.zeros_like(begun) for _ in range(new)]
            dist.all_gather(found, common_of(model, sync), group=train_groups[new])
            assert all(torch.equal(each, found[0]) for each in found)


def case_bytes_that_do_not_grow_with_the_ranks():
    """From OWNERS ranks on the usual recipe sums in shards; what is not returned waits, in a state that others load."""
    from gradsieve.torch import compressed_step
    assert started(recipe=None)[2].hook.options.get("returned") is None
    usual, compressed_step.OWNERS = compressed_step.OWNERS, 4

    def run(steps, state=None, moments=None, **options):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        sync = gradsieve.torch.CompressedStep(model, optimizer, **options)
        if state:
            optimizer.load_state_dict(moments)
            sync.load_state_dict(state)
        g = torch.Generator().manual_seed(dist.get_rank())
        losses = []
        for _ in range(steps):
            x = torch.randn(64, 300, generator=g)
            optimizer.zero_grad()
            loss = loss_of(model, x, x[:, :10].argmax(1))
            loss.backward()
            losses.append(mean_of(loss.detach()).item())
            sync.step()
        return model, optimizer, sync, losses
    model, optimizer, sync, losses = run(20)
    report = sync.report()
    assert sync.hook.options["returned"] == "4" and report["ring_ratio"] > 38, report["ring_ratio"]
    assert losses[-1] < 0.96 * losses[0], losses
    assert_same_on_all_ranks(common_of(model, sync), "shards")
    for options, least, most in (({"returned": 1}, 75, 90), ({"returned": 2}, 52, 62), ({"recipe": "radix+sign"}, 34, 38)):
        other, moments, again, _ = run(2, sync.state_dict(), optimizer.state_dict(), **options)
        assert least < again.report()["ring_ratio"] < most, again.report()["ring_ratio"]
        assert_same_on_all_ranks(common_of(other, again), options)
    compressed_step.OWNERS = usual


def case_nodes_of_two_ranks():
    inside, across = gradsieve.torch.nodes(2)
    model, optimizer, sync = started(inside=inside, across=across)
    assert sync.local_weight == 0
    train(model, sync, optimizer, 8)
    assert_same_on_all_ranks(weights(model), "nodes")


test_hook.TWO_RANKS = [
    case_dense_exchange_is_the_mean,
    case_everything_in_few_bits,
    case_what_is_updated_is_sent_or_pending,
    case_common_momentum_is_the_optimizers,
    case_common_momentum_moves_in_steps_alone,
    case_what_waits_does_not_move_without_steps,
    case_common_momentum_is_the_same_on_all_ranks,
    case_what_takes_no_common_momentum, case_common_momentum_forgets_faster_at_a_low_density,
    case_weights_of_ranks,
    case_weights_save_and_refuse,
    case_weights_do_not_vanish_in_adam,
    case_buffers_that_training_changes,
    case_ranks_agree_after_each_exchange,
    case_stopped_and_continued_is_as_if_not,
    case_decay_lets_the_old_fade,
    case_an_exchange_that_failed_is_tried_again,
    case_an_optimizer_that_raises,
    case_an_interrupt_waits_for_the_exchange,
    case_with_fail_steps_with_nan_are_dropped,
    case_all_begin_with_the_first_rank,
    case_only_second_moments_of_known_rules_are_scaled,
    case_steps_of_limited_size_are_enlarged,
    case_which_steps_are_enlarged,
    case_the_mean_of_enlarged_steps_has_their_size,
    case_what_of_a_step_is_enlarged,
    case_enlarged_steps_go_on_from_a_checkpoint,
    case_enlarged_steps_inside_join,
    case_what_16_bits_would_round_is_sent_once,
    case_copies_of_weights_whose_steps_are_enlarged,
    case_without_gradients_and_with_another_default,
    case_updates_that_are_not_finite_count_as_zero,
    case_a_step_without_a_finite_gradient_is_left_out,
    case_an_optimizer_that_is_broken_says_so_at_once,
    case_copies_of_the_weights_follow_the_exchange,
    case_weights_that_are_no_copies_stay_as_they_are,
    case_graphs_are_not_kept,
    case_closures,
    case_ranks_with_different_numbers_of_batches,
    case_a_rank_that_is_missing,
    case_factors_are_those_of_the_gradients,
    case_factors_know_noise_from_signal,
    case_sixteen_bits_have_float_common_parameters,
    case_doubles_at_density_one,
    case_a_centered_variance_stays_positive,
    case_loss_scale,
    case_several_optimizers_frozen_and_sparse_parameters,
    case_adam_trains_where_compressed_gradients_do_not,
    case_profiler_shows_an_exchange,
    case_a_model_that_is_averaged_already,
    case_reports_count_measurements,
    case_the_old_name,
    case_what_cannot_be_is_refused,
]
test_hook.THREE_RANKS = [case_common_momentum_is_the_same_on_all_ranks, case_dense_exchange_is_the_mean, case_what_is_updated_is_sent_or_pending,
                         case_everything_in_few_bits,
                         case_weights_of_ranks,
                         case_a_model_that_is_averaged_already,
                         case_factors_know_noise_from_signal, case_ranks_with_different_numbers_of_batches,
                         case_ranks_join_and_leave, case_a_group_without_rank_0]
test_hook.FOUR_RANKS = [case_bytes_that_do_not_grow_with_the_ranks, case_nodes_of_two_ranks, case_weights_of_ranks]

if __name__ == "__main__":
    test_hook.main()
