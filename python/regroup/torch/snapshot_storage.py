# SPDX-License-Identifier: Apache-2.0
"""Snapshots as storage of torch.distributed.checkpoint (PyTorch 2.2 and newer)."""
from __future__ import annotations

import io
import os
import pickle
from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import (LoadItemType, LoadPlan, LoadPlanner, ReadItem,
                                                  SavePlan, SavePlanner, WriteItem, WriteItemType)
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from ..context import Context
from ..errors import InvalidArgument
from ..snapshot import SnapshotHandle
from .snapshot import Box, arguments_of, read_box

__all__ = ["SnapshotReader", "SnapshotWriter"]

#: Where the coordinator's part keeps what torch.distributed.checkpoint knows of the whole.
_METADATA = "regroup.metadata"


class SnapshotWriter(StorageWriter):  # type: ignore[misc]
    """Saves into the memory of the agents::

        writer = SnapshotWriter()
        for step in range(first, 10_000):
            if step % 10 == 0:
                writer.step = step
                torch.distributed.checkpoint.save(state_dict, storage_writer=writer)
            ...

    All ranks make it together, and save together, by ``save`` or ``async_save``. ``kept`` says
    whether the last save was kept; see regroup.torch.Snapshot.save. Keyword arguments are those of
    regroup.Snapshot.
    """

    def __init__(self, step: int = 0, *, context: Optional[Context] = None, name: str = "dcp",
                 folder: Optional[str] = None, threads: int = 0) -> None:
        super().__init__()
        self.step = step
        self.kept = False
        self._handle = SnapshotHandle(context, name=name, replicated=False, folder=folder,
                                      threads=threads)
        # Here, where all ranks are: the coordinator saves after the others have.
        self._handle.open()
        self._is_coordinator = False
        self._memory: List[torch.Tensor] = []  # Until it is copied.

    def wait_until_whole(self, timeout: float) -> bool:
        """Waits until every rank has saved what this rank saved last; ``timeout`` in seconds."""
        return self._handle.wait_until_whole(timeout)

    def reset(self, checkpoint_id: Union[str, "os.PathLike[str]", None] = None) -> None:
        self._handle.clear()
        self._memory.clear()

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._is_coordinator = is_coordinator

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[List[WriteResult]]":
        names: Dict[str, int] = {}
        results = []
        for item in plan.items:
            data = planner.resolve_data(item)
            if item.type == WriteItemType.BYTE_IO:
                content = data.getvalue()
                self._handle.set_bytes(item.index.fqn, content)
                results.append(WriteResult(item.index, len(content), None))
            else:
                results.append(WriteResult(item.index, self._add(item, data, names), None))
        if not self._is_coordinator:
            self._save()
        future: Future[List[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: List[List[WriteResult]]) -> None:
        self._handle.set_bytes(_METADATA, pickle.dumps(metadata))
        self._save()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, "os.PathLike[str]"]) -> bool:
        return False  # Only a program that names this class wants it.

    def _add(self, item: WriteItem, data: torch.Tensor, names: Dict[str, int]) -> int:
        memory = data.detach().contiguous()
        self._memory.append(memory)
        fqn = item.index.fqn
        names[fqn] = names.get(fqn, -1) + 1
        name = fqn if names[fqn] == 0 else f"{fqn}#{names[fqn]}"
        chunk = item.tensor_data.chunk
        box = Box(memory, tuple(chunk.offsets), tuple(item.tensor_data.size))
        if memory.numel() > 0:
            self._handle.add_memory(**arguments_of(name, _real(box)))
        return memory.numel() * memory.element_size()

    def _save(self) -> None:
        self.kept = self._handle.save(self.step)
        self.reset()


class SnapshotReader(StorageReader):  # type: ignore[misc]
    """Loads what SnapshotWriter saved, with any number of ranks and any mesh::

        reader = SnapshotReader()
        if reader.step is not None:
            torch.distributed.checkpoint.load(state_dict, storage_reader=reader)

    All ranks make it together: it chooses the newest whole step for all of them. ``step`` is None
    if there is none.
    """

    def __init__(self, *, context: Optional[Context] = None, name: str = "dcp",
                 folder: Optional[str] = None, threads: int = 0) -> None:
        super().__init__()
        self._handle = SnapshotHandle(context, name=name, replicated=False, folder=folder,
                                      threads=threads)
        self.step = self._handle.open()
        self._metadata: Optional[Metadata] = None

    def reset(self, checkpoint_id: Union[str, "os.PathLike[str]", None] = None) -> None:
        pass

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        if self.step is None:
            raise InvalidArgument("there is no whole snapshot to load: ask SnapshotReader().step")
        if self._metadata is None:
            # Written by SnapshotWriter in this job, as PyTorch's own writer does.
            self._metadata = pickle.loads(self._handle.get_bytes(_METADATA))
        return self._metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any,
                              **kwargs: Any) -> None:
        self._metadata = metadata

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                data = self._handle.get_bytes(item.storage_index.fqn)
                planner.load_bytes(item, io.BytesIO(data))
            else:
                target = planner.resolve_tensor(item).detach()
                if target.numel() > 0:
                    read_box(self._handle, item.storage_index.fqn,
                             _real(Box(target, self._offset(item), self._size(item))))
                planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Union[str, "os.PathLike[str]"]) -> bool:
        return False

    @staticmethod
    def _offset(item: ReadItem) -> Tuple[int, ...]:
        chunk = item.storage_index.offset
        if chunk is None:
            return tuple(item.storage_offsets)
        return tuple(a + b for a, b in zip(chunk, item.storage_offsets))

    def _size(self, item: ReadItem) -> Tuple[int, ...]:
        assert self._metadata is not None
        return tuple(self._metadata.state_dict_metadata[item.storage_index.fqn].size)


def _real(box: Box) -> Box:
    """A box of complex numbers as pairs."""
    if not box.memory.is_complex():
        return box
    return Box(torch.view_as_real(box.memory.resolve_conj()), box.offset + (0,),
               box.global_shape + (2,))
