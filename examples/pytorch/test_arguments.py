"""Every public call of the package with arguments of the wrong kind, out of range, or that do not go together, on one
rank: `python3 test_arguments.py`. Each is refused by a TypeError or ValueError of one sentence that names the
argument."""

import copy
import dataclasses
import inspect
import math
import os
import tempfile
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsieve.torch

NAN, INF = math.nan, math.inf
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])

NO_NUMBER = (None, "0.1", "", b"1", [], {}, (1,), object(), float, True, False, 1j, torch.tensor(0.5))
NO_WHOLE = (None, "1", [], {}, object(), int, True, False, 1.0, 0.5, NAN, INF)
NO_TEXT = (None, 0, -1, 1.5, NAN, True, [], {}, b"radix", str, object())
NO_GROUP = (0, -1, True, "gloo", "", [0], (), {}, 1.5, dist.ProcessGroup, dist.Backend, object())
NO_STATE = (None, 0, -1, True, 1.5, "", "state", b"state", dict, object(), torch.zeros(3), {}, {"weight": 1}, [],
            [None], ["state"], [{}], [[]], {"version": None}, {"version": "2"})


def ddp():
    return DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def step(model):
    model(torch.randn(4, 8)).sum().backward()


class Refusals:
    """Counts what was refused, and complains of what was not."""

    def __init__(self):
        self.count, self.wrong = 0, []

    def expect(self, says, call, *positional, **named):
        """A refusal that has all of these words, of one or several texts."""
        shown = " ".join(f"{call.__qualname__} {positional} {named}".split())[:200]
        try:
            result = call(*positional, **named)
        except (TypeError, ValueError) as error:
            self.count += 1
            text = str(error)
            missing = [each for each in ([says] if isinstance(says, str) else says) if each not in text]
            if missing:
                self.wrong.append(f"{shown}: '{text}' does not have {missing}")
            if "\n" in text or "incompatible" in text or len(text.split()) < 6:
                self.wrong.append(f"{shown}: no sentence of ours: '{text}'")
        except BaseException as error:  # noqa: BLE001
            self.wrong.append(f"{shown}: {type(error).__name__}: {error}")
        else:
            self.wrong.append(f"{shown}: taken, {result!r:.60}")

    def each(self, argument, values, call, *positional, **named):
        for value in values:
            self.expect(argument, call, *positional, **{**named, argument: value})


