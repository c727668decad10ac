# SPDX-License-Identifier: Apache-2.0
"""Trains a small model with PyTorch's DistributedDataParallel for torch_elastic_test.py:

    torch_elastic_job.py BACKEND WAY FOLDER [KILL...]

BACKEND is that of Elastic. WAY is how it trains: plain (batch normalisation, dropout, a scheduler);
loader (the same, with a process that loads data); amp (gradients accumulated over parts of the
batch, autocast to bfloat16, a GradScaler, clipping, groups of parameters); compile (a compiled
module); stock (PyTorch's own DistributedDataParallel, and a sub-group); many (the same, and rank 0
reports what it uses); hang (rank 1 sleeps once in a section); kept (with snapshots); blocked (ranks
die in the middle of operations: first in one of the default group, then in one of a sub-group);
forming and beginning (rank 1 dies once, when it has published the address of its connections of a
sub-group, or of the default group); bug (rank 1 raises a RuntimeError). KILL is
STEP:RANK[+RANK...]: the first of these ranks kills the others there, and itself, once.
"""
import contextlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from regroup.torch import Elastic, wrap_ddp
from regroup.torch.round_store import RoundStore
from torch_jobs import Job, Points, hash_of

back_end, way, folder = sys.argv[1:4]
job = Job(folder, sys.argv[4:])
STEPS = 10 + job.last if way == "many" else 30
BATCH, SAMPLES = 12, 64


def die_once(step, point):
    if way != "blocked":
        job.die_once(step, point)


def die_in_operation(step):
    """In a large one, which ranks that do not talk with this one cannot end."""
    group = None if step.number == min(job.kills) else whole
    work = dist.all_reduce(torch.ones(4_000_000), group=group, async_op=True)
    job.die_if_due(step)
    work.wait()


def wrap_stock(module):
    ranks = list(range(dist.get_world_size()))
    pair = dist.new_group(ranks[:2])
    if dist.get_rank() < 2:
        value = torch.ones(1)
        dist.all_reduce(value, group=pair)
        assert value == min(2, len(ranks)), value
    return DistributedDataParallel(module)


def wrap_blocked(module):
    global whole
    whole = dist.new_group(list(range(dist.get_world_size())))
    return wrap_ddp(module)


def die_at_next_group(rank):
    if rank == 1 and job.is_first("died"):
        publish = RoundStore.set

        def publish_and_die(store, key, value):
            publish(store, key, value)
            os.kill(os.getpid(), signal.SIGKILL)

        RoundStore.set = publish_and_die


def wrap_forming(module):
    die_at_next_group(dist.get_rank())
    return wrap_blocked(module)


# So wide that over TCP, the order of the additions depends on the plan of the buckets.
WIDTH = 700
model = torch.nn.Sequential(torch.nn.Linear(8, WIDTH), torch.nn.BatchNorm1d(WIDTH),
                            torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(WIDTH, 1))
scaler = None
if way == "amp":
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.02},
                                 {"params": model[2].parameters(), "weight_decay": 0.1}],
                                lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=5)
else:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
if way == "compile":
    model = torch.compile(model, backend="aot_eager")
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10, gamma=0.5)
parts = [scheduler] if scaler is None else [scheduler, scaler]
elastic = Elastic(model, optimizer, *parts, seed=5, backend=back_end,
                  wrap={"stock": wrap_stock, "many": wrap_stock, "blocked": wrap_blocked,
                        "forming": wrap_forming}.get(way, wrap_ddp),
                  snapshot_every=4 if way == "kept" else 0)
if way == "beginning":
    die_at_next_group(int(os.environ["LOCAL_RANK"]))
options = {"num_workers": 1} if way == "loader" else {}
batches = elastic.batches(Points(SAMPLES), BATCH, **options)
loss_function = torch.nn.functional.mse_loss


def train_in_parts(step):
    """Gradients of two parts of the batch, in 16 bits."""
    optimizer.zero_grad()
    halves = list(zip(*(tensor.split((len(tensor) + 1) // 2) for tensor in next(batches))))
    for number, (_, inputs, targets) in enumerate(halves):
        last = number + 1 == len(halves)
        with contextlib.nullcontext() if last else elastic.ddp.no_sync():
            with torch.autocast("cpu", torch.bfloat16):
                loss = loss_function(elastic.ddp(inputs).float(), targets) / len(halves)
            die_once(step, number)
            scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    die_once(step, 2)
    with step.update():
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
    return loss


def train(step):
    with step.section("data"):
        _, inputs, targets = next(batches)
        if way == "hang" and step.number == 10 and step.rank == 1 and job.is_first("hung"):
            time.sleep(1000)
    die_once(step, 0)
    optimizer.zero_grad()
    loss = loss_function(elastic.ddp(inputs), targets)
    die_once(step, 1)
    if way == "blocked" and step.number in job.kills:
        die_in_operation(step)
    if way == "bug" and step.number == 5 and step.rank == 1:
        raise RuntimeError("a bug of the program")
    loss.backward()
    die_once(step, 2)
    with step.update():
        optimizer.step()
        scheduler.step()
    return loss


for step in elastic.steps(until=STEPS, on_round=job.note_round):
    with step:
        loss = (train_in_parts if way == "amp" else train)(step)
        step.report("loss", loss)  # A tensor of the graph.
        if way == "many" and job.measures(step):
            job.note_use(step)
assert elastic.ending == "finished"
rates = [group["lr"] for group in optimizer.param_groups]
print(f"result {hash_of(model.state_dict().values())}, rates {rates}, "
      f"scale {scaler.get_scale() if scaler else None}", flush=True)
