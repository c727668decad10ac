# SPDX-License-Identifier: Apache-2.0
"""A job that is told to stop keeps the processes that load data until its ranks have saved."""
import os
import re
import signal
import subprocess

from support import DEADLINE_S, FolderTest, main, needs_torch, start_job


def children_of(pid):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True,
                            text=True, check=False).stdout
    return [int(word) for word in listed.split()]


@needs_torch
class TorchLoader(FolderTest):
    def start(self, way):
        job = start_job(self.folder, "torch_loader_job.py", way, ranks=2,
                        flags=["--shutdown-timeout=60", "--preload=torch,regroup.torch"])
        self.addCleanup(job.stdout.close)
        self.addCleanup(job.wait)
        self.addCleanup(job.kill)
        ranks = []
        while len(ranks) < 2:
            line = job.stdout.readline()
            self.assertTrue(line, "the job has ended")
            ranks += [int(pid) for pid in re.findall(r"loading, pid (\d+)", line)]
        return job, ranks

    def expect_saved(self, job, least=2):
        output, _ = job.communicate(timeout=DEADLINE_S)
        self.assertGreaterEqual(len(re.findall(r"\] saved rank", output)), least, output)
        self.assertNotIn("killed by signal", output)

    def test_signal_to_the_launcher_reaches_the_loaders_after_their_rank(self):
        job, _ = self.start("plain")
        job.terminate()
        self.expect_saved(job)

    def test_loaders_of_regroup_outlive_a_signal_to_all_processes(self):
        job, ranks = self.start("regroup")
        loaders = [pid for rank in ranks for pid in children_of(rank)]
        self.assertGreaterEqual(len(loaders), 4)
        for number in (signal.SIGUSR1, signal.SIGTERM):
            for pid in loaders:
                os.kill(pid, number)
        for pid in ranks:
            os.kill(pid, signal.SIGTERM)
        # The end of the first rank ends the other one, which may wait for it in its commit.
        self.expect_saved(job, least=1)

    def test_loaders_end_with_their_rank_and_obey_it(self):
        job, ranks = self.start("regroup")
        loaders = [children_of(rank) for rank in ranks]
        os.kill(ranks[0], signal.SIGKILL)
        job.terminate()
        job.communicate(timeout=DEADLINE_S)
        for pid in sum(loaders, []):
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)


main()
