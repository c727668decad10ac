# SPDX-License-Identifier: Apache-2.0
"""Writes what a program can see of its process to the file FACTS, as JSON. Two ways to start a worker
that differ in nothing give equal files."""
import json
import os
import resource
import signal
import stat
import sys
import threading


def describe(function):
    try:
        return function()
    except Exception as error:
        return type(error).__name__


def kind_of(fd):
    mode = os.fstat(fd).st_mode
    return stat.S_IFMT(mode), os.isatty(fd), os.get_inheritable(fd)


def status(*names):
    with open("/proc/self/status") as file:
        return [line for line in file if line.startswith(names)]


def signals(name):
    # The C library keeps the signals 32 and 33 for its threads. A program cannot use them.
    return [int(line.split()[1], 16) & ~(3 << 31) for line in status(name)]


main = sys.modules["__main__"]
# The folders of a job, its number and its ports are other ones each time.
private = ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "REGROUP_AGENT_SOCKET",
           "REGROUP_COLLECTIVES", "REGROUP_WORKER_ID", "FACTS", "REGROUP_TEST_PROGRAM")
facts = {
    "argv": sys.argv,
    "orig_argv": getattr(sys, "orig_argv", None),
    "path": sys.path,
    "executable": sys.executable,
    "flags": repr(sys.flags),
    "warnings": sys.warnoptions,
    "main": [main is not None and main.__dict__ is globals(), __name__, __doc__,
             globals().get("__file__"), str(globals().get("__package__")),
             str(globals().get("__spec__"))[:40],
             type(globals().get("__loader__")).__name__,
             type(globals().get("__builtins__")).__name__,
             sorted(set(globals()) & {"__cached__", "__annotations__"})],
    "command_line": open("/proc/self/cmdline").read().replace("\0", " "),
    "environment": {name: ascii(value) for name, value in os.environ.items()
                    if not name.startswith(private)},
    "folder": os.getcwd(),
    "umask": oct(os.umask(0o22)),
    "descriptors": [kind_of(fd) for fd in range(3)] + sorted(
        fd for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)),
    "streams": [(s.line_buffering, getattr(s, "write_through", None), s.encoding, s.errors)
                for s in (sys.stdin, sys.stdout, sys.stderr)],
    "input": [sys.stdin.seekable(), sys.stdin.name, sys.stdin.mode, sys.stdin is sys.__stdin__],
    "session": [os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid()],
    "parent": open(f"/proc/{os.getppid()}/comm").read(),
    "signals": [signals(name) for name in ("SigIgn", "SigCgt", "SigBlk")],
    "handlers": [str(describe(lambda: signal.getsignal(number))) for number in range(1, 32)],
    "limits": [resource.getrlimit(number) for number in range(16)],
    "affinity": sorted(os.sched_getaffinity(0)),
    "nice": os.nice(0),
    "memory": [line for line in open("/proc/self/status") if line.startswith("Mems_allowed_list")],
    "threads": threading.active_count(),
    "native_id": threading.main_thread().native_id == os.getpid(),
    "main_thread": threading.current_thread() is threading.main_thread(),
}
with open(os.environ["FACTS"], "w") as file:
    json.dump(facts, file, indent=1, sort_keys=True)
