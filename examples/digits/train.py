# SPDX-License-Identifier: Apache-2.0
"""Reads digits: an ordinary script for torchrun, which saves a checkpoint after each epoch.

    regroup run --standalone --nproc-per-node=2 --max-restarts=3 train.py
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from model import data_sets, make_model, right_answers, sum_of

parser = argparse.ArgumentParser(description="reads digits, and saves a checkpoint after each epoch")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--checkpoint", default="checkpoint.pt")
parser.add_argument("--pause", type=float, default=0.0, help="seconds after each epoch")
args = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
train, test = data_sets()
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
first = 0
if os.path.exists(args.checkpoint):
    checkpoint = torch.load(args.checkpoint)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    first = checkpoint["epoch"]
print(f"rank {rank} of {dist.get_world_size()}, pid {os.getpid()}, from epoch {first}", flush=True)

replica = DistributedDataParallel(model)
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=32, sampler=sampler)
for epoch in range(first, args.epochs):
    sampler.set_epoch(epoch)
    torch.manual_seed(epoch * dist.get_world_size() + rank)  # For dropout.
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(replica(images), labels).backward()
        optimizer.step()
    if rank == 0:
        part = args.checkpoint + ".part"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "epoch": epoch + 1}, part)
        os.replace(part, args.checkpoint)
        print(f"epoch {epoch + 1}: reads {right_answers(model, test)}", flush=True)
    time.sleep(args.pause)  # As if it were larger.
    dist.barrier()  # Nobody begins the next epoch before this one is saved.
if rank == 0:
    print(f"finished: reads {right_answers(model, test)}, parameters {sum_of(model)}", flush=True)
dist.destroy_process_group()
