"""What a CompressedStep is given: its optimizers, model, options and saved states."""

from __future__ import annotations

import numbers
import warnings
import zlib
from typing import Any, Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from . import _arguments, _momentum, _optimizers, _replica, _second_moments, _shards

DENSITY = 0.06
LOCAL_WEIGHT, LOCAL_WEIGHT_COMMON, LOCAL_WEIGHT_LATE = 0.5, 0.25, 0.125  #: the others with a common momentum
LATE, LATE_LOCALLY = 40, 80  #: steps until an element is sent, above which a rank has much unsent; the second in local steps
MANY = 4  #: ranks above which what one of them has not sent says less of the mean
FASTER_BELOW, FASTEST = 0.06, 5.0  #: a density, and how much faster at most a common momentum forgets far below it
FEW = 8  #: steps of an exchange up to which one momentum for all ranks is usual
OWN_SHARE = 0.25  #: of its own steps, that a rank takes between exchanges with one

UNKNOWN = ("gradsieve: {name} normalises, and is none that CompressedStep knows: on several ranks its steps are too short, as "
           "each rank's gradients are larger than their mean. Name it, second_moments=[{name}], if its exp_avg_sq has Adam's "
           "rule or it keeps none; otherwise choose second_moments=False, and a higher learning rate")

USUAL: dict[str, Any] = {"recipe": "radix+sign", "density": None, "every": 1, "fragments": 1, "delay": 0,
                         "local_weight": None, "outer_lr": 1.0, "outer_momentum": 0.0, "decay": 1.0}
DILOCO: dict[str, Any] = {"recipe": "int4", "density": 1.0, "every": 30, "local_weight": 0.0, "outer_momentum": 0.5}
PRESETS: dict[str, dict[str, Any]] = {
    "diloco": DILOCO,
    "streaming_diloco": {**DILOCO, "fragments": 3, "delay": 1},
    "sparseloco": {"recipe": "chunked+int2", "density": 64 / 4096, "every": 15, "local_weight": 0.5, "outer_momentum": 0.5,
                   "decay": 0.95},
}


def of_preset(preset: Any, **given: Any) -> tuple[Any, ...]:
    """What is given, in its order; where that is None what the preset has, else what is usual."""
    own = {} if preset is None else dict(PRESETS[_arguments.choice("preset", preset, tuple(PRESETS))])
    if isinstance(given["recipe"], str) and "adacomp" in given["recipe"].lower():
        own.pop("density", None)  # which adacomp decides for itself
    return tuple({**USUAL, **own}[name] if value is None else value for name, value in given.items())


def schedule(every: int, fragments: Any, delay: Any) -> tuple[int, int]:
    fragments, delay = _arguments.whole("fragments", fragments, 1), _arguments.whole("delay", delay, 0)
    if fragments > every:
        raise ValueError(f"gradsieve: fragments is {fragments} and every is {every}: a step exchanges one fragment at most")
    if delay > every // fragments:
        raise ValueError(f"gradsieve: delay is {delay}, and exchanges begin {every // fragments} steps apart (every is "
                         f"{every}, fragments {fragments}), one at a time: choose a smaller delay")
    return fragments, delay


def _is_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, torch.Tensor) for each in value)


STATE_PARTS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("done", "next", "rounds", "number", "looks", "left_out", "coasted"), _arguments.is_count),
    **dict.fromkeys(("common", "own"), _is_tensors),
    **dict.fromkeys(("in_flight", "outside", "speeds", "outer", "momentum", "hook", "factors", "of_steps"),
                    lambda value: isinstance(value, dict)),
    **dict.fromkeys(("copies", "place", "round", "used"), lambda value: isinstance(value, list)),
    "buffers": lambda value: isinstance(value, list) and all(isinstance(each, str) for each in value),
    "failed": lambda value: isinstance(value, bool),
    "factor": lambda value: _arguments.are_numbers([value], 1), "weights": lambda value: _arguments.are_numbers(value, 3)}


def are_names(value: Any, parts: int) -> bool:
    """Pairs of an optimizer's number and a name."""
    return isinstance(value, list) and all(
        isinstance(each, (list, tuple)) and len(each) == 2 and _arguments.is_count(each[0]) and each[0] < parts and
        isinstance(each[1], str) for each in value)


