"""Weight deltas: what changed between two versions of a model, lossless.

    encoder = gradsieve.delta.Encoder([("weight", weights.size)])
    encoder.keep(weights)                                        # a copy, version 0
    message = encoder.encode(weights)                            # after a step of the optimizer: to version 1
    gradsieve.delta.Decoder([("weight", own.size)]).apply(message, own)  # a receiver's: now the same bits

The weights of an Encoder, a Decoder and fingerprint() are one contiguous array with all elements: float32, float16,
bfloat16, or of 8 bits, such as fp8. It is on the host; or, with `stream`, in the memory of the current GPU, as messages
are then, too: the handle of a CUDA stream, such as torch.cuda.current_stream().cuda_stream, in whose order the work is
done. StateEncoder, StateDecoder and state_fingerprint() take a state_dict on the host.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import sys
from typing import Any, Mapping, Sequence

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
    "delta_chunk": (_at, _size, _place, _sizes, _sizes), "create_delta_decoder": (*_layers, _number, _int, _place),
    "apply_delta": (_at, _int, _place, _sizes, _size, _at, _size),
    "delta_version": (_at, _numbers, ctypes.POINTER(_int)), "restart_delta": (_at,), "reset_delta": (_at, _number),
    "fingerprint_weights": (*_layers, _int, _at, _size, _int, _numbers)})


def _weights(array: Any, what: str, writable: bool = False, widest: int = 1, on_device: bool = False) -> Memory:
    if isinstance(array, Memory):
        return array
    kind = str(getattr(array, "dtype", ""))
    if kind == "torch.bool" or kind.startswith("torch.float8"):  # which not every torch offers by DLPack
        array = array.view(sys.modules["torch"].uint8)
    return memory(array, what, writable, widest, on_device)


def _version(value: Any) -> int:
    return whole(value, "a version", 0, _MOST)


def _space(name: str, threads: int, stream: int | None) -> tuple[str, Any]:
    """A function of the library for threads of the host, or a stream; and what it takes of them."""
    threads = whole(threads, "threads", 0, 2**16)
    if stream is None:
        return name, threads
    return name + "_on_device", ctypes.byref(_library.Device(whole(stream, "a stream", 0, _MOST)))


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
        name, where = _space(name, threads, stream)
        _library.call(name, self.layers.table, self.layers.count, number, where, ctypes.byref(self._at))

    def _weights(self, array: Any, what: str, writable: bool = False) -> Memory:
        return _weights(array, what, writable, on_device=self._on_device)


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
        self._call("keep_weights", at.format, at.address, at.count, version)
        self.version = version

    def encode(self, after: Any, before: Any = None, *, from_version: int | None = None,
               to_version: int | None = None) -> bytes | DeviceMessage:
        """The message that leads from `before`, which drops the copy, or from the copy, which is brought up to date, to
        `after`. The numbers of both versions, which receivers check, are `version` and the next unless you give them:
        steps, or fingerprints."""
        start = self.version if from_version is None else _version(from_version)
        end = (start + 1) & _MOST if to_version is None else _version(to_version)
        to = self._weights(after, "the weights")
        old = to._replace(address=None) if before is None else self._weights(before, "the weights before")
        if before is not None and not old.address:  # an empty array; null means the copy
            old = old._replace(address=ctypes.addressof(ctypes.c_char()))
        if (old.format, old.count) != (to.format, to.count):
            raise InvalidArgument("gradsieve: the weights before have another type or size")
        message, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("encode_delta", to.format, old.address, to.address, to.count, start, end, ctypes.byref(message),
                   ctypes.byref(size))
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
        """Applies a message, or chunks of one, in their order: bytes, or a list of them; on a GPU a DeviceMessage, or an
        array of 8 bits there. All are checked before a weight is written. @raise CorruptError for damaged or missing
        bytes; MismatchError for other layers, another type or version, and a chunk that is missing or came twice; the
        weights and the decoder are then unchanged."""
        to = self._weights(weights, "the weights", writable=True)
        held = [self._bytes(each) for each in (message if isinstance(message, (list, tuple)) else [message])]
        table = _library.array(ctypes.c_void_p, (at for at, *_ in held))
        self._call("apply_delta", to.format, table, _library.array(ctypes.c_size_t, (size for _, size, _ in held)),
                   len(held), to.address, to.count)

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
    table, at = Layers(layers), _weights(weights, "the weights", on_device=stream is not None)
    (name, where), made = _space("fingerprint_weights", threads, stream), ctypes.c_uint64()
    _library.call(name, table.table, table.count, at.format, at.address, at.count, where, ctypes.byref(made))
    return made.value


class _Flat:
    """One contiguous copy of a state's tensors for each weight format, by their sorted names. Tensors of other types are
    taken by their bytes."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.found = self._tensors(state, False)
        self.layers: dict[int, list[tuple[str, int]]] = {}
        for name, each in self.found.items():
            self.layers.setdefault(each.format, []).append((name, each.count))
        self.parts: dict[int, Memory] = {}
        for kind, layers in self.layers.items():
            count = sum(size for _, size in layers)
            held = (ctypes.c_char * (count * _WIDTHS[kind]))()
            self.parts[kind] = Memory(ctypes.addressof(held), count, kind, held)
        self._copy(back=False)
        self.forget()

    @staticmethod
    def _tensors(state: Mapping[str, Any], writable: bool) -> dict[str, Memory]:
        if not isinstance(state, Mapping) or not state:
            raise TypeError("gradsieve: a state is a dict of tensors by name")
        return {name: _weights(state[name], f"'{name}'", writable, 2**16) for name in sorted(state)}

    def _copy(self, back: bool) -> None:
        for kind, layers in self.layers.items():
            at = self.parts[kind].address
            for name, count in layers:
                pair = (self.found[name].address, at) if back else (at, self.found[name].address)
                ctypes.memmove(*pair, count * _WIDTHS[kind])
                at += count * _WIDTHS[kind]

    def read(self, state: Mapping[str, Any], writable: bool = False) -> None:
        """Copies the tensors. @raise TypeError, InvalidArgument if they are others than the first ones"""
        found = self._tensors(state, writable)
        if [(name, *at[1:3]) for name, at in found.items()] != [(name, *at[1:3]) for name, at in self.found.items()]:
            raise InvalidArgument("gradsieve: the state has other names, sizes or types than the first one")
        self.found = found
        self._copy(back=False)
        if not writable:
            self.forget()

    def write(self) -> None:
        """To the tensors of the last read()."""
        self._copy(back=True)
        self.forget()

    def forget(self) -> None:
        """Keeps no tensor alive."""
        self.found = {name: each._replace(owner=None) for name, each in self.found.items()}


