"""Checks of what callers hand over, before anything has happened. A refusal is one sentence with the remedy: TypeError
for what is of another kind, ValueError for what is out of range or does not go together."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import operator
import os
from typing import Any, Callable, Iterable, Mapping, Sequence

import torch
import torch.distributed as dist

MOST = 2**63 - 1  #: of a number of steps or elements
MOST_THREADS = 1024
ONE_KEY_EACH = ("save what every rank's own state_dict() gave, under a key or in a file of its own, such as "
                "f'hook-{rank}'")


def shown(value: Any) -> str:
    """For a sentence: short, and on one line."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def refused(name: str, value: Any, expected: str) -> TypeError:
    of = "" if isinstance(value, type) or value is None else f" of type {type(value).__name__}"
    return TypeError(f"gradsieve: {name} is {shown(value)}{of}, expected {expected}")


def whole(name: str, value: Any, low: int, high: int = MOST) -> int:
    """An integer in [low, high]."""
    limits = f"a whole number from {low}" + ("" if high == MOST else f" to {high}")
    if type(value).__name__ in ("bool", "bool_"):
        raise refused(name, value, limits)
    try:
        number = operator.index(value)
    except TypeError:
        raise refused(name, value, limits) from None
    if not low <= number <= high:
        raise ValueError(f"gradsieve: {name} is {shown(value)}, expected {limits}")
    return number


def number(name: str, value: Any, low: float, high: float = math.inf, *, above: bool = False) -> float:
    """A finite number in [low, high]; with `above` not `low` itself."""
    limits = f"a number {'above' if above else 'from'} {low:g}" + ("" if high == math.inf else f" up to {high:g}")
    if type(value).__name__ in ("bool", "bool_") or not isinstance(value, numbers.Real):
        of_tensor = ": take .item()" if isinstance(value, torch.Tensor) else ""
        raise refused(name, value, limits + of_tensor)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or not low <= found <= high or (above and found == low):
        finite = limits.replace("a number", "a finite number") if math.isinf(found) else limits
        raise ValueError(f"gradsieve: {name} is {shown(value)}, expected {finite}")
    return found


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise refused(name, value, "True or False")
    return value


def text(name: str, value: Any, expected: str) -> str:
    if not isinstance(value, str):
        raise refused(name, value, expected)
    return value


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    expected = f"{', '.join(choices[:-1])} or {choices[-1]}"
    if text(name, value, expected) not in choices:
        raise ValueError(f"gradsieve: {name} is {shown(value)}, expected {expected}")
    return value


def path(name: str, value: Any) -> str | os.PathLike[str]:
    if not isinstance(value, (str, os.PathLike)):
        raise refused(name, value, "the path of a file")
    return value


def writable(name: str, value: Any) -> str | os.PathLike[str]:
    """A path whose folder is there."""
    file = os.fspath(path(name, value))
    if not file or os.path.isdir(file) or not os.path.isdir(os.path.dirname(os.path.abspath(file))):
        raise ValueError(f"gradsieve: {name} is {shown(value)}, expected a file in a folder that exists")
    return value


def recipe(value: Any) -> str:
    """Names without the spaces around them, in small letters."""
    example = "names joined by '+', such as 'radix+deft'; recipes() lists what goes together"
    names = [each.strip().lower() for each in text("recipe", value, example).split("+")]
    if not all(names):
        what = "has an empty name" if any(names) else "is empty"
        raise ValueError(f"gradsieve: recipe {shown(value)} {what}, expected {example}")
    if any(len(each.split()) > 1 for each in names):
        raise ValueError(f"gradsieve: recipe {shown(value)} has names without a '+' between them, expected {example}")
    return "+".join(names)


def patterns(value: Any) -> list[str]:
    expected = "a list of patterns of parameter names"
    if isinstance(value, str):
        raise ValueError(f"gradsieve: passthrough is a list of patterns, not the string {shown(value)}: write "
                         f"[{shown(value)}]")
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise refused("passthrough", value, expected + "; [] for none")
    found = list(value)
    for each in found:
        text("a pattern of passthrough", each, "a string, such as '*bias*'")
    return found


