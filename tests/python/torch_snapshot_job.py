# SPDX-License-Identifier: Apache-2.0
"""Trains a small model for torch_snapshot_test.py, and goes on from snapshots:

    torch_snapshot_job.py WAY FOLDER STEPS [KILL...]

WAY is the kind of model: ddp (DistributedDataParallel), own (each rank trains a model of its own),
sharded (fully_shard), dcp (the same through torch.distributed.checkpoint). KILL is STEP:RANK: that
rank kills itself there, once. The parameters at the end do not depend on kills. A sharded model
begins with the files of FOLDER/theirs if they are there; with FOLDER/write, PyTorch writes them at
the end.
"""
import hashlib
import os
import signal
import sys

import torch
import torch.distributed as dist

from regroup.torch import Snapshot

way, folder, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
kills = dict(tuple(map(int, word.split(":"))) for word in sys.argv[4:])
EVERY, BATCH = 3, 12
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def say(text):
    sys.stdout.write(f"rank {rank}: {text}\n")
    sys.stdout.flush()


def die_once(step):
    mark = os.path.join(folder, f"died.{step}")
    if kills.get(step) == rank and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


def whole(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def hash_of(tensors):
    digest = hashlib.sha256()
    for _, tensor in sorted(tensors):
        digest.update(whole(tensor.detach()).contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def describe(model):
    """The running means of ranks differ; torch.distributed.checkpoint saves those of one rank."""
    buffers = "" if way == "dcp" else f" buffers {hash_of(model.named_buffers())}"
    return f"parameters {hash_of(model.named_parameters())}{buffers}"


def make_model():
    # Another one in each process: the snapshot decides.
    torch.manual_seed(os.getpid() if way != "sharded" and way != "dcp" else len(os.listdir(folder)))
    model = torch.nn.Sequential(torch.nn.Linear(8, 33), torch.nn.BatchNorm1d(33), torch.nn.Tanh(),
                                torch.nn.Linear(33, 1, dtype=torch.float32))
    if way in ("sharded", "dcp"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    return model


class Dcp:
    """The same as Snapshot, by torch.distributed.checkpoint."""

    def __init__(self, model, optimizer):
        from regroup.torch import SnapshotWriter
        self.model, self.optimizer, self.writer = model, optimizer, SnapshotWriter()
        self.saving = None
        self.group = dist.new_group()  # The training uses the other one meanwhile.

    def state(self):
        from torch.distributed.checkpoint.state_dict import get_state_dict
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load(self):
        import torch.distributed.checkpoint as dcp
        from regroup.torch import SnapshotReader
        from torch.distributed.checkpoint.state_dict import set_state_dict
        reader = SnapshotReader()
        if reader.step is not None:
            state = self.state()
            dcp.load(state, storage_reader=reader)
            set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                           optim_state_dict=state["optimizer"])
        return reader.step

    def save(self, step):
        """Every other step while the training goes on."""
        import torch.distributed.checkpoint as dcp
        self.end_saving()
        self.writer.step = step
        if step % 2 == 0:
            dcp.save(self.state(), storage_writer=self.writer)
        else:
            self.saving = dcp.async_save(self.state(), storage_writer=self.writer,
                                         process_group=self.group)
        return step % 2 == 1 or self.writer.kept

    def end_saving(self):
        if self.saving is not None:
            self.saving.result()
            assert self.writer.kept
        self.saving = None

    def wait_until_whole(self, timeout):
        self.end_saving()
        return self.writer.wait_until_whole(timeout)


model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
if way == "dcp":
    snapshot = Dcp(model, optimizer)
    scheduler = None
else:
    parts = {"scheduler": scheduler}
    snapshot = Snapshot(model=torch.nn.parallel.DistributedDataParallel(model)
                        if way == "ddp" else model, optimizer=optimizer, **parts)
trained = torch.nn.parallel.DistributedDataParallel(model) if way == "ddp" else model

first = snapshot.load()
if first is None and os.path.isdir(os.path.join(folder, "theirs")):
    snapshot.load_files(os.path.join(folder, "theirs"))
say(f"loaded {first} of {world} {describe(model)}")
data = torch.Generator().manual_seed(0)
inputs = torch.randn(1000, BATCH, 8, generator=data)
for step in range(first or 0, steps):
    if step % EVERY == 0:
        assert snapshot.save(step), step
    mine = inputs[step] if way == "own" else inputs[step, rank::world]
    die_once(step)
    if way == "own":
        dist.barrier()  # Nothing else keeps the ranks together.
    loss = (trained(mine) - mine.square().sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if scheduler is not None:
        scheduler.step()
assert snapshot.save(steps)
assert snapshot.wait_until_whole(60)
if os.path.exists(os.path.join(folder, "write")):
    from torch.distributed.checkpoint import HuggingFaceStorageWriter, save
    save(model.state_dict(), storage_writer=HuggingFaceStorageWriter(
        os.path.join(folder, "written"), save_distributed=True))
say(f"result {describe(model)} lr {optimizer.param_groups[0]['lr']:.6f}")
if way != "dcp":
    snapshot.close()
dist.destroy_process_group()
# A thread of gloo may still release tensors of the last operation, for which it needs Python, and
# aborts if the interpreter is going away (PyTorch 2.14.1).
os._exit(0)
