# SPDX-License-Identifier: Apache-2.0
"""An older script, which gets its local rank as an argument.

    python3 -m torch.distributed.launch --nproc_per_node=2 local_rank_argument.py --epochs 3
"""
import argparse
import os
import sys

import torch
import torch.distributed as dist


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", "--local-rank", type=int)
    parser.add_argument("--epochs", type=int, default=1)
    args = parser.parse_args()
    given = args.local_rank is not None
    local_rank = args.local_rank if given else int(os.environ["LOCAL_RANK"])
    dist.init_process_group("gloo")
    value = torch.tensor([float(local_rank)])
    dist.all_reduce(value)
    sys.stdout.write(
        f"rank {dist.get_rank()}: local rank {local_rank} by {'argument' if given else 'variable'},"
        f" first argument {sys.argv[1].partition('=')[0]}, epochs {args.epochs},"
        f" sum {int(value.item())}\n"
    )
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
