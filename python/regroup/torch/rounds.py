# SPDX-License-Identifier: Apache-2.0
"""torch.distributed in the rounds of a loop, with any of its back ends."""
from __future__ import annotations

import datetime
import os
import sys
import threading
import traceback
from typing import Any, Callable, Dict, List, Optional, Set

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import _library
from .._calls import Handle
from .._library import library
from ..context import Context
from ..elastic import ElasticRound
from ..errors import Error, Fenced, InvalidArgument
from . import backend, gloo
from .releasable import ReleasableCalls
from .round_store import RoundStore

#: How long to wait, after a failure of PyTorch, for the end of the round that explains it. The
#: agents tell each other of a death within milliseconds.
_PATIENCE_S = 3.0
#: How often a thread checks whether it is still needed. The end of the round wakes it at once.
_SLICE_S = 5.0
#: How often to release ranks again, since operations may begin after the end of the round.
_REPEAT_S = 0.2
#: How long to wait for a thread that releases. NCCL's abort waits for its kernels.
_RELEASE_LIMIT_S = 60.0

#: How long to wait until gloo's groups are gone.
_DROP_LIMIT_S = 3.0

#: The values that switch a variable of PyTorch on.
_TRUE = ("1", "y", "yes", "t", "true", "on")
#: Back ends whose groups nothing can end from another thread.
_UNENDING = ("mpi", "ucc", "fake", "undefined")


def default_backend(device: str) -> str:
    """The back end for a model on ``device``, such as "cpu"."""
    if device == "cpu":
        return backend.NAME
    # With a back end for the CPU, too, so that tensors there can be reduced.
    return f"cpu:{backend.NAME},cuda:nccl" if backend.HAS_BACKENDS else "nccl"


def names_of(chosen: str) -> List[str]:
    """The back ends in a name of torch.distributed, such as "cpu:gloo,cuda:nccl"."""
    return [part.rpartition(":")[2].lower() for part in chosen.split(",")]


