# SPDX-License-Identifier: Apache-2.0
"""From the death of a rank until the other processes train on, with DistributedDataParallel in
regroup.torch.Elastic over regroup and over gloo, and in torchft over gloo where it is installed:

    sh tests/pytorch/setup.sh peers torchft
    PYTHONPATH=python build/pytorch-peers/bin/python tests/bench/torch_recovery.py REGROUP \\
        [FAILURES [PYTHON...]]

PYTHON is the interpreter of an environment that has another release of torchft, such as
build/pytorch-torchft/bin/python.

Four ranks. One of them kills itself again and again, where the others wait for it in the backward
pass. The contestants run one after the other. A second table has what the survivors of Elastic use
after the first failure, after a quarter of all, and at the end. torchft has four replica groups of
one rank and its default timeouts. This program starts its dead process again; its survivors do not
wait for that. It reduces the gradients in one operation after the backward pass: the hook of its own
DistributedDataParallel fails an assertion on gloo when a peer is lost (torchft 0.2.0).
"""
import collections
import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

RANKS, VICTIM = 4, 1
SURVIVORS = set(range(RANKS)) - {VICTIM}
STEPS_BETWEEN = 10  # Of the process that dies.
WIDTHS = (256, 512, 512, 10)
DEADLINE_S = 900  # And 20 s for each failure.


