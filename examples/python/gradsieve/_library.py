"""The C library: where it is, its functions, and its errors as exceptions."""

from __future__ import annotations

import ctypes
import math
import operator
import os
import pathlib
from typing import TYPE_CHECKING, Any, Iterable, NamedTuple, Sequence

if TYPE_CHECKING:
    from .collectives import Collectives


class Error(RuntimeError):
    """What the library refuses, in its words."""


class InvalidArgument(Error, ValueError):
    """A wrong value, or a call at the wrong time. Nothing has changed."""


class MismatchError(Error):
    """Ranks differ, or a state is of other layers."""


class CorruptError(Error):
    """Damaged bytes of a message or a state."""


class CommunicationError(Error):
    """A collective or another rank failed: the gradient stays in the residual."""


class NonFiniteError(Error):
    """With on_non_finite:fail: some rank's gradient has a NaN or an infinity. Nothing has changed."""


_ERRORS = {1: InvalidArgument, 2: MismatchError, 3: CorruptError, 4: CommunicationError, 5: MemoryError,
           8: NonFiniteError}

_address, _size, _int, _float = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_float
_sizes, _place = ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_void_p)

COLLECTIVES = {"all_reduce_float": (_address, _size, _int), "all_reduce_double": (_address, _size, _int),
               "all_gather": (_address, _size, _address, _sizes), "broadcast": (_address, _size, _int),
               "send_receive": (_address, _size, _int, _address, _size, _int),
               "all_to_all": (_address, _sizes, _address, _sizes)}


class Table(ctypes.Structure):
    """gradsieve_communicator."""
    _fields_ = [("context", _address), ("rank", _int), ("size", _int),
                *((name, ctypes.CFUNCTYPE(_int, _address, *types)) for name, types in COLLECTIVES.items()),
                ("completed", ctypes.POINTER(ctypes.c_uint64)),
                ("all_reduce_uint32", ctypes.CFUNCTYPE(_int, _address, _address, _size, _int))]


class Device(ctypes.Structure):
    """gradsieve_device."""
    _fields_ = [("stream", _address), ("allocate", ctypes.CFUNCTYPE(_address, _address, _size)),
                ("release", ctypes.CFUNCTYPE(None, _address, _address)), ("context", _address)]


class Layer(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("size", ctypes.c_uint64)]


class _Report(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "step", "selected", "updated", "non_finite", "saturated", "bytes_sent", "bytes_received", "baseline_bytes")
    ] + [("seconds", ctypes.c_double)]


class Report(NamedTuple):
    """The last step on this rank."""
    step: int            # counted from 0
    selected: int        # entries that this rank sent
    updated: int         # entries of the averaged update
    non_finite: int      # elements that were NaN or infinite, left out
    saturated: int       # values clamped to what codec, sum or output can hold
    bytes_sent: int      # by this rank, through the collectives
    bytes_received: int
    baseline_bytes: int  # of the uncompressed gradient
    seconds: float       # duration of the step


_layers = (ctypes.POINTER(Layer), ctypes.POINTER(ctypes.c_uint32), _size)
_ranks = ctypes.POINTER(Table)
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "create_with_dimensions": (ctypes.c_char_p, *_layers, _place),
    "create_nodes": (ctypes.c_char_p, *_layers, _ranks, _ranks, _place),
    "exchange_format": (_address, _ranks, _int, _address, _size),
    "exchange_skipping": (_address, _ranks, _address, _size, ctypes.c_char_p),
    "exchange_pieces": (_address, _ranks, _place),
    "exchange_nodes": (_address, _ranks, _ranks, _int, _address, _size, ctypes.c_char_p),
    "compress_format": (_address, _int, _int, _address, _size, _place, _sizes),
    "apply_format": (_address, _place, _sizes, _size, _int, _address, _size),
    "get_report": (_address, ctypes.POINTER(_Report)),
    "describe": (_address, ctypes.POINTER(ctypes.c_char_p)),
    "discard_step": (_address,),
    "residual_norm": (_address, ctypes.POINTER(ctypes.c_double)),
    "save": (_address, _address, _sizes), "load": (_address, ctypes.c_char_p, _size),
    "mean_factor": (_ranks, _ranks, ctypes.c_double, ctypes.POINTER(_float)),
    "create_parameters_with_momentum": (ctypes.c_char_p, *_layers, _address, _size, _float, _float, _place),
    "exchange_weighted_parameters": (_address, _ranks, _address, _size, ctypes.c_char_p, _float),
    "common": (_address, _place), "get_parameters_report": (_address, ctypes.POINTER(_Report)),
    "rescale_parameters": (_address, _float, _address, _size),
    "absorb_parameters": (_address, ctypes.c_char_p, _size, _address, _size),
    "join_parameters": (_address, ctypes.c_char_p, _size, _address, _size),
    "save_parameters": (_address, _address, _sizes),
    "load_parameters": (_address, ctypes.c_char_p, _size, _address, _size),
    "create_moments": (ctypes.POINTER(Layer), _size, ctypes.c_double, ctypes.c_uint32, _place),
    "measure_moments": (_address, _ranks, _address, _size),
    "moment_factors": (_address, _place), "clip": (_address, _address, _size, _float, ctypes.POINTER(_float)),
    "save_moments": (_address, _address, _sizes), "load_moments": (_address, ctypes.c_char_p, _size),
}
_DESTROY = ("destroy", "destroy_parameters", "destroy_moments", "destroy_delta_encoder", "destroy_delta_decoder")


