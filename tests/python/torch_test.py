# SPDX-License-Identifier: Apache-2.0
"""A model and an optimizer of PyTorch in an ElasticLoop: torch_job.py."""
import re

from support import FolderTest, main, needs_torch, run_job


@needs_torch
class Torch(FolderTest):
    def run_way(self, way):
        code, output = run_job(self.folder, "torch_job.py", way, self.folder, ranks=3,
                               flags=["--max-restarts=3"])
        self.assertEqual(code, 0, output)
        return output

    def test_killed_workers_do_not_change_the_result(self):
        expected = re.findall(r"result .*", self.run_way("quiet"))
        self.assertEqual(len(set(expected)), 1)
        self.assertEqual(len(expected), 3)
        output = self.run_way("kill")
        self.assertEqual(re.findall(r"result .*", output), expected, output)
        # The others may have heard of the death before they applied the step before.
        self.assertRegex(output, "round 2 from step 1[67]")
        self.assertRegex(output, "round 3 from step (39|40)")
        # Rank 0 keeps its process; ranks 1 and 2 have two each.
        self.assertEqual(len(set(re.findall(r"from step \d+, pid (\d+)", output))), 5, output)


main()
