# SPDX-License-Identifier: Apache-2.0
"""A group that is given address, rank and size explicitly, from the launcher's variables.

    torchrun --nproc-per-node=4 tcp_init.py
"""
import os

import torch
import torch.distributed as dist


def main():
    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{address}:{port}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    value = torch.ones(1)
    dist.all_reduce(value)
    print(f"rank {dist.get_rank()}: sum {int(value.item())}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
