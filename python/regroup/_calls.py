# SPDX-License-Identifier: Apache-2.0
"""How calls of C and of Python alternate: who owns a handle, and what Ctrl-C does meanwhile."""
from __future__ import annotations

# The module signal wraps it in Python, and so is six times slower.
import _signal as signal  # type: ignore[import-not-found]
import ctypes
import os
import threading
import weakref
from typing import Any, Callable, Optional

from . import errors
from ._library import check, library

_SIGINT = int(signal.SIGINT)

# Whether SIGINT has its default action because a blocking call is in progress. Only the main thread
# may change what a signal does.
_ends_process = False


def blocking(function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function of C that can wait for others, and raises its failure.

    Python carries out its handlers only when the call has returned. So SIGINT has its default
    action meanwhile: Ctrl-C ends a process that waits. A handler of the program's own stays.
    """
    global _ends_process
    if (threading.get_ident() != threading.main_thread().ident
            or signal.getsignal(_SIGINT) is not signal.default_int_handler):
        check(function(*arguments))
        return
    signal.signal(_SIGINT, signal.SIG_DFL)
    _ends_process = True
    try:
        code = function(*arguments)
    finally:
        _ends_process = False
        signal.signal(_SIGINT, signal.default_int_handler)
    check(code)


def result(function: Callable[..., int], *arguments: Any, waits: bool = False) -> Any:
    """Calls a function of C whose last argument is the place of a result, and returns that.
    ``waits``: it can wait for others."""
    place = function.argtypes[-1]._type_()  # type: ignore[attr-defined]
    _call(waits, function, *arguments, ctypes.byref(place))
    return place if isinstance(place, ctypes.Structure) else place.value


def result_bytes(function: Callable[..., int], *arguments: Any, waits: bool = False) -> bytes:
    """The same for a function that returns memory and its size."""
    pointer, size = ctypes.c_void_p(), ctypes.c_size_t()
    _call(waits, function, *arguments, ctypes.byref(pointer), ctypes.byref(size))
    try:
        return ctypes.string_at(pointer, size.value)
    finally:
        library.regroup_free(pointer)


def _call(waits: bool, function: Callable[..., int], *arguments: Any) -> None:
    if waits:
        blocking(function, *arguments)
    else:
        check(function(*arguments))


def from_c(function: Callable[[], None]) -> Optional[BaseException]:
    """Calls a function of Python from a callback of C. Returns what it raised.

    Ctrl-C raises KeyboardInterrupt in it, as elsewhere in Python.
    """
    global _ends_process
    if threading.get_ident() != threading.main_thread().ident or not _ends_process:
        return _outcome(function)
    signal.signal(_SIGINT, signal.default_int_handler)
    _ends_process = False
    try:
        try:
            return _outcome(function)
        finally:
            signal.signal(_SIGINT, signal.SIG_DFL)
            _ends_process = True
    except KeyboardInterrupt as interrupt:  # It came behind the function.
        signal.signal(_SIGINT, signal.SIG_DFL)
        _ends_process = True
        return interrupt


def _outcome(function: Callable[[], None]) -> Optional[BaseException]:
    try:
        function()
    except BaseException as raised:
        return raised
    return None


class Handle:
    """One handle of the C interface, which is freed once: by ``free``, or with this object, or at
    the end of the interpreter. A forked child frees nothing: it owns none of the connections."""

    def __init__(self, kind: str, create: Callable[..., int], *arguments: Any) -> None:
        pointer = ctypes.c_void_p()
        blocking(create, *arguments, ctypes.byref(pointer))
        self.kind = kind
        self.pointer: Optional[int] = pointer.value
        if pointer.value is not None:
            self._finalizer = weakref.finalize(
                self, _free, getattr(library, f"regroup_{kind}_free"), pointer.value, os.getpid())

    def __call__(self) -> int:
        if self.pointer is None or not self._finalizer.alive:
            raise errors.InvalidArgument(f"the {self.kind} is closed")
        return self.pointer

    def free(self) -> None:
        if self.pointer is not None:
            self.pointer = None
            self._finalizer()

    close = free


class Borrowed:
    """A handle that belongs to a loop, which frees it when the next round has begun."""

    def __init__(self, kind: str, pointer: int) -> None:
        self._kind = kind
        self._pointer: Optional[int] = pointer

    def __call__(self) -> int:
        if self._pointer is None:
            raise errors.InvalidArgument(f"this {self._kind} is of an earlier round of the loop; "
                                         f"use that of the step or of the round")
        return self._pointer

    def free(self) -> None:
        self._pointer = None


def _free(function: Callable[[int], None], pointer: int, owner: int) -> None:
    if os.getpid() == owner:
        function(pointer)
