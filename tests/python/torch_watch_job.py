# SPDX-License-Identifier: Apache-2.0
"""A training with stock PyTorch over gloo, which knows nothing of its agent:

    torch_watch_job.py STEPS [FAULT RANK STEP]

The file "fault" is there from the fault on.
"""
import ctypes
import os
import sys
import threading
import time

import torch
import torch.distributed as dist


def begin_fault():
    with open("fault.part", "w", encoding="utf-8") as file:
        file.write(str(time.time()))
    os.rename("fault.part", "fault")


class Samples(torch.utils.data.Dataset):
    def __init__(self, stalls_at):
        self.stalls_at = stalls_at

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if index == self.stalls_at:
            begin_fault()
            time.sleep(1000)
        return torch.randn(32)


def main():
    words = sys.argv[1:]
    steps, fault = int(words[0]), words[1] if len(words) > 1 else ""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    fails = fault and dist.get_rank() == int(words[2])
    at = int(words[3]) if fails else -1
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    workers = 1 if fault == "loader" else 0
    loader = iter(torch.utils.data.DataLoader(Samples(at * 4 if fault == "loader" else -1),
                                              batch_size=4, num_workers=workers))
    pair = dist.new_group([0, 1]) if fault == "receive" else None
    for step in range(steps):
        batch = next(loader)
        if step == at and fault != "loader":
            begin_fault()
        if step == at and fault == "sleep":
            time.sleep(1000)
        if step == at and fault == "lock":
            ctypes.PyDLL(None).pause()
        if step == at and fault == "other":
            dist.broadcast(torch.ones(1), 0)
        if step == at and fault == "issued":
            # It ends while an operation is under way, which another thread completes.
            dist.all_reduce(torch.ones(32 * 8 + 8), async_op=True)
            sys.exit(3)
        if fault == "pause" and step == int(words[3]):
            # All ranks work on their own for a while.
            dist.reduce_scatter(torch.ones(1), [torch.ones(1)] * dist.get_world_size())
            time.sleep(8)
        if fault == "receive" and step == int(words[3]) and dist.get_rank() < 2:
            if fails:
                time.sleep(1000)
            dist.recv(torch.ones(1), src=int(words[2]), group=pair)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} has made {steps} steps, with {threading.active_count()} threads",
          flush=True)
    dist.destroy_process_group()


main()
