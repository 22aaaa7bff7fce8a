"""What the hook promises for sharded models, on two and four ranks: `python3 test_sharded.py [cases]`.

The exchange of shards is tested with every torch; FSDP itself where torch has it for the CPU: 2.15 was
run; older ones than 2.4, and for FSDP2 than 2.8, are skipped.
"""

import copy
import functools
import io

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

import gradsieve.torch
import test_hook
from gradsieve.torch import _shards
from test_hook import assert_raises, batches, in_buckets, sgd, small_model, train, weights

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
FSDP_ON_CPU = VERSION >= (2, 4)
FSDP2 = VERSION >= (2, 8)


def group_of(inside):
    return dist.group.WORLD if inside is None else inside


def fsdp(module, inside=None, **options):
    """Units of one layer each, and of what is left."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    return FullyShardedDataParallel(module, process_group=group_of(inside), device_id=torch.device("cpu"),
                                    auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), **options)


def fsdp2(module, inside=None, **options):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group_of(inside), "cpu")
    for each in module:
        if isinstance(each, nn.Linear):
            fully_shard(each, mesh=mesh, **options)
    return fully_shard(module, mesh=mesh, **options)


def kinds():
    return [fsdp] * FSDP_ON_CPU + [fsdp2] * FSDP2


def whole_weights(model):
    """All ranks' shards together, in the order of the bare model."""
    if _shards.kind_of(model) == "FSDP2":
        return torch.cat([each.full_tensor().detach().double().flatten() for each in model.parameters()])
    from torch.distributed.fsdp import FullyShardedDataParallel
    with FullyShardedDataParallel.summon_full_params(model):
        return weights(model).clone()


def needs_fsdp(case):
    @functools.wraps(case)
    def run():
        if kinds():
            return case()
        if dist.get_rank() == 0:
            print(f"  skipped: FSDP of torch {torch.__version__} is for GPUs; it takes torch 2.4, and FSDP2 2.8")
    return run


# ---- cases -----------------------------------------------------------------------------------------------------------


