"""What local steps promise, on two ranks and for some of it on three: `python3 test_training.py [cases]`."""

import io
import sys

import torch
import torch.distributed as dist
from torch import nn

import gradsieve_ddp
import test_hook
from test_hook import assert_raises, assert_same_on_all_ranks, batches, sgd, small_model, weights


def train(model, outer, optimizer, steps, seed=0):
    for x, y in batches(steps, seed=seed):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        outer.step()


def started(seed=1, **options):
    model = small_model(seed=seed)
    optimizer = sgd(model)
    return model, optimizer, gradsieve_ddp.OuterStep(model, optimizer, **{"every": 4, "density": 0.05, **options})


def case_dense_round_is_the_mean():
    """At density 1 with a plain outer step all ranks take the mean of their weights."""
    model, optimizer, outer = started(density=1.0, recipe="radix", lr=1.0, momentum=0.0)
    alone = small_model()
    apart = sgd(alone)
    for x, y in batches(4):
        apart.zero_grad()
        nn.functional.cross_entropy(alone(x), y).backward()
        apart.step()
    mean = weights(alone)
    dist.all_reduce(mean)
    train(model, outer, optimizer, 4)
    away = (weights(model) - mean / dist.get_world_size()).abs().max().item()
    assert away < 1e-6, away
    assert outer.rounds == 1


def case_ranks_agree_after_rounds_only():
    for recipe, decay in (("chunked+int4", 0.95), ("chunked+int2", 0.95), ("radix+fp16", 1.0), ("laplacian+deft", 0.5)):
        model, optimizer, outer = started(recipe=recipe, decay=decay)
        train(model, outer, optimizer, 40)
        assert_same_on_all_ranks(weights(model), recipe)
        report = outer.report()
        assert report["step"] == 9 and outer.rounds == 10, report
        assert 0 < report["bytes_sent"] < report["baseline_bytes"]
        train(model, outer, optimizer, 2)
        mine = weights(model)
        other = mine.clone()
        dist.broadcast(other, 0)
        assert dist.get_rank() == 0 or not torch.equal(mine, other), "ranks do not train alone"


def case_stopped_and_continued_is_as_if_not():
    for steps in (20, 22):  # between rounds, and in the middle of one
        through, optimizer, outer = started(recipe="chunked+int4", decay=0.95)
        train(through, outer, optimizer, steps, seed=1)
        file = io.BytesIO()
        torch.save([through.state_dict(), optimizer.state_dict(), outer.state_dict()], file)
        train(through, outer, optimizer, 14, seed=2)

        file.seek(0)
        weights_then, inner, unsent = torch.load(file)
        model, optimizer, again = started(seed=7, recipe="chunked+int4", decay=0.95)
        model.load_state_dict(weights_then)
        optimizer.load_state_dict(inner)
        again.load_state_dict(unsent)
        train(model, again, optimizer, 14, seed=2)
        assert torch.equal(weights(model), weights(through)), steps
        assert again.rounds == outer.rounds


def case_decay_lets_the_old_fade():
    """Ranks that stand still send what is left: half of it is gone before each round."""
    model, optimizer, outer = started(every=1, decay=0.5, recipe="radix", passthrough=[])
    train(model, outer, optimizer, 3)
    before = outer.hook.residual_norm()
    outer.exchange()  # no step since: the pseudo-gradient is zero
    after = outer.hook.residual_norm()
    assert 0 < after <= before / 2 * 1.000001, (before, after)