class Notes:
    """Notes events of this process, and when they happened, for the program that compares."""

    def __init__(self, rank):
        self.folder = os.environ["RECOVERY_FOLDER"]
        self.rank = rank
        self.steps = 0
        self.file = open(os.path.join(self.folder, f"{rank}.{os.getpid()}"), "w", encoding="ascii")

    def note(self, what, *values):
        json.dump([what, time.monotonic(), *values], self.file)
        self.file.write("\n")
        self.file.flush()

    def note_use(self):
        """Descriptors, threads, kilobytes of its own memory."""
        gc.collect()
        with open("/proc/self/status", encoding="ascii") as file:
            memory = int(next(line for line in file if line.startswith("RssAnon")).split()[1])
        self.note("used", len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")),
                  memory)

    def die_in_turn(self):
        deaths = sum(entry.startswith(f"{VICTIM}.") for entry in os.listdir(self.folder)) - 1
        if (self.rank == VICTIM and self.steps == STEPS_BETWEEN
                and deaths < int(os.environ["RECOVERY_FAILURES"])):
            self.note("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1


def made():
    import torch
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = []
    for inputs, outputs in zip(WIDTHS, WIDTHS[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def loss_of(model):
    import torch
    inputs, targets = torch.randn(32, WIDTHS[0]), torch.randint(0, WIDTHS[-1], (32,))
    return torch.nn.functional.cross_entropy(model(inputs), targets)


def train_elastic(back_end):
    from regroup.torch import Elastic
    model, optimizer = made()
    elastic = Elastic(model, optimizer, backend=back_end)
    notes = Notes(int(os.environ["LOCAL_RANK"]))
    for step in elastic.steps():
        with step:
            try:
                optimizer.zero_grad()
                loss = loss_of(elastic.ddp)
                notes.die_in_turn()
                loss.backward()
                with step.update():
                    optimizer.step()
            except RuntimeError:
                notes.note("out")
                raise
            notes.note("committed")
            if step.number == elastic.round.step + STEPS_BETWEEN // 2:
                notes.note_use()


def train_torchft():
    import torch
    import torch.distributed as dist
    from torchft import Manager, Optimizer, ProcessGroupGloo
    model, plain = made()

    def load(state):
        model.load_state_dict(state["model"])
        plain.load_state_dict(state["optimizer"])

    rank = int(os.environ["REPLICA_GROUP"])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(pg=ProcessGroupGloo(), min_replica_size=1, load_state_dict=load,
                      state_dict=lambda: {"model": model.state_dict(),
                                          "optimizer": plain.state_dict()},
                      replica_id=f"replica{rank}", rank=0, world_size=1, store_addr="127.0.0.1",
                      store_port=store.port)
    optimizer, notes = Optimizer(manager, plain), Notes(rank)
    while True:
        optimizer.zero_grad()
        loss = loss_of(model)
        if manager.num_participants() == RANKS:
            notes.die_in_turn()
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        flat = torch.cat([gradient.view(-1) for gradient in gradients])
        manager.allreduce(flat).wait()  # Notes a failure, and raises none.
        for gradient, part in zip(gradients, flat.split([each.numel() for each in gradients])):
            gradient.copy_(part.view_as(gradient))
        if manager.should_commit():
            plain.step()
            notes.note("committed")
        else:
            notes.note("out")


def serve_lighthouse():
    """For torchft: says which replicas there are."""
    from torchft.coordination import LighthouseServer
    # As few as can go on, so that nobody waits for the process that is started again.
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100)
    print(lighthouse.address(), flush=True)
    signal.pause()


class Contest:
    """One contestant's job, until so many failures are over."""

    def __init__(self, name, failures, python=sys.executable):
        self.name, self.failures, self.python = name, failures, python
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.environment = {**os.environ, "RECOVERY_FOLDER": self.folder.name,
                            "RECOVERY_BACKEND": name, "RECOVERY_FAILURES": str(failures),
                            "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path[1:])}
        if name == "torchft":
            del self.environment["PYTHONPATH"]  # It would give another interpreter our packages.
        self.log = open(os.path.join(self.folder.name, "log"), "wb")
        self.processes = {}

    def start(self, key, command, stdout=None, **more):
        self.processes[key] = subprocess.Popen(
            command, cwd=self.folder.name, env={**self.environment, **more},
            stdout=stdout or self.log, stderr=self.log)

    def start_all(self, program):
        script = os.path.abspath(__file__)
        if self.name != "torchft":
            self.start("job", [program, "run", "--standalone", f"--nproc-per-node={RANKS}",
                               f"--max-restarts={self.failures * 3}", "--log-dir=/dev/null",
                               "--preload=torch,torch._dynamo,regroup.torch", sys.executable,
                               script])
            return
        self.start("lighthouse", [self.python, script], stdout=subprocess.PIPE)
        self.lighthouse = self.processes["lighthouse"].stdout.readline().decode().strip()
        for rank in range(RANKS):
            self.start_replica(script, rank)

    def start_replica(self, script, rank):
        self.start(rank, [self.python, script], REPLICA_GROUP=str(rank),
                   TORCHFT_LIGHTHOUSE=self.lighthouse)

    def noted(self):
        """Times and values by what has happened, of each rank."""
        found = collections.defaultdict(lambda: collections.defaultdict(list))
        for entry in os.listdir(self.folder.name):
            rank, _, process = entry.partition(".")
            if not process.isdigit():
                continue
            with open(os.path.join(self.folder.name, entry), encoding="ascii") as file:
                for line in file:
                    if line.endswith("\n"):
                        what, *rest = json.loads(line)
                        found[what][int(rank)].append(rest)
        return found

    def run(self, program):
        """The times of each failure: until the last survivor is out, and until it commits; and what
        each survivor uses in each round."""
        self.start_all(program)
        deadline = time.monotonic() + DEADLINE_S + 20 * self.failures
        while True:
            noted = self.noted()
            times = after_kills(noted, self.failures)
            if len(times) == self.failures:
                return times, [sorted(noted["used"][rank]) for rank in sorted(SURVIVORS)]
            for key, process in list(self.processes.items()):
                if process.poll() is not None:
                    if key != VICTIM:
                        self.complain(f"{key} has ended")
                    self.start_replica(os.path.abspath(__file__), key)
            if time.monotonic() > deadline:
                self.complain(f"only {len(times)} failures in time")
            time.sleep(0.2)

    def complain(self, what):
        with open(self.log.name, errors="replace", encoding="utf-8") as log:
            raise RuntimeError(f"{self.name}: {what}:\n{log.read()[-3000:]}")

    def end(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()


def after_kills(noted, failures):
    """Pairs of seconds, of the failures whose survivors have all committed a step since."""
    times = []
    for killed, in sorted(noted["killed"][VICTIM])[:failures]:
        pair = []
        begins = dict.fromkeys(SURVIVORS, killed)
        for what in ("out", "committed"):
            firsts = {rank: min((at for at, in sorted(noted[what][rank]) if at > begins[rank]),
                                default=None) for rank in SURVIVORS}
            if None in firsts.values():
                return times
            begins = firsts
            pair.append(max(firsts.values()) - killed)
        times.append(pair)
    return times


def release_of_torchft(python):
    """None if the interpreter has none."""
    asked = subprocess.run([python, "-c", "import importlib.metadata as m\n"
                            "print(*(d.version for d in m.distributions()"
                            " if d.name in ('torchft', 'torchft-nightly')))"],
                           stdout=subprocess.PIPE, text=True, check=True)
    return asked.stdout.strip() or None


def main():
    import torch
    program = os.path.abspath(sys.argv[1])
    failures = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    contestants = [("regroup", sys.executable), ("gloo", sys.executable)]
    contestants += [("torchft", python) for python in [sys.executable, *sys.argv[3:]]
                    if release_of_torchft(python)]
    print(f"SIGKILL of one of {RANKS} ranks, DistributedDataParallel, PyTorch {torch.__version__}: "
          f"ms until the last survivor\n| | failures | is out, median | worst | has committed the "
          f"next step, median | worst |\n|---|---|---|---|---|---|", flush=True)
    rows = []
    for name, python in contestants:
        contest = Contest(name, failures, python)
        try:
            times, uses = contest.run(program)
        finally:
            contest.end()
        cells = [f"{pick(column) * 1000:.0f}" for column in zip(*times)
                 for pick in (statistics.median, max)]
        title = f"torchft {release_of_torchft(python)}" if name == "torchft" else name
        print(f"| {title} | {failures} | {' | '.join(cells)} |", flush=True)
        for rank, rounds in zip(sorted(SURVIVORS), uses):
            if rounds:
                chosen = [rounds[1], rounds[failures // 4], rounds[-1]]
                files, threads, memory = list(zip(*chosen))[1:]
                rows.append(f"| {name}, rank {rank} | {' | '.join(map(str, files + threads))} | "
                            f"{' | '.join(f'{each / 1000:.1f}' for each in memory)} |")
    print("\n| | descriptors | | | threads | | | MB | | |\n|" + "---|" * 10, *rows, sep="\n")


if __name__ == "__main__":
    if "RECOVERY_FOLDER" not in os.environ:
        main()
    elif os.environ["RECOVERY_BACKEND"] != "torchft":
        train_elastic(os.environ["RECOVERY_BACKEND"])
    elif "REPLICA_GROUP" in os.environ:
        train_torchft()
    else:
        serve_lighthouse()