class Rounds:
    """Initialises torch.distributed anew in each round, releases ranks that wait in its operations
    when the round is over, and tells the loss of a peer from failures of the program.

    ``chosen`` is what ``init_process_group`` takes as back end, and ``timeout``, in seconds, limits
    each operation. Refuses back ends that it could not release. Used by one thread.
    """

    def __init__(self, chosen: str, timeout: Optional[float] = None) -> None:
        if dist.is_initialized():
            raise InvalidArgument("torch.distributed is initialised; the loop initialises it in "
                                  "each round: remove init_process_group")
        backend.register()
        self.backend = chosen
        self._timeout = timeout
        names = set(names_of(chosen))
        _refuse_unknown(names, chosen)
        self._has_gloo = "gloo" in names
        if self._has_gloo and os.environ.get("TORCH_GLOO_LAZY_INIT", "").lower() in _TRUE:
            raise InvalidArgument("TORCH_GLOO_LAZY_INIT is set, and a rank that waits for its first "
                                  "connection with a dead one could not be released: unset it")
        self._has_others = bool(names - {backend.NAME, "gloo"})
        if self._has_others:
            _keep_process_alive()
        self._round: Optional[ElasticRound] = None
        self._store: Any = None
        self._watch: Optional[_Watch] = None
        self._calls: Optional[ReleasableCalls] = None  # Of the round, if groups are to be aborted.
        self._hook: Any = None  # sys.excepthook as it was before torch.distributed.

    def begin(self, current: ElasticRound) -> None:
        """Ends the round before, and initialises torch.distributed for this one."""
        self.end()
        self._round = current
        options: Dict[str, Any] = {}
        if self._timeout is not None:
            options["timeout"] = datetime.timedelta(seconds=self._timeout)
        # Kept here: C++ does not keep its object of Python.
        self._store = RoundStore(current)
        self._hook = sys.excepthook
        releases: List[Callable[[], None]] = []
        if self._has_gloo:
            connections = gloo.Connections()
            gloo.own_groups_of(connections)
            releases.append(connections.release)
        if self._has_others:
            self._calls = ReleasableCalls("regroup-form")
            releases += [self._calls.release, _Aborts()]
        if releases:
            self._watch = _Watch(current, releases)
        dist.init_process_group(self.backend, store=self._store, rank=current.rank,
                                world_size=current.world_size, **options)
        if self._watch is not None and self._watch.has_begun.is_set():
            raise Fenced(f"round {current.context.round} is over")

    def form(self, device: torch.device) -> None:
        """Forms the communicators of all groups for ``device``, if it is a GPU. All ranks call it.

        NCCL forms each in its first operation, and there nothing ends the wait for a rank that has
        died: abort knows no communicator that is not complete. So another thread waits here. If the
        round ends meanwhile, that thread stays, with what NCCL has opened so far."""
        if self._calls is None or device.type != "cuda":
            return

        def form_all() -> None:
            torch.cuda.set_device(device)  # Each thread has its own.
            for group in list(dist.distributed_c10d._world.pg_names):
                if group.size() > 1:
                    dist.all_reduce(torch.zeros(1, device=device), group=group)

        self._calls.make(form_all)

    def end(self) -> None:
        """Ends torch.distributed. The groups of a round that is over have been released before."""
        self._round = self._calls = None
        aborted = False
        groups = list(dist.distributed_c10d._pg_map) if self._has_gloo else []
        if self._watch is not None:
            self._watch.end()
            aborted = self._has_others and self._watch.has_begun.is_set()
            self._watch = None
        if dist.is_initialized():
            if aborted:
                # destroy_process_group would wait for operations, which groups refuse after abort.
                dist.distributed_c10d._abort_process_group()
            else:
                dist.destroy_process_group()
        if groups:
            # Their destructors wait for operations, which may be at their timeout only.
            dropping = threading.Thread(target=groups.clear, daemon=True, name="regroup-drop")
            dropping.start()
            dropping.join(_DROP_LIMIT_S)
        # An initialisation that has failed has used up the name with which new processes begin.
        dist.distributed_c10d._group_count = 0
        if self._has_gloo:
            gloo.own_groups_of(None)
        for group in backend.groups():
            group.shutdown()  # Releases before 2.14 do not.
        if self._hook is not None:
            sys.excepthook, self._hook = self._hook, None  # Each initialisation would wrap it.

    def explain(self, raised: Exception) -> Exception:
        """Finds the cause of an exception, for ``ElasticLoop.explain``: PyTorch hides the loss of a
        peer in exceptions of its own. Waits up to 3 s for the end of the round before it blames the
        program."""
        if isinstance(raised, Error) and not isinstance(raised, InvalidArgument):
            return raised
        failures = [group.failure for group in backend.groups() if group.failure is not None]
        if failures:
            return failures[0]
        if (self._watch is not None and self._round is not None and _is_of_torch(raised)
                and self._round.context.await_end(_PATIENCE_S)):
            return Fenced(f"round {self._round.context.round} is over: {raised}")
        return raised


def _refuse_unknown(names: Set[str], chosen: str) -> None:
    for name in names:
        known = hasattr(dist.Backend, name.upper()) or name.upper() in dist.Backend._plugins
        register = getattr(dist.Backend, "_ensure_backend_registered", None)
        if not known and register is not None:
            register(name)
            known = name.upper() in dist.Backend._plugins
        ends = name in (backend.NAME, "gloo") or (
            name not in _UNENDING and hasattr(c10d.ProcessGroup, "abort"))
        if not known or not ends:
            raise InvalidArgument(
                f"backend={chosen!r}: {name or 'an empty name'} "
                f"{'has no way to end an operation' if known else 'is no back end'} of PyTorch "
                f"{torch.__version__}; use \"{backend.NAME}\", \"gloo\", \"nccl\" or \"nccl2\" (the "
                f"last two from PyTorch 2.6 and 2.14 on), or another one with abort")


