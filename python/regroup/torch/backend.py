# SPDX-License-Identifier: Apache-2.0
"""The back end "regroup" of torch.distributed, for tensors on the CPU.

PyTorch 2.14 and newer find it by itself (the entry-point group ``torch.distributed.backends``);
with an older release, ``import regroup.torch`` registers it.
"""
from __future__ import annotations

import collections
import dataclasses
import datetime
import threading
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import _library
from .._calls import Handle
from .._library import library
from ..context import Context
from ..errors import Closed, DeadlineExceeded, Disconnected, Error, Fenced, InvalidArgument
from ..process_group import ProcessGroup as NativeGroup
from ..store import Store
from . import operations
from .buffers import NAME, joined
from .operations import Calls
from .work import Lane, Work, in_callback

_LOSSES = (Disconnected, DeadlineExceeded, Fenced, Closed)

#: Before PyTorch 2.7 an operation in C++ does not keep its object of Python, and works no more
#: without it. C++ waits for an operation soon after it has issued it.
_KEPT_WORKS = 0 if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7) else 256


@dataclasses.dataclass(frozen=True)
class _Made:
    """The ingredients of a group of torch.distributed."""

    native: NativeGroup
    owns_native: bool
    context: Context  # Ends the native group with its round, while it lives.
    is_world: bool  # The default group.
    name: str
    timeout: datetime.timedelta
    store: Any  # Of torch.distributed.

    def another(self, purpose: str) -> NativeGroup:
        """A native group of the same ranks, each of which calls this."""
        return NativeGroup.create("cpu", self.context, name=f"{self.name}/{purpose}",
                                  timeout=self.timeout.total_seconds())


class _Operations:
    """The operations of torch.distributed on groups of the library.

    Collectives that callbacks of futures start have a group of their own, since no order holds
    between them and those of the program. Each of the two groups has the same order on all ranks.
    """

    supports_coalescing = supports_reconfigure = supports_shrinking = supports_splitting = False
    supports_time_estimate = supports_window = False

    def _take(self, made: _Made) -> None:
        self._native = made.native
        self._made = made
        #: The loss of a peer, if an operation of the group has failed for it.
        self.failure: Optional[Error] = None
        self._main = self._lane_of(made.native, made.owns_native)
        self._of_callbacks: Optional[Lane] = None
        self._making = threading.Lock()
        self._coalesced: Dict[int, List[Work]] = {}  # Of the block that a thread has begun.
        self._kept: Deque[Work] = collections.deque(maxlen=_KEPT_WORKS)
        _groups[self] = None

    def _lane_of(self, native: NativeGroup, owned: bool) -> Lane:
        whole = weakref.ref(self)  # A group that is dropped ends its threads.

        def note(error: Optional[Exception]) -> None:
            group = whole()
            if group is not None and group.failure is None and isinstance(error, _LOSSES):
                group.failure = error

        lane = Lane(native, owned, self._made.timeout, note)
        # torch.distributed before 2.14 drops a group without a word, and C++ may keep one of its
        # works for ever.
        weakref.finalize(self, lane.completer.end_soon)
        return lane

    def _lane(self) -> Lane:
        """The lane of the collectives that this thread starts."""
        if not in_callback():
            return self._main
        with self._making:
            if self._of_callbacks is None:
                self._of_callbacks = self._lane_of(self._made.another("callbacks"), True)
            return self._of_callbacks

    # The life of the group.

    def _lanes(self) -> List[Lane]:
        return [lane for lane in (self._of_callbacks, self._main) if lane is not None]

    def abort(self, reason: str = "") -> None:
        for lane in self._lanes():
            lane.abort(reason if isinstance(reason, str) else "")

    def shutdown(self) -> None:
        for lane in self._lanes():
            lane.close()
        self._kept.clear()
        if not self._made.is_world:
            self._made.context.close()
        _groups.pop(self, None)

    # Names that differ by release of PyTorch.

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    # Operations.

    def _carry_out(self, calls: Calls, opts: Any = None, source: int = -1,
                   is_ordered: bool = True) -> Work:
        lane = self._lane() if is_ordered else self._main
        issued, afters = [], []
        results: List[torch.Tensor] = []
        for call in calls:
            issued.append(lane.issue(call, getattr(opts, "timeout", None)))
            afters.append(call.after)
            results += call.results
        return self._begun(Work(lane, issued, results, joined(afters), source, is_ordered), opts)

    def _begun(self, work: Work, opts: Any = None) -> Work:
        self._kept.append(work)
        block = self._coalesced.get(threading.get_ident())
        if block is not None:
            block.append(work)
        if not getattr(opts, "asyncOp", True):
            work.wait()
        return work

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        return self._carry_out(operations.send(tensors, peer, tag), is_ordered=False)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        return self._carry_out(operations.recv(tensors, peer, tag), source=peer, is_ordered=False)

    def recv_anysource(self, *_: Any) -> Work:
        raise InvalidArgument(f"the back end {NAME} cannot receive from any source: name the rank "
                              f"of the sender")

    recvAnysource = recv_anysource

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """The error of a timeout names the ranks that are missing."""
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else None
        self._lane().native.barrier(timeout=seconds or None)

    # Operations of a block are issued one by one; the library batches nothing on the CPU.

    def start_coalescing(self, *_: Any) -> None:
        self._coalesced[threading.get_ident()] = []

    def end_coalescing(self, *_: Any) -> Work:
        """The end of all operations of the block."""
        works = self._coalesced.pop(threading.get_ident(), [])
        is_ordered = all(work.is_ordered for work in works)
        results = [tensor for work in works for tensor in work.results]
        return self._begun(Work(self._lane() if is_ordered else self._main, works, results,
                                is_ordered=is_ordered))


