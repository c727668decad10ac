# SPDX-License-Identifier: Apache-2.0
"""Injects hangs into an unmodified training, and measures whether and when the launcher names the
rank:

    python hang_injection.py REGROUP [--n=3] [--kinds=sleep,stop,...] [--ranks=4] [--false=MINUTES]
                             [--program=pytorch|nccl] [--kernels] [--worker=PATH] [--jobs=1]

The program is a DistributedDataParallel training over gloo, or nccl_hang_worker over the stand-in
for NCCL: --worker, or in the build folder of REGROUP. With --kernels, the plugin for NCCL tells what
the GPU has begun and ended.

Each kind of fault is injected --n times, on a random rank at a random step, with the launcher's own
limits. A job lives through all faults of a kind: after each, its workers are killed and start
again. --jobs of them run at the same time. The event log of the launcher says what it has found.
Each fault that is not found in time, or on another rank, is printed to stderr. With --false,
trainings run for so long without a fault, with even steps and with steps that vary by a factor of
10; each hang that is reported is a false alarm.
"""
import argparse
import concurrent.futures
import datetime
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

KINDS = {
    "sleep": "a rank sleeps",
    "loop": "an endless loop",
    "stop": "SIGSTOP",
    "loader": "a data loader stalls",
    "skipped": "a rank skips a collective",
    "order": "a rank calls collectives in another order",
    "exit": "a rank exits with 0",
    "endless": "a collective that all ranks are in does not end",
}
#: It may be the fault of any rank.
NOBODY_IS_NAMED = {"endless"}
LIMIT_S = 60
IN_TIME_S = 15


# The worker of PyTorch.

def lose_packets():
    """A filter of the kernel drops what arrives for each connection of gloo."""
    import ctypes
    import socket
    import struct
    drop = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
    program = struct.pack("HP", 1, ctypes.addressof(drop))
    store = int(os.environ["MASTER_PORT"])
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6) and \
                        store not in (connection.getsockname()[1], connection.getpeername()[1]):
                    connection.setsockopt(socket.SOL_SOCKET, 26, program)  # SO_ATTACH_FILTER
        except OSError:
            pass  # It is no connection.


def inject(kind, folder, attempt):
    """The rank fails now. Returns for kinds that the loop itself carries out."""
    place = os.path.join(folder, f"fault{attempt}")
    with open(place + ".part", "w", encoding="utf-8") as file:
        file.write(str(time.time()))
    os.rename(place + ".part", place)
    if kind == "sleep":
        time.sleep(1e6)
    elif kind == "loop":
        import re
        re.match("(a+)+$", "a" * 64 + "b")  # It keeps the interpreter's lock.
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "exit":
        sys.exit(0)
    elif kind == "endless":
        lose_packets()


def train(folder):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    with open(os.path.join(folder, "plan"), encoding="utf-8") as file:
        plan = json.load(file)
    fault = plan["faults"][attempt] if attempt < len(plan["faults"]) else {}
    at = fault["step"] if fault.get("rank") == rank else -1
    kind = plan["kind"]

    class Samples(torch.utils.data.IterableDataset):
        def __iter__(self):
            step = 0
            while True:
                if step == at and kind == "loader":
                    inject("sleep", folder, attempt)
                yield torch.randn(32, 256)
                step += 1

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(torch.utils.data.DataLoader(Samples(), batch_size=None,
                                               num_workers=1 if kind == "loader" else 0))
    end = time.monotonic() + plan.get("seconds", 1e9)
    uneven = random.Random(rank)
    step = 0
    while True:
        batch = next(batches)
        if kind == "uneven":
            time.sleep(0.3 * math.exp(uneven.uniform(0, math.log(10))))
        if step == at and kind != "loader":
            inject(kind, folder, attempt)
        optimizer.zero_grad()
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        metric = torch.tensor([float(loss), float(time.monotonic() > end)])
        if step == at and kind == "order":
            dist.all_reduce(metric, op=dist.ReduceOp.MAX)
            dist.barrier()
        else:
            if not (step == at and kind == "skipped"):
                dist.barrier()
            dist.all_reduce(metric, op=dist.ReduceOp.MAX)
        step += 1
        if metric[1]:
            break
    if rank == 0:
        print(f"{step} steps", flush=True)
    dist.destroy_process_group()


# The measurement.

class Program:
    """A program that the launcher starts, and its flags."""

    def __init__(self, options):
        self.is_nccl = options.program == "nccl"
        regroup = os.path.abspath(options.regroup)
        self.start = [regroup, "run", "--standalone", f"--nproc-per-node={options.ranks}"]
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if self.is_nccl:
            build = os.path.dirname(os.path.dirname(regroup))
            self.worker = [os.path.abspath(
                options.worker or os.path.join(build, "tests", "bench", "nccl_hang_worker"))]
            self.environment["REGROUP_NCCL_KERNELS"] = "1" if options.kernels else "0"
        else:
            self.start.append("--preload=torch,torch._dynamo")
            self.worker = [sys.executable, os.path.abspath(__file__)]
            self.environment["HANG_INJECTION"] = "worker"


