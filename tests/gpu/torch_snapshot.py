# SPDX-License-Identifier: Apache-2.0
"""regroup.torch.Snapshot of a state on a GPU: save beside a copy to pinned memory, the steps in which
it happens beside others, and load after kill -9.

    regroup run --standalone --nproc-per-node=1 --max-restarts=1 torch_snapshot.py [GIGABYTES [DEVICE]]

Prints seconds and ratios. DEVICE is cuda:0; cpu shows only that the program works.
"""
import json
import os
import signal
import statistics
import sys
import tempfile
import time

import torch

from regroup.torch import Snapshot

GIGABYTES = float(sys.argv[1]) if len(sys.argv) > 1 else 20
DEVICE = torch.device(sys.argv[2] if len(sys.argv) > 2 else "cuda:0")
ON_GPU = DEVICE.type == "cuda"
TENSORS, STEPS, TURNS, WIDTH = 200, 10, 4, 4096 if ON_GPU else 512
NOTES = os.path.join(tempfile.gettempdir(), f"torch_snapshot.{os.getppid()}")


class Holder(torch.nn.Module):
    def __init__(self, fill):
        super().__init__()
        count = int(GIGABYTES * 1e9) // 4 // TENSORS
        for i in range(TENSORS):
            self.register_buffer(f"tensor{i}", torch.full((count,), float(fill + i), device=DEVICE))


def timed(work):
    if ON_GPU:
        torch.cuda.synchronize()
    begin = time.perf_counter()
    result = work()
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - begin, result


def copy_rate(state):
    """Bytes per second to pinned memory, one tensor at a time."""
    tensor = state.tensor0
    pinned = torch.empty(tensor.shape, pin_memory=ON_GPU)
    return 4 * tensor.numel() / min(timed(lambda: pinned.copy_(tensor))[0] for _ in range(5))


def save(state, snapshot):
    weights = torch.randn(WIDTH, WIDTH, device=DEVICE)
    values = torch.randn(WIDTH, WIDTH, device=DEVICE)

    def steps():
        for _ in range(STEPS):
            for _ in range(20):
                torch.mm(weights, values)

    times = {"save": [], "steps after a save": [], "steps": []}
    for turn in range(TURNS + 1):
        seconds, kept = timed(lambda: snapshot.save(turn + 1))
        assert kept
        measured = {"save": seconds, "steps after a save": timed(steps)[0]}
        assert snapshot.wait_until_whole(60)
        measured["steps"] = timed(steps)[0]
        for name, value in measured.items() if turn > 0 else ():  # The first one makes the memory.
            times[name].append(value)
    notes = {name: statistics.median(values) for name, values in times.items()}
    notes["rate"] = copy_rate(state)
    with open(NOTES, "w", encoding="utf-8") as file:
        json.dump(notes, file)


def main():
    again = os.path.exists(NOTES)
    state = Holder(0 if again else 1)
    snapshot = Snapshot(state=state, replicated=False)
    seconds, step = timed(snapshot.load)
    if not again:
        save(state, snapshot)
        os.kill(os.getpid(), signal.SIGKILL)
    assert step == TURNS + 1 and state.tensor7[-1].item() == 8, step
    with open(NOTES, encoding="utf-8") as file:
        notes = json.load(file)
    os.remove(NOTES)
    size = GIGABYTES * 1e9
    print(f"{GIGABYTES} GB on {DEVICE}: save {notes['save']:.3f} s, "
          f"{size / notes['save'] / notes['rate']:.2f} of the copy engine's {notes['rate'] / 1e9:.1f} "
          f"GB/s; steps after a save {notes['steps after a save'] / notes['steps']:.3f} times as "
          f"long; load {seconds:.3f} s", flush=True)


main()
