# SPDX-License-Identifier: Apache-2.0
"""The back end "regroup" of torch.distributed, for tensors on the CPU.

PyTorch 2.14 and newer find it by itself (the entry-point group ``torch.distributed.backends``);
with an older release, ``import regroup.torch`` registers it.
"""
from __future__ import annotations

import collections
import contextlib
import datetime
import queue
import threading
import time
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.autograd import Variable

from .. import _library
from .._calls import Handle
from .._library import CPU, Tensor, library
from ..context import Context
from ..elastic import ElasticRound
from ..errors import (Closed, DeadlineExceeded, Disconnected, Error, Fenced, InvalidArgument)
from ..process_group import ProcessGroup as NativeGroup, Work as NativeWork
from ..store import Store
from ..tensors import DTYPES, absent

NAME = "regroup"
_LOSSES = (Disconnected, DeadlineExceeded, Fenced, Closed)
_NO_TIMEOUT = datetime.timedelta(0)
_NUMBERS: Dict[torch.dtype, int] = {
    getattr(torch, name): number for name, number in DTYPES.items() if hasattr(torch, name)}
_UINT8 = DTYPES["uint8"]
_OPS = {"SUM": 0, "PRODUCT": 1, "MIN": 2, "MAX": 3, "AVG": 4, "BAND": 5, "BOR": 6, "BXOR": 7}
#: What stands for a sum of truth values, which are bytes.
_OPS_OF_BOOL = {"SUM": 3, "MAX": 3, "BOR": 3, "MIN": 2, "PRODUCT": 2, "BAND": 2, "BXOR": 7}

#: Before PyTorch 2.7 an operation in C++ does not keep its object of Python, and works no more
#: without it. C++ waits for an operation soon after it has issued it.
_KEPT_WORKS = 0 if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7) else 256

#: Copies results to where the caller wants them.
After = Optional[Callable[[], object]]


class _Work(c10d.Work):  # type: ignore[misc]
    """One operation of PyTorch: operations of the group, and what is done after them."""

    def __init__(self, group: _Operations, issued: Sequence[NativeWork], result: List[torch.Tensor],
                 after: After = None, source: int = -1) -> None:
        super().__init__()
        self._group = group
        self._issued = issued
        self._result = result
        self._after = after
        self._source = source
        self._lock = threading.Lock()
        self._done = not issued
        self._error: Optional[Exception] = None
        self._future: Any = None

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        if not self._done:
            if timeout > _NO_TIMEOUT:
                self._wait_until(time.monotonic() + timeout.total_seconds(), timeout)
            self._end()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        if not self._done and all(work.test() for work in self._issued):
            self._end()
        return self._done

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

    def _end(self) -> None:
        """Waits for the operations. Any thread; the first one does the rest."""
        error: Optional[Exception] = None
        try:
            for work in self._issued:
                work.wait()
        except Error as raised:
            error = raised.with_traceback(None)
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
            self._group.note(error)
            self._issued, self._after = (), None
            self._done = True
            future = self._future
        if future is not None:
            future.set_result(None)


class _Watcher:
    """The thread that completes futures while the program computes."""

    def __init__(self) -> None:
        self._works: queue.SimpleQueue[Optional[_Work]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="regroup-futures", daemon=True)
        self._thread.start()

    def add(self, work: Optional[_Work]) -> None:
        """None ends the thread."""
        self._works.put(work)

    def close(self) -> None:
        self.add(None)
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            work = self._works.get()
            if work is None:
                return
            with contextlib.suppress(Exception):  # wait() of the program raises it.
                work.wait()
            del work  # Not until the next one: it holds tensors.


