# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks: collectives, messages, and the memory that is best for them."""
from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import weakref
from typing import Any, Callable, Deque, Iterator, List, Optional, Sequence, Tuple, Union

from . import _library, tensors
from ._calls import Borrowed, Handle, blocking, result
from ._library import CPU, check, library, unsigned
from .context import Context
from .errors import Error, InvalidArgument
from .tensors import View, view

_OPS = ("sum", "product", "min", "max", "avg", "bit_and", "bit_or", "bit_xor")


def _op(name: str) -> int:
    if name not in _OPS:
        raise InvalidArgument(f"op is {name!r}, which is none of {', '.join(_OPS)}")
    return _OPS.index(name)


def _counts(counts: Optional[Sequence[int]], world_size: int, name: str) -> Any:
    if counts is None:
        return None
    if len(counts) != world_size:
        raise InvalidArgument(f"{name} has {len(counts)} values, and the group {world_size} ranks")
    return (ctypes.c_size_t * world_size)(*(unsigned(count, name, 64) for count in counts))


class _Operation:
    """The handle of an operation, and the buffers that it uses."""

    def __init__(self, pointer: int, buffers: Any) -> None:
        self.pointer = pointer
        self.buffers = buffers
        self.owner = os.getpid()

    # Bound here, for the time when the interpreter ends and modules are empty.
    def is_own(self, process: Any = os.getpid) -> bool:
        """False in a forked child, which must leave the operations of its parent alone."""
        return bool(process() == self.owner)

    def done(self, test: Any = library.regroup_work_test, flag: Any = ctypes.c_int32,
             ref: Any = ctypes.byref) -> bool:
        done = flag()
        test(self.pointer, ref(done))
        return bool(done.value)

    def free(self, free: Any = library.regroup_work_free) -> None:
        free(self.pointer)


class Work:
    """One operation in flight. The buffers of the operation stay alive until it is complete, also
    if the program drops this object earlier. Any thread may wait for it and test it."""

    def __init__(self, operation: _Operation, group: ProcessGroup) -> None:
        self._operation = operation
        self._group = group

    def wait(self) -> None:
        """Blocks until the operation is complete, and raises its failure. Any number of times."""
        blocking(library.regroup_work_wait, self._operation.pointer)

    def test(self) -> bool:
        """Whether ``wait`` would return at once."""
        return self._operation.done()

    def __del__(self) -> None:
        if not self._operation.is_own():
            return
        if self._operation.done():
            self._operation.free()
        else:
            self._group._dropped.append(self._operation)  # The group frees it later.


