# SPDX-License-Identifier: Apache-2.0
"""The state of a training, kept beside the workers: in memory, on two nodes, and in a folder."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from . import _library
from ._calls import Handle, blocking
from ._library import SnapshotOptions, SnapshotTensor, check, library, text, unsigned
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

    def __init__(self, context: Context, *, name: str = "state", replicated: bool = False,
                 folder: Union[str, "os.PathLike[str]", None] = None, threads: int = 0) -> None:
        options = SnapshotOptions(ctypes.sizeof(SnapshotOptions), text(name, "name"),
                                  int(replicated),
                                  None if folder is None else text(os.fspath(folder), "folder"),
                                  unsigned(threads, "threads"))
        self._handle = Handle("snapshot", library.regroup_snapshot_create, context._handle(),
                              ctypes.byref(options))
        self._kept: List[Any] = []  # The memory of what was added.
        self._states: Dict[str, Tuple[Callable[[], Bytes], Callable[[bytes], None]]] = {}

    def add(self, name: str, tensor: Any, *, offset: Optional[Sequence[int]] = None,
            global_shape: Optional[Sequence[int]] = None) -> None:
        """Adds a tensor: a NumPy array, a tensor of PyTorch, anything with the buffer protocol or
        DLPack. It stays in place. ``offset`` and ``global_shape``: it is a piece of a larger tensor,
        whose other pieces are on other ranks."""
        given, owner = _described(name, tensor, offset, global_shape)
        check(library.regroup_snapshot_add(self._handle(), ctypes.byref(given)))
        self._kept.append((given, owner))

    def add_state(self, name: str, save: Callable[[], Bytes],
                  load: Callable[[bytes], None]) -> None:
        """Adds a state that is no tensor: ``save`` returns it as bytes, and ``load`` takes them.
        Another number of ranks gets the bytes of rank 0."""
        if name in self._states:
            raise InvalidArgument(f'"{name}" is added to the snapshot twice')
        self._set_bytes(name, b"")
        self._states[name] = (save, load)

    def clear(self) -> None:
        """Forgets what was added."""
        check(library.regroup_snapshot_clear(self._handle()))
        self._kept.clear()
        self._states.clear()

    def load(self) -> Optional[int]:
        """Gives all ranks the newest step that every rank has saved, undamaged. Returns the step,
        or None if there is none: then nothing has changed."""
        step = self._found(library.regroup_snapshot_load)
        if step is not None:
            for name, (_, load) in self._states.items():
                load(self.get_bytes(name))
        return step

    def save(self, step: int) -> bool:
        """Copies the state of ``step``; returns when it may be changed again. False if this step is
        not kept, because other ranks have not saved the one before within a minute."""
        for name, (save, _) in self._states.items():
            self._set_bytes(name, save())
        kept = ctypes.c_int32()
        blocking(library.regroup_snapshot_save, self._handle(), unsigned(step, "step", 64),
                 ctypes.byref(kept))
        return bool(kept.value)

    @property
    def whole_step(self) -> Optional[int]:
        """The newest step that every rank has saved, as far as this rank knows."""
        return self._found(library.regroup_snapshot_whole_step)

    def wait_until_whole(self, timeout: float) -> bool:
        """Waits until every rank has saved what this rank saved last."""
        whole = ctypes.c_int32()
        blocking(library.regroup_snapshot_wait_until_whole, self._handle(),
                 _library.milliseconds(timeout), ctypes.byref(whole))
        return bool(whole.value)

    def open(self) -> Optional[int]:
        """``load`` in two parts, for a program that learns from the snapshot what to read: chooses
        the newest whole step, for all ranks together. ``read`` and ``get_bytes`` read it."""
        return self._found(library.regroup_snapshot_open)

    def read(self, name: str, tensor: Any, *, offset: Optional[Sequence[int]] = None,
             global_shape: Optional[Sequence[int]] = None) -> None:
        """Reads a tensor, or the piece at ``offset``, from the step that is open. Only on this
        rank."""
        given, _ = _described(name, tensor, offset, global_shape, True)
        blocking(library.regroup_snapshot_read, self._handle(), ctypes.byref(given))

    def get_bytes(self, name: str) -> bytes:
        """The bytes of a state that is no tensor, from the step that is loaded or open."""
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        check(library.regroup_snapshot_get_bytes(self._handle(), text(name, "name"),
                                                 ctypes.byref(data), ctypes.byref(size)))
        return ctypes.string_at(data, size.value) if size.value else b""

    def close(self) -> None:
        self._handle.free()

    def _found(self, function: Any) -> Optional[int]:
        found, step = ctypes.c_int32(), ctypes.c_uint64()
        blocking(function, self._handle(), ctypes.byref(found), ctypes.byref(step))
        return step.value if found.value else None

    def _set_bytes(self, name: str, value: Bytes) -> None:
        data = bytes(value)
        check(library.regroup_snapshot_set_bytes(self._handle(), text(name, "name"), data,
                                                 len(data)))


def _described(name: str, tensor: Any, offset: Optional[Sequence[int]],
               global_shape: Optional[Sequence[int]],
               writable: bool = True) -> Tuple[SnapshotTensor, Any]:
    """The structure of C, and what keeps the memory in place."""
    given, owner = view(tensor, name, writable)
    shape = getattr(tensor, "shape", None)
    sizes = [given.count] if shape is None else [int(size) for size in shape]
    for words, values in (("offset", offset), ("global_shape", global_shape)):
        if values is not None and len(values) != len(sizes):
            raise InvalidArgument(f"{name} has {len(sizes)} dimensions, and {words} has "
                                  f"{len(values)}")
    described = SnapshotTensor(ctypes.sizeof(SnapshotTensor), text(name, "name"),
                               _BY_NUMBER[given.dtype].encode(), given.data, given.device_kind,
                               given.device_index, len(sizes), _numbers(sizes), _numbers(offset),
                               _numbers(global_shape))
    return described, owner


def _numbers(values: Optional[Sequence[int]]) -> Any:
    return None if values is None else (ctypes.c_uint64 * len(values))(*values)
