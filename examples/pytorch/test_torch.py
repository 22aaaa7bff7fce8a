"""Torch's own tests of DistributedDataParallel and FSDP, as torch installs them, on two ranks over Gloo: first as they
are, then with the hook at density 1 in every model. What passes as it is passes with the hook, or stands below with
its reason.

    python3 test_torch.py             # a choice of them
    python3 test_torch.py --all       # all; a few minutes
    python3 test_torch.py NAME...     # those whose names contain one of these

Skipped (status 77) where torch or its test modules are missing.
"""

import argparse
import contextlib
import datetime
import importlib.util
import inspect
import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
import types
import unittest

os.environ.update(BACKEND="gloo", WORLD_SIZE="2", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29511")
PATIENCE = 240  # seconds for one test


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


if importlib.util.find_spec("torch") is None:
    skip(f"{sys.executable} has no torch")
if importlib.util.find_spec("expecttest") is None:  # torch's modules need its names, the tests below do not use it
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)

arguments, sys.argv = sys.argv[1:], sys.argv[:1]  # torch's modules read the command line
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

try:
    from torch.testing._internal import common_distributed
    from torch.testing._internal.common_distributed import TEST_SKIPS, initialize_temp_directories

    # Most tests ask for a GPU a rank, and need none: CPUForGPUs, below.
    common_distributed.skip_if_lt_x_gpu = common_distributed.nccl_skip_if_lt_x_gpu = lambda *_, **__: lambda test: test
    common_distributed.skip_if_no_gpu = lambda test: test
    common_distributed.init_multigpu_helper = lambda world, _: {rank: [rank] for rank in range(world)}
    from torch.testing._internal.distributed.distributed_test import Barrier, DistributedTest, TestDistBackend
except ImportError as error:
    skip(f"torch {torch.__version__} has no tests that can run here: {error}")
try:
    from torch.testing._internal import common_fsdp
    from torch.testing._internal.common_fsdp import DEVICEInitMode, FSDPInitMode, FSDPTest, FSDPTestMixin
except Exception:  # noqa: BLE001  (torch 1.13's FSDP cannot be imported with Python 3.11)
    common_fsdp = None

import gradsieve.torch  # noqa: E402

#: Tests that pass without the hook and not with it.
REASONS = {
    "test_ddp_profiling_torch_profiler": "it counts collectives, and those of the exchange are in a thread of which torch's "
                                         "profiler shows the buckets' ranges alone",
    "test_ddp_profiling_autograd_profiler": "so does this one",
    "test_ddp_comm_hook_logging": "it expects a model without a hook",
    "test_ddp_grad_div_uneven_inputs": "divide_by_initial_world_size is ignored with any hook, as torch documents",
}

#: What runs without --all.
CHOICE = {f"test_{name}" for name in (
    "DistributedDataParallelCPU", "DistributedDataParallelCPU_grad_is_view", "DistributedDataParallel_requires_grad",
    "DistributedDataParallel_with_amp_and_grad_is_view", "ddp_broadcast_buffer_via_hook",
    "ddp_build_debug_param_to_name_mapping", "ddp_create_graph", "ddp_forward_backward_hook", "ddp_ignore_params_arg",
    "ddp_join_model_equivalence", "ddp_logging_data_cpu", "ddp_multiple_nested_unused_params_error",
    "ddp_new_tensor_in_fwd_static_graph", "ddp_static_graph_nested_types",
    "ddp_sync_module_states", "ddp_uneven_input_exception", "ddp_uneven_input_join_disable",
    "ddp_unused_params_rebuild_buckets_exception",
    "detect_ddp_is_actually_static", "different_graph_across_ranks", "output_unused_in_loss_tuple_module",
    "post_localSGD_optimizer_parity_with_hierarchical_sgd", "stateless_api_with_ddp", "static_graph_api_cpu",
    "undefined_grad_parity_unused_parameters", "fsdp_nested", "fsdp_transformer_orig_params", "fully_shard_mlp_stack")}


# ---- the CPU in place of GPUs ----------------------------------------------------------------------------------------


class CPUForGPUs(TorchFunctionMode):
    """What a test puts on a GPU stays on the CPU."""

    def __init__(self):
        super().__init__()
        nothing = lambda *_, **__: None  # noqa: E731
        torch.cuda.set_device = torch.cuda.synchronize = nothing
        torch.cuda.device = lambda *_: contextlib.nullcontext()
        torch.cuda.device_count = lambda: 2
        construct = DistributedDataParallel.__init__

        def without_devices(self, module, device_ids=None, output_device=None, **named):
            construct(self, module, **named)

        DistributedDataParallel.__init__ = without_devices

    def __torch_function__(self, function, kinds, positional=(), named=None):
        if function is torch.Tensor.cuda:
            return positional[0]
        if function is torch.Tensor.to:
            positional = positional[:1] + tuple(on_cpu(each) for each in positional[1:])
        if named and "device" in named:
            named = {**named, "device": on_cpu(named["device"])}
        return function(*positional, **(named or {}))


