"""What register() promises around the arithmetic: process groups, forks, copies of a model, parameters of all kinds,
and saved states. On two ranks, and some of it on four: `python3 test_register.py [cases]`."""

import copy
import datetime
import gc
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
import types
import warnings
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsieve.torch
import test_hook
import test_sharded
from test_hook import assert_raises, assert_same_on_all_ranks, batches, in_buckets, sgd, small_model, train, weights

ROUTES = ("python", "cpp")


def compressed_step(module, **options):
    return gradsieve.torch.CompressedStep(module, sgd(module), **{"every": 2, "density": 0.1, **options})


# ---- process groups --------------------------------------------------------------------------------------------------


def groups_made_by(body):
    """Those that body() makes with torch.distributed.new_group(), and what it returns."""
    made, plain = [], dist.new_group

    def new_group(*arguments, **options):
        made.append(plain(*arguments, **options))
        return made[-1]

    dist.new_group = new_group
    try:
        found = body()
    finally:
        dist.new_group = plain
    return [each for each in made if isinstance(each, dist.ProcessGroup)], found


def timeout_of(group):
    backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    return backend.options._timeout


def case_made_groups_have_the_models_timeout():
    for seconds in (77, 2 * 3600):
        wanted = datetime.timedelta(seconds=seconds)
        everyone = dist.new_group(timeout=wanted)
        for name, body in (
            ("register", lambda: gradsieve.torch.register(in_buckets(small_model(), process_group=everyone))),
            ("CompressedStep", lambda: compressed_step(small_model(), process_group=everyone)),
            *((shard.__name__, lambda shard=shard: gradsieve.torch.register(shard(small_model(), everyone)))
              for shard in test_sharded.kinds()),
        ):
            made, _ = groups_made_by(body)
            found = [timeout_of(each) for each in made]
            assert found and all(each == wanted for each in found), (name, found)
    wanted = timeout_of(dist.group.WORLD)
    made, _ = groups_made_by(lambda: gradsieve.torch.nodes(1))
    assert wanted == test_hook.TIMEOUT and len(made) == 2 and all(timeout_of(each) == wanted for each in made)


def case_a_peer_that_stops():
    """The exchange gives up after the model's timeout, with the collectives of each recipe."""
    patience, seconds = 20.0, 2.0
    for turn, recipe in enumerate(("radix", "radix+deft", "radix+cyclic")):
        everyone = dist.new_group(timeout=datetime.timedelta(seconds=seconds))
        model = in_buckets(small_model(), process_group=everyone)
        gradsieve.torch.register(model, recipe, 0.1, route=ROUTES[turn % 2])
        optimizer = sgd(model)
        train(model, optimizer, 3)
        with tempfile.TemporaryDirectory() as folder:
            folders = [folder]
            dist.broadcast_object_list(folders, 0)
            sign = os.path.join(folders[0], "given up")
            began = time.monotonic()
            if dist.get_rank() == 0:
                assert_raises(RuntimeError, "", lambda: train(model, optimizer, 1))
                waited = time.monotonic() - began
                open(sign, "w").close()
                assert 0.5 * seconds < waited < 4 * seconds, f"{recipe}: gave up after {waited:.1f} s"
            else:
                while not os.path.exists(sign):
                    if time.monotonic() > began + patience:
                        os._exit(1)  # the other one is waiting for this process
                    time.sleep(0.05)
            dist.barrier()


def case_groups_that_do_not_fit():
    rank = dist.get_rank()
    alone = [dist.new_group([each]) for each in range(dist.get_world_size())]
    gone = dist.new_group()
    dist.destroy_process_group(gone)
    for text, group in (
        (f"has the ranks [{rank}], the model's group [0, 1]", alone[rank]),
        ("this rank is not in", alone[1 - rank]),
        ("the model's own group", dist.group.WORLD),
        ("was destroyed", gone),
    ):
        before = len(threads())
        assert_raises(ValueError, text,
                      lambda: gradsieve.torch.register(in_buckets(small_model()), process_group=group))
        assert_raises(ValueError, "hook_group " + text if text[0] == "h" else text,
                      lambda: compressed_step(small_model(), hook_group=group))
        for shard in test_sharded.kinds():
            assert_raises(ValueError, text, lambda: gradsieve.torch.register(shard(small_model()), process_group=group))
        gc.collect()
        assert len(threads()) <= before + 2 * len(test_sharded.kinds()), "a refusal leaves a group"
    for group in ("gloo", dist.ProcessGroup):
        assert_raises(TypeError, "expected a process group",
                      lambda: gradsieve.torch.register(in_buckets(small_model()), process_group=group))
    subgroup = dist.new_group([0, 1])
    model = in_buckets(small_model(), process_group=subgroup)
    gradsieve.torch.register(model, density=0.1, process_group=dist.new_group([0, 1]))
    assert_raises(ValueError, "has a communication hook already", lambda: gradsieve.torch.register(model))
    train(model, sgd(model), 2)


