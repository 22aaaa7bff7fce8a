"""Local steps of CompressedStep: presets, fragments, and exchanges in flight: `python3 test_local_steps.py [cases]`."""

import contextlib
import copy
import functools
import io
import math

import torch
import torch.distributed as dist
from torch import nn

import gradsieve.torch
import test_hook
from test_hook import assert_raises, assert_same_on_all_ranks, batches, small_model, weights
from test_training import (OPTIMIZERS, Copying, Lost, adamw, common_of, loss_of, mean_of, pending_of, started, train,
                           weights_behind_steps)

SCHEDULES = ((6, 1, 0), (6, 3, 0), (6, 1, 5), (6, 2, 2), (7, 3, 1), (4, 4, 0), (3, 1, 3), (3, 3, 1),
             (1, 1, 1))  # every, fragments, delay


def sizes_of(sync):
    return [sum(sync._own[i].numel() for i in each) for each in sync._changes.fragments]


def case_presets():
    """What is given counts instead of a preset's own; presets are named in the sentence for others."""
    model, optimizer, sync = started(recipe=None, density=None, preset="diloco")
    assert (sync.every, sync.local_weight, sync.decay) == (30, 0, 1)
    assert sync._outer.defaults["lr"] == 1 and sync._outer.defaults["momentum"] == 0.5 and sync._outer.defaults["nesterov"]
    train(model, sync, optimizer, 30)
    report = sync.report()
    assert sync.rounds == 1 and report["selected"] == sum(each.numel() for each in model.parameters())
    assert report["step_ring_ratio"] == 30 * report["ring_ratio"] > 0
    assert_same_on_all_ranks(common_of(model, sync), "diloco")
    model, optimizer, sync = started(recipe=None, density=None, preset="streaming_diloco", every=18)
    assert (sync.every, sync.fragments, sync.delay) == (18, 3, 1) and len(sizes_of(sync)) == 3
    train(model, sync, optimizer, 18)
    assert sync.rounds == 0 and sync.hook.report()["total_steps"] == 3
    train(model, sync, optimizer, 5, seed=1)
    assert sync.rounds == 1
    assert_same_on_all_ranks(common_of(model, sync), "streaming")
    model, optimizer, sync = started(recipe=None, density=None, preset="sparseloco", every=5)
    assert (sync.every, sync.local_weight, sync.decay) == (5, 0.5, 0.95)
    assert "size 4096" in sync.describe() and "block 64" in sync.describe(), sync.describe()
    train(model, sync, optimizer, 10)
    assert sync.rounds == 2 and sync.report()["selected"] < 0.05 * sum(each.numel() for each in model.parameters())
    model, optimizer, sync = started(recipe="radix+sign", density=0.5, preset="sparseloco", decay=1.0, outer_momentum=0.0)
    assert (sync.every, sync.decay, sync._outer.defaults["momentum"]) == (15, 1, 0)
    assert_raises(ValueError, "preset is 'dilocco', expected diloco, streaming_diloco or sparseloco",
                  lambda: started(preset="dilocco"))
    assert_raises((ValueError, TypeError), "preset", lambda: started(preset=3))


