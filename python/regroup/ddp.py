# SPDX-License-Identifier: Apache-2.0
"""Replicas that start equal and get equal gradients."""
from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from . import _library, tensors
from ._calls import Handle, blocking, result
from ._library import check, library
from .errors import InvalidArgument
from .process_group import ProcessGroup
from .tensors import view


class DistributedDataParallel:
    """Averages gradients over the ranks, in buckets that travel during the backward pass.

    Gives every rank the values and ``buffers`` of rank 0; blocks until all ranks have called it.
    ``parameters`` are pairs of a value and its gradient. ``wire`` is "float16" or "bfloat16":
    gradients are sent and added in this type.
    """

    def __init__(self, group: ProcessGroup, parameters: Sequence[Tuple[Any, Any]],
                 buffers: Sequence[Any] = (), *, bucket_bytes: int = 0,
                 first_bucket_bytes: int = 0, sum_gradients: bool = False,
                 fixed_buckets: bool = False, unused_parameters: bool = False,
                 broadcast_buffers_each_step: bool = False, wire: Optional[str] = None,
                 stream: Optional[int] = None) -> None:
        if wire not in (None, "float16", "bfloat16"):
            raise InvalidArgument(f"wire is {wire!r}, which is none of None, float16, bfloat16")
        options = _library.DdpOptions(
            ctypes.sizeof(_library.DdpOptions), bucket_bytes, first_bucket_bytes,
            int(sum_gradients), int(fixed_buckets), int(unused_parameters),
            int(broadcast_buffers_each_step), tensors.DTYPES[wire] if wire else 0, stream)
        self._kept: List[Any] = []
        pairs = (_library.Parameter * len(parameters))(*(
            _library.Parameter(self._keep(value, "a value"), self._keep(gradient, "a gradient"))
            for value, gradient in parameters))
        more = (_library.Tensor * len(buffers))(*(self._keep(buffer, "a buffer")
                                                  for buffer in buffers))
        self._handle = Handle("ddp", library.regroup_ddp_create, group._handle(), pairs,
                              len(pairs), more, len(more), ctypes.byref(options))
        group._children.add(self)

    def _keep(self, value: Any, name: str) -> _library.Tensor:
        tensor, keeper = view(value, name, True)
        self._kept.append(keeper)
        return tensor

    def gradient_ready(self, index: int) -> None:
        """Reports that a gradient is final. Starts the reduction of its bucket if that is
        complete."""
        check(library.regroup_ddp_gradient_ready(self._handle(), index))

    def gradient_unused(self, index: int) -> None:
        """Reports that a parameter gets no gradient in this step; with ``unused_parameters``."""
        check(library.regroup_ddp_gradient_unused(self._handle(), index))

    def finish_step(self) -> None:
        """Waits for this step's buckets; then every gradient holds its reduction."""
        blocking(library.regroup_ddp_finish_step, self._handle())

    def reduce_gradients(self) -> None:
        """Reports every gradient, then does ``finish_step``."""
        blocking(library.regroup_ddp_reduce_gradients, self._handle())

    def was_used(self, index: int) -> bool:
        """Whether any rank had a gradient for this parameter in the last step."""
        return bool(result(library.regroup_ddp_was_used, self._handle(), index))

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """In the block, gradients accumulate on this rank alone. Every rank does the same."""
        check(library.regroup_ddp_no_sync_begin(self._handle()))
        try:
            yield
        finally:
            check(library.regroup_ddp_no_sync_end(self._handle()))

    def broadcast_parameters(self, root: int = 0) -> None:
        """Gives every rank the parameters and buffers of ``root`` again."""
        blocking(library.regroup_ddp_broadcast_parameters, self._handle(),
                 _library.unsigned(root, "root"))

    def broadcast_buffers(self) -> None:
        """Gives every rank the buffers of rank 0 again."""
        blocking(library.regroup_ddp_broadcast_buffers, self._handle())

    def close(self) -> None:
        """In the middle of a step it aborts the group."""
        self._handle.free()
