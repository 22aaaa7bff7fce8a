"""What CompressedStep promises for models that are sharded inside of a node and replicated across nodes, on two nodes of two
ranks: `python3 test_replicas.py [cases]`. fully_shard() takes torch 2.8; with an older one nothing runs."""

import io
import os
import shutil
import tempfile

import torch
import torch.distributed as dist
from torch import nn

import gradsieve.torch
import test_hook
from gradsieve.torch import _parameters
from test_hook import assert_raises, assert_same_on_all_ranks, batches, sgd, small_model
from test_sharded import VERSION, fsdp

local = _parameters.local


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(x).float(), y)


def mesh_of(names=("across", "inside")):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", (2, 2), mesh_dim_names=names)


def sharded(module, mesh, **options):
    from torch.distributed.fsdp import fully_shard

    for each in module:
        if isinstance(each, nn.Linear):
            fully_shard(each, mesh=mesh, **options)
    return fully_shard(module, mesh=mesh, **options)


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)


def started(mesh=None, model=None, of=adamw, precision=None, **options):
    mesh = mesh if mesh is not None else mesh_of()
    how = {"mp_policy": precision} if precision is not None else {}
    model = sharded(model if model is not None else small_model(), mesh["inside"], **how)
    optimizer = of(model)
    return model, optimizer, gradsieve.torch.CompressedStep(
        model, optimizer, **{"recipe": "radix", "density": 0.1, "process_group": mesh["across"].get_group(), **options})


def train(model, sync, optimizer, steps, seed=0, clip=None):
    losses = []
    for x, y in batches(steps, torch.float32, seed):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        if clip is not None:
            sync.clip_grad_norm_(clip)
        sync.step()
        losses.append(loss.item())
    return losses


def whole(model):
    return torch.cat([each.full_tensor().detach().double().flatten() for each in model.parameters()])


def common_of(model, sync):
    with sync.common_parameters():
        return whole(model)