def case_fragments_and_delay_by_another_way():
    """At density 1, against all of it written anew: a list of tensors a rank, and all-reduces of each fragment."""
    for every, fragments, delay in SCHEDULES:
        for weight, outer in ((0.0, 0.5), (0.5, 0.0)):
            model, optimizer, sync = started(density=1.0, every=every, fragments=fragments, delay=delay, second_moments=False,
                                             local_weight=weight, outer_momentum=outer, outer_lr=0.9)
            ends = [(f + 1) * every // fragments for f in range(fragments)]
            twin = small_model()
            own, apart = list(twin.parameters()), adamw(twin)
            common = [each.detach().clone() for each in own]
            start = [each.clone() for each in common]
            mover = torch.optim.SGD(common, lr=0.9, momentum=outer, nesterov=outer > 0)
            flying = None

            def land(which, left, changes):
                for i, before, change in zip(which, left, changes):
                    dist.all_reduce(change)
                    common[i].grad = change / dist.get_world_size()
                    own[i].sub_(before)
                mover.step()
                mover.zero_grad(set_to_none=True)
                for i in which:
                    start[i] = common[i].clone()
                    own[i].add_(common[i])

            for step, (x, y) in enumerate(batches(3 * every + 2)):
                optimizer.zero_grad()
                loss_of(model, x, y).backward()
                moved = sync.step()
                apart.zero_grad()
                loss_of(twin, x, y).backward()
                apart.step()
                with torch.no_grad():
                    now, done = step % every + 1, False
                    if flying is not None and flying[0] == step:
                        flying, done = land(*flying[1:]), True
                    if now in ends:
                        which = sync._changes.fragments[ends.index(now)]
                        changes = [start[i] - own[i] for i in which]
                        flying = step + delay, which, [own[i].clone() for i in which], changes
                    if flying is not None and flying[0] == step:
                        flying, done = land(*flying[1:]), True
                assert moved is done, (every, fragments, delay, step)
                away = (weights(model) - weights(twin)).abs().max().item()
                assert away < 3e-6, (every, fragments, delay, step, away)
            away = (common_of(model, sync) - torch.cat([each.double().flatten() for each in common])).abs().max().item()
            assert away < 3e-6, away


def case_nothing_is_lost_in_flight():
    """Common parameters and the mean of what ranks have not sent are what all updates sum up to, once all has arrived."""
    recipes = ("radix", "radix+sign", "laplacian+deft", "chunked+int2", "radix+cyclic", "int4", "sign+coded_all_reduce",
               "adacomp")
    names = list(OPTIMIZERS)
    for number, recipe in enumerate(recipes):
        every, fragments, delay = SCHEDULES[number % 7 + 2]
        density = 1.0 if recipe == "int4" else test_hook.density_of(recipe, 0.05)
        model, optimizer, sync = started(of=lambda model: OPTIMIZERS[names[number]](model.parameters()), recipe=recipe,
                                         density=density, every=every, fragments=fragments, delay=delay,
                                         common_momentum=False, local_weight=0.5 * (number % 2),
                                         **({"returned": 1} if "coded" in recipe else {}))
        assert len(sizes_of(sync)) == fragments and sum(sizes_of(sync)) == len(weights(model)), sizes_of(sync)
        total, after = weights(model), weights_behind_steps(model, optimizer, sync)
        for x, y in batches(2 * every + every // 2 + 2, seed=number):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            before = weights(model)
            sync.step()
            total += mean_of(after[-1] - before)
        sync.exchange()
        common = common_of(model, sync)
        assert_same_on_all_ranks(common, recipe)
        away = (common + mean_of(pending_of(sync)) - total).abs().max().item()
        assert away < 3e-6, (recipe, away)
        away = (weights(model) - common - 0.5 * (number % 2) * pending_of(sync)).abs().max().item()
        assert away < 1e-7, (recipe, away)
        report = sync.report()
        assert report["step_ring_ratio"] == every * report["ring_ratio"] > 0


def momentum_moves(name, held, mean, t, b=0.9, decay=4e-3):
    """What a step of an optimizer subtracts, in exchange t, and what its momentum alone would in two more; Nesterov's has the
    first of them in the step."""
    if name in ("SGD", "Nesterov"):
        held.mul_(b).add_(mean)
        return (held.clone(), b * held + b ** 2 * held) if name == "SGD" else (mean + b * held, b ** 2 * held)
    held.mul_(b).add_(mean, alpha=1 - b)
    if name == "NAdam":
        of = [b * (1 - 0.5 * 0.96 ** (each * decay)) for each in range(1, t + 2)]
        so_far = math.prod(of[:t])
        moved = (1 - of[-2]) / (1 - so_far) * mean + of[-1] / (1 - so_far * of[-1]) * held
        return moved, b ** 2 * held / (1 - b ** t)
    return held / (1 - b ** t), (b + b ** 2) * held / (1 - b ** t)


LATE = {
    "SGD": lambda parameters, b: torch.optim.SGD(parameters, lr=0.05, momentum=b, weight_decay=0.01),
    "Nesterov": lambda parameters, b: torch.optim.SGD(parameters, lr=0.05, momentum=b, nesterov=b > 0),
    "AdamW": lambda parameters, b: torch.optim.AdamW(parameters, lr=3e-3, betas=(b, 0.99), weight_decay=0.1),
    "NAdam": lambda parameters, b: torch.optim.NAdam(parameters, lr=1e-3, betas=(b, 0.99)),
}


def case_a_step_late_with_a_common_momentum():
    """Against all of it written anew, at density 1: what a rank trains has its share of what is in flight, and is ahead of
    the common parameters; without a gradient a parameter stands still; what else changes weights moves all once, of its own
    rank at once."""
    world = dist.get_world_size()
    for name, of in LATE.items():
        model, twin = small_model(), small_model()
        optimizer = of(model.parameters(), 0.9)
        sync = gradsieve.torch.CompressedStep(model, optimizer, "radix", 1.0, delay=1, second_moments=False,
                                              common_momentum=True, local_weight=0.25)
        own = list(twin.parameters())
        apart = of(own, 0.0)
        common, left = [each.detach().clone() for each in own], [each.detach().clone() for each in own]
        held, moves, t = [torch.zeros_like(each) for each in own], [torch.zeros_like(each) for each in own], [0] * len(own)
        flying = None
        for step, (x, y) in enumerate(batches(14)):
            outside = 0.25 * (step == 8 and dist.get_rank() == 0)
            for one in (model, twin):
                one.zero_grad()
                loss_of(one, x, y).backward()
                with torch.no_grad():
                    for i, each in enumerate(one.parameters()):
                        each.add_(outside)
                        each.grad = None if i == 1 and step in (0, 4, 5) or step == 11 else each.grad
            assert sync.step() is (step > 0)
            in_full = sum(2 * (world - 1) * each.numel() * 4 // world for each in own) * (step == 9)
            assert step == 0 or sync.report()["bytes_buffers"] == in_full, step
            apart.step()
            with torch.no_grad():
                for i, each in enumerate(own):
                    if flying is not None and i not in flying[1]:
                        t[i] += 1
                        moved, moves[i] = momentum_moves(name, held[i], mean_of(flying[0][i]), t[i])
                        common[i].sub_(moved)
                    common[i].add_(0.25 / world * (step == 9))
                changes = [before + outside - each for before, each in zip(left, own)]
                unused = range(len(own)) if step == 11 else [1] if step in (0, 4, 5) else []
                for i, each in enumerate(own):
                    each.copy_(common[i] - 0.25 * changes[i] - (moves[i] if i not in unused else 0) + outside)
                    left[i] = each.clone()
                flying = changes, unused
            if step == 1:  # the first one has arrived, which was made with the first rate
                assert sync._momentum._held[0].rate == optimizer.defaults["lr"]
            for group in (*optimizer.param_groups, *apart.param_groups):
                group["lr"] *= 0.9
            away = (weights(model) - weights(twin)).abs().max().item()
            assert away < 1e-5, (name, step, away)
            away = (common_of(model, sync) - torch.cat([each.double().flatten() for each in common])).abs().max().item()
            assert away < 1e-5, (name, step, away)
        sync.exchange()
        assert torch.equal(weights(model), common_of(model, sync)), name
        assert sync.report()["bytes_measured"] > 0


def case_ranks_look_ahead():
    """With an exchange in each step a rank trains one move of the momentum ahead, where the optimizer's is not Nesterov's and
    something waits; a parameter without a gradient stays where it is, to the bit; what changes weights counts once; and a
    state goes on to the bit."""
    for name, of in LATE.items():
        for density, dtype in ((0.3, torch.float32), (1.0, torch.float32), (0.3, torch.bfloat16)):
            model, optimizer, sync = started(of=lambda model: of(model.parameters(), 0.9), recipe="radix+sign" if density < 1
                                             else "radix", density=density, local_weight=0.25, common_momentum=True, dtype=dtype)
            for step, (x, y) in enumerate(batches(9, dtype)):
                optimizer.zero_grad()
                loss_of(model, x, y).backward()
                if step in (3, 4):
                    list(model.parameters())[1].grad = None
                if step == 6:
                    with torch.no_grad():
                        list(model.parameters())[2].add_(0.25 * dist.get_rank())
                before = [each.detach().clone() for each in model.parameters()]
                sync.step()
                assert step not in (3, 4) or torch.equal(before[1], list(model.parameters())[1]), (name, density, step)
                ahead = torch.cat([(0.9 * each.values / (1 - 0.9 ** each.steps if name == "AdamW" else 1)).double().flatten()
                                   for each in sync._momentum._held.values()])
                if name in ("Nesterov", "NAdam") or density == 1:
                    ahead.zero_()
                away = (weights(model) - common_of(model, sync) - 0.25 * pending_of(sync) + ahead).abs().max().item()
                assert away < (1e-2 if dtype == torch.bfloat16 else 1e-6), (name, density, step, away)
                assert dtype == torch.bfloat16 or step < 2 or ahead.any() == (name in ("SGD", "AdamW") and density < 1)
            saved, its = sync.state_dict(), copy.deepcopy(optimizer.state_dict())
            train(model, sync, optimizer, 2, seed=1, dtype=dtype)
            ends = weights(model)
            model, optimizer, sync = started(of=lambda model: of(model.parameters(), 0.9), recipe="radix+sign" if density < 1
                                             else "radix", density=density, local_weight=0.25, common_momentum=True, dtype=dtype)
            optimizer.load_state_dict(its)
            sync.load_state_dict(saved)
            train(model, sync, optimizer, 2, seed=1, dtype=dtype)
            assert torch.equal(weights(model), ends), (name, density)
            assert ("a move ahead" in sync.describe()) == (density < 1)
            if dtype == torch.float32:
                sync.exchange()
                away = (weights(model) - common_of(model, sync) - 0.25 * pending_of(sync)).abs().max().item()
                assert away < 1e-6, (name, density, away)
    model, optimizer, sync = started(recipe="radix+sign", density=0.3, undo=True)
    train(model, sync, optimizer, 3)
    native, sync.hook._native = sync.hook._native, Lost(sync.hook._native)
    assert_raises(RuntimeError, "lost", lambda: train(model, sync, optimizer, 1))
    sync.hook._native = native
    for options in ({"density": 1.0, "recipe": "sign"}, {"delay": 1}):
        other = started(**{"recipe": "radix+sign", "density": 0.3, "undo": True, **options})[2]
        assert_raises(ValueError, "delay or density", lambda: other.load_state_dict(sync.state_dict()))
    model = small_model()
    one, *rest = model.parameters()
    sync = gradsieve.torch.CompressedStep(model, [torch.optim.AdamW([one]), torch.optim.RMSprop(rest)], density=0.3)
    assert_raises(ValueError, "'speeds' or 'used'",
                  lambda: sync.load_state_dict({**sync.state_dict(), "speeds": {1: [1.0, 1.0]}}))


def case_local_steps_with_a_common_momentum():
    """Against all of it written anew, at density 1: between exchanges a rank takes its share of its steps, and goes on as the
    common parameters have moved; the mean of the steps' sum counts in as many moves. What else changes weights, in any step,
    moves all once, in full; a parameter without a gradient stands still; and states go on to the bit."""
    world, every = dist.get_world_size(), 3
    for name, of in LATE.items():
        model, twin = small_model(), small_model()
        optimizer = of(model.parameters(), 0.9)

        def made(model, optimizer):
            return gradsieve.torch.CompressedStep(model, optimizer, "radix", 1.0, every=every, second_moments=False,
                                                  common_momentum=True, local_weight=0.25, undo=True)
        sync = made(model, optimizer)
        own = list(twin.parameters())
        apart = of(own, 0.0)
        common, held = [each.detach().clone() for each in own], [torch.zeros_like(each) for each in own]
        sums, speeds, t = [torch.zeros_like(each) for each in own], [torch.zeros_like(each) for each in own], [0] * len(own)
        outsides = 0.0
        for step, (x, y) in enumerate(batches(20)):
            outside = 0.25 * (step in (9, 13) and dist.get_rank() == 0)
            unused = step in (3, 4, 5, 12, 13, 14)
            for one in (model, twin):
                one.zero_grad()
                loss_of(one, x, y).backward()
                with torch.no_grad():
                    for i, each in enumerate(one.parameters()):
                        each.add_(outside)
                        each.grad = None if i == 1 and unused else each.grad
            outsides += 0.25 / world * (step in (9, 13))
            b = 0.8 if step >= 12 and name in ("SGD", "AdamW") else 0.9  # the round goes on with what it began with
            for group in optimizer.param_groups:
                group.update({"betas": (b, 0.99)} if "betas" in group else {"momentum": b})
            before = [each.detach().clone() for each in own]
            if step in (7, 10):  # in the middle of local steps
                saved = [optimizer.state_dict(), sync.state_dict()]
                optimizer = of(model.parameters(), 0.9)
                optimizer.load_state_dict(saved[0])
                gradients = [each.grad for each in model.parameters()]
                sync = made(model, optimizer)
                sync.load_state_dict(saved[1])
                for each, gradient in zip(model.parameters(), gradients):
                    each.grad = gradient
            if step == 13:  # what has changed before a step that raises counts once
                its, optimizer.step = optimizer.step, raise_lost
                assert_raises(RuntimeError, "lost", sync.step)
                optimizer.step = its
            ends = (step + 1) % every == 0
            if step == 8:  # as if it had not failed
                native, sync.hook._native = sync.hook._native, Lost(sync.hook._native)
                assert_raises(RuntimeError, "lost", sync.step)
                sync.hook._native = native
                sync.exchange()
            else:
                assert sync.step() is ends
            apart.step()
            with torch.no_grad():
                for i, (each, start) in enumerate(zip(own, before)):
                    sums[i] += start - each
                    each.copy_(start + 0.25 * (each - start) - speeds[i] * (not ends))
                    if not ends:
                        continue
                    mean = mean_of(sums[i]) / every
                    sums[i].zero_()
                    common[i] += outsides
                    ahead, still = 0.0, i == 1 and unused
                    for _ in range(0 if still else every):
                        t[i] += 1
                        moved, ahead = momentum_moves(name, held[i], mean, t[i], b)
                        common[i] -= moved
                    is_there = still or name in ("Nesterov", "NAdam") or step == 8  # behind exchange()
                    ahead = 0.0 if is_there else ahead / (1 + b)  # by one step, not two
                    speeds[i] = held[i] * (0 if still else 1 / (1 - b ** t[i]) if name in ("AdamW", "NAdam") else 1)
                    each.copy_(common[i] - ahead)
                outsides *= not ends
            away = (weights(model) - weights(twin)).abs().max().item()
            assert away < 2e-5, (name, step, away)
            away = (common_of(model, sync) - torch.cat([each.double().flatten() for each in common])).abs().max().item()
            assert away < 2e-5, (name, step, away)
            for group in (*optimizer.param_groups, *apart.param_groups):
                group["lr"] *= 0.9
        size = (1 - 0.9 ** t[0]) * (1 if name == "NAdam" else 10)
        assert sync.rounds == 6 and (b < 0.9 or abs(sync._momentum._held[0].size - size) < 1e-6)

    def begun(every=4, **options):
        model = nn.ParameterList([nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(64))])
        optimizer = torch.optim.SGD([{"params": [each]} for each in model], lr=0.01, momentum=0.5)
        return model, optimizer, gradsieve.torch.CompressedStep(model, optimizer, "radix", 1.0, every=every, undo=True,
                                                                second_moments=False, **{"common_momentum": True, **options})

    def taken(model, sync, steps, gradient=1.0, others=1.0, **options):
        for _ in range(steps):
            for each, its in zip(model, (gradient, others)):
                each.grad = None if its is None else torch.full_like(each, its)
            sync.step(**options)

    def moved(model, sync):
        return [each.mean().item() for each in common_of(model, sync).split(64)]
    five = -0.01 * sum(2 - 0.5 ** i for i in range(5))
    for way in ("lost", "refused"):  # with the next step all that waits counts, as so many moves
        model, _, sync = begun()
        weight = {} if way == "lost" else {"weight": 1.0}
        taken(model, sync, 3, **weight)
        if way == "lost":
            native, sync.hook._native = sync.hook._native, Lost(sync.hook._native)
            assert_raises(RuntimeError, "lost", lambda: taken(model, sync, 1))
            sync.hook._native = native
        else:
            assert_raises(ValueError, "weight", lambda: taken(model, sync, 1, weight=-1.0 if dist.get_rank() else 1.0))
        taken(model, sync, 1, **weight)
        assert all(abs(each - five) < 1e-6 for each in moved(model, sync)), (way, moved(model, sync))
        assert not sync.report()["bytes_buffers"]
    model, optimizer, sync = begun()
    taken(model, sync, 4)
    taken(model, sync, 1, others=None)
    with torch.no_grad():
        model[0].add_(0.25)
    assert_raises(ValueError, "the optimizer's own step()", sync.exchange)
    with sync.common_parameters() if dist.get_rank() else contextlib.nullcontext():
        saved = sync.state_dict()
    for options in ({"every": 1}, {"every": 3}, {"local_weight": 1.0}, {"common_momentum": False}):
        assert_raises(ValueError, "another every, local_weight", lambda: begun(**options)[2].load_state_dict(saved))
    for name, value in (("speeds", {9: [0.0, 0.0]}), ("speeds", {0: [0.0]}), ("used", [9])):
        assert_raises(ValueError, "'speeds' or 'used'", lambda: sync.load_state_dict({**saved, name: value}))
    again, _, other = begun()
    other.load_state_dict(saved)
    for one, its in ((model, sync), (again, other)):
        taken(one, its, 3, others=None)
    assert torch.equal(weights(model), weights(again)) and moved(model, sync) == moved(again, other)
    without, _, third = begun()
    taken(without, third, 4)
    taken(without, third, 4, others=None)
    away = [a - b for a, b in zip(moved(model, sync), moved(without, third))]
    assert abs(away[0] - 0.25) < 1e-6 and abs(away[1]) < 1e-6, away
    for _ in range(2):  # nothing has been done: ranks are not ahead any more
        sync.exchange()
        assert torch.equal(weights(model), common_of(model, sync))
    its = optimizer.step
    optimizer.step = lambda: (its(), [group["lr"].mul_(0.5) for group in optimizer.param_groups[:1]])
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    taken(model, sync, 1)  # of a rate of its own, whatever becomes of it inside
    assert [(group["momentum"], f"{group['lr']:.4f}") for group in optimizer.param_groups] == [(0.5, "0.0050"), (0.5, "0.0100")]
    model, twin = nn.ParameterList([nn.Parameter(torch.zeros(64)) for _ in range(2)]), nn.Parameter(torch.zeros(64))
    both = [torch.optim.SGD([model[0]], lr=0.01, momentum=0.5), torch.optim.Adagrad([model[1]], lr=0.1)]
    apart = torch.optim.Adagrad([twin], lr=0.1)  # whose parameters neither move on nor take a share
    for frozen in (False, True):
        other = nn.Parameter(torch.zeros(64), requires_grad=not frozen)
        has_two = nn.ParameterList([model[0], other])
        two = [torch.optim.Adam([model[0]]), torch.optim.Adagrad([other])]
        assert (gradsieve.torch.CompressedStep(has_two, two, "radix", 1.0, every=4)._momentum is None) != frozen
    sync = gradsieve.torch.CompressedStep(model, both, "radix", 1.0, every=4, second_moments=False, common_momentum=True)
    for step in range(4):
        assert torch.equal(model[1], twin)
        twin.grad = torch.full_like(twin, 1.0 + dist.get_rank() * step)
        apart.step()
        taken(model, sync, 1, others=1.0 + dist.get_rank() * step)
    found = moved(model, sync)
    assert abs(found[0] + 0.01 * sum(2 - 0.5 ** i for i in range(4))) < 1e-6 and abs(found[1] - mean_of(twin.detach())[0]) < 1e-6
    model, optimizer, sync = started(every=3, common_momentum=True)
    with sync.join():
        train(model, sync, optimizer, 7 + 4 * dist.get_rank())
    assert sync.rounds == (7 + 4 * (world - 1)) // 3
    assert_same_on_all_ranks(common_of(model, sync), "ranks that are through")
    for text, options in (("fragments or a delay", {"fragments": 2}), ("fragments or a delay", {"delay": 1}),
                          ("less than 32 bits", {"dtype": torch.bfloat16})):
        assert_raises(ValueError, text, lambda: started(every=4, common_momentum=True, **options))
        assert started(every=4, **options)[2]._momentum is None
    for every, options, usual in ((4, {}, 0.25), (5, {}, 0.125), (1, {}, 0.25), (1, {"density": 0.025}, 0.25), (9, {}, 0.5),
                                  (1, {"density": 0.0249}, 0.125), (4, {"common_momentum": False}, 0.5),
                                  (1, {"recipe": "adacomp", "density": None}, 0.25), (9, {"common_momentum": True}, 0.125),
                                  (4, {"local_weight": 0.75}, 0.75), (4, {"recipe": "radix+none"}, 0.0),
                                  (4, {"local_weight": 0.0}, 0.0)):
        sync = started(every=every, **{"density": 0.06, **options})[2]
        assert (sync.local_weight, sync._momentum is None) == (usual, usual in (0.0, 0.5)), (every, options)
    for ranks, every, usual in ((4, 1, 0.25), (5, 1, 0.125), (64, 1, 0.125), (8, 4, 0.25)):
        assert gradsieve.torch._step_checks.usual_local_weight(True, ranks, every, 0.06) == usual, (ranks, every)


def lost(sync, agreement=False):
    """What is in flight fails, or the agreement that goes with it."""
    flight, = sync.hook._native._under_way
    flight.landed.wait()
    if agreement:
        sync._flight.asked.wait = functools.partial(raise_lost, sync._flight.asked.wait)
    else:
        flight.failure = RuntimeError("lost")


def raise_lost(before=lambda: None):
    before()
    raise RuntimeError("lost")


def held_of(sync):
    return torch.cat([sync._momentum._held[i].values.double().flatten() for i in range(len(sync._own))])


def case_nothing_is_lost_a_step_late():
    """The common moves of SGD's momentum sum up to what the sum of all changes makes, with one that fails and one that is
    dropped among them."""
    recipes = (("radix+sign", 0.05), ("chunked+int2", 0.05), ("int4", 1.0), ("sign+coded_all_reduce", 0.1), ("adacomp", None))
    for number, (recipe, density) in enumerate(recipes):
        dtype = torch.bfloat16 if recipe == "chunked+int2" else torch.float32
        drops = number % 2 == 1
        model, optimizer, sync = started(of=lambda model: LATE["SGD"](model.parameters(), 0.9), recipe=recipe, delay=1,
                                         density=density, common_momentum=True, dtype=dtype, undo=True,
                                         on_non_finite="fail" if drops else "skip",
                                         **({"returned": 1} if "coded" in recipe else {}))
        first, total, seen, by_others = weights(model), torch.zeros_like(weights(model)), [], 0
        unused = torch.cat([torch.full((each.numel(),), i == 1) for i, each in enumerate(model.parameters())])
        for step, (x, y) in enumerate(batches(12, dtype, seed=number)):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            if drops and step == 4 and dist.get_rank() == 1:
                next(model.parameters()).grad[0, 0] = float("nan")
            outside = torch.zeros_like(first)
            if step == 11 or drops and step == 4:  # something else changes a weight, which counts once and in full
                before = weights(model)
                with torch.no_grad():
                    list(model.parameters())[2].add_(0.25 * dist.get_rank())
                outside = weights(model) - before
                by_others = mean_of(outside)
                first += by_others
            if step in (3, 10):
                list(model.parameters())[1].grad = None
            before, after, its, native = weights(model), [], optimizer.step, sync.hook._native
            optimizer.step = lambda: (its(), after.append(weights(model)))
            begin = native.begin

            def begins(*given):
                seen[:] = [pending_of(sync) - torch.cat([each.double().flatten() for each in sync._start]).nan_to_num()]
                begin(*given)
                if step == 7:
                    lost(sync)
            native.begin = begins
            said = "are dropped on all ranks" if drops and step == 5 else "lost" if step == 8 else None
            kept = common_of(model, sync)
            if said is None:
                sync.step()
                moves = -(0.9 + 0.81) * held_of(sync) * ~(unused & (step in (3, 10)))
                away = (weights(model) - common_of(model, sync) - 0.25 * seen[0] - moves - outside).abs().max().item()
                assert away < (4e-3 if dtype == torch.bfloat16 else 1e-6), (recipe, step, away)
            else:
                assert_raises(RuntimeError, said, sync.step)
                away = (kept + by_others * (said != "lost") - common_of(model, sync)).abs().max().item()
                assert away < (4e-3 if dtype == torch.bfloat16 else 1e-6), (recipe, said, away)
            optimizer.step, native.begin = its, begin
            change = after[0] - before if after else torch.zeros_like(before)
            if not (drops and step in (4, 5)):
                total += mean_of(change)
            else:
                mean_of(change)
        sync.exchange()
        common, waits = common_of(model, sync), pending_of(sync)
        assert_same_on_all_ranks(common, recipe)
        moved = (total - mean_of(waits) + 0.9 * held_of(sync)) / (1 - 0.9)
        away = (common - first - moved).abs().max().item()
        assert away < (0.1 if dtype == torch.bfloat16 else 2e-5), (recipe, away, moved.abs().max())
        away = (weights(model) - common - 0.25 * waits).abs().max().item()
        assert away < (4e-3 if dtype == torch.bfloat16 else 1e-6), (recipe, away)


def case_failures_a_step_late():
    """What is lost in flight is as if its exchange had not begun: its changes go through the momentum once, in exchange(),
    which may be called again, or with the next step, which may be of other parameters; what else has changed weights counts
    once."""
    def stepped(model, sync, *gradients, **options):
        for each, gradient in zip(model.parameters(), gradients):
            each.grad = None if gradient is None else torch.full_like(each, gradient)
        return sync.step(**options)

    def begun(delay=1, **options):
        model = nn.ParameterList([nn.Parameter(torch.ones(64)), nn.Parameter(torch.ones(64))])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        return model, gradsieve.torch.CompressedStep(model, optimizer, "radix", 1.0, delay=delay, common_momentum=True,
                                                     undo=True, second_moments=False, **options)

    def moved(model, sync):
        return [(each - 1).mean().item() for each in common_of(model, sync).split(64)]
    for agreement in (False, True):
        model, sync = begun()
        assert stepped(model, sync, 1.0, 1.0) is False
        lost(sync, agreement)
        assert_raises(RuntimeError, "lost", sync.exchange)
        assert moved(model, sync) == [0, 0]
        sync.exchange()
        assert all(abs(each + 0.1) < 1e-6 for each in moved(model, sync)) and not sync.report()["bytes_buffers"]
    model, sync = begun()
    stepped(model, sync, 1.0, 1.0)
    lost(sync)
    assert_raises(RuntimeError, "lost", lambda: stepped(model, sync, 1.0, None))
    stepped(model, sync, 1.0, None)
    sync.exchange()
    assert all(abs(each - of) < 1e-6 for each, of in zip(moved(model, sync), (-0.3, -0.1))), moved(model, sync)
    for delay in (0, 1):
        for way in ("skip", "fail"):
            model, sync = begun(delay, on_non_finite=way)
            stepped(model, sync, 0.0, 0.0)
            with torch.no_grad():
                for each in model.parameters():
                    each.add_(1.0 + dist.get_rank())
            gradient = float("nan") if way == "fail" and dist.get_rank() else 0.0
            native = sync.hook._native
            if delay:
                stepped(model, sync, gradient, 0.0)
            if way == "skip" and delay:
                lost(sync)
            elif way == "skip":
                sync.hook._native = Lost(native)
            assert_raises(RuntimeError, "lost" if way == "skip" else "are dropped", lambda: stepped(model, sync, gradient, 0.0))
            mine = weights(model) - 1
            assert (mine == (1 + dist.get_rank() if way == "skip" else 1.5)).all(), (delay, way)
            if way == "skip":
                sync.hook._native = Lost(native)
                assert_raises(RuntimeError, "lost", sync.exchange)
                sync.hook._native = native
                state = sync.state_dict()
                model, sync = begun(delay, on_non_finite=way)
                sync.load_state_dict(state)
                assert torch.equal(weights(model) - 1, mine)
            for _ in range(4):
                stepped(model, sync, 0.0, 0.0)
            assert all(abs(each - 1.5) < 1e-6 for each in moved(model, sync)), (delay, way, moved(model, sync))
            assert (weights(model) - common_of(model, sync)).abs().max() < 1e-6
    model, sync = begun()
    for step in range(4):  # the weight that is refused is that of steps whose exchange does not begin
        begin = functools.partial(stepped, model, sync, 1.0, 1.0, weight=-1.0 if step == 2 and dist.get_rank() else 1.0)
        assert_raises(ValueError, "weight", begin) if step == 2 else begin()
        share = (weights(model) - common_of(model, sync)).abs().max().item()
    sync.exchange()
    assert abs(share - 0.25 * 0.2 - 0.75 * 0.15) < 1e-6, share  # moments: 0.1, 0.15, 0.275
    assert all(abs(each + 0.525) < 1e-6 for each in moved(model, sync)), moved(model, sync)


def case_a_step_late_without_a_common_momentum():
    """Where another optimizer keeps its own, a rank goes on with what its step has changed, whatever its weight; and states
    in flight are of a step with the same momentum."""
    model = nn.ParameterList([nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8))])
    optimizers = [torch.optim.AdamW([model[0]], lr=0.01), torch.optim.RMSprop([model[1]], lr=0.001)]
    sync = gradsieve.torch.CompressedStep(model, optimizers, "radix", 1.0, delay=1, second_moments=False, local_weight=0.5)
    weight = 1.0 + 2 * dist.get_rank()
    for each in model.parameters():
        each.grad = torch.ones_like(each)
    sync.step(weight=weight)
    assert (model[1] - 1 + 0.01).abs().max() < 1e-5, model[1]
    model = nn.ParameterList([nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(8, dtype=torch.bfloat16))])
    optimizers = [torch.optim.AdamW([model[0]], lr=0.01), Copying([model[1]], "early")]
    sync = gradsieve.torch.CompressedStep(model, optimizers, "radix", 1.0, delay=1, second_moments=False)
    for step in range(6):  # of which one rank leaves the first ones out
        for each in model.parameters():
            each.grad = torch.full_like(each, float("nan") if step < 3 and dist.get_rank() else 1.0)
        sync.step()
        assert torch.equal(optimizers[1].state[model[1]]["master"].bfloat16(), model[1]), step
    another, optimizer, other = started(delay=1, common_momentum=False)
    train(another, other, optimizer, 2)
    state = other.state_dict()
    assert_raises(ValueError, "of a CompressedStep with another momentum", lambda: started(delay=1)[2].load_state_dict(state))


