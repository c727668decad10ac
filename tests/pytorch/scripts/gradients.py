# SPDX-License-Identifier: Apache-2.0
"""One step of data-parallel SGD twice: by DistributedDataParallel, and by hand.

    torchrun --nproc-per-node=2 gradients.py

Each rank has its own inputs, so the losses differ. After the step, the parameters have the same bits
on all ranks, and both ways lead to the same parameters.
"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def say(text):
    sys.stdout.write(f"rank {dist.get_rank()}: {text}\n")
    sys.stdout.flush()


def average_gradients(model):
    size = float(dist.get_world_size())
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.data, op=dist.ReduceOp.SUM)
        parameter.grad.data /= size


def make_model(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(10, 10)


def step(model, inputs, targets, after_backward=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loss = torch.nn.MSELoss()(model(inputs), targets)
    loss.backward()
    if after_backward is not None:
        after_backward(model)
    optimizer.step()
    return loss.item()


def parameters_of(model):
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts


def step_by_ddp(rank, inputs, targets):
    # The ranks begin with different parameters; DDP broadcasts those of rank 0.
    replica = DDP(make_model(seed=rank))
    loss = step(replica, inputs, targets)
    losses = gathered(torch.tensor([loss]))
    parts = gathered(parameters_of(replica))
    say(f"losses differ: {len({float(each) for each in losses}) == len(losses)}")
    say(f"parameters are bit-identical: {all(torch.equal(parts[0], part) for part in parts)}")
    moved = not torch.equal(parts[0], parameters_of(make_model(seed=0)))
    say(f"parameters moved: {moved}")
    return parts[rank]


def step_by_hand(inputs, targets):
    model = make_model(seed=0)
    step(model, inputs, targets, average_gradients)
    return parameters_of(model)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(100 + rank)
    inputs, targets = torch.randn(20, 10), torch.randn(20, 10)
    # In a function, so that the replica is destroyed before its group: PyTorch 1.13 may hang in the
    # destructor of a DistributedDataParallel that holds the last reference.
    parameters = step_by_ddp(rank, inputs, targets)
    difference = (step_by_hand(inputs, targets) - parameters).abs().max().item()
    say(f"average_gradients agrees with DDP: {difference < 1e-7}")
    # All ranks end together: PyTorch's threads may abort the process if a peer closes during their
    # communication.
    dist.barrier()
    dist.destroy_process_group()
    # Threads of PyTorch 2.14 sometimes abort the interpreter at its end, under any launcher.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
