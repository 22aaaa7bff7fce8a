"""Weight deltas: what changed between two versions of a model, lossless.

    encoder = gradsieve.delta.Encoder([("weight", weights.size)])
    encoder.keep(weights)                                        # a copy, version 0
    message = encoder.encode(weights)                            # after a step of the optimizer: to version 1
    gradsieve.delta.Decoder([("weight", own.size)]).apply(message, own)  # a receiver's: now the same bits

The weights of an Encoder, a Decoder and fingerprint() are one contiguous array with all elements, or a list with an
array of each layer: float32, float16, bfloat16, or of 8 bits, such as fp8. They are on the host; or, with `stream`, in
the memory of the current GPU, as messages are then, too: the handle of a CUDA stream, such as
torch.cuda.current_stream().cuda_stream, in whose order the work is done. StateEncoder, StateDecoder and
state_fingerprint() take a state_dict, in either memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import struct
import sys
from typing import Any, Mapping, NamedTuple, Sequence

from . import _library
from ._library import CorruptError, InvalidArgument, Layers, MismatchError, Owner, whole
from ._memory import BYTES, Memory, memory

_WIDTHS = (4, 2, 2, 1)  # bytes of an element of each gradsieve_weight_format
_MOST = 2**64 - 1
_at, _size, _int, _number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64
_place, _sizes, _numbers = (ctypes.POINTER(each) for each in (_at, _size, _number))
_layers = (ctypes.POINTER(_library.Layer), _size)
_device = ctypes.POINTER(_library.Device)
_library.declare({
    "create_delta_encoder": (*_layers, _number, _int, _place), "keep_weights": (_at, _int, _at, _size, _number),
    "encode_delta": (_at, _int, _at, _at, _size, _number, _number, _place, _sizes),
    "create_delta_encoder_on_device": (*_layers, _number, _device, _place),
    "create_delta_decoder_on_device": (*_layers, _number, _device, _place),
    "fingerprint_weights_on_device": (*_layers, _int, _at, _size, _device, _numbers),
    "keep_weight_pieces": (_at, _int, _place, _number),
    "encode_delta_of_pieces": (_at, _int, _place, _place, _number, _number, _place, _sizes),
    "apply_delta_to_pieces": (_at, _int, _place, _sizes, _size, _place),
    "verify_delta": (_at, _int, _place, _sizes, _size, _numbers, ctypes.POINTER(_int)),
    "fingerprint_weight_pieces": (*_layers, _int, _place, _int, _device, _numbers),
    "delta_chunk": (_at, _size, _place, _sizes, _sizes), "create_delta_decoder": (*_layers, _number, _int, _place),
    "apply_delta": (_at, _int, _place, _sizes, _size, _at, _size),
    "delta_version": (_at, _numbers, ctypes.POINTER(_int)), "restart_delta": (_at,), "reset_delta": (_at, _number),
    "fingerprint_weights": (*_layers, _int, _at, _size, _int, _numbers)})


def _memory(array: Any, what: str, writable: bool = False, widest: int = 1, on_device: bool = False) -> Memory:
    kind = str(getattr(array, "dtype", ""))
    if kind == "torch.bool" or kind.startswith("torch.float8"):  # which not every torch offers by DLPack
        array = array.view(sys.modules["torch"].uint8)
    return memory(array, what, writable, widest, on_device)


class _Weights(NamedTuple):
    """Weights in one piece, or where each layer's are."""
    format: int
    place: tuple[Any, ...]  # address and count, or a table of addresses: arguments of the library
    owners: list[Any]

    @property
    def in_pieces(self) -> bool:
        return len(self.place) == 1


def _pieces(found: Sequence[Memory]) -> _Weights:
    return _Weights(found[0].format, (_library.array(ctypes.c_void_p, (each.address for each in found)),), list(found))


