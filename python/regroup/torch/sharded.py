# SPDX-License-Identifier: Apache-2.0
"""Training of models that are divided among the ranks, which goes on in the same processes."""
from __future__ import annotations

import dataclasses
import gc
import math
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from .. import report_fatal
from ..elastic import ElasticLoop, ElasticRound, ElasticStep
from ..errors import InvalidArgument
from .holding import NAME, Holding
from .rounds import Rounds, default_backend
from .seeds import Seed
from .snapshot import Snapshot
from .state import equalize_buffers
from .training import Training

__all__ = ["ShardedElastic"]

#: The sizes of the dimensions of a mesh, in order. One may be -1: as large as the ranks allow.
Dimensions = Mapping[str, int]
#: How long the ranks wait, when a node joins or leaves, until their state is on two nodes.
_KEPT_LIMIT_S = 30.0


class _Samples:
    """A part of the snapshot: the samples that are consumed."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> Dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: Dict[str, int]) -> None:
        self.count = state["count"]


class ShardedElastic(Training):
    """A training loop for FSDP2, HSDP and tensor parallelism that survives the loss of ranks::

        def build(mesh):
            model = Transformer(config)
            for block in model.blocks:
                fully_shard(block, mesh=mesh)
            fully_shard(model, mesh=mesh)
            return model, torch.optim.AdamW(model.parameters())

        elastic = ShardedElastic(build, snapshot_every=10)
        batches = elastic.batches(dataset, batch_size=64)
        for step in elastic.steps(until=1000):
            with step:
                inputs, targets = next(batches)
                elastic.optimizer.zero_grad()
                loss = loss_function(elastic.model(inputs), targets)
                loss.backward()
                with step.update():
                    elastic.optimizer.step()

    In each round, torch.distributed is initialised, and ``build`` makes the model for the mesh of
    the round: it returns a model, or a model, its optimizer, and other parts that have
    ``state_dict`` and ``load_state_dict``. Then they get the newest step that the agents have in
    memory. So the other processes stay, and a loss costs the steps since the last snapshot. A node
    that joins, or leaves in order, costs no step. The number of ranks may change: the state is
    divided anew.

    Buffers that are not divided, such as running means, are those of rank 0 on all ranks after each
    step, as DistributedDataParallel keeps them.

    ``mesh`` gives the dimensions, such as ``{"replicate": -1, "shard": 8}``, or is a function that
    returns them for a number of ranks. ``data_dims`` names those over which the samples of a step
    are divided: all of them, unless ranks work together on the same samples (tensor parallelism).
    ``snapshot_every`` saves the state every so many steps. ``seed`` decides the initial state, for
    which ``build`` is called with the same random numbers on all ranks, and those of each step; the
    default is that of rank 0's ``torch.manual_seed``. ``timeout``, in seconds, limits each
    operation. ``device`` is the type of the mesh's devices, "cpu" or "cuda", and ``backend`` as in
    ``Elastic``.
    """

    def __init__(self, build: Callable[[Any], Any], *,
                 mesh: Union[Dimensions, Callable[[int], Dimensions], None] = None,
                 data_dims: Optional[Sequence[str]] = None, snapshot_every: int,
                 device: str = "cpu", backend: Optional[str] = None, seed: Optional[int] = None,
                 timeout: Optional[float] = None) -> None:
        if snapshot_every < 1:
            raise InvalidArgument(f"snapshot_every is {snapshot_every}: without snapshots, a loss "
                                  f"would take the parts of the state that the lost ranks had")
        self._build = build
        self._dimensions = mesh if mesh is not None else {"shard": -1}
        self._data_dims = data_dims
        self._every = snapshot_every
        self._device = device
        self._parts: Tuple[Any, ...] = ()
        self._mesh: Any = None
        self._snapshot: Optional[Snapshot] = None
        self._samples = _Samples()
        self._holding = Holding()
        rounds = Rounds(default_backend(device) if backend is None else backend, timeout)
        loop = ElasticLoop(timeout=timeout)
        super().__init__(loop, rounds, Seed(seed, loop, device))
        loop.before_commit = self._equalize_buffers
        loop.after_commit = self._after_commit

    @property
    def model(self) -> torch.nn.Module:
        """The model of this round."""
        return self._part(0, "model")

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of this round."""
        return self._part(1, "optimizer")

    @property
    def parts(self) -> Tuple[Any, ...]:
        """The other parts that ``build`` has returned in this round."""
        return self._parts[2:]

    @property
    def mesh(self) -> Any:
        """The torch.distributed.device_mesh.DeviceMesh of this round."""
        self._part(0, "mesh")
        return self._mesh

    # Rounds.

    def _begin_round(self, current: ElasticRound) -> None:
        if self._snapshot is not None:
            self._snapshot.close()  # Of the round before.
            self._snapshot = None
        self._holding.rescue(current, self._named())
        self._end_round()
        self._round = current
        self._rounds.begin(current)
        try:
            dimensions = self._dimensions_of(current.world_size)
        except InvalidArgument as misfit:
            if current.context.round > 0:  # Under the launcher, whose restarts would not help.
                report_fatal("user_error", str(misfit))
            raise
        self._mesh = init_device_mesh(self._device, tuple(dimensions.values()),
                                      mesh_dim_names=tuple(dimensions))
        if self._device == "cuda":
            self._rounds.form(torch.device("cuda", torch.cuda.current_device()))
        torch.manual_seed(self._seed.value)
        self._parts = _listed(self._build(self._mesh))
        self._snapshot = Snapshot(context=current.context, name=NAME, replicated=False,
                                  **self._named())
        step = self._snapshot.load()
        if step is None:  # None was saved: the training begins.
            step = self._samples.count = 0
        self.loop.resume_at(step, self._samples.count)
        self._holding.begin(current, self.model, step)
        self._round = dataclasses.replace(current, step=step)

    def _equalize_buffers(self) -> None:
        if self.world_size > 1:
            equalize_buffers(self.model, lambda flat: dist.broadcast(flat, 0))

    def _after_commit(self, step: ElasticStep, number: int, samples: int) -> None:
        self._samples.count = samples
        self._holding.committed(number)
        pauses = step.pauses
        if not pauses and number % self._every != 0:
            return
        assert self._snapshot is not None
        self._snapshot.save(number)
        if pauses and self._snapshot.wait_until_kept(_KEPT_LIMIT_S):
            self._holding.is_kept = True  # Other nodes have the parts of ranks that leave.

    def _named(self) -> Dict[str, Any]:
        """The parts of a snapshot; none before the first round."""
        if not self._parts:
            return {}
        named = {f"part{i}": part for i, part in enumerate(self._parts[2:])}
        if self._parts[1] is not None:
            named["optimizer"] = self._parts[1]
        return {"model": self._parts[0], "samples": self._samples, **named}

    def _end_round(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
        # PyTorch's caches keep meshes for ever, and take one for another that is equal. Without its
        # own list of groups, a mesh finds those of the present round by their names.
        getattr(self._mesh, "_pg_registry", {}).clear()
        self._snapshot = self._mesh = None
        self._parts = ()
        # Modules, their hooks and their groups refer to each other.
        gc.collect()
        self._rounds.end()

    def _part(self, number: int, name: str) -> Any:
        if not self._parts:
            raise InvalidArgument(f"no round has begun: the {name} is there in elastic.steps")
        if self._parts[number] is None:
            raise InvalidArgument(f"build has returned no {name}")
        return self._parts[number]

    # The mesh.

    def _dimensions_of(self, world_size: int) -> Dict[str, int]:
        given = self._dimensions(world_size) if callable(self._dimensions) else self._dimensions
        sizes = dict(given)
        rest = [name for name, size in sizes.items() if size == -1]
        known = math.prod(size for size in sizes.values() if size != -1)
        if len(rest) == 1 and known > 0 and world_size % known == 0:
            sizes[rest[0]] = world_size // known
        if math.prod(sizes.values()) != world_size or min(sizes.values()) < 1:
            raise InvalidArgument(f"the mesh {dict(given)} does not fit {world_size} ranks: let "
                                  f"--nnodes allow only numbers that fit, or give a function of "
                                  f"the number of ranks as mesh")
        unknown = sorted(set(self._data_dims or ()) - set(sizes))
        if unknown:
            raise InvalidArgument(f"data_dims has {', '.join(unknown)}, and the mesh has "
                                  f"{', '.join(sizes)}")
        return sizes

    def _data_place(self) -> Tuple[int, int]:
        names = self._mesh.mesh_dim_names
        index, count = 0, 1
        for name in names if self._data_dims is None else self._data_dims:
            size = self._mesh.size(names.index(name))
            index = index * size + self._mesh.get_local_rank(name)
            count *= size
        return index, count


def _listed(built: Any) -> Tuple[Any, ...]:
    """The model, its optimizer or None, and other parts."""
    parts = built if isinstance(built, tuple) else (built,)
    if not parts or not isinstance(parts[0], torch.nn.Module):
        raise InvalidArgument(f"build has returned a {type(parts[0] if parts else built).__name__}, "
                              f"and not a model, or a model and its optimizer")
    return parts if len(parts) > 1 else (parts[0], None)
