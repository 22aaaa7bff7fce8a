"""gradsieve as a communication hook of torch's DistributedDataParallel.

    model = DistributedDataParallel(module)
    hook = gradsieve_ddp.register(model, recipe="laplacian+deft", density=0.01, passthrough=["*.bias", "*norm*"])
    ...                     # train as ever: gradients come out as the mean over all ranks of what they sent
    hook.report()           # of the last step: bytes and counts
    hook.state_dict()       # what has not been sent yet; belongs into a checkpoint, of every rank
"""

import inspect

import torch
import torch.distributed as dist

from . import _native

STATE_VERSION = 1


class Hook:
    """The compressors of one DDP model. Made by register(); calls are not for use inside a backward pass."""

    def __init__(self, native, names, group):
        self._native = native
        self._names = names
        self._group = group

    def report(self):
        """A dict of the last step of this rank, all buckets together: step, world, budget, selected,
        passthrough_elements, union_size, non_finite, bytes_sent, bytes_received, baseline_bytes (without compression),
        index_codec and value_codec (those that were taken, where the recipe leaves a choice) and seconds by stage."""
        return self._native.report()

    def discard_step(self):
        """The last step's update was not used: what this rank gave up for it goes out later. Call it on every rank."""
        self._native.discard_step()

    def rescale(self, factor):
        """Multiplies what has not been sent, after a change of loss scale by new / old. ValueError unless finite."""
        self._native.rescale(factor)

    def residual_norm(self):
        """L2 norm of what this rank has not sent."""
        return self._native.residual_norm()

    def scaler_step(self, scaler, optimizer):
        """scaler.step(optimizer) and scaler.update(), of a torch GradScaler: a step that it skips is discarded, and
        the residual follows the new scale. Register with on_non_finite="propagate", so that the scaler sees what any
        rank's gradient held."""
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        after = scaler.get_scale()
        if after < before:
            self.discard_step()
        if after != before and before > 0:
            self.rescale(after / before)

    def state_dict(self):
        """What this rank has not sent, by parameter, and the step; differs from rank to rank. Can be pickled."""
        groups = [([self._names[m] for m in members], state) for members, state in self._native.state()]
        return {
            "version": STATE_VERSION,
            "rank": dist.get_rank(self._group),
            "world": dist.get_world_size(self._group),
            "groups": groups,
        }

    def load_state_dict(self, state):
        """Goes on where state_dict() was taken; the next step is bit for bit the one that it would have been. On every
        rank, before the first step.

        `state`: this rank's; or a list of all ranks', for a world of another size: what leaving ranks had not sent is
        shared out among those that stay, and what all hold is scaled by new / old size, so that the pending update
        stays what it was. New ranks begin with nothing pending.
        ValueError or RuntimeError if it is of other parameters, another recipe, or damaged.
        """
        rank, world = dist.get_rank(self._group), dist.get_world_size(self._group)
        alone = isinstance(state, dict)
        if not alone and not state:
            raise ValueError("gradsieve: expected the states of all ranks, the list is empty")
        states = [state] if alone else list(state)
        for each in states:
            if each.get("version") != STATE_VERSION or not {"rank", "world", "groups"} <= each.keys():
                raise ValueError(
                    f"gradsieve: state has version {each.get('version')}, expected {STATE_VERSION}, or lacks a part"
                )
        states.sort(key=lambda each: each["rank"])
        old = states[0]["world"]
        if any(each["world"] != old for each in states):
            raise ValueError("gradsieve: the states are of worlds of different sizes")
        if alone and old != world:
            raise ValueError(f"gradsieve: the state is of {old} ranks, here are {world}: load the list of all of them")
        if alone and states[0]["rank"] != rank:
            raise ValueError(f"gradsieve: the state is of rank {states[0]['rank']}, this is rank {rank}")
        if not alone and [each["rank"] for each in states] != list(range(old)):
            raise ValueError(f"gradsieve: expected the states of all {old} ranks, once each")
        self._native.restore(self._members(states[0] if alone else states[rank % old]))
        if alone:
            return
        if rank >= old:
            self._native.rescale(0.0)
        for leaver in range(rank + world, old, world):
            self._native.absorb(self._members(states[leaver]))
        if old != world:
            self._native.rescale(world / old)

    def _members(self, state):
        place = {name: i for i, name in enumerate(self._names)}
        missing = [name for names, _ in state["groups"] for name in names if name not in place]
        if missing:
            raise ValueError(f"gradsieve: the state has a parameter '{missing[0]}', this model has not")
        return [([place[name] for name in names], bytes(saved)) for names, saved in state["groups"]]


