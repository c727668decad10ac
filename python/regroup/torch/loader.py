# SPDX-License-Identifier: Apache-2.0
"""Batches of a data set for elastic steps."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch.utils.data import DataLoader

from ..elastic import ElasticStep
from ..errors import InvalidArgument
from ..sampler import DistributedSampler
from .loader_process import ObeysItsRank


class _Positions:
    """A batch sampler: the indices of one rank, from a position on. An epoch has as many whole
    batches as the data set gives; the order of each epoch is another one."""

    def __init__(self, dataset_count: int, batch_size: int, shuffle: bool, seed: int) -> None:
        self._dataset_count = dataset_count
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._seed = seed
        self._epoch_count = dataset_count // batch_size * batch_size
        self.first, self.rank, self.world_size = 0, 0, 1

    def __iter__(self) -> Iterator[List[int]]:
        sampler = DistributedSampler(self._dataset_count, self.rank, self.world_size,
                                     shuffle=self._shuffle, seed=self._seed)
        first = self.first
        while True:
            sampler.set_epoch(first // self._epoch_count)
            begin = first % self._epoch_count
            yield sampler.shard(range(begin, begin + self._batch_size))
            first += self._batch_size

    def __len__(self) -> int:
        return self._epoch_count // self._batch_size


class Batches:
    """Call ``next`` once in each step, which ``step`` returns. ``place`` returns the number of this
    rank among those that divide the samples, and how many these are."""

    def __init__(self, step: Callable[[], ElasticStep], place: Callable[[], Tuple[int, int]],
                 dataset: Any, batch_size: int, shuffle: bool, seed: int,
                 options: Dict[str, Any]) -> None:
        for name in ("sampler", "batch_sampler", "drop_last"):
            if name in options:
                raise InvalidArgument(f"batches() chooses the samples itself, and has no {name}=")
        if not 0 < batch_size <= len(dataset):
            raise InvalidArgument(f"batch_size is {batch_size}, for all ranks together, and the "
                                  f"data set has {len(dataset)} samples")
        self._step = step
        self._place = place
        self._batch_size = batch_size
        self._positions = _Positions(len(dataset), batch_size, shuffle, seed)
        # A generator of its own: the loader draws from it, and must not draw from PyTorch's.
        self._generator = torch.Generator()
        self._seed = seed
        then = options.pop("worker_init_fn", None)
        self._loader = DataLoader(dataset, batch_sampler=self._positions,
                                  generator=self._generator, worker_init_fn=ObeysItsRank(then),
                                  **options)
        self._iterator: Optional[Iterator[Any]] = None
        self._next: Optional[Tuple[int, int]] = None  # The round and the position of the iterator.

    @property
    def epoch(self) -> int:
        """The epoch of the current step, from 0."""
        return int(self._step().samples_begin // self._positions._epoch_count)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        step = self._step()
        first = step.take(self._batch_size).start
        place = (step.context.round, first)
        with step._loading():
            if self._iterator is None or self._next != place:
                self._begin(first)
            assert self._iterator is not None
            self._next = (step.context.round, first + self._batch_size)
            return next(self._iterator)

    def close(self) -> None:
        """Ends the worker processes."""
        self._iterator = None

    def _begin(self, first: int) -> None:
        """Another round or position: what was loaded ahead is not for this rank."""
        if not getattr(self._loader, "persistent_workers", False):
            self._iterator = None  # Its processes end before new ones start.
        self._positions.first = first
        self._positions.rank, self._positions.world_size = self._place()
        self._generator.manual_seed(self._seed + first)
        self._iterator = iter(self._loader)