def register(refusals):
    model, call = ddp(), gradsieve.torch.register
    for value in (None, 0, "model", nn.Linear, DistributedDataParallel, [model], object(), nn.Linear(2, 2),
                  nn.DataParallel(nn.Linear(2, 2)), model.module):
        refusals.expect("DistributedDataParallel", call, value)
    refusals.expect("one process", call, nn.DataParallel(nn.Linear(2, 2)))
    refusals.each("recipe", (*NO_TEXT, "", "+", "radix+", "++", "radix deft", "best", "radix,deft"), call, model)
    refusals.each("density", (*NO_NUMBER[1:], 0, 0.0, -1, -0.1, 1.5, NAN, INF, -INF, 10**400), call, model)
    refusals.each("passthrough", ("*bias*", None, 0, True, {}, {"*": 1}, b"*", str, [1], [None], [b"*"], [["*"]]), call,
                  model)
    refusals.each("warmup", (*NO_WHOLE, -1, 10**30), call, model)
    refusals.each("initial_density", (*NO_NUMBER[1:], 0, -1, 1.5, NAN, INF), call, model, warmup=5)
    refusals.each("warmup_stages", (*NO_WHOLE[1:], -1, 10**30), call, model, warmup=5)
    refusals.each("passthrough_up_to", (*NO_WHOLE, -1, 10**30), call, model)
    refusals.each("on_non_finite", (*NO_TEXT, "", "hope", "Skip"), call, model)
    refusals.each("undo", (None, 0, 1, "yes", [], {}, object(), bool), call, model)
    refusals.each("threads", (*NO_WHOLE, 0, -1, 10**6, 10**30), call, model)
    refusals.each("route", (*NO_TEXT, "", "rust", "CPP"), call, model)
    for name in ("process_group", "inside", "across"):
        refusals.each(name, NO_GROUP, call, model)
    refusals.expect("this rank is not in", call, model, process_group=dist.GroupMember.NON_GROUP_MEMBER)

    world = dist.group.WORLD
    refusals.expect(["initial_density is 0.001", "below density 0.01"], call, model, warmup=5, initial_density=0.001)
    refusals.expect(["initial_density is 0.25", "below density 0.5"], call, model, density=0.5, warmup=5)
    refusals.expect("nothing to warm up to", call, model, density=1, warmup=5)
    refusals.expect("warmup is 0 steps", call, model, initial_density=0.5)
    refusals.expect("warmup is 0 steps", call, model, warmup_stages=3)
    refusals.expect("nodes need both groups", call, model, inside=world)
    refusals.expect("nodes need both groups", call, model, across=world)
    refusals.expect("with nodes", call, model, inside=world, across=world, process_group=world)
    refusals.expect("decides for itself", call, model, "adacomp", 0.1)
    refusals.expect("density 1 does not use", call, model, "radix+coo", 1.0)
    refusals.expect("did you mean threads", call, model, thread=2)
    refusals.expect("did you mean passthrough", call, model, pass_through=["*"])
    refusals.expect("has no option 'levels'", call, model, levels=4)
    for value in (None, "much", -1, 1.5, NAN, INF, True, [], {}, object(), float):
        refusals.expect("momentum", call, model, "radix+momentum", momentum=value)
    for value in ({"*": 0}, {"*.weight": 0, "*": 64}, {"*": -1}, {"*": 1.5}, {"*": "5"}, {"*": True}, {"*": None}, {5: 5}, {None: 5}, {"a;b": 5},
                  {"a=b": 5}, "", "x", 0, -1, None, [5], {}):
        refusals.expect("bins", call, model, "adacomp", bins=value)

    refusals.each("optimizer", (0, "sgd", torch.optim.SGD, model, object(), [], [None]), call, model)
    refusals.expect("carries the momentum", call, model, "radix+momentum", optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    refusals.expect("carries the momentum", call, model, "radix+momentum",
                    optimizer=[torch.optim.AdamW(model.parameters())])
    for kind, named in ((torch.optim.AdamW, "AdamW"), (torch.optim.RMSprop, "RMSprop"), (torch.optim.SGD, None),
                        (wrapped(torch.optim.RMSprop), "RMSprop"), (derived(torch.optim.RMSprop), "Derived"),
                        (wrapped(torch.optim.AdamW), "AdamW"), (wrapped(torch.optim.SGD), None)):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            other = ddp()
            gradsieve.torch.register(other, optimizer=kind(other.parameters(), lr=0.1))
        told = [str(each.message) for each in found if "CompressedStep" in str(each.message)]
        assert [each.split()[1] for each in told] == ([named] if named else []), (kind, told)

    gradsieve.torch.register(model)  # nothing above has left a hook behind
    refusals.expect("communication hook already", call, model)
    refusals.expect("communication hook already", call, model, route="cpp")
    for text in (" radix ", "Radix + Deft", "RADIX+deft\n"):
        assert gradsieve.torch.register(ddp(), text).options == gradsieve.torch.options(text)


def wrapped(kind):
    """As Accelerate hands out optimizers: one that has the other."""
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, parameters, **options):
            self.optimizer = kind(parameters, **options)
            self.param_groups = self.optimizer.param_groups

    return Wrapper


def derived(kind):
    return type("Derived", (kind,), {})


