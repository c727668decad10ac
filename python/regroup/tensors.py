# SPDX-License-Identifier: Apache-2.0
"""Buffers of Python as tensors of C, without a copy.

Accepted are tensors of PyTorch, what has NumPy's ``__array_interface__``, what has the buffer
protocol (``array.array``, ``bytearray``, ``memoryview``), and what has DLPack's protocol.
"""
from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Dict, Optional, Tuple

from ._library import CPU, CUDA, Tensor
from .errors import InvalidArgument

#: The names of element types, with the numbers of the C interface.
DTYPES: Dict[str, int] = {
    "float32": 0, "float64": 1, "int32": 2, "int64": 3, "uint8": 4, "int8": 5, "uint32": 6,
    "uint64": 7, "float16": 8, "bfloat16": 9, "float8_e4m3fn": 10, "float8_e5m2": 11,
}
BYTES = (4, 8, 4, 8, 1, 1, 4, 8, 2, 2, 1, 1)

#: By format and size: types of the buffer protocol, whose "l" for instance differs by machine.
_NATIVE: Dict[Tuple[str, int], int] = {
    (order + code, size): DTYPES[f"{kind}{size * 8}"]
    for kind, codes in (("float", "efd"), ("int", "bilqn"), ("uint", "BILQNc"))
    for code in codes for size in (1, 2, 4, 8) for order in ("", "@", "=", "<")
    if f"{kind}{size * 8}" in DTYPES
}
_ARRAY_KINDS = {"f": "float", "i": "int", "u": "uint"}
_DLPACK = {(0, 8): "int8", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8",
           (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32",
           (2, 64): "float64", (4, 16): "bfloat16", (10, 8): "float8_e4m3fn",
           (12, 8): "float8_e5m2"}

#: A tensor, and what keeps its memory alive and in place.
View = Tuple[Tensor, Any]


def view(value: Any, name: str, writable: bool = False) -> View:
    """The memory of ``value``, which the errors call ``name``."""
    if hasattr(value, "data_ptr") and hasattr(value, "is_contiguous"):
        return _of_torch(value, name)
    memory: Optional[memoryview] = None
    with contextlib.suppress(TypeError, ValueError, BufferError):
        memory = memoryview(value)
        number = _NATIVE.get((memory.format, memory.itemsize))
        if number is not None and memory.c_contiguous and not (writable and memory.readonly):
            count = memory.nbytes // memory.itemsize
            return Tensor(_address(memory), count, number, CPU, 0), memory
    # NumPy describes arrays of other packages' types, and has better advice about its own.
    if hasattr(value, "__array_interface__"):
        return _of_array(value, name, writable)
    if memory is not None:
        raise _refused(memory, name, writable)
    if hasattr(value, "__dlpack__"):
        return _of_dlpack(value, name)
    raise InvalidArgument(
        f"{name} is of type {type(value).__name__}, whose memory regroup cannot reach; give a "
        f"NumPy array, a PyTorch tensor, an array.array, or anything with the buffer protocol or "
        f"DLPack")


def absent(like: Tensor) -> Tensor:
    """The buffer of a rank on which an operation ignores it."""
    return Tensor(None, 0, like.dtype, like.device_kind, like.device_index)


def _dtype(dtype: Optional[str], shown: object, name: str) -> int:
    if dtype not in DTYPES:
        raise _refuse_type(shown, name)
    return DTYPES[dtype]


def _refuse_type(shown: object, name: str) -> InvalidArgument:
    hint = "; view it as uint8" if "bool" in str(shown) or shown == "?" else ""
    return InvalidArgument(
        f"{name} has elements of type {shown}, and regroup has {', '.join(DTYPES)}{hint}")


def _refuse_gaps(name: str, remedy: str) -> InvalidArgument:
    return InvalidArgument(
        f"{name} is not contiguous in memory; call {remedy} and give the result, or give a "
        f"contiguous buffer and copy out of it")


def _refuse_writing(name: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is read-only, and this operation writes into it; give a copy")


def _of_torch(value: Any, name: str) -> View:
    dtype = str(value.dtype).replace("torch.", "")
    if not value.is_contiguous():
        raise _refuse_gaps(name, f"{name}.contiguous()")
    number = _dtype(dtype, value.dtype, name)
    if value.device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"{name} is on the device {value.device}; regroup has cpu and cuda")
    kind = CUDA if value.device.type == "cuda" else CPU
    return Tensor(value.data_ptr(), value.numel(), number, kind, value.device.index or 0), value


def _of_array(value: Any, name: str, writable: bool) -> View:
    described = value.__array_interface__
    order, kind, size = described["typestr"][0], described["typestr"][1], described["typestr"][2:]
    if order == ">":
        raise InvalidArgument(f"{name} is big-endian; call "
                              f"{name}.astype({name}.dtype.newbyteorder('=')) and give the result")
    # Types of other packages, such as ml_dtypes.bfloat16, are plain bytes for NumPy.
    own = str(getattr(value, "dtype", described["typestr"]))
    dtype = f"{_ARRAY_KINDS[kind]}{int(size) * 8}" if kind in _ARRAY_KINDS else own
    number = _dtype(dtype, own, name)
    if described.get("strides") is not None:
        raise _refuse_gaps(name, f"numpy.ascontiguousarray({name})")
    address, read_only = described["data"]
    if writable and read_only:
        raise _refuse_writing(name)
    count = 1
    for length in described["shape"]:
        count *= length
    return Tensor(address, count, number, CPU, 0), value


def _refused(memory: memoryview, name: str, writable: bool) -> InvalidArgument:
    """Why this buffer cannot be used."""
    if (memory.format, memory.itemsize) not in _NATIVE:
        return _refuse_type(memory.format, name)
    if not memory.c_contiguous:
        return _refuse_gaps(name, f"bytearray({name})")
    assert writable and memory.readonly
    return _refuse_writing(name)


class _PyBuffer(ctypes.Structure):
    """Py_buffer of Python's own C interface."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


_FULL_RO = 0x011C
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.c_void_p]
_release_buffer.restype = None


def _address(memory: memoryview) -> Optional[int]:
    """ctypes itself gives the address of writable memory alone."""
    buffer = _PyBuffer()
    _get_buffer(memory, ctypes.addressof(buffer), _FULL_RO)
    address: Optional[int] = buffer.buf
    _release_buffer(ctypes.addressof(buffer))
    return address


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


_DLPACK_DEVICES = {1: CPU, 2: CUDA, 3: CPU}
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p


def _of_dlpack(value: Any, name: str) -> View:
    # A capsule that is dropped with its tensor inside frees the tensor.
    capsule = value.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if tensor.device_type not in _DLPACK_DEVICES:
        raise InvalidArgument(f"{name} is on DLPack's device {tensor.device_type}; regroup has the "
                              f"CPU (1) and CUDA (2)")
    shown = f"{tensor.code}:{tensor.bits} of DLPack"
    number = _dtype(_DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None, shown,
                    name)
    count = 1
    for axis in reversed(range(tensor.ndim)):
        if tensor.strides and tensor.shape[axis] != 1 and tensor.strides[axis] != count:
            raise _refuse_gaps(name, "what makes it contiguous in its library")
        count *= tensor.shape[axis]
    kind = _DLPACK_DEVICES[tensor.device_type]
    address = (tensor.data or 0) + tensor.byte_offset
    return (Tensor(address, count, number, kind, tensor.device_id if kind == CUDA else 0),
            (value, capsule))
