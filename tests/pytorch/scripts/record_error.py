# SPDX-License-Identifier: Apache-2.0
"""A main function under `record`, which writes an exception of one rank to its error file.

    torchrun --nproc-per-node=2 record_error.py --fail_rank 1
"""
import argparse
import os
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail_rank", type=int, default=1)
    args = parser.parse_args()
    if int(os.environ["RANK"]) == args.fail_rank:
        raise ValueError(f"no data for rank {args.fail_rank}")
    # The other ranks run until the launcher ends them.
    time.sleep(120)


if __name__ == "__main__":
    main()
