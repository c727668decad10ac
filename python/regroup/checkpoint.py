# SPDX-License-Identifier: Apache-2.0
"""Named tensors, texts and numbers in a file that is written atomically."""
from __future__ import annotations

import os
from typing import Any, Optional, Union

from ._calls import Handle, blocking, result, result_bytes
from ._library import check, library, text, unsigned
from .tensors import view

Path = Union[str, "os.PathLike[str]"]


class Checkpoint:
    """The state of a job. Setting copies; a file has the whole checkpoint or is the earlier one."""

    def __init__(self, handle: Optional[Handle] = None) -> None:
        self._handle = handle or Handle("checkpoint", library.regroup_checkpoint_create)

    @classmethod
    def load(cls, path: Path) -> Optional[Checkpoint]:
        """Reads and verifies a file. None if there is none."""
        handle = Handle("checkpoint", library.regroup_checkpoint_load,
                        text(os.fspath(path), "path"))
        return None if handle.pointer is None else cls(handle)

    def save(self, path: Path, *, previous_count: int = 0, round: int = 0) -> None:
        """Replaces the file atomically; up to ``previous_count`` earlier ones stay beside it.

        With ``round``, that of the context, a worker whose round is over cannot overwrite the
        checkpoint of a later round: it raises Fenced and changes nothing.
        """
        blocking(library.regroup_checkpoint_save_fenced, self._handle(),
                 text(os.fspath(path), "path"), unsigned(previous_count, "previous_count", 64),
                 unsigned(round, "round", 64))

    def __contains__(self, name: str) -> bool:
        return bool(self._value(library.regroup_checkpoint_contains, name))

    def set_text(self, name: str, value: Union[str, bytes]) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        check(library.regroup_checkpoint_set_text(self._handle(), text(name, "name"), data,
                                                  len(data)))

    def set_integer(self, name: str, value: int) -> None:
        check(library.regroup_checkpoint_set_integer(self._handle(), text(name, "name"), value))

    def set_number(self, name: str, value: float) -> None:
        check(library.regroup_checkpoint_set_number(self._handle(), text(name, "name"), value))

    def set_tensor(self, name: str, tensor: Any) -> None:
        given, _ = view(tensor, "tensor")
        check(library.regroup_checkpoint_set_tensor(self._handle(), text(name, "name"), given))

    def get_text(self, name: str) -> bytes:
        return result_bytes(library.regroup_checkpoint_get_text, self._handle(),
                            text(name, "name"))

    def get_integer(self, name: str) -> int:
        return int(self._value(library.regroup_checkpoint_get_integer, name))

    def get_number(self, name: str) -> float:
        return float(self._value(library.regroup_checkpoint_get_number, name))

    def _value(self, function: Any, name: str) -> Any:
        return result(function, self._handle(), text(name, "name"))

    def get_tensor(self, name: str, destination: Any) -> None:
        """Copies into ``destination``, which must have the tensor's count and type."""
        target, _ = view(destination, "destination", True)
        check(library.regroup_checkpoint_get_tensor(self._handle(), text(name, "name"), target))
