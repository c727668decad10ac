# SPDX-License-Identifier: Apache-2.0
"""Functions that the programs share which measure torch as a peer."""

import os
import socket
import subprocess
import sys


def torch_or_end(program):
    """Returns torch. Ends the program with one line if there is no torch that sees a GPU."""
    try:
        import torch
    except ImportError:
        print(f"{program}: skipped: {sys.executable} has no torch")
        sys.exit(0)
    if not torch.cuda.is_available():
        print(f"{program}: skipped: torch {torch.__version__} sees no GPU")
        sys.exit(0)
    return torch


def number_of(argument, default):
    return int(sys.argv[argument]) if len(sys.argv) > argument else default


def run_ranks(ranks, gpus, limit_s=120, environments=None):
    """Runs this script again as each of `ranks` ranks, and returns the output of each.

    Ranks that share a GPU appear to NCCL as separate hosts, as in the programs of this folder. The
    variables of environments[rank] are for one rank.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    processes = []
    for rank in range(ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        environment.update(environments[rank] if environments else {})
        if ranks > gpus:
            environment.update(NCCL_HOSTID=f"torch-{rank}", NCCL_SOCKET_IFNAME="lo",
                               NCCL_IB_DISABLE="1", NCCL_MNNVL_ENABLE="0", NCCL_NVLS_ENABLE="0",
                               NCCL_MAX_CTAS="2")
        processes.append(subprocess.Popen([sys.executable, sys.argv[0], "--rank"], text=True,
                                          env=environment, stdout=subprocess.PIPE))
    try:
        outputs = [process.communicate(timeout=limit_s)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode != 0 for process in processes):
        sys.exit(f"{sys.argv[0]}: a rank failed")
    return outputs


def is_rank():
    return sys.argv[1:2] == ["--rank"]


def sharing(ranks, gpus):
    return " (time-sliced, correctness only)" if ranks > gpus else ""