def hook(refusals):
    model = ddp()
    made = gradsieve.torch.register(model, density=0.5)
    step(model)
    for value in (*NO_NUMBER, -1, NAN, INF, -INF):
        refusals.expect("factor", made.rescale, value)
    for value in (0, True, 1.5, [], {}, object(), str, b"x"):
        refusals.expect("path", made.trace, value)
        refusals.expect("path", made.report().plot, value)
    for value in ("/no/such/folder/layers.csv", "/", ""):
        refusals.expect("folder that exists", made.trace, value)
        refusals.expect("folder that exists", made.report().plot, value)
    optimizer, scaler = sgd(model), Scaler()
    for value in (None, 0, "scaler", Scaler, object(), [], optimizer):
        refusals.expect("scaler", made.scaler_step, value, optimizer)
    for value in (None, 0, "sgd", torch.optim.SGD, model, scaler):
        refusals.expect("optimizer", made.scaler_step, scaler, value)
    refusals.expect("scaler_step(scaler, optimizer)", made.scaler_step, optimizer, scaler)
    for how in ("skip", "fail"):
        refusals.expect("propagate", gradsieve.torch.register(ddp(), on_non_finite=how).scaler_step, scaler, optimizer)
    made.scaler_step(Scaler(enabled=False), optimizer)
    step(model)

    good = made.state_dict()
    for value in NO_STATE:
        refusals.expect("state", made.load_state_dict, value)
    refusals.expect("hook.state_dict()", made.load_state_dict, model.state_dict())
    for name in good:
        refusals.expect("state", made.load_state_dict, {key: value for key, value in good.items() if key != name})
    groups = good["groups"]
    garbage = {
        "version": (None, 1, "2", 2.5, -1),
        "rank": (None, "0", -1, 1.5, NAN, [], True),
        "world": (None, "1", -1, 1.5, 0, [], False),
        "groups": (None, 0, "groups", b"", [None], [()], [("a",)], [(1, 2)], [("a", b"")], [([1], b"")], [(["a"], 5)],
                   [(["a"], None)], [(["a"], "text")], {}, [([None], b"")]),
        "totals": (None, 0, [], (1, 2, 3), "1234567", (0,) * 6 + (-1,), (-1,) + (0,) * 6, (0.5,) * 7, (None,) * 7, {}),
    }
    for name, values in garbage.items():
        for value in values:
            refusals.expect("state", made.load_state_dict, {**good, name: value})
            refusals.expect("state", made.load_state_dict, [{**good, name: value}])
    other = [(["nobody"], saved) for _, saved in groups]
    refusals.expect("'nobody'", made.load_state_dict, {**good, "groups": other})
    refusals.expect(["this is rank 0", "hook-{rank}"], made.load_state_dict, {**good, "rank": 1, "world": 1})
    refusals.expect("load the list", made.load_state_dict, {**good, "world": 2})
    refusals.expect(["[0, 0]", "hook-{rank}"], made.load_state_dict, [{**good, "world": 2}] * 2)
    before = made.residual_norm()
    made.load_state_dict(copy.deepcopy(good))
    assert made.residual_norm() == before


class Scaler:
    def __init__(self, enabled=True):
        self.enabled = enabled

    def is_enabled(self):
        return self.enabled

    def get_scale(self):
        return 1.0

    def step(self, optimizer):
        optimizer.step()

    def update(self):
        pass


def functions(refusals):
    refusals.each("recipe", (*NO_TEXT, "", "best", "radix deft"), gradsieve.torch.options)
    for value in (*NO_WHOLE, 0, -1):
        refusals.expect("ranks_per_node", gradsieve.torch.nodes, value)
    refusals.expect("not nodes of 2", gradsieve.torch.nodes, 2)


