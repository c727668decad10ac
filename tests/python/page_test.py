# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/python.md run, on two ranks."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

from support import DEADLINE_S, HERE, PROGRAM, main, needs_numpy, without_job


@needs_numpy
class Page(unittest.TestCase):
    def run_program(self, program):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "train.py"), "w", encoding="utf-8") as file:
                file.write(program)
            done = subprocess.run(
                [PROGRAM, "run", "--standalone", "--nproc-per-node=2", sys.executable, "train.py"],
                cwd=folder, env=without_job(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=DEADLINE_S)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_programs_run(self):
        with open(os.path.join(HERE, "../../docs/python.md"), encoding="utf-8") as file:
            training, groups = re.findall(r"```python\n(.*?)```", file.read(), re.S)
        output = self.run_program(training.replace("time.sleep(0.02)", "time.sleep(0)"))
        self.assertEqual(output.count("y = 3.000 x + 1.000"), 2, output)
        self.run_program(groups)


main()
