# SPDX-License-Identifier: Apache-2.0
"""The common part of the training loops for PyTorch."""
from __future__ import annotations

from typing import Any, Callable, Iterator, Optional, Tuple

from ..elastic import ElasticLeave, ElasticLoop, ElasticRound, ElasticStep
from ..errors import InvalidArgument
from .loader import Batches
from .rounds import Rounds
from .seeds import Seed


class Training:
    """A loop of steps over the rounds of ``loop``, in each of which torch.distributed is
    initialised by ``rounds``."""

    def __init__(self, loop: ElasticLoop, rounds: Rounds, seed: Seed) -> None:
        #: The loop, to register further state.
        self.loop = loop
        self._rounds = rounds
        self._seed = seed
        self._round: Optional[ElasticRound] = None
        self._step: Optional[ElasticStep] = None
        loop.explain = rounds.explain

    @property
    def round(self) -> ElasticRound:
        if self._round is None:
            raise InvalidArgument("no round has begun")
        return self._round

    @property
    def step(self) -> ElasticStep:
        """The step that is being carried out."""
        if self._step is None:
            raise InvalidArgument("no step is being carried out")
        return self._step

    @property
    def rank(self) -> int:
        return self.round.rank

    @property
    def world_size(self) -> int:
        return self.round.world_size

    @property
    def ending(self) -> Optional[str]:
        """How ``steps`` has ended: "finished", or "left" if this node leaves."""
        return self.loop.ending

    def batches(self, dataset: Any, batch_size: int, *, shuffle: bool = True, seed: int = 0,
                **options: Any) -> Batches:
        """An iterator over batches of this rank: ``batch_size`` samples in each step, of all ranks
        together. Each sample is used once in an epoch, whatever happens to ranks. Options are those
        of torch.utils.data.DataLoader, such as ``num_workers``."""
        return Batches(lambda: self.step, self._data_place, dataset, batch_size, shuffle, seed,
                       options)

    def steps(self, until: Optional[int] = None, *,
              on_round: Optional[Callable[[ElasticRound], Any]] = None,
              on_leave: Optional[Callable[[ElasticLeave], Any]] = None) -> Iterator[ElasticStep]:
        """The steps, to carry out in ``with step:``; see ElasticLoop.steps. ``on_round`` is called
        when the model of the round is ready."""

        def begin(current: ElasticRound) -> None:
            self._begin_round(current)
            if on_round is not None:
                on_round(self.round)

        for self._step in self.loop.steps(until, on_round=begin, on_leave=on_leave):
            # Ranks that work together on the same samples draw the same.
            self._seed.begin(self._step.number, self._data_place()[0])
            yield self._step
        self._step = None
        if self.ending == "left":
            self._end_round()

    def close(self) -> None:
        """Ends torch.distributed in this process, and frees the loop."""
        self._end_round()
        self.loop.close()

    def _begin_round(self, current: ElasticRound) -> None:
        """Sets ``_round``."""
        raise NotImplementedError

    def _end_round(self) -> None:
        raise NotImplementedError

    def _data_place(self) -> Tuple[int, int]:
        """The number of this rank among those that divide the samples, and how many these are."""
        return self.rank, self.world_size
