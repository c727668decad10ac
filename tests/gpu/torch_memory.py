# SPDX-License-Identifier: Apache-2.0
"""Memory of a GPU; torch_check.py starts it under the launcher:

    torch_memory.py successor DEVICE SHARE    # one rank, two restarts
    torch_memory.py communicators DEVICE      # two ranks, which may share the GPU

successor: a process takes a share of the GPU's memory and is killed. Its successor takes as much at
once, and is killed, too; its child, forked when CUDA was up, has a session of its own and the device
files open. The third process takes as much again. On the CPU, 64 MiB.

communicators: forms the communicator that the loop has for the state and the votes, and PyTorch's,
and prints what each takes.
"""
import os
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist

import regroup

way, device = sys.argv[1:3]
ON_GPU = device == "cuda"
NOTES = os.path.join(tempfile.gettempdir(), f"torch_memory.{os.environ['TORCHELASTIC_RUN_ID']}")


def used_mib():
    free, total = torch.cuda.mem_get_info() if ON_GPU else (0, 0)
    return (total - free) >> 20


def successor(share):
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    size = int(torch.cuda.mem_get_info()[1] * share) if ON_GPU else 64 << 20
    memory = torch.empty(size, dtype=torch.uint8, device=device)  # Raises if there is too little.
    memory[-1] = 1
    assert memory[-1].item() == 1
    now = time.monotonic()
    if restarts > 0:
        with open(NOTES, encoding="ascii") as file:
            killed_at, child = file.read().split()
        print(f"measured: {size >> 20} MiB again {now - float(killed_at):.2f} s after the kill of "
              f"{'a process' if child == '0' else 'a process with a child'}", flush=True)
        assert child == "0" or not os.path.exists(f"/proc/{child}"), f"child {child} lives"
    if restarts == 2:
        return
    child = 0
    if restarts == 1:
        child = os.fork()
        if child == 0:
            os.setsid()
            time.sleep(1000)
    with open(NOTES, "w", encoding="ascii") as file:
        file.write(f"{time.monotonic()} {child}")
    os.kill(os.getpid(), signal.SIGKILL)


def communicators():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if ON_GPU:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    control = regroup.ProcessGroup.create("cpu")
    value = torch.zeros(1, device=device)  # The context is there.

    def own():
        group = regroup.ProcessGroup.create("nccl" if ON_GPU else "cpu")
        group.all_reduce(value)
        return group.close

    def pytorch():
        store = dist.FileStore(f"{NOTES}.{number}", size)
        dist.init_process_group("nccl" if ON_GPU else "gloo", store=store, rank=rank,
                                world_size=size)
        dist.all_reduce(value)
        return dist.destroy_process_group

    for number in range(2):  # The first ones load NCCL.
        closes = []
        for name, form in (("the loop", own), ("PyTorch", pytorch)):
            control.barrier()
            before, begin = used_mib(), time.monotonic()
            closes.append(form())
            value.item()
            control.barrier()
            if rank == 0 and number == 1:
                print(f"measured: communicator of {name}: {1000 * (time.monotonic() - begin):.0f} "
                      f"ms, {used_mib() - before} MiB on the GPU for both ranks", flush=True)
        for close in closes:
            close()


if way == "successor":
    successor(float(sys.argv[3]))
else:
    communicators()
