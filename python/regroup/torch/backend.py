# SPDX-License-Identifier: Apache-2.0
"""The back end "regroup" of torch.distributed, for tensors on the CPU.

PyTorch 2.14 and newer find it by itself (the entry-point group ``torch.distributed.backends``);
with an older release, ``import regroup.torch`` registers it.
"""
from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import threading
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import _library
from .._calls import Handle
from .._library import library
from ..context import Context
from ..elastic import ElasticRound
from ..errors import (Closed, DeadlineExceeded, Disconnected, Error, Fenced, InvalidArgument)
from ..process_group import ProcessGroup as NativeGroup, Work as NativeWork
from ..store import Store
from ..tensors import absent
from .buffers import (NAME, Parts, counts_of, data_of, elements, flat, input_of, joined, listed,
                      operator, output_of, refused_tensor, unit_of)
from .work import NO_TIMEOUT, After, Completer, Issued, Work, in_callback

_LOSSES = (Disconnected, DeadlineExceeded, Fenced, Closed)

#: Before PyTorch 2.7 an operation in C++ does not keep its object of Python, and works no more
#: without it. C++ waits for an operation soon after it has issued it.
_KEPT_WORKS = 0 if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7) else 256


class _Lane:
    """A group of the library, whose operations are issued one at a time, by any thread."""

    def __init__(self, native: NativeGroup, owned: bool, timeout: datetime.timedelta,
                 note: Callable[[Optional[Exception]], None]) -> None:
        self.native = native
        self.note = note
        self.issued = 0
        self._owned = owned
        self._timeout = timeout
        self._issuing = threading.Lock()
        self._completer = Completer(timeout.total_seconds())

    def completer(self) -> Completer:
        return self._completer

    def issue(self, function: Callable[..., int], buffers: Tuple[Any, ...], rest: Tuple[Any, ...],
              timeout: Optional[datetime.timedelta]) -> NativeWork:
        seconds = None
        if timeout is not None and timeout > NO_TIMEOUT and timeout != self._timeout:
            seconds = timeout.total_seconds()
        try:
            with self._issuing:
                work = self.native._issue(function, buffers, rest, seconds, None, True)
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
        self._completer.close()
        if self._owned:
            self.native.close()