def case_the_bytes_of_a_round_are_spread():
    """Fragments have about as many elements each, and a round as many bytes as without them."""
    def of_round(fragments):
        torch.manual_seed(2)
        model = nn.Sequential(*(nn.Linear(40, 40) for _ in range(12)), nn.Linear(40, 4))
        optimizer = torch.optim.AdamW(model.parameters())
        sync = gradsieve.torch.CompressedStep(model, optimizer, "int4", 1.0, every=4, fragments=fragments, local_weight=0.0)
        sent = []
        for step in range(16):
            if step == 12:
                begun = sync.report()["total_bytes_sent"]
            optimizer.zero_grad()
            model(torch.randn(8, 40)).square().mean().backward()
            if sync.step() and step >= 12:
                sent.append(sync.report()["total_bytes_sent"] - begun - sum(sent))
        return sizes_of(sync), sent
    sizes, sent = of_round(4)
    assert len(sent) == 4 and max(sent) < 0.35 * sum(sent), sent
    assert max(sizes) < 1.2 * sum(sizes) / 4, sizes
    (_, (whole,)) = of_round(1)
    assert whole <= sum(sent) < 1.25 * whole + 4 * 300, (sent, whole)


def case_steps_go_on_while_an_exchange_is_in_flight():
    """A rank that comes to its exchange only when the other has stepped on holds nothing up."""
    model, optimizer, sync = started(every=4, delay=2, second_moments=False)
    train(model, sync, optimizer, 7)
    others = dist.new_group()
    if dist.get_rank() == 0:
        train(model, sync, optimizer, 2, seed=1)  # the second one is behind the beginning of the exchange
        assert sync.report()["total_steps"] == 1  # does not wait
        dist.barrier(others)
    else:
        dist.barrier(others)
        train(model, sync, optimizer, 2, seed=1)
    assert sync.rounds == 1
    train(model, sync, optimizer, 1, seed=2)
    assert sync.rounds == 2
    assert_same_on_all_ranks(common_of(model, sync), "after a late exchange")
    model, optimizer, sync = started(delay=1, common_momentum=True)
    for step in range(1, 12):
        if dist.get_rank() == step % 2 or sync.rounds % 4 == 0:  # in which they measure
            train(model, sync, optimizer, 1, seed=step)
            dist.barrier(others)
        else:
            dist.barrier(others)
            train(model, sync, optimizer, 1, seed=step)
    assert_same_on_all_ranks(common_of(model, sync), "without waiting for others")


