# SPDX-License-Identifier: Apache-2.0
"""Which samples of a data set belong to this rank."""
from __future__ import annotations

import ctypes
from typing import Any, List

from . import _library
from ._calls import Handle, result
from ._library import check, library


class DistributedSampler:
    """The samples of this rank in each epoch. Every sample belongs to one rank; ``drop_last``
    leaves out those at the end that are too few for all ranks, where others are repeated."""

    def __init__(self, dataset_count: int, rank: int, world_size: int, *, shuffle: bool = True,
                 seed: int = 0, drop_last: bool = False) -> None:
        self._handle = Handle("sampler", library.regroup_sampler_create,
                              _library.unsigned(dataset_count, "dataset_count", 64),
                              _library.unsigned(rank, "rank"),
                              _library.unsigned(world_size, "world_size"), int(shuffle),
                              _library.unsigned(seed, "seed", 64), int(drop_last))

    def set_epoch(self, epoch: int) -> None:
        """Another epoch has another order, the same on all ranks."""
        check(library.regroup_sampler_set_epoch(self._handle(),
                                                _library.unsigned(epoch, "epoch", 64)))

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch."""
        return int(result(library.regroup_sampler_count, self._handle()))

    def indices(self, global_start: int = 0) -> List[int]:
        """Indices into the data set, from a position of the epoch on, counted over all ranks."""
        return self._fill(library.regroup_sampler_indices,
                          _library.unsigned(global_start, "global_start", 64))

    def shard(self, samples: range) -> List[int]:
        """The indices of this rank at the positions of ``samples``, such as ``ElasticStep.take``
        gives. Nothing is padded or dropped."""
        return self._fill(library.regroup_sampler_shard,
                          _library.unsigned(samples.start, "the first position", 64),
                          _library.unsigned(samples.stop, "the last position", 64))

    def _fill(self, function: Any, *arguments: int) -> List[int]:
        count = result(function, self._handle(), *arguments, None, 0)
        indices = (ctypes.c_uint64 * count)()
        result(function, self._handle(), *arguments, indices, count)
        return list(indices)
