# SPDX-License-Identifier: Apache-2.0
"""Reduces a sum with its peers and prints it, until the file named by its argument is there."""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    said = False
    while True:
        # The sum of the ranks + 1, and the number of ranks that see the file.
        sums = torch.tensor([rank + 1, int(os.path.exists(sys.argv[1]))])
        dist.all_reduce(sums)
        if not said:
            store = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
            print(f"WORKER world={world} rank={rank} sum={int(sums[0])} store={store}", flush=True)
            said = True
        if sums[1] == world:
            break
        time.sleep(0.1)
    dist.destroy_process_group()


main()
