# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests: ranks that are threads, jobs under the launcher, optional packages."""
import importlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest

import regroup

DEADLINE_S = 60
PROGRAM = os.environ["REGROUP_PROGRAM"]
HERE = os.path.dirname(os.path.abspath(__file__))


def package(name):
    """The module, or None where it is missing or cannot be loaded."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


numpy, torch = package("numpy"), package("torch")
needs_numpy = unittest.skipUnless(numpy, f"{sys.executable} has no NumPy")
new_torch = torch and hasattr(torch.distributed, "all_gather_single")
needs_new_torch = unittest.skipUnless(new_torch, f"{sys.executable} has no PyTorch from 2.14 on")
needs_torch = unittest.skipUnless(torch, f"{sys.executable} has no PyTorch")


class FolderTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = folder.name


def run_ranks(count, body, timeout=DEADLINE_S):
    """Calls body(group) on so many threads, each of which is a rank."""
    store = regroup.Store.local(timeout=timeout)
    failures = []

    def work(rank):
        context = regroup.Context.create(rank, count)
        context.use_store(store)
        group = regroup.ProcessGroup.create("cpu", context, timeout=timeout)
        try:
            body(group)
        except BaseException as failure:
            failures.append(failure)
            group.abort(f"rank {rank} has failed: {failure}")
        finally:
            group.close()

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        if thread.is_alive():
            raise AssertionError(f"a rank has not ended within {DEADLINE_S} s")
    if failures:
        raise failures[0]


def without_job(**more):
    """The environment of a process that is no worker."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    return {**{name: value for name, value in os.environ.items() if name not in names}, **more}


def start_job(folder, script, *arguments, ranks=3, flags=(), surroundings=None):
    """A script of this folder under `regroup run`; both streams in one pipe."""
    return subprocess.Popen(
        [PROGRAM, "run", "--standalone", f"--nproc-per-node={ranks}", *flags, sys.executable,
         os.path.join(HERE, script), *arguments],
        cwd=folder, env=without_job(**(surroundings or {})), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_job(*arguments, deadline_s=DEADLINE_S, **options):
    """The exit code and the output."""
    job = start_job(*arguments, **options)
    try:
        output, _ = job.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        job.kill()
        raise
    return job.returncode, output


class TrainingTest(FolderTest):
    """Jobs of `script`, which trains with torch_jobs.py."""

    script = None
    preloaded = None  # The imports that a new process is spared.
    words = ()  # Before the way in which it trains.
    undisturbed = {}  # Results of runs without kills, which several cases have in common.

    def run_training(self, way, *kills, ranks=2, flags=(), **surroundings):
        return run_job(self.folder, self.script, *self.words, way, self.folder, *kills,
                       ranks=ranks, deadline_s=300,
                       flags=[f"--preload={self.preloaded}", *flags], surroundings=surroundings)

    def train(self, way, *kills, flags=(), **options):
        flags = [f"--max-restarts={len(kills) + 1}", *flags]
        code, output = self.run_training(way, *kills, flags=flags, **options)
        self.assertEqual(code, 0, output)
        return output

    def result(self, output, ranks):
        return result_of(self, output, ranks)

    def expected(self, way, ranks=2, **options):
        """The result of a run without kills."""
        key = (self.script, *self.words, way, ranks, *sorted(options.items()))
        if key not in self.undisturbed:
            self.undisturbed[key] = self.result(self.train(way, ranks=ranks, **options), ranks)
        return self.undisturbed[key]

    def expect_same_result(self, way, *kills, ranks=2, **options):
        """The result is that without kills. Returns the output."""
        expected = self.expected(way, ranks=ranks, **options)
        output = self.train(way, *kills, ranks=ranks, **options)
        self.assertEqual(self.result(output, ranks), expected, output)
        return output

    def expect_no_growth(self, output, deaths):
        """`output`: of a job that has measured its use after a quarter of the deaths, and after
        all."""
        used = [tuple(map(int, match)) for match in
                re.findall(r"used (\d+) (\d+) (\d+) in round (\d+)", output)]
        self.assertEqual(len(used), 2, output)
        (files, threads, kilobytes, first), (files_at_end, threads_at_end, more, last) = used
        self.assertGreaterEqual(last - first, deaths * 3 // 4 - 1)
        self.assertEqual((files_at_end, threads_at_end), (files, threads), output)
        self.assertLess(more - kilobytes, 8000, "kB more after deaths")


def result_of(test, output, ranks):
    """The result, which all of so many ranks have printed."""
    results = re.findall(r"result .*", output)
    test.assertEqual(len(results), ranks, output)
    test.assertEqual(len(set(results)), 1, output)
    return results[0]


def rounds_of(output, rank, ranks):
    """The rounds that this rank of so many has begun: number, step and pid of each."""
    begun = re.findall(rf"^\[\S+ round (\d+) of rank {rank} of {ranks} from step (\d+), pid (\d+)",
                       output, re.MULTILINE)
    return [tuple(map(int, each)) for each in begun]


def run_program(program, ranks=2):
    """The exit code and the output of a program in a text, under `regroup run`."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(program)
        return run_job(folder, path, ranks=ranks)


def main():
    """Runs the tests of the program. Ends with code 77, and a line that says why, if it could run
    none: CTest counts it as skipped."""
    result = unittest.main(verbosity=2, exit=False).result
    if result.wasSuccessful() and len(result.skipped) >= max(result.testsRun, 1):
        reasons = sorted({reason for _, reason in result.skipped})
        print(f"skipped: {'; '.join(reasons)}", flush=True)
        sys.exit(77)
    sys.exit(0 if result.wasSuccessful() else 1)