def trace_and_plan(refusals):
    Layer, Trace = gradsieve.torch.Layer, gradsieve.torch.Trace
    good = {"name": "a", "bytes": 4, "backward": 1.0, "forward": 1.0, "dtype": 0, "element_bytes": 4}
    refusals.each("name", NO_TEXT, Layer, **good)
    refusals.each("bytes", (*NO_WHOLE, -1), Layer, **good)
    refusals.each("backward", (*NO_NUMBER, -1, NAN, INF), Layer, **good)
    refusals.each("forward", (*NO_NUMBER, -1, NAN, INF), Layer, **good)
    refusals.each("dtype", (*NO_WHOLE, -1, 2**32), Layer, **good)
    refusals.each("element_bytes", (*NO_WHOLE, 0, -1, 17), Layer, **good)

    layers = (Layer(**good), Layer("b", 8, 2.0, 1.0))
    for value in (None, 5, "layers", {}, layers[0], Layer, [1], ["a"], [None]):
        refusals.expect("layer", Trace, value)
    for value in (None, 5, "1", [1], [(1,)], [(1, 2, 3)], [("1", 2)], [(1, "2")], [(-1, 1.0)], [(1, -1.0)], [(1, NAN)]):
        refusals.expect("exchange", Trace, layers, value)
    refusals.each("iteration", (*NO_NUMBER, -1, NAN), Trace, layers)
    refusals.each("steps", (*NO_WHOLE, -1), Trace, layers)
    trace = Trace(layers)
    for value in (None, 0, True, 1.5, [], object(), str, b"x"):
        refusals.expect("path", trace.write, value)
        refusals.expect("path", Trace.read, value)
    refusals.expect("folder that exists", trace.write, "/no/such/folder/layers.csv")

    call, link = gradsieve.torch.plan, (1e-4, 8e-9)
    refusals.each("trace", (None, 0, True, [], {}, layers, Trace, object()), call, link=link, workers=2)
    refusals.expect("has no layers", call, Trace(()), link, workers=2)
    refusals.each("link", (0, True, 1.5, [], {}, {"a": 1, "b": 2}, (1,), (1, 2, 3), tuple, object(), b"1,2", (None, 1),
                           (1, "x"), (-1, 1), (1, -1), (NAN, 1), (1, INF), (True, 1)), call, trace, workers=2)
    for value in ("", "x", "1", "1,2,3", "-1,1", "1,nan", "K80"):
        refusals.expect("expected" if value in ("-1,1", "1,nan") else "choose one of", call, trace, value, workers=2)
    refusals.each("workers", (*NO_WHOLE[1:], 0, -1, 10**9), call, trace, link=link)
    refusals.each("exchange", (*NO_TEXT, "", "ring"), call, trace, link=link, workers=2)
    sparse = {"link": link, "workers": 2, "exchange": "gather", "density": 0.1}
    refusals.each("density", (*NO_NUMBER, 0, -1, 1.5, NAN, INF), call, trace, **sparse)
    refusals.each("entry_bytes", (*NO_NUMBER[1:], 0, -1, 65, NAN, INF), call, trace, **sparse)
    refusals.each("planner", (*NO_TEXT, "", "best"), call, trace, link=link, workers=2)
    for extra in ({"workers": 2}, {"exchange": "gather"}, {"density": 0.1}, {"entry_bytes": 8.0}):
        refusals.expect("describe a link", call, trace, **extra)
    refusals.expect("has no density", call, trace, link, workers=2, density=0.1)
    refusals.expect("needs a density", call, trace, link, workers=2, exchange="leader")
    refusals.expect("entry_bytes are those of", call, trace, link, workers=2, exchange="leader", density=0.1,
                    entry_bytes=8)
    refusals.expect("exchanges of different sizes", call, trace)
    proposed = call(trace, link, workers=2)
    for value in (None, 0, "trace", Trace, layers):
        refusals.expect("measured", proposed.compared, value)
    refusals.expect("record two steps", proposed.compared, trace)


