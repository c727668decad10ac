# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer whose parameters are divided among all ranks (FSDP2), and goes on from
snapshots in the memory of the agents: see README.md.

    regroup run --standalone --nproc-per-node=4 --max-restarts=3 train.py
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from regroup.torch import Snapshot

STEPS, BATCH, LENGTH, WIDTH = 400, 32, 16, 64


class Sorter(torch.nn.Module):
    """Learns to sort the letters of a word."""

    def __init__(self):
        super().__init__()
        self.letters = torch.nn.Embedding(26, WIDTH)
        self.places = torch.nn.Parameter(torch.randn(LENGTH, WIDTH) / 8)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True)
            for _ in range(2))
        self.head = torch.nn.Linear(WIDTH, 26)

    def forward(self, words):
        """The loss."""
        hidden = self.letters(words) + self.places
        for layer in self.layers:
            hidden = layer(hidden)
        return torch.nn.functional.cross_entropy(self.head(hidden).transpose(1, 2),
                                                 words.sort(dim=1).values)


def batch_of(step):
    """The same for every number of ranks."""
    return torch.randint(26, (BATCH, LENGTH), generator=torch.Generator().manual_seed(step))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pause", type=float, default=0, help="seconds after each step")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = Sorter()
    mesh = init_device_mesh("cpu", (world,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)

    snapshot = Snapshot(model=model, optimizer=optimizer)
    first = snapshot.load() or 0
    print(f"rank {rank} of {world}, pid {os.getpid()}, from step {first}", flush=True)
    for step in range(first, STEPS):
        if step % 10 == 0:
            snapshot.save(step)
        loss = model(batch_of(step)[rank::world])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49 and rank == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
        time.sleep(args.pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