def both_halves(values):
    """Of the ranks of this node, in order."""
    inside = list(range(dist.get_rank() // 2 * 2, dist.get_rank() // 2 * 2 + 2))
    every = [None] * 4
    dist.all_gather_object(every, values)
    return [every[rank] for rank in inside]


# ---- cases -----------------------------------------------------------------------------------------------------------


def case_each_rank_steps_its_shard():
    """Beside the same made by hand, without fully_shard(): whole weights put together from the shards, the mean of the two
    gradients of a node, and a CompressedStep of each shard. Losses and weights agree to the last bit."""
    place, mesh = dist.get_rank() % 2, mesh_of()
    for recipe, of, common in (("radix+sign", adamw, None), ("laplacian+layerwise+fp16", adamw, False),
                               ("chunked+int4", lambda model: torch.optim.NAdam(model.parameters(), lr=3e-3), None),
                               ("adacomp", lambda model: sgd(model, 0.9), None)):
        options = {"recipe": recipe, "density": test_hook.density_of(recipe, 0.1), "second_moments": False,
                   "common_momentum": common}
        model, optimizer, sync = started(mesh, of=of, **options)
        losses = train(model, sync, optimizer, 12)

        module = small_model()
        shards = nn.ParameterList([nn.Parameter(each.detach().chunk(2)[place].clone()) for each in module.parameters()])
        other = of(shards)
        apart = gradsieve.torch.CompressedStep(shards, other, process_group=mesh["across"].get_group(), **options)
        by_hand = []
        for x, y in batches(12, torch.float32, 0):
            parts = both_halves([each.detach().clone() for each in shards])
            with torch.no_grad():
                for i, each in enumerate(module.parameters()):
                    each.copy_(torch.cat([part[i] for part in parts]))
            module.zero_grad()
            loss = loss_of(module, x, y)
            loss.backward()
            first, second = both_halves([each.grad.clone() for each in module.parameters()])
            for each, a, b in zip(shards, first, second):
                each.grad = ((a + b) / 2).chunk(2)[place]
            apart.step()
            by_hand.append(loss.item())
        for one, its in ((model, sync), (shards, apart)):  # a change of the weights, and no step
            with torch.no_grad():
                for each in one.parameters():
                    each.mul_(0.5)
                    each.grad = None
            its.step()
        assert losses == by_hand, (recipe, losses, by_hand)
        for each, shard in zip(model.parameters(), shards):
            assert torch.equal(local(each), shard.detach()), recipe
        assert sync.report()["bytes_sent"] == apart.report()["bytes_sent"]


def case_dense_exchange_is_that_of_whole_models():
    """At density 1 losses are those of two ranks that have the model whole, to the last bit, AdamW's; and Muon's, whose
    matrix products torch sums up in another order over shards, to rounding."""
    mesh = mesh_of()
    kinds = [(adamw, 0.0)]
    if hasattr(torch.optim, "Muon"):
        kinds.append((lambda model: [torch.optim.Muon([each for each in model.parameters() if each.dim() == 2], lr=0.02),
                                     torch.optim.AdamW([each for each in model.parameters() if each.dim() != 2], lr=3e-3)],
                      0.05))
    for of, away in kinds:
        for options in ({}, {"delay": 1}, {"every": 2}, {"every": 3, "common_momentum": True},
                        {"every": 4, "fragments": 2, "delay": 1}, {"decay": 0.9}):
            options = {"density": 1.0, "second_moments": False, **options}

            def zero(optimizers):
                for each in optimizers if isinstance(optimizers, list) else [optimizers]:
                    each.zero_grad()

            model, optimizer, sync = started(mesh, of=of, **options)
            module = small_model()
            other = of(module)
            apart = gradsieve.torch.CompressedStep(module, other, recipe="radix",
                                                   process_group=mesh["across"].get_group(), **options)
            for x, y in batches(12, torch.float32, 0):
                zero(optimizer)
                loss = loss_of(model, x, y)
                loss.backward()
                sync.step()
                zero(other)
                expected = loss_of(module, x, y)
                expected.backward()
                for each in module.parameters():
                    first, second = both_halves(each.grad.clone())
                    each.grad = (first + second) / 2
                apart.step()
                assert abs(loss.item() - expected.item()) <= away, (loss, expected)
            assert sync.hook._native.residual_norm() == 0


def case_all_ways_to_say_it_are_one():
    """A mesh of two dimensions, whose all-reduce is left out; the group across; nodes()."""
    results = []
    inside, across = gradsieve.torch.nodes(2)
    for mesh, options in ((mesh_of(), {"process_group": mesh_of()["across"].get_group()}),
                          (mesh_of(), {}), (mesh_of(), {"inside": inside, "across": across}),
                          (mesh_of(), {"process_group": across})):
        model = sharded(small_model(), mesh if not options else mesh["inside"])
        optimizer = adamw(model)
        sync = gradsieve.torch.CompressedStep(model, optimizer, density=0.1, **options)
        train(model, sync, optimizer, 8, clip=0.5)
        results.append(torch.cat([local(each).detach().flatten() for each in model.parameters()]))
        common = common_of(model, sync)
        assert_same_on_all_ranks(common, "common parameters")
    for each in results[1:]:
        assert torch.equal(each, results[0])


def case_factors_and_clipping_are_of_the_replica():
    """The same on both ranks inside; near those of whole models; the norm to rounding where nothing is measured."""
    mesh = mesh_of()
    model, optimizer, sync = started(mesh)
    train(model, sync, optimizer, 60)
    module = small_model()
    other = adamw(module)
    apart = gradsieve.torch.CompressedStep(module, other, recipe="radix", density=0.1,
                                           process_group=mesh["across"].get_group())
    for x, y in batches(60, torch.float32, 0):
        other.zero_grad()
        loss_of(module, x, y).backward()
        for each in module.parameters():
            first, second = both_halves(each.grad.clone())
            each.grad = (first + second) / 2
        apart.step()
    assert_same_on_all_ranks(torch.tensor(list(sync.factors().values())), "factors")
    assert sync.factors().keys() == apart.factors().keys()
    for name, factor in sync.factors().items():
        assert 0.5 <= factor <= 1 and abs(factor - apart.factors()[name]) < 0.25, (name, factor, apart.factors()[name])
    model, optimizer, sync = started(mesh)
    for x, y in batches(1, torch.float32, 0):
        loss_of(model, x, y).backward()
        own = torch.cat([each.grad.full_tensor().flatten() for each in model.parameters()]).norm().item()
        every = [None] * 4
        dist.all_gather_object(every, own)
        sync._factors.values = [1.0] * len(sync._own)
        sync._measured = True
        norm = sync.clip_grad_norm_(0.01)
        expected = ((every[0] ** 2 + every[2] ** 2) / 2) ** 0.5
        assert abs(norm - expected) < 1e-5 * expected, (norm, expected)
        after = torch.cat([each.grad.full_tensor().flatten() for each in model.parameters()]).norm().item()
        assert abs(after - own * 0.01 / norm) < 1e-6, (after, own)


def case_a_replica_leaves_a_step_out_together():
    """NaN in a gradient is in the shard of one rank."""
    for fails in (False, True):
        model, optimizer, sync = started(on_non_finite="fail" if fails else "skip")
        train(model, sync, optimizer, 4)
        before = common_of(model, sync)
        (x, y), = batches(1, torch.float32, 9)
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        if dist.get_rank() == 3:
            local(next(model.parameters()).grad).fill_(float("nan"))
        if fails:
            assert_raises(RuntimeError, "dropped on all ranks", sync.step)
            assert torch.equal(before, common_of(model, sync))
        else:
            sync.step()
            assert sync.report()["steps_left_out"] == (dist.get_rank() >= 2), dist.get_rank()
        train(model, sync, optimizer, 2, seed=3)
        assert_same_on_all_ranks(torch.tensor([float(sync._factors._measured), *sync.factors().values()]), "factors")
        assert_same_on_all_ranks(common_of(model, sync), "common parameters")
    model, optimizer, sync = started(on_non_finite="fail", second_moments=False, common_momentum=False)
    train(model, sync, optimizer, 2)
    before = common_of(model, sync)
    (x, y), = batches(1, torch.float32, 9)
    loss_of(model, x, y).backward()
    if dist.get_rank() == 1:  # its optimizer's state is broken in the step
        local(optimizer.state[next(model.parameters())]["exp_avg"]).view(-1)[0] = float("inf")
    assert_raises(RuntimeError, "dropped on all ranks", sync.step)
    assert torch.equal(before, common_of(model, sync))


def case_a_failure_of_one_shard_is_one_of_the_replica():
    for undo in (True, False):
        model, optimizer, sync = started(undo=undo)
        train(model, sync, optimizer, 3)
        before, norm = common_of(model, sync), sync.hook.residual_norm()
        native, exchange = sync.hook._native, sync.hook._native.exchange
        if dist.get_rank() in (0, 2):  # the first shard's
            def failing(*_):
                native.begun = False
                raise MemoryError("no room")
            native.exchange = failing
        first = dist.get_rank() % 2 == 0
        assert_raises((MemoryError, RuntimeError), "no room" if first else "another rank of this replica",
                      lambda: train(model, sync, optimizer, 1, seed=5))
        native.exchange = exchange
        assert torch.equal(before, common_of(model, sync))
        if undo:
            assert abs(sync.hook.residual_norm() - norm) <= 1e-9 * norm
            train(model, sync, optimizer, 2, seed=6)
            assert_same_on_all_ranks(common_of(model, sync), "common parameters")


def case_weights_of_replicas():
    """What a replica's ranks weigh together; a replica of 0 has no part."""
    model, optimizer, sync = started(second_moments=False, density=1.0, common_momentum=False)
    before = common_of(model, sync)
    (x, y), = batches(1, torch.float32, 0)
    loss_of(model, x, y).backward()
    step, moved = optimizer.step, []

    def stepped():
        step()
        moved.append(whole(model) - before)

    optimizer.step = stepped
    sync.step(weight=[1.0, 2.0, 0.5, 0.5][dist.get_rank()])
    every = [None] * 4
    dist.all_gather_object(every, moved[0])
    expected = before + (every[0] * 3 + every[2]) / 4
    assert torch.allclose(common_of(model, sync), expected, atol=1e-7)
    assert_raises(ValueError, "all ranks are 0", lambda: sync.step(weight=0.0))
    assert_raises(ValueError, "from 0 up" if dist.get_rank() == 1 else "weight of another rank",
                  lambda: sync.step(weight=-1.0 if dist.get_rank() == 1 else 1.0))


def case_replicas_with_different_numbers_of_batches():
    model, optimizer, sync = started()
    with sync.join():
        train(model, sync, optimizer, 3 if dist.get_rank() < 2 else 5, clip=1.0)
    assert sync.rounds == 5
    assert_same_on_all_ranks(common_of(model, sync), "common parameters")


def case_buffers_are_of_all_ranks():
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    module[1].running_var.fill_(1.0 + dist.get_rank())
    model, optimizer, sync = started(model=module)
    assert_same_on_all_ranks(model[1].running_var, "statistics to begin with")
    train(model, sync, optimizer, 3)
    assert_same_on_all_ranks(model[1].running_mean, "statistics")
    assert model[1].running_mean.abs().sum() > 0 and "1.running_mean" in sync.describe()


def case_stopped_and_continued_is_as_if_not():
    mesh = mesh_of()
    for options in ({}, {"every": 2, "common_momentum": False}):
        model, optimizer, sync = started(mesh, **options)
        train(model, sync, optimizer, 5)
        file = io.BytesIO()
        torch.save([sync.state_dict(), optimizer.state_dict()], file)
        train(model, sync, optimizer, 5, seed=2)
        file.seek(0)
        state, inner = torch.load(file, weights_only=False)
        other, again, resumed = started(mesh, model=small_model(seed=7), **options)
        resumed.load_state_dict(state)
        again.load_state_dict(inner)
        train(other, resumed, again, 5, seed=2)
        for a, b in zip(model.parameters(), other.parameters()):
            assert torch.equal(local(a), local(b)), options
        every = [None] * 4
        dist.all_gather_object(every, state)
        assert_raises(ValueError, "of other shards", lambda: resumed.load_state_dict(every[dist.get_rank() ^ 1]))
        if not options:
            resumed.load_state_dict(every)  # of all ranks: it takes those of this shard
            assert all(map(torch.equal, resumed._common, state["common"]))
    module = small_model()
    assert_raises(ValueError, "of other shards", lambda: gradsieve.torch.CompressedStep(
        module, adamw(module), "radix", 0.1).load_state_dict(state))


def case_checkpoints_of_torch():
    """Common parameters, and an optimizer's state that has the common momentum inside, go through
    torch.distributed.checkpoint into a model that is whole, and into another number of replicas."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh

    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    mesh_of_replicas = mesh_of()
    model, optimizer, sync = started(mesh_of_replicas)
    train(model, sync, optimizer, 6)
    with sync.common_parameters():
        expected = whole(model)
        weights, states = get_state_dict(model, optimizer)
        momentum = torch.cat([optimizer.state[each]["exp_avg"].full_tensor().flatten() for each in model.parameters()])
        if dist.get_rank() < 2:  # second moments are each replica's own: those of one go together
            dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder[0],
                     process_group=mesh_of_replicas["inside"].get_group())
        dist.broadcast(momentum, 0)
    for mesh in (None, init_device_mesh("cpu", (1, 4), mesh_dim_names=("across", "inside")),
                 init_device_mesh("cpu", (4,), mesh_dim_names=("across",))):
        other = small_model(seed=9)
        if mesh is not None and mesh.ndim == 2:
            other = sharded(other, mesh["inside"])
        again = adamw(other)
        weights, states = get_state_dict(other, again)
        dcp.load({"model": weights, "optimizer": states}, checkpoint_id=folder[0])
        set_state_dict(other, again, model_state_dict=weights, optim_state_dict=states)
        full = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in other.parameters()]
        assert torch.equal(torch.cat([each.detach().double().flatten() for each in full]), expected)
        found = [again.state[each]["exp_avg"] for each in other.parameters()]
        found = torch.cat([(each.full_tensor() if hasattr(each, "full_tensor") else each).flatten() for each in found])
        assert torch.equal(found, momentum) and found.abs().sum() > 0
        resumed = gradsieve.torch.CompressedStep(
            other, again, recipe="radix", density=0.1,
            **({"process_group": mesh["across"].get_group()} if mesh is not None else {}))
        train(other, resumed, again, 2, seed=4)
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder[0])


def case_another_number_of_replicas():
    """A rank takes the states of all ranks with its shard."""
    mesh = mesh_of()
    model, optimizer, sync = started(mesh)
    train(model, sync, optimizer, 4)
    every = [None] * 2
    dist.all_gather_object(every, sync.state_dict(), group=mesh["across"].get_group())
    other, again, resumed = started(mesh, model=small_model(seed=3))
    resumed.load_state_dict([{**every[i % 2], "hook": {**every[i % 2]["hook"], "rank": i, "world": 4}} for i in range(4)])
    assert torch.equal(common_of(model, sync), common_of(other, resumed))
    train(other, resumed, again, 2)
    assert_same_on_all_ranks(common_of(other, resumed), "common parameters")


def case_precision_scaler_and_uneven_shards():
    from torch.distributed.fsdp import MixedPrecisionPolicy

    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1), nn.Linear(1, 4))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model, optimizer, sync = started(model=module, precision=half, density=0.2, passthrough_up_to=5)
    train(model, sync, optimizer, 5, clip=1.0)
    assert_same_on_all_ranks(common_of(model, sync), "common parameters")
    assert "passes" in sync.describe() or "pass through" in sync.describe()
    model, optimizer, sync = started()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step, (x, y) in enumerate(batches(6, torch.float32, 1)):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, x, y)).backward()
        if step == 2 and dist.get_rank() == 1:
            local(next(model.parameters()).grad).view(-1)[0] = float("inf")
        sync.step(scaler=scaler)
    scales = [None] * 4
    dist.all_gather_object(scales, scaler.get_scale())
    assert scales[0] == scales[1] == 2.0**9 and scales[2] == scales[3] == 2.0**10, scales
    assert_same_on_all_ranks(common_of(model, sync), "common parameters")
    model, optimizer, sync = started(model=small_model(torch.bfloat16))
    assert sync._common[0].dtype == torch.float32


def case_an_evaluation_leaves_nothing_gathered():
    """The outermost unit stays gathered after a forward pass without a backward pass."""
    model, optimizer, sync = started(density=0.05)
    other, again, apart = started(density=0.05)
    for step in range(4):
        train(model, sync, optimizer, 1, seed=step)
        train(other, apart, again, 1, seed=step)
        with sync.common_parameters(), torch.no_grad():
            losses = [loss_of(model, x, y).item() for x, y in batches(1, torch.float32, 50)]
            assert losses
        with torch.no_grad():
            model(next(iter(batches(1, torch.float32, 51)))[0])
    for a, b in zip(sync._own, apart._own):
        assert torch.equal(local(a), local(b))


def case_momentum_goes_from_dense_to_compressed_and_back():
    """As of models that are whole: a dense run goes on from the state inside common_parameters()."""
    mesh = mesh_of()
    model = sharded(small_model(), mesh["inside"])
    optimizer = adamw(model)
    for x, y in batches(5, torch.float32, 0):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
    sync = gradsieve.torch.CompressedStep(model, optimizer, recipe="radix", density=0.1,
                                          process_group=mesh["across"].get_group())
    assert all(each.steps == 5 for each in sync._momentum._held.values())
    with sync.common_parameters():
        held = optimizer.state[sync._own[0]]["exp_avg"]
        assert hasattr(held, "device_mesh") and held.placements == sync._own[0].placements
        assert held.shape == sync._own[0].shape and held.full_tensor().abs().sum() > 0
    train(model, sync, optimizer, 3)
    assert_same_on_all_ranks(common_of(model, sync), "common parameters")


def case_tensor_parallel_inside():
    """Norms and biases that all ranks inside have stay alike, and are exchanged once."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = mesh_of()
    torch.manual_seed(4)
    module = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
    reference = [each.detach().clone() for each in module.parameters()]
    model = parallelize_module(module, mesh["inside"], {"1": ColwiseParallel(), "3": RowwiseParallel()})
    optimizer = adamw(model)
    sync = gradsieve.torch.CompressedStep(model, optimizer, recipe="radix", density=0.1,
                                          process_group=mesh["across"].get_group())
    for step in range(8):
        x, y = next(iter(batches(1, torch.float32, step)))
        first = dist.get_rank() // 2 * 2
        for each in (x, y):  # ranks inside have the same samples
            dist.broadcast(each, first, group=mesh["inside"].get_group())
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        sync.clip_grad_norm_(1.0)
        sync.step()
    with sync.common_parameters():
        full = [each.full_tensor() if hasattr(each, "full_tensor") else each.detach() for each in model.parameters()]
        assert_same_on_all_ranks(torch.cat([each.double().flatten() for each in full]), "common parameters")
        assert all(not torch.equal(a, b) for a, b in zip(full, reference))
    mine = torch.cat([each.detach().double().flatten() for each in model.parameters() if not hasattr(each, "device_mesh")])
    first, second = both_halves(mine)
    assert len(mine) and torch.equal(first, second)
    tp, group = mesh["inside"], mesh["across"].get_group()  # one rank inside has no changes at first
    model = nn.ParameterList([nn.Parameter(distribute_tensor(torch.ones(1, 8), tp, [Shard(0)])),
                              nn.Parameter(distribute_tensor(torch.ones(8), tp, [Replicate()]))])
    sync = gradsieve.torch.CompressedStep(model, torch.optim.Adam(model.parameters()), "radix", 1.0, delay=1,
                                          process_group=group)
    for step in range(6):
        for number, each in enumerate(model):
            gradient = torch.full_like(each.to_local(), float(number == 0 or step > 2))
            each.grad = DTensor.from_local(gradient, tp, each.placements, shape=each.shape, stride=each.stride())
        sync.step()
    sync.exchange()
    assert (model[1].to_local() < 1).all()


def case_sequence_parallel_gradients_are_completed():
    """Those of norms are sums over the ranks inside: moments, norms and steps are of whole models."""
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, PrepareModuleInput, SequenceParallel,
                                                   parallelize_module)
    from torch.distributed.tensor import Replicate, Shard

    mesh = mesh_of()

    def made():
        torch.manual_seed(4)
        return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 16), nn.LayerNorm(16))

    plan = {"0": SequenceParallel(sequence_dim=0), "1": ColwiseParallel(input_layouts=Shard(0)),
            "3": RowwiseParallel(output_layouts=Shard(0)), "4": SequenceParallel(sequence_dim=0)}
    model = parallelize_module(made(), mesh["inside"], plan)
    parallelize_module(model, mesh["inside"], PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(0)))
    whole_model = made()
    syncs = [gradsieve.torch.CompressedStep(each, torch.optim.AdamW(each.parameters(), lr=3e-3), recipe="radix", density=1.0,
                                            second_moments=False, process_group=mesh["across"].get_group())
             for each in (model, whole_model)]
    for step in range(6):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + dist.get_rank() // 2))
        norms = []
        for each, sync in zip((model, whole_model), syncs):
            each.zero_grad()
            out = each(x)
            loss = (out.full_tensor() if hasattr(out, "full_tensor") else out)
            if each is model and not hasattr(out, "full_tensor"):
                from torch.distributed.tensor import DTensor
                loss = DTensor.from_local(out, mesh["inside"], [Shard(0)]).full_tensor()
            (loss ** 3).mean().backward()
            sync._factors.values, sync._measured = [1.0] * len(sync._own), True
            norms.append(sync.clip_grad_norm_(0.1))
            sync.step()
        assert abs(norms[0] - norms[1]) < 1e-4 * norms[1], norms
    with syncs[0].common_parameters(), syncs[1].common_parameters():
        for a, b in zip(model.parameters(), whole_model.parameters()):
            a = a.full_tensor() if hasattr(a, "full_tensor") else a
            assert torch.allclose(a, b, atol=1e-5), (a - b).abs().max()


