# SPDX-License-Identifier: Apache-2.0
"""Trainings with stock PyTorch over gloo: the launcher names the rank on which they hang."""
import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from support import PROGRAM, FolderTest, main, start_job, torch

DEADLINE_S = 150


def has_hooks():
    return torch is not None and hasattr(torch.distributed, "ProcessGroup") and \
        hasattr(torch.distributed.ProcessGroup, "register_pre_hook")


class Job:
    """A job with an event log."""

    def __init__(self, folder, *arguments, preload="torch,torch._dynamo", floor=3, tools=None):
        self.folder = folder
        self.log = os.path.join(folder, "events")
        self.job = start_job(
            folder, "torch_watch_job.py", *arguments,
            flags=(f"--hang-floor={floor}", "--rdzv-id=job", "--log-dir=runs",
                   f"--event-log={self.log}", *((f"--preload={preload}",) if preload else ())),
            surroundings={"PATH": f"{tools}:{os.environ['PATH']}"} if tools else None)

    def events(self, name):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8") as log:
            lines = [json.loads(line) for line in log if line.endswith("\n")]
        return [line for line in lines if line["event"] == name]

    def since_the_fault(self, events):
        """On a busy machine, ranks that start may wait for each other for long."""
        try:
            with open(os.path.join(self.folder, "fault"), encoding="utf-8") as file:
                begin = datetime.datetime.fromtimestamp(float(file.read()), datetime.timezone.utc)
        except FileNotFoundError:
            return []
        return [event for event in events
                if datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")) > begin]

    def first(self, name, of=lambda event: True):
        """Waits for such an event after the fault."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for event in self.since_the_fault(self.events(name)):
                if of(event):
                    return event
            if self.job.poll() is not None:
                break
            time.sleep(0.1)
        raise AssertionError(f"no event {name}: {self.end()}")

    def end(self):
        """The output of the job, which is ended if it has not ended."""
        if self.job.poll() is None:
            self.job.send_signal(signal.SIGINT)
        try:
            return self.job.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            self.job.kill()
            raise


@unittest.skipUnless(has_hooks(), "this interpreter has no PyTorch 2.14, whose groups have hooks")
class TorchWatchTest(FolderTest):
    def rank_named(self, *arguments, **options):
        job = Job(self.folder, *arguments, **options)
        try:
            return job.first("hanging", lambda event: "rank" in event)["rank"]
        finally:
            self.output = job.end()

    def test_rank_that_sleeps_is_named(self):
        self.assertEqual(self.rank_named("200", "sleep", "1", "40"), 1, self.output)

    def test_rank_that_holds_the_lock_of_the_interpreter_is_named(self):
        self.assertEqual(self.rank_named("200", "lock", "2", "40"), 2, self.output)

    def test_lines_of_python_are_saved_and_explained(self):
        tools = os.path.dirname(sys.executable)
        if not shutil.which("py-spy", path=tools):
            self.skipTest(f"no py-spy beside {sys.executable}")
        job = Job(self.folder, "200", "lock", "2", "40", tools=tools)
        try:
            folder = job.first("stacks_saved")["folder"]
        finally:
            output = job.end()
        explained = subprocess.run([PROGRAM, "explain", "--json", folder], capture_output=True,
                                   text=True, timeout=DEADLINE_S, check=True)
        said = json.loads(explained.stdout)
        self.assertEqual(said["culprits"], [2], output)
        frames = next(rank["frames"] for rank in said["ranks"] if rank["rank"] == 2)
        self.assertRegex(" ".join(frames), r"main \(.*torch_watch_job\.py:\d+\)", output)

    def test_rank_whose_data_loader_stalls_is_named(self):
        self.assertEqual(self.rank_named("200", "loader", "0", "40"), 0, self.output)

    def test_rank_that_calls_another_collective_is_named(self):
        self.assertEqual(self.rank_named("200", "other", "1", "40"), 1, self.output)

    def test_rank_that_does_not_send_is_named(self):
        # Rank 2 waits in a collective for both.
        self.assertEqual(self.rank_named("200", "receive", "1", "5"), 1, self.output)

    def test_training_without_a_fault_is_not_suspected(self):
        job = Job(self.folder, "200", floor=10)
        output, _ = job.job.communicate(timeout=DEADLINE_S)
        self.assertEqual(job.job.returncode, 0, output)
        self.assertEqual(job.events("hanging"), [], output)
        # The main thread, and the one that looks for ends.
        self.assertIn("rank 0 has made 200 steps, with 2 threads", output)

    def test_ranks_that_work_after_a_reduce_scatter_are_not_suspected(self):
        job = Job(self.folder, "200", "pause", "1", "40")
        output, _ = job.job.communicate(timeout=DEADLINE_S)
        self.assertEqual(job.job.returncode, 0, output)
        self.assertEqual(job.since_the_fault(job.events("hanging")), [], output)

    def test_script_without_preload_is_not_watched(self):
        job = Job(self.folder, "20", preload="")
        output, _ = job.job.communicate(timeout=DEADLINE_S)
        self.assertEqual(job.job.returncode, 0, output)
        self.assertIn("rank 0 has made 20 steps, with 1 threads", output)

    def test_process_that_ends_with_an_operation_under_way_has_its_own_exit_code(self):
        job = Job(self.folder, "200", "issued", "1", "40")
        try:
            self.assertEqual(job.first("failed", lambda event: event["rank"] == 1)["exit_code"], 3)
        finally:
            job.end()


main()
