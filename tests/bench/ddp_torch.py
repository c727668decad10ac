# SPDX-License-Identifier: Apache-2.0
"""The workers of ddp_bench, as a user of PyTorch's DistributedDataParallel over gloo writes them:

    ddp_torch.py step RESULT_FILE ROUNDS
    ddp_torch.py perceptron RESULT_FILE STEPS

Same tensors, same measurement as ddp_step_worker.cc and ddp_perceptron_worker.cc. Rank 0 writes lines
"name wall_ms cpu_ms".
"""
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

LAYERS = 100
WEIGHT_COUNT = 62000
BIAS_COUNT = 500
WIDTHS = (784, 512, 512, 10)
BATCH = 64
WARM_UP_STEPS = 20


class Synthetic(torch.nn.Module):
    """Parameters whose gradients cost only the write."""

    def __init__(self):
        super().__init__()
        self.tensors = torch.nn.ParameterList(
            torch.nn.Parameter(torch.zeros(WEIGHT_COUNT if i % 2 == 0 else BIAS_COUNT))
            for i in range(2 * LAYERS))

    def forward(self, x):
        for tensor in self.tensors:
            x = x + tensor.sum()
        return x


def measure(action):
    dist.barrier()
    cpu = time.process_time()
    begin = time.perf_counter()
    action()
    return ((time.perf_counter() - begin) * 1e3, (time.process_time() - cpu) * 1e3)


def median(costs):
    return tuple(statistics.median(column) for column in zip(*costs))


def measure_steps(rounds):
    floor_tensor = torch.zeros(LAYERS * (WEIGHT_COUNT + BIAS_COUNT))
    module = Synthetic()
    ddp = DistributedDataParallel(module, gradient_as_bucket_view=True)
    x = torch.zeros(())

    def step():
        for tensor in module.tensors:
            if tensor.grad is not None:
                tensor.grad.zero_()
        ddp(x).backward()

    def step_without():
        with ddp.no_sync():
            step()

    for _ in range(3):
        step()
    floor, added = [], []
    for _ in range(rounds):
        floor.append(measure(lambda: dist.all_reduce(floor_tensor)))
        without = measure(step_without)
        together = measure(step)
        added.append(tuple(b - a for a, b in zip(without, together)))
    return {"floor": median(floor), "added": median(added)}


def measure_perceptron(steps):
    torch.manual_seed(1 + dist.get_rank())
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    ddp = DistributedDataParallel(torch.nn.Sequential(*layers[:-1]), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    loss_function = torch.nn.CrossEntropyLoss()
    inputs = torch.rand(BATCH, WIDTHS[0]) * 2 - 1
    labels = torch.randint(WIDTHS[-1], (BATCH,))

    def run(count):
        for _ in range(count):
            optimizer.zero_grad()
            loss_function(ddp(inputs), labels).backward()
            optimizer.step()

    run(WARM_UP_STEPS)
    wall, cpu = measure(lambda: run(steps))
    return {"step": (wall / steps, cpu / steps)}


def main():
    mode, result, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {"step": measure_steps, "perceptron": measure_perceptron}[mode](count)
    if dist.get_rank() == 0:
        with open(result, "w", encoding="ascii") as file:
            for name, (wall, cpu) in results.items():
                file.write(f"{name} {wall:.6f} {cpu:.6f}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
