# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers of PyTorch as state of an ElasticLoop."""
from __future__ import annotations

import sys
from typing import Any, Callable, Dict, Iterable, List, Optional

import torch

from ..elastic import ElasticLoop
from ..errors import InvalidArgument
from ..process_group import ProcessGroup
from ..tensors import DTYPES
from .snapshot import is_divided
from .values import decode, encode

__all__ = ["average_gradients", "register_state"]


def register_state(loop: ElasticLoop, model: torch.nn.Module,
                   optimizer: Optional[torch.optim.Optimizer] = None, *parts: Any,
                   name: str = "") -> None:
    """Registers a model, its optimizer, and other ``parts`` that have ``state_dict`` and
    ``load_state_dict``, such as a learning rate scheduler or a ``GradScaler``.

    Parameters are registered in place, so do not move the model to another device or dtype after
    that. Buffers, such as running means, may change before ``commit``; ``average_gradients`` and
    ``Elastic`` make them equal. The state of the optimizer and of the parts is copied when it is
    compared or sent: change it only in the function given to ``commit``. It may consist of what
    ``regroup.torch.values`` names; other types are refused when a rank first sends or compares it.
    ``name`` goes before all names, for programs with several models.
    """
    refuse_divided(model)
    for key, parameter in model.named_parameters():
        if parameter.numel() > 0:
            loop.register_state(f"{name}{key}", _memory(parameter, key))
    for key, buffer in model.named_buffers():
        if buffer.numel() > 0:
            loop.register_buffer(f"{name}{key}", _memory(buffer, key))
    numbered = [("optimizer", optimizer)] if optimizer is not None else []
    numbered += [(f"{type(part).__name__}.{i}", part) for i, part in enumerate(parts)]
    for key, part in numbered:
        if not hasattr(part, "state_dict") or not hasattr(part, "load_state_dict"):
            raise InvalidArgument(f"{key} has no state_dict and load_state_dict; register it with "
                                  f"save= and load= functions of your own")
        loop.register_state(
            f"{name}{key}", load=lambda data, part=part: part.load_state_dict(decode(data)),
            save=lambda part=part, key=key: encode(part.state_dict(), f"the state of {key}"))


#: Wrappers whose parameters are not those of the model, and the modules that define them.
_WRAPPERS = (("torch.distributed.fsdp", "FullyShardedDataParallel"),
             ("torch.distributed.fsdp", "FSDPModule"))
_WAY_OUT = ("each rank holds a part of it, so no survivor could give it to a new process: write "
            "checkpoints with torch.distributed.checkpoint, and run the script without the loop, "
            "so that all ranks start again from them")


def refuse_divided(model: torch.nn.Module) -> None:
    """Refuses a model of which each rank holds a part."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise InvalidArgument("give the model itself, and not its DistributedDataParallel, which "
                              "belongs to one round: model.module")
    for key, module in model.named_modules():
        for place, wrapper in _WRAPPERS:
            # Not imported here, which would take long: without the import there is none.
            kind = getattr(sys.modules.get(place), wrapper, None)
            if kind is not None and isinstance(module, kind):
                raise InvalidArgument(f"{key or 'the model'} is of type {wrapper}: {_WAY_OUT}")
    for key, parameter in model.named_parameters():
        if type(parameter).__name__ == "DTensor" or type(parameter.data).__name__ == "DTensor":
            raise InvalidArgument(f"{key} is a DTensor: {_WAY_OUT}")


def _memory(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The elements of a tensor in the order in which they lie in memory, as a type of regroup."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        raise InvalidArgument(f"{name} is of layout {tensor.layout}; regroup has dense tensors")
    if not tensor.is_contiguous():
        extent = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        if extent + 1 != tensor.numel():
            raise InvalidArgument(f"{name} has gaps in memory; replace it by {name}.contiguous()")
        tensor = torch.as_strided(tensor, (tensor.numel(),), (1,), tensor.storage_offset())
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor if str(tensor.dtype)[len("torch."):] in DTYPES else tensor.view(torch.uint8)


def average_gradients(model: torch.nn.Module, group: ProcessGroup) -> None:
    """Averages the gradients over the ranks of ``group``, and gives all ranks the buffers of rank
    0, as DistributedDataParallel does. Call it after ``backward`` and before ``commit``.

    All gradients of one dtype go in one collective, always in the same order, so a recovery changes
    no bit of a training. A parameter without a gradient counts as zero.
    """
    gradients = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
    for tensors in _by_dtype(gradients):
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        group.all_reduce(flat, "avg")
        _copy_back(flat, tensors)
    equalize_buffers(model, broadcast_in(group))


def broadcast_in(group: ProcessGroup) -> Callable[[torch.Tensor], Any]:
    """For ``equalize_buffers``."""
    return lambda flat: group.broadcast(_memory(flat, "the buffers"), 0)


def equalize_buffers(model: torch.nn.Module, broadcast: Callable[[torch.Tensor], Any]) -> None:
    """Gives all ranks the buffers of rank 0, by ``broadcast`` of a flat tensor from rank 0. Those
    that are DTensors stay as they are."""
    for tensors in _by_dtype(buffer for buffer in model.buffers() if not is_divided(buffer)):
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        broadcast(flat)
        _copy_back(flat, tensors)


def _by_dtype(tensors: Iterable[torch.Tensor]) -> List[List[torch.Tensor]]:
    groups: Dict[torch.dtype, List[torch.Tensor]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor.detach())
    return list(groups.values())


def _copy_back(flat: torch.Tensor, tensors: List[torch.Tensor]) -> None:
    first = 0
    for tensor in tensors:
        tensor.copy_(flat[first:first + tensor.numel()].view_as(tensor))
        first += tensor.numel()
