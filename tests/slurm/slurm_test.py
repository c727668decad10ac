# SPDX-License-Identifier: Apache-2.0
"""Jobs on a real Slurm cluster of three nodes, with the batch scripts of examples/slurm.

Slurm looks at time limits every 30 s. So the jobs that wait for that begin first, and the tests of
other jobs run meanwhile.
"""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from cluster import (Cluster, DEADLINE_S, enter, INSIDE, missing, processes_with, read, wait_for,
                     write)

PROGRAM = os.environ["REGROUP_PROGRAM"]
ELASTIC = os.environ["ELASTIC_EXAMPLE"]
SCRIPTS = os.environ["SLURM_EXAMPLES"]
CLUSTER = Cluster()
# The tests share the nodes, the scripts want them for themselves.
SHARED = "--oversubscribe"
ENDLESS = ("--steps=1000000", "--step-ms=10")


class Job:
    """A batch job; its output is one file for all its runs."""
    count = 0

    def __init__(self, script, *words, flags=()):
        self._name_files()
        done = CLUSTER.command(
            "sbatch", "--parsable", "--output=" + self.output_file, SHARED, *flags,
            os.path.join(SCRIPTS, script), ELASTIC, "--checkpoint=" + self.checkpoint, *words)
        self._begin(done)

    @classmethod
    def submitted(cls, *words, flags=()):
        """By regroup submit."""
        job = cls.__new__(cls)
        job._name_files()
        job._begin(CLUSTER.command(
            "regroup", "submit", "slurm", "--cpus-per-task=1", "--sbatch=" + SHARED,
            "--sbatch=--output=" + job.output_file, *flags, "--", ELASTIC,
            "--checkpoint=" + job.checkpoint, *words))
        return job

    def _begin(self, submission):
        found = re.search(r"(\d+)\s*$", submission.stdout)
        if submission.returncode != 0 or not found:
            raise AssertionError(submission.stdout)
        self.number = found.group(1)

    def _name_files(self):
        Job.count += 1
        self.output_file = os.path.join(CLUSTER.folder, "job%d.out" % Job.count)
        self.checkpoint = self.output_file + ".checkpoint"

    def output(self):
        return read(self.output_file)

    def lines(self, pattern):
        return re.findall(pattern, self.output(), re.MULTILINE)

    def wait_for(self, pattern, count=1):
        """Waits until this many parts of the output match; returns them."""
        try:
            return wait_for(pattern, lambda: len(self.lines(pattern)) >= count
                            and self.lines(pattern))
        except AssertionError as error:
            raise AssertionError("%s in:\n%s" % (error, self.output())) from None

    def show(self, name):
        shown = CLUSTER.command("scontrol", "--oneliner", "show", "job", self.number).stdout
        found = re.search(r"\b%s=(\S+)" % name, shown)
        return found.group(1) if found else ""

    def wait_for_state(self, *states):
        try:
            return wait_for("job %s to be %s" % (self.number, states),
                            lambda: self.show("JobState") in states)
        except AssertionError as error:
            raise AssertionError("%s; it is %s" % (error, self.show("JobState"))) from None

    def begin_again(self):
        """Waits until the job is in the queue again, and shortens Slurm's two minutes.

        In its first seconds the nodes would refuse it: they have just ended a job of this number.
        """
        wait_for("the job to be put back: " + self.output(),
                 lambda: self.show("Restarts") == "1" and self.show("JobState") == "PENDING" and
                 CLUSTER.command("scontrol", "update", "JobId=" + self.number,
                                 "StartTime=now+3").returncode == 0)
        self.wait_for_state("RUNNING")

    def saved_step(self):
        """The step at which the nodes left. Some may leave before the others do."""
        return max(map(int, self.wait_for(r"leaving after step (\d+):")))

    def cancel(self):
        CLUSTER.command("scancel", self.number)


def srun(*command, **more):
    return CLUSTER.command("srun", "--ntasks-per-node=1", *command, **more)


class Waiting:
    """Jobs that wait for Slurm, on nodes n1 and n3."""
    warned = None
    at_its_limit = None

    @classmethod
    def start(cls):
        two = ("--nodes=2", "--exclude=n2")
        # The warning of 120 s is due as soon as Slurm looks.
        cls.warned = Job("elastic.sbatch", *ENDLESS, flags=two + ("--time=2",))
        cls.at_its_limit = Job("elastic.sbatch", *ENDLESS,
                               flags=two + ("--time=10", "--signal=CONT@1"))
        cls.at_its_limit.wait_for(r"step 100: ")
        end = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(time.time() + 1))
        CLUSTER.command("scontrol", "update", "JobId=" + cls.at_its_limit.number, "EndTime=" + end)