def case_shards_are_what_ddp_leaves():
    """Without FSDP: as one unit, the shards together are the gradient that DDP's hook makes of the same, to the bit."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for recipe in ("radix", "laplacian+layerwise+momentum", "radix+fp16", "chunked", "adacomp"):
        sizes = [("0.weight", 96), ("0.bias", 8), ("1.weight", 37), ("1.bias", 3)]
        each = -(-sum(size for _, size in sizes) // world)
        ends, at = [], 0
        for name, size in sizes:
            at += size
            ends.append((name, at))
        ends[-1] = (ends[-1][0], each * world)  # filled up
        unit = _shards.Unit("one", dist.group.WORLD, _shards._cut(ends, each, world), dict(sizes), None)
        pieces = [(f"{name}[{r}]", size) for r, part in enumerate(unit.pieces) for name, size in part]
        assert sum(size for _, size in pieces) == unit.size == each * world

        def native(shards, pieces=pieces, recipe=recipe):
            wishes = gradsieve.torch._native.Wishes()
            wishes.recipe, wishes.passthrough, wishes.on_non_finite = recipe, ["*bias*[*]"], "skip"
            wishes.density = test_hook.density_of(recipe, 0.1)
            return gradsieve.torch._native.ShardHook(
                wishes=wishes, group=dist.new_group(), shards=shards, sizes=[size for _, size in pieces],
                names=[name for name, _ in pieces], counts=[len(pieces)], threads=1)

        apart, together = native(True), native(False)
        exchange = _shards.ShardExchange(apart, [unit], None)
        generator = torch.Generator().manual_seed(rank)
        for step in range(5):
            gradient = torch.randn(unit.size, generator=generator)
            whole, shard = gradient.clone(), torch.empty(each)
            exchange._exchange(0, gradient, shard)
            together.end_step()
            together.exchange(0, whole)
            expected = whole.view(world, -1)[rank]
            if "fp16" not in recipe:
                assert torch.equal(shard, expected), f"{recipe}, step {step}: {(shard - expected).abs().max()}"
            assert torch.allclose(shard, expected, atol=2e-3) and shard.abs().sum() > 0
        assert apart.report()["step"] == 4 and apart.report()["total_steps"] == 5
        state = apart.state()
        again = native(True)
        again.restore(state)
        assert again.residual_norm() == apart.residual_norm() > 0


@needs_fsdp
def case_density_one_is_plain_fsdp():
    for shard in kinds():
        plain = shard(small_model())
        train(plain, sgd(plain), 10)
        model = shard(small_model())
        hook = gradsieve.torch.register(model, density=1.0)
        train(model, sgd(model), 10)
        away = (whole_weights(plain) - whole_weights(model)).abs().max().item()
        assert away < 1e-6, f"{shard.__name__}: {away}"
        assert hook.report()["step"] == 9


@needs_fsdp
def case_loss_beside_ddp():
    """One selection over all of the model, or one a unit: training goes as well. Prints both."""
    for recipe in ("radix", "radix+layerwise+fp16", "laplacian+momentum+int8", "chunked", "adacomp"):
        momentum = 0.0 if "momentum" in recipe else 0.9
        losses = {}
        for wrap in (in_buckets, *kinds()):
            model = wrap(small_model())
            hook = gradsieve.torch.register(model, recipe, test_hook.density_of(recipe, 0.1))
            optimizer = sgd(model, momentum)
            for epoch in range(12):  # the same few batches, which can be learnt
                loss = train(model, optimizer, 5)
            total = torch.tensor(loss)
            dist.all_reduce(total)
            losses[wrap.__name__] = total.item() / dist.get_world_size()
            report = hook.report()
            assert 0 < report["bytes_sent"] < report["baseline_bytes"], report
            assert report["total_steps"] == 60, report
        if dist.get_rank() == 0:
            print(f"  {recipe}: loss " + ", ".join(f"{name} {loss:.3f}" for name, loss in losses.items()))
        for name, loss in losses.items():
            assert loss < 1.3, f"{name} does not learn: {losses}"
            assert abs(loss - losses["in_buckets"]) < 0.25, losses


@needs_fsdp
def case_stopped_and_continued_is_as_if_not():
    for shard in kinds():
        for recipe in ("radix", "laplacian+layerwise+momentum", "radix+int4"):
            momentum = 0.0 if "momentum" in recipe else 0.9
            model = shard(small_model())
            hook = gradsieve.torch.register(model, recipe, density=0.05, warmup=20)
            optimizer = sgd(model, momentum)
            train(model, optimizer, 10, seed=1)
            file = io.BytesIO()
            torch.save([[local(each) for each in model.parameters()], local_state(optimizer), hook.state_dict()], file)
            train(model, optimizer, 10, seed=2)

            file.seek(0)
            shards, inner, unsent = torch.load(file)
            other = shard(small_model(seed=5))
            again = gradsieve.torch.register(other, recipe, density=0.05, warmup=20)
            again.load_state_dict(unsent)
            optimizer = sgd(other, momentum)
            with torch.no_grad():
                for each, saved in zip(other.parameters(), shards):
                    local(each).copy_(saved)
                    if momentum:
                        optimizer.state[each]["momentum_buffer"] = each.detach().clone()
                        local(optimizer.state[each]["momentum_buffer"]).copy_(inner.pop(0))
            train(other, optimizer, 10, seed=2)
            assert torch.equal(whole_weights(model), whole_weights(other)), (shard.__name__, recipe)
            report = again.report()
            assert report["step"] == 19 and report["total_steps"] == 20, report


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor.detach()


def local_state(optimizer):
    found = [optimizer.state[each].get("momentum_buffer")
             for group in optimizer.param_groups for each in group["params"]]
    return [local(each) for each in found if each is not None]


@needs_fsdp
def case_accumulation_mixed_precision_and_discard():
    for shard in kinds():
        if shard is fsdp:
            from torch.distributed.fsdp import MixedPrecision
            precision = {"mixed_precision": MixedPrecision(reduce_dtype=torch.bfloat16)}
        else:
            from torch.distributed.fsdp import MixedPrecisionPolicy
            precision = {"mp_policy": MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)}
        model = shard(small_model(), **precision)
        hook = gradsieve.torch.register(model, density=0.05)
        optimizer = sgd(model)
        train(model, optimizer, 5)
        assert hook.report()["baseline_bytes"] < 3 * len(whole_weights(model)), "gradients were not 16-bit"
        for x, y in batches(4):  # of which each exchanges
            nn.functional.cross_entropy(model(x), y).backward()
        assert hook.report()["step"] == 8
        if shard is fsdp:
            with model.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()
        else:
            model.set_requires_gradient_sync(False)
            nn.functional.cross_entropy(model(x), y).backward()
            model.set_requires_gradient_sync(True)
        assert hook.report()["step"] == 8
        norm = hook.residual_norm()
        hook.discard_step()
        assert hook.residual_norm() > norm
        norm = hook.residual_norm()
        hook.rescale(0.5)
        assert abs(hook.residual_norm() - norm / 2) < 1e-6 * norm


@needs_fsdp
def case_units_that_some_steps_do_without():
    """What a discarded step takes back is of the units that were in it."""
    class TwoHeads(nn.Sequential):
        def forward(self, x, head):
            return self[1 + head](self[0](x))

    for shard in kinds():
        torch.manual_seed(3)
        model = shard(TwoHeads(nn.Linear(16, 8), nn.Linear(8, 4), nn.Linear(8, 4)))
        hook = gradsieve.torch.register(model, density=0.1)
        for step, (x, y) in enumerate(batches(6)):
            model.zero_grad()
            nn.functional.cross_entropy(model(x, step % 2), y).backward()
            assert hook.report()["total_steps"] == step + 1
        before = states_of(hook)
        for changed in ({"0", "2"}, set()):  # the head of the last step, and nothing twice
            hook.discard_step()
            after = states_of(hook)
            assert {name[0] for name in before if not torch.equal(before[name], after[name])} == changed, shard.__name__
            before = after


def states_of(hook):
    return {name: state for names, state in hook.state_dict()["groups"] for name in names}


@needs_fsdp
def case_nodes():
    """Hybrid: shards inside of nodes of two, compressed across; at density 1 as DDP over all."""
    for shard in kinds():
        plain = in_buckets(small_model())
        train(plain, sgd(plain), 10)
        inside, across = gradsieve.torch.nodes(2)
        model = shard(small_model(seed=1 + dist.get_rank() // 2), inside)  # the second node takes the first's weights
        hook = gradsieve.torch.register(model, density=1.0, inside=inside, across=across)
        train(model, sgd(model), 10)
        assert torch.allclose(weights(plain), whole_weights(model), atol=1e-6), shard.__name__

        model = shard(small_model(), inside)
        hook = gradsieve.torch.register(model, "laplacian+deft+momentum", density=0.05, inside=inside, across=across)
        train(model, sgd(model, 0.0), 10)
        test_hook.assert_same_on_all_ranks(whole_weights(model), shard.__name__)
        report = hook.report()
        assert report["world"] == 2 and 0 < report["bytes_sent"] < report["baseline_bytes"]
        state = hook.state_dict()
        assert (state["rank"], state["world"]) == (dist.get_rank(), 4)
        hook.load_state_dict(state)
        assert_raises(ValueError, "sharded among 2 ranks, inside has 4", lambda: gradsieve.torch.register(
            shard(small_model(), inside), inside=dist.group.WORLD, across=across))


@needs_fsdp
def case_profiler_and_infinities():
    """A range a unit, and one warning where much of the gradient stays infinite."""
    for shard in kinds():
        model = shard(small_model())
        gradsieve.torch.register(model, density=0.05)
        optimizer = sgd(model)
        with torch.profiler.profile() as profiled:
            train(model, optimizer, 3)
        names = [each.name for each in profiled.events() if each.name.startswith("gradsieve: unit ")]
        assert {names.count(f"gradsieve: unit {layer}") for layer in ("0", "3", "5", "root")} == {3}, names

        def overflow(model=model):
            for x, y in batches(30):
                (nn.functional.cross_entropy(model(x), y) * float("inf")).backward()

        told = test_hook.warnings_of(overflow)
        assert len(told) == 1 and "scaler_step" in told[0], told


class Checkpointed(nn.Sequential):
    """Each of its linear layers has a backward pass of its own inside of the model's."""

    factor = 1.0  # of the first layer's gradient

    def forward(self, x):
        x.requires_grad_()
        for i, each in enumerate(self):
            x = checkpoint(each, x, use_reentrant=True) if i in (0, 3, 5) else each(x)
            if i == 0:
                x.register_hook(lambda gradient: gradient * self.factor)
        return x