def case_a_round_that_failed_is_tried_again():
    """As if it had not failed, to the bit, though some of its buckets were exchanged."""
    ends = []
    for fails in (False, True):
        model, optimizer, outer = started(every=100, decay=0.5, recipe="radix", on_non_finite="fail")
        train(model, outer, optimizer, 3)
        outer.exchange()
        train(model, outer, optimizer, 3, seed=1)
        if fails:
            norm, before = outer.hook.residual_norm(), weights(model)
            first = next(model.parameters())
            kept = first.detach().clone()
            if dist.get_rank() == 1:
                first.data.fill_(float("nan"))
            assert_raises(RuntimeError, "NaN or infinite", outer.exchange)
            first.data.copy_(kept)
            assert torch.equal(weights(model), before) and outer.rounds == 1
            assert outer.hook.residual_norm() == norm
        outer.exchange()
        assert_same_on_all_ranks(weights(model), "second attempt")
        assert outer.rounds == 2
        ends.append((weights(model), outer.hook.residual_norm(), outer.report()["total_steps"]))
    assert torch.equal(ends[0][0], ends[1][0]) and ends[0][1:] == ends[1][1:], (
        torch.equal(ends[0][0], ends[1][0]), ends[0][1:], ends[1][1:])


def case_profiler_shows_a_round():
    model, optimizer, outer = started()
    with torch.profiler.profile() as profiled:
        train(model, outer, optimizer, 8)
    assert [each.name for each in profiled.events()].count("gradsieve: bucket 0") == 2


def case_what_cannot_be_is_refused():
    model = small_model()
    for text, options in (
        ("every is 0", {"every": 0}),
        ("every is 2.5", {"every": 2.5}),
        ("decay is 1.5", {"decay": 1.5}),
        ("decay goes with error_feedback", {"decay": 0.5, "recipe": "radix+momentum", "momentum": 0.0}),
        ("carries the momentum", {"recipe": "radix+momentum"}),
    ):
        assert_raises((ValueError, TypeError), text, lambda options=options: gradsieve_ddp.OuterStep(
            model, sgd(model), **{"every": 2, **options}))
    assert_raises(ValueError, "bare module", lambda: gradsieve_ddp.OuterStep(
        test_hook.in_buckets(model), sgd(model), every=2))
    model, optimizer, outer = started()
    train(model, outer, optimizer, 2)
    state = outer.state_dict()
    assert_raises(ValueError, "middle of one", lambda: outer.load_state_dict([state, state]))
    assert_raises(ValueError, "lacks a part", lambda: outer.load_state_dict({**state, "version": 9}))


def case_ranks_join_and_leave_between_rounds():
    for old, new in ((3, 2), (2, 3)):
        train_groups = {size: dist.new_group(list(range(size))) for size in (old, new)}
        hook_groups = {size: dist.new_group(list(range(size))) for size in (old, new)}
        states, mine = [None] * 3, None
        if dist.get_rank() < old:
            model, optimizer, outer = started(process_group=train_groups[old], hook_group=hook_groups[old])
            train(model, outer, optimizer, 8)
            mine = outer.state_dict()
        dist.all_gather_object(states, mine)
        states = [each for each in states if each is not None]
        if dist.get_rank() < new:
            model, optimizer, outer = started(seed=9, process_group=train_groups[new], hook_group=hook_groups[new])
            outer.load_state_dict(states)
            begun = torch.cat([each.double().flatten() for each in states[0]["common"]])
            assert torch.equal(weights(model), begun)
            norm = outer.hook.residual_norm()
            assert norm > 0 or dist.get_rank() >= old
            train(model, outer, optimizer, 8, seed=3)
            assert outer.rounds == 4
            found = [torch.zeros_like(begun) for _ in range(new)]
            dist.all_gather(found, weights(model), group=train_groups[new])
            assert all(torch.equal(each, found[0]) for each in found)


test_hook.TWO_RANKS = [
    case_dense_round_is_the_mean,
    case_ranks_agree_after_rounds_only,
    case_stopped_and_continued_is_as_if_not,
    case_decay_lets_the_old_fade,
    case_a_round_that_failed_is_tried_again,
    case_profiler_shows_a_round,
    case_what_cannot_be_is_refused,
]
test_hook.THREE_RANKS = [case_dense_round_is_the_mean, case_ranks_join_and_leave_between_rounds]
test_hook.FOUR_RANKS = []

if __name__ == "__main__":
    test_hook.main()
