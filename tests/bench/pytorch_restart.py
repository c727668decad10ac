# SPDX-License-Identifier: Apache-2.0
"""From the death of a worker until an unmodified DistributedDataParallel script trains again, in
stages, under torchrun and under regroup with and without --preload:

    python pytorch_restart.py REGROUP [FAILURES [WORKERS]]

The script reads a checkpoint after each start. One job of each contestant lives through all failures;
the contestants take turns, so all meet the same load.
"""
import time

BEGIN = time.time()  # The first instruction of a worker.

import json
import os
import sys

STAGES = ["stopped", "started", "imported", "group", "checkpoint", "step"]


def train():
    """The worker. Writes the times of its stages, then trains on until it is killed."""
    stamps = {"started": BEGIN, "pid": os.getpid()}
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    stamps["imported"] = time.time()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stamps["group"] = time.time()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    folder = os.environ["RESTART_FOLDER"]
    checkpoint = os.path.join(folder, "checkpoint.pt")
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    parallel = DistributedDataParallel(model)
    stamps["checkpoint"] = time.time()
    inputs, targets = torch.randn(32, 256), torch.randint(0, 10, (32,))
    while True:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(inputs), targets).backward()
        optimizer.step()
        step += 1
        if "step" not in stamps:
            stamps["step"] = time.time()
            place = os.path.join(folder, f"round{os.environ['TORCHELASTIC_RESTART_COUNT']}.{rank}")
            with open(place + ".part", "w") as file:
                json.dump(stamps, file)
            os.rename(place + ".part", place)
        if rank == 0 and step % 10 == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "step": step}, checkpoint + ".part")
            os.rename(checkpoint + ".part", checkpoint)
        time.sleep(0.05)  # Other contestants wait meanwhile.


class Job:
    """One contestant: a job that is killed again and again."""

    def __init__(self, name, command, folder, workers):
        import subprocess
        self.name, self.folder, self.workers = name, folder, workers
        self.round = 0
        self.times = {stage: [] for stage in STAGES}
        self.log = open(os.path.join(folder, "log"), "wb")
        # The last one is for torchrun. Without it, Gloo's addresses of the round before are still in
        # the store of PyTorch 2.14, and every other restart fails after its timeout.
        environment = {**os.environ, "RESTART_FOLDER": folder, "OMP_NUM_THREADS": "1",
                       "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=self.log,
                                        stderr=self.log)
        self.stamps = self.await_round()

    def places(self):
        return [os.path.join(self.folder, f"round{self.round}.{rank}")
                for rank in range(self.workers)]

    def await_round(self):
        """The stamps of all ranks of the next round that trains. A round that fails before costs
        its contestant time."""
        deadline = time.time() + 120
        first = self.round
        while not all(os.path.exists(place) for place in self.places()):
            self.round = self.round + 1 if self.round < first + 3 else first
            if time.time() > deadline or self.process.poll() is not None:
                with open(self.log.name, errors="replace") as log:
                    sys.exit(f"{self.name}: round {self.round} does not train:\n{log.read()[-3000:]}")
            time.sleep(0.001)
        stamps = []
        for place in self.places():
            with open(place) as file:
                stamps.append(json.load(file))
        return stamps

    def kill_one(self):
        import select
        import signal
        victim = self.round % self.workers
        watched = [os.pidfd_open(stamp["pid"]) for stamp in self.stamps]
        killed = time.time()
        os.kill(self.stamps[victim]["pid"], signal.SIGKILL)
        for descriptor in watched:
            select.select([descriptor], [], [], 60)
        stopped = time.time()
        for descriptor in watched:
            os.close(descriptor)
        self.round += 1
        self.stamps = self.await_round()
        self.times["stopped"].append(stopped - killed)
        for stage in STAGES[1:]:
            self.times[stage].append(max(stamp[stage] for stamp in self.stamps) - killed)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except Exception:
            self.process.kill()


def main():
    import statistics
    import tempfile

    import torch
    regroup = os.path.abspath(sys.argv[1])
    failures = int(sys.argv[2]) if len(sys.argv) > 2 else 6
    workers = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    count = [f"--nproc-per-node={workers}", f"--max-restarts={failures * 3}"]
    script = os.path.abspath(__file__)
    own = [regroup, "run", "--standalone", "--restart-delay=0", "--log-dir=/dev/null"] + count
    commands = {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone",
                     "--monitor-interval=0.1"] + count + [script],
        "regroup run": own + [sys.executable, script],
        "regroup run --preload": own + ["--preload=torch,torch._dynamo", sys.executable, script],
    }
    print(f"restart of a DistributedDataParallel script, PyTorch {torch.__version__}, {workers} "
          f"workers, {failures} failures: ms after SIGKILL, medians")
    with tempfile.TemporaryDirectory() as scratch:
        jobs = []
        for number, (name, command) in enumerate(commands.items()):
            folder = os.path.join(scratch, str(number))
            os.mkdir(folder)
            jobs.append(Job(name, command, folder, workers))
        for failure in range(failures):
            for job in jobs:
                time.sleep(0.5 + 0.037 * (failure % 3))
                job.kill_one()
        for job in jobs:
            job.end()
    titles = {"stopped": "all workers ended", "started": "new ones begin", "imported": "imported",
              "group": "group formed", "checkpoint": "checkpoint read", "step": "first step"}
    print("| | " + " | ".join(titles[stage] for stage in STAGES) + " | worst first step |")
    print("|---" * (len(STAGES) + 2) + "|")
    for job in jobs:
        medians = [f"{statistics.median(job.times[stage]) * 1000:.0f}" for stage in STAGES]
        print(f"| {job.name} | " + " | ".join(medians) + f" | {max(job.times['step']) * 1000:.0f} |")
    base = statistics.median(jobs[0].times["step"])
    for job in jobs[1:]:
        ratio = base / statistics.median(job.times["step"])
        print(f"torchrun takes {ratio:.1f} times as long as {job.name}")


if __name__ == "__main__":
    train() if "RESTART_FOLDER" in os.environ else main()