def _weights(weights: Any, what: str, layers: Layers, writable: bool = False, on_device: bool = False) -> _Weights:
    if isinstance(weights, _Weights):
        return weights
    if not isinstance(weights, (list, tuple)):
        at = _memory(weights, what, writable, 1, on_device)
        return _Weights(at.format, (at.address, at.count), [at])
    if len(weights) != layers.count or not weights:
        raise InvalidArgument(f"gradsieve: {what} are {len(weights)} arrays for {layers.count} layers")
    found = [_memory(each, f"array {i} of {what}", writable, 1, on_device) for i, each in enumerate(weights)]
    for i, (each, size) in enumerate(zip(found, layers.sizes)):
        if each.count != size or each.format != found[0].format:
            raise InvalidArgument(f"gradsieve: array {i} of {what} has {each.count} elements for a layer of {size}, or "
                                  "another type than the first")
    return _pieces(found)


def _version(value: Any) -> int:
    return whole(value, "a version", 0, _MOST)


def _where(stream: int | None) -> Any:
    """What the library takes of a stream; null: the host."""
    return None if stream is None else ctypes.byref(_library.Device(whole(stream, "a stream", 0, _MOST)))


class DeviceMessage:
    """Bytes in the memory of a GPU, valid until the next call of their Encoder: torch.as_tensor(it, device="cuda") and
    cupy.asarray(it) read them in place."""

    def __init__(self, address: int | None, size: int, owner: Any) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address or 0, False),
                                         "version": 3}

    def __len__(self) -> int:
        return self.__cuda_array_interface__["shape"][0]


class _Delta(Owner):
    def __init__(self, layers: Sequence[tuple[str, Any]], name: str, number: int, threads: int,
                 stream: int | None) -> None:
        super().__init__(Layers(layers))
        self._on_device = stream is not None
        threads, where = whole(threads, "threads", 0, 2**16), _where(stream)
        _library.call(name + "_on_device" * self._on_device, self.layers.table, self.layers.count, number,
                      where if self._on_device else threads, ctypes.byref(self._at))

    def _weights(self, weights: Any, what: str, writable: bool = False) -> _Weights:
        return _weights(weights, what, self.layers, writable, self._on_device)


class Encoder(_Delta):
    """Encodes the weights whose bits differ from the version before. layers: (name, elements) or (name, shape) of each,
    in order. chunk_bytes: the most bytes of a chunk; None: 4 MiB. threads, of a host: 0: as many as OpenMP gives; the
    bytes do not depend on them, nor on the space. stream: see above; messages are a DeviceMessage then."""

    _destroy = "destroy_delta_encoder"
    version = 0  #: that the last message leads to

    def __init__(self, layers: Sequence[tuple[str, Any]], chunk_bytes: int | None = None, threads: int = 1,
                 stream: int | None = None) -> None:
        most = 0 if chunk_bytes is None else whole(chunk_bytes, "chunk_bytes", 1, _MOST)
        super().__init__(layers, "create_delta_encoder", most, threads, stream)

    def keep(self, weights: Any, version: int = 0) -> None:
        """Copies the weights, for calls of encode() without `before`."""
        at, version = self._weights(weights, "the weights"), _version(version)
        self._call("keep_weight_pieces" if at.in_pieces else "keep_weights", at.format, *at.place, version)
        self.version = version

    def encode(self, after: Any, before: Any = None, *, from_version: int | None = None,
               to_version: int | None = None) -> bytes | DeviceMessage:
        """The message that leads from `before`, which drops the copy, or from the copy, which is brought up to date, to
        `after`. The numbers of both versions, which receivers check, are `version` and the next unless you give them:
        steps, or fingerprints."""
        start = self.version if from_version is None else _version(from_version)
        end = (start + 1) & _MOST if to_version is None else _version(to_version)
        to = self._weights(after, "the weights")
        old = None if before is None else self._weights(before, "the weights before")
        if old is not None and (old.format, old.place[1:]) != (to.format, to.place[1:]):
            raise InvalidArgument("gradsieve: the weights before have another type or size, or are not in pieces alike")
        # null means the copy, not an empty array
        at = None if old is None else old.place[0] or ctypes.addressof(ctypes.c_char())
        message, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("encode_delta_of_pieces" if to.in_pieces else "encode_delta", to.format, at, *to.place, start, end,
                   ctypes.byref(message), ctypes.byref(size))
        self.version = end
        return self._message(message, size)

    def _message(self, at: ctypes.c_void_p, size: ctypes.c_size_t) -> bytes | DeviceMessage:
        return DeviceMessage(at.value, size.value, self) if self._on_device else ctypes.string_at(at, size.value)

    def chunks(self) -> list[bytes | DeviceMessage]:
        """The chunks that make up the last message, in their order."""
        made: list[bytes | DeviceMessage] = []
        at, size, count = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(1)
        while len(made) < count.value:
            self._call("delta_chunk", len(made), ctypes.byref(at), ctypes.byref(size), ctypes.byref(count))
            made.append(self._message(at, size))
        return made