def case_stopped_in_flight_and_continued_is_as_if_not():
    for (every, fragments, delay), momentum in ((each, momentum) for each in SCHEDULES for momentum in (0.5, 0.0)):
        options = {"every": every, "fragments": fragments, "delay": delay, "outer_momentum": momentum, "decay": 0.9}
        if every > 1 and momentum == 0:
            continue
        for steps in {every, every + 1, every + delay, 2 * every - 1}:
            through, optimizer, sync = started(**options)
            train(through, sync, optimizer, steps, seed=1, clip=1.0)
            if every == 1:
                next(through.parameters()).grad = None  # and it stands still where the exchange ends
                sync.step()
                for group in optimizer.param_groups:
                    group["betas"] = (0.5, 0.9)
                with torch.no_grad():
                    next(through.parameters())[0, 0] += 0.5 * dist.get_rank()
                train(through, sync, optimizer, 1, seed=3)
            file = io.BytesIO()
            torch.save([optimizer.state_dict(), sync.state_dict()], file)
            train(through, sync, optimizer, every + 1, seed=2, clip=1.0)
            file.seek(0)
            inner, state = torch.load(file)
            model, optimizer, again = started(seed=7, **options)
            optimizer.load_state_dict(inner)
            again.load_state_dict(state)
            train(model, again, optimizer, every + 1, seed=2, clip=1.0)
            assert torch.equal(weights(model), weights(through)), (options, steps)
            assert torch.equal(common_of(model, again), common_of(through, sync)), (options, steps)
            assert again.rounds == sync.rounds
            assert repr(sync.state_dict()["momentum"]) == repr(again.state_dict()["momentum"])


