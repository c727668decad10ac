# SPDX-License-Identifier: Apache-2.0
"""Training of PyTorch that goes on in the same processes when a rank is lost."""
from __future__ import annotations

import hashlib
import inspect
import struct
from typing import Any, Callable, Iterator, Optional

import torch
from torch.nn.parallel import DistributedDataParallel as _StockDdp

from ..elastic import ElasticLeave, ElasticLoop, ElasticRound, ElasticStep
from ..errors import InvalidArgument
from .loader import Batches
from .rounds import Rounds, default_backend, names_of
from .state import equalize_buffers, register_state

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
    """What ``Elastic`` does by default: DistributedDataParallel, without what ``Elastic`` does
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


class Elastic:
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
    CPU it is "regroup" by default. For one on a GPU it is "cpu:regroup,cuda:nccl", with which
    tensors on the CPU can be reduced, too, and before PyTorch 2.14, whose groups cannot have both,
    "nccl". When a round is over, a rank that waits in an operation is released.

    Random numbers of PyTorch begin anew in each step, from ``seed``, the number of the step and the
    rank, so that a step that is done again draws the same. Without ``seed``, it is that of rank 0's
    ``torch.manual_seed``. ``timeout``, in seconds, limits each operation.
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
        self._rounds = Rounds(chosen, timeout)
        self._on_gpu = device == "cuda"
        self.model = model
        self._parts = parts
        self._wrap = wrap
        self._seed = torch.initial_seed() if seed is None else seed
        self._ddp: Optional[torch.nn.Module] = None
        self._round: Optional[ElasticRound] = None
        self._step: Optional[ElasticStep] = None
        #: For what else must be registered, and ``resume_at``.
        self.loop = ElasticLoop("nccl" if self._on_gpu else "cpu", timeout=timeout,
                                compare_every=compare_every, snapshot_every=snapshot_every)
        self.loop.explain = self._rounds.explain
        self.loop.before_commit = self._equalize_buffers
        try:
            register_state(self.loop, model, optimizer, *parts)
            self.loop.register_state("regroup.seed", save=self._save_seed, load=self._load_seed)
        except BaseException:
            self.loop.close()  # Another one can be made at once.
            raise

    @property
    def ddp(self) -> torch.nn.Module:
        """The model, wrapped for this round."""
        if self._ddp is None:
            raise InvalidArgument("no round has begun: the wrapped model is there in elastic.steps")
        return self._ddp

    @property
    def round(self) -> ElasticRound:
        if self._round is None:
            raise InvalidArgument("no round has begun")
        return self._round

    @property
    def step(self) -> ElasticStep:
        """The step that is being carried out."""
        if self._step is None:
            raise InvalidArgument("no step is being carried out")
        return self._step

    @property
    def rank(self) -> int:
        return self.round.rank

    @property
    def world_size(self) -> int:
        return self.round.world_size

    @property
    def ending(self) -> Optional[str]:
        """How ``steps`` has ended: "finished", or "left" if this node leaves."""
        return self.loop.ending

    def batches(self, dataset: Any, batch_size: int, *, shuffle: bool = True, seed: int = 0,
                **options: Any) -> Batches:
        """An iterator over batches of this rank: ``batch_size`` samples in each step, of all ranks
        together. Each sample is used once in an epoch, whatever happens to ranks. Options are those
        of torch.utils.data.DataLoader, such as ``num_workers``."""
        return Batches(lambda: self.step, dataset, batch_size, shuffle, seed, options)

    def steps(self, until: Optional[int] = None, *,
              on_round: Optional[Callable[[ElasticRound], Any]] = None,
              on_leave: Optional[Callable[[ElasticLeave], Any]] = None) -> Iterator[ElasticStep]:
        """The steps, to carry out in ``with step:``; see ElasticLoop.steps. ``on_round`` is called
        when ``ddp`` is ready."""

        def begin(current: ElasticRound) -> None:
            self._begin_round(current)
            if on_round is not None:
                on_round(current)

        for self._step in self.loop.steps(until, on_round=begin, on_leave=on_leave):
            torch.default_generator.manual_seed(self._seed_of(self._step))
            if self._on_gpu:
                torch.cuda.manual_seed(self._seed_of(self._step))
            yield self._step
        self._step = None
        if self.ending == "left":
            self._end_round()

    def close(self) -> None:
        """Ends torch.distributed in this process, and frees the loop."""
        self._end_round()
        self.loop.close()

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
            equalize_buffers(self.model, self.round.group)

    def _seed_of(self, step: ElasticStep) -> int:
        text = struct.pack("<QQI", self._seed % (1 << 64), step.number, step.rank)
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1

    def _save_seed(self) -> bytes:
        return struct.pack("<Q", self._seed % (1 << 64))

    def _load_seed(self, data: bytes) -> None:
        self._seed, = struct.unpack("<Q", data)


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
