# SPDX-License-Identifier: Apache-2.0
"""Ranks that are processes: their children, and how they end."""
import unittest

from support import main, run_program


class Processes(unittest.TestCase):
    def test_child_of_a_rank_ends_without_harm(self):
        code, output = run_program("""
import os
import sys
import regroup

group = regroup.ProcessGroup.create(timeout=60)
other = 1 - group.rank
received, forgotten = bytearray(4), bytearray(1)
work = group.recv(received, other, async_op=True)
group.recv(forgotten, other, tag=1, async_op=True)
child = os.fork()
if child == 0:
    sys.exit(3)  # Runs all that Python does at its end.
assert os.waitpid(child, 0)[1] == 3 << 8
group.send(b"data", other)
group.send(b"x", other, tag=1)
work.wait()
group.barrier()
assert received == b"data" and forgotten == b"x", (received, forgotten)
""")
        self.assertEqual(code, 0, output)

    def test_forked_child_is_refused_and_changes_nothing(self):
        code, output = run_program("""
import array
import multiprocessing
import os
import regroup

def is_refused(call):
    try:
        call()
    except regroup.InvalidArgument:
        return True
    return False

context = regroup.Context.from_environment()
store = context.store
group = regroup.ProcessGroup.create(context=context, timeout=60)

def sum_of(value):
    values = array.array("f", [value] * 100)
    group.all_reduce(values)
    return values[0], values[99]

assert sum_of(group.rank + 1) == (3, 3)
work = group.recv(bytearray(4), 1 - group.rank, async_op=True)

def misuse():
    os._exit(17 if is_refused(lambda: sum_of(1000)) and is_refused(group.barrier)
             and is_refused(work.wait) and is_refused(lambda: store.set("key", b"x"))
             and is_refused(lambda: group.new_group([0, 1])) else 1)

for _ in range(2):
    child = multiprocessing.get_context("fork").Process(target=misuse)
    child.start()
    child.join()
    assert child.exitcode == 17, child.exitcode
assert os.spawnlp(os.P_WAIT, "true", "true") == 0
group.send(b"data", 1 - group.rank)
work.wait()
assert sum_of(group.rank + 1) == (3, 3)
""")
        self.assertEqual(code, 0, output)

    def test_process_may_end_with_operations_in_flight(self):
        code, output = run_program("""
import regroup

group = regroup.ProcessGroup.create(timeout=60)
group.barrier()
work = group.recv(bytearray(4), 1 - group.rank, async_op=True)
group.recv(bytearray(4), 1 - group.rank, tag=1, async_op=True)
""")
        self.assertEqual(code, 0, output)
        self.assertNotIn("Exception ignored", output)
        self.assertNotIn("Traceback", output)


main()
