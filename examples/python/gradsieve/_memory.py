"""The memory of an array: NumPy's, or of any library that offers __array_interface__ or DLPack."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2  # gradsieve_format
BYTES = 3                              # gradsieve_weight_format, whose others are as above
_NAMES = {FLOAT32: "float32", FLOAT16: "float16", BFLOAT16: "bfloat16"}


class Memory(NamedTuple):
    address: int
    count: int   # elements
    format: int
    owner: Any   # keeps the memory


class _Tensor(ctypes.Structure):
    """DLTensor of DLPack."""
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int), ("device_id", ctypes.c_int),
                ("ndim", ctypes.c_int), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def _dense(shape: list[int], strides: list[int], width: int = 1) -> bool:
    """Whether strides, in units of which an element has `width`, are those of a C-contiguous array."""
    if 0 in shape:
        return True
    step = width
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _on_host(array: Any) -> bool:
    return getattr(array, "__dlpack_device__", lambda: (1, 0))()[0] in (1, 3)


def memory(array: Any, what: str, writable: bool = True, widest: int = 0, on_device: bool = False) -> Memory:
    """Where an array's elements are. One of another type, whose elements have at most `widest` bytes, is an array of
    BYTES. @raise TypeError unless it is contiguous, on the host or, if `on_device`, a GPU, and of such a type"""
    if writable and type(array).__module__.partition(".")[0] in ("jax", "jaxlib"):
        raise TypeError(f"gradsieve: {what} is JAX's, which never changes: pass numpy.array(it), and take the result "
                        "back")
    bases = [(each.__module__, each.__name__) for each in type(array).__mro__]
    if ("numpy", "generic") in bases:  # whose memory is a copy that ends at once
        raise TypeError(f"gradsieve: {what} is a {type(array).__name__}, not an array")
    if any(module.startswith("numpy.ma") for module, _ in bases):
        raise TypeError(f"gradsieve: {what} is masked: pass an array without a mask, such as its .filled(0)")
    how = "__cuda_array_interface__" if on_device else "__array_interface__"
    by_dlpack = on_device and hasattr(array, "__dlpack__")  # torch's other interface lacks bfloat16
    interface = None if by_dlpack else getattr(array, how, None)
    if interface is not None:
        shape, kind, (address, readonly) = list(interface["shape"]), interface["typestr"], interface["data"]
        if str(getattr(array, "dtype", "")) == "bfloat16":  # of ml_dtypes, as JAX has it
            found = BFLOAT16
        else:
            found = {"<f4": FLOAT32, "<f2": FLOAT16, "=f4": FLOAT32, "=f2": FLOAT16}.get(kind)
        strides, dtype = interface.get("strides"), getattr(array, "dtype", None)
        if found is not None:
            width = 4 if found == FLOAT32 else 2
        else:
            width = 0 if getattr(dtype, "hasobject", False) else getattr(dtype, "itemsize", int(kind[1:] in ("u1", "i1")))
        dense = strides is None or _dense(shape, list(strides), width)
        owner: Any = array
    elif hasattr(array, "__dlpack__"):
        if getattr(array, "is_neg", bool)() or getattr(array, "is_conj", bool)():
            raise TypeError(f"gradsieve: {what} is a view with other signs: pass its .resolve_neg().resolve_conj()")
        try:
            # -1: the caller's stream is in order
            owner = (array, array.__dlpack__(stream=-1) if on_device and not _on_host(array) else array.__dlpack__())
        except (RuntimeError, BufferError, ValueError, TypeError) as why:
            raise TypeError(f"gradsieve: {what} does not offer its memory ({why}): pass a dense tensor that is "
                            "writable, and .detach() one that requires a gradient") from why
        tensor = _Tensor.from_address(_pointer(owner[1], b"dltensor"))
        if tensor.device_type not in ((2, 13) if on_device else (1, 3)):  # CUDA, or managed; CPU, or page-locked
            where = ("in a GPU's memory", "a GPU") if on_device else ("in host memory", "the host")
            raise TypeError(f"gradsieve: {what} is not {where[0]}: copy it to {where[1]}")
        shape = [tensor.shape[i] for i in range(tensor.ndim)]
        kinds = {(2, 32, 1): FLOAT32, (2, 16, 1): FLOAT16, (4, 16, 1): BFLOAT16}
        found = kinds.get((tensor.code, tensor.bits, tensor.lanes))
        kind, width = f"type {tensor.code} of {tensor.bits} bits", tensor.bits * tensor.lanes // 8
        dense = not tensor.strides or _dense(shape, [tensor.strides[i] for i in range(tensor.ndim)])
        address, readonly = (tensor.data or 0) + tensor.byte_offset, False
    else:
        raise TypeError(f"gradsieve: {what} is a {type(array).__name__}, which offers neither {how} nor "
                        f"__dlpack__: pass an array of {'CuPy, PyTorch' if on_device else 'NumPy, PyTorch, JAX'} or "
                        "another library")
    if found is None and not 0 < width <= widest:
        raise TypeError(f"gradsieve: {what} holds {getattr(array, 'dtype', kind)}; it takes float32, float16"
                        f"{', bfloat16 or 8 bits' if widest else ' or bfloat16'}")
    if not dense:
        raise TypeError(f"gradsieve: {what} is not contiguous")
    if writable and readonly:
        raise TypeError(f"gradsieve: {what} is read-only, and it is overwritten")
    count = 1 if found is not None else width
    for size in shape:
        count *= size
    return Memory(address, count, BYTES if found is None else found, owner)


def floats(array: Any, what: str, writable: bool = True) -> Memory:
    """As memory(), of float32."""
    made = memory(array, what, writable)
    if made.format != FLOAT32:
        raise TypeError(f"gradsieve: {what} holds {_NAMES[made.format]}; it takes float32")
    return made


def view(address: int | None, count: int, kind: str, readonly: bool = False, owner: Any = None) -> memoryview:
    """Elements in memory of the library, of struct's kind: an array for numpy.asarray() and torch.frombuffer(). It
    keeps `owner`."""
    if count:
        raw = (ctypes.c_char * (count * {"f": 4, "d": 8, "B": 1}[kind])).from_address(address)
        raw.owner = owner
    made = memoryview(raw if count else bytearray()).cast("B").cast(kind)
    return made.toreadonly() if readonly else made
