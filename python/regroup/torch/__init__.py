# SPDX-License-Identifier: Apache-2.0
"""regroup for PyTorch: the back end "regroup" of torch.distributed, and elastic training.

Not imported by ``import regroup``: this module imports torch. docs/python.md is the guide.
"""
from __future__ import annotations

from . import backend
from .elastic import DistributedDataParallel, Elastic, wrap_ddp
from .loader import Batches
from .state import average_gradients, register_state

__all__ = [
    "Batches", "DistributedDataParallel", "Elastic", "average_gradients", "register_state",
    "wrap_ddp"
]

backend.register()
