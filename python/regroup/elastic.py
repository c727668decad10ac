# SPDX-License-Identifier: Apache-2.0
"""A training loop that survives the loss of workers: the processes stay, and the rounds change."""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from types import TracebackType
from typing import Any, Callable, Iterator, List, Optional, Tuple, Type

from . import _library
from ._calls import Borrowed, Handle, blocking, from_c, result
from ._imports import installed_modules
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
    """The step that is being carried out. Valid until ``on_step`` returns, or to the end of its
    ``with`` block."""

    number: int  #: Steps committed before this one, from 0.
    samples_begin: int  #: Samples consumed by all committed steps, of all ranks together.

    def __init__(self, pointer: int, current: ElasticRound, loop: ElasticLoop) -> None:
        self._pointer: Optional[int] = pointer
        self._round = current
        self._loop = loop
        self._has_ended = False  # It has been committed or finished.
        self._in_section = False
        info = result(library.regroup_step_get, pointer)
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
            raise InvalidArgument(f"step {self.number} is over")
        return self._pointer

    def __enter__(self) -> ElasticStep:
        self._open()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], raised: Optional[BaseException],
                 trace: Optional[TracebackType]) -> bool:
        """Ends the step. The loss of a peer goes no further: the loop repairs it."""
        if raised is None and not self._has_ended:
            raised = InvalidArgument(f"step {self.number} has ended without commit(), update() or "
                                     f"finish()")
        self._pointer = None
        if raised is None:
            return False
        if self._loop._repairs(raised):
            return True
        if kind is None:
            raise raised
        return False

    def take(self, count: int) -> range:
        """Takes the next ``count`` positions of the global order for this step, for all ranks
        together. They count as consumed when the step is committed. Once per step."""
        first = result(library.regroup_step_take, self._open(),
                       _library.unsigned(count, "count", 64))
        return range(first, first + count)

    def shard(self, samples: range) -> range:
        """The part of ``samples`` that belongs to this rank, as ``DistributedSampler.shard``
        divides them."""
        return samples[self.rank::self.world_size]

    def commit(self, apply: Optional[Callable[[], None]] = None) -> None:
        """Ends the step: blocks until every rank has called it, calls ``apply``, and commits.

        If a rank is lost before that, it raises and applies nothing. Do not catch what it raises.
        ``apply`` is local and the same on all ranks.
        """
        self._prepare()
        raised: List[BaseException] = []
        callback = _library.Apply(lambda _: _code(from_c(apply), raised)) if apply else None
        _run(raised, library.regroup_step_commit, self._open(), callback or _library.Apply(), None)
        self._committed()

    @contextlib.contextmanager
    def update(self) -> Iterator[None]:
        """``commit``, with the block in place of ``apply``: it begins when every rank has come
        here, and the step is committed at its end."""
        self._prepare()
        blocking(library.regroup_step_commit_begin, self._open())
        yield
        blocking(library.regroup_step_commit_end, self._open())
        self._committed()

    def _committed(self) -> None:
        self._has_ended = True
        self._loop._tell_imports()
        if self._loop.after_commit is not None:
            info = result(library.regroup_step_get, self._open())
            self._loop.after_commit(self, info.number, info.samples_begin)

    def _prepare(self) -> None:
        self._open()
        if self._loop.before_commit is not None:
            self._loop.before_commit()

    @property
    def pauses(self) -> bool:
        """After the commit: whether the round ends after this step, because a node leaves or joins;
        the same on all ranks. State that is divided among the ranks can be saved now, while all of
        them are here."""
        return bool(result(library.regroup_step_pauses, self._open()))

    def finish(self) -> None:
        """Ends the training, without committing this step. All ranks call it in the same step."""
        blocking(library.regroup_step_finish, self._open())
        self._has_ended = True

    def report(self, name: str, value: Any) -> None:
        """Shows a number of this step, such as the loss, to those who watch the job: its page,
        ``regroup status`` and its metrics. Only the values of rank 0 are shown.

        ``value`` is a number, or a tensor with one element; one that is not finite is shown as
        none. ``name`` has 1 to 32 of the characters a to z, 0 to 9 and _, and no digit first. A
        process has 8 names at most."""
        try:
            # PyTorch warns of a tensor that still takes part in the backward pass.
            number = float(value.detach() if hasattr(value, "detach") else value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidArgument(f"report({name!r}): the value is no number: {error}") from error
        check(library.regroup_step_report(self._open(), text(name, "name"), number))

    @contextlib.contextmanager
    def section(self, name: str) -> Iterator[None]:
        """In the block this rank is in the named section, whose hangs the agent detects. Sections
        cannot be nested. The time in sections called "data" is shown as the step's time for
        data."""
        check(library.regroup_step_section_begin(self._open(), text(name, "name")))
        self._in_section = True
        try:
            yield
        finally:
            self._in_section = False
            check(library.regroup_step_section_end(self._open()))

    def _loading(self) -> contextlib.AbstractContextManager[None]:
        """The section of what loads data, unless the program has begun one of its own."""
        return contextlib.nullcontext() if self._in_section else self.section("data")


class ElasticLoop:
    """Runs steps over changing memberships. At most one in a process at a time, used by one thread.

    ``timeout``, in seconds, limits each operation. ``compare_every`` compares the replicas every so
    many steps. ``snapshot_every`` saves a snapshot of the registered state every so many steps: when
    all processes are lost at once, the training goes on from the newest one.
    """

    def __init__(self, backend: str = "cpu", *, timeout: Optional[float] = None,
                 compare_every: int = 0, snapshot_every: int = 0) -> None:
        options = _library.ElasticOptions(
            ctypes.sizeof(_library.ElasticOptions), text(backend, "backend"),
            _library.milliseconds(timeout), _library.unsigned(compare_every, "compare_every", 64),
            _library.unsigned(snapshot_every, "snapshot_every", 64))
        self._handle = Handle("elastic", library.regroup_elastic_create, ctypes.byref(options))
        self._kept: List[Any] = []  # C uses these as long as the loop lives.
        self._raised: List[BaseException] = []
        self._round: Optional[ElasticRound] = None
        self._has_told_imports = False
        #: How ``steps`` has ended: "finished", "left", or None.
        self.ending: Optional[str] = None
        #: Gives the cause of an exception in a step, for packages whose exceptions hide the loss of
        #: a peer.
        self.explain: Optional[Callable[[Exception], Exception]] = None
        #: Called in each step of ``steps`` before it is committed. It may call collectives.
        self.before_commit: Optional[Callable[[], None]] = None
        #: Called in each step of ``steps`` after it is committed, with the step, and the numbers of
        #: committed steps and of the samples that they have consumed. It may call collectives.
        self.after_commit: Optional[Callable[[ElasticStep, int, int], None]] = None

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
        """Continues from a checkpoint: so many steps and samples count as done. Before ``run``, or
        in ``on_round``, on all ranks alike: there, a program whose state is divided among the ranks
        returns to the step that it has loaded, which may be an earlier one."""
        check(library.regroup_elastic_resume_at(self._handle(), _library.unsigned(step, "step", 64),
                                                _library.unsigned(samples, "samples", 64)))

    def run(self, on_step: Callable[[ElasticStep], Any], *,
            on_round: Optional[Callable[[ElasticRound], Any]] = None,
            on_leave: Optional[Callable[[ElasticLeave], Any]] = None) -> str:
        """Trains until all ranks finish, and returns "finished", or until this node leaves, and
        returns "left". Once.

        Under the launcher, the loss of a peer is repaired: a regroup.Error of a lost peer may leave
        the callbacks. Any other exception ends the run, and leaves it with its traceback.
        """
        for step in self.steps(on_round=on_round, on_leave=on_leave):
            with step:
                on_step(step)
        assert self.ending is not None
        return self.ending

    def steps(self, until: Optional[int] = None, *,
              on_round: Optional[Callable[[ElasticRound], Any]] = None,
              on_leave: Optional[Callable[[ElasticLeave], Any]] = None) -> Iterator[ElasticStep]:
        """The same as ``run``, for a ``for`` loop::

            for step in loop.steps(until=1000):
                with step:
                    ...
                    with step.update():
                        weights -= gradient

        The ``with`` block ends quietly when a peer is lost, and the loop gives the same step again
        in the next round. It ends when all ranks have finished, before step ``until``, or when this
        node leaves; ``ending`` says which. Once, in one thread.
        """
        over = False
        try:
            while not over:
                step = self._next(until, on_round, on_leave)
                if step is not None:
                    yield step
                    if step._pointer is not None:
                        raise InvalidArgument(f"step {step.number} was not carried out: write "
                                              f"\"with step:\" in the loop")
                over = self.ending is not None
        finally:
            if self.ending is None and self._round is not None:
                # Otherwise the others would wait for this rank.
                with contextlib.suppress(Error):
                    check(library.regroup_elastic_failed(
                        self._handle(), 1, b"the program has left the loop before its end"))

    def _next(self, until: Optional[int], on_round: Optional[Callable[[ElasticRound], Any]],
              on_leave: Optional[Callable[[ElasticLeave], Any]]) -> Optional[ElasticStep]:
        """Carries out one event; returns a step for the program."""
        event = ctypes.c_int32()
        _run(self._raised, library.regroup_elastic_next, self._handle(), ctypes.byref(event))
        try:
            if event.value == _library.EVENT_ROUND:
                self._enter(result(library.regroup_elastic_round, self._handle()), on_round)
            elif event.value == _library.EVENT_STEP:
                self._raise_noted()
                assert self._round is not None
                step = ElasticStep(result(library.regroup_elastic_step, self._handle()),
                                   self._round, self)
                if until is None or step.number < until:
                    return step
                step.finish()
            elif event.value == _library.EVENT_LEAVE:
                leave = result(library.regroup_elastic_leave, self._handle())
                if on_leave is not None:
                    on_leave(ElasticLeave(leave.step, leave.reason.decode(errors="replace"),
                                          leave.time_left_ms / 1000))
            else:
                self.ending = "finished" if event.value == _library.EVENT_FINISHED else "left"
        except BaseException as raised:
            if not self._repairs(raised):
                raise
        return None

    def _tell_imports(self) -> None:
        """Lets the agent prepare for a loss. By now the program has made most of its imports."""
        if not self._has_told_imports:
            self._has_told_imports = True
            modules = installed_modules()
            if modules:
                check(library.regroup_elastic_will_import(self._handle(), text(modules, "modules")))

    def _repairs(self, raised: BaseException) -> bool:
        """Tells C what went wrong. True if that is the loss of a peer, which the loop repairs."""
        explained = raised
        if isinstance(raised, Exception) and self.explain is not None:
            explained = self.explain(raised)
        code, sentence = _described(explained)
        try:
            blocking(library.regroup_elastic_failed, self._handle(), code, sentence)
        except InvalidArgument as other:
            if isinstance(explained, Error) and str(other) != str(explained):
                raise  # The ranks do not agree on the end of training.
            return False
        except Error:
            return False
        self._raised.clear()
        for exception in (raised, explained):
            _forget_frames(exception)
        return True

    def close(self) -> None:
        """Frees the loop, and what was made from its groups."""
        if self._round is not None:
            self._round.group.close()
        self._handle.free()
        self._kept.clear()

    def _enter(self, info: Any, on_round: Optional[Callable[[ElasticRound], Any]]) -> None:
        earlier = self._round
        self._round = ElasticRound(Context(Borrowed("context", info.context)),
                                   ProcessGroup(Borrowed("group", info.group)), info.step,
                                   info.first != 0)
        try:
            if on_round is not None:
                on_round(self._round)
        finally:
            if earlier is not None:  # C frees the group next.
                earlier.group.close()
                earlier.context.close()

    def _raise_noted(self) -> None:
        if self._raised and not isinstance(self._raised[-1], Error):
            raise self._raised[-1]
        self._raised.clear()  # The loop has repaired it.


def _code(raised: Optional[BaseException], record: List[BaseException]) -> int:
    """The answer of a callback to C: the code of a failure, whose sentence is recorded there. The
    loop of C so knows the loss of a peer from a failure of the program."""
    if raised is None:
        return 0
    record[:] = [raised]
    return int(library.regroup_fail(*_described(raised)))


def _forget_frames(raised: Optional[BaseException]) -> None:
    """Frees the step's objects, which the frames hold: objects of the lost round may keep the
    exception."""
    seen: List[BaseException] = []
    while raised is not None and raised not in seen:
        seen.append(raised)
        raised.__traceback__ = None
        raised = raised.__cause__ or raised.__context__


def _described(raised: BaseException) -> Tuple[int, bytes]:
    """The code and the sentence for C."""
    if isinstance(raised, Error):
        return raised.code, str(raised).encode(errors="replace")
    sentence = f"{type(raised).__name__}: {raised}" if str(raised) else type(raised).__name__
    return 1, sentence.encode(errors="replace")


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
