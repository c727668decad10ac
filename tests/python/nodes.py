# SPDX-License-Identifier: Apache-2.0
"""Nodes of one job on this machine, which join and leave."""
import os
import re
import socket
import subprocess
import sys
import threading
import time

from support import DEADLINE_S, HERE, PROGRAM, FolderTest, result_of, without_job


class Node:
    """A launcher with workers of a script of this folder, on an address of its own."""

    def __init__(self, test, number, workers, script, *arguments, flags=()):
        self.name = f"127.0.0.{number}"
        self.output = ""
        self.process = subprocess.Popen(
            [PROGRAM, "run", "--nnodes=1:2", f"--nproc-per-node={workers}", "--max-restarts=3",
             "--rdzv-backend=c10d", f"--rdzv-endpoint={test.endpoint}", "--rdzv-id=job",
             f"--local-addr={self.name}", f"--log-dir={test.folder}/runs", "--grow-after=0", *flags,
             sys.executable, os.path.join(HERE, script), *arguments],
            cwd=test.folder, env=without_job(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        test.addCleanup(self.end)

    def read(self):
        for line in self.process.stdout:
            self.output += line

    def expect(self, test, pattern, seconds=DEADLINE_S * 2):
        """Waits until the output has the pattern."""
        deadline = time.monotonic() + seconds
        while True:
            found = re.search(pattern, self.output)
            if found:
                return found
            test.assertLess(time.monotonic(), deadline, f"{pattern} is not in: {self.output}")
            test.assertIsNone(self.process.poll(), self.output)
            time.sleep(0.05)

    def wait(self):
        code = self.process.wait(DEADLINE_S)
        self.reader.join(DEADLINE_S)
        return code

    def end(self):
        """Kills the launcher; its workers end with it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(DEADLINE_S)
        self.process.stdout.close()


class NodesTest(FolderTest):
    """A test with a daemon at `endpoint`."""

    def setUp(self):
        super().setUp()
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        daemon = subprocess.Popen([PROGRAM, "serve", f"--listen={self.endpoint}"],
                                  stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)

    def drain(self, node):
        code = subprocess.run([PROGRAM, "drain", "--wait", f"--endpoint={self.endpoint}",
                               node.name], stdout=subprocess.DEVNULL, timeout=DEADLINE_S).returncode
        self.assertEqual(code, 0, node.output)
        self.assertEqual(node.wait(), 75, node.output)


class WorldChanges:
    """A case for jobs with torch_jobs.py on nodes: `node` starts one of that number, with so many
    workers."""

    def node(self, number, workers):
        raise NotImplementedError

    def test_world_shrinks_and_grows_and_a_drain_costs_no_step(self):
        first, second = self.node(2, 2), self.node(3, 1)
        first.expect(self, "of rank 0 of 3 from step 0,")
        second.expect(self, "of rank 2 of 3 from step 0,")
        second.end()
        shrunk = first.expect(self, r"of rank 0 of 2 from step (\d+),")
        third = self.node(4, 1)
        grown = third.expect(self, r"of rank 2 of 3 from step (\d+),")
        self.assertGreaterEqual(int(grown.group(1)), int(shrunk.group(1)))
        self.drain(third)
        self.assertIn(", with time: True, ", third.output)
        left = re.search(r"left at step (\d+),", third.output)
        first.expect(self, f"of rank 0 of 2 from step {left.group(1)},")
        open(os.path.join(self.folder, "finish"), "w").close()
        self.assertEqual(first.wait(), 0, first.output)
        self.assertIn("each once an epoch: True", result_of(self, first.output, 2))
        # The workers of the first node keep their processes.
        self.assertEqual(len(set(re.findall(r"pid (\d+)\.", first.output))), 2, first.output)
