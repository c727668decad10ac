# SPDX-License-Identifier: Apache-2.0
"""Snapshots of models and optimizers of PyTorch, replicated or divided among the ranks."""
from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch

from ..context import Context
from ..errors import InvalidArgument
from ..snapshot import SnapshotHandle
from .safetensors_files import NAMES as DTYPES, SafetensorsFolder
from .values import decode, encode

__all__ = ["Snapshot"]

#: Where a part keeps what is no tensor.
_VALUES = "regroup.values"
#: Wrappers put these into names.
_WRAPPED = ("_orig_mod.", "_checkpoint_wrapped_module.")


class Box(NamedTuple):
    """The memory of a tensor on this rank, and the place of it in the whole tensor."""
    memory: torch.Tensor
    offset: Tuple[int, ...]
    global_shape: Tuple[int, ...]


def is_divided(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor."""
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")


def box_of(tensor: torch.Tensor, name: str) -> Optional[Box]:
    """None if this rank has nothing of it."""
    tensor = tensor.detach()
    offset = (0,) * tensor.dim()
    shape = tuple(tensor.shape)
    if is_divided(tensor):
        if any(placement.is_partial() for placement in tensor.placements):
            raise InvalidArgument(f"{name} is a DTensor with partial sums, which no step ends with")
        chunks = tensor.__create_chunk_list__()
        tensor = tensor.to_local()
        if not chunks or tensor.numel() == 0:
            return None
        offset = tuple(chunks[0].offsets)
    if tensor.layout != torch.strided:
        raise InvalidArgument(f"{name} is of layout {tensor.layout}; snapshots have dense tensors")
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
        offset, shape = offset + (0,), shape + (2,)
    if tensor.dtype not in DTYPES:
        raise InvalidArgument(f"{name} is of type {tensor.dtype}, which snapshots do not have")
    return Box(tensor, offset, shape)


def arguments_of(name: str, box: Box) -> Dict[str, Any]:
    """For SnapshotHandle.add_memory and read_memory; the memory is contiguous."""
    memory = box.memory
    device: Any = "cpu"
    if memory.device.type == "cuda":
        device = ("cuda", memory.device.index)
    elif memory.device.type != "cpu":
        raise InvalidArgument(f"{name} is on {memory.device}; snapshots are of CPUs and of CUDA")
    return {"name": name, "dtype": DTYPES[memory.dtype], "address": memory.data_ptr(),
            "shape": tuple(memory.shape), "offset": box.offset, "global_shape": box.global_shape,
            "device": device}


def read_box(handle: SnapshotHandle, name: str, box: Box) -> None:
    """Reads into the box, in whatever order its elements lie in memory."""
    if box.memory.is_contiguous():
        handle.read_memory(**arguments_of(name, box))
        return
    plain = torch.empty(box.memory.shape, dtype=box.memory.dtype, device=box.memory.device)
    handle.read_memory(**arguments_of(name, Box(plain, box.offset, box.global_shape)))
    box.memory.copy_(plain)


class _Tree:
    """A value: its tensors by name, and the rest, in which None stands for each of them. A leaf is
    the place of a tensor in the rest, its type and its shape."""

    def __init__(self, value: Any, name: str) -> None:
        self.tensors: Dict[str, torch.Tensor] = {}
        self.leaves: List[Tuple[Tuple[Any, ...], torch.dtype, Tuple[int, ...]]] = []
        self.rest = self._without_tensors(value, (), name)

    def _without_tensors(self, value: Any, path: Tuple[Any, ...], name: str) -> Any:
        if isinstance(value, torch.Tensor) and value.numel() > 0:
            self.tensors[name] = value
            self.leaves.append((path, value.dtype, tuple(value.shape)))
            return None
        if isinstance(value, dict):
            return {key: self._without_tensors(item, path + (key,), f"{name}.{key}")
                    for key, item in value.items()}
        if type(value) is list:
            return [self._without_tensors(item, path + (i,), f"{name}.{i}")
                    for i, item in enumerate(value)]
        return value


def _name_of(path: Tuple[Any, ...], part: str) -> str:
    return ".".join([part, *(str(key) for key in path)])


def _place(rest: Any, path: Tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        rest = rest[key]
    rest[path[-1]] = value


def _plain(name: str) -> str:
    for word in _WRAPPED:
        name = name.replace(word, "")
    return name


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return module.module
    return module


class Snapshot:
    """The state of a training, kept beside the workers::

        snapshot = Snapshot(model=model, optimizer=optimizer, scheduler=scheduler)
        first = snapshot.load() or 0
        for step in range(first, 10_000):
            if step % 10 == 0:
                snapshot.save(step)
            ...

    ``parts`` are models, optimizers, and whatever else has ``state_dict`` and ``load_state_dict``.
    Models may be replicated or consist of DTensors (``fully_shard``, tensor parallel): each rank
    saves what it has, and ``load`` finds it under another number of ranks or another mesh.
    Parameters are read and written where they are. Give optimizers together with their models.

    ``replicated``: the state of all parts is the same on all ranks, so that each node keeps it
    once. By default that is so for a model in ``DistributedDataParallel``; say ``False`` if another
    part differs from rank to rank.

    All ranks make it, load and save alike, in one thread. ``name``, ``folder`` and ``threads`` are
    those of regroup.Snapshot.
    """

    def __init__(self, *, context: Optional[Context] = None, name: str = "state",
                 replicated: Optional[bool] = None, folder: Optional[str] = None, threads: int = 0,
                 **parts: Any) -> None:
        if not parts:
            raise InvalidArgument("there is nothing to save: Snapshot(model=model, ...)")
        for key, part in parts.items():
            _check(key, part)
        self._parts = parts
        if replicated is None:
            replicated = any(isinstance(part, torch.nn.parallel.DistributedDataParallel)
                             for part in parts.values())
        self._handle = SnapshotHandle(context, name=name, replicated=replicated, folder=folder,
                                      threads=threads)

    def save(self, step: int) -> bool:
        """Copies the state; it may change when this returns. False if the step is not kept, because
        other ranks have not saved the one before."""
        self._handle.clear()
        values: Dict[str, Any] = {}
        kept: List[torch.Tensor] = []  # Until they are copied.
        for key in self._parts:
            tree = _Tree(self._state_of(key), key)
            values[key] = (tree.rest, tree.leaves)
            for name, tensor in tree.tensors.items():
                box = box_of(tensor, name)
                if box is None:
                    continue
                box = box._replace(memory=box.memory.contiguous())
                kept.append(box.memory)
                self._handle.add_memory(**arguments_of(name, box))
        self._handle.set_bytes(_VALUES, encode(values, "the state"))
        return self._handle.save(step)

    def load(self) -> Optional[int]:
        """Gives all parts the newest step that is whole, and returns it. None if there is none:
        then nothing has changed. Blocks; a collective of all ranks."""
        step = self._handle.open()
        if step is None:
            return None
        values = decode(self._handle.get_bytes(_VALUES))
        missing = [key for key in self._parts if key not in values]
        if missing:
            raise InvalidArgument(f"the snapshot of step {step} has no {missing[0]}; it has "
                                  f"{', '.join(sorted(values))}")
        for key in self._parts:
            self._load_part(key, *values[key])
        return step

    def load_files(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        """Fills the models from the safetensors files of a folder: a model of Hugging Face, what
        torch.distributed.checkpoint has written with ``HuggingFaceStorageWriter``, or a version in
        the folder of snapshots. A training begins so; it goes on by ``load``. The names in the
        files may begin with that of the part, such as "model.". Each rank reads what it has of the
        model, and casts it. If a tensor is not there, InvalidArgument names it, and nothing has
        changed. Only ``load`` verifies hashes."""
        files = SafetensorsFolder(folder)
        found = []
        for key, part in self._parts.items():
            if not isinstance(part, torch.nn.Module):
                continue
            for name, tensor in self._state_of(key).items():
                box = box_of(tensor, name) if isinstance(tensor, torch.Tensor) else None
                if box is None:
                    continue
                theirs = f"{key}.{name}" if f"{key}.{name}" in files else name
                if theirs not in files:
                    raise InvalidArgument(f"{os.fspath(folder)} has no tensor {name} of {key}")
                if not files.has_all_of(theirs, box.memory, box.offset):
                    raise InvalidArgument(f"{os.fspath(folder)} does not have all of {theirs}, of "
                                          f"which {key} has {tuple(box.memory.shape)} from "
                                          f"{box.offset}")
                found.append((theirs, box))
        for name, box in found:
            files.read(name, box.memory, box.offset)

    @property
    def whole_step(self) -> Optional[int]:
        """The newest step that every rank has saved, as far as this rank knows."""
        return self._handle.whole_step()

    @property
    def kept_step(self) -> Optional[int]:
        """The newest step of which each part is on two nodes, too, as far as this rank knows."""
        return self._handle.kept_step()

    def wait_until_whole(self, timeout: float) -> bool:
        """Waits until every rank has saved what this rank saved last; ``timeout`` in seconds."""
        return self._handle.wait_until_whole(timeout)

    def wait_until_kept(self, timeout: float) -> bool:
        """Waits until the last save is kept, as ``kept_step`` says. False if that takes longer, or
        no copy is made."""
        return self._handle.wait_until_kept(timeout)

    def close(self) -> None:
        """The agent keeps the saved state."""
        self._handle.close()

    def _state_of(self, key: str) -> Any:
        part = self._parts[key]
        if isinstance(part, torch.nn.Module):
            return {_plain(name): value
                    for name, value in _unwrapped(part).state_dict().items()}
        if isinstance(part, torch.optim.Optimizer):
            return self._state_of_optimizer(part)
        return {"value": part} if isinstance(part, torch.Tensor) else part.state_dict()

    def _parameter_names(self, optimizer: torch.optim.Optimizer) -> List[List[str]]:
        """Of each group. A parameter has the same name on all ranks, whatever they hold of it."""
        names: Dict[int, str] = {}
        for key, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                for name, parameter in _unwrapped(part).named_parameters():
                    names.setdefault(id(parameter), f"{key}.{_plain(name)}")
        return [[names.get(id(parameter), f"{group}.{i}")
                 for i, parameter in enumerate(options["params"])]
                for group, options in enumerate(optimizer.param_groups)]

    def _state_of_optimizer(self, optimizer: torch.optim.Optimizer) -> Dict[str, Any]:
        names = self._parameter_names(optimizer)
        state = {}
        groups = []
        for group, its_names in zip(optimizer.param_groups, names):
            groups.append({**{key: value for key, value in group.items() if key != "params"},
                           "params": its_names})
            for parameter, name in zip(group["params"], its_names):
                if parameter in optimizer.state:
                    state[name] = dict(optimizer.state[parameter])
        return {"state": state, "param_groups": groups}

    def _load_part(self, key: str, rest: Any, leaves: List[Any]) -> None:
        part = self._parts[key]
        if isinstance(part, torch.nn.Module):
            self._load_model(key, _unwrapped(part), rest, leaves)
        elif isinstance(part, torch.optim.Optimizer):
            self._load_optimizer(key, part, rest, leaves)
        elif isinstance(part, torch.Tensor):
            self._read(f"{key}.value", part)
        else:
            for path, dtype, shape in leaves:
                value = torch.empty(shape, dtype=dtype)
                self._read(_name_of(path, key), value)
                _place(rest, path, value)
            part.load_state_dict(rest)

    def _read(self, name: str, tensor: torch.Tensor) -> None:
        box = box_of(tensor, name)
        if box is not None:
            read_box(self._handle, name, box)

    def _load_model(self, key: str, model: torch.nn.Module, rest: Any, leaves: List[Any]) -> None:
        state = model.state_dict()
        ours = {_plain(name): name for name in state}
        theirs = {path[0] for path, _, _ in leaves if len(path) == 1}
        tensors = {name for name, value in ((_plain(name), value) for name, value in state.items())
                   if isinstance(value, torch.Tensor) and value.numel() > 0}
        if tensors != theirs:
            odd = sorted(tensors ^ theirs)[0]
            raise InvalidArgument(f"the snapshot is of another {key}: {odd} is only in "
                                  f"{'this model' if odd in tensors else 'the snapshot'}")
        in_place = {value.data_ptr() for value in [*model.parameters(), *model.buffers()]
                    if not is_divided(value)}
        for path, _, shape in leaves:
            tensor = state[ours[path[0]]] if len(path) == 1 else None
            if tensor is not None and tuple(tensor.shape) != tuple(shape):
                raise InvalidArgument(f"{key}.{path[0]} has the shape {tuple(tensor.shape)}, and in "
                                      f"the snapshot {tuple(shape)}")
            value = torch.empty(shape) if tensor is None else tensor
            self._read(_name_of(path, key), value)
        others = {ours[name]: value for name, value in rest.items()
                  if name in ours and name not in tensors}
        copies = {name: value for name, value in state.items()
                  if isinstance(value, torch.Tensor) and not is_divided(value)
                  and value.numel() > 0 and value.data_ptr() not in in_place}
        if others or copies:
            model.load_state_dict({**others, **copies}, strict=False)

    def _load_optimizer(self, key: str, optimizer: torch.optim.Optimizer, rest: Any,
                        leaves: List[Any]) -> None:
        names = self._parameter_names(optimizer)
        flat = [name for group in names for name in group]
        parameters = dict(zip(flat, (parameter for group in optimizer.param_groups
                                     for parameter in group["params"])))
        if [group["params"] for group in rest["param_groups"]] != names:
            raise InvalidArgument(f"the snapshot is of another {key}: its groups have other "
                                  f"parameters")
        for path, dtype, shape in leaves:
            if path[0] != "state":  # A learning rate that is a tensor.
                value = torch.empty(shape, dtype=dtype)
            else:
                value = self._room_for(optimizer, parameters[path[1]], path[2:], dtype, shape)
            self._read(_name_of(path, key), value)
            _place(rest, path, value)
        numbers = {name: i for i, name in enumerate(flat)}
        optimizer.load_state_dict({
            "state": {numbers[name]: state for name, state in rest["state"].items()},
            "param_groups": [{**group, "params": [numbers[name] for name in group["params"]]}
                             for group in rest["param_groups"]]})
        for name, state in rest["state"].items():
            loaded = optimizer.state[parameters[name]]
            for word, value in state.items():
                # PyTorch casts to the type of the parameter, and so loses bits.
                if isinstance(value, torch.Tensor) and loaded[word].dtype != value.dtype:
                    loaded[word] = value.to(loaded[word].device)

    @staticmethod
    def _room_for(optimizer: torch.optim.Optimizer, parameter: torch.Tensor,
                  keys: Tuple[Any, ...], dtype: torch.dtype,
                  shape: Tuple[int, ...]) -> torch.Tensor:
        """A tensor for the state of a parameter, divided as the parameter is."""
        present = optimizer.state.get(parameter, {})
        value = present.get(keys[0]) if len(keys) == 1 else None
        if isinstance(value, torch.Tensor) and tuple(value.shape) == tuple(shape) \
                and value.dtype == dtype:
            return value
        if tuple(parameter.shape) == tuple(shape):
            return torch.zeros_like(parameter, dtype=dtype, memory_format=torch.preserve_format,
                                    requires_grad=False).detach()
        return torch.empty(shape, dtype=dtype)


def _check(key: str, part: Any) -> None:
    if isinstance(part, torch.nn.Module):
        # Not imported here, which would take long: without the import there is none.
        kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
        if kind is not None and any(isinstance(module, kind) for module in part.modules()):
            raise InvalidArgument(
                f"{key} is of type FullyShardedDataParallel, whose parameters are flat pieces of "
                f"several: use fully_shard, or torch.distributed.checkpoint with "
                f"regroup.torch.SnapshotWriter and SnapshotReader")
    elif not isinstance(part, torch.Tensor) and not (
            hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
        raise InvalidArgument(f"{key} has no state_dict and load_state_dict")