@dataclasses.dataclass(frozen=True)
class _Made:
    """What a group of torch.distributed was made from."""

    native: NativeGroup
    owns_native: bool
    context: Context  # Ends the native group with its round, while it lives.
    owns_context: bool
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
        self._failure: Optional[Error] = None
        self._main = self._lane_of(made.native, made.owns_native)
        self._of_callbacks: Optional[_Lane] = None
        self._making = threading.Lock()
        self._coalesced: Dict[int, List[Work]] = {}  # Of the block that a thread has begun.
        self._kept: Deque[Work] = collections.deque(maxlen=_KEPT_WORKS)
        _groups.add(self)

    def _lane_of(self, native: NativeGroup, owned: bool) -> _Lane:
        whole = weakref.ref(self)  # A group that is dropped ends its threads.

        def note(error: Optional[Exception]) -> None:
            group = whole()
            if group is not None and group._failure is None and isinstance(error, _LOSSES):
                group._failure = error

        lane = _Lane(native, owned, self._made.timeout, note)
        # torch.distributed before 2.14 drops a group without a word, and C++ may keep one of its
        # works for ever.
        weakref.finalize(self, lane.completer().end_soon)
        return lane

    def _lane(self) -> _Lane:
        """That of the collectives which this thread starts."""
        if not in_callback():
            return self._main
        with self._making:
            if self._of_callbacks is None:
                self._of_callbacks = self._lane_of(self._made.another("callbacks"), True)
            return self._of_callbacks

    # The life of the group.

    @property
    def failure(self) -> Optional[Error]:
        """The loss of a peer, if an operation of the group has failed for it."""
        return self._failure

    def _lanes(self) -> List[_Lane]:
        return [lane for lane in (self._of_callbacks, self._main) if lane is not None]

    def abort(self, reason: str = "") -> None:
        for lane in self._lanes():
            lane.abort(reason if isinstance(reason, str) else "")

    def shutdown(self) -> None:
        for lane in self._lanes():
            lane.close()
        self._kept.clear()
        if self._made.owns_context:
            self._made.context.close()
        _groups.discard(self)

    # Names that differ by release of PyTorch.

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    def _issue(self, function: Callable[..., int], buffers: Tuple[Any, ...], rest: Tuple[Any, ...],
               opts: Any = None, lane: Optional[_Lane] = None) -> NativeWork:
        types = {tensor.dtype for _, tensor in buffers if tensor is not None}
        if len(types) > 1:
            raise InvalidArgument(f"the input and the output of an operation have different types: "
                                  f"{', '.join(sorted(map(str, types)))}")
        return (lane or self._lane()).issue(function, buffers, rest, getattr(opts, "timeout", None))

    def _work(self, issued: Sequence[Issued], result: List[torch.Tensor], after: After = None,
              opts: Any = None, source: int = -1, is_ordered: bool = True) -> Work:
        lane = self._lane() if is_ordered else self._main
        work = Work(lane, issued, result, after, source, is_ordered)
        self._kept.append(work)
        block = self._coalesced.get(threading.get_ident())
        if block is not None:
            block.append(work)
        if not getattr(opts, "asyncOp", True):
            work.wait()
        return work

    # Collectives.

    def allreduce(self, tensors: Any, opts: Any = None, *_: Any) -> Work:
        given = listed(tensors)
        issued, afters = [], []
        for tensor in given:
            place, after = output_of(tensor, True)
            buffer = elements(place)
            issued.append(self._issue(library.regroup_all_reduce_with, (buffer, buffer),
                                      (operator(opts, place.dtype),), opts))
            afters.append(after)
        return self._work(issued, given, joined(afters), opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None, *_: Any) -> Work:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None, *_: Any) -> Work:
        given = listed(tensors)
        root = _root(opts)
        issued, afters = [], []
        for tensor in given:
            place, after = output_of(tensor, True)
            issued.append(self._issue(library.regroup_broadcast_with, (data_of(place),), (root,),
                                      opts))
            afters.append(after)
        return self._work(issued, given, joined(afters), opts)

    def reduce(self, tensors: Any, opts: Any = None, *_: Any) -> Work:
        given = listed(tensors)
        root = _root(opts)
        issued, afters = [], []
        for tensor in given:
            place, after = output_of(tensor, True)
            buffer = elements(place)
            issued.append(self._issue(library.regroup_reduce_with, (buffer, buffer),
                                      (operator(opts, place.dtype), root), opts))
            afters.append(after)
        return self._work(issued, given, joined(afters), opts)

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                  *_: Any) -> Work:
        if isinstance(input_tensors, torch.Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        issued, afters, result = [], [], []
        for outputs, tensor in zip(output_tensors, input_tensors):
            parts = Parts(outputs)
            issued.append(self._issue(
                library.regroup_all_gather_with, (data_of(input_of(tensor)), data_of(parts.buffer)),
                (parts.counts(),), opts))
            afters.append(parts.scatter)
            result += list(outputs)
        return self._work(issued, result, joined(afters), opts)

    def allgather_coalesced(self, output_lists: Any, input_tensors: Any, opts: Any = None,
                            *_: Any) -> Work:
        """``output_lists`` has a list for each rank, with a tensor for each input."""
        if any(len(outputs) != len(input_tensors) for outputs in output_lists):
            raise InvalidArgument(
                f"all_gather_coalesced of {len(input_tensors)} tensors needs a list of as many "
                f"outputs for each rank, and has {[len(outputs) for outputs in output_lists]}")
        return self.allgather([list(outputs) for outputs in zip(*output_lists)], input_tensors,
                              opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None,
                          *_: Any) -> Work:
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None,
                                    *_: Any) -> Work:
        issued, afters = [], []
        for output, tensor in zip(outputs, inputs):
            place, after = output_of(output)
            issued.append(self._issue(library.regroup_all_gather_with,
                                      (data_of(input_of(tensor)), data_of(place)), (None,), opts))
            afters.append(after)
        return self._work(issued, list(outputs), joined(afters), opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                       *_: Any) -> Work:
        if isinstance(output_tensors, torch.Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        issued, afters = [], []
        for output, inputs in zip(output_tensors, input_tensors):
            place, after = output_of(output)
            sizes = [tensor.numel() for tensor in inputs]
            counts = None if len(set(sizes)) == 1 else counts_of(sizes)
            issued.append(self._issue(
                library.regroup_reduce_scatter_with, (elements(flat(inputs)), elements(place)),
                (operator(opts, place.dtype), counts), opts))
            afters.append(after)
        return self._work(issued, list(output_tensors), joined(afters), opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None,
                              *_: Any) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None,
                                        *_: Any) -> Work:
        issued, afters = [], []
        for output, tensor in zip(outputs, inputs):
            place, after = output_of(output)
            issued.append(self._issue(
                library.regroup_reduce_scatter_with, (elements(input_of(tensor)), elements(place)),
                (operator(opts, place.dtype), None), opts))
            afters.append(after)
        return self._work(issued, list(outputs), joined(afters), opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, *_: Any) -> Work:
        root = _root(opts)
        tensor = data_of(input_of(listed(input_tensors)[0]))
        result: List[torch.Tensor] = []
        after: After = None
        output = absent(tensor[0]), None
        if self._native.rank == root:
            result = list(output_tensors[0])
            parts = Parts(result)
            output, after = data_of(parts.buffer), parts.scatter
        issued = self._issue(library.regroup_gather_with, (tensor, output), (root,), opts)
        return self._work([issued], result, after, opts)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None,
                      *_: Any) -> Work:
        root = _root(opts)
        tensor = data_of(input_of(input))
        after: After = None
        place: Tuple[Any, Any] = absent(tensor[0]), None
        if self._native.rank == root:
            memory, after = output_of(output)
            place = data_of(memory)
        issued = self._issue(library.regroup_gather_with, (tensor, place), (root,), opts)
        return self._work([issued], [output], after, opts)

    gather_into_tensor = gather_single

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                *_: Any) -> Work:
        root = _root(opts)
        output = listed(output_tensors)[0]
        memory, after = output_of(output)
        place = data_of(memory)
        given: Tuple[Any, Any] = absent(place[0]), None
        if self._native.rank == root:
            given = data_of(flat(input_tensors[0]))
        issued = self._issue(library.regroup_scatter_with, (given, place), (root,), opts)
        return self._work([issued], [output], after, opts)

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                 *_: Any) -> Work:
        parts = Parts(output_tensors)
        given = flat(input_tensors)
        unit = unit_of(given)
        counts = (counts_of([tensor.numel() * unit for tensor in input_tensors]),
                  counts_of([size * unit for size in parts.sizes]))
        issued = self._issue(library.regroup_all_to_all_with,
                             (data_of(given), data_of(parts.buffer)), counts, opts)
        return self._work([issued], list(output_tensors), parts.scatter, opts)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor,
                          output_split_sizes: Sequence[int], input_split_sizes: Sequence[int],
                          opts: Any = None, *_: Any) -> Work:
        place, after = output_of(output)
        given = input_of(input)
        counts: Tuple[Any, Any] = None, None
        if output_split_sizes or input_split_sizes:
            counts = (counts_of(self._rows(given, input_split_sizes)),
                      counts_of(self._rows(place, output_split_sizes)))
        issued = self._issue(library.regroup_all_to_all_with, (data_of(given), data_of(place)),
                             counts, opts)
        return self._work([issued], [output], after, opts)

    alltoall_base = all_to_all_single

    def _rows(self, tensor: torch.Tensor, sizes: Sequence[int]) -> List[int]:
        length = tensor.shape[0] if tensor.dim() else 0
        if not sizes:
            sizes = [length // self._native.world_size] * self._native.world_size
        row = tensor.numel() // length * unit_of(tensor) if length else 0
        return [size * row for size in sizes]

    def barrier(self, opts: Any = None, *_: Any) -> Work:
        return self._work([self._issue(library.regroup_barrier_with, (), (), opts)], [], None, opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """The error of a timeout names the ranks that are missing."""
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else None
        self._lane().native.barrier(timeout=seconds or None)

    # Messages.

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        given = listed(tensors)
        issued = [self._issue(library.regroup_send_with, (data_of(input_of(tensor)),), (peer, tag),
                              lane=self._main)
                  for tensor in given]
        return self._work(issued, given, is_ordered=False)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        given = listed(tensors)
        issued, afters = [], []
        for tensor in given:
            place, after = output_of(tensor)
            issued.append(self._issue(library.regroup_recv_with, (data_of(place),), (peer, tag),
                              lane=self._main))
            afters.append(after)
        return self._work(issued, given, joined(afters), source=peer, is_ordered=False)

    def recv_anysource(self, *_: Any) -> Work:
        raise InvalidArgument(f"the back end {NAME} cannot receive from any source: name the rank "
                              f"of the sender")

    recvAnysource = recv_anysource

    def allreduce_sparse(self, tensors: Any, *_: Any) -> Work:
        raise refused_tensor(listed(tensors)[0])

    # Operations of a block are issued one by one; the library batches nothing on the CPU.

    def start_coalescing(self, *_: Any) -> None:
        self._coalesced[threading.get_ident()] = []

    def end_coalescing(self, *_: Any) -> Work:
        """The end of all operations of the block."""
        works = self._coalesced.pop(threading.get_ident(), [])
        return self._work(works, [tensor for work in works for tensor in work._result],
                          is_ordered=all(work.is_ordered for work in works))


def _root(opts: Any) -> int:
    return int(getattr(opts, "rootRank", opts if isinstance(opts, int) else 0))


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

    @property
    def group_name(self) -> str:
        return self._group_name

    @property
    def group_desc(self) -> str:
        return self._group_desc

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

    def getGroupName(self) -> str:
        return self._group_name

    def getGroupDesc(self) -> str:
        return self._group_desc

    def __repr__(self) -> str:
        return f"<regroup.torch: {self._native!r}>"


#: A class of Python can be one of several back ends of a group from PyTorch 2.14 on.
_base = getattr(c10d, "Backend", None)
_HAS_BACKENDS = _base is not None and hasattr(_base, "supports_reconfigure")

if _HAS_BACKENDS:
    class Backend(_Operations, _base):  # type: ignore[misc, valid-type]
        """The part of a process group that is for the CPU, as in "cpu:regroup,cuda:nccl"."""

        def __init__(self, made: _Made) -> None:
            _base.__init__(self, made.native.rank, made.native.world_size)
            self._take(made)


#: The groups of this process that have not been shut down.
_groups: Set[_Operations] = weakref.WeakSet()  # type: ignore[assignment]
#: The context of the default group, through whose store other groups are formed.
_world: Optional[Context] = None
#: The round of an Elastic, whose group the default group uses.
_round: Optional[ElasticRound] = None


def enter_round(current: Optional[ElasticRound]) -> None:
    """The next default group uses the group of this round."""
    global _round
    _round = current


def groups() -> List[_Operations]:
    return list(_groups)


def _server(store: Any) -> Tuple[str, int]:
    """The address of the TCPStore behind ``store``."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if not isinstance(store, dist.TCPStore):
        raise InvalidArgument(
            f"the back end {NAME} forms groups through a TCPStore, and the store of this group is "
            f"a {type(store).__name__}: initialise torch.distributed with init_method=\"env://\" "
            f"or \"tcp://HOST:PORT\"")
    return store.host, store.port


def _world_context(opts: Any) -> Context:
    """The context of the default group."""
    global _world
    if _round is not None:
        _world = _round.context
    elif opts.group_size == 1:
        _world = Context.create(0, 1)
    else:
        host, port = _server(opts.store)
        _world = Context.create(opts.group_rank, opts.group_size, host, port)
        _world.use_store(Store.connect(host, port, opts.timeout.total_seconds()))
    return _world


def _of_ranks(ranks: Sequence[int]) -> Context:
    """The context of some ranks of the default group."""
    if _world is None:
        raise InvalidArgument(f"the default process group does not have the back end {NAME}: "
                              f"initialise it with \"{NAME}\" or \"cpu:{NAME},cuda:nccl\"")
    array = (_library.c_uint32 * len(ranks))(*ranks)
    return Context(Handle("context", library.regroup_context_of_ranks, _world._pointer(), array,
                          len(ranks)))


def _create(opts: Any, _: Any = None) -> Any:
    """Called by torch.distributed for each new group, on its members."""
    is_world = len(opts.global_ranks_in_group) == 0
    context = _world_context(opts) if is_world else _of_ranks(list(opts.global_ranks_in_group))
    name = f"torch/{opts.group_id}"  # The back ends of a group have one name.
    if is_world and _round is not None:
        native = _round.group
    else:
        native = NativeGroup.create("cpu", context, name=name,
                                    timeout=opts.timeout.total_seconds())
    made = _Made(native, not (is_world and _round is not None), context, not is_world, name,
                 opts.timeout, opts.store)
    # A group with several back ends gets one of them here; its kind is that of the accelerator's.
    whole = getattr(opts, "process_group", None)
    alone = not _HAS_BACKENDS or whole is None or whole.name() == "custom"
    kind = ProcessGroup if alone else Backend
    return kind(made)


def register() -> None:
    """Makes "regroup" known to torch.distributed. May be repeated."""
    if NAME.upper() in dist.Backend._plugins:
        return
    try:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    except TypeError:  # PyTorch before 2.1.
        dist.Backend.register_backend(NAME, _create, extended_api=True)
