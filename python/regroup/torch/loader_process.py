# SPDX-License-Identifier: Apache-2.0
"""The processes that load data for a rank."""
from __future__ import annotations

import signal
from typing import Callable, Optional

from .._library import check, library


class ObeysItsRank:
    """The ``worker_init_fn`` of a DataLoader: a scheduler that stops a job may signal all of its
    processes, and a rank whose loaders die fails before it has saved its state."""

    def __init__(self, then: Optional[Callable[[int], None]]) -> None:
        self._then = then

    def __call__(self, worker_id: int) -> None:
        check(library.regroup_obey_only_parent(signal.SIGTERM))  # PyTorch has its own handler.
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                check(library.regroup_obey_only_parent(number))
        if self._then is not None:
            self._then(worker_id)
