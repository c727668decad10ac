# SPDX-License-Identifier: Apache-2.0
"""A rendezvous back end of PyTorch's torchrun, whose launchers then meet at a regroup daemon.

    torchrun --nnodes=2 --rdzv-backend=regroup --rdzv-endpoint=HOST:PORT train.py

torchrun finds it as an entry point of the group ``torchrun.handlers``. The rendezvous itself is
PyTorch's, over the store of the daemon, so that settings of ``--rdzv-conf`` have their usual
meaning. No launcher serves the store. The daemon does, with ``regroup serve --serve-torchrun``.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousParameters


def create_handler(params: "RendezvousParameters") -> "RendezvousHandler":
    """A handler for one launcher. Raises ValueError for settings that need another back end."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters, dynamic_rendezvous
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import (
        C10dRendezvousBackend, create_backend)

    class Backend(C10dRendezvousBackend):
        """PyTorch's, under the name that torchrun compares with --rdzv-backend."""

        @property
        def name(self) -> str:
            return params.backend

    if params.get_as_bool("is_host", False):
        raise ValueError("--rdzv-conf is_host: with --rdzv-backend=regroup no launcher serves the "
                         "store; start `regroup serve --serve-torchrun`, and name it in "
                         "--rdzv-endpoint")
    if params.get("store_type", "tcp").strip().lower() != "tcp":
        raise ValueError("--rdzv-conf store_type: with --rdzv-backend=regroup the launchers meet "
                         "at a daemon")
    if not params.endpoint:
        raise ValueError("--rdzv-backend=regroup needs --rdzv-endpoint, the daemon's HOST:PORT")
    config = dict(params.config, is_host="false")
    over_store = RendezvousParameters(backend=params.backend, endpoint=params.endpoint,
                                      run_id=params.run_id, min_nodes=params.min_nodes,
                                      max_nodes=params.max_nodes, local_addr=params.local_addr,
                                      **config)
    _, store = create_backend(over_store)
    return dynamic_rendezvous.create_handler(store, Backend(store, params.run_id), over_store)


def entry_point() -> Callable[["RendezvousParameters"], "RendezvousHandler"]:
    """torchrun loads and calls this to get the function that creates handlers."""
    return create_handler
