# SPDX-License-Identifier: Apache-2.0
"""Trains with a DataLoader that has worker processes, and goes on from a snapshot.

    train_loader.py fork|spawn
"""
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

from planned_failure import fail_as_planned, hash_of, say

EPOCHS = 4


class Points(Dataset):
    """Points of a curve. FAIL_LOADER=N kills the second process that loads them for rank 1, at its
    Nth point in the first round of the job."""

    def __init__(self):
        self.loaded = 0

    def __len__(self):
        return 128

    def __getitem__(self, index):
        self.loaded += 1
        if (os.environ.get("FAIL_LOADER") == str(self.loaded) and os.environ["RANK"] == "1" and
                os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and get_worker_info().id == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        x = torch.linspace(0, 1, 8) + index / 128
        return x, torch.sin(x.sum()).reshape(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if os.path.exists("snapshot.pt"):
        snapshot = torch.load("snapshot.pt")
        model.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        first = snapshot["epoch"]
        say(f"resumed at epoch {first}")
    data = Points()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler, num_workers=2,
                        multiprocessing_context=sys.argv[1], persistent_workers=True)
    replica = DistributedDataParallel(model)
    step = first * len(loader)
    for epoch in range(first, EPOCHS):
        sampler.set_epoch(epoch)
        for source, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(replica(source), targets).backward()
            optimizer.step()
            step += 1
            fail_as_planned(step)
        if dist.get_rank() == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "epoch": epoch + 1}, "snapshot.part")
            os.replace("snapshot.part", "snapshot.pt")
        dist.barrier()
    say(f"final step {step}, parameters {hash_of(model.state_dict())}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
