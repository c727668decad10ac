# SPDX-License-Identifier: Apache-2.0
"""regroup for PyTorch: the back end "regroup" of torch.distributed, and elastic training.

Not imported by ``import regroup``: this module imports torch. docs/python.md is the guide.
"""
from __future__ import annotations

from typing import Any

from .. import _torch_watch
from . import backend
from .elastic import DistributedDataParallel, Elastic, wrap_ddp
from .loader import Batches
from .snapshot import Snapshot
from .state import average_gradients, register_state

__all__ = [
    "Batches", "DistributedDataParallel", "Elastic", "ShardedElastic", "Snapshot", "SnapshotReader",
    "SnapshotWriter", "average_gradients", "register_state", "wrap_ddp"
]


def __getattr__(name: str) -> Any:
    # Their import of torch.distributed.checkpoint takes long, and old releases lack it.
    if name in ("SnapshotReader", "SnapshotWriter"):
        from . import snapshot_storage
        return getattr(snapshot_storage, name)
    if name == "ShardedElastic":
        from .sharded import ShardedElastic
        return ShardedElastic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


backend.register()
_torch_watch.start()
