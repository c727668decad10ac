# SPDX-License-Identifier: Apache-2.0
"""A training loop that survives the loss of workers: the processes stay, and the rounds change."""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from typing import Any, Callable, Iterator, List, Optional

from . import _library
from ._calls import Handle, blocking, from_c
from ._library import check, library, text
from .context import Context
from .errors import Error, InvalidArgument
from .process_group import ProcessGroup
from .tensors import view


@dataclasses.dataclass(frozen=True)
class ElasticRound:
    """A period in which membership and ranks are fixed."""

    context: Context
    group: ProcessGroup  #: Of all ranks; ends with the round.
    step: int  #: Steps committed before this round.
    first: bool  #: The first round of this process.

    @property
    def rank(self) -> int:
        return self.context.rank

    @property
    def world_size(self) -> int:
        return self.context.world_size


@dataclasses.dataclass(frozen=True)
class ElasticLeave:
    """Why and until when this rank leaves, while its state can still be saved."""

    step: int  #: Committed steps.
    reason: str
    time_left: float  #: In seconds.


class ElasticStep:
    """The step that is being carried out. Valid until ``on_step`` returns."""

    number: int  #: Steps committed before this one, from 0.
    samples_begin: int  #: Samples consumed by all committed steps, of all ranks together.

    def __init__(self, pointer: int, current: ElasticRound) -> None:
        self._pointer: Optional[int] = pointer
        self._round = current
        info = _library.StepInfo()
        check(library.regroup_step_get(pointer, ctypes.byref(info)))
        self.number, self.samples_begin = info.number, info.samples_begin

    @property
    def context(self) -> Context:
        return self._round.context

    @property
    def group(self) -> ProcessGroup:
        return self._round.group

    @property
    def rank(self) -> int:
        return self._round.rank

    @property
    def world_size(self) -> int:
        return self._round.world_size

    def _open(self) -> int:
        if self._pointer is None:
            raise InvalidArgument(f"step {self.number} is over: on_step has returned")
        return self._pointer

    def take(self, count: int) -> range:
        """Takes the next ``count`` positions of the global order for this step, for all ranks
        together. They count as consumed when the step is committed. Once per step."""
        first = ctypes.c_uint64()
        check(library.regroup_step_take(self._open(), _library.unsigned(count, "count", 64),
                                        ctypes.byref(first)))
        return range(first.value, first.value + count)

    def shard(self, samples: range) -> range:
        """The part of ``samples`` that belongs to this rank, as ``DistributedSampler.shard``
        divides them."""
        return samples[self.rank::self.world_size]

    def commit(self, apply: Optional[Callable[[], None]] = None) -> None:
        """Ends the step: blocks until every rank has called it, calls ``apply``, and commits.

        If a rank is lost before that, it raises and applies nothing. Do not catch what it raises.
        ``apply`` is local and the same on all ranks.
        """
        raised: List[BaseException] = []
        callback = _library.Apply(lambda _: _code(from_c(apply), raised)) if apply else None
        _run(raised, library.regroup_step_commit, self._open(), callback or _library.Apply(), None)

    def finish(self) -> None:
        """Ends the training, without committing this step. All ranks call it in the same step."""
        blocking(library.regroup_step_finish, self._open())

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        """In the block this rank is in the named section, whose hangs the agent detects. Sections
        cannot be nested."""
        check(library.regroup_step_section_begin(self._open(), text(name, "name")))
        try:
            yield
        finally:
            check(library.regroup_step_section_end(self._open()))