class Decoder(_Delta):
    """Overwrites in weights of this version what an Encoder with the same layers found changed, in either space."""

    _destroy = "destroy_delta_decoder"

    def __init__(self, layers: Sequence[tuple[str, Any]], version: int = 0, threads: int = 1,
                 stream: int | None = None) -> None:
        super().__init__(layers, "create_delta_decoder", _version(version), threads, stream)

    def apply(self, message: Any, weights: Any) -> None:
        """Applies a message, or chunks of one, in their order: bytes, or a list of them; on a GPU a DeviceMessage, or
        an array of 8 bits there. All are checked before a weight is written. @raise CorruptError for damaged or missing
        bytes; MismatchError for other layers, another type or version, and a chunk that is missing or came twice; the
        weights and the decoder are then unchanged."""
        to = self._weights(weights, "the weights", writable=True)
        given, _owners = self._messages(message)
        self._call("apply_delta_to_pieces" if to.in_pieces else "apply_delta", to.format, *given, *to.place)

    def _verified(self, message: Any, kind: int) -> int | None:
        """The version that a message leads to; None if chunks are missing. Raises as apply()."""
        version, complete = ctypes.c_uint64(), ctypes.c_int()
        given, _owners = self._messages(message)
        self._call("verify_delta", kind, *given, ctypes.byref(version), ctypes.byref(complete))
        return version.value if complete.value else None

    def _messages(self, message: Any) -> tuple[tuple[Any, Any, int], list[Any]]:
        held = [self._bytes(each) for each in (message if isinstance(message, (list, tuple)) else [message])]
        return (_library.array(ctypes.c_void_p, (at for at, *_ in held)),
                _library.array(ctypes.c_size_t, (size for _, size, _ in held)), len(held)), held

    def _bytes(self, message: Any) -> tuple[int | None, int, Any]:
        if self._on_device:
            at = memory(message, "a message", False, 1, on_device=True)
            if at.format != BYTES:
                raise TypeError("gradsieve: a message is an array of 8 bits")
            return at.address, at.count, at.owner
        if not isinstance(message, (bytes, bytearray, memoryview)):
            raise TypeError(f"gradsieve: a message is bytes, not {type(message).__name__}")
        held = bytes(message)
        return ctypes.cast(held, ctypes.c_void_p).value, len(held), held

    def _state(self) -> tuple[int, bool]:
        version, complete = ctypes.c_uint64(), ctypes.c_int()
        self._call("delta_version", ctypes.byref(version), ctypes.byref(complete))
        return version.value, bool(complete.value)

    @property
    def version(self) -> int:
        """Of the weights; the one before, until a delta's last chunk was applied."""
        return self._state()[0]

    @property
    def complete(self) -> bool:
        """False after some but not all chunks of a delta: the weights are between two versions."""
        return self._state()[1]

    def restart(self) -> None:
        """Expects the first chunk of the same delta again, as after a connection that broke."""
        self._call("restart_delta")

    def reset(self, version: int) -> None:
        """Says that all weights were replaced by those of a version."""
        self._call("reset_delta", _version(version))


