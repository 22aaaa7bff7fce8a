"""What the package and the C interface do on device memory, on a machine without a GPU: two ranks beside the same on the
host, to the bit, with a stand-in for NCCL. Runs under tests/ptxcpu, which the build calls where GRADSIEVE_TEST_SLOW is on:
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

import gradsieve  # noqa: E402
from gradsieve import _library  # noqa: E402
from gradsieve._library import Device  # noqa: E402
from gradsieve._process_group import ProcessGroup  # noqa: E402
from gradsieve.torch import _native, _shards  # noqa: E402

LAYERS = [("a", 3000), ("b", 40), ("c", 1500)]
TOTAL = sum(size for _, size in LAYERS)
RECIPES = [("radix+coo", 0.05), ("radix", 0.05), ("laplacian+coo", 0.05), ("hierarchical+none+fixed_width+int4", 0.1),
           ("chunked+raw32+fp16", 0.05), ("radix+layerwise+elias_fano+sign", 0.05), ("laplacian+deft+coo", 0.05),
           ("radix+cyclic+raw32+fp16", 0.05), ("radix+micro+coo", 0.05), ("radix+momentum+coo", 0.05),
           ("radix+cyclic+filtered", 0.05), ("adacomp+layerwise+coo", None), ("radix", 1.0),
           ("radix+sign+coded_all_reduce", 0.05), ("int4", 1.0)]

SHARDED = [("radix+coo", 0.05), ("laplacian+layerwise+momentum+elias_fano+sign", 0.05), ("chunked+fixed_width+fp16", 0.05),
           ("radix", 1.0)]


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
        self.cuda_stream, self.device = at.value, torch.device("cpu")

    def wait(self):
        check(RUNTIME.cudaStreamSynchronize(ctypes.c_void_p(self.cuda_stream)))


class StreamOrdered(ProcessGroup):
    """NCCL's: each collective when the stream has come to it."""

    def __init__(self, group, stream):
        self._stream = stream
        super().__init__(group)
        self.sum_counts()

    def _around(self, address, count, dtype):
        self._stream.wait()
        return super()._around(address, count, dtype)


held = 0  # allocations of pool()


def pool():
    """The two functions of a gradsieve_device."""
    def take(_, size):
        global held
        held += 1
        return allocate(size)

    def give(_, at):
        global held
        held -= 1
        check(RUNTIME.cudaFree(ctypes.c_void_p(at)))

    kinds = dict(Device._fields_)
    return kinds["allocate"](take), kinds["release"](give)


class DeviceBuckets(_native.Buckets):
    def _pool(self, stream):
        return pool()


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
        there, here = (side.residuals([size for _, size in LAYERS]) for side in (self.device, self.host))
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
    assert held == 0, "not all device memory was given back"


# ---- sharded models --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_order(stream):
    yield
    stream.wait()


def use_stand_ins():
    """From now on gradsieve.torch takes the CPU for a GPU, and FSDP2's gradients lie in device memory."""
    _native.in_order, _native.Buckets = in_order, lambda *given: (DeviceBuckets if given[-1] else HOST_BUCKETS)(*given)
    _native.DeviceProcessGroup = lambda group, device: StreamOrdered(group, STREAMS[-1])
    _native.stream_on, torch.cuda.device = lambda device: STREAMS[-1], lambda device: contextlib.nullcontext()
    _shards._ReduceScatter.allocate = lambda self, size, *, dtype, device: on_device(torch.empty(*size, dtype=dtype))


HOST_BUCKETS, STREAMS = _native.Buckets, []