class ElasticLoop:
    """Runs steps over changing memberships. At most one in a process at a time, used by one thread.

    ``timeout``, in seconds, limits each operation. ``compare_every`` compares the replicas every so
    many steps. ``straggler_window`` is in steps; -1 reports no slow ranks.
    """

    def __init__(self, backend: str = "cpu", *, timeout: Optional[float] = None,
                 compare_every: int = 0, straggler_window: int = 0,
                 straggler_excess: float = 0.0) -> None:
        options = _library.ElasticOptions(
            ctypes.sizeof(_library.ElasticOptions), text(backend, "backend"),
            _library.milliseconds(timeout), _library.unsigned(compare_every, "compare_every", 64),
            straggler_window, straggler_excess)
        self._handle = Handle("elastic", library.regroup_elastic_create, ctypes.byref(options))
        self._kept: List[Any] = []  # What C uses as long as the loop lives.
        self._raised: List[BaseException] = []
        self._round: Optional[ElasticRound] = None

    def register_state(self, name: str, tensor: Any = None, *,
                       save: Optional[Callable[[], bytes]] = None,
                       load: Optional[Callable[[bytes], None]] = None) -> None:
        """Registers state that must be equal on all ranks after every step: the same names, in the
        same order, on every rank, before ``run``.

        A tensor must stay in place while the loop lives. Change it only in the function given to
        ``commit``. State that is no tensor has ``save``, which returns its bytes, and ``load``,
        which takes them. Equal state must give equal bytes, also after ``load``.
        """
        if (tensor is None) == (save is None) or (save is None) != (load is None):
            raise InvalidArgument(f"register_state({name!r}) needs a tensor, or save and load")
        if save is not None and load is not None:
            self._register_value(name, save, load)
            return
        given, keeper = view(tensor, "tensor", True)
        check(library.regroup_elastic_register_tensor(self._handle(), text(name, "name"), given))
        self._kept.append(keeper)

    def register_buffer(self, name: str, tensor: Any) -> None:
        """The same for a tensor that ``on_step`` changes before ``commit``, such as running
        means."""
        given, keeper = view(tensor, "tensor", True)
        check(library.regroup_elastic_register_buffer(self._handle(), text(name, "name"), given))
        self._kept.append(keeper)

    def _register_value(self, name: str, save: Callable[[], bytes],
                        load: Callable[[bytes], None]) -> None:
        saved: List[Any] = [None]

        def on_save(_: Any, data: Any, size: Any) -> int:
            def call() -> None:
                value = bytes(save())
                saved[0] = ctypes.c_char_p(value)
                data[0] = ctypes.cast(saved[0], ctypes.c_void_p).value
                size[0] = len(value)
            return _code(from_c(call), self._raised)

        def on_load(_: Any, data: Any, size: int) -> int:
            return _code(from_c(lambda: load(ctypes.string_at(data, size) if size else b"")),
                         self._raised)

        callbacks = _library.SaveValue(on_save), _library.LoadValue(on_load)
        check(library.regroup_elastic_register_value(self._handle(), text(name, "name"),
                                                     *callbacks, None))
        self._kept.append((callbacks, saved))

    def resume_at(self, step: int, samples: int) -> None:
        """Continues from a checkpoint: so many steps and samples count as done. Before ``run``."""
        check(library.regroup_elastic_resume_at(self._handle(), _library.unsigned(step, "step", 64),
                                                _library.unsigned(samples, "samples", 64)))

    def on_straggler(self, listener: Callable[[int, float], None]) -> None:
        """``listener(rank, excess)`` is called on rank 0 when a rank is slower than the median of
        the others by the fraction ``excess``. Before ``run``. An exception from it ends the run at
        the next step."""
        callback = _library.OnStraggler(
            lambda _, rank, excess: self._note(from_c(lambda: listener(rank, excess))))
        check(library.regroup_elastic_on_straggler(self._handle(), callback, None))
        self._kept.append(callback)

    def run(self, on_step: Callable[[ElasticStep], Any], *,
            on_round: Optional[Callable[[ElasticRound], Any]] = None,
            on_leave: Optional[Callable[[ElasticLeave], Any]] = None) -> str:
        """Trains until all ranks finish, and returns "finished", or until this node leaves, and
        returns "left". Once.

        Under the launcher, the loss of a peer is repaired: a regroup.Error of a lost peer may leave
        the callbacks. Any other exception ends the run, and leaves it with its traceback.
        """
        callbacks = _library.ElasticCallbacks(
            ctypes.sizeof(_library.ElasticCallbacks), None,
            _library.OnRound(lambda _, info: self._begin_round(info.contents, on_round)),
            _library.OnStep(lambda _, step: self._carry_out(step, on_step)),
            _library.OnLeave(lambda _, info: self._leave(info.contents, on_leave)))
        ending = ctypes.c_int32()
        _run(self._raised, library.regroup_elastic_run, self._handle(), ctypes.byref(callbacks),
             ctypes.byref(ending))
        return "finished" if ending.value == 0 else "left"

    def close(self) -> None:
        """Frees the loop, and what was made from its groups."""
        if self._round is not None:
            self._round.group.close()
        self._handle.free()
        self._kept.clear()

    # Callbacks of C. None of them lets an exception out.

    def _begin_round(self, info: Any, on_round: Optional[Callable[[ElasticRound], Any]]) -> int:
        def call() -> None:
            earlier = self._round
            self._round = ElasticRound(Context(None, info.context), ProcessGroup(None, info.group),
                                       info.step, info.first != 0)
            try:
                if on_round is not None:
                    on_round(self._round)
            finally:
                if earlier is not None:  # C frees the group when this returns.
                    earlier.group.close()
                    earlier.context.close()
        return _code(from_c(call), self._raised)

    def _carry_out(self, pointer: int, on_step: Callable[[ElasticStep], Any]) -> int:
        def call() -> None:
            if self._raised and not isinstance(self._raised[-1], Error):
                raise self._raised[-1]
            self._raised.clear()  # The loop has repaired it.
            assert self._round is not None
            step = ElasticStep(pointer, self._round)
            try:
                on_step(step)
            finally:
                step._pointer = None
        return _code(from_c(call), self._raised)

    def _leave(self, info: Any, on_leave: Optional[Callable[[ElasticLeave], Any]]) -> int:
        def call() -> None:
            if on_leave is not None:
                on_leave(ElasticLeave(info.step, info.reason.decode(errors="replace"),
                                      info.time_left_ms / 1000))
        return _code(from_c(call), self._raised)

    def _note(self, raised: Optional[BaseException]) -> None:
        if raised is not None:
            self._raised[:] = [raised]


def _code(raised: Optional[BaseException], record: List[BaseException]) -> int:
    """The answer of a callback to C: the code of a failure, whose sentence is recorded there. The
    loop of C so knows the loss of a peer from a failure of the program."""
    if raised is None:
        return 0
    record[:] = [raised]
    if isinstance(raised, Error):
        return int(library.regroup_fail(raised.code, str(raised).encode(errors="replace")))
    sentence = f"{type(raised).__name__}: {raised}" if str(raised) else type(raised).__name__
    return int(library.regroup_fail(1, sentence.encode(errors="replace")))


def _run(record: List[BaseException], function: Callable[..., int], *arguments: Any) -> None:
    """Calls a function of C that calls back. If it fails because of what a callback raised, raises
    that, with its traceback."""
    try:
        blocking(function, *arguments)
        return
    except Error as failure:
        cause: BaseException = failure
    if record and (not isinstance(record[-1], Error) or str(record[-1]) == str(cause)):
        cause = record[-1]
    raise cause  # Not above: `failure` would become the context of the cause.
