# SPDX-License-Identifier: Apache-2.0
"""Operations in flight as torch.distributed sees them, and the threads that complete their futures."""
from __future__ import annotations

import collections
import contextlib
import datetime
import threading
import time
from typing import Any, Callable, Deque, Iterator, List, Optional, Protocol, Sequence, Set

import torch
from torch._C import _distributed_c10d as c10d
from torch.autograd import Variable

from ..errors import DeadlineExceeded, Error, InvalidArgument
from ..process_group import ProcessGroup
from .buffers import After
from .operations import Call

NO_TIMEOUT = datetime.timedelta(0)


class Issued(Protocol):
    """An operation in flight: one of the library, or a Work."""

    def wait(self) -> Any: ...

    def test(self) -> bool: ...


class Lane:
    """A group of the library, whose operations are issued one at a time, by any thread. It
    completes their futures in the order in which they were issued."""

    def __init__(self, native: ProcessGroup, owned: bool, timeout: datetime.timedelta,
                 note: Callable[[Optional[Exception]], None]) -> None:
        self.native = native
        self.note = note  #: An operation has ended, with this error or none.
        self.completer = Completer(timeout.total_seconds())
        self.issued = 0
        self._owned = owned
        self._timeout = timeout
        self._issuing = threading.Lock()

    def issue(self, call: Call, timeout: Optional[datetime.timedelta]) -> Issued:
        types = {tensor.dtype for _, tensor in call.buffers if tensor is not None}
        if len(types) > 1:
            raise InvalidArgument(f"the input and the output of an operation have different types: "
                                  f"{', '.join(sorted(map(str, types)))}")
        seconds = None
        if timeout is not None and timeout > NO_TIMEOUT and timeout != self._timeout:
            seconds = timeout.total_seconds()
        try:
            with self._issuing:
                work = self.native._issue(call.function, call.buffers, call.rest, seconds, None,
                                          True)
                self.issued += 1
        except Error as error:
            self.note(error)
            raise
        assert work is not None
        return work

    def abort(self, reason: str) -> None:
        with contextlib.suppress(Error):  # The group may be closed.
            self.native.abort(reason)

    def close(self) -> None:
        self.completer.close()
        if self._owned:
            self.native.close()


#: A callback that uses no processor for so long, in seconds, waits for a future in C++.
_IDLE_S = 1.0
#: Threads that wait for operations.
_awaiting: Set[int] = set()


class _Context(threading.local):
    callbacks = 0  # Callbacks of futures that this thread is in.


_context = _Context()


def in_callback() -> bool:
    """Whether this thread is in a callback of a Future."""
    return _context.callbacks > 0


@contextlib.contextmanager
def _callback() -> Iterator[None]:
    _context.callbacks += 1
    try:
        yield
    finally:
        _context.callbacks -= 1


class Future(torch.futures.Future):  # type: ignore[misc]
    """A future of PyTorch that knows its callbacks as such, whichever thread calls them."""

    def __init__(self, completer: Completer) -> None:
        super().__init__()
        self._completer = completer

    def then(self, callback: Callable[[Any], Any]) -> Future:
        following = Future(self._completer)

        def call(done: Any) -> None:
            try:
                value = callback(done)
            except Exception as error:
                following.set_exception(error)
            else:
                following.set_result(value)

        self.add_done_callback(call)
        return following

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        def call(done: Any) -> None:
            with _callback():
                callback(done)

        super().add_done_callback(call)

    def wait(self) -> Any:
        if in_callback() and not self.done():
            self._completer.let_others_lead()
        return super().wait()


