# SPDX-License-Identifier: Apache-2.0
"""The all_reduce of PyTorch over gloo, measured as in all_reduce_bench.

    python all_reduce_peer.py WORLD_SIZE PORT BYTES:ROUNDS...

Prints a line "BYTES MEDIAN_US MIN_US" for each size, from rank 0.
"""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist


def measure(size, rounds):
    values = torch.empty(size // 4)
    times = []
    for _ in range(rounds + 2):
        values.fill_(1.0)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(values)
        times.append((time.perf_counter() - start) * 1e6)
    assert float(values[-1]) == dist.get_world_size()
    return times[2:]


def run(rank, world_size, port, sizes):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world_size
    )
    for size, rounds in sizes:
        times = measure(size, rounds)
        if rank == 0:
            print(size, statistics.median(times), min(times), flush=True)
    dist.destroy_process_group()


def main():
    world_size, port = int(sys.argv[1]), int(sys.argv[2])
    sizes = [tuple(int(word) for word in text.split(":")) for text in sys.argv[3:]]
    children = []
    for rank in range(1, world_size):
        pid = os.fork()
        if pid == 0:
            run(rank, world_size, port, sizes)
            os._exit(0)
        children.append(pid)
    run(0, world_size, port, sizes)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