@needs_fsdp
def case_passes_inside_of_a_pass():
    for shard in kinds():
        module = Checkpointed(*small_model())
        model = shard(module)
        hook = gradsieve.torch.register(model, density=0.1, on_non_finite="fail")
        optimizer = sgd(model, 0)
        train(model, optimizer, 3)
        assert hook.report()["total_steps"] == 3
        norm = hook.residual_norm()
        module.factor = float("nan")  # in the last unit of the pass
        assert_raises(RuntimeError, "what it was before the step", lambda: train(model, optimizer, 1, seed=1))
        assert abs(hook.residual_norm() - norm) < 1e-9 * norm
        module.factor = 1.0
        train(model, optimizer, 2, seed=2)
        hook.undo_step()
        assert hook.report()["total_steps"] == 6


@needs_fsdp
def case_a_failure_across_is_one_of_the_whole_node():
    class Failing:
        def end_step(self):
            pass

        def exchange(self, unit, shard):
            if dist.get_rank() == 0:
                raise MemoryError("no room")

    unit = _shards.Unit("one", dist.group.WORLD, [[("one", 4)]] * 2, {"one": 8}, None)
    exchange = _shards.ShardExchange(Failing(), [unit], dist.group.WORLD)
    assert_raises((MemoryError, RuntimeError), "no room" if dist.get_rank() == 0 else "another rank of this node",
                  lambda: exchange._exchange(0, torch.ones(8), torch.empty(4)))