def case_states_of_other_fragments():
    model, optimizer, sync = started(every=4, fragments=2, delay=1)
    train(model, sync, optimizer, 6)
    state = sync.state_dict()
    assert state["in_flight"]
    for options in ({"every": 4}, {"every": 4, "fragments": 4}, {"every": 4, "fragments": 2}):
        assert_raises(ValueError, "other fragments or another delay",
                      lambda options=options: started(**options)[2].load_state_dict(state))
    for name, value in (("fragment", 2), ("fragment", None), ("steps", 0), ("steps", 2), ("factor", -1.0),
                        ("mean", state["in_flight"]["mean"][:1]), ("left", None), ("asked", [1.0]),
                        ("outside", {0: torch.zeros(1)}), ("outside", {99: torch.zeros(1)}), ("unused", [99])):
        damaged = {**state, "in_flight": {**state["in_flight"], name: value}}
        assert_raises(ValueError, "'in_flight' of the state", lambda damaged=damaged: sync.load_state_dict(damaged))
    old, _, before = started(every=9, density=1.0)  # a state without fragments, past the ends of two of them
    train(old, before, before._optimizers[0], 8)
    saved = before.state_dict()
    later, _, after = started(seed=6, every=9, fragments=3, delay=2, density=1.0)
    after._optimizers[0].load_state_dict(before._optimizers[0].state_dict())
    after.load_state_dict(saved)
    for x, y in batches(4, seed=8):
        loss_of(later, x, y).backward()
        after.step()
        assert (weights(later) - weights(old)).abs().max() < 0.2
    after.exchange()
    assert_same_on_all_ranks(common_of(later, after), "from an old state")
    assert_raises(ValueError, "'next'", lambda: sync.load_state_dict({**state, "next": 2}))
    assert_raises(ValueError, "'outside'", lambda: sync.load_state_dict({**state, "outside": {0: torch.zeros(1)}}))
    states = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    assert_raises(ValueError, "call sync.exchange() before", lambda: sync.load_state_dict(states))
    sync.exchange()
    dist.all_gather_object(states, sync.state_dict())
    another, _, other = started(seed=4, every=4, fragments=4)  # groups are formed anew
    other.load_state_dict(states)
    assert torch.equal(pending_of(other), pending_of(sync))
    assert torch.equal(common_of(another, other), common_of(model, sync))
    train(another, other, other._optimizers[0], 4)
    assert_same_on_all_ranks(common_of(another, other), "from a list of states")


