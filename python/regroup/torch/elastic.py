# SPDX-License-Identifier: Apache-2.0
"""Training of PyTorch that goes on in the same processes when a rank is lost."""
from __future__ import annotations

import inspect
from typing import Any, Callable, Optional

import torch
from torch.nn.parallel import DistributedDataParallel as _StockDdp

from ..elastic import ElasticLoop, ElasticRound
from ..errors import InvalidArgument
from .rounds import Rounds, default_backend, names_of
from .seeds import Seed
from .state import broadcast_in, equalize_buffers, register_state
from .training import Training

Wrap = Callable[[torch.nn.Module], torch.nn.Module]


class DistributedDataParallel(_StockDdp):  # type: ignore[misc]
    """PyTorch's own, with the same plan of buckets from the first step on.

    PyTorch's plan changes after the first step of each wrapper. Sums of floating-point numbers
    depend on it where ranks are on several nodes, so after a recovery they would not have the bits
    of an undisturbed training. This one plans by the parameters in reverse order.
    """

    def __init__(self, module: torch.nn.Module, *arguments: Any, **options: Any) -> None:
        super().__init__(module, *arguments, **options)
        if self._plans():
            self.reducer._push_all_rebuilt_params()
            self.reducer._rebuild_buckets()

    def _plans(self) -> bool:
        """With unused parameters to find, PyTorch keeps its first plan, too."""
        return not self.find_unused_parameters or bool(getattr(self, "static_graph", False))

    # The reducer gets the parameters in this order, and plans by it.
    def _build_params_for_reducer(self) -> Any:
        parameters, sparse = super()._build_params_for_reducer()
        if not self._plans():
            return parameters, sparse
        return list(parameters)[::-1], list(sparse)[::-1]


def wrap_ddp(module: torch.nn.Module, **options: Any) -> torch.nn.Module:
    """The default of ``Elastic``: DistributedDataParallel, without the parts that ``Elastic`` does
    itself. A module without parameters to train stays as it is."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return module
    known = inspect.signature(_StockDdp.__init__).parameters
    if "broadcast_buffers" not in options:
        name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        options.setdefault(name, False)
    if "init_sync" in known:
        options.setdefault("init_sync", False)  # The loop has made the replicas equal.
    return DistributedDataParallel(module, **options)


class Elastic(Training):
    """A training loop that survives the loss of ranks::

        elastic = Elastic(model, optimizer, scheduler)
        batches = elastic.batches(dataset, batch_size=64)
        for step in elastic.steps(until=1000):
            with step:
                inputs, targets = next(batches)
                optimizer.zero_grad()
                loss = loss_function(elastic.ddp(inputs), targets)
                loss.backward()
                with step.update():
                    optimizer.step()
                    scheduler.step()

    ``model``, ``optimizer`` and ``parts`` (what has ``state_dict`` and ``load_state_dict``) are the
    state that survives. In each round, torch.distributed is initialised with ``backend``, and
    ``wrap`` wraps the model anew: it takes the model and returns ``ddp``.

    ``backend`` is what ``init_process_group`` takes, such as "gloo" or "nccl2". For a model on the
    CPU the default is "regroup". For one on a GPU it is "cpu:regroup,cuda:nccl", which also reduces
    tensors on the CPU; PyTorch before 2.14 cannot have both in a group, and gets "nccl". When a
    round is over, a rank that waits in an operation is released.

    Random numbers of PyTorch begin anew in each step, from ``seed``, the number of the step and the
    rank, so that a step that is done again draws the same. The default of ``seed`` is that of
    rank 0's ``torch.manual_seed``. ``timeout``, in seconds, limits each operation.
    ``compare_every`` compares the replicas every so many steps. ``snapshot_every`` keeps a snapshot
    of the state every so many steps: when all processes are lost at once, the training goes on from
    the newest one.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None,
                 *parts: Any, wrap: Wrap = wrap_ddp, seed: Optional[int] = None,
                 timeout: Optional[float] = None, compare_every: int = 0,
                 snapshot_every: int = 0, backend: Optional[str] = None) -> None:
        if not isinstance(model, torch.nn.Module):
            raise InvalidArgument(f"the model is a {type(model).__name__}, and not a "
                                  f"torch.nn.Module")
        device = _device_of(model)
        chosen = default_backend(device) if backend is None else backend
        if device != "cpu" and set(names_of(chosen)) == {"regroup"}:
            raise InvalidArgument(f"backend={chosen!r} is for tensors on the CPU, and the model is "
                                  f"on {device}: use {default_backend(device)!r}")
        rounds = Rounds(chosen, timeout)
        self.model = model
        self._device = next((tensor.device for tensor in [*model.parameters(), *model.buffers()]),
                            torch.device("cpu"))
        self._parts = parts
        self._wrap = wrap
        self._ddp: Optional[torch.nn.Module] = None
        loop = ElasticLoop("nccl" if device == "cuda" else "cpu", timeout=timeout,
                           compare_every=compare_every, snapshot_every=snapshot_every)
        try:
            register_state(loop, model, optimizer, *parts)
            super().__init__(loop, rounds, Seed(seed, loop, device))
        except BaseException:
            loop.close()  # Another one can be made at once.
            raise
        loop.before_commit = self._equalize_buffers

    @property
    def ddp(self) -> torch.nn.Module:
        """The model, wrapped for this round."""
        if self._ddp is None:
            raise InvalidArgument("no round has begun: the wrapped model is there in elastic.steps")
        return self._ddp

    def _begin_round(self, current: ElasticRound) -> None:
        self._end_round()
        self._round = current
        for parameter in self.model.parameters():
            parameter.grad = None  # Of a step that was lost.
        for part in self._parts:
            states = getattr(part, "_per_optimizer_states", None)
            if states is not None:
                states.clear()  # A GradScaler must forget the lost step.
        self._rounds.begin(current)
        self._rounds.form(self._device)
        self._ddp = self._wrap(self.model)

    def _end_round(self) -> None:
        if isinstance(self._ddp, _StockDdp):
            # They refer to each other, and would stay until the garbage collector comes.
            self._ddp.reducer = self._ddp.logger = None
        self._ddp = None
        self._rounds.end()

    def _equalize_buffers(self) -> None:
        """As DistributedDataParallel does before the next step; but replicas must be equal at the
        end of this one."""
        if self.world_size > 1:
            equalize_buffers(self.model, broadcast_in(self.round.group))


def _device_of(model: torch.nn.Module) -> str:
    """The type of the one device of a model, such as "cpu"."""
    found = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found.setdefault(tensor.device.type, name)
    for device, name in found.items():
        if device not in ("cpu", "cuda"):
            raise InvalidArgument(f"{name} is on {device}; Elastic is for models on the CPU or on a "
                                  f"GPU of CUDA")
    if len(found) > 1:
        places = " and ".join(f"{name} on {device}" for device, name in found.items())
        raise InvalidArgument(f"the model is on several devices: {places}; move all of it to one "
                              f"before Elastic: model.to(device)")
    return next(iter(found), "cpu")