def setUpModule():
    unittest.addModuleCleanup(CLUSTER.end)
    CLUSTER.start()
    tools = os.path.join(CLUSTER.folder, "bin")
    os.mkdir(tools)
    os.symlink(PROGRAM, os.path.join(tools, "regroup"))
    # The scripts look for the first node once a minute.
    write(os.path.join(tools, "sleep"), "#!/bin/sh\nexec /bin/sleep 1\n", 0o755)
    CLUSTER.environment["PATH"] = tools + os.pathsep + CLUSTER.environment["PATH"]
    made = CLUSTER.command("regroup", "token", "--generate")
    if made.returncode != 0:
        raise AssertionError(made.stdout)
    Waiting.start()


class Allocation(unittest.TestCase):
    def test_ranks_follow_the_order_of_the_nodes(self):
        done = srun("--nodes=3", "regroup", "run", "--nproc-per-node=2", "sh", "-c",
                    "echo $RANK/$WORLD_SIZE on $SLURMD_NODENAME as $GROUP_RANK")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(sorted(re.findall(r"\d/6 on n\d as \d", done.stdout)),
                         ["0/6 on n1 as 0", "1/6 on n1 as 0", "2/6 on n2 as 1", "3/6 on n2 as 1",
                          "4/6 on n3 as 2", "5/6 on n3 as 2"], done.stdout)

    def test_exit_code_is_that_of_the_first_failing_rank(self):
        done = srun("--nodes=3", "regroup", "run", "sh", "-c", "[ $RANK != 1 ] || exit 7")
        self.assertEqual(done.returncode, 7, done.stdout)
        self.assertIn("rank 1 on n2 exited with code 7", done.stdout)

    def test_one_task_for_each_worker_is_refused(self):
        done = srun("--nodes=2", "--ntasks-per-node=8", "regroup", "run", "true")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("Slurm started 16 tasks on 2 nodes, and regroup run must be one task on "
                      "each:", done.stdout)
        self.assertIn("--ntasks-per-node=1 regroup run --nproc-per-node=8", done.stdout)

    def test_program_needs_no_launcher_under_srun(self):
        done = srun("--nodes=2", "--ntasks-per-node=4", ELASTIC, "--steps=20")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(re.findall(r"rank \d of 8, pid", done.stdout)), 8, done.stdout)
        self.assertIn("20 steps, 320 samples, each once", done.stdout)

    def test_elastic_job_gets_as_many_nodes_as_there_are(self):
        job = Job("elastic.sbatch", "--steps=20")
        job.wait_for("20 steps, 320 samples, each once")
        self.assertEqual(len(job.lines(r"round 1: rank \d of 3 on node")), 3, job.output())

    def test_nodes_of_two_kinds_form_one_world(self):
        job = Job("heterogeneous.sbatch", "--steps=20")
        job.wait_for("20 steps, 320 samples, each once")
        nodes = sorted(job.wait_for(r"round 1: (ranks .* on node n\d)", 3))
        self.assertEqual(nodes, ["ranks 0-3 of 8 on node n1", "ranks 4-5 of 8 on node n2",
                                 "ranks 6-7 of 8 on node n3"])


class Signals(unittest.TestCase):
    def check_all_saved(self, job, nodes):
        """Each node left, and each worker saved once."""
        job.wait_for("(?:drained: |was stopped by node ).*stopped by SIGTERM", nodes)
        self.assertEqual(len(job.lines(r"^\[n\d:\d\] leaving after step")), nodes, job.output())
        self.assertFalse(job.lines("killing|was ended by"), job.output())

    def check_exit_codes(self, job, nodes):
        self.assertEqual(len(job.wait_for(r"Exited with exit code 75", nodes)), nodes)

    def check_continues(self, job):
        saved = job.saved_step()
        job.begin_again()
        self.assertEqual(job.wait_for(r"round 1: rank 0 of \d, pid \d+, from step ([1-9]\d*)"),
                         [str(saved)], job.output())

    def test_requeued_job_continues_from_its_saved_state(self):
        job = Job("elastic.sbatch", "--steps=300", "--step-ms=10", flags=["--nodes=3"])
        job.wait_for(r"step 100: ")
        CLUSTER.command("scontrol", "requeue", job.number)
        self.check_all_saved(job, 3)
        self.check_exit_codes(job, 3)
        self.check_continues(job)
        job.wait_for("300 steps, 4800 samples, each once")
        job.wait_for_state("COMPLETED")

    def test_submitted_job_continues_from_its_saved_state(self):
        job = Job.submitted("--steps=300", "--step-ms=10", flags=["--nodes=2:3", "--time=10"])
        job.wait_for(r"step 100: ")
        nodes = int(job.lines(r"round 1: rank 0 of (\d), pid")[0])
        CLUSTER.command("scancel", "--signal=TERM", job.number)
        self.check_all_saved(job, nodes)
        self.check_exit_codes(job, nodes)
        self.check_continues(job)
        job.wait_for("300 steps, 4800 samples, each once")
        job.wait_for_state("COMPLETED")

    def test_cancelled_job_saves_and_does_not_come_back(self):
        job = Job("elastic.sbatch", *ENDLESS, flags=["--nodes=3"])
        job.wait_for(r"step 100: ")
        job.cancel()
        self.check_all_saved(job, 3)
        self.check_exit_codes(job, 3)
        job.wait_for_state("CANCELLED")
        self.assertEqual(job.show("Restarts"), "0")
        self.assertTrue(os.path.exists(job.checkpoint))

    def test_preempted_job_leaves_within_its_grace_time_and_comes_back(self):
        job = Job("elastic.sbatch", *ENDLESS,
                  flags=["--nodes=2", "--exclude=n2", "--partition=graceful", "--cpus-per-task=20"])
        job.wait_for(r"step 100: ")
        done = srun("--partition=urgent", "--nodelist=n1", "--cpus-per-task=20", "true")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.check_all_saved(job, 2)
        self.check_continues(job)
        job.cancel()

    def test_warned_job_saves_and_waits_in_the_queue_again(self):
        job = Waiting.warned
        self.check_all_saved(job, 2)
        self.check_exit_codes(job, 2)
        self.check_continues(job)
        job.cancel()

    def test_two_signals_at_the_time_limit_save_once(self):
        job = Waiting.at_its_limit
        job.wait_for("DUE TO TIME LIMIT")
        self.check_all_saved(job, 2)
        self.check_exit_codes(job, 2)
        job.wait_for_state("TIMEOUT")


