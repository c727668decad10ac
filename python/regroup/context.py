# SPDX-License-Identifier: Apache-2.0
"""The place of this process in its job."""
from __future__ import annotations

from typing import Union

from . import _library, _torch_watch
from ._calls import Borrowed, Handle, result
from ._library import check, library, text
from .store import Store


class Context:
    """Rank, world size and the rest, as they are in one round."""

    job: str
    master_addr: str  #: Empty in a world of one.
    master_port: int
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    group_rank: int
    group_world_size: int
    restart_count: int
    max_restarts: int
    round: int

    def __init__(self, handle: Union[Handle, Borrowed]) -> None:
        self._handle = handle
        info = result(library.regroup_context_get, self._handle())
        for field in info._fields_:
            value = getattr(info, field[0])
            setattr(self, field[0], value.decode() if isinstance(value, bytes) else value)

    @classmethod
    def from_environment(cls) -> Context:
        """Reads the environment that a launcher set; without it, a world of one."""
        _torch_watch.start()
        return cls(Handle("context", library.regroup_context_from_environment))

    @classmethod
    def create(cls, rank: int, world_size: int, master_addr: str = "",
               master_port: int = 0) -> Context:
        """Rank 0 serves the store at this address, unless ``use_store`` is called."""
        return cls(Handle("context", library.regroup_context_create,
                          _library.unsigned(rank, "rank"),
                          _library.unsigned(world_size, "world_size"),
                          text(master_addr, "master_addr"),
                          _library.unsigned(master_port, "master_port", 16)))

    @property
    def store(self) -> Store:
        """The store of this context, connected by the first use."""
        return Store(Handle("store", library.regroup_context_store, self._handle()))

    def use_store(self, store: Store) -> None:
        """Sets the store through which groups of this context are formed."""
        check(library.regroup_context_use_store(self._handle(), store._handle()))

    def await_end(self, timeout: float) -> bool:
        """Waits at most ``timeout`` seconds until everything made from this context has been ended,
        as it is when the round is over; False if it is not. Any thread. Other threads run
        meanwhile."""
        return bool(result(library.regroup_context_await_end, self._handle(),
                           int(timeout * 1000), waits=True))

    def cuda_device(self) -> int:
        """The GPU of this process, as CUDA numbers them in it."""
        return int(result(library.regroup_context_cuda_device, self._handle()))

    def close(self) -> None:
        self._handle.free()

    def __repr__(self) -> str:
        return f"<regroup.Context: rank {self.rank} of {self.world_size}, round {self.round}>"
