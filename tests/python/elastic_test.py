# SPDX-License-Identifier: Apache-2.0
"""Elastic training under the real launcher: elastic_job.py."""
import os
import re
import signal

import regroup
from support import DEADLINE_S, FolderTest, main, run_job, start_job


class Elastic(FolderTest):
    def run_way(self, way, restarts=3, ranks=3):
        return run_job(self.folder, "elastic_job.py", way, self.folder, ranks=ranks,
                       flags=[f"--max-restarts={restarts}"])

    def test_killed_workers_do_not_change_the_result(self):
        code, output = self.run_way("quiet")
        self.assertEqual(code, 0, output)
        expected = re.findall(r"result .*", output)
        self.assertEqual(len(expected), 3, output)
        code, output = self.run_way("kill")
        self.assertEqual(code, 0, output)
        self.assertIn("was ended by SIGKILL", output)
        self.assertIn("round 3 of rank 1 of 3 from step 80", output)
        self.assertIn("round 3 of rank 0 of 3 from step 80", output)
        self.assertEqual(re.findall(r"result .*", output), expected, output)

    def test_thirty_deaths_leave_no_descriptors_threads_or_groups(self):
        code, output = self.run_way("many", restarts=40, ranks=2)
        self.assertEqual(code, 0, output)
        used = re.search(r"used (\(.*?\)) (\(.*?\)), rounds (\d+)", output)
        self.assertIsNotNone(used, output)
        self.assertEqual(used.group(1), used.group(2), "descriptors, threads, groups")
        self.assertEqual(used.group(3), "31", "rank 0 has kept its process")

    def test_node_that_leaves_saves_its_state(self):
        job = start_job(self.folder, "elastic_job.py", "leave", self.folder)
        output = ""
        for line in job.stdout:
            output += line
            if "round 1 of rank 2 of 3" in line:
                job.send_signal(signal.SIGTERM)
                break
        output += job.communicate(timeout=DEADLINE_S)[0]
        self.assertEqual(job.returncode, 75, output)
        steps = set(re.findall(r"left at step (\d+), with time: True", output))
        self.assertEqual(len(steps), 1, output)
        saved = regroup.Checkpoint.load(os.path.join(self.folder, "elastic.ckpt"))
        self.assertEqual({str(saved.get_integer("step"))}, steps)

    def run_warm(self, kills, *flags):
        packages = os.path.join(self.folder, "site-packages")
        os.mkdir(packages)
        with open(os.path.join(packages, "heavy.py"), "w", encoding="ascii") as file:
            file.write("import os\nPID = os.getpid()\n")
        path = os.pathsep.join([packages, os.environ.get("PYTHONPATH", "")])
        code, output = run_job(self.folder, "warm_job.py", str(kills), ranks=2,
                               flags=[f"--max-restarts={kills}", *flags],
                               surroundings={"PYTHONPATH": path})
        self.assertEqual(code, 0, output)
        return output

    def test_agent_prepares_what_a_lost_worker_had_imported(self):
        output = self.run_warm(40)
        self.assertIn("rank 1 was forked: True", output)
        self.assertIn("rank 0 was forked: False", output)

    def test_nothing_is_prepared_with_preload_none(self):
        self.assertIn("rank 1 was forked: False", self.run_warm(3, "--preload=none"))

    def test_failure_of_the_program_is_reported_with_its_traceback(self):
        for way, function in (("raise", "misbehave"), ("save", "save_journal")):
            code, output = self.run_way(way, restarts=0)
            self.assertEqual(code, 1, output)
            self.assertRegex(output, f"in {function}\n.*\n(.*\n)?.*LookupError: no such shard")

    def test_fatal_report_ends_the_job_without_a_restart(self):
        code, output = self.run_way("fatal")
        self.assertEqual(code, 78, output)
        self.assertIn("fatal (trying again cannot help): there is no such data set", output)
        self.assertIn("the last words", output)


main()
