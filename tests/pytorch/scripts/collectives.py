# SPDX-License-Identifier: Apache-2.0
"""A tour of torch.distributed: each operation once, one line per result.

    torchrun --nproc-per-node=4 collectives.py
"""
import datetime
import os
import sys

import torch
import torch.distributed as dist

LIMIT = datetime.timedelta(seconds=60)


def say(what, result):
    if isinstance(result, torch.Tensor):
        result = result.tolist()
    sys.stdout.write(f"rank {dist.get_rank()}: {what} {result}\n")
    sys.stdout.flush()


def own(rank):
    return torch.tensor([float(rank + 1), 10.0 * (rank + 1)])


def reductions(rank, world):
    value = own(rank)
    dist.all_reduce(value)
    say("all_reduce sum", value)
    value = own(rank)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    say("all_reduce max", value)
    value = own(rank)
    work = dist.all_reduce(value, op=dist.ReduceOp.PRODUCT, async_op=True)
    work.wait()
    say("all_reduce product", value)
    value = own(rank)
    dist.reduce(value, dst=world - 1)
    if rank == world - 1:
        say("reduce", value)


def distributions(rank, world):
    value = own(rank) if rank == 1 else torch.zeros(2)
    dist.broadcast(value, src=1)
    say("broadcast", value)

    parts = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(parts, own(rank))
    say("all_gather", [part.tolist() for part in parts])

    dist.gather(own(rank), parts if rank == 0 else None, dst=0)
    if rank == 0:
        say("gather", [part.tolist() for part in parts])

    value = torch.zeros(2)
    dist.scatter(value, [own(each) * 2 for each in range(world)] if rank == 0 else None, src=0)
    say("scatter", value)


def objects(rank, world):
    words = [{"epoch": 3, "by": rank}, "second"] if rank == 0 else [None, None]
    dist.broadcast_object_list(words, src=0)
    say("broadcast_object_list", words)
    everything = [None] * world
    dist.all_gather_object(everything, {"rank": rank})
    say("all_gather_object", everything)


def neighbours(rank, world):
    value = torch.zeros(2)
    following, preceding = (rank + 1) % world, (rank - 1) % world
    if rank % 2 == 0:
        dist.send(own(rank), dst=following, tag=5)
        dist.recv(value, src=preceding, tag=5)
    else:
        dist.recv(value, src=preceding, tag=5)
        dist.send(own(rank), dst=following, tag=5)
    say("recv", value)
    sending = dist.isend(own(rank), dst=preceding)
    receiving = dist.irecv(value, src=following)
    sending.wait()
    receiving.wait()
    say("irecv", value)


def groups(rank, world):
    members = list(range(0, world, 2))
    group = dist.new_group(members, timeout=LIMIT)
    if rank in members:
        value = own(rank)
        dist.all_reduce(value, group=group)
        say("new_group all_reduce", value)
        dist.destroy_process_group(group)
    dist.barrier()


def main():
    dist.init_process_group("gloo", init_method="env://", timeout=LIMIT)
    rank, world = dist.get_rank(), dist.get_world_size()
    say("local", f"{os.environ['LOCAL_RANK']} of {world} by {dist.get_backend()}")
    reductions(rank, world)
    distributions(rank, world)
    objects(rank, world)
    neighbours(rank, world)
    groups(rank, world)
    dist.barrier()
    dist.monitored_barrier(timeout=LIMIT)
    say("monitored_barrier", "passed")
    # All ranks end together: PyTorch's threads may abort the process if a peer closes during their
    # communication.
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.write(f"rank {rank}: initialized {dist.is_initialized()}\n")


if __name__ == "__main__":
    main()
