# SPDX-License-Identifier: Apache-2.0
"""Starts programs under test, waits for them with a deadline, and ends them with all descendants."""
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
PATIENCE = 90.0  # Seconds; longer than any program here takes on a busy machine.


def release_of(interpreter):
    """The release of torch as (major, minor), or None."""
    code = "import torch; print(torch.__version__)"
    try:
        result = subprocess.run([interpreter, "-c", code], capture_output=True, text=True,
                                timeout=PATIENCE)
    except OSError:
        return None
    if result.returncode != 0:
        return None
    return tuple(int(part) for part in result.stdout.split(".")[:2])


def require_release(interpreter):
    """The release; skips the test if there is none."""
    release = release_of(interpreter)
    if release is None:
        print(f"skipped: {interpreter} has no PyTorch; name an interpreter that has, as "
              "REGROUP_PYTORCH_CURRENT or REGROUP_PYTORCH_DEBIAN (see cmake/pytorch.cmake)")
        sys.exit(SKIPPED)
    return release


def free_port():
    """A port that was free a moment ago, outside of the kernel's ephemeral range."""
    while True:
        port = random.randint(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def children_of(pid):
    """All present descendants of a process."""
    found = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children = [int(word) for word in file.read().split()]
        except OSError:
            continue
        for child in children:
            found.append(child)
            found.extend(children_of(child))
    return found


class Program:
    """A child process with its output in a file."""

    def __init__(self, name, command, env=None, cwd=None):
        self.name = name
        self.output = tempfile.NamedTemporaryFile(mode="w+b", prefix=f"{name}-")
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, env=env, cwd=cwd,
                                        start_new_session=True)

    def text(self):
        with open(self.output.name, errors="replace") as file:
            return file.read()

    def lines(self, word):
        return [line for line in self.text().splitlines() if word in line]

    def kill(self):
        """Kills the process and all its descendants at once, as the loss of a machine would."""
        pids = [self.process.pid] + children_of(self.process.pid)
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()

    def wait(self, patience=PATIENCE):
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end:\n{self.text()}") from None


def wait_until(condition, what, programs=()):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            outputs = "".join(f"\n---- {p.name}\n{p.text()}" for p in programs)
            raise AssertionError(f"not within {PATIENCE:.0f} s: {what}{outputs}")
        time.sleep(0.05)


class Daemon(Program):
    """`regroup serve` on a free port of this host."""

    def __init__(self, regroup, *flags):
        super().__init__("daemon", [regroup, "serve", "--listen", "127.0.0.1:0", *flags])
        wait_until(lambda: self.lines("listening on") or self.process.poll() is not None,
                   "the daemon listens", [self])
        self.port = int(self.lines("listening on")[0].rsplit(":", 1)[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.wait()