def group(name: str, value: Any) -> dist.ProcessGroup | None:
    """A process group, or None."""
    if value is None or isinstance(value, dist.ProcessGroup):
        return value
    if value is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"gradsieve: {name} is a group that this rank is not in: make the call on its ranks only")
    get = "its get_group()" if hasattr(value, "get_group") else "what torch.distributed.new_group(ranks) gives"
    raise refused(name, value, f"a process group: {get}")


def model(value: Any) -> None:
    """What DDP, FSDP or fully_shard() has made."""
    if isinstance(value, torch.nn.DataParallel):
        raise ValueError("gradsieve: the model is in a DataParallel, which is one process: expected a "
                         "DistributedDataParallel, of one process a GPU")
    if isinstance(value, type) or not isinstance(value, torch.nn.Module):
        raise refused("model", value, "a DistributedDataParallel, a FullyShardedDataParallel or a module after "
                                      "fully_shard()")


def density(value: Any, name: str = "density") -> float | None:
    if value is None:
        return None
    try:
        return number(name, value, 0, 1, above=True)
    except ValueError as error:
        raise error if value != 0 else ValueError(f"gradsieve: {name} is 0, with which nothing is ever sent: expected "
                                                  "a number above 0 up to 1") from None


def warm_up(steps: Any, initial: Any, stages: Any, final: float | None, default: tuple[float, float]) -> tuple[
        int, float, int]:
    """Steps, the density at which they begin, and stairs. `default`: initial and final density where None."""
    steps = whole("warmup", steps, 0)
    first = density(initial, "initial_density")
    stairs = 0 if stages is None else whole("warmup_stages", stages, 0)
    if steps == 0 and (initial is not None or stages is not None):
        raise ValueError("gradsieve: initial_density and warmup_stages are of a warm-up, and warmup is 0 steps: name "
                         "its steps, such as warmup=1000")
    first, last = default[0] if first is None else first, default[1] if final is None else final
    if steps > 0 and first < last == 1:
        raise ValueError("gradsieve: density is 1, with which there is nothing to warm up to: leave warmup out")
    if steps > 0 and first < last:
        raise ValueError(f"gradsieve: initial_density is {first:g}, below density {last:g}: a warm-up falls from "
                         f"initial_density to density, so choose {last:g} or more, or leave warmup out")
    return steps, first, stairs


def policy_option(name: str, value: Any) -> str:
    """The text of an option of a policy."""
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if not isinstance(value, Mapping):
        raise refused(f"option {name}", value, "a bool, a number, a string or a dict")
    parts = []
    for pattern, length in value.items():
        pattern = text(f"a pattern in option {name}", pattern, "a string, such as '*conv*'")
        if any(each in pattern for each in ";="):
            raise ValueError(f"gradsieve: a pattern in option {name} is {shown(pattern)}, expected one without ; and =")
        length = whole(f"the length of {shown(pattern)} in option {name}", length, 1, 2**32 - 1)
        parts.append(f"{pattern}={length}" if pattern else f"{length}")
    return ";".join(parts)


def no_argument_is_meant(function: Callable[..., Any], recipe: str, options: Mapping[str, Any],
                         known: Mapping[str, str]) -> None:
    """ValueError for an option that no policy has, if it looks like an argument of the function."""
    arguments = [name for name, each in inspect.signature(function).parameters.items() if each.kind != each.VAR_KEYWORD]
    for name in options:
        close = difflib.get_close_matches(name, arguments, 1, 0.75)
        if name not in known and close:
            raise ValueError(f"gradsieve: there is no argument '{name}', nor has recipe '{recipe}' such an option: did "
                             f"you mean {close[0]}?")


# ---- states ----------------------------------------------------------------------------------------------------------


