# SPDX-License-Identifier: Apache-2.0
"""The back ends gloo and regroup of torch.distributed, in the same processes:

    PYTHONPATH=python build/pytorch/bin/python tests/bench/torch_backend.py [ROUNDS]

For 2 and for 4 ranks on this machine it measures all_reduce of several sizes, and a step of a
perceptron with PyTorch's DistributedDataParallel. In each round it measures both back ends, one
after the other. It prints the medians of the rounds.
"""
import os
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import regroup.torch  # noqa: F401: registers the back end

BACKENDS = ("gloo", "regroup")
# Bytes, and operations in each round.
SIZES = ((8, 200), (4096, 200), (262144, 50), (4194304, 8), (33554432, 2))
WIDTHS = (784, 512, 512, 10)
BATCH = 64
STEPS = 10
DEADLINE_S = 1800


def measure(action, count):
    """Microseconds of each of `count` actions."""
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        action()
    return (time.perf_counter() - begin) / count * 1e6


def perceptron(group):
    torch.manual_seed(1 + dist.get_rank())
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    module = torch.nn.Sequential(*layers[:-1])
    ddp = DistributedDataParallel(module, process_group=group, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    loss = torch.nn.CrossEntropyLoss()
    inputs = torch.rand(BATCH, WIDTHS[0]) * 2 - 1
    labels = torch.randint(WIDTHS[-1], (BATCH,))

    def step():
        optimizer.zero_grad()
        loss(ddp(inputs), labels).backward()
        optimizer.step()

    def step_alone():
        with ddp.no_sync():
            step()

    return step, step_alone


def rank(rounds):
    torch.set_num_threads(1)
    dist.init_process_group("regroup")
    groups = {"regroup": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    actions = {}  # By row, and by back end.
    for size, count in SIZES:
        values = torch.zeros(size // 4)
        actions[f"all_reduce, {size} bytes"] = {
            name: (lambda values=values, name=name: dist.all_reduce(values, group=groups[name]),
                   count) for name in BACKENDS}
    steps = {name: perceptron(groups[name]) for name in BACKENDS}
    actions["step of the perceptron"] = {name: (steps[name][0], STEPS) for name in BACKENDS}
    actions["the same without communication"] = {
        name: (steps[name][1], STEPS) for name in BACKENDS}
    times = {(row, name): [] for row in actions for name in BACKENDS}
    for number in range(rounds + 1):
        for row, by_name in actions.items():
            for name in BACKENDS if number % 2 else BACKENDS[::-1]:
                took = measure(*by_name[name])
                if number > 0:  # The first round warms up.
                    times[row, name].append(took)
    if dist.get_rank() == 0:
        for row in actions:
            gloo, own = (statistics.median(times[row, name]) for name in BACKENDS)
            print(f"| {dist.get_world_size()} | {row} | {gloo:.1f} | {own:.1f} | "
                  f"{gloo / own:.2f} |", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print("| ranks | | gloo, us | regroup, us | gloo / regroup |\n|---|---|---|---|---|", flush=True)
    for world_size in (2, 4):
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                 "WORLD_SIZE": str(world_size)}
        ranks = [subprocess.Popen([sys.executable, __file__, str(rounds)],
                                  env={**os.environ, **place, "RANK": str(number)})
                 for number in range(world_size)]
        try:
            codes = [process.wait(timeout=DEADLINE_S) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        if any(codes):
            sys.exit(f"the ranks ended with {codes}")


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank(int(sys.argv[1]))
    else:
        main()
