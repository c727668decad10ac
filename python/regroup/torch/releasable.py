# SPDX-License-Identifier: Apache-2.0
"""Calls that wait for other ranks, and that nothing can end."""
from __future__ import annotations

import threading
from typing import Callable, List, Set

from ..errors import Fenced


class ReleasableCalls:
    """Makes calls on threads of their own, so that callers can be released from them. A call whose
    caller was released goes on for as long as it likes, and nobody hears of its result."""

    def __init__(self, name: str) -> None:
        self._name = name  # Of the threads.
        self._lock = threading.Lock()
        self._waiting: Set[threading.Event] = set()  # Guarded by _lock.
        self._is_released = False  # Guarded by _lock.

    def make(self, call: Callable[[], None]) -> None:
        """Returns when ``call`` returns, and raises what it raises. Raises Fenced as soon as
        ``release`` is called."""
        raised: List[BaseException] = []
        wake = threading.Event()

        def work() -> None:
            try:
                call()
            except BaseException as failure:
                raised.append(failure)
            wake.set()

        with self._lock:
            self._refuse_released()
            self._waiting.add(wake)
        threading.Thread(target=work, name=self._name, daemon=True).start()
        wake.wait()
        with self._lock:
            self._waiting.discard(wake)
            self._refuse_released()
        if raised:
            raise raised[0]

    def release(self) -> None:
        """Releases all callers, now and in future. Any thread; may be repeated."""
        with self._lock:
            self._is_released = True
            for wake in self._waiting:
                wake.set()

    def _refuse_released(self) -> None:
        if self._is_released:
            raise Fenced("the round is over")
