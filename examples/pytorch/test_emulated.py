"""What the package does on device memory, on a machine without a GPU: buckets of two ranks beside the same on the host, to
the bit, with a stand-in for NCCL. Runs under tests/ptxcpu, which the build calls where GRADSIEVE_TEST_SLOW is on:
`tests/ptxcpu/run.sh python3 test_emulated.py`, GRADSIEVE_LIBRARY a libgradsieve_python.so with CUDA::cudart."""

import contextlib
import ctypes
import gc
import os
import sys
import tempfile

import torch
import torch.distributed as dist

if "PTXCPU" not in os.environ:
    sys.exit("test_emulated.py: run it by tests/ptxcpu/run.sh")
RUNTIME = ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)  # before the library: its kernels call it

from gradsieve._process_group import ProcessGroup  # noqa: E402
from gradsieve.torch import _native  # noqa: E402

LAYERS = [("a", 3000), ("b", 40), ("c", 1500)]
TOTAL = sum(size for _, size in LAYERS)
RECIPES = [("radix+coo", 0.05), ("radix", 0.05), ("laplacian+coo", 0.05), ("hierarchical+none+fixed_width+int4", 0.1),
           ("chunked+raw32+fp16", 0.05), ("radix+layerwise+fixed_width+sign", 0.05), ("laplacian+deft+coo", 0.05),
           ("radix+cyclic+raw32+fp16", 0.05), ("radix+micro+coo", 0.05), ("radix+momentum+coo", 0.05),
           ("radix+cyclic+filtered", 0.05), ("adacomp+layerwise+coo", None), ("radix", 1.0)]


def check(code):
    assert code == 0, f"CUDA says {code}"


def allocate(size):
    at = ctypes.c_void_p()
    check(RUNTIME.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(size)))
    return at.value


def on_device(values):
    """Of the same type; the host sees device memory here."""
    size = values.numel() * values.element_size()
    made = torch.frombuffer((ctypes.c_char * size).from_address(allocate(size)), dtype=values.dtype)
    return made.copy_(values)


class Stream:
    def __init__(self):
        at = ctypes.c_void_p()
        check(RUNTIME.cudaStreamCreate(ctypes.byref(at)))
        self.cuda_stream, self.device = at.value, None

    def wait(self):
        check(RUNTIME.cudaStreamSynchronize(ctypes.c_void_p(self.cuda_stream)))


class StreamOrdered(ProcessGroup):
    """NCCL's: each collective when the stream has come to it."""

    def __init__(self, group, stream):
        self._stream = stream
        super().__init__(group)
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self.sum_counts = kind(self._guarded(lambda address, count, maximum: self._all_reduce_float(
            address, count, maximum, torch.int32)))

    def _around(self, address, count, dtype):
        self._stream.wait()
        return super()._around(address, count, dtype)


class DeviceBuckets(_native.Buckets):
    held = 0  # allocations

    def _pool(self, stream):
        def take(size):
            DeviceBuckets.held += 1
            return allocate(size)

        def give(at):
            DeviceBuckets.held -= 1
            check(RUNTIME.cudaFree(ctypes.c_void_p(at)))

        self._memory = _native._Allocate(take), _native._Release(give)
        return self._memory


class Side(_native.Native):
    def _between_steps(self):
        return contextlib.nullcontext()


class Pair:
    """Buckets on the device, and the same on the host."""

    def __init__(self, stream, recipe, density, **wishes):
        self.stream = stream
        _native.DeviceProcessGroup = lambda group, device: StreamOrdered(group, stream)
        made = []
        for kind, more in ((DeviceBuckets, (stream,)), (_native.Buckets, ())):
            wanted = _native.Wishes(recipe=recipe, density=density, passthrough=["b"],
                                    model=[(name, size, 2, []) for name, size in LAYERS], **wishes)
            made.append(Side(kind(wanted, dist.new_group(), None, LAYERS, 1, *more)))
        self.device, self.host = made

    def step(self, values, **facts):
        """What went wrong, if anything, on both."""
        there, here = on_device(values), values.clone()
        said = []
        for side, gradient in ((self.device, there), (self.host, here)):
            try:
                side._buckets.exchange((_native.FORMATS[values.dtype], gradient.data_ptr(), TOTAL), True,
                                       range(len(LAYERS)), **facts)
                said.append("")
            except Exception as error:
                said.append(str(error))
        self.stream.wait()
        assert said[0] == said[1], said
        assert torch.equal(there.nan_to_num(7), here.nan_to_num(7)), (there.float() - here.float()).abs().max()
        return said[0]

    def both(self, name, *arguments):
        for side in (self.device, self.host):
            getattr(side, name)(*arguments)
        norms = self.device.residual_norm(), self.host.residual_norm()
        assert abs(norms[0] - norms[1]) < 1e-9 * norms[1], (name, norms)

    def check_residuals(self):
        there, here = [[torch.empty(size) for _, size in LAYERS] for _ in range(2)]
        there = list(map(on_device, there))
        self.device.copy_residual(there)
        self.host.copy_residual(here)
        self.stream.wait()
        assert all(map(torch.equal, there, here)) and sum(each.abs().sum() for each in here) > 0


def cases(rank):
    stream = Stream()
    chance = torch.Generator().manual_seed(rank)

    def gradient(dtype=torch.float32):
        return (torch.randn(TOTAL, generator=chance) * torch.rand(TOTAL, generator=chance) ** 3).to(dtype)

    for recipe, density in RECIPES:
        pair = Pair(stream, recipe, density)
        for _ in range(4):
            pair.step(gradient())
        assert pair.device.report()["selected"] == pair.host.report()["selected"], recipe
    for dtype in (torch.float16, torch.bfloat16):
        pair = Pair(stream, "laplacian+fixed_width+fp16", 0.05)
        for _ in range(3):
            pair.step(gradient(dtype))
    for policy in ("skip", "fail", "propagate"):
        pair = Pair(stream, "radix+coo", 0.05, on_non_finite=policy, undo=policy != "propagate")
        pair.step(gradient())
        wrong = gradient()
        wrong[5] = float("nan") if rank else 1.0
        assert ("what it was before the step" in pair.step(wrong)) == (policy == "fail")
        pair.step(gradient())
        pair.check_residuals()
        pair.both("rescale", 0.5)
        if policy != "propagate":
            pair.both("undo_step")
            pair.step(gradient())
        pair.both("discard_step")
        again = Pair(stream, "radix+coo", 0.05, on_non_finite=policy)
        again.device.restore(pair.host.state())  # a device goes on from a host's state, and the other way
        again.host.restore(pair.device.state())
        again.step(gradient())
        again.both("discard_step")
    pair = Pair(stream, "radix+coo", 0.05)
    pair.step(gradient())
    pair.step(gradient(), marks=[1, 0, 1], unused_is_left=True)  # no rank used b
    pair.step(gradient(), marks=[1, rank, 1], unused_is_left=True)
    del pair, again
    gc.collect()
    assert DeviceBuckets.held == 0, "not all device memory was given back"


def run(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    cases(rank)
    dist.barrier()
    if rank == 0:
        print(f"{len(RECIPES)} recipes: a device does to the bit what the host does", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # the emulator's threads have no end


if __name__ == "__main__":
    if not _native.serves_devices:
        sys.exit("test_emulated.py: the library was built without CUDA")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, args=(os.path.join(folder, "store"),), nprocs=2)
