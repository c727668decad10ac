# SPDX-License-Identifier: Apache-2.0
"""Daemons, launchers and programs of two releases, in every combination that
docs/compatibility.md allows, and an upgrade of a running job:

    versions_test.py NEW OLD OLD_TREE

NEW, OLD: build folders. OLD_TREE: the sources of the older one. In each combination two nodes train,
a worker is killed, and the training must end with the parameters of an undisturbed one.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "../.."))
sys.path.insert(0, os.path.join(ROOT, "tests/pytorch/store"))

from processes import Program, wait_until  # noqa: E402

STEPS = 300
NODES = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]  # Nodes of one host have names by address.


class Release:
    def __init__(self, name, build, tree):
        self.name = name
        self.regroup = os.path.join(build, "launcher/regroup")
        self.elastic = os.path.join(build, "examples/elastic/elastic")
        self.library = os.path.join(build, "libregroup.so")
        self.tree = tree
        self.spoken = json.loads(subprocess.run(
            [self.regroup, "version", "--json"], capture_output=True, text=True).stdout or "{}")

    def environment(self):
        return dict(os.environ, PYTHONPATH=os.path.join(self.tree, "python"),
                    REGROUP_LIBRARY=os.path.realpath(self.library), OMP_NUM_THREADS="1",
                    PYTHONDONTWRITEBYTECODE="1")


class Daemon(Program):
    def __init__(self, release, state, port=0):
        super().__init__("daemon", [release.regroup, "serve", f"--listen=127.0.0.1:{port}",
                                    f"--state={state}"])
        wait_until(lambda: self.lines("listening on") or self.process.poll() is not None,
                   "the daemon listens", [self])
        self.port = int(re.search(r"listening on .*:(\d+)", self.text())[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.wait()


def node(release, port, name, nodes, program):
    return Program(name, [release.regroup, "run", f"--nnodes={nodes}", "--nproc-per-node=2",
                          "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=versions",
                          f"--local-addr={name}", "--max-restarts=3", "--grow-after=1",
                          "--log-dir=/dev/null",
                          *program.command], program.release.environment())


class CppProgram:
    kind = "C++"

    def __init__(self, release, steps=STEPS):
        self.release = release
        self.command = [release.elastic, f"--steps={steps}", "--step-ms=5"]


class PythonProgram:
    kind = "Python"

    def __init__(self, release, steps=STEPS):
        self.release = release
        self.command = [sys.executable, os.path.join(HERE, "train.py"), str(steps)]


def digests(programs):
    """The parameters at the end, as each rank 0 says them."""
    text = "".join(program.text() for program in programs)
    return set(re.findall(r"finished: \d+ steps.*parameters (\w+)", text))


def undisturbed(program):
    alone = Program("alone", program.command, program.release.environment())
    assert alone.wait() == 0, alone.text()
    return digests([alone])


def await_step_100(nodes):
    wait_until(lambda: any(each.lines("step 100: ") or each.process.poll() is not None
                           for each in nodes), "the job trains", nodes)


def kill_a_worker(nodes):
    await_step_100(nodes)
    pid = re.findall(r"rank 3 of 4, pid (\d+)", nodes[0].text() + nodes[1].text())[0]
    os.kill(int(pid), signal.SIGKILL)


def expect_good_end(nodes, expected):
    for each in nodes:
        assert each.wait() == 0, "".join(f"--- {one.name}\n{one.text()}" for one in nodes)
    assert digests(nodes) == expected, f"not {expected}: {[each.text() for each in nodes]}"


def combination(daemon, launchers, program, expected):
    with tempfile.TemporaryDirectory() as folder:
        served = Daemon(daemon, os.path.join(folder, "state"))
        nodes = [node(launcher, served.port, NODES[i], 2, program)
                 for i, launcher in enumerate(launchers)]
        try:
            kill_a_worker(nodes)
            expect_good_end(nodes, expected)
            text = "".join(each.text() for each in nodes)
            assert "regroup: recovered in" in text, text  # In place, and not by a restart.
        finally:
            for each in nodes:
                each.kill()
            served.stop()


def upgrade(old, new, program, expected):
    """The daemon first, then node after node. Nobody loses a step."""
    with tempfile.TemporaryDirectory() as folder:
        state = os.path.join(folder, "state")
        daemon = Daemon(old, state)
        nodes = [node(old, daemon.port, NODES[i], "2:3", program) for i in range(3)]
        everyone = list(nodes)
        try:
            await_step_100(nodes)
            daemon.stop()
            daemon = Daemon(new, state, daemon.port)
            for i in range(3):
                drained = subprocess.run(
                    [new.regroup, "drain", f"--endpoint=127.0.0.1:{daemon.port}", "--wait",
                     "--job=versions", NODES[i]], capture_output=True, text=True, timeout=90)
                assert drained.returncode == 0, drained.stdout + drained.stderr
                nodes[i].wait()
                nodes[i] = node(new, daemon.port, NODES[i], "2:3", program)
                everyone.append(nodes[i])
                wait_until(lambda node=nodes[i]: node.lines("from step"), "it trains again", nodes)
            expect_good_end(nodes, expected)
            text = "".join(each.text() for each in everyone)
            assert "to do again" not in text, text
        finally:
            for each in everyone:
                each.kill()
            daemon.stop()


def exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def soname(library):
    text = subprocess.run(["readelf", "-d", library], capture_output=True, text=True,
                          check=True).stdout
    return re.search(r"soname: \[(.*)\]", text)[1]


def compare_libraries(old, new):
    """A program that was linked with the older one must run with the newer one, if the name is the
    same."""
    if soname(old.library) != soname(new.library):
        print(f"skip    libraries: {soname(old.library)} and {soname(new.library)}")
        return
    gone = sorted(exported(old.library) - exported(new.library))
    assert not gone, f"{new.library} lacks {gone}, and has the name of the older one"
    if shutil.which("abidiff"):
        done = subprocess.run(["abidiff", "--no-added-syms", old.library, new.library],
                              capture_output=True, text=True)
        assert done.returncode & 8 == 0, done.stdout  # 8: an incompatible change.
    print("ok      libraries")


def main():
    new = Release("new", os.path.abspath(sys.argv[1]), ROOT)
    old = Release("old", os.path.abspath(sys.argv[2]), os.path.abspath(sys.argv[3]))
    compare_libraries(old, new)
    newest_link = {"old": old.spoken.get("worker_link", 0), "new": new.spoken["worker_link"]}
    oldest_link = {"old": old.spoken.get("worker_link_oldest", 0),
                   "new": new.spoken["worker_link_oldest"]}
    for kind in (CppProgram, PythonProgram):
        for program in (kind(old), kind(new)):
            link = newest_link[program.release.name]
            expected = undisturbed(program)
            assert len(expected) == 1, "an undisturbed training has no end"
            for daemon in (old, new):
                for launchers in ((old, old), (old, new), (new, old), (new, new)):
                    name = (f"daemon {daemon.name}, launchers {launchers[0].name} and "
                            f"{launchers[1].name}, {kind.kind} program {program.release.name}")
                    if not all(oldest_link[each.name] <= link <= newest_link[each.name]
                               for each in launchers):
                        print(f"skip    {name}: a launcher does not serve its link")
                        continue
                    began = time.monotonic()
                    combination(daemon, launchers, program, expected)
                    print(f"ok      {name}: {time.monotonic() - began:.1f} s", flush=True)
    long = CppProgram(old, 10 * STEPS)
    if oldest_link["new"] <= newest_link["old"]:
        upgrade(old, new, long, undisturbed(long))
        print("ok      upgrade of a running job")
    else:
        print("skip    upgrade of a running job: the new launcher does not serve the old program")


if __name__ == "__main__":
    main()
