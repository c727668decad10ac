# SPDX-License-Identifier: Apache-2.0
"""Writes a worker's environment to a JSON file per rank, OUT.RANK, and forms a group from it alone.

    torchrun --nproc-per-node=2 environment.py --out environment
"""
import argparse
import json
import os
import signal
import sys

import torch.distributed as dist


def process_attributes():
    handled = {}
    with open("/proc/self/status") as status:
        for line in status:
            name, _, value = line.partition(":")
            if name in ("SigBlk", "SigIgn"):
                handled[name] = int(value, 16)
    # Python ignores SIGPIPE and SIGXFSZ by itself; from 32 on, signals belong to the C library.
    by_python = (1 << (signal.SIGPIPE - 1)) | (1 << (signal.SIGXFSZ - 1))
    classic = (1 << 31) - 1
    descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    return {
        "leads_session": os.getsid(0) == os.getpid(),
        "leads_group": os.getpgid(0) == os.getpid(),
        "blocked_signals": handled["SigBlk"] & classic,
        "ignored_signals": handled["SigIgn"] & classic & ~by_python,
        "inherited_descriptors": sorted(fd for fd in descriptors if 2 < fd and is_inherited(fd)),
        "directory": os.getcwd(),
        "arguments": sys.argv[1:],
        "unbuffered": bool(sys.stdout.write_through),
    }


def is_inherited(fd):
    # Descriptors that this process opened are close-on-exec; inherited ones are not.
    try:
        return os.get_inheritable(fd)
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="environment")
    parser.add_argument("words", nargs="*", help="that are only written down")
    args = parser.parse_args()
    before = dict(os.environ)
    attributes = process_attributes()
    launched = dist.is_torchelastic_launched()
    dist.init_process_group("gloo")
    result = {
        "environment": before,
        "process": attributes,
        "is_torchelastic_launched": launched,
        "get_rank": dist.get_rank(),
        "get_world_size": dist.get_world_size(),
        "get_backend": dist.get_backend(),
    }
    part = f"{args.out}.{before['RANK']}.part"
    with open(part, "w") as file:
        json.dump(result, file, indent=1, sort_keys=True)
    os.replace(part, f"{args.out}.{before['RANK']}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
