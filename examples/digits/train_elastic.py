# SPDX-License-Identifier: Apache-2.0
"""Reads digits, and goes on in the same processes when one of them is lost.

    regroup run --standalone --nproc-per-node=2 --max-restarts=3 train_elastic.py
"""
import argparse
import os
import time

import torch
from regroup.torch import Elastic

from model import data_sets, make_model, right_answers, sum_of

BATCH = 64  # Of all ranks together.

parser = argparse.ArgumentParser(description="reads digits, and keeps its processes")
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
args = parser.parse_args()

train, test = data_sets()
model = make_model()
optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
elastic = Elastic(model, optimizer)
batches = elastic.batches(train, BATCH)


def on_round(current):
    print(f"rank {current.rank} of {current.world_size}, pid {os.getpid()}, "
          f"from step {current.step}", flush=True)


for step in elastic.steps(until=args.steps, on_round=on_round):
    with step:
        images, labels = next(batches)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(elastic.ddp(images), labels)
        loss.backward()
        time.sleep(args.pause)  # As if it were larger.
        with step.update():
            optimizer.step()
    if step.number % 100 == 0 and elastic.rank == 0:
        print(f"step {step.number}: loss {loss.item():.4f}", flush=True)
if elastic.rank == 0:
    print(f"finished: reads {right_answers(model, test)}, parameters {sum_of(model)}", flush=True)
