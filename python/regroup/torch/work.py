# SPDX-License-Identifier: Apache-2.0
"""Operations in flight as torch.distributed sees them, and the threads that complete their futures."""
from __future__ import annotations

import collections
import contextlib
import datetime
import threading
import time
from typing import Any, Callable, Deque, List, Optional, Protocol, Sequence, Set

import torch
from torch._C import _distributed_c10d as c10d
from torch.autograd import Variable

from ..errors import DeadlineExceeded

NO_TIMEOUT = datetime.timedelta(0)

#: Copies results to where the caller wants them.
After = Optional[Callable[[], object]]


class Issued(Protocol):
    """An operation in flight: one of the library, or a Work."""

    def wait(self) -> Any: ...

    def test(self) -> bool: ...


class Owner(Protocol):
    """The group of a Work."""

    def note(self, error: Optional[Exception]) -> None:
        """An operation of the group has ended, with this error or none."""

    def watch(self, work: Work) -> None:
        """Somebody has asked for the future of the operation."""


class Work(c10d.Work):  # type: ignore[misc]
    """One operation of PyTorch: operations in flight, and what is done after them. Any thread."""

    def __init__(self, group: Owner, issued: Sequence[Issued], result: List[torch.Tensor],
                 after: After = None, source: int = -1, is_ordered: bool = True) -> None:
        super().__init__()
        self._group = group
        self._issued = issued
        self._result = result
        self._after = after
        self._source = source
        #: It completes as soon as those that were issued before it have; messages may not.
        self.is_ordered = is_ordered
        self._lock = threading.Lock()
        self._done = not issued
        self._error: Optional[Exception] = None
        self._future: Any = None

    def wait(self, timeout: datetime.timedelta = NO_TIMEOUT) -> bool:
        if not self._done:
            if timeout > NO_TIMEOUT:
                self._wait_until(time.monotonic() + timeout.total_seconds(), timeout)
            self._complete()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._done and all(work.test() for work in self._issued):
            self._complete()
        return self._done

    test = is_completed

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        return self._error if self.is_completed() else None

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._result

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        with self._lock:
            if self._future is None:
                self._future = torch.futures.Future()
                #: Only a callback can end a future with an error that C++ sees.
                self._outcome = self._future.then(self._give)
                if self._done:
                    self._future.set_result(None)
                else:
                    self._group.watch(self)
        if not self._done:
            # In a backward pass, whose end waits for the future in C++: this thread first waits
            # here, where the launcher sees that it waits for others.
            with contextlib.suppress(RuntimeError):
                Variable._execution_engine.queue_callback(self.wait)
        return self._outcome

    def _give(self, _: Any) -> List[torch.Tensor]:
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._result

    def _wait_until(self, deadline: float, timeout: datetime.timedelta) -> None:
        while not all(work.test() for work in self._issued):
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(f"the operation is not complete within {timeout}")
            time.sleep(0.0005)

    def _complete(self) -> None:
        future = self.end()
        if future is not None:
            future.set_result(None)

    def end(self) -> Any:
        """Waits for the operations. The first thread that comes here does what is done after them,
        and gets the future, if there is one: its ``set_result(None)`` calls the callbacks."""
        error: Optional[Exception] = None
        for work in self._issued:  # All of them: they use the buffers.
            try:
                work.wait()
            except Exception as raised:
                error = error or raised.with_traceback(None)
        with self._lock:
            if self._done:
                return None
            if error is None and self._after is not None:
                try:
                    with torch.no_grad():
                        self._after()
                except Exception as raised:
                    error = raised.with_traceback(None)
            self._error = error
            self._group.note(error)
            self._issued, self._after = (), None
            self._done = True
            return self._future


class Completer:
    """The threads that complete the futures of a group while the program computes.

    One thread at a time, the leader, waits for the works in their order. Before it completes a
    future it hands the lead to another thread, because a callback may wait for any other future.
    So there is a thread for each callback that waits, one for each message whose future is wanted,
    and two more at most.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._works: Deque[Work] = collections.deque()
        self._has_leader = False
        self._idle = 0  # Threads that can take the lead, with those that are being started.
        self._closed = False
        self._threads: Set[threading.Thread] = set()

    def add(self, work: Work) -> None:
        with self._changed:
            if work.is_ordered:
                self._works.append(work)
                self._find_leader()
            else:
                self._start(self._complete_message, work)

    def end_soon(self) -> None:
        """The threads end when the futures are complete."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """The same, and waits for it, ``timeout`` seconds at most."""
        self.end_soon()
        deadline = time.monotonic() + timeout
        with self._changed:
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name="regroup-futures",
                                  daemon=True)
        self._threads.add(thread)
        thread.start()

    def _find_leader(self) -> None:
        """With the lock."""
        if self._has_leader or not self._works:
            return
        if self._idle > 0:
            self._changed.notify()
        else:
            self._idle += 1
            self._start(self._lead)

    def _lead(self) -> None:
        while True:
            work = self._next()
            if work is None:
                return
            future = work.end()
            with self._changed:
                self._has_leader = False
                self._find_leader()
            if future is not None:
                future.set_result(None)
            del work, future  # Not until the next one: they hold tensors.
            with self._changed:
                self._idle += 1

    def _next(self) -> Optional[Work]:
        """Takes the lead. None if this thread is not needed any more."""
        with self._changed:
            while self._has_leader or not self._works:
                if self._idle > 1 or (self._closed and not self._works):
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                    return None
                self._changed.wait()
            self._idle -= 1
            self._has_leader = True
            return self._works.popleft()

    def _complete_message(self, work: Work) -> None:
        future = work.end()
        if future is not None:
            future.set_result(None)
        with self._changed:
            self._threads.discard(threading.current_thread())
