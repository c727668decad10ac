# SPDX-License-Identifier: Apache-2.0
"""A main function under `record`, so that an exception on one rank is told in its error file.

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
    # The others are at work until the launcher ends them.
    time.sleep(120)


if __name__ == "__main__":
    main()
