# SPDX-License-Identifier: Apache-2.0
"""Trains on nodes that come and go, for torch_elastic_test.py: torch_nodes_job.py BACKEND FOLDER.

It counts how often each sample was used, and finishes when FOLDER/finish exists."""
import sys

import torch

from regroup.torch import Elastic
from torch_jobs import Job, described, uses_of

back_end, folder = sys.argv[1:]
job = Job(folder, limit_s=300)
BATCH, EPOCHS = 5, 4000
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
uses = torch.zeros(BATCH * EPOCHS)  # Of each sample.


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return len(uses)

    def __getitem__(self, index):
        return index, torch.tensor([float(index % 7)])


elastic = Elastic(model, optimizer, compare_every=20, backend=back_end)
elastic.loop.register_state("uses", uses)
batches = elastic.batches(Numbers(), BATCH)
for step in elastic.steps(on_round=job.note_round, on_leave=job.note_leave):
    with step:
        if job.is_over():
            step.finish()
            continue
        indices, inputs = next(batches)
        optimizer.zero_grad()
        loss = elastic.ddp(inputs).sum() / BATCH * elastic.world_size
        loss.backward()
        used = uses_of(indices, len(uses))
        with step.update():
            optimizer.step()
            uses.add_(used)
if elastic.ending == "finished":
    print(f"result {described(uses)}, weight {model.weight.item():.9g}", flush=True)