class Masters(torch.optim.SGD):
    """Steps weights of 32 bits in its state, and rounds them to the parameters."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    master = self.state[each].setdefault("master", each.detach().float())
                    master.add_(each.grad.float(), alpha=-group["lr"])
                    each.copy_(master)


def case_masters_where_a_shard_is_empty():
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1)).bfloat16()
    model, optimizer, sync = started(model=module, of=lambda model: Masters(model.parameters(), lr=0.05), density=1.0)
    for x, _ in batches(6, torch.bfloat16, dist.get_rank()):
        optimizer.zero_grad()
        (model(x) - 1).square().mean().backward()
        sync.step()
    assert [name for _, name in sync._copies] == ["master"]
    for each in model.parameters():
        master = local(optimizer.state[each]["master"])
        pair = [torch.empty_like(master) for _ in range(2)]
        if master.numel():
            dist.all_gather(pair, master.contiguous(), group=sync._group)
            assert torch.equal(*pair) and torch.equal(master.bfloat16(), local(each)), (master, local(each))


def case_the_all_reduce_comes_back():
    """Of a mesh of two dimensions: after an object that was refused, and after one that has gone."""
    import gc

    def averages(model):
        (x, y), = batches(1, torch.float32, dist.get_rank())
        model.zero_grad()
        loss_of(model, x, y).backward()
        gradient = torch.cat([each.grad.full_tensor().flatten() for each in model.parameters()])
        every = [torch.empty_like(gradient) for _ in range(4)]
        dist.all_gather(every, gradient)
        return torch.equal(every[0], every[2])

    model = sharded(small_model(), mesh_of())
    assert averages(model)
    assert_raises(ValueError, "local_weight", lambda: gradsieve.torch.CompressedStep(
        model, adamw(model), "radix+momentum", 0.1, local_weight=0.5))
    assert averages(model)
    syncs = [gradsieve.torch.CompressedStep(model, adamw(model), "radix", 0.1) for _ in range(2)]
    for _ in range(2):
        assert not averages(model)
        syncs.pop()
        gc.collect()
    assert averages(model)


def case_one_replica():
    """Clipping is that of a whole model, with tensor parallelism too."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (1, 4), mesh_dim_names=("across", "inside"))
    for parallel in (False, True):
        torch.manual_seed(4)
        module = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4))
        (x, y), = batches(1, torch.float32, 0)
        dist.broadcast(x, 0)
        dist.broadcast(y, 0)
        loss_of(module, x, y).backward()
        expected = torch.cat([each.grad.flatten() for each in module.parameters()]).norm().item()
        module.zero_grad()
        model = (parallelize_module(module, mesh["inside"], {"1": ColwiseParallel(), "3": RowwiseParallel()}) if parallel else
                 sharded(module, mesh["inside"]))
        sync = gradsieve.torch.CompressedStep(model, adamw(model), "radix", 0.1, process_group=mesh["across"].get_group())
        loss_of(model, x, y).backward()
        norm = sync.clip_grad_norm_(0.1)
        assert abs(norm - expected) < 1e-5 * expected, (norm, expected)
        sync.step()