def _found() -> ctypes.CDLL:
    """GRADSIEVE_LIBRARY names another build than the package's."""
    path = os.environ.get("GRADSIEVE_LIBRARY") or str(pathlib.Path(__file__).with_name("libgradsieve_python.so"))
    try:
        library = ctypes.CDLL(path)
    except OSError as why:
        raise ImportError(f"gradsieve: {why}: install the package, or set GRADSIEVE_LIBRARY to a libgradsieve_python.so, "
                          "or without gradsieve.torch a libgradsieve_c.so") from why
    for name in _DESTROY:
        getattr(library, "gradsieve_" + name).argtypes = (_address,)
        getattr(library, "gradsieve_" + name).restype = None
    for name in ("error", "recipe_names"):
        getattr(library, "gradsieve_" + name).restype = ctypes.c_char_p
    return library


loaded = _found()


def declare(functions: dict[str, tuple[Any, ...]]) -> None:
    """The types of gradsieve_<name>'s arguments."""
    for name, types in functions.items():
        getattr(loaded, "gradsieve_" + name).argtypes = types


declare(_FUNCTIONS)


def call(name: str, *arguments: Any, by: "Collectives | Sequence[Collectives] | None" = None) -> None:
    """Calls gradsieve_<name>; `by`: the collectives that it may call, whose exception is the error's cause. One that is
    no Exception, as of Ctrl-C, is raised itself."""
    ranks = [] if by is None else list(by) if isinstance(by, (tuple, list)) else [by]
    for each in ranks:
        each.failure = None
    status = getattr(loaded, "gradsieve_" + name)(*arguments)
    why = None
    try:
        for each in ranks:  # not kept: it refers to this frame
            why, each.failure = why or each.failure, None
        if status != 0:
            if why is not None and not isinstance(why, Exception):
                raise why
            raise _ERRORS.get(status, Error)(loaded.gradsieve_error().decode(errors="replace")) from why
    finally:
        del why, ranks


C_ALONE = ("gradsieve: this library has the C interface alone: let GRADSIEVE_LIBRARY name a libgradsieve_python.so, or leave "
           "it out")
ANSWER = (_place, _sizes)  #: of a function that asked() calls


def array(kind: Any, values: Iterable[Any]) -> Any:
    values = list(values)
    return (kind * len(values))(*values)


def told(texts: Iterable[str]) -> tuple[Any, int]:
    made = array(ctypes.c_char_p, (text(each, "a text") for each in texts))
    return made, len(made)


def asked(name: str, *arguments: Any) -> list[str]:
    """Texts that gradsieve_<name> returns."""
    at, size = ctypes.c_void_p(), ctypes.c_size_t()
    call(name, *arguments, ctypes.byref(at), ctypes.byref(size))
    return ctypes.string_at(at, size.value).decode(errors="replace").split("\0")[:-1]


