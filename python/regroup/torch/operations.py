# SPDX-License-Identifier: Apache-2.0
"""The operations of torch.distributed as calls of the library."""
from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, NamedTuple, Sequence, Tuple

import torch

from .._library import library
from ..errors import InvalidArgument
from ..process_group import ProcessGroup as NativeGroup
from ..tensors import View, absent
from .buffers import (After, Parts, counts_of, data_of, elements, flat, input_of, listed, operator,
                      output_of, refused_tensor, unit_of)


class Call(NamedTuple):
    """One call of the library, and what it is for."""

    function: Callable[..., int]
    buffers: Tuple[View, ...] = ()
    rest: Tuple[Any, ...] = ()
    after: After = None  #: Copies the result to where the caller wants it.
    results: Sequence[torch.Tensor] = ()


Calls = Iterator[Call]

# Each function takes the group, the options, and what torch.distributed gives besides.


def _all_reduce(_: NativeGroup, opts: Any, tensors: Any) -> Calls:
    for tensor in listed(tensors):
        place, after = output_of(tensor, True)
        buffer = elements(place)
        yield Call(library.regroup_all_reduce_with, (buffer, buffer),
                   (operator(opts, place.dtype),), after, [tensor])


def _broadcast(_: NativeGroup, opts: Any, tensors: Any) -> Calls:
    for tensor in listed(tensors):
        place, after = output_of(tensor, True)
        yield Call(library.regroup_broadcast_with, (data_of(place),), (_root(opts),), after,
                   [tensor])


def _reduce(_: NativeGroup, opts: Any, tensors: Any) -> Calls:
    for tensor in listed(tensors):
        place, after = output_of(tensor, True)
        buffer = elements(place)
        yield Call(library.regroup_reduce_with, (buffer, buffer),
                   (operator(opts, place.dtype), _root(opts)), after, [tensor])


def _all_gather(_: NativeGroup, opts: Any, outputs: Any, inputs: Any) -> Calls:
    if isinstance(inputs, torch.Tensor):
        outputs, inputs = [outputs], [inputs]
    for places, tensor in zip(outputs, inputs):
        parts = Parts(places)
        yield Call(library.regroup_all_gather_with,
                   (data_of(input_of(tensor)), data_of(parts.buffer)), (parts.counts(),),
                   parts.scatter, list(places))


def _all_gather_coalesced(native: NativeGroup, opts: Any, outputs: Any, inputs: Any) -> Calls:
    """``outputs`` has a list for each rank, with a tensor for each input."""
    if any(len(places) != len(inputs) for places in outputs):
        raise InvalidArgument(
            f"all_gather_coalesced of {len(inputs)} tensors needs a list of as many outputs for "
            f"each rank, and has {[len(places) for places in outputs]}")
    return _all_gather(native, opts, [list(places) for places in zip(*outputs)], inputs)


def _all_gather_single(_: NativeGroup, opts: Any, outputs: Any, inputs: Any) -> Calls:
    for output, tensor in zip(listed(outputs), listed(inputs)):
        place, after = output_of(output)
        yield Call(library.regroup_all_gather_with, (data_of(input_of(tensor)), data_of(place)),
                   (None,), after, [output])


def _reduce_scatter(_: NativeGroup, opts: Any, outputs: Any, inputs: Any) -> Calls:
    if isinstance(outputs, torch.Tensor):
        outputs, inputs = [outputs], [inputs]
    for output, tensors in zip(outputs, inputs):
        place, after = output_of(output)
        sizes = [tensor.numel() for tensor in tensors]
        counts = None if len(set(sizes)) == 1 else counts_of(sizes)
        yield Call(library.regroup_reduce_scatter_with, (elements(flat(tensors)), elements(place)),
                   (operator(opts, place.dtype), counts), after, [output])


def _reduce_scatter_single(_: NativeGroup, opts: Any, outputs: Any, inputs: Any) -> Calls:
    for output, tensor in zip(listed(outputs), listed(inputs)):
        place, after = output_of(output)
        yield Call(library.regroup_reduce_scatter_with,
                   (elements(input_of(tensor)), elements(place)),
                   (operator(opts, place.dtype), None), after, [output])


def _gather(native: NativeGroup, opts: Any, outputs: Any, inputs: Any) -> Calls:
    given, root = data_of(input_of(listed(inputs)[0])), _root(opts)
    if native.rank == root:
        parts = Parts(outputs[0])
        yield Call(library.regroup_gather_with, (given, data_of(parts.buffer)), (root,),
                   parts.scatter, list(outputs[0]))
    else:
        yield Call(library.regroup_gather_with, (given, _absent(given)), (root,))