def case_failures_in_flight():
    """Where it ends the exchange raises, what was not sent is as before, and the next round sends what that was to."""
    for decay in (1.0, 0.5):
        model, optimizer, sync = started(every=3, delay=2, decay=decay, density=0.05 if decay < 1 else 1.0,
                                         second_moments=False)
        total, steps_of = weights(model), []  # what each step has changed, and its weight

        def go(steps, seed, raises=None):
            for x, y in batches(steps, seed=seed):
                optimizer.zero_grad()
                loss_of(model, x, y).backward()
                before, after, step = weights(model), [], optimizer.step
                optimizer.step = lambda: (step(), after.append(weights(model)))
                weight = 1.0 + dist.get_rank() * len(steps_of)
                if raises is not None:
                    assert_raises(RuntimeError, raises, lambda: sync.step(weight=weight))
                else:
                    sync.step(weight=weight)
                optimizer.step = step
                steps_of.append((after[0] - before, weight))
        go(5, 0)
        native = sync.hook._native
        norm, begin = sync.hook.residual_norm(), native.begin

        def failing(*given):
            begin(*given)
            lost(sync)
        native.begin = failing
        go(1, 1)
        native.begin = begin
        assert_raises(RuntimeError, "lost", sync.state_dict)
        go(1, 2)
        before = common_of(model, sync)
        go(1, 3, raises="lost")
        assert torch.equal(before, common_of(model, sync)) and sync.rounds == 1
        assert abs(sync.hook.residual_norm() - norm) <= 1e-9 * norm
        go(3, 4)
        assert sync.rounds == 2
        sync.exchange()
        assert_same_on_all_ranks(common_of(model, sync), "after a failure in flight")
        if decay == 1:  # and everything is sent
            for one in (steps_of[:3], steps_of[3:9], steps_of[9:]):
                weight = torch.tensor(sum(each for _, each in one))
                total += mean_of(sum(change for change, _ in one) * weight) / mean_of(weight)
            away = (common_of(model, sync) - total).abs().max().item()
            assert away < 3e-6, away


