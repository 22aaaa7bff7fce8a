"""The hook on a GPU: `python3 test_device.py`. Without a GPU, or a library that was built for one, it is skipped:
exit status 77. One rank for each GPU that there is, at most four; a single GPU shows streams and codecs, not NCCL's
traffic."""

import copy
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsieve.delta
import gradsieve.torch
import gradsieve.torch._native

CODECS = ("", "coo", *(f"{index}+{value}" for index in ("raw32", "fixed_width", "elias_fano")
                       for value in gradsieve.torch.value_codecs))


def small_model(dtype, rank):
    torch.manual_seed(1)
    layers = [nn.Linear(64, 256), nn.Tanh(), nn.LayerNorm(256), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8)]
    return DistributedDataParallel(nn.Sequential(*layers).to(rank, dtype), device_ids=[rank], bucket_cap_mb=0.1)


def train(model, steps, dtype, momentum=0.9, seed=0):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=momentum)
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    rank = next(model.parameters()).device
    for _ in range(steps):
        x = torch.randn(16, 64, generator=generator).to(rank, dtype)
        y = torch.randint(0, 8, (16,), generator=generator).to(rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).float(), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def weights(model):
    return torch.cat([each.detach().float().flatten() for each in model.parameters()])


def assert_same_on_all_ranks(model, what):
    mine = weights(model)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    assert all(torch.equal(each, mine) for each in everyone), f"{what}: ranks differ"


def deltas(rank):
    """A model's state_dict, of which two names are one tensor, follows another's; messages are the host's."""
    trained = nn.Sequential(nn.Linear(300, 300), nn.BatchNorm1d(300), nn.Linear(300, 10).bfloat16()).to(rank)
    trained.register_parameter("tied", trained[0].weight)
    received, stream = copy.deepcopy(trained), torch.cuda.current_stream(rank).cuda_stream
    encoder = gradsieve.delta.StateEncoder(trained.state_dict(), stream=stream)
    decoder = gradsieve.delta.StateDecoder(received.state_dict(), stream=stream)
    on_host = gradsieve.delta.StateEncoder({name: each.cpu() for name, each in trained.state_dict().items()})
    for _ in range(3):
        with torch.no_grad():
            for each in trained.state_dict().values():
                each.view(-1)[::7] += 1
        state = trained.state_dict()
        sent = [torch.as_tensor(each, device="cuda").clone() for each in encoder.encode(state)]
        decoder.apply(sent, received.state_dict())
        assert all(torch.equal(each, received.state_dict()[name]) for name, each in state.items()), "a delta was lost"
        wanted = gradsieve.delta.StateDecoder._split(on_host.encode({name: each.cpu() for name, each in state.items()}))
        assert [bytes(each.cpu().numpy()) for each in sent] == wanted, "a delta has other bytes than the host's"
    assert gradsieve.delta.state_fingerprint(state, stream=stream) == \
        gradsieve.delta.state_fingerprint({name: each.cpu() for name, each in state.items()})


def compressed_steps(device):
    """CompressedStep with AdamW, also with exchanges in flight: ranks hold the same common parameters, which come down, and a
    state goes on to the bit."""
    recipes = ("radix+sign", "laplacian+coo", "radix+sign+coded_all_reduce", "int4")
    for recipe, options in ((recipe, {"delay": delay}) for recipe in recipes for delay in (0, 1)):
        def made(recipe=recipe, options=options):
            torch.manual_seed(1)
            model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.LayerNorm(256), nn.Linear(256, 8)).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
            density = 1.0 if recipe == "int4" else 0.05
            return model, optimizer, gradsieve.torch.CompressedStep(model, optimizer, recipe, density, **options)

        def losses(model, optimizer, sync, steps, seed=0):
            generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
            for _ in range(steps):
                x = torch.randn(32, 64, generator=generator).to(device)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
                loss.backward()
                sync.clip_grad_norm_(1.0)
                sync.step()
                yield loss.item()
        model, optimizer, sync = made()
        first, *_, last = losses(model, optimizer, sync, 40)
        assert last < 0.8 * first, (recipe, options, first, last)
        saved = copy.deepcopy([optimizer.state_dict(), sync.state_dict()])
        list(losses(model, optimizer, sync, 4, seed=1))
        again, other, resumed = made()
        other.load_state_dict(saved[0])
        resumed.load_state_dict(saved[1])
        list(losses(again, other, resumed, 4, seed=1))
        assert torch.equal(weights(model), weights(again)), (recipe, options, "a resumed run differs")
        sync.exchange()
        with sync.common_parameters():
            assert_same_on_all_ranks(model, f"{recipe}, {options}")
        assert sync.report()["total_bytes_sent"] > 0 or dist.get_world_size() == 1


