"""What the hook promises, on two ranks and for some of it on three or four: `python3 test_hook.py [cases]`.

Every case is a function that all ranks run; one that fails ends the program with its traceback.
"""

import copy
import datetime
import inspect
import itertools
import os
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsieve.torch

WIDTH = 24
TIMEOUT = datetime.timedelta(minutes=20)


def small_model(dtype=torch.float32, seed=1):
    torch.manual_seed(seed)
    layers = [nn.Linear(16, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 4)).to(dtype)


def in_buckets(module, **options):
    """With several small buckets, so that DDP forms them anew after the first step."""
    return DistributedDataParallel(module, bucket_cap_mb=2e-3, **options)


def batches(steps, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    for _ in range(steps):
        yield torch.randn(8, 16, generator=generator).to(dtype), torch.randint(0, 4, (8,), generator=generator)


def train(model, optimizer, steps, dtype=torch.float32, seed=0):
    for x, y in batches(steps, dtype, seed):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).float() if dtype == torch.bfloat16 else model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def sgd(model, momentum=0.9):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)


def weights(model):
    return torch.cat([each.detach().double().flatten() for each in model.parameters()])


def assert_same_on_all_ranks(values, what):
    everyone = [torch.zeros_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, values)
    for rank, theirs in enumerate(everyone):
        assert torch.equal(theirs, everyone[0]), f"{what}: rank {rank} differs from rank 0"


def assert_raises(error, text, body):
    try:
        body()
    except error as raised:
        assert text in str(raised), f"'{raised}' does not say '{text}'"
        return
    raise AssertionError(f"nothing was raised, expected {error.__name__} with '{text}'")


def every_recipe():
    """Each combination that there is, with the codecs by turns."""
    combinations = [
        "+".join(parts)
        for parts in itertools.product(
            ("radix", "hierarchical", "laplacian"),
            ("whole", "layerwise", "deft"),
            ("none", "error_feedback", "momentum"),
        )
    ]
    combinations += ["radix+cyclic", "laplacian+cyclic", "radix+cyclic+filtered", "adacomp", "chunked"]
    combinations += ["radix+micro", "laplacian+micro", "trimmed", "threshold_search", "ldte", "sidco"]
    indices, values = gradsieve.torch.index_codecs, gradsieve.torch.value_codecs
    codecs = ["", "+coo"] + [
        f"+{indices[turn % len(indices)]}+{values[turn % len(values)]}" for turn in range(len(indices) * len(values))
    ]

    def fits(name, codec):  # deft, cyclic and micro sum up values
        sums = any(summing in name for summing in ("deft", "cyclic", "micro"))
        return not sums or codec in ("", "+coo") or codec.endswith(("fp32", "fp16", "bf16"))

    chosen = []
    for i, name in enumerate(combinations):
        by_turns = [codecs[(i + more) % len(codecs)] for more in range(len(codecs))]
        chosen.append(name + next(codec for codec in by_turns if fits(name, codec)))
    return chosen


def density_of(recipe, density):
    """adacomp decides for itself."""
    return None if "adacomp" in recipe else density


# ---- cases -----------------------------------------------------------------------------------------------------------


def case_density_one_is_plain_ddp():
    for dtype, route in itertools.product((torch.float64, torch.float32), ("python", "cpp")):
        plain = in_buckets(small_model(dtype))
        plain_loss = train(plain, sgd(plain), 20, dtype)
        hooked = in_buckets(small_model(dtype))
        hook = gradsieve.torch.register(hooked, density=1.0, route=route)
        loss = train(hooked, sgd(hooked), 20, dtype)
        away = (weights(plain) - weights(hooked)).abs().max().item()
        exact = dist.get_world_size() == 2 or dtype == torch.float64  # three summands round by their order
        assert away == 0 if exact and dist.get_world_size() == 2 else away < 1e-6, f"{dtype}, {route}: {away}"
        assert (loss == plain_loss) or away > 0
        assert hook.report()["bytes_sent"] >= 4 * len(weights(plain))
        if dist.get_rank() == 0 and route == "cpp":
            print(f"  {dtype}: loss {loss} and {plain_loss}, weights differ by at most {away}")