def states(state: Any, versions: Sequence[int], parts: Mapping[str, Callable[[Any], bool]], whose: str) -> list[dict[str, Any]]:
    """One rank's state or all ranks', as a list. `versions`: that can be read, the newest last. `parts`: their names, and
    whether a value may be one. `whose`: the call that makes one."""
    if not isinstance(state, Mapping) and (isinstance(state, (str, bytes)) or not isinstance(state, Sequence)):
        raise refused("state", state, f"what {whose} gave, or the list of what it gave on all ranks")
    found = [state] if isinstance(state, Mapping) else list(state)
    if not found:
        raise ValueError(f"gradsieve: expected the states of all ranks, the list is empty: {ONE_KEY_EACH}")
    for each in found:
        if not isinstance(each, Mapping):
            raise refused("a state in the list", each, f"what {whose} gave on one rank")
        if "version" not in each:
            raise ValueError(f"gradsieve: state is a dict with {shown(list(each)[:3])}, expected what {whose} gave")
        known = type(each["version"]) is int and each["version"] in versions
        if not known or not parts.keys() <= each.keys():
            raise ValueError(f"gradsieve: state has version {shown(each['version'])}, expected {versions[-1]}, or lacks "
                             f"a part: expected what {whose} gave")
        for name, fits in parts.items():
            if not fits(each[name]):
                raise ValueError(f"gradsieve: '{name}' of the state is {shown(each[name])}, which is damaged: expected "
                                 f"what {whose} gave")
    return found


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 2**64 - 1


def are_numbers(value: Any, count: int) -> bool:
    """Of a state: so many finite numbers of at least 0."""
    return (isinstance(value, (list, tuple)) and len(value) == count and
            all(type(each) in (int, float) and math.isfinite(each) and each >= 0 for each in value))


def is_totals(value: Any) -> bool:
    """Six counts, and seconds."""
    return (isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) == 7 and
            all(is_count(each) for each in value[:6]) and isinstance(value[6], (int, float)) and value[6] >= 0)


def is_groups(value: Any) -> bool:
    """Names of parameters, and bytes, by group."""
    def is_group(each: Any) -> bool:
        return (isinstance(each, Sequence) and not isinstance(each, (str, bytes)) and len(each) == 2 and
                isinstance(each[0], Sequence) and not isinstance(each[0], (str, bytes)) and
                all(isinstance(name, str) for name in each[0]) and
                isinstance(each[1], (bytes, bytearray, memoryview, torch.Tensor)))
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and all(is_group(each) for each in value)


def grad_scaler(found: Any, calls: Sequence[str], swapped: str = "") -> None:
    """An object with these calls. `swapped`: what to write in place of an optimizer."""
    if isinstance(found, type) or not all(callable(getattr(found, name, None)) for name in calls):
        raise refused("scaler", found, "a GradScaler" + (swapped if isinstance(found, torch.optim.Optimizer) else ""))


def scaler(found: Any, optimizers_found: Any, on_non_finite: str) -> bool:
    """What scaler_step() works with: one optimizer or a list; whether it is enabled."""
    grad_scaler(found, ("get_scale", "step", "update"), ": scaler_step(scaler, optimizer)")
    optimizers(optimizers_found)
    looks = getattr(found, "is_enabled", lambda: True)()
    if looks and on_non_finite != "propagate":
        does = "counts infinities as zero" if on_non_finite == "skip" else "raises in the backward pass"
        raise ValueError(f"gradsieve: this hook {does}, on_non_finite=\"{on_non_finite}\", so that the scaler never "
                         "sees an overflow and its scale only grows: register(..., on_non_finite=\"propagate\")")
    return looks


def optimizers(value: Any) -> list[Any]:
    """One or several, as a list."""
    found = list(value) if isinstance(value, (list, tuple)) and value else [value]
    for each in found:
        if isinstance(each, type) or not (callable(getattr(each, "step", None)) and hasattr(each, "param_groups")):
            raise refused("optimizer", each, "a torch optimizer")
    return found


def link(value: Any) -> str:
    """A network's name, or ALPHA,BETA."""
    if isinstance(value, str):
        return value
    expected = "a network's name, or (alpha, beta): seconds of a message and of a byte"
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Sequence) or len(value) != 2:
        raise refused("link", value, expected)
    return ",".join(repr(number(f"{name} of the link", each, 0, 1e6)) for name, each in zip(("alpha", "beta"), value))
