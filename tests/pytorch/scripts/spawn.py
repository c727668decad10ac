# SPDX-License-Identifier: Apache-2.0
"""A script that starts its own processes with mp.spawn, which meet at MASTER_ADDR:MASTER_PORT.

    MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 python3 spawn.py --nprocs 2

With --fail_index that process raises, and spawn passes the exception on.
"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(index, nprocs, fail_index):
    if index == fail_index:
        raise ValueError(f"process {index} has had enough")
    if fail_index >= 0:
        return
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(index), str(nprocs)
    dist.init_process_group("gloo")
    value = torch.tensor([index + 1.0])
    dist.all_reduce(value)
    print(f"process {index}: sum {int(value.item())}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nprocs", type=int, default=2)
    parser.add_argument("--fail_index", type=int, default=-1)
    args = parser.parse_args()
    mp.spawn(work, args=(args.nprocs, args.fail_index), nprocs=args.nprocs, join=True)
    print("all joined", flush=True)


if __name__ == "__main__":
    main()
