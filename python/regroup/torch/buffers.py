# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch as buffers of the library, and results as the tensors that the caller gave."""
from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from .. import _library
from .._library import CPU, Tensor
from ..errors import InvalidArgument
from ..tensors import DTYPES, View

NAME = "regroup"
#: Copies a result to where the caller wants it.
After = Optional[Callable[[], object]]
_NUMBERS: Dict[torch.dtype, int] = {
    getattr(torch, name): number for name, number in DTYPES.items() if hasattr(torch, name)}
_UINT8 = DTYPES["uint8"]
_OPS = {"SUM": 0, "PRODUCT": 1, "MIN": 2, "MAX": 3, "AVG": 4, "BAND": 5, "BOR": 6, "BXOR": 7}
#: The operations on bytes that reduce truth values.
_OPS_OF_BOOL = {"SUM": 3, "MAX": 3, "BOR": 3, "MIN": 2, "PRODUCT": 2, "BAND": 2, "BXOR": 7}


def listed(tensors: Any) -> List[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def refused_tensor(tensor: torch.Tensor) -> InvalidArgument:
    if tensor.layout != torch.strided:
        return InvalidArgument(f"the back end {NAME} has no operations for tensors of layout "
                               f"{tensor.layout}: give tensor.to_dense(), and build layers such as "
                               f"Embedding with sparse=False")
    return InvalidArgument(f"the back end {NAME} is for tensors on the CPU, and this one is on "
                           f"{tensor.device}: with PyTorch 2.14 or newer, initialise the process "
                           f"group with \"cpu:{NAME},cuda:nccl\"")


def _checked(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cpu or tensor.layout != torch.strided:
        raise refused_tensor(tensor)
    return tensor


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether its elements lie in memory in their order, and are meant as they lie there."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def input_of(tensor: torch.Tensor) -> torch.Tensor:
    return _checked(tensor).detach().resolve_conj().resolve_neg().contiguous()


def output_of(tensor: torch.Tensor, reads: bool = False) -> Tuple[torch.Tensor, After]:
    """Plain memory for a result, and what copies it into ``tensor``."""
    tensor = _checked(tensor).detach()
    if _is_plain(tensor):
        return tensor, None
    place = input_of(tensor) if reads else torch.empty(tensor.shape, dtype=tensor.dtype)
    return place, lambda: tensor.copy_(place)


def elements(tensor: torch.Tensor) -> View:
    """For reductions."""
    number = _NUMBERS.get(tensor.dtype)
    if number is None:
        if tensor.dtype != torch.bool:
            raise InvalidArgument(f"the back end {NAME} reduces no tensors of type {tensor.dtype}; "
                                  f"it has {', '.join(DTYPES)} and bool")
        number = _UINT8
    return Tensor(tensor.data_ptr(), tensor.numel(), number, CPU, 0), tensor


def data_of(tensor: torch.Tensor) -> View:
    """For what only moves data: any type."""
    number = _NUMBERS.get(tensor.dtype)
    if number is not None:
        return Tensor(tensor.data_ptr(), tensor.numel(), number, CPU, 0), tensor
    return (Tensor(tensor.data_ptr(), tensor.numel() * tensor.element_size(), _UINT8, CPU, 0),
            tensor)


def unit_of(tensor: torch.Tensor) -> int:
    """Elements of ``data_of`` for each element of the tensor."""
    return 1 if tensor.dtype in _NUMBERS else tensor.element_size()


def operator(opts: Any, dtype: torch.dtype) -> int:
    given = getattr(opts, "reduceOp", opts)
    given = getattr(given, "op", given)
    name = "SUM" if given is None else getattr(given, "name", str(given))
    known = _OPS_OF_BOOL if dtype == torch.bool else _OPS
    if name not in known:
        raise InvalidArgument(f"the back end {NAME} has no reduction {name} for {dtype}; it has "
                              f"{', '.join(known)}")
    return known[name]


def joined(afters: Sequence[After]) -> After:
    real = [after for after in afters if after is not None]
    if len(real) < 2:
        return real[0] if real else None
    return lambda: [after() for after in real]


def counts_of(values: Sequence[int]) -> Any:
    return (_library.c_size_t * len(values))(*values)


def flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([input_of(tensor).reshape(-1) for tensor in tensors])


class Parts:
    """Results of all ranks in one buffer, which are copied into their tensors."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = [_checked(tensor).detach() for tensor in tensors]
        self.sizes = [tensor.numel() for tensor in self.tensors]
        self.buffer = torch.empty(sum(self.sizes), dtype=self.tensors[0].dtype)

    def counts(self) -> Any:
        """None where the rows are equally long."""
        if len(set(self.sizes)) == 1:
            return None
        return counts_of([size * unit_of(self.buffer) for size in self.sizes])

    def scatter(self) -> None:
        for tensor, part in zip(self.tensors, self.buffer.split(self.sizes)):
            tensor.copy_(part.view(tensor.shape))
