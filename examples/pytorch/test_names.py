"""Which parameters pass through uncompressed, and which patterns of names are refused: `python3 test_names.py`.

On two ranks. The names of published models are in tests/names of the repository.
"""

import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsieve.torch
from test_hook import assert_raises, in_buckets, sgd, small_model, train
from test_sharded import kinds

PARAMETERS = pathlib.Path(__file__).resolve().parents[2] / "tests/names/parameters.txt"


def published_models():
    """(title, [(name, dimensions, role, class of the module)])"""
    models = []
    for number, line in enumerate(PARAMETERS.read_text().splitlines()[1:]):
        words = line.split()
        if words[0] == "model":
            models.append((" ".join(words[1:]), []))
        else:
            models[-1][1].append((words[0].replace("#", str(number)), int(words[1]), *words[2:]))
    return models


def model_of(parameters):
    """Modules of these classes, where they are norms of torch, with small parameters."""
    root = nn.Module()
    for name, dimensions, _, kind in parameters:
        *path, last = name.split(".")
        place = root
        for depth, part in enumerate(path):
            if part not in place._modules:
                known = getattr(nn, kind, None) if depth + 1 == len(path) and "Norm" in kind else None
                fresh = nn.Module.__new__(known or nn.Module)
                nn.Module.__init__(fresh)
                place.add_module(part, fresh)
            place = place._modules[part]
        place.register_parameter(last, nn.Parameter(torch.zeros([2] * dimensions)))
    return root


def case_published_models(group):
    models = published_models()
    assert len(models) >= 25
    for title, parameters in models:
        hook = gradsieve.torch.register(DistributedDataParallel(model_of(parameters)), process_group=group)
        for name, _, role, kind in parameters:
            if role != "vector":
                assert (name in hook.passthrough) == (role in ("norm", "bias")), f"{title}: {name}, {role} of {kind}"
        assert hook.describe().split("; ")[-1].startswith(f"{len(hook.passthrough)} of {len(parameters)} parameters")


class Odd(nn.Module):
    """Names that say something else than modules and shapes."""

    def __init__(self):
        super().__init__()
        self.norm = nn.Linear(3, 4)
        self.normals = nn.Linear(4, 4, bias=False)
        self.stack = nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm((2, 4)), nn.BatchNorm1d(2))
        self.relative_position_bias_table = nn.Parameter(torch.zeros(5, 2))
        self.scale = nn.Parameter(torch.zeros(()))
        self.layer_scale = nn.Parameter(torch.zeros(4, 1, 1))
        self.token = nn.Parameter(torch.zeros(1, 1, 4))
        self.single = nn.Linear(4, 1, bias=False)
        self.convolution = nn.Conv2d(1, 2, (2, 1), bias=False)
        self.encoder = nn.Linear(4, 4, bias=False)
        self.decoder = nn.Linear(4, 4, bias=False)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        y = self.stack(self.normals(self.norm(x)))
        return self.decoder(torch.tanh(self.encoder(y))).sum() * self.scale + self.relative_position_bias_table.sum()


def case_kinds_and_dimensions_decide(group):
    hook = gradsieve.torch.register(DistributedDataParallel(Odd()), process_group=group)
    assert hook.passthrough == {"scale": 1, "layer_scale": 4, "token": 4, "norm.bias": 4, "stack.1.weight": 8,
                                "stack.1.bias": 8, "stack.2.weight": 2, "stack.2.bias": 2}, hook.passthrough
    assert hook.describe().endswith("8 of 15 parameters pass through, 33 of 111 elements: " + ", ".join(hook.passthrough))
    model = Odd()
    outer = gradsieve.torch.CompressedStep(model, torch.optim.SGD(model.parameters(), lr=0.1), "radix",
                                           passthrough=[gradsieve.torch.BIASES_AND_NORMS], hook_group=group)
    assert outer.hook.passthrough == hook.passthrough  # though its modules are of no kind
    report = hook.report()
    assert report["passthrough_layers"] == 8 and report.passthrough == hook.passthrough
    assert "passing through" in report.summary()


def case_patterns(group):
    def passing(module, *patterns, **options):
        model = DistributedDataParallel(module)
        return set(gradsieve.torch.register(model, passthrough=patterns, process_group=group, **options).passthrough)

    def refused(module, what, **options):
        model = DistributedDataParallel(module)
        assert_raises(ValueError, f"pattern '{what}' matches none of the",
                      lambda: gradsieve.torch.register(model, process_group=group, **options))

    for pattern in ("0.weight", "module.0.weight", "_orig_mod.0.weight", "module._orig_mod.0._fsdp_wrapped_module.weight",
                    "0._checkpoint_wrapped_module.weight"):
        assert passing(small_model(), pattern) == {"0.weight"}, pattern
    for pattern in ("encoder.*", "decoder.weight", "module.decoder.*"):  # one weight of two names
        assert passing(Odd(), pattern) == {"encoder.weight"}, pattern
    assert len(passing(small_model(), gradsieve.torch.BIASES_AND_NORMS, "0.weight")) == 6
    assert passing(small_model()) == set()
    for wrong in ("0.wejght", "head.*", "mod*", "Module.0.weight"):
        refused(small_model(), wrong, passthrough=["0.bias", wrong])
    refused(small_model(), "conv*", recipe="adacomp", bins={"conv*": 50, "": 500})
    gradsieve.torch.register(DistributedDataParallel(Odd()), recipe="adacomp", process_group=group,
                             bins={"decoder.*": 50, "module.norm.*": 20, "": 500})
    if hasattr(torch, "compile"):
        assert passing(torch.compile(small_model()), "0.weight") == {"_orig_mod.0.weight"}


def case_a_pattern_of_one_bucket(group):
    """The others have no such parameter."""
    model = in_buckets(small_model())
    hook = gradsieve.torch.register(model, passthrough=["0.weight"], process_group=group)
    train(model, sgd(model), 3)
    assert hook.report()["passthrough_elements"] == hook.passthrough["0.weight"]
    model = in_buckets(small_model())
    hook = gradsieve.torch.register(model, recipe="adacomp", bins={"0.*": 20, "": 500}, process_group=group)
    train(model, sgd(model), 3)


def case_sharded(group):
    for kind in kinds():
        hook = gradsieve.torch.register(kind(small_model()), process_group=group)
        assert set(hook.passthrough) == {"0.bias", "2.weight", "2.bias", "3.bias", "5.bias"}, hook.passthrough
        hook = gradsieve.torch.register(kind(small_model()), passthrough=["_fsdp_wrapped_module.0.weight", "5.*"],
                                        process_group=group)
        assert set(hook.passthrough) == {"0.weight", "5.weight", "5.bias"}, hook.passthrough
        assert_raises(ValueError, "pattern '0.wejght' matches none of the", lambda kind=kind: gradsieve.torch.register(
            kind(small_model()), passthrough=["0.wejght"], process_group=group))
        model = kind(small_model())
        hook = gradsieve.torch.register(model, passthrough=["0.*"], process_group=group)
        train(model, sgd(model), 2)
        assert hook.report()["passthrough_elements"] == sum(hook.passthrough.values())


def run_cases(rank, world, store):
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1024
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    group = dist.new_group()
    for case in (case_published_models, case_kinds_and_dimensions_decide, case_patterns, case_a_pattern_of_one_bucket,
                 case_sharded):
        case(group)
        if rank == 0:
            print(case.__name__, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_cases, args=(2, os.path.join(folder, "store")), nprocs=2)