def _gather_single(native: NativeGroup, opts: Any, output: torch.Tensor,
                   given: torch.Tensor) -> Calls:
    buffer, root = data_of(input_of(given)), _root(opts)
    place, after = _absent(buffer), None
    if native.rank == root:
        memory, after = output_of(output)
        place = data_of(memory)
    yield Call(library.regroup_gather_with, (buffer, place), (root,), after, [output])


def _scatter(native: NativeGroup, opts: Any, outputs: Any, inputs: Any) -> Calls:
    output, root = listed(outputs)[0], _root(opts)
    memory, after = output_of(output)
    place = data_of(memory)
    given = data_of(flat(inputs[0])) if native.rank == root else _absent(place)
    yield Call(library.regroup_scatter_with, (given, place), (root,), after, [output])


def _all_to_all(_: NativeGroup, opts: Any, outputs: Any, inputs: Any) -> Calls:
    parts, given = Parts(outputs), flat(inputs)
    unit = unit_of(given)
    counts = (counts_of([tensor.numel() * unit for tensor in inputs]),
              counts_of([size * unit for size in parts.sizes]))
    yield Call(library.regroup_all_to_all_with, (data_of(given), data_of(parts.buffer)), counts,
               parts.scatter, list(outputs))


def _all_to_all_single(native: NativeGroup, opts: Any, output: torch.Tensor, given: torch.Tensor,
                       output_sizes: Sequence[int], input_sizes: Sequence[int]) -> Calls:
    place, after = output_of(output)
    given = input_of(given)
    counts: Tuple[Any, Any] = None, None
    if output_sizes or input_sizes:
        counts = _rows(native, given, input_sizes), _rows(native, place, output_sizes)
    yield Call(library.regroup_all_to_all_with, (data_of(given), data_of(place)), counts, after,
               [output])


def _barrier(_: NativeGroup, opts: Any) -> Calls:
    yield Call(library.regroup_barrier_with)


def _all_reduce_sparse(_: NativeGroup, opts: Any, tensors: Any) -> Calls:
    raise refused_tensor(listed(tensors)[0])


def send(tensors: Any, peer: int, tag: int) -> Calls:
    for tensor in listed(tensors):
        yield Call(library.regroup_send_with, (data_of(input_of(tensor)),), (peer, tag),
                   results=[tensor])


def recv(tensors: Any, peer: int, tag: int) -> Calls:
    for tensor in listed(tensors):
        place, after = output_of(tensor)
        yield Call(library.regroup_recv_with, (data_of(place),), (peer, tag), after, [tensor])


#: By the name in torch.distributed, which differs by release: the operation, and the number of its
#: arguments before the options.
COLLECTIVES: Dict[str, Tuple[Callable[..., Calls], int]] = {
    "allreduce": (_all_reduce, 1),
    "allreduce_coalesced": (_all_reduce, 1),
    "allreduce_sparse": (_all_reduce_sparse, 1),
    "broadcast": (_broadcast, 1),
    "reduce": (_reduce, 1),
    "allgather": (_all_gather, 2),
    "allgather_coalesced": (_all_gather_coalesced, 2),
    "all_gather_single": (_all_gather_single, 2),
    "all_gather_single_coalesced": (_all_gather_single, 2),
    "_allgather_base": (_all_gather_single, 2),
    "allgather_into_tensor_coalesced": (_all_gather_single, 2),
    "reduce_scatter": (_reduce_scatter, 2),
    "reduce_scatter_single": (_reduce_scatter_single, 2),
    "reduce_scatter_single_coalesced": (_reduce_scatter_single, 2),
    "_reduce_scatter_base": (_reduce_scatter_single, 2),
    "reduce_scatter_tensor_coalesced": (_reduce_scatter_single, 2),
    "gather": (_gather, 2),
    "gather_single": (_gather_single, 2),
    "gather_into_tensor": (_gather_single, 2),
    "scatter": (_scatter, 2),
    "alltoall": (_all_to_all, 2),
    "alltoall_base": (_all_to_all_single, 4),
    "all_to_all_single": (_all_to_all_single, 4),
    "barrier": (_barrier, 0),
}


def _root(opts: Any) -> int:
    return int(getattr(opts, "rootRank", opts if isinstance(opts, int) else 0))


def _absent(like: View) -> View:
    return absent(like[0]), None


def _rows(native: NativeGroup, tensor: torch.Tensor, sizes: Sequence[int]) -> Any:
    length = tensor.shape[0] if tensor.dim() else 0
    if not sizes:
        sizes = [length // native.world_size] * native.world_size
    row = tensor.numel() // length * unit_of(tensor) if length else 0
    return counts_of([size * row for size in sizes])