def sharded(rank):
    """Units as FSDP hands them over, beside the same on the host; and with FSDP2 a model."""
    STREAMS.append(Stream())
    use_stand_ins()
    chance = torch.Generator().manual_seed(rank)
    sizes = [("0.weight", 9000), ("0.bias", 40), ("1.weight", 3001)]
    whole = sum(size for _, size in sizes)
    each = -(-whole // 2)
    ends = [("0.weight", 9000), ("0.bias", 9040), ("1.weight", 2 * each)]
    unit = _shards.Unit("one", dist.group.WORLD, _shards._cut(ends, each, 2), dict(sizes), None)
    pieces = [(f"{name}[{r}]", size) for r, part in enumerate(unit.pieces) for name, size in part]
    for recipe, density in SHARDED:
        hooks = [_native.ShardHook(wishes=_native.Wishes(recipe=recipe, density=density, passthrough=["*bias*"],
                                                         on_non_finite="fail"),
                                   group=dist.new_group(), shards=True, sizes=[size for _, size in pieces],
                                   names=[name for name, _ in pieces], counts=[len(pieces)], threads=1, stream=stream)
                 for stream in (STREAMS[-1], None)]
        exchanges = [_shards.ShardExchange(hook, [unit], None, undoes=True) for hook in hooks]
        for step in range(5):
            gradient = torch.randn(unit.size, generator=chance)
            if step == 3 and rank:
                gradient[7] = float("inf")
            shards, said = [], []
            for exchange, values in zip(exchanges, (on_device(gradient), gradient.clone())):
                shards.append(torch.full((each,), 9.0))
                try:
                    exchange._exchange(0, values, shards[-1])
                except Exception as why:
                    said.append(str(why))
            assert torch.equal(*shards) and (step == 3 or shards[0].abs().sum() > 0), (recipe, step)
            assert len(said) == (2 if step == 3 else 0) and len(set(said)) < 2, said
        hooks[1].restore(hooks[0].state())
        norms = [hook.residual_norm() for hook in hooks]
        assert abs(norms[0] - norms[1]) <= 1e-9 * norms[1], (recipe, norms)
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        if rank == 0:
            print(f"  skipped: a model of fully_shard(), which torch {torch.__version__} does not have")
    else:
        a_model_of_fsdp2(rank, fully_shard)


def a_model_of_fsdp2(rank, fully_shard):
    """It trains on the device as on the host, to the bit."""
    from torch.distributed.device_mesh import init_device_mesh

    ends = []
    for on_gpu in (True, False):
        gradsieve.torch._is_on_gpu = lambda device, threads, on_gpu=on_gpu: on_gpu
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 7))
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=init_device_mesh("cpu", (2,)))
        hook = gradsieve.torch.register(model, "radix+elias_fano+fp16", density=0.1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        chance = torch.Generator().manual_seed(rank)
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(8, 64, generator=chance)).square().mean().backward()
            optimizer.step()
        assert hook.report()["total_steps"] == (6 if not on_gpu else 1)  # a device counts the steps that are asked for
        ends.append(torch.cat([each.full_tensor().detach().flatten() for each in model.parameters()]))
    assert torch.equal(*ends) and ends[0].isfinite().all()


# ---- gradsieve.h -----------------------------------------------------------------------------------------------------

C_RECIPES = ["radix+coo@0.05", "laplacian+packed:elias_fano,fp16@0.05", "deft@0.05", "radix+reduce_scatter+coo@0.05",
             "radix+coded_all_reduce(returned=1)+packed:elias_fano,sign@0.05",
             "hierarchical+momentum+packed:raw32,int4@0.05", "radix@1"]
_device, _made = ctypes.POINTER(Device), ctypes.POINTER(ctypes.c_void_p)
_library.declare({"create_on_device": (ctypes.c_char_p, *_library._layers, _device, _made),
                  "create_nodes_on_device": (ctypes.c_char_p, *_library._layers, *(ctypes.POINTER(_library.Table),) * 2,
                                             _device, _made),
                  "create_parameters_on_device": (ctypes.c_char_p, *_library._layers, ctypes.c_void_p, ctypes.c_size_t,
                                                  ctypes.c_float, ctypes.c_float, _device, _made),
                  "create_moments_on_device": (ctypes.POINTER(_library.Layer), ctypes.c_size_t, ctypes.c_double,
                                               ctypes.c_uint32, _device, _made)})


def on(where, kind, create, *arguments):
    """An object of the package in device memory: its methods call the same functions."""
    made = kind.__new__(kind)
    _library.Owner.__init__(made, _library.Layers(LAYERS))
    made._at = ctypes.c_void_p()
    _library.call(create, *arguments, where, ctypes.byref(made._at))
    return made


def refused(create, part, *arguments):
    try:
        _library.call(create, *arguments, ctypes.byref(ctypes.c_void_p()))
    except gradsieve.InvalidArgument as why:
        assert part in str(why), why
    else:
        raise AssertionError(f"{create} takes what it should refuse by '{part}'")