class Losses(unittest.TestCase):
    def test_standby_takes_the_place_of_a_killed_node(self):
        job = Job("spares.sbatch", *ENDLESS)
        job.wait_for("started 1 spare worker")
        lost, = job.wait_for(r"round 1: rank 1 of 2 on node (n\d)")
        for pid in processes_with(SLURM_JOB_ID=job.number, SLURMD_NODENAME=lost):
            with contextlib.suppress(ProcessLookupError):  # Its parent has ended it.
                os.kill(pid, signal.SIGKILL)
        job.wait_for(r"round 2: rank 1 of 2, pid")
        job.cancel()
        job.wait_for("leaving after step", 2)

    def test_lost_nodes(self):
        """One loss for two jobs: Slurm needs its time to notice."""
        survives = subprocess.Popen(
            ["srun", "--nodes=3", "--ntasks-per-node=1", "--no-kill", "regroup", "run",
             "--nnodes=2:3", "--max-restarts=1", ELASTIC, "--steps=400", "--step-ms=10"],
            env=CLUSTER.environment, cwd=CLUSTER.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(survives.stdout.close)
        self.addCleanup(survives.kill)
        requeued = Job("elastic.sbatch", *ENDLESS, flags=["--nodes=2", "--exclude=n1"])
        requeued.wait_for(r"step 100: ")
        CLUSTER.lose_node("n2")
        # Else Slurm waits for SlurmdTimeout.
        CLUSTER.command("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=lost")
        with self.subTest("the others go on"):
            output, _ = survives.communicate(timeout=DEADLINE_S)
            self.assertIn("node n2 is lost", output)
            self.assertIn("400 steps, 6400 samples, each once", output)
            self.assertRegex(output, r"round 2: rank 1 of 2, pid")
            self.assertEqual(survives.returncode, 0, output)
        with self.subTest("the job of a lost first node begins again at its last checkpoint"):
            wait_for("the job to be put back", lambda: requeued.show("Restarts") == "1")
            CLUSTER.start_node("n2")
            requeued.begin_again()
            requeued.wait_for(r"round 1: rank 0 of 2, pid \d+, from step [1-9]\d*00$")
            requeued.cancel()


class Submission(unittest.TestCase):
    def test_words_and_options_arrive_through_the_script(self):
        output = os.path.join(CLUSTER.folder, "submitted.out")
        comment = 'a # "b" \\ c'
        done = CLUSTER.command(
            "regroup", "submit", "slurm", "--nodes=2:3", "--cpus-per-task=1", "--sbatch=" + SHARED,
            "--sbatch=--output=" + output, "--sbatch=--comment=" + comment, "--", "sh", "-c",
            'printf "<%s>" $RANK "$@"; echo', "x", "it's", "$HOME", "#SBATCH --hold", "")
        self.assertEqual(done.returncode, 0, done.stdout)
        for rank in (0, 1):
            words = "<%d><it's><$HOME><#SBATCH --hold><>" % rank
            wait_for(words, lambda words=words: words in read(output))
        shown = CLUSTER.command("scontrol", "show", "job", done.stdout.split()[-1]).stdout
        self.assertIn("Comment=" + comment, shown)


if __name__ == "__main__":
    if os.environ.get(INSIDE) != "1":
        reason = missing()
        if reason:
            print("skipped: " + reason)
            sys.exit(77)
    enter()
    unittest.main()