def _collective(calls_of: Callable[..., Calls], count: int) -> Callable[..., Work]:
    def collective(self: _Operations, *arguments: Any, opts: Any = None) -> Work:
        if len(arguments) > count:
            opts = arguments[count]
        return self._carry_out(calls_of(self._native, opts, *arguments[:count]), opts)

    return collective


for _name, (_calls_of, _count) in operations.COLLECTIVES.items():
    setattr(_Operations, _name, _collective(_calls_of, _count))


class ProcessGroup(_Operations, c10d.ProcessGroup):  # type: ignore[misc]
    """A process group of torch.distributed whose only back end is regroup."""

    def __init__(self, made: _Made) -> None:
        c10d.ProcessGroup.__init__(self, made.native.rank, made.native.world_size)
        self._take(made)
        self._group_name = self._group_desc = ""

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    def _set_group_desc(self, description: str) -> None:
        self._group_desc = description

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc

    def getGroupName(self) -> str:
        return self._group_name

    def getGroupDesc(self) -> str:
        return self._group_desc

    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    @property
    def _device_types(self) -> List[torch.device]:
        return [torch.device("cpu")]

    def _get_backend(self, device: Any) -> ProcessGroup:
        return self

    get_backend = _get_backend

    def get_group_store(self) -> Any:
        return self._made.store

    def _get_sequence_number_for_group(self) -> int:
        return self._main.issued

    def _wait_for_pending_works(self) -> None:
        """Nothing is pending but what the program waits for itself."""

    def __repr__(self) -> str:
        return f"<regroup.torch: {self._native!r}>"


#: A class of Python can be one of several back ends of a group from PyTorch 2.14 on.
_base = getattr(c10d, "Backend", None)
HAS_BACKENDS = _base is not None and hasattr(_base, "supports_reconfigure")

if HAS_BACKENDS:
    class Backend(_Operations, _base):  # type: ignore[misc, valid-type]
        """The part of a process group that is for the CPU, as in "cpu:regroup,cuda:nccl"."""

        def __init__(self, made: _Made) -> None:
            _base.__init__(self, made.native.rank, made.native.world_size)
            self._take(made)


#: The groups of this process that have not been shut down, oldest first.
_groups: weakref.WeakKeyDictionary[_Operations, None] = weakref.WeakKeyDictionary()


def groups() -> List[_Operations]:
    return list(_groups)


def _innermost(store: Any) -> Any:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return store


def _world_context(opts: Any, store: Any) -> Context:
    """The context of a default group that is no round of an Elastic."""
    if opts.group_size == 1:
        return Context.create(0, 1)
    if not isinstance(store, dist.TCPStore):
        raise InvalidArgument(
            f"the back end {NAME} forms groups through a TCPStore, and the store of this group is "
            f"a {type(store).__name__}: initialise torch.distributed with init_method=\"env://\" "
            f"or \"tcp://HOST:PORT\"")
    context = Context.create(opts.group_rank, opts.group_size, store.host, store.port)
    context.use_store(Store.connect(store.host, store.port, opts.timeout.total_seconds()))
    return context


def _context_of(ranks: Sequence[int]) -> Context:
    """The context of some ranks of the default group, through whose store other groups form."""
    worlds = [group._made.context for group in groups() if group._made.is_world]
    if not worlds:
        raise InvalidArgument(f"the default process group does not have the back end {NAME}: "
                              f"initialise it with \"{NAME}\" or \"cpu:{NAME},cuda:nccl\"")
    array = (_library.c_uint32 * len(ranks))(*ranks)
    return Context(Handle("context", library.regroup_context_of_ranks,
                          worlds[-1]._handle(), array, len(ranks)))


def _create(opts: Any, _: Any = None) -> Any:
    """Called by torch.distributed for each new group, on its members."""
    name = f"torch/{opts.group_id}"  # The back ends of a group have one name.
    is_world = len(opts.global_ranks_in_group) == 0
    store = _innermost(opts.store)
    current = getattr(store, "round", None) if is_world else None
    if current is not None:
        context = current.context
    else:
        context = (_world_context(opts, store) if is_world else
                   _context_of(list(opts.global_ranks_in_group)))
    owns_native = current is None or current.group.backend != "cpu"
    if not owns_native:
        native = current.group
    else:
        native = NativeGroup.create("cpu", context, name=name,
                                    timeout=opts.timeout.total_seconds())
    made = _Made(native, owns_native, context, is_world, name, opts.timeout, opts.store)
    # A group with several back ends gets one of them here; its kind is that of the accelerator's.
    whole = getattr(opts, "process_group", None)
    alone = not HAS_BACKENDS or whole is None or whole.name() == "custom"
    return ProcessGroup(made) if alone else Backend(made)


def register() -> None:
    """Makes "regroup" known to torch.distributed. May be repeated."""
    if NAME.upper() in dist.Backend._plugins:
        return
    try:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    except TypeError:  # PyTorch before 2.1.
        dist.Backend.register_backend(NAME, _create, extended_api=True)
