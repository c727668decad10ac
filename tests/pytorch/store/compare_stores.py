# SPDX-License-Identifier: Apache-2.0
"""Runs one program against PyTorch's own store server and against regroup's, line by line.

    compare_stores.py --interpreter PYTHON --regroup REGROUP
"""
import argparse
import os
import re
import subprocess
import sys

from processes import PATIENCE, Daemon, require_release

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "store_program.py")

# Intended differences: the line, the answer of PyTorch's server (a pattern; its other answers are
# errors too), the answer of regroup's, and the reason.
DEVIATIONS = [
    ("queues.wait_mixed", r"DistStoreError: wait timeout.*", r"None",
     "PyTorch counts a queue that has items as missing once the same wait names a missing key, "
     "and so waits for another push"),
    ("others_wait.compare_set_refused", r"None", r"DistStoreError: wait timeout.*",
     "PyTorch wakes those who wait for a key that a refused compare_set has not created"),
    ("others_wait.compare_set", r"RuntimeError.*", r"None",
     "1.13 does not wake those who wait for a key that compare_set creates"),
    ("limits.key_9000", r"returned b'v'", r"RuntimeError",
     "1.13 has no limits; ours are those of later releases"),
    ("limits.value_9M", r"returned 9437184", r"RuntimeError",
     "1.13 has no limits; ours are those of later releases"),
    ("limits.overflow", r"returned -9223372036854775808", r"\w*Error",
     "PyTorch adds past the largest number to the smallest"),
]


def answers(interpreter, port):
    result = subprocess.run([interpreter, PROGRAM, str(port)], capture_output=True, text=True,
                            timeout=2 * PATIENCE)
    if result.returncode != 0:
        print(f"{PROGRAM} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
        sys.exit(1)
    lines = [line.split(" = ", 1) for line in result.stdout.splitlines() if " = " in line]
    return dict(lines)


def answers_of_pytorch(interpreter):
    server = subprocess.Popen([interpreter, PROGRAM, "--serve"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        return answers(interpreter, int(server.stdout.readline().split()[1]))
    finally:
        server.stdin.close()
        server.wait(PATIENCE)


def answers_of_regroup(arguments):
    daemon = Daemon(arguments.regroup, "--serve-torchrun")
    try:
        return answers(arguments.interpreter, daemon.port)
    finally:
        daemon.stop()
        if arguments.verbose:
            print(daemon.text())


def is_deviation(name, theirs, ours):
    return any(name == known and re.fullmatch(f"['\"]?{of_theirs}['\"]?", theirs) and
               re.fullmatch(f"['\"]?{of_ours}['\"]?", ours)
               for known, of_theirs, of_ours, _ in DEVIATIONS)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interpreter", required=True)
    parser.add_argument("--regroup", required=True)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    release = require_release(arguments.interpreter)
    theirs = answers_of_pytorch(arguments.interpreter)
    ours = answers_of_regroup(arguments)
    same = kept = wrong = 0
    for name in sorted(set(theirs) | set(ours)):
        pair = theirs.get(name, "nothing"), ours.get(name, "nothing")
        if pair[0] == pair[1]:
            same += 1
            if arguments.verbose:
                print(f"same      {name} = {pair[0]}")
        elif is_deviation(name, *pair):
            kept += 1
            print(f"deviates  {name}: {pair[0]} there, {pair[1]} here")
        else:
            wrong += 1
            print(f"DIFFERS   {name}: {pair[0]} there, {pair[1]} here")
    print(f"PyTorch {release[0]}.{release[1]}: {same} answers are the same, {kept} deviate on "
          f"purpose, {wrong} differ")
    sys.exit(0 if wrong == 0 and same > 40 else 1)


main()
