# SPDX-License-Identifier: Apache-2.0
"""Tells the agent which collectives the groups of torch.distributed are in.

PyTorch 2.14 and newer have hooks around each operation of a group, also for those of
DistributedDataParallel and FSDP. This module registers them with every group that torch.distributed
makes. It does not import torch: a program that does not use it pays nothing. Groups whose back end
tells its collectives itself are left out.

A thread looks four times a second which collectives have ended, and keeps an operation, with its
tensors, until then. A callback of the operation's future would be more exact. But the thread that
completes the operation would then wait for the interpreter's lock, and a process that ends with an
operation under way would abort.

Nothing here raises into the program, and nothing runs in forked children.
"""
from __future__ import annotations

import atexit
import collections
import functools
import hashlib
import importlib.machinery
import os
import sys
import threading
import weakref
from typing import Any, Callable, Deque, Dict, Iterable, List, Optional, Tuple

from ._calls import result
from ._library import library, that_keeps_the_lock
from .tensors import DTYPES

_MODULE = "torch.distributed.distributed_c10d"
_INTERVAL_S = 0.25
#: Operations of a group that are looked after at once. Beyond that, the oldest are forgotten.
_PENDING_MAX = 256
#: The back ends of which any thread may ask whether an operation has ended.
_CAN_BE_ASKED = frozenset(("gloo",))
_HOOK = 0x7265_6772_6F75_7000  # A number that no other hook has.

# The numbers of the operations in regroup/c_api.h.
_OPERATIONS = {"ALLREDUCE": 0, "REDUCE": 1, "BROADCAST": 2, "ALLGATHER": 3, "REDUCE_SCATTER": 4,
               "ALLTOALL": 5, "GATHER": 6, "SCATTER": 7, "BARRIER": 8, "SEND": 9, "RECV": 10}
_LAST_WITH_EQUAL_ARGUMENTS = 2
_REDUCE_SCATTER, _BARRIER, _SEND, _NONE = 4, 8, 9, 99
_ENDS_UNKNOWN, _ENDS_LOOKED_FOR = 0, 2

_entered = that_keeps_the_lock("watched_group_entered")
_completed = that_keeps_the_lock("watched_group_completed")
_looked = that_keeps_the_lock("watched_group_looked")
_message_entered = that_keeps_the_lock("watched_group_message_entered")
_message_completed = that_keeps_the_lock("watched_group_message_completed")

_is_started = False
#: By name. The hooks own them, so that a group that is gone is no longer watched.
_groups: "weakref.WeakValueDictionary[str, _Group]" = weakref.WeakValueDictionary()
_lock = threading.Lock()
_thread: Optional[threading.Thread] = None  # Guarded by _lock.
_stop = threading.Event()
#: In a forked child, the groups of its parent: to release their operations would end connections.
_kept: List["_Group"] = []


def start() -> None:
    """Watches the groups of this process from now on, if it has an agent. May be repeated."""
    global _is_started
    if _is_started or not os.environ.get("REGROUP_COLLECTIVES"):
        return
    _is_started = True
    module = sys.modules.get(_MODULE)
    if module is None:
        sys.meta_path.insert(0, _WhenImported())  # type: ignore[arg-type]
    else:
        _quietly(_install)(module)