def sharded(rank, world):
    """Of FSDP and FSDP2, on one rank a GPU."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    def fsdp2(model):
        for each in (model[0], model[3], model):
            fully_shard(each, mesh=init_device_mesh("cuda", (world,)))
        return model
    for shard in (lambda model: FullyShardedDataParallel(model, device_id=rank, use_orig_params=True), fsdp2):
        losses = []
        for recipe, density in (("radix", 1.0), ("radix", 0.1), ("laplacian+layerwise+elias_fano+fp16", 0.1)):
            model = shard(small_model(torch.float32, rank).module)
            hook = gradsieve.torch.register(model, recipe, density=density)
            losses.append(train(model, 30, torch.float32, momentum=0.0))
            report = hook.report()
            assert report["step"] == 29 and report["bytes_sent"] > 0, report
        assert max(losses) < losses[0] + 0.5, losses


def run(rank, world, store):
    torch.cuda.set_device(rank)
    deltas(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=world)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for codec in CODECS if dtype == torch.float32 else ("",):
            recipe = "laplacian" + ("+" + codec if codec else "")
            model = small_model(dtype, rank)
            hook = gradsieve.torch.register(model, recipe, density=0.05)
            before = weights(model)
            train(model, 10, dtype)
            assert not torch.equal(before, weights(model))
            assert_same_on_all_ranks(model, f"{dtype}, {recipe}")
            report = hook.report()
            assert report["step"] == 9 and 0 < report["bytes_sent"] < report["baseline_bytes"], report
    for recipe in ("radix+deft+momentum", "laplacian+cyclic", "radix+deft+fp16", "laplacian+cyclic+bf16", "chunked",
                   "adacomp+elias_fano"):
        for route in ("python", "cpp"):
            model = small_model(torch.float32, rank)
            gradsieve.torch.register(model, recipe, density=None if "adacomp" in recipe else 0.05, route=route)
            train(model, 10, torch.float32, momentum=0.0 if "momentum" in recipe else 0.9)
            assert_same_on_all_ranks(model, recipe)

    # A stream of the user's own; the state goes on bit for bit.
    one, other = small_model(torch.float32, rank), small_model(torch.float32, rank)
    hooks = [gradsieve.torch.register(each, density=0.05) for each in (one, other)]
    with torch.cuda.stream(torch.cuda.Stream(rank)):
        train(one, 6, torch.float32)
    torch.cuda.synchronize(rank)
    other.module.load_state_dict(one.module.state_dict())
    hooks[1].load_state_dict(hooks[0].state_dict())
    train(one, 4, torch.float32, seed=1)
    train(other, 4, torch.float32, seed=1)
    assert torch.equal(weights(one), weights(other)), "a resumed run differs"
    with hooks[0].trace() as recorder:
        train(one, 4, torch.float32)
    assert recorder.trace.compute > 0
    compressed_steps(torch.device("cuda", rank))
    if world > 1:
        sharded(rank, world)
    if rank == 0:
        print(f"on {world} GPUs: {len(CODECS)} codecs, three types, streams, state, trace, weight deltas, steps"
              f"{' and sharded models' if world > 1 else ''}")
    dist.destroy_process_group()


def main():
    if not torch.cuda.is_available():
        print("skipped: no GPU that torch can use")
        sys.exit(77)
    if not gradsieve.torch._native.serves_devices:
        print("skipped: this gradsieve.torch was built without CUDA")
        sys.exit(77)
    world = min(4, torch.cuda.device_count())
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, args=(world, os.path.join(folder, "store")), nprocs=world)


if __name__ == "__main__":
    main()
