# SPDX-License-Identifier: Apache-2.0
"""A rank with processes that load data. It saves its state when it is asked to stop.

    torch_loader_job.py plain|regroup
"""
import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

stop_asked = False


class Slow(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.tensor([float(index)])


def ask(_signal, _frame):
    global stop_asked
    stop_asked = True


def note(number):
    if number == 1:
        print("loading, pid", os.getpid(), flush=True)


def save():
    print("saved rank " + os.environ["RANK"], flush=True)
    os._exit(0)


def train_plainly():
    signal.signal(signal.SIGTERM, ask)
    batches = iter(DataLoader(Slow(), batch_size=8, num_workers=2))
    for number, _ in enumerate(batches):
        note(number)
        if stop_asked:
            time.sleep(0.3)  # As a checkpoint takes.
            next(batches)  # Its processes still work.
            save()


def train_with_regroup():
    from regroup.torch import Elastic
    model = torch.nn.Linear(1, 1)
    elastic = Elastic(model)
    batches = elastic.batches(Slow(), batch_size=8, num_workers=2)
    signal.signal(signal.SIGTERM, ask)
    saves = False
    for step in elastic.steps(until=100_000):
        with step:
            next(batches)  # Its processes still work.
            note(step.number)
            if saves:
                save()
            if stop_asked:
                time.sleep(0.3)
                saves = True
            step.commit()


if __name__ == "__main__":
    train_plainly() if sys.argv[1] == "plain" else train_with_regroup()