def case_what_is_not_finite_in_flight():
    model, optimizer, sync = started(every=3, delay=2, on_non_finite="fail")
    train(model, sync, optimizer, 5)
    common, norm = common_of(model, sync), sync.hook.residual_norm()
    (x, y), = batches(1, seed=1)
    optimizer.zero_grad()
    loss_of(model, x, y).backward()
    if dist.get_rank() == 1:
        next(model.parameters()).grad[0, 0] = float("nan")
    sync.step()
    train(model, sync, optimizer, 1, seed=2)
    assert_raises(RuntimeError, "are dropped on all ranks", lambda: train(model, sync, optimizer, 1, seed=3))
    assert torch.equal(common, common_of(model, sync))
    assert abs(sync.hook.residual_norm() - norm) < 1e-9 * norm
    train(model, sync, optimizer, 2, seed=4)
    for step in range(3):  # a second NaN in flight is dropped with it, and the next round is not
        (x, y), = batches(1, seed=5 + step)
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        if dist.get_rank() == 1 and step != 1:
            next(model.parameters()).grad[0, 0] = float("nan")
        if step == 2:
            assert_raises(RuntimeError, "are dropped on all ranks", sync.step)
        else:
            sync.step()
    train(model, sync, optimizer, 5, seed=9)
    assert sync.rounds == 2 and torch.isfinite(weights(model)).all()

    model, optimizer, sync = started(every=3, delay=2, on_non_finite="skip")
    train(model, sync, optimizer, 2)
    with torch.no_grad():
        model[0].weight[0, 0] = float("inf") if dist.get_rank() == 1 else 0.0
    for _ in range(3):
        for each in sync._own:
            each.grad = torch.zeros_like(each)
        sync.step()
    assert sync.rounds == 1 and torch.isfinite(weights(model)).all()
    assert_same_on_all_ranks(common_of(model, sync), "after infinite changes")


