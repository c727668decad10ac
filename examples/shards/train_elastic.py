# SPDX-License-Identifier: Apache-2.0
"""The training of train.py, in which the other ranks keep their processes when one is lost: see
README.md.

    regroup run --standalone --nproc-per-node=4 --max-restarts=3 \\
        --preload=torch,torch._dynamo,torch.distributed.fsdp,regroup.torch train_elastic.py
"""
import argparse
import os
import time

import torch
from torch.distributed.fsdp import fully_shard

from regroup.torch import ShardedElastic
from train import BATCH, LENGTH, STEPS, Sorter


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 100 * BATCH

    def __getitem__(self, index):
        return torch.randint(26, (LENGTH,), generator=torch.Generator().manual_seed(index))


def build(mesh):
    """Called in each round: the ranks may be others."""
    model = Sorter()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.002)


def on_round(current):
    print(f"rank {current.rank} of {current.world_size}, pid {os.getpid()}, from step "
          f"{current.step}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pause", type=float, default=0, help="seconds after each step")
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()

    torch.manual_seed(1)
    elastic = ShardedElastic(build, snapshot_every=10)
    batches = elastic.batches(Words(), BATCH)
    for step in elastic.steps(until=args.steps, on_round=on_round):
        with step:
            loss = elastic.model(next(batches))
            elastic.optimizer.zero_grad()
            loss.backward()
            with step.update():
                elastic.optimizer.step()
            if step.number % 50 == 49 and step.rank == 0:
                print(f"step {step.number + 1}: loss {loss.item():.3f}", flush=True)
            time.sleep(args.pause)
    elastic.close()


if __name__ == "__main__":
    main()