def fingerprint(layers: Sequence[tuple[str, Any]], weights: Any, threads: int = 1, stream: int | None = None) -> int:
    """A hash of the bits of all weights, for use as a version, the same in both spaces. It does not stop forgery."""
    table, where, made = Layers(layers), _where(stream), ctypes.c_uint64()
    at = _weights(weights, "the weights", table, on_device=stream is not None)
    threads = whole(threads, "threads", 0, 2**16)
    name, space = "fingerprint_weight_pieces", [threads, where]
    if not at.in_pieces:
        name = "fingerprint_weights" + "_on_device" * (where is not None)
        space = [threads if where is None else where]
    _library.call(name, table.table, table.count, at.format, *at.place, *space, ctypes.byref(made))
    return made.value


class _State:
    """The tensors of a state by their sorted names: parts of one format and fewer than 2^32 weights each. A tensor of
    another type is taken by its bytes."""

    most = 2**32 - 1  #: weights of a part

    def __init__(self, state: Mapping[str, Any], stream: int | None) -> None:
        self._on_device, self._twins = stream is not None, {}
        self._known = [(name, at.count, at.format) for name, at in self._found(state, False).items()]
        self.parts: list[list[tuple[str, int]]] = []  # layers
        for kind in range(4):
            room = -1
            for name, count, _ in (each for each in self._known if each[2] == kind):
                if room < count:
                    self.parts.append([])
                    room = self.most
                self.parts[-1].append((name, count))
                room -= count

    def _found(self, state: Mapping[str, Any], writable: bool) -> dict[str, Memory]:
        if not isinstance(state, Mapping) or not state:
            raise TypeError("gradsieve: a state is a dict of tensors by name")
        return {name: _memory(state[name], f"'{name}'", writable, 2**16, self._on_device) for name in sorted(state)}

    def weights(self, state: Mapping[str, Any], writable: bool = False) -> list[_Weights]:
        """Of each part. @raise TypeError, InvalidArgument if the tensors are others than the first ones"""
        found = self._found(state, writable)
        if [(name, at.count, at.format) for name, at in found.items()] != self._known:
            raise InvalidArgument("gradsieve: the state has other names, sizes or types than the first one")
        if writable:
            self._set_apart(found, state)
        return [_pieces([found[name] for name, _ in part]) for part in self.parts]

    def _set_apart(self, found: dict[str, Memory], state: Mapping[str, Any]) -> None:
        """Gives tied weights and views, which another name writes, memory of their own."""
        ranges = [(at.address, -at.count * _WIDTHS[at.format], name) for name, at in found.items() if at.count]
        end, last = 0, ""
        for begin, size, name in sorted(ranges):
            if begin - size <= end:
                if name not in self._twins:
                    self._twins[name] = state[name].clone() if hasattr(state[name], "clone") else state[name].copy()
                found[name] = _memory(self._twins[name], f"'{name}'", True, 2**16, self._on_device)
            elif begin < end:
                raise InvalidArgument(f"gradsieve: '{last}' and '{name}' share a part of their memory")
            else:
                end, last = begin - size, name