def case_sixteen_bits_and_copies_of_the_weights():
    """What was done in flight is added to the optimizer's finer copies, too."""
    class Masters(torch.optim.SGD):
        def step(self, closure=None):
            with torch.no_grad():
                for each in self.param_groups[0]["params"]:
                    master = self.state[each].setdefault("master", each.float().clone())
                    master.sub_(each.grad.float(), alpha=0.05)
                    each.copy_(master)
    model, optimizer, sync = started(of=lambda model: Masters(model.parameters(), lr=0.05), dtype=torch.bfloat16, every=4,
                                     delay=3, second_moments=False, density=1.0)
    train(model, sync, optimizer, 4, dtype=torch.bfloat16)
    masters = lambda: torch.cat([optimizer.state[each]["master"].double().flatten() for each in model.parameters()])
    left = masters()
    train(model, sync, optimizer, 3, dtype=torch.bfloat16, seed=1)
    gone = masters() - torch.cat([each.double().flatten() for each in sync._common])
    away = masters().bfloat16().double() - weights(model)
    assert sync.rounds == 1 and not away.any()
    twin, other, alone = started(of=lambda model: Masters(model.parameters(), lr=0.05), dtype=torch.bfloat16, every=100,
                                 second_moments=False, density=1.0)
    train(twin, alone, other, 4, dtype=torch.bfloat16)
    train(twin, alone, other, 3, dtype=torch.bfloat16, seed=1)
    own = torch.cat([other.state[each]["master"].double().flatten() for each in twin.parameters()])
    assert (gone - (own - left)).abs().max() < 1e-6 and gone.abs().max() > 1e-3
    sync.exchange()
    assert_same_on_all_ranks(common_of(model, sync), "of bfloat16")


def case_buffers_and_nodes():
    """Ranks end alike, with statistics of norms, and with nodes of two ranks where there are four."""
    nodes = dict(zip(("inside", "across"), gradsieve.torch.nodes(2))) if dist.get_world_size() == 4 else {}
    for options in ({"fragments": 3}, {"delay": 3}, {"fragments": 2, "delay": 2}, {"every": 1, "delay": 1}, {"every": 4, "common_momentum": True}):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
        optimizer = adamw(model)
        sync = gradsieve.torch.CompressedStep(model, optimizer, "radix", 0.1, **{"every": 6, **options}, **nodes)
        train(model, sync, optimizer, 15)
        sync.exchange()
        assert_same_on_all_ranks(common_of(model, sync), options)
        assert_same_on_all_ranks(model[1].running_mean.double(), options)


def case_what_cannot_be():
    for text, options in (("fragments is 5 and every is 4", {"every": 4, "fragments": 5}),
                          ("fragments is 9, and the model has 8", {"every": 10, "fragments": 9}),
                          ("delay is 3, and exchanges begin 2 steps apart", {"every": 4, "fragments": 2, "delay": 3}),
                          ("delay is 2, and exchanges begin 1 steps apart", {"delay": 2})):
        assert_raises(ValueError, text, lambda options=options: started(**options))
    model, optimizer, sync = started(every=4, fragments=2)
    assert_raises(ValueError, "join() goes without fragments", lambda: sync.join().__enter__())
    (x, y), = batches(1)
    loss_of(model, x, y).backward()
    assert_raises(ValueError, "weight goes with fragments=1", lambda: sync.step(weight=1.0))
    _, _, sync = started(every=4, delay=1)
    assert_raises(ValueError, "join() goes without fragments", lambda: sync.join().__enter__())
    assert_raises(ValueError, 'on_non_finite="fail" goes with fragments=1',
                  lambda: started(every=4, fragments=2, on_non_finite="fail"))
    for mine in ({"every": 4, "fragments": 1 + dist.get_rank()}, {"every": 4, "delay": dist.get_rank()},
                 {"every": 3 + dist.get_rank()}):
        assert_raises(ValueError, "different every, fragments or delay", lambda mine=mine: started(**mine))


test_hook.TWO_RANKS = [case_presets, case_fragments_and_delay_by_another_way, case_nothing_is_lost_in_flight,
                       case_ranks_look_ahead, case_local_steps_with_a_common_momentum, case_a_step_late_with_a_common_momentum,
                       case_nothing_is_lost_a_step_late, case_failures_a_step_late, case_a_step_late_without_a_common_momentum,
                       case_the_bytes_of_a_round_are_spread, case_steps_go_on_while_an_exchange_is_in_flight,
                       case_stopped_in_flight_and_continued_is_as_if_not, case_states_of_other_fragments,
                       case_failures_in_flight, case_what_is_not_finite_in_flight,
                       case_sixteen_bits_and_copies_of_the_weights, case_buffers_and_nodes, case_what_cannot_be]
test_hook.THREE_RANKS = [case_nothing_is_lost_in_flight, case_a_step_late_with_a_common_momentum,
                         case_nothing_is_lost_a_step_late]
test_hook.FOUR_RANKS = [case_buffers_and_nodes]

if __name__ == "__main__":
    test_hook.main()