def c_interface(rank):
    stream = Stream()
    where = ctypes.byref(Device(stream.cuda_stream, *(functions := pool())))
    there, here = StreamOrdered(dist.new_group(), stream), ProcessGroup(dist.new_group())
    arguments = _library.Layers(LAYERS).arguments()
    chance = torch.Generator().manual_seed(rank)

    def pair(dtype=torch.float32):
        values = torch.randn(TOTAL, generator=chance).to(dtype)
        return on_device(values), values

    def both(objects, ranks, name, values, *more):
        """The same call of both; that they end with the same bits."""
        said = [getattr(each, name)(*of, value, *more)
                for each, of, value in zip(objects, [[each] for each in ranks] or ([], []), values)]
        stream.wait()
        assert torch.equal(*values), (name, (values[0].float() - values[1].float()).abs().max())
        return said

    for recipe in C_RECIPES:
        device, host = objects = (on(where, gradsieve.Compressor, "create_on_device", recipe.encode(), *arguments),
                                  gradsieve.Compressor(recipe, LAYERS))
        for _ in range(3):
            reports = both(objects, (there, here), "exchange", pair())
            assert len({(each.step, each.selected, each.updated, each.non_finite) for each in reports}) == 1, reports
        both(objects, (there, here), "exchange", pair(), [0, 1, 0])
        both(objects, (there, here), "exchange", pair(torch.bfloat16))
        values = pair()
        for each, ranks, value in zip(objects, (there, here), values):
            each.exchange(ranks, list(value.split([size for _, size in LAYERS])))
        stream.wait()
        assert torch.equal(*values)
        for each in objects:
            each.discard_step()
        assert abs(device.residual_norm() - host.residual_norm()) <= 1e-9 * host.residual_norm()
        device.load(host.save())
        host.load(device.save())
        both(objects, (there, here), "exchange", pair())
        message, size = ctypes.c_void_p(), ctypes.c_size_t()
        values = pair()
        device._call("compress_format", 0, 0, values[0].data_ptr(), TOTAL, ctypes.byref(message), ctypes.byref(size))
        messages, sizes = (ctypes.c_void_p * 2)(message, message), (ctypes.c_size_t * 2)(size, size)
        device._call("apply_format", messages, sizes, 2, 0, values[0].data_ptr(), TOTAL)
        gradsieve.Averager.apply(host, [host.compress(values[1])] * 2, values[1])
        assert torch.equal(*values)
        assert device.describe() == host.describe()

    alone = [dist.new_group([each]) for each in range(2)][rank]
    nodes = (there, StreamOrdered(alone, stream)), (here, ProcessGroup(alone))
    objects = (on(where, gradsieve.Compressor, "create_nodes_on_device", b"radix+coo@0.05", *arguments,
                  *(ctypes.byref(each.table) for each in nodes[0])),
               gradsieve.Compressor("radix+coo@0.05", LAYERS, nodes[1]))
    for _ in range(2):
        both(objects, nodes, "exchange", pair())
    first = pair()
    objects = (on(where, gradsieve.ParameterExchange, "create_parameters_on_device", b"radix+coo@0.05", *arguments,
                  first[0].data_ptr(), TOTAL, -1.0, 0.9),
               gradsieve.ParameterExchange("radix+coo@0.05", LAYERS, first[1], momentum=0.9))
    for _ in range(4):
        change = torch.randn(TOTAL, generator=chance)
        for each in first:
            each.add_(change)
        both(objects, (there, here), "exchange", first, [0, 1, 0], 0.5)
    assert bytes(objects[0].common) == bytes(objects[1].common)
    objects[0].load(objects[1].save(), first[0])
    both(objects, (there, here), "exchange", first)
    moments = (on(where, gradsieve.SecondMoments, "create_moments_on_device", *arguments[::2], 0.1, 1),
               gradsieve.SecondMoments(LAYERS, 0.1))
    for _ in range(3):
        values = pair()
        both(moments, (there, here), "measure", values)
        norms = both(moments, (), "clip", values, 0.5)
        assert norms[0] == norms[1] > 0.5
    assert bytes(moments[0].factors) == bytes(moments[1].factors)

    for create, begin in (("create_on_device", (b"radix", *arguments)),
                          ("create_moments_on_device", (*arguments[::2], 0.1, 1))):
        refused(create, "device is null", *begin, None)
        refused(create, "allocate and release, or neither", *begin, ctypes.byref(Device(None, functions[0])))
    refused("create_on_device", "automatic does not run on a device", b"radix+packed@0.05", *arguments, where)
    refused("create_on_device", "does not offer ldte with deft", b"ldte+deft@0.05", *arguments, where)
    refused("create_on_device", "binned does not run on a device", b"adacomp+layerwise+binned", *arguments, where)
    lacks = StreamOrdered(dist.new_group(), stream)
    lacks.table.all_reduce_uint32 = type(lacks.table.all_reduce_uint32)()
    device = on(where, gradsieve.Compressor, "create_on_device", b"deft@0.05", *arguments)
    try:
        device.exchange(lacks, pair()[0])
        raise AssertionError("a communicator without all_reduce_uint32 is taken")
    except gradsieve.CommunicationError as why:
        assert "no all_reduce_uint32" in str(why)
    del device, objects, moments
    gc.collect()
    assert held == 0, "not all device memory was given back"


class Here:
    """As CuPy's array."""

    def clone(self):
        return Here(on_device(self.values))

    def __init__(self, values):
        kinds = {torch.uint8: "|u1", torch.float16: "<f2", torch.float32: "<f4"}
        self.values = values
        self.__cuda_array_interface__ = {"shape": (values.numel(),), "typestr": kinds[values.dtype], "strides": None,
                                         "data": (values.data_ptr(), False), "version": 3}


