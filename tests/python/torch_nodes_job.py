# SPDX-License-Identifier: Apache-2.0
"""Trains on nodes that come and go, for torch_elastic_test.py: torch_nodes_job.py BACKEND FOLDER.

It counts how often each sample was used, and finishes when FOLDER/finish exists."""
import faulthandler
import os
import sys

import torch
import torch.distributed as dist

from regroup.torch import Elastic

back_end, folder = sys.argv[1:]
BATCH, EPOCHS = 5, 4000
faulthandler.dump_traceback_later(300, exit=True)
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
uses = torch.zeros(BATCH * EPOCHS)  # Of each sample.


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return len(uses)

    def __getitem__(self, index):
        return index, torch.tensor([float(index % 7)])


def on_round(current):
    print(f"round {current.context.round} of rank {current.rank} of {current.world_size} from step "
          f"{current.step}, pid {os.getpid()}.", flush=True)


def on_leave(leave):
    print(f"left at step {leave.step}, with time: {leave.time_left > 0}, {leave.reason}.",
          flush=True)


elastic = Elastic(model, optimizer, compare_every=20, backend=back_end)
elastic.loop.register_state("uses", uses)
batches = elastic.batches(Numbers(), BATCH)
for step in elastic.steps(on_round=on_round, on_leave=on_leave):
    with step:
        stop = torch.tensor([int(os.path.exists(os.path.join(folder, "finish")))])
        dist.all_reduce(stop, dist.ReduceOp.MAX)
        if stop:
            step.finish()
            continue
        indices, inputs = next(batches)
        optimizer.zero_grad()
        loss = elastic.ddp(inputs).sum() / BATCH * elastic.world_size
        loss.backward()
        used = torch.zeros(len(uses)).index_add_(0, indices, torch.ones(len(indices)))
        dist.all_reduce(used)
        with step.update():
            optimizer.step()
            uses.add_(used)
if elastic.ending == "finished":
    count = int(uses.sum())
    print(f"finished: {count // BATCH} steps, {count} samples, each once an epoch: "
          f"{bool(uses.max() - uses.min() <= 1)}, weight {model.weight.item():.9g}.", flush=True)