class _WhenImported:
    """A finder of modules that waits for torch.distributed."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_install(module: Any) -> None:
                execute(module)
                _quietly(_install)(module)

            loader.exec_module = execute_and_install
        return spec


def _quietly(function: Callable[..., None]) -> Callable[..., None]:
    """PyTorch's internals may change. Then nothing is watched, and the program goes on."""

    def call(*arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception:
            pass

    return call


def _install(c10d: Any) -> None:
    if not hasattr(c10d.ProcessGroup, "register_pre_hook"):
        return
    watch, end = _quietly(_watch), _quietly(_end_group)
    make, register = c10d._new_process_group_helper, c10d._register_pg_in_world
    unregister, unregister_all = c10d._unregister_process_group, c10d._unregister_all_process_groups

    # The first makes groups and sub-groups, the second registers those that are made in other ways.
    @functools.wraps(make)
    def make_watched(size: Any, rank: Any, ranks: Any, *others: Any, **named: Any) -> Any:
        made = make(size, rank, ranks, *others, **named)
        watch(made[0], ranks)
        return made

    @functools.wraps(register)
    def register_watched(group: Any, *others: Any, **named: Any) -> Any:
        result = register(group, *others, **named)
        if named.get("rank_mapping") is not None:
            watch(group, named["rank_mapping"])
        return result

    def unregister_watched(name: Any) -> Any:
        end(str(name))
        return unregister(name)

    def unregister_all_watched() -> Any:
        for name in list(_groups.keys()):
            end(name)
        return unregister_all()

    c10d._new_process_group_helper = make_watched
    c10d._register_pg_in_world = register_watched
    c10d._unregister_process_group = unregister_watched
    c10d._unregister_all_process_groups = unregister_all_watched
    os.register_at_fork(after_in_child=_forget)
    atexit.register(_end)
    for group in list(c10d._world.pg_map):
        watch(group, c10d._world.pg_group_ranks.get(group, ()))


class _PyTorch:
    """The parts of PyTorch that are used, when it has been imported as a whole."""

    def __init__(self) -> None:
        from torch._C import _distributed_c10d as native  # type: ignore[import-not-found]
        torch = sys.modules["torch"]
        self.c10d = c10d = sys.modules[_MODULE]
        self.group_of_name = native._resolve_process_group
        names = native.HookOpName.__members__
        #: By the value of HookOpName.
        self.operations = [_NONE] * (max(int(value) for value in names.values()) + 1)
        for name, number in _OPERATIONS.items():
            self.operations[int(names[name])] = number
        self.dtypes = {getattr(torch, name): number for name, number in DTYPES.items()
                       if hasattr(torch, name)}
        self.tensor_types = frozenset((torch.Tensor, torch.nn.Parameter))
        self.count_modes = torch._C._len_torch_function_stack
        #: The codes of torch.distributed.send and recv, in which a thread waits for a message.
        self.waits_for_message = tuple(getattr(function, "__wrapped__", function).__code__
                                       for function in (c10d.send, c10d.recv))


_pytorch = functools.lru_cache(maxsize=None)(_PyTorch)


def _own_back_ends() -> Tuple[str, ...]:
    """Those that tell their collectives themselves, and those that have none."""
    tells_nccl = "regroup" in os.environ.get("NCCL_PROFILER_PLUGIN", "")
    return ("regroup", "fake") + (("nccl", "nccl2", "nccl_legacy") if tells_nccl else ())


def _watch(process_group: Any, ranks: Iterable[int]) -> None:
    """``ranks``: those of the world; none for all of them."""
    c10d: Any = _pytorch().c10d
    if not isinstance(process_group, c10d.ProcessGroup):
        return  # This rank is no member.
    name = str(process_group.group_name)
    if name in _groups:
        return  # PyTorch has at most one group of a name.
    back_ends = c10d.BackendConfig(
        c10d.Backend(c10d._world.pg_backend_config[process_group])).get_device_backend_map()
    own = _own_back_ends()
    watched = {device: back_end for device, back_end in back_ends.items() if back_end not in own}
    if not watched:
        return
    members = sorted(ranks) or list(range(process_group.size()))
    group = _Group(process_group, name, members, watched, len(watched) < len(back_ends))
    process_group.register_pre_hook(_HOOK, group.before)
    process_group.register_post_hook(_HOOK, group.after)
    _groups[name] = group
    _start_thread()


def _end_group(name: str) -> None:
    group = _groups.pop(name, None)
    if group is None:
        return
    group.close()
    # PyTorch keeps registered groups until after the interpreter's end, when no hook can be freed.
    process_group = _pytorch().group_of_name(name)
    process_group.unregister_pre_hook(_HOOK)
    process_group.unregister_post_hook(_HOOK)


class _Group:
    """A group of torch.distributed that is watched."""

    def __init__(self, process_group: Any, name: str, ranks: Iterable[int],
                 back_ends: Dict[str, str], has_others: bool) -> None:
        self._pytorch = _pytorch()
        self._devices = frozenset(back_ends) if has_others else None  # None: all of them.
        self._can_be_asked = _CAN_BE_ASKED.issuperset(back_ends.values())
        #: The numbers of operations, oldest first, and what can be asked whether they have ended.
        self._pending: Deque[Tuple[int, Any]] = collections.deque(maxlen=_PENDING_MAX)
        self._issued: Optional[int] = None  # The number of the operation that is being issued.
        self._never_ends = False  # gloo never says that this operation has ended.
        self._ended = 0  # The last collective that has been found to have ended, and been told.
        self._told = 0
        self._slow = 0  # The last one that was under way when the thread looked.
        self._message: Optional[Tuple[int, int, int]] = None  # Operation, peer, thread.
        self._told_message: Optional[Tuple[int, int, int]] = None
        text = f"{name}:{','.join(map(str, ranks))}"
        description = getattr(process_group, "group_desc", "")
        self._handle: Optional[int] = result(  # None: nothing is told any more.
            library.regroup_watched_group_create,
            back_ends.get("cpu", next(iter(back_ends.values()))).encode(),
            (description if description not in ("", "undefined") else name).encode(),
            int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"),
            process_group.size(), process_group.rank(),
            _ENDS_LOOKED_FOR if self._can_be_asked else _ENDS_UNKNOWN)
        self._free = weakref.finalize(self, library.regroup_watched_group_free, self._handle)
        self._free.atexit = False  # The thread still runs then: see _end().

    def close(self) -> None:
        self._handle = None
        self._pending.clear()
        self._free()

    def leave_as_it_is(self) -> None:
        self._handle = None

    def before(self, call: Any) -> None:
        """The program calls an operation."""
        try:
            pytorch = self._pytorch
            operation = pytorch.operations[call.name.value]
            if self._handle is None or operation == _NONE or \
                    self._devices and not self._is_watched(operation, call):
                return
            if operation >= _SEND:
                # The root of a receive from any rank is -1.
                if call.root >= 0:
                    self._message = operation, call.root, threading.get_ident()
                return
            if self._pending:
                self._find_ended()
                if self._slow > self._told:
                    self._tell_ended()
            dtype, elements = -1, 0
            if operation <= _LAST_WITH_EQUAL_ARGUMENTS:
                tensors = call.input_tensors
                tensor = tensors[0]
                # A subclass, or a mode of the program, would see the calls.
                if type(tensor) in pytorch.tensor_types and not pytorch.count_modes():
                    dtype = pytorch.dtypes.get(tensor.dtype, -1)
                    elements = tensor.numel() if len(tensors) == 1 else \
                        sum(each.numel() for each in tensors)
            number = _entered(self._handle, operation, dtype, elements)
            if self._can_be_asked:
                self._issued = number
                self._never_ends = operation == _REDUCE_SCATTER
        except Exception:
            pass

    def after(self, call: Any) -> None:
        """The operation has been issued."""
        try:
            number = self._issued
            if number:
                self._issued = None
                pending = self._pending
                work = None if self._never_ends else call.work
                if work is None and pending and pending[-1][1] is None:
                    pending.pop()  # It has ended when this one has.
                pending.append((number, work))
        except Exception:
            pass

    def _is_watched(self, operation: int, call: Any) -> bool:
        # A barrier does not tell its device.
        tensors = call.input_tensors or call.output_tensors
        return bool(tensors) and operation != _BARRIER and \
            tensors[0].device.type in self._devices  # type: ignore[operator]

    def _find_ended(self) -> None:
        pending = self._pending
        try:
            while pending:
                work = pending[0][1]
                if work is None:
                    # It has ended if the next one has.
                    if len(pending) == 1 or not pending[1][1].is_completed():
                        return
                elif not work.is_completed():
                    return
                self._ended = pending.popleft()[0]
        except IndexError:
            pass  # Another thread has taken it.

    def _tell_ended(self) -> None:
        if self._ended > self._told:
            self._told = self._ended
            _completed(self._handle, self._ended)

    def look(self) -> None:
        """Called by the thread, at each interval."""
        if self._handle is None:
            return
        self._find_ended()
        self._tell_ended()
        try:
            self._slow, work = self._pending[0]
            knows_ends = work is not None
        except IndexError:
            knows_ends = True
        if knows_ends:
            _looked(self._handle)
        if self._message or self._told_message:
            self._look_for_message()

    def _look_for_message(self) -> None:
        """The function that a thread is in tells whether it waits for a message. The operation
        itself does not know."""
        message = self._message
        frame = sys._current_frames().get(message[2]) if message else None
        waits = frame is not None and frame.f_code in self._pytorch.waits_for_message
        if self._told_message and (not waits or message != self._told_message):
            _message_completed(self._handle)
            self._told_message = None
        if message and waits and self._told_message is None:
            _message_entered(self._handle, message[0], message[1], -1, 0)
            self._told_message = message
        if not waits and self._message is message:
            self._message = None


def _start_thread() -> None:
    global _thread
    with _lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_look, name="regroup-collectives", daemon=True)
            _thread.start()


def _look() -> None:
    while not _stop.wait(_INTERVAL_S):
        for group in list(_groups.values()):
            _quietly(group.look)()
        group = None  # type: ignore[assignment]  # Only the hooks own it.


def _end() -> None:
    """The interpreter ends: no thread may be inside PyTorch then."""
    _stop.set()
    if _thread is not None:
        _thread.join()
    for name in list(_groups.keys()):
        _quietly(_end_group)(name)


def _forget() -> None:
    """In a forked child, which has no thread."""
    global _lock
    _lock = threading.Lock()
    _kept.extend(_groups.values())
    _groups.clear()
    for group in _kept:
        group.leave_as_it_is()
