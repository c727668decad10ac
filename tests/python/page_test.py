# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/python.md run, on two ranks."""
import os
import re
import unittest

from support import HERE, main, needs_numpy, run_program, torch


@needs_numpy
class Page(unittest.TestCase):
    def test_programs_run(self):
        with open(os.path.join(HERE, "../../docs/python.md"), encoding="utf-8") as file:
            training, model, groups, state, stop = re.findall(r"```python\n(.*?)```", file.read(), re.S)
        code, output = run_program(training.replace("time.sleep(0.02)", "time.sleep(0)"))
        self.assertEqual((code, output.count("y = 3.000 x + 1.000")), (0, 2), output)
        for program in (groups, state, stop):
            code, output = run_program(program)
            self.assertEqual(code, 0, output)
        if torch:
            code, output = run_program(model)
            self.assertEqual(code, 0, output)
            self.assertIn("step 150: loss", output)


main()
