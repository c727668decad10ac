# SPDX-License-Identifier: Apache-2.0
"""The state of a training, kept beside the workers: in memory, on two nodes, and in a folder."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _library
from ._calls import Handle, blocking
from ._library import CPU, CUDA, SnapshotOptions, SnapshotTensor, check, library, text, unsigned
from .context import Context
from .errors import InvalidArgument
from .tensors import DTYPES, view

#: The names of types in safetensors, by those of regroup.
SAFETENSORS: Dict[str, str] = {
    "float32": "F32", "float64": "F64", "int32": "I32", "int64": "I64", "uint8": "U8",
    "int8": "I8", "uint32": "U32", "uint64": "U64", "float16": "F16", "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}
_BY_NUMBER = {number: SAFETENSORS[name] for name, number in DTYPES.items()}

Bytes = Union[bytes, bytearray, memoryview]
Device = Union[str, Tuple[str, int]]


class SnapshotHandle:
    """The C interface, on which Snapshot is built: memory by its address, and bytes."""

    def __init__(self, context: Optional[Context] = None, *, name: str = "state",
                 replicated: bool = False, folder: Union[str, "os.PathLike[str]", None] = None,
                 threads: int = 0) -> None:
        options = SnapshotOptions(ctypes.sizeof(SnapshotOptions), text(name, "name"),
                                  int(replicated),
                                  None if folder is None else text(os.fspath(folder), "folder"),
                                  unsigned(threads, "threads"))
        context = context or Context.from_environment()
        self._handle = Handle("snapshot", library.regroup_snapshot_create, context._handle(),
                              ctypes.byref(options))

    def add_memory(self, name: str, dtype: str, address: Optional[int], shape: Sequence[int],
                   offset: Optional[Sequence[int]] = None,
                   global_shape: Optional[Sequence[int]] = None,
                   device: Device = "cpu") -> None:
        """``dtype`` is safetensors' name, and ``device`` is "cpu" or ("cuda", index)."""
        given = _tensor(name, dtype, address, shape, offset, global_shape, device)
        check(library.regroup_snapshot_add(self._handle(), ctypes.byref(given)))

    def read_memory(self, name: str, dtype: str, address: Optional[int], shape: Sequence[int],
                    offset: Optional[Sequence[int]] = None,
                    global_shape: Optional[Sequence[int]] = None,
                    device: Device = "cpu") -> None:
        given = _tensor(name, dtype, address, shape, offset, global_shape, device)
        blocking(library.regroup_snapshot_read, self._handle(), ctypes.byref(given))

    def set_bytes(self, name: str, value: Bytes) -> None:
        data = bytes(value)
        check(library.regroup_snapshot_set_bytes(self._handle(), text(name, "name"), data,
                                                 len(data)))

    def get_bytes(self, name: str) -> bytes:
        """From the step that is loaded or open. Raises InvalidArgument if no part has them."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        blocking(library.regroup_snapshot_get_bytes, self._handle(), text(name, "name"),
                 ctypes.byref(data), ctypes.byref(size))
        return ctypes.string_at(data, size.value) if size.value else b""

    def clear(self) -> None:
        check(library.regroup_snapshot_clear(self._handle()))

    def load(self) -> Optional[int]:
        return self._found(library.regroup_snapshot_load)

    def open(self) -> Optional[int]:
        return self._found(library.regroup_snapshot_open)

    def save(self, step: int) -> bool:
        kept = ctypes.c_int32()
        blocking(library.regroup_snapshot_save, self._handle(), unsigned(step, "step", 64),
                 ctypes.byref(kept))
        return bool(kept.value)

    def whole_step(self) -> Optional[int]:
        return self._found(library.regroup_snapshot_whole_step)

    def kept_step(self) -> Optional[int]:
        return self._found(library.regroup_snapshot_kept_step)

    def wait_until_whole(self, timeout: float) -> bool:
        return self._waited(library.regroup_snapshot_wait_until_whole, timeout)

    def wait_until_kept(self, timeout: float) -> bool:
        return self._waited(library.regroup_snapshot_wait_until_kept, timeout)

    def close(self) -> None:
        self._handle.free()

    def _waited(self, function: Any, timeout: float) -> bool:
        """``timeout`` is in seconds."""
        in_time = ctypes.c_int32()
        blocking(function, self._handle(), _library.milliseconds(timeout), ctypes.byref(in_time))
        return bool(in_time.value)

    def _found(self, function: Any) -> Optional[int]:
        found, step = ctypes.c_int32(), ctypes.c_uint64()
        blocking(function, self._handle(), ctypes.byref(found), ctypes.byref(step))
        return step.value if found.value else None


class Snapshot:
    """The state of a training, saved every few steps.

    All ranks of the context create it, and call ``load`` and ``save``, in the same order and with
    the same steps. It belongs to one round of the context. One thread at a time.

        snapshot = regroup.Snapshot(context)
        snapshot.add("weights", weights)
        for step in range(snapshot.load() or 0, 10000):
            if step % 10 == 0:
                snapshot.save(step)
            train(step, weights)

    ``replicated``: the state is the same on all ranks, so that one rank of each node saves it.
    ``folder``: where snapshots are kept on a disk, for a program without the regroup launcher.
    """

    def __init__(self, context: Optional[Context] = None, *, name: str = "state",
                 replicated: bool = False, folder: Union[str, "os.PathLike[str]", None] = None,
                 threads: int = 0) -> None:
        self._handle = SnapshotHandle(context, name=name, replicated=replicated, folder=folder,
                                      threads=threads)
        self._kept: List[Any] = []  # The memory of what was added.
        self._states: Dict[str, Tuple[Callable[[], Bytes], Callable[[bytes], None]]] = {}

    def add(self, name: str, tensor: Any, *, offset: Optional[Sequence[int]] = None,
            global_shape: Optional[Sequence[int]] = None) -> None:
        """Adds a tensor: a NumPy array, a tensor of PyTorch, anything with the buffer protocol or
        DLPack. It stays in place. ``offset`` and ``global_shape``: it is a piece of a larger
        tensor, whose other pieces are on other ranks. Further pieces of ``name`` on this rank are
        called "name#1", "name#2" and so on."""
        arguments, owner = _described(name, tensor)
        self._handle.add_memory(*arguments[:4], offset, global_shape, arguments[4])
        self._kept.append(owner)

    def add_state(self, name: str, save: Callable[[], Bytes],
                  load: Callable[[bytes], None]) -> None:
        """Adds a state that is no tensor: ``save`` returns it as bytes, and ``load`` takes them.
        Another number of ranks gets the bytes of rank 0."""
        if name in self._states:
            raise InvalidArgument(f'"{name}" is added to the snapshot twice')
        self._handle.set_bytes(name, b"")
        self._states[name] = (save, load)

    def clear(self) -> None:
        """Forgets what was added."""
        self._handle.clear()
        self._kept.clear()
        self._states.clear()

    def load(self) -> Optional[int]:
        """Gives all ranks the newest step that every rank has saved, undamaged. Returns the step,
        or None if there is none: then nothing has changed."""
        step = self._handle.load()
        if step is not None:
            for name, (_, load) in self._states.items():
                load(self._handle.get_bytes(name))
        return step

    def save(self, step: int) -> bool:
        """Copies the state of ``step``; returns when it may be changed again. False if this step is
        not kept, because other ranks have not saved the one before within a minute."""
        for name, (save, _) in self._states.items():
            self._handle.set_bytes(name, save())
        return self._handle.save(step)

    @property
    def whole_step(self) -> Optional[int]:
        """The newest step that every rank has saved, as far as this rank knows."""
        return self._handle.whole_step()

    @property
    def kept_step(self) -> Optional[int]:
        """The newest step of which each part is on two nodes, too, as far as this rank knows."""
        return self._handle.kept_step()

    def wait_until_whole(self, timeout: float) -> bool:
        """Waits until every rank has saved what this rank saved last, for ``timeout`` seconds."""
        return self._handle.wait_until_whole(timeout)

    def wait_until_kept(self, timeout: float) -> bool:
        """Waits until the last save is kept, as ``kept_step`` says. False if that takes longer, or
        no copy is made."""
        return self._handle.wait_until_kept(timeout)

    def open(self) -> Optional[int]:
        """``load`` in two parts, for a program that learns from the snapshot what to read: chooses
        the newest whole step, for all ranks together. ``read`` and ``get_bytes`` read it."""
        return self._handle.open()

    def read(self, name: str, tensor: Any, *, offset: Optional[Sequence[int]] = None,
             global_shape: Optional[Sequence[int]] = None) -> None:
        """Reads a tensor, or the piece at ``offset``, from the step that is open. Only on this
        rank."""
        arguments, _ = _described(name, tensor)
        self._handle.read_memory(*arguments[:4], offset, global_shape, arguments[4])

    def get_bytes(self, name: str) -> bytes:
        """The bytes of a state that is no tensor, from the step that is loaded or open."""
        return self._handle.get_bytes(name)

    def close(self) -> None:
        self._handle.close()


def _described(name: str, tensor: Any) -> Tuple[Tuple[str, str, Any, List[int], Device], Any]:
    """The description of the tensor, and an object that keeps its memory in place."""
    given, owner = view(tensor, name, True)
    shape = getattr(tensor, "shape", None)
    sizes = [given.count] if shape is None else [int(size) for size in shape]
    device: Device = ("cuda", given.device_index) if given.device_kind == CUDA else "cpu"
    return (name, _BY_NUMBER[given.dtype], given.data, sizes, device), owner


def _tensor(name: str, dtype: str, address: Optional[int], shape: Sequence[int],
            offset: Optional[Sequence[int]], global_shape: Optional[Sequence[int]],
            device: Device) -> SnapshotTensor:
    for words, values in (("offset", offset), ("global_shape", global_shape)):
        if values is not None and len(values) != len(shape):
            raise InvalidArgument(f"{name} has {len(shape)} dimensions, and {words} has "
                                  f"{len(values)}")
    kind, index = (CPU, 0) if device == "cpu" else (CUDA, int(device[1]))
    return SnapshotTensor(ctypes.sizeof(SnapshotTensor), text(name, "name"), text(dtype, "dtype"),
                          address, kind, index, len(shape), _numbers(shape), _numbers(offset),
                          _numbers(global_shape))


def _numbers(values: Optional[Sequence[int]]) -> Any:
    return None if values is None else (ctypes.c_uint64 * len(values))(*values)
