"""Which parameters an exchange is for, and which it cannot serve."""

from __future__ import annotations

import zlib
from typing import Any, Iterator, Sequence

import torch
import torch.distributed as dist

from . import _groups

Named = "list[tuple[str, torch.nn.Parameter]]"

COMPRESSED = (torch.float32, torch.float16, torch.bfloat16)


def alike(*lists: Sequence[torch.Tensor]) -> bool:
    """Whether torch._foreach operations serve them in all versions of torch: some fail with sparse tensors or an empty list,
    and some take tensors of several types, or without elements, for others."""
    first = next((each for of in lists for each in of), None)
    return first is not None and all(
        each.layout == torch.strided and each.numel() > 0 and (each.dtype, each.device) == (first.dtype, first.device)
        for of in lists for each in of)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a distributed tensor, in the same memory; another tensor itself."""
    if not hasattr(tensor, "device_mesh"):
        return tensor
    with torch.no_grad():
        return tensor.to_local()


def gradient_of(parameter: torch.Tensor) -> torch.Tensor | None:
    return None if parameter.grad is None else local(parameter.grad)


def as_part_of(values: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """A distributed tensor like `whole` whose part on this rank has these values; they themselves for another tensor."""
    if not hasattr(whole, "device_mesh"):
        return values
    from torch.distributed.tensor import DTensor
    return DTensor.from_local(values, whole.device_mesh, whole.placements, run_check=False, shape=whole.shape,
                              stride=whole.stride())


def values_of(gradient: torch.Tensor) -> torch.Tensor:
    """All that are not zero by its layout."""
    return gradient.coalesce().values() if gradient.layout == torch.sparse_coo else gradient


def make_common(model: torch.nn.Module, replica: Any, device: torch.device) -> None:
    """Parameters and buffers become those of the first rank, shards and, with tensor parallelism, all those of the first
    replica; sparse ones stay. Collective: one small all-reduce, a broadcast for each on `device`. ValueError on every rank if ranks have different
    ones."""
    named = [(name, each) for name, each in [*model.named_parameters(), *model.named_buffers()]
             if not torch.nn.parameter.is_lazy(each) and each.layout == torch.strided and not each.is_meta]
    kinds = zlib.crc32(repr([(name, tuple(each.shape), str(each.dtype)) for name, each in named]).encode())
    ends = torch.tensor([kinds, -kinds], dtype=torch.int64, device=device)
    dist.all_reduce(ends, dist.ReduceOp.MAX, group=replica.everyone)
    if ends.sum() != 0:
        raise ValueError("gradsieve: the ranks' models have different parameters or buffers: other names, shapes or types")
    for _, whole in named:
        group = replica.across if hasattr(whole, "device_mesh") else replica.alike
        each = local(whole).detach()
        once = each[tuple(slice(None, 1 if stride == 0 else None) for stride in each.stride())]  # what is expanded
        if once.numel() == 0:
            continue
        sent = once.contiguous().to(device)
        dist.broadcast(bytes_of(sent), _groups.ranks_of(group)[0], group=group)  # of any type
        with torch.no_grad():
            once.copy_(sent)


def bytes_of(contiguous: torch.Tensor) -> torch.Tensor:
    """In the same memory."""
    one = contiguous.numel() == 1  # which is contiguous with any stride, and a view of bytes takes 1 alone
    return (contiguous.reshape(()).reshape(1) if one else contiguous.reshape(-1)).view(torch.uint8)


def of_buckets(model: Any) -> tuple[Named, Named]:
    """Those that a DistributedDataParallel has in its buckets: which are trained, and which were frozen after it had
    wrapped the module."""
    from . import _hook

    held = {id(each) for each in _hook.parameters_of(model)}
    named = [(name, each) for name, each in model.module.named_parameters() if id(each) in held]
    return ([each for each in named if each[1].requires_grad], [each for each in named if not each[1].requires_grad])


def check(model: Any, trained: Named, passes_float64: bool) -> None:
    """ValueError that names a parameter of a DistributedDataParallel whose gradient is not served."""
    sparse = {id(each) for each in _with_sparse_gradients(model.module)}
    reduced = getattr(getattr(model, "mixed_precision", None), "reduce_dtype", None)  # of DDP's own mixed precision
    for name, each in trained:
        if id(each) in sparse:
            raise ValueError(f"gradsieve: parameter '{name}' has sparse gradients, which the hook does not compress: "
                             "make its embedding with sparse=False, or train with CompressedStep, which exchanges parameters")
        check_type(name, reduced or each.dtype, passes_float64)


def check_type(name: str, dtype: torch.dtype, passes_float64: bool) -> None:
    """ValueError unless gradients of this type are served."""
    if dtype in COMPRESSED or (dtype == torch.float64 and passes_float64):
        return
    if dtype == torch.float64:
        raise ValueError(f"gradsieve: parameter '{name}' is float64; the hook compresses float32, float16 and "
                         "bfloat16, and passes float64 on as it is at density 1 on the CPU, without values "
                         "that the recipe names, momentum, filter or on_non_finite='fail'")
    advice = ": train its real and imaginary part as one real parameter" if dtype.is_complex else ""
    raise ValueError(f"gradsieve: parameter '{name}' is {str(dtype).removeprefix('torch.')}; the hook compresses "
                     f"float32, float16 and bfloat16{advice}")


def _with_sparse_gradients(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    for each in module.modules():
        if isinstance(each, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and each.sparse:
            yield each.weight
