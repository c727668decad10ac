# SPDX-License-Identifier: Apache-2.0
"""From start to the end of the first all-reduce with torch: the peer of time_to_communicator.

    python3 torch_communicator.py [RANKS [REPEATS]]
"""

import os
import time

started = time.monotonic()

from torch_peer import is_rank, number_of, run_ranks, sharing, torch_or_end  # noqa: E402


def be_rank():
    import torch
    import torch.distributed as dist

    imported = time.monotonic()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl")
    values = torch.ones(1024, device="cuda")
    dist.all_reduce(values)
    torch.cuda.synchronize()
    ended = time.monotonic()
    print(1e3 * (ended - imported), 1e3 * (ended - started), flush=True)
    dist.destroy_process_group()


def main():
    torch = torch_or_end("torch_communicator")
    ranks, repeats = number_of(1, 2), number_of(2, 5)
    gpus = torch.cuda.device_count()
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    print(f"torch {torch.__version__}, NCCL {nccl}; {ranks} ranks on {gpus} GPU(s)"
          f"{sharing(ranks, gpus)}, median of {repeats} fresh starts, slowest rank, ms:")
    runs = []
    for _ in range(repeats):
        ends = [tuple(map(float, output.split())) for output in run_ranks(ranks, gpus)]
        runs.append([max(times) for times in zip(*ends)])
    for name, times in zip(("whole", "with import"), zip(*runs)):
        print(f"  {name:12} {sorted(times)[repeats // 2]:9.1f}")


if __name__ == "__main__":
    be_rank() if is_rank() else main()