def case_density_one_in_few_bits():
    """With a recipe of values nothing is selected, and what is rounded waits: the sum over steps is that without it."""
    for recipe, bits in (("int8", 8), ("radix+int4", 4), ("sign+momentum", 1)):
        plain, model = (in_buckets(small_model()) for _ in range(2))
        hook = gradsieve.torch.register(model, recipe, 1.0)
        sums = [torch.zeros_like(weights(model)) for _ in range(2)]
        for x, y in batches(40):
            for each, total in zip((plain, model), sums):
                each.zero_grad()
                nn.functional.cross_entropy(each(x), y).backward()
                total += torch.cat([parameter.grad.flatten() for parameter in each.parameters()])
        assert_same_on_all_ranks(sums[1], recipe)
        report = hook.report()
        assert report["selected"] + report["passthrough_elements"] == len(sums[0]), recipe
        if bits > 1:
            away = ((sums[1] - sums[0]).norm() / sums[0].norm()).item()
            assert 0 < away < 0.2 / bits, f"{recipe}: {away}"
        assert hook.residual_norm() > 0
    model = in_buckets(small_model(torch.float64))
    assert_raises(ValueError, "is float64", lambda: gradsieve.torch.register(model, "int4", 1.0))


def case_ranks_agree_with_every_recipe():
    steps = 60
    for number, recipe in enumerate(every_recipe()):
        model = in_buckets(small_model())
        start = weights(model)
        route = ("python", "cpp")[number % 2]
        hook = gradsieve.torch.register(model, recipe=recipe, density=density_of(recipe, 0.05), route=route)
        train(model, sgd(model, 0.0 if "momentum" in recipe else 0.9), steps)
        assert_same_on_all_ranks(weights(model), recipe)
        assert not torch.equal(start, weights(model))
        report = hook.report()
        assert report["step"] == steps - 1 and report["world"] == dist.get_world_size()
        assert 0 < report["bytes_sent"] < report["baseline_bytes"], f"{recipe}: {report}"


def case_stopped_and_continued_is_as_if_not():
    for recipe in ("radix", "laplacian+deft+momentum", "radix+cyclic+filtered", "adacomp", "hierarchical+bf16"):
        momentum = 0.0 if "momentum" in recipe else 0.9
        for route in ("python", "cpp"):
            how = {} if recipe == "adacomp" else {"density": 0.02, "warmup": 30}
            through = in_buckets(small_model())
            gradsieve.torch.register(through, recipe=recipe, route=route, **how)
            optimizer = sgd(through, momentum)
            train(through, optimizer, 50, seed=1)
            train(through, optimizer, 50, seed=2)

            first = in_buckets(small_model())
            hook = gradsieve.torch.register(first, recipe=recipe, route=route, **how)
            optimizer = sgd(first, momentum)
            train(first, optimizer, 50, seed=1)
            with tempfile.TemporaryDirectory() as folder:
                saved = os.path.join(folder, "checkpoint.pt")
                torch.save([first.module.state_dict(), optimizer.state_dict(), hook.state_dict()], saved)
                module, optimised, unsent = torch.load(saved)
            del first, hook

            second = in_buckets(small_model(seed=5))
            second.module.load_state_dict(module)
            hook = gradsieve.torch.register(second, recipe=recipe, route=route, **how)
            hook.load_state_dict(unsent)
            optimizer = sgd(second, momentum)
            optimizer.load_state_dict(optimised)
            train(second, optimizer, 50, seed=2)
            assert torch.equal(weights(through), weights(second)), f"{recipe}, {route}"
            report = hook.report()
            assert report["step"] == 99 and report["total_steps"] == 100, report


