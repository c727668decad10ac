# SPDX-License-Identifier: Apache-2.0
"""The key-value store through which the ranks of a round find each other."""
from __future__ import annotations

import ctypes
from typing import Optional, Sequence, Union

from . import _library, errors
from ._calls import Handle, blocking, result, result_bytes
from ._library import library, text

Value = Union[bytes, bytearray, memoryview, str]


def _bytes(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class Store:
    """Keys are texts, values are bytes. Any number of threads may use a store at the same time.

    ``Context.store`` is the store of this round.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @classmethod
    def connect(cls, host: str, port: int, timeout: Optional[float] = None) -> Store:
        """Connects to a server. ``timeout``, in seconds, is for connecting and for later waits;
        without one, it is 5 minutes."""
        return cls(Handle("store", library.regroup_store_connect, text(host, "host"),
                          _library.unsigned(port, "port", 16), _library.milliseconds(timeout)))

    @classmethod
    def local(cls, timeout: Optional[float] = None) -> Store:
        """A store inside this process, for ranks that are threads."""
        return cls(Handle("store", library.regroup_store_local, _library.milliseconds(timeout)))

    def set(self, key: str, value: Value) -> None:
        data = _bytes(value)
        blocking(library.regroup_store_set, self._handle(), text(key, "key"), data, len(data))

    def get(self, key: str) -> bytes:
        """Waits for the key."""
        return result_bytes(library.regroup_store_get, self._handle(), text(key, "key"),
                            waits=True)

    def add(self, key: str, amount: int = 1) -> int:
        """Adds to a decimal number, absent meaning 0. Returns the sum."""
        return int(result(library.regroup_store_add, self._handle(), text(key, "key"), amount,
                          waits=True))

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist now."""
        array = _keys(keys)
        return bool(result(library.regroup_store_check, self._handle(), array, len(array),
                           waits=True))

    def wait(self, keys: Sequence[str], timeout: Optional[float] = None) -> None:
        """Waits until all keys exist; without a timeout, as long as the store's own."""
        array = _keys(keys)
        blocking(library.regroup_store_wait, self._handle(), array, len(array),
                 _library.milliseconds(timeout))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Stores ``desired`` if the value is ``expected``, "" meaning absent. Returns the value
        afterwards."""
        return result_bytes(library.regroup_store_compare_set, self._handle(), text(key, "key"),
                            text(expected, "expected"), text(desired, "desired"), waits=True)

    def delete(self, key: str) -> bool:
        """Whether the key existed."""
        return bool(result(library.regroup_store_delete, self._handle(), text(key, "key"),
                           waits=True))

    def close(self) -> None:
        self._handle.free()


def _keys(keys: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    if isinstance(keys, str):
        raise errors.InvalidArgument(f"keys is the text {keys!r}; give a list of keys")
    return (ctypes.c_char_p * len(keys))(*(text(key, "a key") for key in keys))