def on_cpu(device):
    is_gpu = isinstance(device, int) and not isinstance(device, bool) or str(device).startswith("cuda")
    return torch.device("cpu") if is_gpu else device


# ---- models with the hook --------------------------------------------------------------------------------------------

made = {"hooks": 0, "refused": []}


def register(model):
    """At density 1; True if it is. What register() refuses stays as it is, and is told."""
    try:
        gradsieve.torch.register(model, density=1.0)
        made["hooks"] += 1
        return True
    except ValueError as error:
        made["refused"].append(str(error))
        return False


def register_in_every_ddp():
    construct = DistributedDataParallel.__init__

    def construct_with_hook(self, *positional, **named):
        construct(self, *positional, **named)
        self.has_our_hook = register(self)

    def unless_it_has_one(attach):
        def checked(self, *positional, **named):
            if getattr(self, "has_our_hook", False):
                raise unittest.SkipTest("brings a hook of its own")
            return attach(self, *positional, **named)
        return checked

    DistributedDataParallel.__init__ = construct_with_hook
    for name in ("register_comm_hook", "_register_builtin_comm_hook"):
        setattr(DistributedDataParallel, name, unless_it_has_one(getattr(DistributedDataParallel, name)))


# ---- tests -----------------------------------------------------------------------------------------------------------


class TestDDP(TestDistBackend, DistributedTest._DistTestBase):
    def _barrier(self, *positional, **named):
        Barrier.sync(*positional, **{"timeout": PATIENCE, **named})

    @classmethod
    def _run(cls, rank, name, store, pipe):
        """As torch has it, without what torch 1.13 imports there, which Python 3.11 cannot."""
        test = cls(name)
        test.rank, test.file_name = rank, store
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2,
                                timeout=datetime.timedelta(seconds=PATIENCE))
        with CPUForGPUs():
            test._barrier()
            test.run_test(name, pipe)
            test._barrier()
        dist.destroy_process_group()


def about_ddp(test, seen=()):
    """Whether a test, or a method that it calls, makes a DDP."""
    source = inspect.getsource(inspect.unwrap(getattr(TestDDP, test)))
    called = [name for name in re.findall(r"self\.(_test_\w+|_\w*ddp\w*)\(", source) if hasattr(TestDDP, name)]
    return "DistributedDataParallel" in source or any(
        about_ddp(name, (*seen, test)) for name in called if name not in seen and name != test)


if common_fsdp is not None:

    class TestFSDP(FSDPTest):
        """The comparison with DDP that torch's tests of FSDP make, and that of FSDP2 with a model on one rank."""

        world_size = 2
        hooked = False
        _run = classmethod(FSDPTestMixin._run.__func__)

        def _train_for_several_steps(self, model, *positional, **named):
            if self.hooked:
                register(model)
            return super()._train_for_several_steps(model, *positional, **named)

        def parity(self, model, **options):
            self._test_fsdp_parity(model, FSDPInitMode.RECURSIVE, DEVICEInitMode.DEVICE_BEFORE,
                                   num_iters=3, save_model=False, device_id=torch.device("cpu"), **options)

        def test_fsdp_nested(self):
            self.parity(common_fsdp.NestedWrappedModule)

        def test_fsdp_nested_shard_grad_op(self):
            self.parity(common_fsdp.NestedWrappedModule,
                        sharding_strategy=torch.distributed.fsdp.ShardingStrategy.SHARD_GRAD_OP)

        def test_fsdp_nested_no_shard(self):
            self.parity(common_fsdp.NestedWrappedModule,
                        sharding_strategy=torch.distributed.fsdp.ShardingStrategy.NO_SHARD)

        def test_fsdp_nested_cpu_offload(self):
            self.parity(common_fsdp.NestedWrappedModule,
                        cpu_offload=torch.distributed.fsdp.CPUOffload(offload_params=True))

        def test_fsdp_nested_orig_params(self):
            self.parity(common_fsdp.NestedWrappedModule, use_orig_params=True)

        def test_fsdp_nested_backward_prefetch(self):
            self.parity(common_fsdp.NestedWrappedModule,
                        backward_prefetch=torch.distributed.fsdp.BackwardPrefetch.BACKWARD_POST, forward_prefetch=True)

        def test_fsdp_always_wrap(self):
            self.parity(common_fsdp.AlwaysWrapNestedWrappedModule)

        def test_fsdp_transformer(self):
            self.parity(common_fsdp.TransformerWithSharedParams)

        def test_fsdp_transformer_orig_params(self):
            self.parity(common_fsdp.TransformerWithSharedParams, use_orig_params=True)

        def test_fsdp_nonuniform_requires_grad(self):
            self.parity(common_fsdp.NonUniformReqGradNWM, use_orig_params=True)

        def test_fully_shard_mlp_stack(self):
            from torch.distributed.fsdp import fully_shard

            torch.manual_seed(1)
            sharded = common_fsdp.MLPStack(16)
            alone = torch.nn.Sequential(*common_fsdp.MLPStack(16))
            alone.load_state_dict(sharded.state_dict())
            for layer in (*sharded, sharded):
                fully_shard(layer)
            if self.hooked:
                register(sharded)
            optimizers = [torch.optim.Adam(each.parameters(), lr=0.01) for each in (alone, sharded)]
            torch.manual_seed(1 + self.rank)
            for _ in range(5):
                batch = torch.randn(4, 16)
                losses = [model(batch).sum() for model in (alone, sharded)]
                self.assertEqual(*losses)
                for loss, optimizer in zip(losses, optimizers):
                    optimizer.zero_grad()
                    loss.backward()
                for each in alone.parameters():
                    dist.all_reduce(each.grad)
                    each.grad /= dist.get_world_size()
                common_fsdp.check_sharded_parity(self, alone, sharded)
                for optimizer in optimizers:
                    optimizer.step()