def case_fail_where_a_rank_has_nothing():
    torch.manual_seed(6)
    for every in (1, 2):
        model, optimizer, sync = started(model=nn.Sequential(nn.Linear(16, 1, bias=False)), on_non_finite="fail", every=every,
                                         common_momentum=False)
        for step, (x, _) in enumerate(batches(3 * every, torch.float32, 0)):
            optimizer.zero_grad()
            (model(x) ** 2).mean().backward()
            if step == every and dist.get_rank() == 0:
                local(model[0].weight.grad).fill_(float("nan"))
            if step == 2 * every - 1:
                assert_raises(RuntimeError, "dropped on all ranks", sync.step)
            else:
                sync.step()
        assert sync.rounds == 2
        assert_same_on_all_ranks(common_of(model, sync), "common parameters")


def case_what_cannot_be_is_refused():
    mesh = mesh_of()

    def step(model, **options):
        return gradsieve.torch.CompressedStep(model, adamw(model), **options)

    across = mesh["across"].get_group()
    assert_raises(ValueError, "process_group=mesh['across']", lambda: step(sharded(small_model(), mesh["inside"])))
    assert_raises(ValueError, "flattens parameters", lambda: step(fsdp(small_model(), mesh["inside"].get_group())))
    assert_raises(ValueError, "the ones to exchange with",
                  lambda: step(sharded(small_model(), mesh["inside"]), process_group=mesh["inside"].get_group()))
    assert_raises(ValueError, "the model is replicated on",
                  lambda: step(sharded(small_model(), mesh), process_group=mesh["inside"].get_group()))
    assert_raises(ValueError, "the model is sharded among", lambda: step(
        sharded(small_model(), mesh["inside"]), inside=across, across=across))
    mixed = nn.Sequential(sharded(small_model(), mesh["inside"]), nn.Linear(4, 4))
    assert_raises(ValueError, "'1.weight' is not sharded", lambda: step(mixed, process_group=across))
    turned = mesh_of(("inside", "across"))
    assert_raises(ValueError, "different recipes", lambda: step(sharded(small_model(), mesh["inside"]), process_group=across,
                                                                density=0.1 + 0.1 * (dist.get_rank() % 2)))
    both = nn.Sequential(sharded(small_model(), mesh["inside"]), sharded(small_model(), turned["inside"]))
    assert_raises(ValueError, "", lambda: step(both, process_group=across))
    assert_raises((TypeError, ValueError), "process_group", lambda: step(sharded(small_model(), mesh["inside"]),
                                                                        process_group=3))
    torch.manual_seed(6)  # the second rank inside has nothing
    model, optimizer, sync = started(mesh, model=nn.Sequential(nn.Linear(16, 1, bias=False)))
    for x, _ in batches(3, torch.float32, 0):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        sync.clip_grad_norm_(1.0)
        sync.step()
    assert sync.rounds == 3
    assert_same_on_all_ranks(common_of(model, sync), "common parameters")


if __name__ == "__main__":
    test_hook.TWO_RANKS = test_hook.THREE_RANKS = []  # of test_sharded
    test_hook.FOUR_RANKS = [each for name, each in list(globals().items()) if name.startswith("case_")]
    if VERSION < (2, 8):
        print(f"test_replicas.py: skipped: fully_shard() takes torch 2.8, this is {torch.__version__}")
    else:
        test_hook.main()