class StateEncoder:
    """Encodes what changed in a state: a dict of arrays or tensors by name, such as a torch module's state_dict(), of
    any types. The first one is kept as `version`. stream: tensors are in a GPU's memory, see above. Cost: a copy of the
    state in memory, which each call brings up to date. Tensors that share memory are sent once for each name."""

    def __init__(self, state: Mapping[str, Any], version: int = 0, threads: int = 1, stream: int | None = None) -> None:
        self.version = _version(version)  #: that the last message leads to
        self._state, self._on_device, self._whole = _State(state, stream), stream is not None, True
        self._by = [Encoder(layers, threads=threads, stream=stream) for layers in self._state.parts]
        for by, weights in zip(self._by, self._state.weights(state)):
            by.keep(weights)

    def encode(self, state: Mapping[str, Any], *, to_version: int | None = None) -> bytes | list[DeviceMessage]:
        """The message that leads from the version before, or the first state, to this one; on a GPU a list of them."""
        to = (self.version + 1) & _MOST if to_version is None else _version(to_version)
        weights = self._state.weights(state)
        if not self._whole:
            raise InvalidArgument("gradsieve: the last encode() failed: make another StateEncoder and send all tensors")
        self._whole = False
        made = [by.encode(each, from_version=self.version, to_version=to) for by, each in zip(self._by, weights)]
        if not self._on_device:
            made = b"".join([struct.pack(f"<{1 + len(made)}Q", len(made), *(len(each) for each in made)), *made])
        self._whole, self.version = True, to
        return made


class StateDecoder:
    """Overwrites in a state of this version what a StateEncoder found changed, in either space. Of tensors that share
    their memory the largest takes its message, of equal ones the first by name; a copy of each other is kept. Cost: as
    Decoder.apply(), with one more check of the message and a copy of it."""

    def __init__(self, state: Mapping[str, Any], version: int = 0, threads: int = 1, stream: int | None = None) -> None:
        self._state = _State(state, stream)
        self._state.weights(state, writable=True)
        self.version = _version(version)  #: of the state; set it when you have replaced all tensors
        self._by = [Decoder(layers, threads=threads, stream=stream) for layers in self._state.parts]

    def apply(self, message: Any, state: Mapping[str, Any]) -> None:
        """Applies a whole message: bytes, or on a GPU the list, of arrays of 8 bits there. @raise as Decoder.apply();
        the state and this object are then unchanged"""
        weights = self._state.weights(state, writable=True)
        if isinstance(message, (bytes, bytearray, memoryview)):
            given: list[Any] = self._split(message)
        elif isinstance(message, (list, tuple)):
            given = list(message)
        else:
            raise TypeError(f"gradsieve: a state's message is bytes, or on a GPU a list, not {type(message).__name__}")
        if len(given) != len(self._by):
            raise MismatchError("gradsieve: a delta of a state with other types")
        for by in self._by:
            by.reset(self.version)
        versions = {by._verified(each, to.format) for by, each, to in zip(self._by, given, weights)}
        if len(versions) != 1 or None in versions:
            raise CorruptError("gradsieve: bytes of a state's delta are missing, or it was put together of several")
        for by, each, to in zip(self._by, given, weights):
            by.apply(each, to)
        self.version = versions.pop()

    @staticmethod
    def _split(message: bytes | bytearray | memoryview) -> list[bytes]:
        all_bytes = memoryview(message).cast("B")
        count = int.from_bytes(all_bytes[:8], "little")
        begin = 8 + 8 * count
        sizes = [int.from_bytes(all_bytes[at:at + 8], "little") for at in range(8, begin, 8)] \
            if begin <= len(all_bytes) else []
        if len(all_bytes) != begin + sum(sizes):
            raise CorruptError("gradsieve: bytes of a state's delta are missing or damaged")
        ends = list(itertools.accumulate(sizes, initial=begin))
        return [bytes(all_bytes[first:last]) for first, last in zip(ends, ends[1:])]


def state_fingerprint(state: Mapping[str, Any], threads: int = 1, stream: int | None = None) -> int:
    """As fingerprint(), of a state, the same in both spaces."""
    of = _State(state, stream)
    each = (fingerprint(layers, at, threads, stream) for layers, at in zip(of.parts, of.weights(state)))
    return int.from_bytes(hashlib.blake2b(b"".join(one.to_bytes(8, "little") for one in each), digest_size=8).digest(),
                          "little")
