# SPDX-License-Identifier: Apache-2.0
"""An agreed stop for plain loops."""
from __future__ import annotations

import ctypes
from typing import Optional

from ._calls import blocking
from ._library import library, unsigned
from .context import Context


def stop_requested(step: int, context: Optional[Context] = None) -> bool:
    """True if all ranks stop before ``step``, which is the same step on all of them.

        for step in range(first, 10_000):
            if regroup.stop_requested(step):
                snapshot.save(step)  # Or torch.save.
                break
            train(step)

    After SIGTERM to any rank, or when the launcher asks for it (SIGTERM or Ctrl-C to ``regroup
    run``, ``regroup drain``, a node that joins), it is true on all ranks at the same step. Call it
    on every rank, at the same place of each step. It needs no collective: it waits for the other
    ranks only after a stop was asked for, for 10 s at most.

    ``step`` must not become smaller: count over all epochs. The first call connects to the store of
    the job, and lets SIGTERM ask for a stop, unless the program has set a handler for it. A rank
    that has ended by ``sys.exit`` or at the end of its script counts as one that begins no more
    steps.

    ``context`` is for a program that makes its own. The one of the first call counts.

    Raises DeadlineExceeded if ranks have not answered, which it names: they have died, or have not
    called this function yet. Not for ElasticLoop, which has its own way to stop.
    """
    requested = ctypes.c_int32()
    blocking(library.regroup_stop_requested, None if context is None else context._handle(),
             unsigned(step, "step", 64), ctypes.byref(requested))
    return bool(requested.value)
