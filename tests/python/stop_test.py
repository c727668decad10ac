# SPDX-License-Identifier: Apache-2.0
"""stop_requested under the launcher, by hand, and alone: stop_job.py."""
import os
import re
import signal
import socket
import subprocess
import sys

from support import DEADLINE_S, HERE, FolderTest, main, run_program, start_job, without_job

FOREVER = str(10**12)


def stops(output):
    """The steps and states with which ranks have stopped."""
    return re.findall(r"(?m)^\S*\s?rank \d stops at step (\d+), state (\d+), saved: True", output)


class Stop(FolderTest):
    def read_until(self, job, pattern, count=1):
        """The output up to the line in which the pattern is found for the `count`-th time."""
        output, found = "", []
        for line in job.stdout:
            output += line
            found += re.findall(pattern, line)
            if len(found) == count:
                return output, found
        self.fail(output)

    def expect_same_step(self, output, ranks):
        found = stops(output)
        self.assertEqual(len(found), ranks, output)
        self.assertEqual(len(set(found)), 1, output)
        self.assertEqual(found[0][0], found[0][1], output)

    def test_signal_to_the_launcher_stops_all_ranks_at_the_same_step(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            job = start_job(self.folder, "stop_job.py", FOREVER, self.folder)
            output, _ = self.read_until(job, r"^\S*\s?rank \d trains", 3)
            job.send_signal(number)
            output += job.communicate(timeout=DEADLINE_S)[0]
            self.assertEqual(job.returncode, 75, output)
            self.expect_same_step(output, 3)

    def test_signal_to_a_worker_stops_all_and_they_go_on_from_there(self):
        job = start_job(self.folder, "stop_job.py", FOREVER, self.folder, ranks=2)
        output, pids = self.read_until(job, r"^\S*\s?rank \d trains, pid (\d+)", 2)
        os.kill(int(pids[1]), signal.SIGTERM)
        again, _ = self.read_until(job, r"^\S*\s?rank \d trains", 2)
        self.expect_same_step(again, 2)
        step = stops(again)[0][0]
        self.assertEqual(again.count(f"begins with step {step}, state {step}"), 2, again)
        job.send_signal(signal.SIGTERM)
        output = job.communicate(timeout=DEADLINE_S)[0]
        self.assertEqual(job.returncode, 75, output)

    def test_ranks_without_a_launcher_stop_at_the_same_step(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
        ranks = [subprocess.Popen(
            [sys.executable, os.path.join(HERE, "stop_job.py"), FOREVER, self.folder],
            env=without_job(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                            MASTER_PORT=port),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
        output = "".join(self.read_until(rank, "trains")[0] for rank in ranks)
        ranks[1].send_signal(signal.SIGTERM)
        for rank in ranks:
            output += rank.communicate(timeout=DEADLINE_S)[0]
            self.assertEqual(rank.returncode, 0, output)
        self.expect_same_step(output, 2)

    def test_loop_that_nobody_stops_finishes(self):
        job = start_job(self.folder, "stop_job.py", "20", self.folder, ranks=2)
        output = job.communicate(timeout=DEADLINE_S)[0]
        self.assertEqual(job.returncode, 0, output)
        self.assertEqual(output.count("has finished"), 2, output)

    def test_steps_must_not_become_smaller(self):
        code, output = run_program("import regroup\n"
                                   "for epoch in range(2):\n"
                                   "    for step in range(3):\n"
                                   "        assert not regroup.stop_requested(step)\n")
        self.assertEqual(code, 1, output)
        self.assertIn("InvalidArgument: stop_requested: step 0 comes after step 2", output)


if __name__ == "__main__":
    main()