class Owner:
    """An object of the library, freed by gradsieve_<_destroy>."""
    _destroy = "destroy"

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self._at = ctypes.c_void_p()

    def _call(self, name: str, *arguments: Any, by: "Collectives | Sequence[Collectives] | None" = None) -> None:
        call(name, self._at, *arguments, by=by)

    def _report(self, name: str) -> Report:
        made = _Report()
        self._call(name, ctypes.byref(made))
        return Report(*(getattr(made, field) for field, _ in _Report._fields_))

    def _saved(self, name: str) -> bytes:
        """What a function such as gradsieve_save() writes."""
        size = ctypes.c_size_t(0)
        getattr(loaded, "gradsieve_" + name)(self._at, None, ctypes.byref(size))
        to = ctypes.create_string_buffer(max(size.value, 1))
        self._call(name, to, ctypes.byref(size))
        return to.raw[:size.value]

    def __reduce_ex__(self, _protocol: Any) -> Any:
        instead = ": use save() and load()" if hasattr(self, "save") else ""
        raise TypeError(f"gradsieve: a {type(self).__name__} cannot be copied or pickled{instead}")

    def __del__(self) -> None:
        if getattr(self, "_at", None):
            getattr(loaded, "gradsieve_" + self._destroy)(self._at)


def whole(value: Any, what: str, low: int, high: int) -> int:
    """An integer, of Python's or NumPy's. @raise TypeError, InvalidArgument"""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"gradsieve: {what} is a whole number, not {value!r}") from None
    if isinstance(value, bool) or not low <= number <= high:
        raise InvalidArgument(f"gradsieve: {what} is {value!r}, expected {low} to {high}")
    return number


def text(value: str, what: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"gradsieve: {what} is a str, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidArgument(f"gradsieve: {what} has a zero character")
    return value.encode()


class Layers:
    """The layers of a gradient: (name, elements) or (name, shape) for each, in order."""

    def __init__(self, layers: Sequence[tuple[str, Any]]) -> None:
        names, sizes, dimensions = [], [], []
        if isinstance(layers, (str, bytes, dict)):
            raise TypeError("gradsieve: layers is a list of (name, shape)")
        for each in layers:
            if isinstance(each, (str, bytes)) or len(each) != 2:
                raise TypeError(f"gradsieve: a layer is (name, shape) or (name, elements), not {each!r}")
            name, shape = each
            flat = hasattr(shape, "__index__")
            if isinstance(shape, (str, bytes, dict)):
                raise TypeError(f"gradsieve: the shape of layer '{name}' is {shape!r}")
            parts = [whole(part, f"a size of layer '{name}'", 0, 2**32 - 1) for part in ([shape] if flat else shape)]
            names.append(text(name, "a layer's name"))
            sizes.append(whole(math.prod(parts), f"the number of elements of layer '{name}'", 0, 2**32 - 1))
            dimensions.append(0 if flat else max(len(parts), 1))
        self.sizes, self.count, self.elements = sizes, len(sizes), sum(sizes)
        self.table = (Layer * len(sizes))(*(Layer(*pair) for pair in zip(names, sizes)))
        self.dimensions = (ctypes.c_uint32 * len(sizes))(*dimensions)

    def arguments(self) -> tuple[Any, ...]:
        return self.table, self.dimensions, self.count

    def skipped(self, chosen: Sequence[Any] | None) -> bytes | None:
        if chosen is None:
            return None
        if len(chosen) != self.count:
            raise InvalidArgument(f"gradsieve: skipped has {len(chosen)} values for {self.count} layers")
        return bytes(1 if each else 0 for each in chosen)


def mean_factor(ranks: "Collectives | tuple[Collectives, Collectives]", weight: float) -> float:
    """weight * ranks / the sum of the ranks' weights: the factor of a rank's loss, or of its gradient, in a weighted
    mean. With nodes the two collectives. Collective. @raise InvalidArgument on every rank for a weight below 0."""
    inside, across = ranks if isinstance(ranks, (tuple, list)) else (ranks, None)
    factor = ctypes.c_float()
    call("mean_factor", ctypes.byref(inside.table), None if across is None else ctypes.byref(across.table),
         float(weight), ctypes.byref(factor), by=ranks)
    return factor.value


def recipe_names() -> str:
    """The names that a recipe may contain, by family."""
    return loaded.gradsieve_recipe_names().decode()
