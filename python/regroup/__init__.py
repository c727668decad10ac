# SPDX-License-Identifier: Apache-2.0
"""regroup's worker SDK for Python: collectives, data-parallel and elastic training.

``regroup run`` starts the ranks of a program. docs/python.md is the guide.
"""
from __future__ import annotations

import json
import os
import sys
from typing import Any, Dict, Union

from . import _library
from ._calls import result_bytes as _result_bytes
from ._library import check as _check, library as _c
from .checkpoint import Checkpoint
from .context import Context
from .ddp import DistributedDataParallel
from .elastic import ElasticLeave, ElasticLoop, ElasticRound, ElasticStep
from .errors import (Closed, DeadlineExceeded, Disconnected, Error, Fenced, InvalidArgument,
                     Overloaded, SystemFailure)
from .process_group import ProcessGroup, Work
from .sampler import DistributedSampler
from .snapshot import Snapshot
from .stop import stop_requested
from .store import Store

__version__ = _library.version

__all__ = [
    "Checkpoint", "Closed", "Context", "DeadlineExceeded", "Disconnected",
    "DistributedDataParallel", "DistributedSampler", "ElasticLeave", "ElasticLoop", "ElasticRound",
    "ElasticStep", "Error", "Fenced", "InvalidArgument", "Overloaded", "ProcessGroup",
    "Snapshot", "Store", "SystemFailure", "Work", "flight_record", "report_fatal",
    "save_flight_record", "stop_requested"
]

_FATAL_KINDS = ("user_error", "retry", "bad_node")


def flight_record() -> Dict[str, Any]:
    """The last operations of this process's groups. Any thread; does not wait for any operation."""
    parsed: Dict[str, Any] = json.loads(_result_bytes(_c.regroup_flight_record))
    return parsed


def save_flight_record(path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes the same to a file, which is never incomplete."""
    _check(_c.regroup_save_flight_record(_library.text(os.fspath(path), "path")))


def report_fatal(kind: str, text: str = "") -> None:
    """Ends this process at once and tells the launcher why: "user_error" ends the job, "retry"
    costs no restart, "bad_node" replaces the node. Nothing of Python runs after it."""
    if kind not in _FATAL_KINDS:
        raise InvalidArgument(f"kind is {kind!r}, which is none of {', '.join(_FATAL_KINDS)}")
    sys.stdout.flush()
    sys.stderr.flush()
    _check(_c.regroup_report_fatal(_FATAL_KINDS.index(kind), _library.text(text, "text")))