_FRAME = struct.Struct("<4Q")  # before a state's message: the bytes of each weight format's


class StateEncoder:
    """Encodes what changed in a state: a dict of arrays or tensors by name, such as a torch module's state_dict(), of any
    types on the host. The first one is kept as `version`. Cost: two copies of the state in memory, and a copy of all
    tensors in each call. Tensors that share their memory are sent once for each name."""

    def __init__(self, state: Mapping[str, Any], version: int = 0, threads: int = 1) -> None:
        self.version = _version(version)  #: that the last message leads to
        self._old, self._new = _Flat(state), _Flat(state)
        self._by = {kind: Encoder(layers, threads=threads) for kind, layers in self._old.layers.items()}

    def encode(self, state: Mapping[str, Any], *, to_version: int | None = None) -> bytes:
        """The message that leads from the version before, or the first state, to this one."""
        to = (self.version + 1) & _MOST if to_version is None else _version(to_version)
        self._new.read(state)
        made = {kind: by.encode(self._new.parts[kind], self._old.parts[kind], from_version=self.version, to_version=to)
                for kind, by in self._by.items()}
        self._old, self._new, self.version = self._new, self._old, to
        return _FRAME.pack(*(len(made.get(kind, b"")) for kind in range(4))) + b"".join(made[kind] for kind in sorted(made))


class StateDecoder:
    """Overwrites in a state of this version what a StateEncoder found changed. Cost: a copy of the state in memory, and
    in each call one to it and one back, so that no tensor is written before all are checked."""

    def __init__(self, state: Mapping[str, Any], version: int = 0, threads: int = 1) -> None:
        self._flat = _Flat(state)
        self.version = _version(version)  #: of the state; set it when you have replaced all tensors
        self._by = {kind: Decoder(self._flat.layers[kind], threads=threads) for kind in sorted(self._flat.layers)}

    def apply(self, message: bytes, state: Mapping[str, Any]) -> None:
        """Applies a whole message. @raise as Decoder.apply(); the state and this object are then unchanged"""
        at, sizes, versions = _FRAME.size, message[:_FRAME.size], set()
        if len(sizes) != at or len(message) != at + sum(_FRAME.unpack(sizes)):
            raise CorruptError("gradsieve: bytes of a state's delta are missing or damaged")
        lengths = dict(enumerate(_FRAME.unpack(sizes)))
        if [kind for kind in lengths if lengths[kind]] != list(self._by):
            raise MismatchError("gradsieve: a delta of a state with other types")
        try:
            self._flat.read(state, writable=True)
            for kind, by in self._by.items():
                by.reset(self.version)
                by.apply(memoryview(message)[at:at + lengths[kind]], self._flat.parts[kind])
                at += lengths[kind]
                versions.add(by.version if by.complete else None)
            if len(versions) != 1 or None in versions:
                raise CorruptError("gradsieve: bytes of a state's delta are missing, or it was put together of several")
            self._flat.write()
        finally:
            self._flat.forget()
        self.version = versions.pop()


def state_fingerprint(state: Mapping[str, Any], threads: int = 1) -> int:
    """As fingerprint(), of a state. Cost: a copy of it."""
    flat = _Flat(state)
    each = (fingerprint(flat.layers[kind], flat.parts[kind], threads) for kind in sorted(flat.layers))
    return int.from_bytes(hashlib.blake2b(b"".join(one.to_bytes(8, "little") for one in each), digest_size=8).digest(),
                          "little")