def _is_of_torch(raised: Optional[BaseException]) -> bool:
    """Whether PyTorch may have raised it, or one of its causes, for the loss of a peer."""
    while raised is not None:
        if isinstance(raised, RuntimeError) and not isinstance(raised, Error):
            return True
        raised = raised.__cause__ or raised.__context__
    return False


class _Aborts:
    """Aborts the groups of torch.distributed, each once.

    All at the same time: an abort may wait for kernels of another group, which end when that one is
    aborted, too (pytorch#119797). A coalescing block around all aborts, as PyTorch has it, does not
    help: "nccl" aborts on a thread of its own, and "nccl2" has no group of NCCL there. Besides, the
    program's thread may be in such a block of the same group."""

    def __init__(self) -> None:
        self._done: List[Any] = []

    def __call__(self) -> None:
        groups = [group for group in list(dist.distributed_c10d._world.pg_names)
                  if group not in self._done]
        self._done += groups
        threads = [threading.Thread(target=_abort, args=(group,), daemon=True, name="regroup-abort")
                   for group in groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _abort(group: Any) -> None:
    try:
        group.abort()
    except Exception:
        traceback.print_exc()  # The others must still be aborted.


def _keep_process_alive() -> None:
    """Keeps the threads of PyTorch's NCCL groups from ending the process when a peer is lost, and
    from sleeping for a minute before they end. PyTorch reads these variables for each group."""
    if (os.environ.get("TORCH_DISTRIBUTED_DEBUG", "").upper() == "DETAIL"
            or os.environ.get("TORCH_NCCL_DESYNC_DEBUG", "").lower() in _TRUE):
        raise InvalidArgument("TORCH_DISTRIBUTED_DEBUG=DETAIL or TORCH_NCCL_DESYNC_DEBUG is set: "
                              "with them PyTorch ends the process when a peer is lost; unset them")
    # The launcher sets 1 for programs without the loop, as torchrun does.
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    # A thread that sees an error of NCCL before the abort sleeps four times as long, 60 s by
    # default, and the end of its group waits for it.
    os.environ.setdefault("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "0")
    if "TORCH_NCCL_DEBUG_INFO_PIPE_FILE" not in os.environ:
        # After such an error another thread writes a file, and may then sleep for eight minutes.
        # The same thread reads from that pipe.
        os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")


class _Watch:
    """Releases what waits in a round when it is over, on a thread of its own."""

    def __init__(self, current: ElasticRound, releases: List[Callable[[], None]]) -> None:
        self.has_begun = threading.Event()  # To release.
        self._current = current.context
        self._has_ended = threading.Event()
        # Its own, which the loop does not free, and which ends with the round.
        ranks = range(current.world_size)
        own = Context(Handle("context", library.regroup_context_of_ranks, current.context._handle(),
                             (_library.c_uint32 * len(ranks))(*ranks), len(ranks)))
        self._thread = threading.Thread(target=self._run, args=(own, releases), daemon=True,
                                        name="regroup-release")
        self._thread.start()

    def _run(self, own: Context, releases: List[Callable[[], None]]) -> None:
        try:
            while not own.await_end(_SLICE_S):
                if self._has_ended.is_set():
                    return
            if self._has_ended.is_set():
                return
            self.has_begun.set()
            while True:
                for release in releases:
                    release()
                if self._has_ended.wait(_REPEAT_S):
                    return
        finally:
            own.close()

    def end(self) -> None:
        """Returns when nothing is being released any more."""
        if self._current.await_end(0):
            # The thread may not have heard of it yet. A group that is not released would wait for
            # dead ranks at its end.
            while self._thread.is_alive() and not self.has_begun.wait(_REPEAT_S):
                pass
            self._has_ended.set()
            self._thread.join(_RELEASE_LIMIT_S)
        self._has_ended.set()
