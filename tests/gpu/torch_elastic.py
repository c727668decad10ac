# SPDX-License-Identifier: Apache-2.0
"""regroup.torch.Elastic over a back end of PyTorch, with two ranks that share one GPU. Rank 1 kills
itself in the forward pass, in the backward pass and before the optimizer, again and again:

    REGROUP_SHARE_GPUS=1 regroup run --standalone --nproc-per-node=2 --max-restarts=20 \\
        --preload=torch,torch._dynamo,regroup.torch tests/gpu/torch_elastic.py --backend=nccl2

Prints how long rank 0 took to leave the operation and to commit the next step, and what it used
before and after. --backend=gloo --device=cpu shows only that the program works.
"""
import argparse
import hashlib
import os
import signal
import statistics
import tempfile
import time

import torch

from regroup.torch import Elastic

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="nccl")
parser.add_argument("--device", default="cuda:0")
parser.add_argument("--kills", type=int, default=9)
options = parser.parse_args()
ON_GPU = options.device.startswith("cuda")
PLACES = ("forward", "backward", "optimizer")
BETWEEN = 4  # Steps between two kills.
LIMIT_S = 240
NOTES = os.path.join(tempfile.gettempdir(), f"torch_elastic.{os.environ['TORCHELASTIC_RUN_ID']}")

signal.alarm(LIMIT_S)  # A rank that nothing releases ends here.
if ON_GPU:
    torch.cuda.set_device(options.device)
torch.manual_seed(1)
WIDTH = 1024 if ON_GPU else 64
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
                            torch.nn.Linear(WIDTH, WIDTH)).to(options.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
elastic = Elastic(model, optimizer, backend=options.backend, compare_every=5)


def die_once(step, place):
    """The steps BETWEEN, 2 * BETWEEN, ... have one kill each; the places take turns."""
    number, rest = divmod(step.number, BETWEEN)
    mark = f"{NOTES}.{number}"
    if (step.rank == 1 and rest == 0 and 0 < number <= options.kills
            and place == PLACES[number % len(PLACES)] and not os.path.exists(mark)):
        with open(mark, "w", encoding="ascii") as file:
            file.write(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)


def used():
    """Descriptors, threads, and MiB of the GPU in use, by all programs."""
    free, total = torch.cuda.mem_get_info() if ON_GPU else (0, 0)
    return (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")),
            (total - free) >> 20)


def killed_at(number):
    with open(f"{NOTES}.{number}", encoding="ascii") as file:
        return float(file.read())


def firsts_after(begins, times):
    """For each beginning the first of the times before the next one."""
    ends = [*begins[1:], float("inf")]
    return [next((at for at in times if begin < at < end), None)
            for begin, end in zip(begins, ends)]


uses, outs, commits = [], [], []
for step in elastic.steps(until=BETWEEN * (options.kills + 1) + 1):
    with step:
        try:
            optimizer.zero_grad()
            inputs = torch.randn(256, WIDTH, device=options.device)
            die_once(step, "forward")
            loss = elastic.ddp(inputs).square().mean()
            die_once(step, "backward")
            loss.backward()
            loss.item()  # The GPU has come here.
            die_once(step, "optimizer")
            with step.update():
                optimizer.step()
        except RuntimeError:
            outs.append(time.monotonic())
            raise
        if ON_GPU:
            torch.cuda.synchronize()
        commits.append(time.monotonic())
        number, rest = divmod(step.number, BETWEEN)
        if rest == BETWEEN - 1 and step.number > BETWEEN:
            uses.append(used())  # Between kills, when the group has worked again.
assert elastic.ending == "finished"
if elastic.rank == 0:
    numbers = range(1, options.kills + 1)
    killed = [killed_at(number) for number in numbers]
    out = firsts_after(killed, outs)
    # None where rank 0 was between two steps.
    assert out.count(None) <= options.kills // 3, f"rank 0 has not noticed the kills: {out}"
    committed = firsts_after([at or begin for at, begin in zip(out, killed)], commits)
    for place in PLACES:
        times = [(1000 * (out[i] - killed[i]), 1000 * (committed[i] - killed[i]))
                 for i in range(options.kills) if PLACES[(i + 1) % len(PLACES)] == place and out[i]]
        if times:
            left, trained = zip(*times)
            print(f"{place}: out after {statistics.median(left):.0f} ms (at most {max(left):.0f}), "
                  f"next step after {statistics.median(trained):.0f} ms (at most "
                  f"{max(trained):.0f}), {len(times)} kills", flush=True)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(f"{options.backend} on {options.device}: descriptors, threads, MiB on the GPU: "
          f"{uses[0]} at first, {uses[-1]} at the end; parameters {digest.hexdigest()[:16]}",
          flush=True)
    for number in numbers:
        os.remove(f"{NOTES}.{number}")
    assert uses[-1][:2] == uses[0][:2], f"descriptors or threads have leaked: {uses}"
elastic.close()