def case_nodes_that_do_not_fit():
    rank, group = dist.get_rank(), dist.new_group
    halves = [group([0, 1]), group([2, 3])]
    inside, other = halves[rank // 2], halves[1 - rank // 2]
    straight = [group([0, 2]), group([1, 3])][rank % 2]
    crossed = [group([0, 3]), group([1, 2])][0 if rank in (0, 3) else 1]
    everyone, single = group(range(4)), [group([each]) for each in range(4)][rank]

    def refused(text, inside, across, model=None):
        wrapped = model or in_buckets(small_model())
        assert_raises(ValueError, text, lambda: gradsieve.torch.register(wrapped, inside=inside, across=across))

    refused("make 8; the model has 4", inside, everyone)
    refused("the only one in both", inside, inside)
    refused("is not in", other, straight)
    refused("different places in their nodes", inside, crossed)
    refused("the model's own group", dist.group.WORLD, single)
    refused("the model's own group", single, dist.group.WORLD)
    few, rest = group([0, 1]), group([2, 3])
    few = few if rank < 2 else rest
    single_inside = [group([0]), group([1]), group([2]), group([3])][rank]
    refused("the model's group", single_inside, straight, in_buckets(small_model(), process_group=few))
    for shard in test_sharded.kinds():
        refused("inside has the ranks", straight, inside, shard(small_model(), inside))
        refused("the only one in both", inside, inside, shard(small_model(), inside))
        refused("different places", inside, crossed, shard(small_model(), inside))
    gradsieve.torch.register(in_buckets(small_model()), inside=inside, across=straight)


def threads():
    return os.listdir("/proc/self/task")


def descriptors():
    return os.listdir("/proc/self/fd")


def case_groups_end_with_their_hook():
    """Models come and go; also where the hook's object goes first, or last."""
    if not os.path.isdir("/proc/self/task"):
        return

    def once(number):
        model = in_buckets(small_model())
        hook = gradsieve.torch.register(model, density=0.1, route=ROUTES[number % 2])
        train(model, sgd(model), 2)
        if number % 3 == 0:
            del hook
            train(model, sgd(model), 1)
        elif number % 3 == 1:
            del model
            gc.collect()
            assert hook.residual_norm() > 0
        local = small_model()
        sync = compressed_step(local)
        for x, y in batches(2):
            nn.functional.cross_entropy(local(x), y).backward()
            sync.step()
        for shard in test_sharded.kinds():
            model = shard(small_model())
            gradsieve.torch.register(model, density=0.1)
            train(model, sgd(model), 1)

    counts = []
    for number in range(9):
        once(number)
        gc.collect()
        dist.barrier()
        counts.append((len(threads()), len(descriptors())))
    made = dist.distributed_c10d._pg_map if not hasattr(dist.distributed_c10d, "_world") else (
        dist.distributed_c10d._world.pg_map)
    assert counts[-1][0] <= counts[2][0] + 2 and counts[-1][1] <= counts[2][1] + 2, counts
    if dist.get_rank() == 0:
        print(f"  threads and descriptors: {counts}; {len(made)} groups in torch's own list")


def case_a_loop_over_groups_goes_on():
    """Garbage is collected at any time, also in the middle of torch's work on its list of groups."""
    groups = getattr(dist.distributed_c10d, "_world", None)
    groups = dist.distributed_c10d._pg_map if groups is None else groups.pg_map
    gc.collect()
    before = len(groups)
    model = in_buckets(small_model())
    model.cycle, made = [model], gradsieve.torch.register(model)
    assert len(groups) == before + 1
    del model, made
    inside = {"__name__": dist.distributed_c10d.__name__, "groups": groups, "gc": gc}
    exec("def loop():\n    for each in groups: gc.collect()", inside)
    inside["loop"]()
    assert len(groups) == before + 1
    model = in_buckets(small_model())
    gradsieve.torch.register(model)
    assert len(groups) == before + 1


# ---- fork ------------------------------------------------------------------------------------------------------------


def in_child(body):
    """How a forked child ends that calls body(): 0, or what went wrong."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            body()
        except BaseException as error:  # for the parent to see
            print(f"  in a child: {error!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def case_a_forked_child_drops_what_it_has():
    kept = {}

    def drop():
        kept.clear()
        gc.collect()

    def goes_on():
        model, hook = kept["model"], kept["hook"]
        assert hook.residual_norm() > 0 and hook.state_dict()["groups"] and hook.report()["step"] == 2
        assert_raises(RuntimeError, "fork", lambda: train(model, sgd(model), 1))  # torch says so before, or the hook

    kinds = [(route, lambda route=route: with_hook(in_buckets(small_model()), route=route)) for route in ROUTES]
    kinds += [(shard.__name__, lambda shard=shard: with_hook(shard(small_model()))) for shard in test_sharded.kinds()]
    for name, make in kinds:
        model, hook = make()
        train(model, sgd(model), 3)
        kept.update(model=model, hook=hook)
        del model, hook
        dist.barrier()
        if name in ROUTES:
            assert in_child(goes_on) == 0, name
        assert in_child(drop) == 0, name
        train(kept["model"], sgd(kept["model"]), 1)
        assert kept["hook"].report()["step"] == 3
        kept.clear()
    local = small_model()
    kept.update(sync=compressed_step(local))
    for x, y in batches(3):
        nn.functional.cross_entropy(local(x), y).backward()
        kept["sync"].step()
    assert in_child(drop) == 0, "CompressedStep"


def with_hook(model, **options):
    return model, gradsieve.torch.register(model, density=0.1, **options)


class Collects(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        gc.collect()
        return torch.tensor(index)


def case_a_worker_of_a_data_loader_collects_an_old_hook():
    model, hook = with_hook(in_buckets(small_model()))
    train(model, sgd(model), 2)
    gc.disable()
    cycle = [model, hook]
    cycle.append(cycle)
    seen = weakref.ref(model)
    del model, hook, cycle
    loader = torch.utils.data.DataLoader(Collects(), num_workers=1, timeout=30, multiprocessing_context="fork")
    assert [each.item() for each in loader] == [0, 1, 2, 3]
    gc.enable()
    gc.collect()
    assert seen() is None


PROGRAM = """
import os, sys, torch, torch.distributed as dist, gradsieve.torch
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
hook = gradsieve.torch.register(model, density=0.5, route=sys.argv[2])
model(torch.ones(2, 8)).sum().backward()
child = os.fork()
if child == 0:
    sys.exit(7)
print(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
"""


def case_a_forked_child_that_exits():
    """By Python's own way out, which clears modules."""
    if dist.get_rank() != 0:
        return
    if torch.__version__ < "2":
        print("  skipped: a child of this torch does not end without the hook either")
        return
    for route in ROUTES:
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run([sys.executable, "-c", PROGRAM, os.path.join(folder, "store"), route], timeout=60,
                                  capture_output=True, text=True)
        assert (said.returncode, said.stdout.strip()) == (0, "7"), said


# ---- the end ---------------------------------------------------------------------------------------------------------

ENDS = """
import sys, time, torch, torch.distributed as dist, gradsieve.torch
from torch.nn.parallel import DistributedDataParallel
plain = gradsieve.torch.host_hook
class Slow:  # what is called when a bucket is done takes long
    def __init__(self, native):
        self.native = native
    def start(self, bucket, done):
        self.native.start(bucket, lambda why: (done(why), time.sleep(float(sys.argv[2]))))
gradsieve.torch.host_hook = lambda native, bucket: plain(Slow(native), bucket)
gradsieve.torch.host_hook.__annotations__ = plain.__annotations__
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
hook = gradsieve.torch.register(model, density=0.5)
model(torch.ones(2, 8)).sum().backward()
dist.destroy_process_group()  # whose threads may otherwise abort at the end
"""


def case_a_program_that_ends_with_its_last_backward_pass():
    """While the hook's thread is still in Python."""
    if dist.get_rank() != 0:
        return
    for seconds in ("0.001", "0.1"):
        with tempfile.TemporaryDirectory() as folder:
            said = subprocess.run([sys.executable, "-c", ENDS, os.path.join(folder, "store"), seconds], timeout=60,
                                  capture_output=True, text=True)
        assert said.returncode == 0, said


# ---- copies ----------------------------------------------------------------------------------------------------------


def with_warning(body):
    """What body() returns, which warns once that there is no hook in it."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = body()
    said = [str(each.message) for each in seen if "gradsieve" in str(each.message)]
    assert len(said) == 1 and "Call register()" in said[0], said
    return found


def saved_and_loaded(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, **({} if torch.__version__ < "2" else {"weights_only": False}))


def case_copies_of_a_model_have_no_hook():
    for route in ROUTES:
        plain = in_buckets(small_model())
        train(plain, sgd(plain), 3, seed=9)
        train(plain, sgd(plain), 3)
        model, hook = with_hook(in_buckets(small_model()), route=route)
        train(model, sgd(model), 3)
        for make in (copy.deepcopy, saved_and_loaded):
            other = with_warning(lambda: make(model))
            other.module.load_state_dict(small_model().state_dict())
            train(other, sgd(other), 3, seed=9)
            train(other, sgd(other), 3)
            assert torch.equal(weights(other), weights(plain)), "not DDP's own mean"
            again = gradsieve.torch.register(copy.deepcopy(other), density=0.1)
            assert again.report()["total_steps"] == 0
            gradsieve.torch.register(other, density=0.1)
        assert hook.report()["step"] == 2
        average = with_warning(lambda: torch.optim.swa_utils.AveragedModel(model))
        for _ in range(3):
            train(model, sgd(model), 1)
            average.update_parameters(model)
        average(torch.zeros(8, 16))
        assert hook.report()["step"] == 5
        assert_same_on_all_ranks(weights(average.module), route)
        assert_raises(TypeError, "save its state_dict()", lambda: copy.deepcopy(hook))
        assert_raises(TypeError, "save its state_dict()", lambda: torch.save({"hook": hook}, io.BytesIO()))
    sync = compressed_step(small_model())
    assert_raises(TypeError, "save its state_dict()", lambda: copy.deepcopy(sync))


def case_other_hooks_stay_in_a_copy():
    if torch.__version__ < "2":
        return
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    model, _ = with_hook(in_buckets(small_model()))
    model._comm_hooks.append((default_hooks.allreduce_hook, None))
    other = with_warning(lambda: copy.deepcopy(model))
    assert [each[0] for each in other._comm_hooks] == [default_hooks.allreduce_hook]
    assert len(model._comm_hooks) == 2


# ---- parameters ------------------------------------------------------------------------------------------------------


def backward(model, steps=3):
    for x, y in batches(steps):
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()


def case_a_layer_frozen_before_register():
    for route in ROUTES:
        # DDP waits for a gradient that does not come, with the hook as without, in its own words.
        for hooked in (False, True):
            model = in_buckets(small_model())
            model.module[3].requires_grad_(False)
            if hooked:
                gradsieve.torch.register(model, density=0.1, route=route)
            assert_raises(RuntimeError, "Expected to have finished reduction in the prior iteration",
                          lambda: backward(model))

        model = in_buckets(small_model(), find_unused_parameters=True)
        model.module[3].requires_grad_(False)
        frozen = model.module[3].weight.detach().clone()
        hook = gradsieve.torch.register(model, density=1.0, route=route)
        plain = in_buckets(small_model(), find_unused_parameters=True)
        plain.module[3].requires_grad_(False)
        for each in (plain, model):
            train(each, sgd(each), 5)
        assert torch.equal(weights(plain), weights(model)) and torch.equal(frozen, model.module[3].weight)
        hook.load_state_dict(hook.state_dict())
        with hook.trace() as recorder:
            train(model, sgd(model), 3)
        assert not any(each.name.startswith("3.") for each in recorder.trace.layers)

        model = small_model()  # frozen first, wrapped then, and of a type without gradients: no objection
        model[3].requires_grad_(False)
        model.register_parameter("table", nn.Parameter(torch.zeros(5, dtype=torch.int8), requires_grad=False))
        model = in_buckets(model)
        gradsieve.torch.register(model, density=0.1, route=route)
        train(model, sgd(model), 3)
        assert_same_on_all_ranks(weights(model), "frozen before it was wrapped")
    for shard in test_sharded.kinds():
        model = small_model()
        wrapped = shard(model)
        for name, each in wrapped.named_parameters():
            if name.startswith("3."):
                each.requires_grad_(False)
        gradsieve.torch.register(wrapped, density=0.1)
        train(wrapped, sgd(wrapped), 3)
        assert_same_on_all_ranks(test_sharded.whole_weights(wrapped), shard.__name__)


class Words(nn.Module):
    def __init__(self, sparse=True, kind=nn.Embedding):
        super().__init__()
        self.words = kind(16, 24, sparse=sparse)
        self.out = nn.Linear(24, 4)

    def forward(self, x):
        found = self.words(x.abs().mul(5).long().clamp(max=15))
        return self.out(found if found.dim() == 2 else found.mean(1))


def case_sparse_gradients_are_refused_by_name():
    for kind in (nn.Embedding, nn.EmbeddingBag):
        assert_raises(ValueError, "parameter 'words.weight' has sparse gradients",
                      lambda: gradsieve.torch.register(DistributedDataParallel(Words(kind=kind))))
        model, _ = with_hook(DistributedDataParallel(Words(sparse=False, kind=kind)))
        train(model, sgd(model), 2)
    # Those that are not exchanged, and those of CompressedStep, which exchanges parameters.
    module = Words()
    module._ddp_params_and_buffers_to_ignore = ["words.weight"]
    model, hook = with_hook(DistributedDataParallel(module))
    backward(model)
    assert "words.weight" not in hook.state_dict()["groups"][0][0]
    module = Words()
    module.words.weight.requires_grad_(False)
    with_hook(DistributedDataParallel(module))
    module = Words()
    sync = gradsieve.torch.CompressedStep(module, torch.optim.SGD(module.parameters(), lr=0.1), every=2, density=0.5)
    for x, y in batches(4):
        module.zero_grad()
        nn.functional.cross_entropy(module(x), y).backward()
        sync.step()
    with sync.common_parameters():
        assert_same_on_all_ranks(weights(module), "sparse gradients in CompressedStep")


class Extra(nn.Module):
    """small_model() with one more parameter, which counts."""

    def __init__(self, tensor):
        super().__init__()
        self.body = small_model()
        self.extra = nn.Parameter(tensor)

    def forward(self, x):
        out = self.body(x)
        return out + self.extra.abs().sum().to(out.dtype)


def case_parameters_of_every_type():
    torch.manual_seed(5)
    if torch.__version__ >= "2":  # older DDP does not take complex ones
        for dtype in (torch.complex64, torch.complex128):
            module = Extra(torch.randn(3, dtype=dtype))
            for density in (0.1, 1.0):
                assert_raises(ValueError, f"parameter 'extra' is {str(dtype)[6:]}",
                              lambda: gradsieve.torch.register(DistributedDataParallel(module), density=density))
            assert_raises(ValueError, "parameter 'extra' is complex", lambda: compressed_step(module))
    wide = torch.randn(3, dtype=torch.float64)
    for options in ({"density": 0.1}, {"density": 1.0, "initial_density": 1.0, "warmup": 3},
                    {"density": 1.0, "on_non_finite": "fail"}, {"density": 1.0, "recipe": "radix+momentum"},
                    {"recipe": "adacomp"}):
        assert_raises(ValueError, "parameter 'extra' is float64",
                      lambda: gradsieve.torch.register(in_buckets(Extra(wide)), **options))
    assert_raises(ValueError, "parameter 'extra' is float64", lambda: compressed_step(Extra(wide)))
    plain, model = in_buckets(Extra(wide.clone())), in_buckets(Extra(wide.clone()))
    gradsieve.torch.register(model, density=1.0)
    for each in (plain, model):
        train(each, sgd(each), 4)
    assert torch.equal(weights(plain), weights(model)), "float64 beside float32 at density 1"
    model = in_buckets(small_model(torch.float64))
    model.mixed_precision = types.SimpleNamespace(reduce_dtype=torch.float32)  # as DDP's own, which needs a GPU
    with_hook(model)
    for shard in test_sharded.kinds():
        assert_raises(ValueError, "weight' is float64",
                      lambda shard=shard: gradsieve.torch.register(shard(small_model(torch.float64)), density=0.1))
    if test_sharded.FSDP2:  # FSDP itself refuses complex ones
        module = small_model()
        module.register_parameter("extra", nn.Parameter(torch.randn(4, 2, dtype=torch.complex64)))
        assert_raises(ValueError, "'extra' is complex64", lambda: gradsieve.torch.register(test_sharded.fsdp2(module)))


def case_empty_parameters():
    shapes = [(0,)] if torch.__version__ < "2" else [(0,), (0, 7)]  # older DDP takes no other
    for route, empty in ((route, torch.empty(shape)) for route in ROUTES for shape in shapes):
        for recipe in ("radix", "radix+layerwise", "laplacian+deft", "adacomp"):
            model = in_buckets(Extra(empty.clone()))
            hook = gradsieve.torch.register(model, recipe, test_hook.density_of(recipe, 0.1), route=route)
            train(model, sgd(model), 4)
            assert_same_on_all_ranks(weights(model), "an empty parameter")
            assert model.module.extra.grad.shape == empty.shape
            hook.load_state_dict(hook.state_dict())
    module = Extra(torch.empty(0))  # in a bucket of its own
    plain, model = DistributedDataParallel(module, bucket_cap_mb=1e-6), DistributedDataParallel(
        copy.deepcopy(module), bucket_cap_mb=1e-6)
    gradsieve.torch.register(model, density=1.0)
    for each in (plain, model):
        train(each, sgd(each), 4)
    assert torch.equal(weights(plain), weights(model))
    module = Extra(torch.empty(0))
    sync = compressed_step(module)
    for x, y in batches(4):
        nn.functional.cross_entropy(module(x), y).backward()
        sync.step()
    with sync.common_parameters():
        assert_same_on_all_ranks(weights(module), "an empty parameter in CompressedStep")


# ---- states ----------------------------------------------------------------------------------------------------------


def with_bytes(state):
    """As version 2 saved it."""
    return {**state, "version": 2, "groups": [(names, saved.numpy().tobytes()) for names, saved in state["groups"]]}


def case_states_are_tensors_and_older_ones_load():
    make = [in_buckets, *test_sharded.kinds()]
    for wrap in make:
        model, hook = with_hook(wrap(small_model()))
        train(model, sgd(model), 4)
        state = hook.state_dict()
        assert all(saved.dtype == torch.uint8 and saved.dim() == 1 for _, saved in state["groups"])
        if hasattr(torch, "set_default_device"):  # torch 2
            with torch.device("meta"):
                elsewhere = hook.state_dict()
            assert all(torch.equal(one[1], other[1]) for one, other in zip(state["groups"], elsewhere["groups"]))
        again = hook.state_dict()
        train(model, sgd(model), 1)
        assert all(torch.equal(one[1], other[1]) for one, other in zip(state["groups"], again["groups"])), "a view"
        file = io.BytesIO()
        torch.save(state, file)
        held = sum(saved.numel() for _, saved in state["groups"])
        assert file.tell() < held + 1024 * (4 + 2 * len(state["groups"])), (file.tell(), held)
        file.seek(0)
        loaded = torch.load(file, **({} if torch.__version__ < "1.13" else {"weights_only": True}))
        norms = []
        for each in (state, loaded, with_bytes(state)):
            hook.load_state_dict(each)
            norms.append(hook.residual_norm())
            now = hook.state_dict()["groups"]
            assert all(torch.equal(one[1], other[1]) for one, other in zip(now, state["groups"]))
        assert norms[0] == norms[1] == norms[2] > 0
        names, saved = state["groups"][0]
        for text, bad in (("a tensor of float32", saved.float()), ("is damaged", "text")):
            assert_raises(ValueError, text, lambda: hook.load_state_dict({**state, "groups": [(names, bad)]}))


test_hook.TWO_RANKS = [
    case_made_groups_have_the_models_timeout,
    case_a_peer_that_stops,
    case_groups_that_do_not_fit,
    case_groups_end_with_their_hook,
    case_a_loop_over_groups_goes_on,
    case_a_forked_child_drops_what_it_has,
    case_a_worker_of_a_data_loader_collects_an_old_hook,
    case_a_forked_child_that_exits,
    case_a_program_that_ends_with_its_last_backward_pass,
    case_copies_of_a_model_have_no_hook,
    case_other_hooks_stay_in_a_copy,
    case_a_layer_frozen_before_register,
    case_sparse_gradients_are_refused_by_name,
    case_parameters_of_every_type,
    case_empty_parameters,
    case_states_are_tensors_and_older_ones_load,
]
test_hook.THREE_RANKS = []
test_hook.FOUR_RANKS = [case_nodes_that_do_not_fit]

if __name__ == "__main__":
    test_hook.main()