def all_tests():
    found = [(TestDDP, name) for name in dir(TestDDP) if name.startswith("test_") and about_ddp(name)]
    if common_fsdp is None:
        print(f"skipped: tests of FSDP; torch {torch.__version__} brings none for the CPU")
        return found
    return found + [(TestFSDP, name) for name in dir(TestFSDP) if name.startswith(("test_fsdp_", "test_fully_"))]


# ---- processes -------------------------------------------------------------------------------------------------------


def run_rank(kind, name, rank, hooked, folder, pipe):
    """One rank of one test. Ends the process, with torch's code for how."""
    with open(os.path.join(folder, f"said.{rank}"), "w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    torch.set_num_threads(1)
    if hooked and kind is TestDDP:
        register_in_every_ddp()
    elif hooked:
        kind.hooked = True
    try:
        kind._run(rank, name, os.path.join(folder, "store"), pipe)
    finally:
        with open(os.path.join(folder, f"made.{rank}"), "w") as file:
            json.dump(made, file)


def run_test(kind, name, hooked):
    """passed, skipped or failed; what was said or why; and what `made` had on rank 0."""
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        initialize_temp_directories()
        Barrier.init()
        ranks, pipes = [], []
        for rank in range(2):
            here, there = fork.Pipe()
            ranks.append(fork.Process(target=run_rank, args=(kind, name, rank, hooked, folder, there)))
            pipes.append(here)
            ranks[-1].start()
            there.close()
        deadline = time.monotonic() + PATIENCE
        while any(each.is_alive() for each in ranks) and time.monotonic() < deadline:
            if any(each.exitcode for each in ranks):  # the others may wait for it
                deadline = min(deadline, time.monotonic() + 10)
            ranks[0].join(0.05)
            time.sleep(0.01)
        codes = [each.exitcode for each in ranks]
        for each in ranks:
            each.kill()
            each.join()
        said = [text_of(os.path.join(folder, f"said.{rank}")) for rank in range(2)]
        counts = os.path.join(folder, "made.0")
        told = json.load(open(counts)) if os.path.exists(counts) else made
    skips = {each.exit_code for each in TEST_SKIPS.values()}
    if all(code == 0 for code in codes):
        return "passed", "", told
    if all(code in skips or code == 0 for code in codes):
        return "skipped", "", told
    return "failed", f"exit codes {codes} (None: it did not end)\n" + "\n".join(text[-3000:] for text in said), told


def text_of(path):
    with open(path, errors="replace") as file:
        return file.read()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--all", action="store_true", help="all tests")
    options.add_argument("names", nargs="*", help="only tests whose names contain one of these")
    wanted = options.parse_args(arguments)
    began = time.monotonic()
    chosen = [(kind, name) for kind, name in all_tests()
              if (any(text in name for text in wanted.names) if wanted.names else wanted.all or name in CHOICE)]
    counts = dict.fromkeys(("pass", "with a reason", "fail"), 0)
    left = 0
    for kind, name in chosen:
        plain, _, _ = run_test(kind, name, False)
        if plain != "passed":
            left += 1
            print(f"{name}: {plain} without the hook", flush=True)
            continue
        outcome, why, told = run_test(kind, name, True)
        refused = f"; refused: {'; '.join(sorted(set(told['refused'])))}" if told["refused"] else ""
        print(f"{name}: {outcome} with {told['hooks']} hooks{refused}", flush=True)
        if outcome == "passed" and not refused:
            counts["pass"] += 1
        elif outcome == "passed":
            counts["with a reason"] += 1
        elif outcome == "skipped" or name in REASONS:
            counts["with a reason"] += 1
            print(f"  {REASONS.get(name, 'it brings a hook of its own')}")
        else:
            counts["fail"] += 1
            print(why)
        if outcome == "passed" and name in REASONS:
            print("  it passes now: take it out of REASONS")
    print(f"torch {torch.__version__}: {len(chosen)} tests in {time.monotonic() - began:.0f} s, of which {left} do not "
          f"pass here without the hook; of the others {counts['pass']} pass with it, {counts['with a reason']} do not "
          f"for a reason, {counts['fail']} fail")
    sys.exit(1 if counts["fail"] else 0)


if __name__ == "__main__":
    main()