class Work(c10d.Work):  # type: ignore[misc]
    """One operation of PyTorch: operations in flight, and what is done after them. Any thread."""

    def __init__(self, lane: Lane, issued: Sequence[Issued], results: List[torch.Tensor],
                 after: After = None, source: int = -1, is_ordered: bool = True) -> None:
        super().__init__()
        self._lane = lane
        self._issued = issued
        self.results = results
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
            self.end()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._done and all(work.test() for work in self._issued):
            self.end()
        return self._done

    test = is_completed

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        return self._error if self.is_completed() else None

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self.results

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        with self._lock:
            if self._future is None:
                completer = self._lane.completer
                self._future = Future(completer)
                if self._done:
                    self._tell(self._future)
                else:
                    completer.add(self)
        if not self._done:
            # In a backward pass, whose end waits for the future in C++: this thread first waits
            # here, where the launcher sees that it waits for others.
            with contextlib.suppress(RuntimeError):
                Variable._execution_engine.queue_callback(self.wait)
        return self._future

    def _tell(self, future: Future) -> None:
        if self._error is not None:
            future.set_exception(self._error.with_traceback(None))
        else:
            future.set_result(self.results)

    def _wait_until(self, deadline: float, timeout: datetime.timedelta) -> None:
        while not all(work.test() for work in self._issued):
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(f"the operation is not complete within {timeout}")
            time.sleep(0.0005)

    def complete(self) -> None:
        """Completes the future, which calls the callbacks. Only for the completer, which does it in
        the same order on all ranks; what is waited for is ended already."""
        self._tell(self._future)

    def end(self) -> None:
        """Waits for the operations. The first thread that comes here does what is done after
        them."""
        error: Optional[Exception] = None
        this = threading.get_ident()
        _awaiting.add(this)
        for work in self._issued:  # All of them: they use the buffers.
            try:
                work.wait()
            except Exception as raised:
                error = error or raised.with_traceback(None)
        _awaiting.discard(this)
        with self._lock:
            if self._done:
                return
            if error is None and self._after is not None:
                try:
                    with torch.no_grad():
                        self._after()
                except Exception as raised:
                    error = raised.with_traceback(None)
            self._error = error
            self._lane.note(error)
            self._issued, self._after = (), None
            self._done = True


class Completer:
    """The threads that complete the futures of a lane while the program computes.

    One thread, the leader, waits for the works and completes their futures in their order, so that
    callbacks start collectives in the same order on all ranks. While a callback waits for another
    future of the lane, another thread leads. So there is a thread for each callback that waits, one
    for each message whose future is wanted, and two more at most.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._changed = threading.Condition()
        self._works: Deque[Work] = collections.deque()
        self._leader: Optional[threading.Thread] = None
        self._in_callbacks = False  # The leader is.
        self._used: Optional[float] = None  # Processor time of the leader.
        self._used_at = 0.0
        self._idle = 0  # Threads that can take the lead, with those that are being started.
        self._closed = False
        self._threads: Set[threading.Thread] = set()

    def add(self, work: Work) -> None:
        with self._changed:
            if work.is_ordered:
                self._works.append(work)
                self._find_follower()
            else:
                self._start(self._complete_message, work)

    def let_others_lead(self) -> None:
        """A callback waits for a future of this lane."""
        with self._changed:
            if self._in_callbacks and self._leader is threading.current_thread():
                self._leader, self._in_callbacks = None, False
                self._find_follower()

    def end_soon(self) -> None:
        """The threads end when the futures are complete."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self) -> None:
        """The same, and waits for it, but not longer than one operation can take."""
        self.end_soon()
        deadline = time.monotonic() + self._patience
        with self._changed:
            threads = self._threads - {threading.current_thread()}
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, name="regroup-futures",
                                  daemon=True)
        thread.start()  # First: it fails at the limit of threads. The lock is held.
        self._threads.add(thread)

    def _find_follower(self) -> None:
        """With the lock: another thread looks after the works, if the leader does not."""
        if not self._works or (self._leader is not None and not self._in_callbacks):
            return
        if self._idle > 0:
            self._changed.notify()
        else:
            self._start(self._lead)
            self._idle += 1

    def _lead(self) -> None:
        this = threading.current_thread()
        while True:
            work = self._next()
            if work is None:
                return
            work.end()
            with self._changed:
                self._in_callbacks, self._used = True, None
                self._find_follower()
            work.complete()
            del work  # Not until the next one: it holds tensors.
            with self._changed:
                self._idle += 1
                if self._leader is this:
                    self._leader, self._in_callbacks = None, False

    def _next(self) -> Optional[Work]:
        """Takes the lead. None if this thread is not needed any more."""
        with self._changed:
            while not self._works or not self._can_lead():
                if self._idle > 1 or (self._closed and not self._works):
                    self._idle -= 1
                    self._threads.discard(threading.current_thread())
                    return None
                self._changed.wait(_IDLE_S / 10 if self._works and self._in_callbacks else None)
            self._idle -= 1
            self._leader, self._in_callbacks = threading.current_thread(), False
            return self._works.popleft()

    def _can_lead(self) -> bool:
        """Whether nobody leads, or the leader's callback waits for a future where Python does not
        see it, as in ``torch.futures.wait_all``."""
        if self._leader is None or not self._in_callbacks or self._leader.ident is None:
            return self._leader is None
        used = time.clock_gettime(time.pthread_getcpuclockid(self._leader.ident))
        now = time.monotonic()
        if used != self._used or self._leader.ident in _awaiting:
            self._used, self._used_at = used, now
        return now - self._used_at >= _IDLE_S

    def _complete_message(self, work: Work) -> None:
        work.end()
        work.complete()
        with self._changed:
            self._threads.discard(threading.current_thread())