class Job:
    """A job, and the lines of its event log."""

    def __init__(self, program, folder, plan):
        self.program = program
        self.folder = folder
        with open(os.path.join(folder, "plan"), "w", encoding="utf-8") as file:
            json.dump(plan, file)
        self.log = os.path.join(folder, "events")
        self.process = subprocess.Popen(
            [*program.start, "--max-restarts=100000", "--rdzv-id=hangs", "--log-dir=runs",
             f"--event-log={self.log}", "--event-log-size=1024", "--no-progress=0",
             *program.worker, folder],
            cwd=folder, stdout=open(os.path.join(folder, "output"), "wb"), stderr=subprocess.STDOUT,
            env=program.environment)

    def events(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def wait_for(self, find, limit_s):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            found = find()
            if found is not None:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        return None

    def fault(self, attempt):
        place = os.path.join(self.folder, f"fault{attempt}")

        def find():
            if not os.path.exists(place):
                return None
            with open(place, encoding="utf-8") as file:
                return float(file.read())
        return self.wait_for(find, 300)

    def kill_workers(self, round_number):
        """Ends the round, if it has not ended by itself."""
        for event in self.events():
            if event["event"] == "worker_started" and event["round"] == round_number:
                try:
                    os.kill(event["pid"], signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def output(self):
        with open(os.path.join(self.folder, "output"), encoding="utf-8") as file:
            return file.read()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def seconds_of(event):
    return datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


class Verdict:
    """The rank and the moment that an event tells."""

    def __init__(self, event):
        self.seconds = seconds_of(event)
        self.rank = event.get("rank")
        self.text = event.get("text", event["event"])


def verdict_of(job, kind, round_number):
    """By the first event that says what is wrong."""
    for event in job.events():
        if event["round"] != round_number:
            continue
        is_verdict = event["event"] == "hanging" and ("rank" in event or kind in NOBODY_IS_NAMED)
        # gloo's ranks do not wait for one that has ended.
        is_exit = (kind == "exit" and event["event"] == "worker_succeeded" and
                   not job.program.is_nccl)
        if is_verdict or is_exit:
            return Verdict(event)
    return None


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


class Measurement:
    """The verdicts on all faults of a kind."""

    def __init__(self, kind):
        self.kind = kind
        self.count = self.found = self.right = 0
        self.times = []

    def add(self, fault, began, verdict):
        self.count += 1
        seconds = is_right = None
        if verdict is not None:
            seconds = verdict.seconds - began
            is_right = verdict.rank == (None if self.kind in NOBODY_IS_NAMED else fault["rank"])
            self.found += 1
            self.right += is_right
            self.times.append(seconds)
        if not is_right or seconds > IN_TIME_S:
            said = "nothing" if verdict is None else f"after {seconds:.1f} s: {verdict.text}"
            print(f"{self.kind} {self.count}, rank {fault['rank']}, step {fault['step']}: {said}",
                  file=sys.stderr, flush=True)

    def row(self):
        times = [f"{percentile(self.times, part):.1f}" if self.times else "-"
                 for part in (0.5, 0.95)]
        return (f"| {KINDS[self.kind]} | {self.found} of {self.count} | {self.right} of "
                f"{self.count} | {' | '.join(times)} |")


def measure(program, kind, faults):
    result = Measurement(kind)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        job = Job(program, folder, {"kind": kind, "faults": faults})
        try:
            for attempt, fault in enumerate(faults):
                began = job.fault(attempt)
                if began is None:
                    raise RuntimeError(f"{kind}: no fault {attempt}:\n{job.output()}")
                verdict = job.wait_for(lambda: verdict_of(job, kind, attempt + 1), LIMIT_S)
                result.add(fault, began, verdict)
                job.kill_workers(attempt + 1)
        finally:
            job.end()
    return result


def measure_all(program, options):
    print("| fault | found | right | seconds, median | 95th percentile |\n|---|---|---|---|---|")
    chance = random.Random(options.seed)
    kinds = options.kinds.split(",")
    faults = [[{"rank": chance.randrange(options.ranks), "step": chance.randrange(20, 100)}
               for _ in range(options.n)] for _ in kinds]
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as jobs:
        for result in jobs.map(measure, [program] * len(kinds), kinds, faults):
            results.append(result)
            print(result.row(), flush=True)
    count = sum(result.count for result in results)
    in_time = sum(seconds <= IN_TIME_S for result in results for seconds in result.times)
    print(f"right: {sum(result.right for result in results)} of {count}; within {IN_TIME_S} s: "
          f"{in_time} of {count}")


def measure_false(program, kind, minutes):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        job = Job(program, folder, {"kind": kind, "faults": [], "seconds": minutes * 60})
        try:
            job.process.wait()
        finally:
            job.end()
        steps = [line for line in job.output().splitlines() if line.endswith(" steps")]
        alarms = [event for event in job.events() if event["event"] == "hanging"]
    made = steps[0].split()[-2] if steps else "failed"
    return f"| {kind} | {minutes:g} | {made} | {len(alarms)} |"


def measure_all_false(program, options):
    print("| steps | minutes | made | false alarms |\n|---|---|---|---|")
    kinds = ("even", "uneven")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as jobs:
        for row in jobs.map(measure_false, [program] * 2, kinds, [options.false] * 2):
            print(row, flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("regroup")
    parser.add_argument("--n", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--false", type=float, default=0)
    parser.add_argument("--program", choices=("pytorch", "nccl"), default="pytorch")
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--worker")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    program = Program(options)
    if options.false:
        measure_all_false(program, options)
    else:
        measure_all(program, options)


if __name__ == "__main__":
    if os.environ.get("HANG_INJECTION") == "worker":
        train(sys.argv[1])
    else:
        main()
