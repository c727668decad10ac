# SPDX-License-Identifier: Apache-2.0
"""The collectives of torch.distributed, with "regroup" and with gloo: torch_collectives_job.py."""
import re
import sys
import tempfile
import unittest

from support import main, run_job, torch

new_torch = torch and hasattr(torch.distributed, "all_gather_single")


@unittest.skipUnless(new_torch, f"{sys.executable} has no PyTorch from 2.14 on")
class TorchCollectives(unittest.TestCase):
    def run_table(self, **surroundings):
        with tempfile.TemporaryDirectory() as folder:
            code, output = run_job(folder, "torch_collectives_job.py", deadline_s=300,
                                   flags=["--preload=torch,regroup.torch"],
                                   surroundings=surroundings)
        self.assertEqual(code, 0, output)
        counts = [int(count) for count in re.findall(r"compared (\d+)", output)]
        self.assertEqual(len(counts), 3, output)
        self.assertGreater(min(counts), 1000, output)

    def test_collectives_give_what_those_of_gloo_give(self):
        self.run_table()


main()