def deltas():
    """gradsieve.delta with a stream: the host's bytes, weights and errors."""
    stream, bits = Stream().cuda_stream, lambda values: values.view(torch.uint8)
    delta, chance = gradsieve.delta, torch.Generator().manual_seed(3)
    for dtype in (torch.float32, torch.float16, torch.uint8):
        before = torch.randint(0, 255, (TOTAL * 4,), generator=chance, dtype=torch.uint8).view(dtype)[:TOTAL].clone()
        after = before.clone()
        bits(after)[::97] ^= 1
        there, now, weights = Here(on_device(before)), Here(on_device(after)), Here(on_device(before))
        encoder, decoder = delta.Encoder(LAYERS, stream=stream), delta.Decoder(LAYERS, version=4, stream=stream)
        wanted = delta.Encoder(LAYERS).encode(after, before, from_version=4, to_version=6)

        def read(message):
            at, size = message.__cuda_array_interface__["data"][0], len(message)
            return ctypes.string_at(at, size)
        assert read(encoder.encode(now, there, from_version=4, to_version=6)) == wanted
        encoder.keep(there, 4)
        message = encoder.encode(now, to_version=6)
        assert read(message) == wanted and [read(each) for each in encoder.chunks()] == [wanted]
        bad = bytearray(wanted)
        bad[70] ^= 1
        held, said = bits(weights.values).clone(), []
        for by, bytes_, target in ((decoder, Here(on_device(torch.frombuffer(bad, dtype=torch.uint8))), weights),
                                   (delta.Decoder(LAYERS, version=4), bad, before.clone())):
            try:
                by.apply(bytes_, target)
            except gradsieve.CorruptError as why:
                said.append(str(why))
        assert len(said) == 2 and said[0] == said[1] and torch.equal(bits(weights.values), held)
        decoder.apply(message, weights)
        assert decoder.version == 6 and torch.equal(bits(weights.values), bits(after))
        assert delta.fingerprint(LAYERS, weights, stream=stream) == delta.fingerprint(LAYERS, after)
        for wrong in (lambda: encoder.keep(before), lambda: decoder.apply(wanted, weights),
                      lambda: delta.StateEncoder({"a": before}, stream=stream)):
            try:
                wrong()
                raise AssertionError("host memory is taken for a GPU's")
            except TypeError as why:
                assert "gradsieve: " in str(why)
    states(stream, chance)


def states(stream, chance):
    """A state in device memory, of which two names share a tensor: as on the host."""
    delta = gradsieve.delta
    old = {"a": torch.rand(75_250, generator=chance), "b": torch.rand(77, generator=chance).half(),
           "c": torch.randint(0, 255, (70_000,), generator=chance, dtype=torch.uint8), "none": torch.zeros(0)}
    new = {name: each.clone() for name, each in old.items()}
    new["a"][7:90] += 1
    new["c"][::50] ^= 3

    def placed(state):
        there = {name: Here(on_device(each) if each.numel() else each) for name, each in state.items()}
        return {**there, "tied": there["a"]}
    there, now, own = placed(old), placed(new), placed(old)
    on_host = delta.StateEncoder({**old, "tied": old["a"]})
    encoder, decoder = delta.StateEncoder(there, stream=stream), delta.StateDecoder(own, stream=stream)
    for state, tensors in ((now, new), (there, old), (now, new)):
        wanted = delta.StateDecoder._split(on_host.encode({**tensors, "tied": tensors["a"]}))
        message = encoder.encode(state)
        assert [ctypes.string_at(each.__cuda_array_interface__["data"][0], len(each)) for each in message] == wanted
        try:
            decoder.apply([message[0], *message[:-1]], own)
            raise AssertionError("a part of another format was taken")
        except gradsieve.MismatchError:
            assert torch.equal(own["a"].values, (there if state is now else now)["a"].values)
        decoder.apply(message, own)
        for name, each in tensors.items():
            assert torch.equal(own[name].values, each), name
    assert decoder.version == encoder.version == 3
    assert delta.state_fingerprint(own, stream=stream) == delta.state_fingerprint({**new, "tied": new["a"]})


def run(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    cases(rank)
    c_interface(rank)
    sharded(rank)
    if rank == 0:
        deltas()
    dist.barrier()
    if rank == 0:
        print(f"{len(RECIPES)} recipes, and {len(C_RECIPES)} in C: a device does to the bit what the host does", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # the emulator's threads have no end


if __name__ == "__main__":
    if not _native.serves_devices:
        sys.exit("test_emulated.py: the library was built without CUDA")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, args=(os.path.join(folder, "store"),), nprocs=2)
