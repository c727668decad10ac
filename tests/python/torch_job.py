# SPDX-License-Identifier: Apache-2.0
"""Trains a small model of PyTorch for torch_test.py: torch_job.py WAY FOLDER.

WAY is quiet (nothing happens) or kill (two ranks kill themselves, one after the other)."""
import hashlib
import os
import signal
import sys

import regroup
import torch
from regroup.torch import average_gradients, register_state

STEPS = 60
BATCH = 12
way, folder = sys.argv[1:]

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(),
                            torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(
    [{"params": model[0].parameters(), "lr": 0.02}, {"params": list(model.parameters())[2:]}],
    lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
inputs = torch.randn(STEPS * BATCH, 8)
targets = inputs.square().sum(1, keepdim=True)


def die_once(step, number, rank):
    mark = os.path.join(folder, f"died.{number}")
    if way == "kill" and step.number == number and step.rank == rank and not os.path.exists(mark):
        open(mark, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)


def on_round(round):
    print(f"round {round.context.round} from step {round.step}, pid {os.getpid()}", flush=True)


def on_step(step):
    if step.number == STEPS:
        return step.finish()
    mine = list(step.shard(step.take(BATCH)))
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs[mine]), targets[mine]).backward()
    die_once(step, 17, 1)
    average_gradients(model, step.group)
    die_once(step, 40, 2)

    def apply():
        optimizer.step()
        scheduler.step()

    step.commit(apply)


loop = regroup.ElasticLoop()
register_state(loop, model, optimizer, scheduler)
assert loop.run(on_step, on_round=on_round) == "finished"
digest = hashlib.sha256()
for value in model.state_dict().values():
    digest.update(value.numpy().tobytes())
print(f"result {digest.hexdigest()} lr {optimizer.param_groups[0]['lr']}", flush=True)
