# SPDX-License-Identifier: Apache-2.0
"""Training of two ranks, which may share one GPU. Rank 1 kills itself again and again. torch_check.py
starts it under the launcher:

    torch_elastic.py KIND [--backend=B] [--device=D] [--kills=N] [--places=P,P,...] [--limit=S]

KIND is ddp (regroup.torch.Elastic), or fsdp (regroup.torch.ShardedElastic with FSDP2). Rank 1 dies in
the forward pass, in the backward pass, before the optimizer, in "load" (in the forward pass, and its
successor when it loads the state), or in "form" (in the forward pass, and its successor when PyTorch
forms the communicator). Prints how long rank 0 took to leave the operation and to commit the next
step, what it used after the first and after the last kill, and a digest of the parameters.
"""
import argparse
import faulthandler
import hashlib
import os
import signal
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

from regroup.torch import Elastic, ShardedElastic
from regroup.torch.round_store import RoundStore

parser = argparse.ArgumentParser()
parser.add_argument("kind", choices=("ddp", "fsdp"))
parser.add_argument("--backend", default="nccl")
parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
parser.add_argument("--kills", type=int, default=8)
parser.add_argument("--places", default="forward,backward,optimizer,load")
parser.add_argument("--limit", type=int, default=240)
options = parser.parse_args()
ON_GPU = options.device == "cuda"
PLACES = options.places.split(",")
#: Of a kill after which the successor dies, too.
SUCCESSOR_PLACES = ("load", "form")
BETWEEN = 4  # Steps between two kills.
STEPS = BETWEEN * 9 + 1  # However many kills, so that results can be compared.
GROWTH_MIB = 100
RANK = int(os.environ["LOCAL_RANK"])
NOTES = os.path.join(tempfile.gettempdir(), f"torch_elastic.{os.environ['TORCHELASTIC_RUN_ID']}")
WIDTH = 2048 if ON_GPU else 64
DEVICE = torch.device("cpu")

# A rank that nothing releases ends here, and says where.
faulthandler.dump_traceback_later(options.limit, exit=True)
if ON_GPU:
    DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())
    torch.cuda.set_device(DEVICE)
    if torch.cuda.device_count() < 2:  # The loop sets these only if it has a group of NCCL.
        for name, value in (("HOSTID", f"torch-{RANK}"), ("SOCKET_IFNAME", "lo"),
                            ("IB_DISABLE", "1"), ("MNNVL_ENABLE", "0"), ("NVLS_ENABLE", "0"),
                            ("MAX_CTAS", "2")):
            os.environ.setdefault(f"NCCL_{name}", value)
else:
    torch.set_num_threads(1)


def die(mark):
    """Once for each mark."""
    path = f"{NOTES}.{mark}"
    if RANK == 1 and not os.path.exists(path):
        with open(path, "w", encoding="ascii") as file:
            file.write(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)


def die_once(step, place):
    """The steps BETWEEN, 2 * BETWEEN, ... have one kill each; the places take turns."""
    number, rest = divmod(step.number, BETWEEN)
    if rest == 0 and 0 < number <= options.kills:
        due = PLACES[(number - 1) % len(PLACES)]
        if place == ("forward" if due in SUCCESSOR_PLACES else due):
            die(f"{number}")


def die_as_successor(place):
    for number in range(1, options.kills + 1):
        if PLACES[(number - 1) % len(PLACES)] == place and os.path.exists(f"{NOTES}.{number}"):
            die(f"{number}.{place}")


def with_death(ask):
    """Of the store, which rank 1 asks for the addresses of a communicator."""
    def ask_or_die(*arguments):
        if not ON_GPU or dist.is_initialized():
            die_as_successor("form")
        return ask(*arguments)
    return ask_or_die


class Count:
    """A part of the state: the number of steps."""

    def __init__(self):
        self.steps = 0

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        die_as_successor("load")
        self.steps = state["steps"]


def build(mesh=None):
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
                                torch.nn.Linear(WIDTH, WIDTH)).to(DEVICE)
    if mesh is not None:
        from torch.distributed.fsdp import fully_shard
        for part in (model[0], model[2], model):
            fully_shard(part, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), Count()


for question in ("get", "multi_get", "wait"):
    setattr(RoundStore, question, with_death(getattr(RoundStore, question)))
if options.kind == "ddp":
    torch.manual_seed(1)
    parts = build()
    elastic = Elastic(*parts, backend=options.backend, seed=1, compare_every=5)
else:
    elastic = ShardedElastic(build, backend=options.backend, seed=1, device=options.device,
                             snapshot_every=2)


def train(step):
    if options.kind == "ddp":
        module, (_, optimizer, count) = elastic.ddp, parts
    else:
        module, optimizer, (count,) = elastic.model, elastic.optimizer, elastic.parts
    optimizer.zero_grad()
    inputs = torch.randn(256, WIDTH, device=DEVICE)
    die_once(step, "forward")
    loss = module(inputs).square().mean()
    die_once(step, "backward")
    loss.backward()
    loss.item()  # The GPU has come here.
    die_once(step, "optimizer")
    with step.update():
        optimizer.step()
        count.steps += 1


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


def report_times(outs, commits):
    killed = [killed_at(number) for number in range(1, options.kills + 1)]
    for number in range(1, options.kills + 1):
        place = PLACES[(number - 1) % len(PLACES)]
        assert place not in SUCCESSOR_PLACES or os.path.exists(f"{NOTES}.{number}.{place}"), number
    out = firsts_after(killed, outs)
    # None where rank 0 was between two steps.
    assert out.count(None) <= options.kills // 3, f"rank 0 has not noticed the kills: {out}"
    committed = firsts_after([at or begin for at, begin in zip(out, killed)], commits)
    for index, place in enumerate(PLACES):
        times = [(1000 * (out[i] - killed[i]), 1000 * (committed[i] - killed[i]))
                 for i in range(index, options.kills, len(PLACES)) if out[i]]
        if times:
            left, trained = zip(*times)
            print(f"measured: {place}: out after {statistics.median(left):.0f} ms (at most "
                  f"{max(left):.0f}), next step after {statistics.median(trained):.0f} ms (at most "
                  f"{max(trained):.0f}), {len(times)} kills", flush=True)


uses, outs, commits = [], [], []
for step in elastic.steps(until=STEPS):
    with step:
        try:
            train(step)
        except RuntimeError:
            outs.append(time.monotonic())
            raise
        if ON_GPU:
            torch.cuda.synchronize()
        commits.append(time.monotonic())
        number, rest = divmod(step.number, BETWEEN)
        if rest == BETWEEN - 1 and 0 < number <= max(options.kills, 1):
            uses.append(used())  # Between kills, when the group has worked again.
assert elastic.ending == "finished"
if options.kind == "ddp":
    tensors = [parameter.detach() for parameter in parts[0].parameters()]
else:
    tensors = [parameter.detach().full_tensor() for parameter in elastic.model.parameters()]
if elastic.rank == 0:
    report_times(outs, commits)
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.cpu().numpy().tobytes())
    print(f"measured: descriptors, threads, MiB on the GPU: {uses[0]} at first, {uses[-1]} at the "
          f"end; parameters {digest.hexdigest()[:16]}", flush=True)
    if "form" not in PLACES:  # What NCCL has opened for the dead stays.
        assert uses[-1][:2] == uses[0][:2], f"descriptors or threads have leaked: {uses}"
        assert uses[-1][2] - uses[0][2] < GROWTH_MIB, f"memory of the GPU has leaked: {uses}"
elastic.close()