def register(
    model,
    recipe="radix",
    density=0.01,
    passthrough=("*bias*", "*norm*"),
    warmup=0,
    *,
    momentum=0.9,
    beta=0.5,
    bins=0,
    on_non_finite="skip",
    threads=1,
    route="python",
    process_group=None,
):
    """Compresses the gradients of a DistributedDataParallel model; returns a Hook. Collective.

    A model on a GPU needs NCCL and a codec whose messages have a fixed size: coo, or raw32 or fixed_width with any
    values but sbc and automatic_values; with deft and cyclic coo. Where none is named it is fixed_width+fp32, or coo.
    Gradients of 16 bits go through a float copy there. float64 gradients pass at density 1 only, and then uncompressed.

    recipe: names joined by '+', in any order: a selector, a partitioner, a residual, an index codec and a value codec,
        or coo or binned; gradsieve_ddp.selectors and so on list them. What is left open: radix, whole, error_feedback,
        automatic, fp32 (with adacomp binned).
    density: fraction of the elements to send; adacomp decides for itself.
    passthrough: patterns of parameter names that are averaged in full ('*' any characters, '?' one).
    warmup: steps over which the density falls from 0.25.
    momentum: of the residual "momentum"; the optimiser must not apply its own then. beta: of "filtered".
    bins: elements of adacomp's bins; 0: 50 in convolutions, else 500.
    on_non_finite: "skip" counts NaN and infinity as zero; "fail" makes backward() raise, on every rank, with
        what is pending as it was; "propagate" makes the bucket's gradient NaN on every rank, and keeps the
        residual: what a GradScaler waits for. The last two cost a reading pass and a message.
    threads: that one exchange works with. route: "python", DDP's public one; or "cpp", below Python, without its lock.
    process_group: of exactly the model's ranks, and used by nothing else; None: a new one.
    ValueError or TypeError for what cannot be obeyed. Memory: the recipe's residual, 4 to 8 bytes an element.
    """
    if on_non_finite not in ("skip", "fail", "propagate"):
        raise ValueError(f"gradsieve: on_non_finite is '{on_non_finite}', expected skip, fail or propagate")
    if route not in ("python", "cpp"):
        raise ValueError(f"gradsieve: route is '{route}', expected python or cpp")
    if isinstance(passthrough, str):
        raise ValueError(f"gradsieve: passthrough is a list of patterns, not the string '{passthrough}'")
    if process_group is None:
        process_group = _like(model.process_group)
    named = [(name, each) for name, each in model.module.named_parameters() if each.requires_grad]
    names = [name for name, _ in named]
    on_device = named[0][1].is_cuda if named else False
    if on_device and not hasattr(_native, "DeviceHook"):
        raise ValueError("gradsieve: the model is on a GPU, this extension was built without CUDA")
    native = (_native.DeviceHook if on_device else _native.Hook)(
        group=process_group,
        parameters=[each for _, each in named],
        names=names,
        recipe=recipe,
        density=density,
        passthrough=list(passthrough),
        warmup=warmup,
        momentum=momentum,
        beta=beta,
        bins=bins,
        on_non_finite=on_non_finite,
        threads=threads,
    )
    if route == "cpp":
        native.attach(model.reducer)
    else:
        model.register_comm_hook(native, _device_hook if on_device else _host_hook)
    return Hook(native, names, process_group)


def _like(group):
    """A group of the same ranks, for the hook alone: its thread must not meet other collectives."""
    backend = dist.get_backend(group)
    if dist.get_world_size(group) == dist.get_world_size():
        return dist.new_group(backend=backend)
    if "use_local_synchronization" not in inspect.signature(dist.new_group).parameters:
        raise ValueError(
            "gradsieve: the model lives on some of the ranks, and this torch makes new groups with all ranks only: "
            "hand over process_group=torch.distributed.new_group(the model's ranks), made by all of them"
        )
    return dist.new_group(dist.get_process_group_ranks(group), backend=backend, use_local_synchronization=True)


def _host_hook(native, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    finished = torch.futures.Future()
    buffer = bucket.buffer()
    native.start(bucket, finished.set_result)
    return finished.then(lambda why: _buffer_or_raise(why.value(), buffer))


def _device_hook(native, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    buffer = bucket.buffer()
    native.start(bucket)  # enqueues; what follows its stream sees the average
    finished = torch.futures.Future(devices=[buffer.device])
    with torch.cuda.stream(torch.cuda.ExternalStream(native.stream, buffer.device)):
        finished.set_result(buffer)
    return finished


def _buffer_or_raise(why, buffer):
    if why is not None:
        raise RuntimeError(why)
    return buffer


selectors = _native.selectors
partitioners = _native.partitioners
residuals = _native.residuals
index_codecs = _native.index_codecs
value_codecs = _native.value_codecs

from .outer_step import OuterStep  # noqa: E402  (after register, which it takes)
