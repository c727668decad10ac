# SPDX-License-Identifier: Apache-2.0
"""The part of a divided state that this rank still has when a round is over."""
from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Optional, Tuple

import torch

from ..elastic import ElasticRound
from ..snapshot import SnapshotHandle
from .snapshot import Snapshot, box_of

#: Of the snapshots.
NAME = "sharded"
#: How long the survivors wait for each other's parts.
_WHOLE_LIMIT_S = 30.0


class Holding:
    """If replicas hold the state, a loss takes none of it: when a round begins, the survivors of
    the one before save their parts. If these are the whole state, they are the newest snapshot.

    If the loss came while a step was committed, survivors may be one step apart. Then the state of
    the later ones counts."""

    def __init__(self) -> None:
        self.is_kept = False  #: The part of this rank is saved, and another node has a copy.
        self._step = -1  # The step of the state; -1: there is none.
        self._generation = -1  # The round in which the state was divided.
        self._key = 0  # Ranks with the same one have the same boxes of it.
        self._keys_count = 0  # Of all ranks.
        self._model: Optional[torch.nn.Module] = None
        self._buffers: List[Tuple[torch.Tensor, torch.Tensor]] = []

    def begin(self, current: ElasticRound, model: torch.nn.Module, step: int) -> None:
        """The model has its state of ``step``. A collective."""
        self._generation = current.context.round
        self._key = _key_of(model)
        self._keys_count = len({key for key, in _gather(current, self._key)})
        self._model = model
        self.committed(step)

    def committed(self, step: int) -> None:
        self._step = step
        self.is_kept = False
        assert self._model is not None
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in self._model.buffers()]

    def rescue(self, current: ElasticRound, parts: Dict[str, Any]) -> None:
        """Saves the state, if the ranks of the round have all of it. Otherwise, or if that is in
        vain, the newest snapshot is an earlier one. ``parts``: those of the snapshot. A
        collective."""
        everyone = _gather(current, self._step, self._generation, self._key, self._keys_count,
                           int(self.is_kept))
        latest = max(each[:2] for each in everyone)
        holders = [each for each in everyone if each[:2] == latest]
        has_all = len({each[2] for each in holders}) == holders[0][3]
        if latest[0] < 0 or not has_all or all(each[4] for each in holders):
            return
        if (self._step, self._generation) == latest:
            for buffer, value in self._buffers:  # The step that was lost may have changed them.
                buffer.copy_(value)
            saved: Any = Snapshot(context=current.context, name=NAME, replicated=False, **parts)
        else:  # Nothing of it is here; but a version has a part of each rank.
            saved = SnapshotHandle(current.context, name=NAME, replicated=False)
        if saved.save(latest[0]):
            saved.wait_until_whole(_WHOLE_LIMIT_S)
        saved.close()


def _gather(current: ElasticRound, *values: int) -> List[Tuple[int, ...]]:
    """The values of all ranks."""
    mine = torch.tensor(values, dtype=torch.int64)
    everyone = torch.empty(current.world_size * len(values), dtype=torch.int64)
    current.group.all_gather(mine, everyone)
    return [tuple(row) for row in everyone.view(current.world_size, -1).tolist()]


def _key_of(model: torch.nn.Module) -> int:
    digest = hashlib.blake2b(digest_size=7)
    for name, tensor in sorted(model.state_dict().items()):
        box = box_of(tensor, name) if isinstance(tensor, torch.Tensor) else None
        place = (box.offset, tuple(box.memory.shape)) if box is not None else None
        digest.update(repr((name, place)).encode())
    return int.from_bytes(digest.digest(), "little")