class ProcessGroup:
    """The ranks of a round, or some of them.

    Every rank issues the same collectives in the same order, from one thread. Operations use
    buffers in place: leave them alone until the operation is complete. With ``async_op=True`` an
    operation is only started, and returns a ``Work``; otherwise it is complete, and returns None.
    ``timeout`` is in seconds. ``stream`` is a cudaStream_t as a number.
    """

    backend: str
    rank: int  #: 2^32 - 1 on a rank that is not in the group.
    world_size: int
    device: Tuple[str, int]  #: Where buffers must lie: ("cpu", 0), ("cuda", 1).

    def __init__(self, handle: Union[Handle, Borrowed]) -> None:
        #: Operations in flight whose Work the program has dropped.
        self._dropped: Deque[_Operation] = collections.deque()
        self._handle = handle
        self._batch: Optional[List[Work]] = None
        #: The objects made from this group. In an elastic loop they must not outlive it.
        self._children: weakref.WeakSet[Any] = weakref.WeakSet()
        info = result(library.regroup_group_get, self._handle())
        self.backend = info.backend.decode()
        self.rank, self.world_size = info.rank, info.world_size
        self.device = ("cpu" if info.device_kind == CPU else "cuda", info.device_index)

    @classmethod
    def create(cls, backend: str = "cpu", context: Optional[Context] = None, *,
               name: Optional[str] = None, timeout: Optional[float] = None,
               device: Optional[int] = None) -> ProcessGroup:
        """Forms the group of all ranks; blocks until every rank has called it.

        ``backend`` is "cpu" or "nccl". Without a context it is that of the environment. Groups that
        are formed at the same time need different names. ``timeout``, in seconds, limits forming
        and each operation; without one, it is 30 minutes. ``device`` is the GPU of "nccl".
        """
        context = context or Context.from_environment()
        return cls(Handle("group", library.regroup_group_create, context._handle(),
                          _library.text(backend, "backend"), _library.optional_text(name, "name"),
                          _library.milliseconds(timeout),
                          _library.ANY_DEVICE if device is None else device))

    def new_group(self, ranks: Sequence[int], name: str = "") -> ProcessGroup:
        """Forms the group of some of these ranks; called by all of them. A rank that is not among
        them gets a group that refuses every operation."""
        array = (ctypes.c_uint32 * len(ranks))(*(unsigned(rank, "a rank") for rank in ranks))
        group = ProcessGroup(Handle("group", library.regroup_group_new_group, self._handle(),
                                    array, len(array), _library.text(name, "name")))
        self._children.add(group)
        return group

    def abort(self, reason: str = "") -> None:
        """Ends blocked and future operations as Fenced. Any thread."""
        check(library.regroup_group_abort(self._handle(), _library.text(reason, "reason") or None))

    def use_stream(self, stream: int) -> None:
        """"nccl": puts later operations into this cudaStream_t."""
        check(library.regroup_group_use_stream(self._handle(), stream))

    def allocate(self, size: int) -> Any:
        """Zeroed memory of so many bytes that operations of the group access fastest; called by
        every rank. It may outlive the group.

        On the CPU it is a memoryview: ``numpy.frombuffer(memory, "float32")``, ``memory.cast("f")``
        and ``torch.frombuffer`` use it in place. On a GPU it has CUDA's array interface.
        """
        handle, data = _allocate(self._handle(), unsigned(size, "size", 64))
        if self.device[0] == "cuda":
            return GpuMemory(handle, data, size)
        array = (ctypes.c_ubyte * size).from_address(data)
        array.handle = handle  # type: ignore[attr-defined]
        return memoryview(array).cast("B")

    def close(self) -> None:
        """Leaves the group, in order if no operation is in flight; closes what was made from it."""
        for child in list(self._children):
            child.close()
        self._free_complete()
        if self._dropped:
            with contextlib.suppress(Error):
                self.abort("the group was closed with operations in flight")
        while self._dropped:
            with contextlib.suppress(Error):
                blocking(library.regroup_work_wait, self._dropped[0].pointer)
            self._dropped.popleft().free()
        self._handle.free()

    def __del__(self) -> None:
        if self._dropped and self._dropped[0].is_own():
            self.close()  # Their buffers are in use until they have ended.

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<regroup.ProcessGroup: {self.backend}, rank {self.rank} of {self.world_size}>"

    # Operations.

    def all_reduce(self, tensor: Any, op: str = "sum", *, output: Any = None,
                   timeout: Optional[float] = None, stream: Optional[int] = None,
                   async_op: bool = False) -> Optional[Work]:
        """In place, or into ``output``, which does not overlap ``tensor``."""
        given = view(tensor, "tensor", output is None)
        result = given if output is None else view(output, "output", True)
        return self._issue(library.regroup_all_reduce_with, (given, result), (_op(op),), timeout,
                           stream, async_op)

    def reduce(self, tensor: Any, root: int = 0, op: str = "sum", *, output: Any = None,
               timeout: Optional[float] = None, stream: Optional[int] = None,
               async_op: bool = False) -> Optional[Work]:
        """The result is on ``root`` alone; the ``output`` of other ranks is ignored."""
        given = view(tensor, "tensor", output is None and self.rank == root)
        result = given if output is None else view(output, "output", self.rank == root)
        return self._issue(library.regroup_reduce_with, (given, result),
                           (_op(op), unsigned(root, "root")), timeout, stream, async_op)

    def reduce_scatter(self, input: Any, output: Any, op: str = "sum", *,
                       counts: Optional[Sequence[int]] = None, timeout: Optional[float] = None,
                       stream: Optional[int] = None, async_op: bool = False) -> Optional[Work]:
        """``input`` = [world_size, elements of output]; with ``counts``, row i has so many."""
        return self._issue(library.regroup_reduce_scatter_with,
                           (view(input, "input"), view(output, "output", True)),
                           (_op(op), _counts(counts, self.world_size, "counts")), timeout, stream,
                           async_op)

    def broadcast(self, tensor: Any, root: int = 0, *, timeout: Optional[float] = None,
                  stream: Optional[int] = None, async_op: bool = False) -> Optional[Work]:
        return self._issue(library.regroup_broadcast_with,
                           (view(tensor, "tensor", self.rank != root),),
                           (unsigned(root, "root"),), timeout, stream, async_op)

    def all_gather(self, input: Any, output: Any, *, counts: Optional[Sequence[int]] = None,
                   timeout: Optional[float] = None, stream: Optional[int] = None,
                   async_op: bool = False) -> Optional[Work]:
        """``output`` = [world_size, elements of input]; with ``counts``, row i has so many."""
        return self._issue(library.regroup_all_gather_with,
                           (view(input, "input"), view(output, "output", True)),
                           (_counts(counts, self.world_size, "counts"),), timeout, stream,
                           async_op)

    def gather(self, input: Any, output: Any = None, root: int = 0, *,
               timeout: Optional[float] = None, stream: Optional[int] = None,
               async_op: bool = False) -> Optional[Work]:
        """``output`` = [world_size, elements of input] on ``root``; ignored on other ranks."""
        given = view(input, "input")
        result = _rooted(output, "output", self.rank == root, given, True)
        return self._issue(library.regroup_gather_with, (given, result),
                           (unsigned(root, "root"),), timeout, stream, async_op)

    def scatter(self, input: Any, output: Any, root: int = 0, *, timeout: Optional[float] = None,
                stream: Optional[int] = None, async_op: bool = False) -> Optional[Work]:
        """``input`` = [world_size, elements of output] on ``root``; ignored on other ranks."""
        result = view(output, "output", True)
        given = _rooted(input, "input", self.rank == root, result, False)
        return self._issue(library.regroup_scatter_with, (given, result),
                           (unsigned(root, "root"),), timeout, stream, async_op)

    def all_to_all(self, input: Any, output: Any, *, input_counts: Optional[Sequence[int]] = None,
                   output_counts: Optional[Sequence[int]] = None, timeout: Optional[float] = None,
                   stream: Optional[int] = None, async_op: bool = False) -> Optional[Work]:
        """Both [world_size, n]; with counts, row i has so many elements."""
        return self._issue(library.regroup_all_to_all_with,
                           (view(input, "input"), view(output, "output", True)),
                           (_counts(input_counts, self.world_size, "input_counts"),
                            _counts(output_counts, self.world_size, "output_counts")), timeout,
                           stream, async_op)

    def barrier(self, *, timeout: Optional[float] = None, stream: Optional[int] = None,
                async_op: bool = False) -> Optional[Work]:
        return self._issue(library.regroup_barrier_with, (), (), timeout, stream, async_op)

    def send(self, tensor: Any, peer: int, tag: int = 0, *, timeout: Optional[float] = None,
             stream: Optional[int] = None, async_op: bool = False) -> Optional[Work]:
        return self._issue(library.regroup_send_with, (view(tensor, "tensor"),),
                           (unsigned(peer, "peer"), unsigned(tag, "tag")), timeout, stream,
                           async_op)

    def recv(self, tensor: Any, peer: int, tag: int = 0, *, timeout: Optional[float] = None,
             stream: Optional[int] = None, async_op: bool = False) -> Optional[Work]:
        return self._issue(library.regroup_recv_with, (view(tensor, "tensor", True),),
                           (unsigned(peer, "peer"), unsigned(tag, "tag")), timeout, stream,
                           async_op)

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Operations in the block are started together, at its end, which waits for them. Those
        with ``async_op=True`` are left to the caller to wait for."""
        if self._batch is not None:
            raise InvalidArgument("a batch of this group has begun; batches cannot be nested")
        handle = Handle("batch", library.regroup_batch_begin, self._handle())
        self._children.add(handle)
        awaited: List[Work] = []
        self._batch = awaited
        try:
            yield
            check(library.regroup_batch_start(handle()))
        finally:
            self._batch = None
            handle.free()  # Aborts the group if the batch was not started.
        for work in awaited:
            work.wait()

    def _free_complete(self) -> None:
        for _ in range(len(self._dropped)):
            operation = self._dropped.popleft()
            if operation.done():
                operation.free()
            else:
                self._dropped.append(operation)

    def _issue(self, function: Callable[..., int], buffers: Tuple[View, ...], rest: Tuple[Any, ...],
               timeout: Optional[float], stream: Optional[int], async_op: bool) -> Optional[Work]:
        options = None
        if timeout is not None or stream is not None:
            options = ctypes.byref(_library.OperationOptions(
                ctypes.sizeof(_library.OperationOptions), _library.milliseconds(timeout),
                0 if stream is None else 1, stream))
        if self._dropped:
            self._free_complete()
        arguments = (self._handle(), *(tensor for tensor, _ in buffers), *rest, options)
        if not async_op and self._batch is None:
            blocking(function, *arguments, None)
            return None
        pointer = ctypes.c_void_p()
        check(function(*arguments, ctypes.byref(pointer)))
        assert pointer.value is not None
        work = Work(_Operation(pointer.value, [keeper for _, keeper in buffers]), self)
        if not async_op and self._batch is not None:
            self._batch.append(work)
            return None
        return work


def _rooted(value: Any, name: str, is_root: bool, like: View, writable: bool) -> View:
    if is_root:
        return view(value, name, writable)
    return tensors.absent(like[0]), None


def _allocate(group: int, size: int) -> Tuple[Handle, int]:
    data = ctypes.c_void_p()

    def create(memory: Any) -> int:
        return int(library.regroup_group_allocate(group, size, memory, ctypes.byref(data)))

    handle = Handle("memory", create)
    return handle, data.value or 0


class GpuMemory:
    """Memory of a GPU, for what takes CUDA's array interface: ``torch.as_tensor(memory,
    device="cuda")``, ``cupy.asarray(memory)``."""

    def __init__(self, handle: Handle, address: int, size: int) -> None:
        self._handle = handle
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1",
                                         "data": (address, False), "version": 3}