def compressed_step(refusals):
    call = gradsieve.torch.CompressedStep

    def fresh():
        model = nn.Linear(8, 4)
        return {"model": model, "optimizer": sgd(model), "density": 0.5}

    good = fresh()
    refusals.each("model", (None, 0, "model", nn.Linear, [], object()), call, **good)
    refusals.expect("bare module", call, **{**good, "model": ddp()})
    refusals.expect("bare module", call, **{**good, "model": nn.DataParallel(nn.Linear(2, 2))})
    refusals.each("optimizer", (None, 0, "sgd", torch.optim.SGD, good["model"], object(), [], [None]), call, **good)
    refusals.expect("none of the model's parameters", call, **{**good, "optimizer": sgd(nn.Linear(2, 2))})
    refusals.expect("not the model's", call, **{**good, "optimizer": [good["optimizer"], sgd(nn.Linear(2, 2))]})
    for name, least in (("every", 1), ("fragments", 1), ("delay", 0)):  # None: the preset's
        refusals.each(name, (*NO_WHOLE[1:], least - 1), call, **good)
    for name in ("outer_lr", "outer_momentum"):
        refusals.each(name, (*NO_NUMBER[1:], -1, NAN, INF), call, **good)
    refusals.each("decay", (*NO_NUMBER[1:], -1, 1.5, NAN, INF), call, **good)
    refusals.each("preset", (*NO_TEXT[1:], "", "diloco2"), call, **good)
    refusals.each("buffers", (*NO_TEXT, "", "sum", True), call, **good)
    refusals.each("local_weight", (*NO_NUMBER[1:], -1, 1.5, NAN, INF), call, **good)
    for name in ("nesterov", "second_moments", "undo"):
        refusals.each(name, (None,) * (name != "nesterov") + (0, 1, "yes", [], bool), call, **good)
    refusals.expect("nesterov is True, but outer_momentum is 0", call, **good, nesterov=True)
    refusals.expect(["returned is of coded_all_reduce", "from 5 ranks on"], call, **good, returned=2)
    refusals.each("second_moments", ([True], [good["optimizer"]], torch.optim.SGD), call, **good)
    for name in ("process_group", "hook_group"):
        refusals.each(name, NO_GROUP, call, **good)
    refusals.each("recipe", (*NO_TEXT[1:], "", "best"), call, **good)
    refusals.each("density", (*NO_NUMBER[1:], 0, -1, 1.5, NAN), call, **good)
    refusals.each("threads", (*NO_WHOLE, 0), call, **good)
    refusals.expect("has another residual", call, **good, recipe="Radix + Momentum", decay=0.5)
    refusals.expect("choose outer_momentum=0", call, **good, recipe="radix + MOMENTUM", outer_momentum=0.9)
    refusals.expect("is for gradients", call, **good, on_non_finite="propagate")
    refusals.expect("leave local_weight out", call, **good, recipe="radix+momentum", local_weight=0.5)
    world = dist.group.WORLD
    refusals.expect("does not go with nodes", call, **good, on_non_finite="fail", inside=world, across=world)
    refusals.expect("no optimizer is one", call, **good, second_moments=[torch.optim.LBFGS])
    frozen = fresh()
    frozen["model"].requires_grad_(False)
    refusals.expect("nothing to train", call, **frozen)

    sync = call(**good)
    refusals.each("max_norm", (*NO_NUMBER, -1, NAN), sync.clip_grad_norm_)
    refusals.each("weight", (*NO_NUMBER, -1, NAN, INF), gradsieve.torch.mean_factor)
    refusals.each("process_group", NO_GROUP[1:], gradsieve.torch.mean_factor, weight=1)
    refusals.expect("folder that exists", sync.report().plot, "/no/such/folder/report.png")
    saved = sync.state_dict()
    for value in NO_STATE:
        refusals.expect("state", sync.load_state_dict, value)
    garbage = {
        "version": (None, 2, 4, "1"), "done": (None, "0", -1, 1.5, True), "rounds": (None, "0", -1, []),
        "common": (None, 0, [1], [None], "common", [torch.zeros(3)], []),
        "outer": (None, 0, [], "sgd", {}, {"state": {}, "param_groups": []}), "number": (None, "1", -1),
        "own": (None, 0, [1], "own"), "hook": (None, 0, [], "hook", {}, {"version": 2}), "factors": (None, 0, []),
        "factor": (None, -1, NAN), "weights": (None, 0, [1.0], [1.0, -1.0, 0.0]), "next": (None, 1),
        "copies": (None, 0, [1], [[1, "master"]], [[0, 1]]), "looks": (None, -1), "left_out": ("1",), "failed": (0,),
        "place": ([1],), "buffers": ([1],), "in_flight": (None, {"fragment": 0}), "outside": (None, {0: 1}),
        "momentum": (None, {"steps": 1}),
    }
    for name, values in garbage.items():
        refusals.expect("state", sync.load_state_dict, {key: value for key, value in saved.items() if key != name})
        for value in values:
            refusals.expect("state", sync.load_state_dict, {**saved, name: value})
    refusals.expect("state", sync.load_state_dict, {**saved, "done": 1})
    refusals.each("closure", (0, 3, "closure", True), sync.step)
    refusals.each("scaler", (0, 3, "scaler", torch.optim.SGD, good["optimizer"]), sync.step)
    lbfgs = torch.optim.LBFGS(good["model"].parameters())
    refusals.expect("LBFGS needs a closure", call, **{**good, "optimizer": lbfgs})
    with sync.common_parameters():
        for inside in (sync.step, sync.exchange, lambda: sync.load_state_dict(saved)):
            refusals.expect("outside", inside)
    refusals.expect("between exchanges", sync.load_state_dict, [{**saved, "done": 1}])
    sync.load_state_dict(saved)
    refusals.each("weight", (*NO_NUMBER[1:], -1, NAN, INF), sync.step)


