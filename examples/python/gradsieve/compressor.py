"""A rank's compressor, and the receiving side of a transport of your own."""

from __future__ import annotations

import ctypes
from typing import Any, Sequence, Union

from . import _library
from ._library import InvalidArgument, Layers, Owner, Report
from ._memory import floats, memory
from .collectives import Collectives

Ranks = Union[Collectives, "tuple[Collectives, Collectives]"]


class Averager(Owner):
    """The mean of messages of compressors with this recipe and these layers."""

    def __init__(self, recipe: str, layers: Sequence[tuple[str, Any]]) -> None:
        super().__init__(Layers(layers))
        _library.call("create_with_dimensions", _library.text(recipe, "the recipe"), *self.layers.arguments(),
                      ctypes.byref(self._at))

    def apply(self, messages: Sequence[bytes], gradient: Any) -> None:
        """Overwrites an array with the mean of messages, one of each rank. All are checked before."""
        if isinstance(messages, (bytes, bytearray, memoryview)):
            raise TypeError("gradsieve: apply() takes a list of messages, one of each rank")
        to = memory(gradient, "the gradient")
        for each in messages:
            if not isinstance(each, (bytes, bytearray, memoryview)):
                raise TypeError(f"gradsieve: a message is bytes, not {type(each).__name__}")
        held = [bytes(each) for each in messages]
        table = (ctypes.c_void_p * len(held))(*(ctypes.cast(each, ctypes.c_void_p) for each in held))
        sizes = (ctypes.c_size_t * len(held))(*map(len, held))
        self._call("apply_format", table, sizes, len(held), to.format, to.address, to.count)

    def describe(self) -> str:
        """The recipe, and which layers pass through."""
        said = ctypes.c_char_p()
        self._call("describe", ctypes.byref(said))
        return (said.value or b"").decode(errors="replace")


class Compressor(Averager):
    """Compresses one flat gradient in every step; what is not sent stays in its residual. One per rank.

    recipe: text such as "laplacian+deft+bf16@0.001", see recipe_names(). layers: (name, elements) or (name, shape) of
    each, in order; of shapes, layers of one dimension pass through uncompressed, else those called bias, norm and the
    like. nodes: the collectives (inside, across) of ranks in nodes; exchange() then takes both.
    @raise InvalidArgument with the library's sentence.
    """

    def __init__(self, recipe: str, layers: Sequence[tuple[str, Any]],
                 nodes: tuple[Collectives, Collectives] | None = None) -> None:
        if nodes is None:
            super().__init__(recipe, layers)
            return
        Owner.__init__(self, Layers(layers))
        inside, across = nodes
        _library.call("create_nodes", _library.text(recipe, "the recipe"), *self.layers.arguments(),
                      ctypes.byref(inside.table), ctypes.byref(across.table), ctypes.byref(self._at), by=nodes)

    def exchange(self, ranks: Ranks, gradient: Any, skipped: Sequence[Any] | None = None) -> Report:
        """Replaces the gradient by the mean over all ranks of what they sent; with reduce_scatter each rank gets its
        shard of it, and zeros elsewhere. Collective.

        gradient: a contiguous array of float32, float16 or bfloat16 with all elements, or a list of float32 arrays,
        one of each layer, each overwritten in place. skipped: a truth value for each layer; a true one sends nothing in
        this step, and its update is zero; the gradient is then float32, but with nodes.
        """
        if isinstance(gradient, (list, tuple)):
            self._exchange_pieces(ranks, gradient, skipped)
        elif isinstance(ranks, (tuple, list)):
            at = memory(gradient, "the gradient")
            self._call("exchange_nodes", ctypes.byref(ranks[0].table), ctypes.byref(ranks[1].table), at.format,
                 at.address, at.count, self.layers.skipped(skipped), by=ranks)
        elif skipped is None:
            at = memory(gradient, "the gradient")
            self._call("exchange_format", ctypes.byref(ranks.table), at.format, at.address, at.count, by=ranks)
        else:
            at = floats(gradient, "a gradient with skipped layers")
            self._call("exchange_skipping", ctypes.byref(ranks.table), at.address, at.count,
                 self.layers.skipped(skipped), by=ranks)
        return self.report

    def _exchange_pieces(self, ranks: Ranks, parts: Sequence[Any], skipped: Sequence[Any] | None) -> None:
        if skipped is not None or isinstance(ranks, (tuple, list)):
            raise InvalidArgument("gradsieve: pieces are exchanged without nodes and without skipped layers")
        if len(parts) != self.layers.count:
            raise InvalidArgument(f"gradsieve: {len(parts)} pieces for {self.layers.count} layers")
        found = [floats(each, f"piece {i}") for i, each in enumerate(parts)]
        for i, (each, size) in enumerate(zip(found, self.layers.sizes)):
            if each.count != size:
                raise InvalidArgument(f"gradsieve: piece {i} has {each.count} elements, its layer {size}")
        table = (ctypes.c_void_p * len(found))(*(each.address or None for each in found))
        self._call("exchange_pieces", ctypes.byref(ranks.table), table, by=ranks)

    def compress(self, gradient: Any, rank: int = 0) -> bytes:
        """Selects what to send of the gradient and encodes it, for a transport of your own. `rank`: this rank's number
        among those whose messages are averaged, by which qsgd rounds independently."""
        at = memory(gradient, "the gradient", writable=False)
        message, size = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("compress_format", _library.whole(rank, "the rank", 0, 2**31 - 1), at.format, at.address, at.count,
                   ctypes.byref(message), ctypes.byref(size))
        return ctypes.string_at(message, size.value)

    @property
    def report(self) -> Report:
        """Of the last step."""
        return self._report("get_report")

    def discard_step(self) -> None:
        """For an update that was not used: what the last step sent returns to the residual. Call it on every rank."""
        self._call("discard_step")

    def residual_norm(self) -> float:
        """L2 norm of the residual."""
        norm = ctypes.c_double()
        self._call("residual_norm", ctypes.byref(norm))
        return norm.value

    def save(self) -> bytes:
        """Everything that later steps depend on."""
        return self._saved("save")

    def load(self, state: bytes) -> None:
        """Continues from save(). @raise CorruptError, MismatchError; the compressor is then unchanged."""
        state = bytes(memoryview(state))
        self._call("load", state, len(state))
