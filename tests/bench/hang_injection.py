# SPDX-License-Identifier: Apache-2.0
"""Injects hangs into an unmodified DistributedDataParallel training over gloo, and measures whether
and when the launcher names the rank:

    python hang_injection.py REGROUP [--n=3] [--kinds=sleep,stop,...] [--ranks=4] [--false=MINUTES]

Each kind of fault is injected --n times, on a random rank at a random step, with the launcher's own
limits. A job lives through all faults of a kind: after each, its workers are killed and start
again. The event log of the launcher says what it has found. With --false, trainings run for so long
without a fault, with even steps and with steps that vary by a factor of 10; each hang that is
reported is a false alarm.
"""
import argparse
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
    "lock": "a loop holds Python's lock",
    "stop": "SIGSTOP",
    "loader": "a data loader stalls",
    "skipped": "a rank skips a collective",
    "order": "a rank calls collectives in another order",
    "exit": "a rank exits with 0",
    "link": "a rank's connections lose all packets",
}
#: All ranks are in a collective that does not end: which one is cut off, nobody can tell.
NOBODY_IS_NAMED = {"link"}
LIMIT_S = 60


# The worker.

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
    elif kind == "lock":
        import re
        re.match("(a+)+$", "a" * 64 + "b")  # Takes for ever, and gives the lock to nobody.
    elif kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "exit":
        sys.exit(0)
    elif kind == "link":
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

class Job:
    """A job, and the lines of its event log."""

    def __init__(self, regroup, folder, ranks, plan):
        self.folder = folder
        with open(os.path.join(folder, "plan"), "w", encoding="utf-8") as file:
            json.dump(plan, file)
        self.log = os.path.join(folder, "events")
        self.process = subprocess.Popen(
            [regroup, "run", "--standalone", f"--nproc-per-node={ranks}", "--preload=torch",
             "--max-restarts=100000", "--rdzv-id=hangs", "--log-dir=runs",
             f"--event-log={self.log}", "--event-log-size=1024", "--no-progress=0", sys.executable,
             os.path.abspath(__file__), folder],
            cwd=folder, stdout=open(os.path.join(folder, "output"), "wb"), stderr=subprocess.STDOUT,
            env={**os.environ, "HANG_INJECTION": "worker", "OMP_NUM_THREADS": "1"})

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
        """Ends the round, if it has not ended: gloo's ranks cannot."""
        for event in self.events():
            if event["event"] == "worker_started" and event["round"] == round_number:
                try:
                    os.kill(event["pid"], signal.SIGKILL)
                except ProcessLookupError:
                    pass

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


def verdict_of(job, kind, round_number):
    """The first event that says what is wrong: when, and the rank that it names, if any."""
    for event in job.events():
        if event["round"] != round_number:
            continue
        is_verdict = event["event"] == "hanging" and ("rank" in event or kind in NOBODY_IS_NAMED)
        is_exit = kind == "exit" and event["event"] == "worker_succeeded"
        if is_verdict or is_exit:
            return seconds_of(event), event.get("rank")
    return None


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, math.ceil(part * len(values)) - 1)]


def measure(regroup, kind, count, ranks, chance):
    faults = [{"rank": chance.randrange(ranks), "step": chance.randrange(20, 100)}
              for _ in range(count)]
    found, right, times = 0, 0, []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        job = Job(regroup, folder, ranks, {"kind": kind, "faults": faults})
        try:
            for attempt, fault in enumerate(faults):
                began = job.fault(attempt)
                if began is None:
                    with open(os.path.join(folder, "output"), encoding="utf-8") as file:
                        sys.exit(f"{kind}: no fault {attempt}:\n{file.read()}")
                verdict = job.wait_for(lambda: verdict_of(job, kind, attempt + 1), LIMIT_S)
                if verdict is not None:
                    found += 1
                    right += verdict[1] == (None if kind in NOBODY_IS_NAMED else fault["rank"])
                    times.append(verdict[0] - began)
                job.kill_workers(attempt + 1)
        finally:
            job.end()
    shown = (f"{percentile(times, 0.5):.1f} | {percentile(times, 0.95):.1f}" if times else "- | -")
    print(f"| {KINDS[kind]} | {found} of {count} | {right} of {count} | {shown} |", flush=True)
    return found, right, times


def measure_false(regroup, kind, minutes, ranks):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        job = Job(regroup, folder, ranks, {"kind": kind, "faults": [], "seconds": minutes * 60})
        try:
            job.process.wait()
        finally:
            job.end()
        with open(os.path.join(folder, "output"), encoding="utf-8") as file:
            steps = [line for line in file if line.endswith(" steps\n")]
        alarms = [event for event in job.events() if event["event"] == "hanging"]
    made = steps[0].split()[-2] if steps else "failed"
    print(f"| {kind} | {minutes:g} | {made} | {len(alarms)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("regroup")
    parser.add_argument("--n", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--false", type=float, default=0)
    options = parser.parse_args()
    regroup = os.path.abspath(options.regroup)
    chance = random.Random(options.seed)
    if options.false:
        print("| steps | minutes | made | false alarms |\n|---|---|---|---|")
        for kind in ("even", "uneven"):
            measure_false(regroup, kind, options.false, options.ranks)
        return
    print("| fault | found | right | seconds, median | 95th percentile |\n|---|---|---|---|---|")
    results = [measure(regroup, kind, options.n, options.ranks, chance)
               for kind in options.kinds.split(",")]
    count = options.n * len(results)
    times = [seconds for result in results for seconds in result[2]]
    print(f"right: {sum(result[1] for result in results)} of {count}; within 15 s: "
          f"{sum(seconds <= 15 for seconds in times)} of {count}")


if __name__ == "__main__":
    if os.environ.get("HANG_INJECTION") == "worker":
        train(sys.argv[1])
    else:
        main()