def sharded(refusals):
    if VERSION < (2, 8):
        print(f"skipped: sharded models, which torch {torch.__version__} has for GPUs only")
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    call = gradsieve.torch.register
    alone = FullyShardedDataParallel(nn.Linear(8, 4), device_id=torch.device("cpu"))
    refusals.expect("sharded on one rank", call, alone)
    refusals.expect("sharded on one rank", call, fully_shard(nn.Linear(8, 4)))
    inside, across = gradsieve.torch.nodes(1)
    refusals.expect("sharded on one rank", call, fully_shard(nn.Linear(8, 4)), inside=inside, across=across)
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "tensor"))
    both = parallelize_module(nn.Sequential(nn.Linear(8, 4)), mesh["tensor"], {"0": ColwiseParallel()})
    refusals.expect(["tensor parallelism", "'0.weight'"], call, fully_shard(both, mesh=mesh["data"]))
    hybrid = fully_shard(nn.Linear(8, 4), mesh=mesh)
    refusals.expect("mesh of 2 dimensions", call, hybrid)
    refusals.each("process_group", (mesh,), call, ddp())
    refusals.each("threads", (0, None), call, alone)
    refusals.each("route", ("cpp", None), call, fully_shard(nn.Linear(8, 4)))


def arguments_of(call):
    return {name for name, each in inspect.signature(call).parameters.items() if each.kind != each.VAR_KEYWORD}


def nothing_is_forgotten():
    """Whoever adds a call or an argument adds its checks here."""
    assert arguments_of(gradsieve.torch.register) == {
        "model", "recipe", "density", "passthrough", "warmup", "optimizer", "initial_density", "warmup_stages", "passthrough_up_to",
        "on_non_finite", "undo", "threads", "route", "process_group", "inside", "across"}
    assert arguments_of(gradsieve.torch.plan) == {
        "trace", "link", "workers", "exchange", "density", "entry_bytes", "planner"}
    assert arguments_of(gradsieve.torch.CompressedStep) == {
        "model", "optimizer", "recipe", "density", "passthrough", "every", "fragments", "delay", "common_momentum", "local_weight", "second_moments",
        "outer_lr", "outer_momentum", "nesterov", "decay", "process_group", "hook_group", "buffers", "preset"}
    assert {each.name for each in dataclasses.fields(gradsieve.torch.Layer)} == {
        "name", "bytes", "backward", "forward", "dtype", "element_bytes"}
    assert {each.name for each in dataclasses.fields(gradsieve.torch.Trace)} == {
        "layers", "exchanges", "iteration", "steps"}
    functions = {name for name in gradsieve.torch.__all__ if inspect.isfunction(getattr(gradsieve.torch, name))}
    assert functions == {"OuterStep", "mean_factor", "nodes", "options", "plan", "recipes", "register"}, functions
    with_arguments = {name for name, each in inspect.getmembers(gradsieve.torch.Hook, inspect.isfunction)
                      if not name.startswith("_") and arguments_of(each) != {"self"}}
    assert with_arguments == {"trace", "rescale", "scaler_step", "load_state_dict"}, with_arguments


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        refusals = Refusals()
        for part in (register, hook, functions, trace_and_plan, compressed_step, sharded):
            before = refusals.count
            part(refusals)
            print(f"{part.__name__}: {refusals.count - before} refusals", flush=True)
        nothing_is_forgotten()
        dist.destroy_process_group()
    assert not refusals.wrong, "\n".join([f"{len(refusals.wrong)} are wrong:", *refusals.wrong])


if __name__ == "__main__":
    main()