def case_several_models_at_once():
    one, other = in_buckets(small_model()), in_buckets(small_model(seed=2))
    hooks = [
        gradsieve.torch.register(one, recipe="radix", density=0.05),
        gradsieve.torch.register(other, recipe="laplacian+layerwise", density=0.1, route="cpp"),
    ]
    optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.05)
    for x, y in batches(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(one(x) + other(x), y).backward()
        optimizer.step()
    assert_same_on_all_ranks(weights(one), "first model")
    assert_same_on_all_ranks(weights(other), "second model")
    assert [each.report()["step"] for each in hooks] == [19, 19]


def case_a_second_model_changes_nothing():
    alone = in_buckets(small_model())
    gradsieve.torch.register(alone, recipe="radix", density=0.05)
    train(alone, sgd(alone), 10)

    model, other = in_buckets(small_model()), in_buckets(small_model(seed=2))
    gradsieve.torch.register(model, recipe="radix", density=0.05)
    gradsieve.torch.register(other, recipe="laplacian", density=0.2)
    optimizers = [sgd(model), sgd(other)]
    for x, y in batches(10):
        for each, optimizer in zip((model, other), optimizers):
            optimizer.zero_grad()
            nn.functional.cross_entropy(each(x), y).backward()
            optimizer.step()
    assert torch.equal(weights(model), weights(alone))


def case_accumulation_and_unused_parameters():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = small_model()
            self.head = nn.Linear(4, 4)

        def forward(self, x, with_head):
            x = self.body(x)
            return self.head(x) if with_head else x

    torch.manual_seed(3)
    model = in_buckets(TwoHeads(), find_unused_parameters=True)
    hook = gradsieve.torch.register(model, recipe="radix+layerwise", density=0.1)
    optimizer = sgd(model)
    for step, (x, y) in enumerate(batches(12)):
        if step % 3 == 0:
            optimizer.zero_grad()
        if step % 3 < 2:
            with model.no_sync():
                nn.functional.cross_entropy(model(x, step // 3 % 2 == 0), y).backward()
        else:
            nn.functional.cross_entropy(model(x, step // 3 % 2 == 0), y).backward()
            optimizer.step()
    assert hook.report()["step"] == 3
    assert_same_on_all_ranks(weights(model), "unused parameters")


def case_half_precision():
    if torch.__version__.startswith("1."):
        if dist.get_rank() == 0:
            print("  skipped: Gloo in this torch has no bfloat16, so that DDP itself cannot begin")
        return
    model = in_buckets(small_model(torch.bfloat16))
    hook = gradsieve.torch.register(model, recipe="radix+bf16", density=0.05)
    train(model, sgd(model), 20, torch.bfloat16)
    assert_same_on_all_ranks(weights(model), "bfloat16")
    assert hook.report()["baseline_bytes"] == 2 * len(weights(model))


def case_discard_and_rescale():
    model = in_buckets(small_model())
    hook = gradsieve.torch.register(model, density=0.05)
    train(model, sgd(model), 5)
    norm = hook.residual_norm()
    hook.discard_step()
    assert hook.residual_norm() > norm
    norm = hook.residual_norm()
    hook.rescale(0.5)
    assert abs(hook.residual_norm() - norm / 2) < 1e-6 * norm
    assert_raises(ValueError, "factor is nan", lambda: hook.rescale(float("nan")))


class ScalerStandIn:
    """What a GradScaler does, where torch has one for GPUs only."""

    def __init__(self, scale):
        self.scale_, self.skipped = scale, False

    def get_scale(self):
        return self.scale_

    def scale(self, loss):
        return loss * self.scale_

    def step(self, optimizer):
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"]]
        self.skipped = not all(torch.isfinite(each).all() for each in gradients)
        if not self.skipped:
            for each in gradients:
                each /= self.scale_
            optimizer.step()

    def update(self):
        self.scale_ *= 0.5 if self.skipped else 1.0


def case_loss_scale():
    makers = [ScalerStandIn]
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        makers.append(lambda scale: torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=10**6))
    for make in makers:
        model = in_buckets(small_model())
        hook = gradsieve.torch.register(model, density=0.05, on_non_finite="propagate")
        optimizer, scaler = sgd(model), make(1024.0)
        for step, (x, y) in enumerate(batches(12)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            if step == 6 and dist.get_rank() == 1:
                loss = loss * float("inf")
            before = weights(model)
            scaler.scale(loss).backward()
            norm = hook.residual_norm()
            hook.scaler_step(scaler, optimizer)
            if step == 6:
                assert torch.equal(weights(model), before), "a skipped step moved the weights"
                assert abs(hook.residual_norm() - norm / 2) < 1e-5 * norm, "the residual did not follow the scale"
        assert scaler.get_scale() == 512.0
        assert_same_on_all_ranks(weights(model), "loss scale")
        assert torch.isfinite(weights(model)).all()


def case_several_optimizers_and_scalers():
    """A step of one scaler may have several optimizers; two hooks take two scalers."""
    class Scaler(ScalerStandIn):
        def unscale_(self, optimizer):
            raise AssertionError
    hooks, optimizers = [], []
    for seed in (1, 2):
        model = in_buckets(small_model(seed=seed))
        hooks.append(gradsieve.torch.register(model, density=0.05, on_non_finite="propagate"))
        first, *others = model.parameters()
        optimizers.append([torch.optim.SGD(each, lr=0.05) for each in ([first], others)])
        for x, y in batches(1):
            (4.0 * nn.functional.cross_entropy(model(x), y)).backward()
        before = weights(model)
        hooks[-1].scaler_step(Scaler(4.0), optimizers[-1])
        assert (weights(model) != before)[:first.numel()].any() and (weights(model) != before)[first.numel():].any()
    shared = Scaler(4.0)
    for hook, its in zip(hooks, optimizers):
        hook.scaler_step(shared, its)
    assert_raises(ValueError, "a GradScaler of its own", lambda: hooks[0].scaler_step(shared, optimizers[0]))
    hooks[1].scaler_step(shared, optimizers[1])


def case_a_rank_that_has_joined():
    """It goes on sending what waits, with gradients of its last step that nobody has cleared."""
    for recipe, options in (("radix", {}), ("radix+momentum", {}), ("radix+none", {"find_unused_parameters": True})):
        model = in_buckets(small_model(), **options)
        hook = gradsieve.torch.register(model, recipe=recipe, density=0.1)
        with model.join():
            train(model, sgd(model, 0), 2 + 2 * dist.get_rank())
        assert_same_on_all_ranks(weights(model), f"joined, {recipe}")
        assert hook.report()["total_steps"] == 4


def warnings_of(body):
    """What body() warns of in this package's name."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        body()
    return [str(each.message) for each in told if "gradsieve" in str(each.message)]


def case_infinities_that_nobody_looks_for():
    """A run of steps without a usable gradient is told once, and a few of them are not."""
    def steps(model, usable):
        for good, (x, y) in zip(usable, batches(len(usable))):
            model.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            (loss * (1.0 if good or dist.get_rank() == 0 else float("inf"))).backward()

    for route, how in itertools.product(("python", "cpp"), ("skip", "propagate")):
        model = in_buckets(small_model())
        hook = gradsieve.torch.register(model, density=0.05, on_non_finite=how, route=route)
        assert warnings_of(lambda: steps(model, [False] * 19 + [True] + [False] * 19 + [True])) == [], (route, how)
        told = warnings_of(lambda: steps(model, [False] * 50))
        concerned = dist.get_rank() == 1 or how == "propagate"  # where the average is NaN on all ranks
        assert len(told) == concerned, (route, how, told)
        assert not told or "last 20 steps" in told[0] and "scaler_step(scaler, optimizer)" in told[0], told
        assert (hook.report()["non_finite"] > 0) == concerned
        assert warnings_of(lambda: steps(model, [True] + [False] * 25)) == [], "told twice"


def case_profiler_shows_buckets():
    """A range a bucket, from when it is ready to when it is averaged."""
    for route in ("python", "cpp"):
        model = in_buckets(small_model())
        gradsieve.torch.register(model, density=0.05, route=route)
        optimizer = sgd(model)
        train(model, optimizer, 2)
        buckets = None
        for profile in (torch.profiler.profile, torch.autograd.profiler.profile):
            with profile() as profiled:
                train(model, optimizer, 3)
            found = profiled.events() if profile is torch.profiler.profile else profiled.function_events
            ranges = [each for each in found if each.name.startswith("gradsieve: bucket ")]
            names = sorted(each.name for each in ranges)
            assert len(names) == 3 * len(set(names)) > 3, (route, names)
            buckets = buckets or names
            assert names == buckets
            assert all(each.time_range.elapsed_us() > 0 for each in ranges)
        train(model, optimizer, 1)


def case_overflow_in_one_bucket_before_buckets_are_formed():
    """As a first loss scale often does: one bucket's step fails, the others' do not, and then buckets change."""
    model = in_buckets(small_model(), find_unused_parameters=False)
    hook = gradsieve.torch.register(model, density=0.05, on_non_finite="propagate")
    optimizer = sgd(model)
    last = model.module[-1].weight
    overflow = {"now": False}
    last.register_hook(lambda gradient: gradient * float("inf") if overflow["now"] else gradient)
    for step, (x, y) in enumerate(batches(12)):
        overflow["now"] = dist.get_rank() == 1 and step in (0, 5)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        bad = [name for name, each in model.module.named_parameters() if not torch.isfinite(each.grad).all()]
        assert bool(bad) == (step in (0, 5)), f"step {step}: {bad}"
        if bad:
            hook.discard_step()
        else:
            optimizer.step()
    assert_same_on_all_ranks(weights(model), "overflow")
    again = in_buckets(small_model(seed=4))
    again.module.load_state_dict(model.module.state_dict())
    resumed = gradsieve.torch.register(again, density=0.05, on_non_finite="propagate")
    resumed.load_state_dict(hook.state_dict())
    train(model, sgd(model, 0.0), 3, seed=3)
    train(again, sgd(again, 0.0), 3, seed=3)
    assert torch.equal(weights(model), weights(again))


def case_errors_reach_every_rank():
    rank = dist.get_rank()
    for route in ("python", "cpp"):
        def backward(model, factor=1.0):
            for x, y in batches(1):
                (nn.functional.cross_entropy(model(x), y) * factor).backward()

        model = in_buckets(small_model())
        gradsieve.torch.register(model, density=0.05 if rank else 0.06, route=route)
        assert_raises(RuntimeError, "differ in recipe or density", lambda: backward(model))

        model = in_buckets(small_model())
        hook = gradsieve.torch.register(model, density=0.05, on_non_finite="fail", route=route)
        assert_raises(RuntimeError, "NaN or infinite", lambda: backward(model, float("nan") if rank else 1.0))
        del hook

        model = in_buckets(small_model(torch.float64))
        assert_raises(ValueError, "'0.weight' is float64",
                      lambda: gradsieve.torch.register(model, density=0.05, route=route))

    model = in_buckets(small_model())
    for text, arguments in (
        ("'best' is none of", {"recipe": "best"}),
        ("names two selectors", {"recipe": "radix+chunked"}),
        ("names two of", {"recipe": "fp16+bf16"}),
        ("binned goes with adacomp", {"recipe": "radix+binned"}),
        ("adacomp and chunked stand alone", {"recipe": "adacomp+deft"}),
        ("density is 1.5", {"density": 1.5}),
        ("decides for itself", {"recipe": "adacomp", "density": 0.1}),
        ("which density 1 does not use: all elements", {"recipe": "radix+delta", "density": 1.0}),
        ("has no option 'levels'; it has decay", {"levels": 4}),
        ("has no option 'level'; it has", {"recipe": "radix+qsgd", "level": 4}),
        ("option momentum is 'much', expected a number", {"recipe": "radix+momentum", "momentum": "much"}),
        ("momentum is 1.5", {"recipe": "radix+momentum", "momentum": 1.5}),
        ("warmup is 0 steps", {"initial_density": 0.5}),
        ("nodes need both groups", {"inside": dist.group.WORLD}),
        ("route is 'rust'", {"route": "rust"}),
        ("on_non_finite is 'hope'", {"on_non_finite": "hope"}),
        ("not the string", {"passthrough": "*bias*"}),
    ):
        assert_raises(ValueError, text, lambda arguments=arguments: gradsieve.torch.register(model, **arguments))


def case_models_that_are_none():
    frozen = DistributedDataParallel(small_model())
    for each in frozen.parameters():
        each.requires_grad_(False)
    without_buckets = DistributedDataParallel(small_model())
    without_buckets._use_python_reducer = True  # as of torch 2.3 with optimize_ddp = "python_reducer"
    for text, model in (
        ("wrap the module first", small_model()),
        ("nothing to compress", frozen),
        ("has no buckets", without_buckets),
    ):
        assert_raises(ValueError, text, lambda model=model: gradsieve.torch.register(model))


def case_recipes_and_their_options():
    names = gradsieve.torch.recipes()
    assert len(names) > 20 and "laplacian+deft+momentum" in names and "adacomp+deft+momentum" not in names
    assert gradsieve.torch.options("radix+momentum")["momentum"] == "0.9"
    assert gradsieve.torch.options("radix+qsgd")["levels"]
    model = in_buckets(small_model())
    hook = gradsieve.torch.register(model, "radix+momentum+qsgd", momentum=0.5, masking=False, levels=4)
    assert (hook.options["momentum"], hook.options["masking"], hook.options["levels"]) == ("0.5", "false", "4")
    train(model, sgd(model, 0.0), 3)
    assert_same_on_all_ranks(weights(model), "options")
    hook = gradsieve.torch.register(in_buckets(small_model()), "adacomp", bins={"0*": 20, "": 40})
    assert hook.options["bins"] == "0*=20;40", hook.options
    for recipe in ("adacomp", "laplacian+deft+momentum", "radix+cyclic+filtered", "ldte+qsgd"):
        known = gradsieve.torch.options(recipe)
        again = gradsieve.torch.register(in_buckets(small_model()), recipe, **known)
        assert again.options == known, f"{recipe}: {again.options}"


def case_a_report_counts():
    model = in_buckets(small_model())
    hook = gradsieve.torch.register(model, "radix+int4", density=0.05)
    assert hook.report()["total_steps"] == 0
    sent = 0
    for step in range(5):
        train(model, sgd(model), 1, seed=step)
        report = hook.report()
        sent += report["bytes_sent"]
    assert all(isinstance(value, (int, float)) for value in report.values()), "not for TensorBoard as it is"
    assert report["total_steps"] == 5 and report["total_bytes_sent"] == sent
    assert report["ratio"] == report["baseline_bytes"] / report["bytes_sent"] > 1
    assert set(hook.codecs()) == {"index_codec"}
    model = in_buckets(small_model())
    undone = gradsieve.torch.register(model, "radix", density=0.05, undo=True)
    sent = 0
    for steps in (1, 2, 3):  # what a step that is undone has sent was sent
        train(model, sgd(model), 1)
        undone.undo_step()
        found = undone.report()
        sent += found["bytes_sent"]
        assert found["bytes_sent"] > 0 and found["total_bytes_sent"] == sent and found["total_steps"] == steps, found
    table = report.summary()
    assert "all steps" in table and "ratio" in table, table
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        if dist.get_rank() == 0:
            print("  skipped: the picture, as there is no matplotlib")
        return
    with tempfile.TemporaryDirectory() as folder:
        picture = os.path.join(folder, "report.png")
        assert len(report.plot(picture).axes) == 3 and os.path.getsize(picture) > 1000


def case_trace_and_plan():
    model = in_buckets(small_model())
    hook = gradsieve.torch.register(model, density=0.05)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "layers.csv")
        with hook.trace(file) as recorder:
            train(model, sgd(model), 6)
        trace = recorder.trace
        if dist.get_rank() == 0:
            read = gradsieve.torch.Trace.read(file)
            assert [each.name for each in read.layers] == [each.name for each in trace.layers]
            half = gradsieve.torch.Trace((gradsieve.torch.Layer("a", 6, 0.5, 0.25, 1, element_bytes=2),))
            half.write(file)
            assert gradsieve.torch.Trace.read(file) == half
    assert {each.element_bytes for each in trace.layers} == {4}
    sizes = {name: 4 * each.numel() for name, each in model.module.named_parameters()}
    assert {each.name: each.bytes for each in trace.layers} == sizes
    assert trace.layers[0].name.startswith("5."), "the last layer's gradient is ready first"
    assert trace.steps == 6 and trace.iteration > 0 and trace.compute > 0 and len(trace.exchanges) > 1, (
        trace.exchanges, trace.steps)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, trace)
    assert everyone[0] == everyone[1], "ranks would form other buckets"

    for proposed in (gradsieve.torch.plan(trace), gradsieve.torch.plan(trace, "1e-4,1e-8"),
                     gradsieve.torch.plan(trace, (1e-4, 1e-8), exchange="gather", density=0.01)):
        assert [name for bucket in proposed.buckets for name in bucket.names] == [each.name for each in trace.layers]
        assert proposed.predicted <= proposed.predicted_with_cap
        assert "iteration" in str(proposed)
    takes_first = inspect.signature(DistributedDataParallel.__init__).parameters["bucket_cap_mb"].default is None
    # No exchange takes time.
    hidden = gradsieve.torch.Trace(tuple(gradsieve.torch.Layer(f"l{i}", 4 << 20, 0.01, 0.01, 0) for i in range(8)))
    for planner, caps in (("single", {32}), ("wfbp", {4}), ("optimal", {28} if takes_first else {16, 32})):
        proposed = gradsieve.torch.plan(hidden, (0, 1e-15), planner=planner)
        assert proposed.bucket_cap_mb in caps, (planner, proposed)
    again = DistributedDataParallel(small_model(), **proposed.ddp_options())
    hook = gradsieve.torch.register(again, density=0.05)
    with hook.trace() as recorder:
        train(again, sgd(again), 4)
    assert "measured" in proposed.compared(recorder.trace)
    assert_raises(ValueError, "needs a density", lambda: gradsieve.torch.plan(trace, "1e-4,1e-8", exchange="gather"))
    assert_raises(ValueError, "there is none", lambda: gradsieve.torch.plan(trace, density=0.1))
    assert_raises(RuntimeError, "used once", recorder.__enter__)


def case_nodes_of_two_ranks():
    for recipe in ("radix", "laplacian+deft+momentum", "adacomp"):
        momentum = 0.0 if "momentum" in recipe else 0.9

        def hooked(seed=1, recipe=recipe):
            model = in_buckets(small_model(seed=seed))
            inside, across = gradsieve.torch.nodes(2)
            hook = gradsieve.torch.register(model, recipe, density_of(recipe, 0.05), inside=inside, across=across)
            return model, hook

        model, hook = hooked()
        optimizer = sgd(model, momentum)
        train(model, optimizer, 12)
        assert_same_on_all_ranks(weights(model), recipe)
        assert hook.report()["world"] == 2  # of nodes

        kept, optimised = hook.state_dict(), copy.deepcopy(optimizer.state_dict())
        other, resumed = hooked(seed=4)
        other.module.load_state_dict(model.module.state_dict())
        resumed.load_state_dict(kept)
        again = sgd(other, momentum)
        again.load_state_dict(optimised)
        train(model, optimizer, 4, seed=2)
        train(other, again, 4, seed=2)
        assert torch.equal(weights(model), weights(other)), recipe

    plain = in_buckets(small_model())
    train(plain, sgd(plain), 10)
    model = in_buckets(small_model())
    inside, across = gradsieve.torch.nodes(2)
    gradsieve.torch.register(model, density=1.0, inside=inside, across=across)
    train(model, sgd(model), 10)
    assert torch.allclose(weights(plain), weights(model), atol=1e-6)
    assert_raises(ValueError, "nodes of 3", lambda: gradsieve.torch.nodes(3))
    assert_raises(ValueError, "the model has 4", lambda: gradsieve.torch.register(
        in_buckets(small_model()), inside=inside, across=dist.group.WORLD))


def case_states_that_do_not_fit():
    model = in_buckets(small_model())
    hook = gradsieve.torch.register(model, density=0.05)
    train(model, sgd(model), 3)
    good = hook.state_dict()

    def refused(error, text, change):
        bad = copy.deepcopy(good)
        change(bad)
        assert_raises(error, text, lambda: hook.load_state_dict(bad))

    refused(ValueError, "lacks a part", lambda state: state.pop("world"))
    refused(ValueError, "no parameters", lambda state: state["groups"].append(([], b"")))
    refused(ValueError, "lacks a part", lambda state: state.pop("totals"))
    refused(ValueError, "version 7", lambda state: state.update(version=7))
    refused(ValueError, "is of rank", lambda state: state.update(rank=state["rank"] + 1))
    refused(ValueError, "is of 9 ranks", lambda state: state.update(world=9))
    refused(ValueError, "'nobody'", lambda state: state["groups"][0][0].__setitem__(0, "nobody"))
    refused(RuntimeError, "checksum", lambda state: state["groups"].__setitem__(0, damaged(state["groups"][0])))
    refused(RuntimeError, "fewer than its header", lambda state: state["groups"].__setitem__(0, (good["groups"][0][0], b"")))
    assert_raises(ValueError, "list is empty", lambda: hook.load_state_dict([]))
    assert_raises(ValueError, "states of all", lambda: hook.load_state_dict([good, good]))
    hook.load_state_dict(good)
    train(model, sgd(model), 1)
    assert hook.report()["step"] == 3


def damaged(group):
    names, state = group
    state = state.clone()
    state[-1] ^= 1
    return names, state


def case_another_world_size():
    """Three ranks become two, one becomes three, and so on: what is pending stays what it was."""
    for old, new in ((3, 2), (2, 3), (1, 3), (3, 1)):
        groups = {size: dist.new_group(list(range(size))) for size in (old, new)}
        hook_groups = {size: dist.new_group(list(range(size))) for size in (old, new)}

        def of(size, groups=groups):
            return in_buckets(small_model(), process_group=groups[size])

        states = [None] * 3
        here = None
        if dist.get_rank() < old:
            model = of(old)
            hook = gradsieve.torch.register(model, density=0.05, passthrough=[], process_group=hook_groups[old])
            train(model, sgd(model), 8)
            here = hook.state_dict()
        dist.all_gather_object(states, here)
        states = [each for each in states if each is not None]
        sums = sum(residual_of(each) for each in states) / old
        if dist.get_rank() < new:
            model = of(new)
            hook = gradsieve.torch.register(model, density=1.0, passthrough=[], process_group=hook_groups[new])
            hook.load_state_dict(states)
            out = model(torch.zeros(8, 16))
            (out * 0).sum().backward()
            sent = {name: each.grad.flatten().double() for name, each in model.module.named_parameters()}
            got = torch.cat([sent[name] for names, _ in states[0]["groups"] for name in names])
            assert got.abs().sum() > 0
            assert torch.allclose(got, sums, rtol=1e-5, atol=1e-9), (got - sums).abs().max()


def residual_of(state):
    """The residual in a state, in the order of its groups: each state ends with its values."""
    sizes = dict((name, each.numel()) for name, each in small_model().named_parameters())
    parts = []
    for names, saved in state["groups"]:
        n = sum(sizes[name] for name in names)
        parts.append(torch.frombuffer(bytearray(saved[-4 * n :].numpy()), dtype=torch.float32).double())
    return torch.cat(parts)


TWO_RANKS = [
    case_density_one_is_plain_ddp,
    case_density_one_in_few_bits,
    case_ranks_agree_with_every_recipe,
    case_stopped_and_continued_is_as_if_not,
    case_several_models_at_once,
    case_a_second_model_changes_nothing,
    case_accumulation_and_unused_parameters,
    case_half_precision,
    case_discard_and_rescale,
    case_loss_scale,
    case_several_optimizers_and_scalers,
    case_a_rank_that_has_joined,
    case_infinities_that_nobody_looks_for,
    case_profiler_shows_buckets,
    case_overflow_in_one_bucket_before_buckets_are_formed,
    case_errors_reach_every_rank,
    case_models_that_are_none,
    case_recipes_and_their_options,
    case_a_report_counts,
    case_trace_and_plan,
    case_states_that_do_not_fit,
]
THREE_RANKS = [case_density_one_is_plain_ddp, case_density_one_in_few_bits, case_another_world_size]
FOUR_RANKS = [case_nodes_of_two_ranks]


def run_cases(rank, world, store, cases):
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1024  # older torch gives the first bucket 1 MiB, which is all of these models
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world,
                            timeout=TIMEOUT)
    for case in cases:
        began = time.monotonic()
        case()
        dist.barrier()
        if rank == 0:
            print(f"{case.__name__} on {world} ranks: {time.monotonic() - began:.1f} s", flush=True)
    dist.destroy_process_group()


def main():
    wanted = sys.argv[1:]
    for world, cases in ((2, TWO_RANKS), (3, THREE_RANKS), (4, FOUR_RANKS)):
        cases = [case for case in cases if not wanted or any(text in case.__name__ for text in wanted)]
        if cases:
            with tempfile.TemporaryDirectory() as folder:
                store = os.path.join(folder, "store")
                torch.multiprocessing.spawn(run_cases, args=(world, store, cases), nprocs=world)


if __name__ == "__main__":
    main()