def stepped_here(value: Any) -> list[torch.optim.Optimizer]:
    found = _arguments.optimizers(value)
    if any(type(each).__name__ == "ZeroRedundancyOptimizer" for each in found):
        raise ValueError("gradsieve: a ZeroRedundancyOptimizer sends parameters from rank to rank in each step: give "
                         "CompressedStep the optimizer itself, or shard the model by fully_shard()")
    closed = next((each for each in found if _optimizers.needs_closure(each)), None)
    if closed is not None:
        raise ValueError(f"gradsieve: {type(closed).__name__} needs a closure in each step, and remembers gradients of "
                         "parameters that an exchange has changed: take another optimizer")
    switches = next((each for each in found if _optimizers.switches_weights(each)), None)
    if switches is not None:
        raise ValueError(f"gradsieve: {type(switches).__name__} has two sets of weights, between which its train() and "
                         "eval() switch, and keeps one in its own state, which the ranks do not exchange: take "
                         "torch.optim.AdamW, and average the weights inside sync.common_parameters()")
    if len(found) > 1 and any(map(_optimizers.has_two_passes, found)):
        raise ValueError("gradsieve: an optimizer of two passes, such as SAM, steps alone: put all parameters into it")
    return found


def scaled(second_moments: Any, optimizers: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The optimizers whose second moments are scaled, and of them those whose steps are enlarged where they have none."""
    further = second_moments
    if isinstance(further, bool):
        further = ()
    elif not (isinstance(further, (list, tuple)) and further and all(isinstance(each, type) for each in further)):
        raise _arguments.refused("second_moments", second_moments, "True, False or a list of classes of optimizers")
    known = [_optimizers.inner(each) for each in optimizers] if second_moments else []
    for kind in further:
        if not any(isinstance(each, kind) for each in known):
            raise ValueError(f"gradsieve: second_moments names {kind.__name__}, and no optimizer is one")
    for each in known:
        if not _second_moments.is_known(each, further) and _optimizers.normalises(each) and len(_optimizers.parts([each])) == 1:
            warnings.warn(UNKNOWN.format(name=type(each).__name__), UserWarning, stacklevel=3)
    known = [each for each in known if _second_moments.is_known(each, further)]
    return known, [each for each in known if _second_moments.may_enlarge(each, further)]


def trained(model: Any, optimizers: Sequence[torch.optim.Optimizer]) -> list[tuple[str, nn.Parameter]]:
    """The model's parameters with gradients. TypeError or ValueError where the model or its optimizers do not fit."""
    if isinstance(model, type) or not isinstance(model, nn.Module):
        raise _arguments.refused("model", model, "the module that is trained")
    if any(isinstance(each, (DistributedDataParallel, nn.DataParallel)) for each in model.modules()):
        raise ValueError("gradsieve: CompressedStep takes the bare module: DDP would average the gradients of each step; "
                         "give it model.module")
    if any(_shards.kind_of(each) == "FSDP" for each in model.modules()):
        raise ValueError(_replica.FLAT)
    for each in model.modules():
        if _shards.kind_of(each) == "FSDP2":
            each.reshard()  # what a forward pass has gathered has other parameters
    trained = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    if not trained:
        raise ValueError("gradsieve: no parameter of the model has requires_grad: there is nothing to train")
    for name, each in trained:
        if each.is_meta:
            raise ValueError(f"gradsieve: parameter '{name}' is on the meta device, where it has no values: call "
                             "model.to_empty(device=...) and load its weights first")
    stepped = {id(each) for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]}
    if not any(id(each) in stepped for _, each in trained):
        raise ValueError("gradsieve: the optimizer has none of the model's parameters: make it of model.parameters()")
    if stepped - {id(each) for each in model.parameters()}:
        raise ValueError("gradsieve: the optimizer has parameters that are not the model's, which no other rank would "
                         "see: put them into the module, too")
    return trained


def usual_local_weight(has_common_momentum: bool, ranks: int, every: int, density: float | None) -> float:
    """density None: adacomp's own."""
    if not has_common_momentum:
        return LOCAL_WEIGHT
    late = every / (density or DENSITY) > (LATE if every == 1 else LATE_LOCALLY)
    return LOCAL_WEIGHT_LATE if late or ranks > MANY and every == 1 else LOCAL_WEIGHT_COMMON


def is_late(recipe: str, density: float | None) -> bool:
    """Whether changes wait to be sent; of recipes that choose how many are sent a density is a bound only."""
    names = set(recipe.split("+"))
    return "none" not in names and (density != 1 or bool(names & {"adacomp", "fixed_threshold"}))


def faster(recipe: str, ranks: int, every: int, density: float | None) -> float:
    """By what 1 - betas[0] of a common momentum is multiplied: where little is sent changes are late, and a long momentum
    delays them more. Source: measured, see TRANSFORMERS.md."""
    waits = ranks > 1 and every == 1 and is_late(recipe, density)
    return min(FASTEST, max(1.0, FASTER_BELOW / (density or DENSITY))) if waits else 1.0


