# SPDX-License-Identifier: Apache-2.0
"""Shared by the programs torch_*_job.py, whose ranks kill themselves."""
import faulthandler
import hashlib
import os
import signal

import torch
import torch.distributed as dist


class Points(torch.utils.data.Dataset):
    """Points with their numbers and their squared distances."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(count, 8, generator=generator)
        self.targets = self.inputs.square().sum(1, keepdim=True)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return index, self.inputs[index], self.targets[index]


class Job:
    """A job with a folder that outlives its processes. `kills` are words STEP:RANK[+RANK...]: in
    that step the first of these ranks kills the others, and itself, once."""

    def __init__(self, folder, kills=(), limit_s=600):
        self.folder = folder
        self.kills = {}  # Ranks by step.
        for word in kills:
            step, _, ranks = word.partition(":")
            self.kills[int(step)] = [int(rank) for rank in ranks.split("+")]
        self.last = max(self.kills, default=0)
        faulthandler.dump_traceback_later(limit_s, exit=True)
        torch.set_num_threads(1)
        torch.manual_seed(int(os.environ["LOCAL_RANK"]))  # The loop gives all ranks one seed.

    def is_first(self, name):
        """Whether no process of the job has asked for this name before."""
        mark = os.path.join(self.folder, name)
        if os.path.exists(mark):
            return False
        open(mark, "w").close()
        return True

    def is_over(self, device="cpu"):
        """Whether the file "finish" is there; the same on all ranks."""
        is_there = os.path.exists(os.path.join(self.folder, "finish"))
        over = torch.tensor([int(is_there)], device=device)  # PyTorch 1.13 reduces no bool.
        dist.all_reduce(over, dist.ReduceOp.MAX)
        return bool(over)

    def note_round(self, current):
        print(f"round {current.context.round} of rank {current.rank} of {current.world_size} from "
              f"step {current.step}, pid {os.getpid()}.", flush=True)
        with open(self._pid_of(current.rank), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def note_leave(self, leave):
        print(f"left at step {leave.step}, with time: {leave.time_left > 0}, {leave.reason}.",
              flush=True)

    def measures(self, step):
        """Whether this is rank 0 two steps after a quarter of the kills, or after all."""
        return step.rank == 0 and step.number in (self.last // 4 + 2, self.last + 2)

    def note_use(self, step):
        """Descriptors, threads and kilobytes."""
        with open("/proc/self/status", encoding="ascii") as file:
            memory = int(next(line for line in file if line.startswith("RssAnon")).split()[1])
        print(f"used {len(os.listdir('/proc/self/fd'))} {len(os.listdir('/proc/self/task'))} "
              f"{memory} in round {step.context.round}", flush=True)

    def die_once(self, step, point):
        """`point`: one of the points 0, 1 and 2 of a step, at which kills take turns."""
        if point == step.number % 3:
            self.die_if_due(step)

    def die_if_due(self, step):
        ranks = self.kills.get(step.number)
        if not ranks or step.rank != ranks[0] or not self.is_first(f"died.{step.number}"):
            return
        for rank in ranks[1:]:
            with open(self._pid_of(rank), encoding="ascii") as file:
                os.kill(int(file.read()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _pid_of(self, rank):
        return os.path.join(self.folder, f"pid.{rank}")


def uses_of(indices, count, device="cpu"):
    """How often all ranks together use each of so many samples in this step."""
    used = torch.zeros(count, device=device)
    used.index_add_(0, indices, torch.ones(len(indices), device=device))
    dist.all_reduce(used)
    return used


def described(uses):
    return f"{int(uses.sum())} samples, each once an epoch: {bool(uses.max() - uses.min() <= 1)}"


def hash_of(tensors):
    digest = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        digest.update(whole.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
