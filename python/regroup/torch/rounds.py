# SPDX-License-Identifier: Apache-2.0
"""torch.distributed in the rounds of a loop."""
from __future__ import annotations

import datetime
import sys
from typing import Any, Dict, Optional

import torch.distributed as dist

from ..elastic import ElasticRound
from ..errors import Error, InvalidArgument
from . import backend
from .round_store import RoundStore


class Rounds:
    """Initialises torch.distributed in each round, with the back end "regroup"."""

    def __init__(self, timeout: Optional[float]) -> None:
        backend.register()
        self._options: Dict[str, Any] = {}
        if timeout is not None:
            self._options["timeout"] = datetime.timedelta(seconds=timeout)
        self._store: Any = None  # Kept here: C++ does not keep its object of Python.
        self._hook: Any = None  # sys.excepthook as it was before torch.distributed.

    def begin(self, current: ElasticRound) -> None:
        self._store = RoundStore(current)
        self._hook = sys.excepthook
        dist.init_process_group(backend.NAME, store=self._store, rank=current.rank,
                                world_size=current.world_size, **self._options)

    def end(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        for group in backend.groups():
            group.shutdown()  # Releases before 2.14 do not.
        if self._hook is not None:
            sys.excepthook, self._hook = self._hook, None  # Each initialisation would wrap it.

    def explain(self, raised: Exception) -> Exception:
        """PyTorch hides the loss of a peer in exceptions of its own."""
        if isinstance(raised, Error) and not isinstance(raised, InvalidArgument):
            return raised
        failures = [group.failure for group in backend.groups() if group.failure is not None]
        return failures[0] if failures else raised