def local_weight(value: Any, recipe: str, has_nodes: bool) -> float:
    keeps_else = next((name for name in ("momentum", "filtered", "none") if name in recipe.split("+")), None)
    if value is None:
        return 0.0 if keeps_else or has_nodes else LOCAL_WEIGHT
    value = _arguments.number("local_weight", value, 0, 1)
    if value and (keeps_else or has_nodes):
        why = (f"'{keeps_else}' keeps something else than what was not sent" if keeps_else else
               "the ranks of a node share what was not sent")
        raise ValueError(f"gradsieve: local_weight is {value:g}, but {why}: leave local_weight out")
    return value


def fixed_momentum(asked: Any) -> float | None:
    """Where common_momentum is a number."""
    if asked is None or isinstance(asked, bool):
        return None
    if not isinstance(asked, numbers.Real):
        raise _arguments.refused("common_momentum", asked, "True, False or a number from 0 and below 1")
    if not 0 <= asked < 1:
        raise ValueError(f"gradsieve: common_momentum is {asked:g}, expected True, False or a number from 0 and below 1")
    return float(asked)


def with_common_momentum(asked: Any, optimizers: Sequence[Any], own: Sequence[torch.Tensor], recipe: str, every: int,
                         outer: tuple[float, float], local_weight: float, has_schedule: bool) -> list[Any]:
    """The optimizers whose momentum, where they have one, becomes that of all ranks. Local steps have it by themselves where
    all do: parameters that go on by it and others that take all of their steps lose more beside each other."""
    is_asked = asked is not None
    if asked is False:
        return []
    willing = [each for each in optimizers if is_asked or not isinstance(_optimizers.inner(each), _momentum.SUMMED)]
    taken = [each for each in willing if _trains(_momentum.taken_of(each))]
    is_mixed = any(_trains(each) and each not in taken for each in optimizers)
    if every > 1 and not is_asked and (every > FEW or local_weight == 0 or is_mixed):
        return []
    why = ("the outer step has a momentum or rate of its own" if outer != (1, 0) else
           "the recipe carries momentum" if "momentum" in recipe.split("+") else
           "every is above 1, and there are fragments or a delay" if every > 1 and has_schedule else
           "every is above 1, and weights have less than 32 bits" if every > 1 and any(
               each.element_size() < 4 for each in own) else
           None if taken else
           "no optimizer has one that goes with it: SGD, Adam, AdamW, NAdam, RAdam, Adamax and classes with their step() do")
    if is_asked and why:
        raise ValueError(f"gradsieve: common_momentum is {asked}, but {why}: leave common_momentum out")
    return willing if why is None else []


def _trains(optimizer: Any) -> bool:
    return optimizer is not None and any(each.requires_grad for group in optimizer.param_groups for each in group["params"])


def check_alike(kind: str, group: Any, device: torch.device, otherwise: str) -> None:
    """ValueError on every rank unless all have the same. Collective: an all-reduce of 16 bytes."""
    number = zlib.crc32(kind.encode())
    ends = torch.tensor([number, -number], dtype=torch.int64, device=device)
    torch.distributed.all_reduce(ends, torch.distributed.ReduceOp.MAX, group=group)
    if ends.sum() != 0:
        raise ValueError(otherwise)


def check_residual(recipe: str, decay: float, outer_momentum: float) -> None:
    names = set(recipe.split("+"))
    if decay != 1 and names & {"momentum", "filtered", "none"}:
        raise ValueError(f"gradsieve: decay goes with error_feedback, recipe '{recipe}' has another residual: leave decay "
                         "out")
    if outer_momentum != 0 and "momentum" in names:
        raise ValueError(f"gradsieve: recipe '{recipe}' carries the momentum: choose outer_momentum=0")


def is_outer(state: Mapping[str, Any], shapes: Sequence[torch.Size]) -> bool:
    """Whether it is an SGD's, of parameters of these shapes."""
    groups, kept = state.get("param_groups"), state.get("state")
    if not (isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], Mapping) and isinstance(kept, Mapping)):
        return False
    whole = {"params", "lr", "momentum", "nesterov"} <= groups[0].keys() and isinstance(groups[0]["params"], list)
    buffers = [(i, each.get("momentum_buffer") if isinstance(each, Mapping) else 0) for i, each in kept.items()]
    return whole and len(groups[0]["params"]) == len(shapes) and all(
        i in range(len(shapes)) and (each is None or isinstance(each, torch.Tensor) and each.shape == shapes[i])
        for i, each in buffers)