def _one(tensors: Any) -> List[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _refuse_tensor(tensor: torch.Tensor) -> InvalidArgument:
    if tensor.layout != torch.strided:
        return InvalidArgument(f"the back end {NAME} has no operations for tensors of layout "
                               f"{tensor.layout}: give tensor.to_dense(), and build layers such as "
                               f"Embedding with sparse=False")
    return InvalidArgument(f"the back end {NAME} is for tensors on the CPU, and this one is on "
                           f"{tensor.device}: with PyTorch 2.14 or newer, initialise the process "
                           f"group with \"cpu:{NAME},cuda:nccl\"")


def _checked(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cpu or tensor.layout != torch.strided:
        raise _refuse_tensor(tensor)
    return tensor


def _input(tensor: torch.Tensor) -> torch.Tensor:
    return _checked(tensor).detach().contiguous()


def _output(tensor: torch.Tensor, reads: bool = False) -> Tuple[torch.Tensor, After]:
    """Contiguous memory for a result, and what copies it into ``tensor``."""
    tensor = _checked(tensor).detach()
    if tensor.is_contiguous():
        return tensor, None
    place = (tensor.contiguous() if reads else
             torch.empty(tensor.shape, dtype=tensor.dtype))
    return place, lambda: tensor.copy_(place)


def _elements(tensor: torch.Tensor) -> Tuple[Tensor, Any]:
    """For reductions."""
    number = _NUMBERS.get(tensor.dtype)
    if number is None:
        if tensor.dtype != torch.bool:
            raise InvalidArgument(f"the back end {NAME} reduces no tensors of type {tensor.dtype}; "
                                  f"it has {', '.join(DTYPES)} and bool")
        number = _UINT8
    return Tensor(tensor.data_ptr(), tensor.numel(), number, CPU, 0), tensor


def _bytes(tensor: torch.Tensor) -> Tuple[Tensor, Any]:
    """For what only moves data: any type."""
    number = _NUMBERS.get(tensor.dtype)
    if number is not None:
        return Tensor(tensor.data_ptr(), tensor.numel(), number, CPU, 0), tensor
    return (Tensor(tensor.data_ptr(), tensor.numel() * tensor.element_size(), _UINT8, CPU, 0),
            tensor)


def _unit(tensor: torch.Tensor) -> int:
    """Elements of ``_bytes`` for each element of the tensor."""
    return 1 if tensor.dtype in _NUMBERS else tensor.element_size()


def _operator(opts: Any, dtype: torch.dtype) -> int:
    given = getattr(opts, "reduceOp", opts)
    given = getattr(given, "op", given)
    name = "SUM" if given is None else getattr(given, "name", str(given))
    known = _OPS_OF_BOOL if dtype == torch.bool else _OPS
    if name not in known:
        raise InvalidArgument(f"the back end {NAME} has no reduction {name} for {dtype}; it has "
                              f"{', '.join(known)}")
    return known[name]


def _joined(afters: Sequence[After]) -> After:
    real = [after for after in afters if after is not None]
    if len(real) < 2:
        return real[0] if real else None
    return lambda: [after() for after in real]


def _counts(values: Sequence[int]) -> Any:
    return (_library.c_size_t * len(values))(*values)


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([_input(tensor).reshape(-1) for tensor in tensors])


class _Parts:
    """Results of all ranks in one buffer, which are copied into their tensors."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = [_checked(tensor).detach() for tensor in tensors]
        self.sizes = [tensor.numel() for tensor in self.tensors]
        self.buffer = torch.empty(sum(self.sizes), dtype=self.tensors[0].dtype)

    def counts(self) -> Any:
        """None where the rows are equally long."""
        if len(set(self.sizes)) == 1:
            return None
        return _counts([size * _unit(self.buffer) for size in self.sizes])

    def scatter(self) -> None:
        for tensor, part in zip(self.tensors, self.buffer.split(self.sizes)):
            tensor.copy_(part.view(tensor.shape))


class _Operations:
    """The operations of torch.distributed on a group of the library."""

    supports_coalescing = supports_reconfigure = supports_shrinking = supports_splitting = False
    supports_time_estimate = supports_window = False

    def _take(self, native: NativeGroup, context: Optional[Context], owned: bool,
              timeout: datetime.timedelta) -> None:
        self._native = native
        self._context = context  # Ends the group with its round, while it lives.
        self._owned = owned
        self._timeout = timeout
        self._issuing = threading.Lock()
        self._watcher: Optional[_Watcher] = None
        self._failure: Optional[Error] = None
        self._kept: Deque[_Work] = collections.deque(maxlen=_KEPT_WORKS)
        _groups.add(self)

    # The life of the group.

    @property
    def failure(self) -> Optional[Error]:
        """The loss of a peer, if an operation of the group has failed for it."""
        return self._failure

    def note(self, error: Optional[Exception]) -> None:
        if self._failure is None and isinstance(error, _LOSSES):
            self._failure = error

    def watch(self, work: _Work) -> None:
        with self._issuing:
            if self._watcher is None:
                self._watcher = _Watcher()
                # Where torch.distributed drops a group without a word, as before PyTorch 2.14.
                weakref.finalize(self, self._watcher.add, None)
            self._watcher.add(work)

    def abort(self, reason: str = "") -> None:
        with contextlib.suppress(Error):  # The group may be closed.
            self._native.abort(reason if isinstance(reason, str) else "")

    def shutdown(self) -> None:
        with self._issuing:
            watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.close()
        self._kept.clear()
        if self._owned:
            self._native.close()
        if self._context is not None:
            self._context.close()
        _groups.discard(self)

    # Names that differ by release of PyTorch.

    def getBackendName(self) -> str:
        return NAME

    def name(self) -> str:
        return NAME

    def _issue(self, function: Callable[..., int], buffers: Tuple[Any, ...], rest: Tuple[Any, ...],
               opts: Any = None) -> NativeWork:
        timeout = getattr(opts, "timeout", None)
        seconds = None
        if timeout is not None and timeout > _NO_TIMEOUT and timeout != self._timeout:
            seconds = timeout.total_seconds()
        try:
            with self._issuing:
                work = self._native._issue(function, buffers, rest, seconds, None, True)
        except Error as error:
            self.note(error)
            raise
        assert work is not None
        return work

    def _work(self, issued: Sequence[NativeWork], result: List[torch.Tensor], after: After = None,
              opts: Any = None, source: int = -1) -> _Work:
        work = _Work(self, issued, result, after, source)
        self._kept.append(work)
        if not getattr(opts, "asyncOp", True):
            work.wait()
        return work

    # Collectives.

    def allreduce(self, tensors: Any, opts: Any = None, *_: Any) -> _Work:
        given = _one(tensors)
        issued, afters = [], []
        for tensor in given:
            place, after = _output(tensor, True)
            buffer = _elements(place)
            issued.append(self._issue(library.regroup_all_reduce_with, (buffer, buffer),
                                      (_operator(opts, place.dtype),), opts))
            afters.append(after)
        return self._work(issued, given, _joined(afters), opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None, *_: Any) -> _Work:
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None, *_: Any) -> _Work:
        given = _one(tensors)
        root = _root(opts)
        issued, afters = [], []
        for tensor in given:
            place, after = _output(tensor, True)
            issued.append(self._issue(library.regroup_broadcast_with, (_bytes(place),), (root,),
                                      opts))
            afters.append(after)
        return self._work(issued, given, _joined(afters), opts)

    def reduce(self, tensors: Any, opts: Any = None, *_: Any) -> _Work:
        given = _one(tensors)
        root = _root(opts)
        issued, afters = [], []
        for tensor in given:
            place, after = _output(tensor, True)
            buffer = _elements(place)
            issued.append(self._issue(library.regroup_reduce_with, (buffer, buffer),
                                      (_operator(opts, place.dtype), root), opts))
            afters.append(after)
        return self._work(issued, given, _joined(afters), opts)

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                  *_: Any) -> _Work:
        if isinstance(input_tensors, torch.Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        issued, afters, result = [], [], []
        for outputs, tensor in zip(output_tensors, input_tensors):
            parts = _Parts(outputs)
            issued.append(self._issue(
                library.regroup_all_gather_with, (_bytes(_input(tensor)), _bytes(parts.buffer)),
                (parts.counts(),), opts))
            afters.append(parts.scatter)
            result += list(outputs)
        return self._work(issued, result, _joined(afters), opts)

    allgather_coalesced = allgather

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None,
                          *_: Any) -> _Work:
        return self.all_gather_single_coalesced([output], [input], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None,
                                    *_: Any) -> _Work:
        issued, afters = [], []
        for output, tensor in zip(outputs, inputs):
            place, after = _output(output)
            issued.append(self._issue(library.regroup_all_gather_with,
                                      (_bytes(_input(tensor)), _bytes(place)), (None,), opts))
            afters.append(after)
        return self._work(issued, list(outputs), _joined(afters), opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                       *_: Any) -> _Work:
        if isinstance(output_tensors, torch.Tensor):
            output_tensors, input_tensors = [output_tensors], [input_tensors]
        issued, afters = [], []
        for output, inputs in zip(output_tensors, input_tensors):
            place, after = _output(output)
            sizes = [tensor.numel() for tensor in inputs]
            counts = None if len(set(sizes)) == 1 else _counts(sizes)
            issued.append(self._issue(
                library.regroup_reduce_scatter_with, (_elements(_flat(inputs)), _elements(place)),
                (_operator(opts, place.dtype), counts), opts))
            afters.append(after)
        return self._work(issued, list(output_tensors), _joined(afters), opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None,
                              *_: Any) -> _Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None,
                                        *_: Any) -> _Work:
        issued, afters = [], []
        for output, tensor in zip(outputs, inputs):
            place, after = _output(output)
            issued.append(self._issue(
                library.regroup_reduce_scatter_with, (_elements(_input(tensor)), _elements(place)),
                (_operator(opts, place.dtype), None), opts))
            afters.append(after)
        return self._work(issued, list(outputs), _joined(afters), opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, *_: Any) -> _Work:
        root = _root(opts)
        tensor = _bytes(_input(_one(input_tensors)[0]))
        result: List[torch.Tensor] = []
        after: After = None
        output = absent(tensor[0]), None
        if self._native.rank == root:
            result = list(output_tensors[0])
            parts = _Parts(result)
            output, after = _bytes(parts.buffer), parts.scatter
        issued = self._issue(library.regroup_gather_with, (tensor, output), (root,), opts)
        return self._work([issued], result, after, opts)

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None,
                      *_: Any) -> _Work:
        root = _root(opts)
        tensor = _bytes(_input(input))
        after: After = None
        place: Tuple[Any, Any] = absent(tensor[0]), None
        if self._native.rank == root:
            memory, after = _output(output)
            place = _bytes(memory)
        issued = self._issue(library.regroup_gather_with, (tensor, place), (root,), opts)
        return self._work([issued], [output], after, opts)

    gather_into_tensor = gather_single

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                *_: Any) -> _Work:
        root = _root(opts)
        output = _one(output_tensors)[0]
        memory, after = _output(output)
        place = _bytes(memory)
        given: Tuple[Any, Any] = absent(place[0]), None
        if self._native.rank == root:
            given = _bytes(_flat(input_tensors[0]))
        issued = self._issue(library.regroup_scatter_with, (given, place), (root,), opts)
        return self._work([issued], [output], after, opts)

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None,
                 *_: Any) -> _Work:
        parts = _Parts(output_tensors)
        given = _flat(input_tensors)
        unit = _unit(given)
        counts = (_counts([tensor.numel() * unit for tensor in input_tensors]),
                  _counts([size * unit for size in parts.sizes]))
        issued = self._issue(library.regroup_all_to_all_with,
                             (_bytes(given), _bytes(parts.buffer)), counts, opts)
        return self._work([issued], list(output_tensors), parts.scatter, opts)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor,
                          output_split_sizes: Sequence[int], input_split_sizes: Sequence[int],
                          opts: Any = None, *_: Any) -> _Work:
        place, after = _output(output)
        given = _input(input)
        counts: Tuple[Any, Any] = None, None
        if output_split_sizes or input_split_sizes:
            counts = (_counts(self._rows(given, input_split_sizes)),
                      _counts(self._rows(place, output_split_sizes)))
        issued = self._issue(library.regroup_all_to_all_with, (_bytes(given), _bytes(place)),
                             counts, opts)
        return self._work([issued], [output], after, opts)

    alltoall_base = all_to_all_single

    def _rows(self, tensor: torch.Tensor, sizes: Sequence[int]) -> List[int]:
        length = tensor.shape[0] if tensor.dim() else 0
        if not sizes:
            sizes = [length // self._native.world_size] * self._native.world_size
        row = tensor.numel() // length * _unit(tensor) if length else 0
        return [size * row for size in sizes]

    def barrier(self, opts: Any = None, *_: Any) -> _Work:
        return self._work([self._issue(library.regroup_barrier_with, (), (), opts)], [], None, opts)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """The error of a timeout names the ranks that are missing."""
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else None
        self._native.barrier(timeout=seconds or None)

    # Messages.

    def send(self, tensors: Any, peer: int, tag: int = 0) -> _Work:
        given = _one(tensors)
        issued = [self._issue(library.regroup_send_with, (_bytes(_input(tensor)),), (peer, tag))
                  for tensor in given]
        return self._work(issued, given)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> _Work:
        given = _one(tensors)
        issued, afters = [], []
        for tensor in given:
            place, after = _output(tensor)
            issued.append(self._issue(library.regroup_recv_with, (_bytes(place),), (peer, tag)))
            afters.append(after)
        return self._work(issued, given, _joined(afters), source=peer)

    def recv_anysource(self, *_: Any) -> _Work:
        raise InvalidArgument(f"the back end {NAME} cannot receive from any source: name the rank "
                              f"of the sender")

    recvAnysource = recv_anysource

    def allreduce_sparse(self, tensors: Any, *_: Any) -> _Work:
        raise _refuse_tensor(_one(tensors)[0])

    # Operations of a block are issued one by one; the library batches nothing on the CPU.

    def start_coalescing(self, *_: Any) -> None:
        pass

    def end_coalescing(self, *_: Any) -> _Work:
        return _Work(self, (), [])


def _root(opts: Any) -> int:
    return int(getattr(opts, "rootRank", opts if isinstance(opts, int) else 0))


class ProcessGroup(_Operations, c10d.ProcessGroup):  # type: ignore[misc]
    """A process group of torch.distributed whose only back end is regroup."""

    def __init__(self, native: NativeGroup, context: Optional[Context], owned: bool,
                 timeout: datetime.timedelta) -> None:
        c10d.ProcessGroup.__init__(self, native.rank, native.world_size)
        self._take(native, context, owned, timeout)
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

    def _get_backend(self, device: Any) -> ProcessGroup:
        return self

    get_backend = _get_backend

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

        def __init__(self, native: NativeGroup, context: Optional[Context], owned: bool,
                     timeout: datetime.timedelta) -> None:
            _base.__init__(self, native.rank, native.world_size)
            self._take(native, context, owned, timeout)


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
    if is_world and _round is not None:
        native, owned = _round.group, False
    else:
        # The back ends of a group have one name.
        native = NativeGroup.create("cpu", context, name=f"torch/{opts.group_id}",
                                    timeout=opts.timeout.total_seconds())
        owned = True
    # A group with several back ends gets one of them here; its kind is that of the accelerator's.
    whole = getattr(opts, "process_group", None)
    alone = not _HAS_BACKENDS or whole is None or whole.name() == "custom"
    kind = ProcessGroup if alone else Backend
    return kind(native, None if is_world else context, owned, opts.timeout)


def register() -> None:
    """Makes "regroup" known to torch.distributed. May be repeated."""
    if NAME.upper() in dist.Backend._plugins:
        return
    try:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    except TypeError:  # PyTorch before 2.1.
        dist.Backend.register_backend(NAME, _create, extended_api=True)
