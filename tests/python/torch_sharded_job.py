# SPDX-License-Identifier: Apache-2.0
"""Trains a model that is divided among the ranks, for torch_sharded_test.py:

    torch_sharded_job.py WAY FOLDER [KILL...]

WAY is how the ranks divide it: fsdp (FSDP2), hsdp (replicas of two shards), tp (tensor parallel
pairs of ranks, FSDP2 over them), many (fsdp, and rank 0 reports what it uses), nodes (fsdp on nodes
that come and go, until FOLDER/finish exists), fixed (the same, with a mesh for three ranks), misfit
(a mesh that fits no world); and, after a dot, the back end: "nccl" and "nccl2" train on GPUs. KILL
is STEP:RANK[+RANK...]: the first of these ranks kills the others there, and itself, once.
"""
import faulthandler
import gc
import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from regroup.torch import ShardedElastic

way, _, backend = sys.argv[1].partition(".")
folder = sys.argv[2]
kills = {}
for word in sys.argv[3:]:
    number, _, ranks = word.partition(":")
    kills[int(number)] = [int(rank) for rank in ranks.split("+")]
STEPS = 10 + max(kills, default=20) if way == "many" else 30
EVERY, BATCH, SAMPLES = 4, 12, 60
faulthandler.dump_traceback_later(600, exit=True)
torch.set_num_threads(1)
device = "cuda" if backend.startswith("nccl") else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
torch.manual_seed(int(os.environ["LOCAL_RANK"]))  # The loop gives all ranks one seed.


class Points(torch.utils.data.Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(SAMPLES, 8, generator=generator)
        self.targets = self.inputs.square().sum(1, keepdim=True)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, self.inputs[index], self.targets[index]


class Uses:
    """A part of the state: how often each sample was used, by all ranks."""

    def __init__(self):
        self.counts = torch.zeros(SAMPLES, device=device)

    def state_dict(self):
        return {"counts": self.counts}

    def load_state_dict(self, state):
        self.counts = state["counts"].to(device)


def build(mesh):
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 64), torch.nn.Dropout(0.1), torch.nn.ReLU(),
                                torch.nn.Linear(64, 1))
    model.to(device)
    data_mesh = mesh
    if way == "tp":
        model[1] = torch.nn.Identity()  # There, each rank has a part of the features.
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "3": RowwiseParallel()})
        data_mesh = mesh["dp"]
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=data_mesh)
    fully_shard(model, mesh=data_mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
    return model, optimizer, scheduler, Uses()


def note_pid(current):
    print(f"round {current.context.round} of rank {current.rank} of {current.world_size} from step "
          f"{current.step}, pid {os.getpid()}.", flush=True)
    with open(os.path.join(folder, f"pid.{current.rank}"), "w", encoding="ascii") as file:
        file.write(str(os.getpid()))


def die_once(step, point):
    mark = os.path.join(folder, f"died.{step.number}")
    ranks = kills.get(step.number, [])
    if point != step.number % 3 or step.rank not in ranks[:1] or os.path.exists(mark):
        return
    open(mark, "w").close()
    for rank in ranks[1:]:
        with open(os.path.join(folder, f"pid.{rank}"), encoding="ascii") as file:
            os.kill(int(file.read()), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def report():
    """What rank 0 uses: descriptors, threads, kilobytes."""
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as file:
        memory = int(next(line for line in file if line.startswith("RssAnon")).split()[1])
    print(f"used {len(os.listdir('/proc/self/fd'))} {len(os.listdir('/proc/self/task'))} {memory} "
          f"in round {elastic.round.context.round}", flush=True)


def is_over():
    over = torch.tensor([os.path.exists(os.path.join(folder, "finish"))], device=device)
    dist.all_reduce(over, dist.ReduceOp.MAX)
    return bool(over)


def use_of(indices):
    """Of each sample, by all ranks in this step."""
    used = torch.zeros(SAMPLES, device=device)
    used.index_add_(0, indices, torch.ones(len(indices), device=device))
    dist.all_reduce(used)
    return used / (2 if way == "tp" else 1)


def train(step):
    indices, inputs, targets = (tensor.to(device) for tensor in next(batches))
    die_once(step, 0)
    elastic.optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(elastic.model(inputs), targets)
    die_once(step, 1)
    loss.backward()
    used = use_of(indices)
    die_once(step, 2)
    with step.update():
        elastic.optimizer.step()
        scheduler, uses = elastic.parts
        scheduler.step()
        uses.counts += used
    step.report("loss", loss)


MESHES = {"hsdp": {"replicate": -1, "shard": 2}, "tp": {"dp": -1, "tp": 2}, "fixed": {"shard": 3},
          "misfit": {"shard": 7}}
elastic = ShardedElastic(build, mesh=MESHES.get(way), data_dims=["dp"] if way == "tp" else None,
                         snapshot_every=EVERY, seed=5, device=device,
                         backend=backend or None)
if way == "misfit":
    print(f"after {os.environ['TORCHELASTIC_RESTART_COUNT']} restarts", flush=True)
batches = elastic.batches(Points(), BATCH)
# In the middle of rounds.
report_at = (max(kills, default=0) // 4 + 2, max(kills, default=0) + 2)
for step in elastic.steps(until=None if way in ("nodes", "fixed") else STEPS, on_round=note_pid,
                          on_leave=lambda leave: print(f"left at step {leave.step}.", flush=True)):
    with step:
        if way in ("nodes", "fixed") and is_over():
            step.finish()
            continue
        train(step)
        if way == "many" and step.rank == 0 and step.number in report_at:
            report()
if elastic.ending == "finished":
    digest = hashlib.sha256()
    for value in elastic.model.state_dict().values():
        value = value.full_tensor() if isinstance(value, DTensor) else value
        digest.update(value.detach().cpu().numpy().tobytes())
    counts = elastic.parts[1].counts
    print(f"result {digest.hexdigest()}, {int(counts.sum())} samples, each once an epoch: "
          f"{bool(counts.max() - counts.min() <= 1)}", flush=True)
elastic.close()
