# SPDX-License-Identifier: Apache-2.0
"""Saves and loads the state of a rank by regroup.torch.Snapshot, by torch.save and torch.load, and by
DLRover's flash checkpoint if that is installed; one after the other in each turn.

    regroup run --standalone --nproc-per-node=1 --max-restarts=1 snapshot_peers.py [MEGABYTES...]

After the first half the process kills itself. New ones load, each contestant once in a process of
its own: from the agent's memory, and from a file in the page cache. Prints medians in seconds.
DLRover loads in the process that has saved, and does not verify: its memory ends with processes that
its own launcher has not started, and that needs Kubernetes' client.
"""
import json
import logging
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from regroup.torch import Snapshot

TURNS = 5
TENSORS = 64
sizes = [int(word) for word in sys.argv[1:] if word.isdigit()] or [256, 1024]
folder = os.path.join(tempfile.gettempdir(), f"snapshot_peers.{os.getppid()}")
notes_path = os.path.join(folder, "notes.json")


def timed(work):
    begin = time.perf_counter()
    result = work()
    return time.perf_counter() - begin, result


class Holder(torch.nn.Module):
    def __init__(self, megabytes, fill):
        super().__init__()
        count = megabytes * (1 << 20) // 4 // TENSORS
        for i in range(TENSORS):
            self.register_buffer(f"tensor{i}", torch.full((count,), float(fill) + i))


def flash_checkpoint(megabytes):
    """None if DLRover is not installed."""
    try:
        logging.disable(logging.INFO)
        from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer, StorageType
    except ImportError as error:
        print(f"DLRover: {error}", flush=True)
        return None
    return DdpCheckpointer(os.path.join(folder, f"flash{megabytes}")), StorageType.MEMORY


def flash_state(checkpointer):
    # Views of its memory, which it does not verify.
    loaded = checkpointer._engine.get_state_dict_from_memory()
    loaded = loaded[1] if isinstance(loaded, tuple) else loaded
    return next(iter(loaded.values())) if len(loaded) == 1 else loaded


def save(megabytes):
    state = Holder(megabytes, 1)
    snapshot = Snapshot(state=state, name=f"m{megabytes}", replicated=False)
    snapshot.load()
    target = {name: torch.zeros_like(value) for name, value in state.state_dict().items()}
    path = os.path.join(folder, f"{megabytes}.pt")
    flash = flash_checkpoint(megabytes)
    times = {"memory copy": [], "Snapshot.save": [], "torch.save": [], "DLRover save": [],
             "DLRover load": []}

    def copy():
        for name, value in state.state_dict().items():
            target[name].copy_(value)

    for turn in range(TURNS + 1):
        measured = {"memory copy": timed(copy)[0]}
        measured["Snapshot.save"], kept = timed(lambda: snapshot.save(turn + 1))
        assert kept and snapshot.wait_until_whole(60)
        measured["torch.save"] = timed(lambda: torch.save(state.state_dict(), path))[0]
        if flash:
            checkpointer, place = flash
            measured["DLRover save"] = timed(lambda: checkpointer.save_checkpoint(
                turn + 1, state.state_dict(), storage_type=place))[0]
            measured["DLRover load"] = timed(lambda: state.load_state_dict(flash_state(
                checkpointer)))[0]
        if turn > 0:  # The first one makes the memory.
            for name, value in measured.items():
                times[name].append(value)
    return {name: statistics.median(values) for name, values in times.items() if values}


def load(megabytes):
    state = Holder(megabytes, 0)
    snapshot = Snapshot(state=state, name=f"m{megabytes}", replicated=False)
    seconds, step = timed(snapshot.load)
    assert step == TURNS + 1 and state.tensor3[-1].item() == 4.0, step
    command = [sys.executable, __file__, "torch.load", os.path.join(folder, f"{megabytes}.pt"),
               str(megabytes)]
    others = [float(subprocess.check_output(command)) for _ in range(3)]
    return {"Snapshot.load": seconds, "torch.load": statistics.median(others)}


if sys.argv[1:2] == ["torch.load"]:
    holder = Holder(int(sys.argv[3]), 0)
    print(timed(lambda: holder.load_state_dict(torch.load(sys.argv[2])))[0])
elif os.path.exists(notes_path):
    with open(notes_path, encoding="utf-8") as file:
        notes = json.load(file)
    for size in sizes:
        times = {**notes[str(size)], **load(size)}
        print(f"{size} MB: " + ", ".join(f"{name} {value:.3f}" for name, value in times.items()),
              flush=True)
        if "DLRover save" in times:
            print(f"    DLRover/Snapshot: save {times['DLRover save'] / times['Snapshot.save']:.1f}, "
                  f"load {times['DLRover load'] / times['Snapshot.load']:.1f}")
        print(f"    Snapshot.save/memory copy {times['Snapshot.save'] / times['memory copy']:.2f}, "
              f"torch.load/Snapshot.load {times['torch.load'] / times['Snapshot.load']:.1f}",
              flush=True)
else:
    os.makedirs(folder)
    results = {size: save(size) for size in sizes}
    with open(notes_path, "w", encoding="utf-8") as file:
        json.dump(results, file)
    os.kill(os.getpid(), signal.SIGKILL)
