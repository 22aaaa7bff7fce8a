"""What decides which parameters pass through uncompressed: their modules' kinds, their dimensions and all their names.

The compiled part compares patterns with names; here a model is put into the words that it understands.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, Sequence

import torch
from torch import nn

from . import _native

#: Stands for all biases and the parameters of norms, among the patterns of `passthrough`.
BIASES_AND_NORMS: str = _native.biases_and_norms

NORMS: tuple[type, ...] = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm,
                           *([nn.RMSNorm] if hasattr(nn, "RMSNorm") else []))


#: Name, elements, dimensions_of() its shape, and the further names of a tied weight.
Layer = "tuple[str, int, int, list[str]]"


def layers_of(module: nn.Module) -> list[Layer]:
    """All parameters of a module, or of the one that it stands for. Those of norms count as of one dimension, whatever
    their shape."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, each, owner in _with_owners(module):
        owners.setdefault(id(each), []).append((name, owner))
    layers = []
    for name, each in module.named_parameters():
        known = owners[id(each)]
        layers.append(_layer(name, each.numel(), each.shape, [owner for _, owner in known],
                             [other for other, _ in known if other != name]))
    return layers


def layers_of_flat_units(units: Iterable[Any]) -> list[Layer]:
    """The same of a FullyShardedDataParallel, whose units know the parameters that they have flattened."""
    layers = []
    for unit in units:
        flat = unit.module._handle.flat_param
        prefix = f"{unit.name}." if unit.name else ""
        others: dict[tuple[int, str], list[tuple[str, nn.Module]]] = {}
        for shared in flat._shared_param_infos:
            path = f"{shared.module_name}.{shared.param_name}" if shared.module_name else shared.param_name
            others.setdefault((id(shared.prim_module), shared.prim_param_name), []).append(
                (prefix + path, shared.module))
        for (name, size), shape, info in zip(unit.parameters.items(), flat._shapes, flat._param_infos):
            tied = others.get((id(info.module), info.param_name), [])
            layers.append(_layer(name, size, shape, [info.module, *(owner for _, owner in tied)],
                                 [other for other, _ in tied]))
    return layers


def describe(passing: dict[str, int], model: list[tuple[str, int]]) -> str:
    """How many parameters and elements pass through, and the names."""
    names = ", ".join(passing)
    return (f"{len(passing)} of {len(model)} parameters pass through, {sum(passing.values())} of "
            f"{sum(size for _, size in model)} elements" + (f": {names}" if names else ""))


def dimensions_of(shape: Sequence[int]) -> int:
    """1 also of a vector with further dimensions of length 1, such as a layer scale of shape (C, 1, 1) or a token of shape
    (1, 1, C). With two dimensions it is a matrix: (1, C) is the weight of a layer with a single output."""
    is_vector = len(shape) != 2 and sum(length != 1 for length in shape) <= 1
    return 1 if is_vector else len(shape)


def _layer(name: str, size: int, shape: Sequence[int], owners: list[nn.Module], others: list[str]) -> Layer:
    is_norm = any(isinstance(owner, NORMS) for owner in owners)
    return name, size, 1 if is_norm else dimensions_of(shape), others


def _with_owners(module: nn.Module) -> Iterator[tuple[str, torch.Tensor, nn.Module]]:
    """Under every name that there is."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for name, each in owner._parameters.items():
            if each is not None:
                yield f"{prefix}.{name}" if prefix else name, each, owner
