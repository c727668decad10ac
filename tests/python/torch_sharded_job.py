# SPDX-License-Identifier: Apache-2.0
"""Trains a model that is divided among the ranks, for torch_sharded_test.py:

    torch_sharded_job.py WAY FOLDER [KILL...]

WAY is how the ranks divide it: fsdp (FSDP2), hsdp (replicas of two shards), tp (tensor parallel
pairs of ranks, FSDP2 over them), many (fsdp, and rank 0 reports what it uses), nodes (fsdp on nodes
that come and go, until FOLDER/finish exists), fixed (the same, with a mesh for three ranks), misfit
(a mesh that fits no world); and, after a dot, the back end: "nccl" and "nccl2" train on GPUs. KILL
is STEP:RANK[+RANK...]: the first of these ranks kills the others there, and itself, once.
"""
import gc
import os
import sys

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from regroup.torch import ShardedElastic
from torch_jobs import Job, Points, described, hash_of, uses_of

way, _, backend = sys.argv[1].partition(".")
job = Job(sys.argv[2], sys.argv[3:])
STEPS = 10 + job.last if way == "many" else 30
EVERY, BATCH, SAMPLES = 4, 12, 60
device = "cuda" if backend.startswith("nccl") else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())


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


def train(step):
    indices, inputs, targets = (tensor.to(device) for tensor in next(batches))
    job.die_once(step, 0)
    elastic.optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(elastic.model(inputs), targets)
    job.die_once(step, 1)
    loss.backward()
    # Pairs of ranks have the same samples.
    used = uses_of(indices, SAMPLES, device) / (2 if way == "tp" else 1)
    job.die_once(step, 2)
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
batches = elastic.batches(Points(SAMPLES), BATCH)
for step in elastic.steps(until=None if way in ("nodes", "fixed") else STEPS, on_round=job.note_round,
                          on_leave=job.note_leave):
    with step:
        if way in ("nodes", "fixed") and job.is_over(device):
            step.finish()
            continue
        train(step)
        if way == "many" and job.measures(step):
            gc.collect()
            job.note_use(step)
if elastic.ending == "finished":
    print(f"result {hash_of(elastic.model.state_dict().values())}, "
          f"{described(elastic.parts[1].counts)}", flush=True)
elastic.close()