@needs_fsdp
def case_units_after_one_that_failed():
    """Are left out, but on a GPU, where ranks hear of a failure in different units."""
    class Failing:
        def __init__(self):
            self.units = []

        def end_step(self):
            pass

        def exchange(self, unit, gradient):
            self.units.append(unit)
            if unit == 0:
                raise RuntimeError("in the stream")

    for device, exchanged in (("cpu", [0]), ("cuda", [0, 1])):
        native = Failing()
        units = [_shards.Unit(name, dist.group.WORLD, [[(name, 4)]] * 2, {name: 8}, None, device=torch.device(device))
                 for name in ("first", "second")]
        exchange = _shards.ShardExchange(native, units, None)
        loss = 2 * torch.ones(1, requires_grad=True)

        def both(_, exchange=exchange):
            for number in range(2):
                exchange._exchange(number, torch.ones(8), torch.empty(4))
        loss.register_hook(both)
        assert_raises(RuntimeError, "in the stream", loss.backward)
        assert native.units == exchanged


@needs_fsdp
def case_what_cannot_be_is_refused():
    for shard in kinds():
        model = shard(small_model())
        assert_raises(ValueError, "module '0' is sharded, the model around it is not",
                      lambda: gradsieve.torch.register(nn.Sequential(shard(small_model()), nn.Linear(4, 4))))
        gradsieve.torch.register(torch.compile(shard(small_model())))
        for text, arguments in (
            ("partitioner deft shares out", {"recipe": "radix+deft"}),
            ("partitioner cyclic shares out", {"recipe": "radix+cyclic"}),
            ("'best' is none of", {"recipe": "best"}),
            ("which density 1 does not use", {"recipe": "radix+fp16", "density": 1.0}),
            ("route is 'cpp'", {"route": "cpp"}),
            ("has no option 'levels'", {"levels": 4}),
        ):
            assert_raises((ValueError, RuntimeError), text,
                          lambda arguments=arguments: gradsieve.torch.register(model, **arguments))
        hook = gradsieve.torch.register(model, "radix", 0.1)
        assert_raises((ValueError, AssertionError), "already", lambda: gradsieve.torch.register(model))
        assert_raises(ValueError, "units, which", hook.trace)
        train(model, sgd(model), 2)
        state = hook.state_dict()
        assert_raises(ValueError, "is of 9 ranks", lambda: hook.load_state_dict({**state, "world": 9}))
        three = [{**copy.deepcopy(state), "rank": rank, "world": 3} for rank in range(3)]
        assert_raises(ValueError, "shards that depend on their number", lambda: hook.load_state_dict(three))
        frozen = small_model()
        for each in frozen.parameters():
            each.requires_grad_(False)
        assert_raises(ValueError, "nothing to compress", lambda: gradsieve.torch.register(shard(frozen)))
        assert_raises(ValueError, "fully_shard(", lambda: gradsieve.torch.CompressedStep(model, sgd(model)))
    gradsieve.torch.register(fsdp(torch.compile(small_model())))
    from torch.distributed.fsdp import CPUOffload, ShardingStrategy
    assert_raises(ValueError, "NO_SHARD", lambda: gradsieve.torch.register(
        fsdp(small_model(), sharding_strategy=ShardingStrategy.NO_SHARD)))
    assert_raises(ValueError, "CPUOffload", lambda: gradsieve.torch.register(
        fsdp(small_model(), cpu_offload=CPUOffload(offload_params=True))))
    if not FSDP2:
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard
    flat = fully_shard(small_model(), mesh=init_device_mesh("cpu", (1, 2), mesh_dim_names=("across", "inside")))
    assert_raises(ValueError, "mesh of 2 dimensions", lambda: gradsieve.torch.register(flat))
    wide = fully_shard(nn.Linear(8, 8, bias=False), mesh=init_device_mesh("cpu", (2,)),
                       shard_placement_fn=lambda _: Shard(1))
    assert_raises(ValueError, "along dimension 1", lambda: gradsieve.torch.register(wide))
    divided = fsdp2(small_model())
    gradsieve.torch.register(divided)
    for each in divided.modules():
        if hasattr(each, "set_gradient_divide_factor"):
            each.set_gradient_divide_factor(3.0)
    assert_raises(RuntimeError, "set_gradient_divide_factor", lambda: train(divided, sgd(divided), 1))


test_hook.TWO_RANKS = [
    case_shards_are_what_ddp_leaves,
    case_density_one_is_plain_fsdp,
    case_loss_beside_ddp,
    case_stopped_and_continued_is_as_if_not,
    case_accumulation_mixed_precision_and_discard,
    case_units_that_some_steps_do_without,
    case_profiler_and_infinities,
    case_passes_inside_of_a_pass,
    case_a_failure_across_is_one_of_the_whole_node,
    case_units_after_one_that_failed,
    case_what_cannot_be_is_refused,
]
test_hook.THREE_RANKS = [case_shards_are_what_ddp_leaves]
test_hook.FOUR_RANKS = [case_density_one_is_plain_fsdp, case_loss_beside_ddp, case_nodes]

if __name__ == "__main__":
    test_hook.main()
