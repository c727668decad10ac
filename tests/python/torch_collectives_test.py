# SPDX-License-Identifier: Apache-2.0
"""The collectives of torch.distributed, with "regroup" and with gloo: torch_collectives_job.py."""
import re

from support import FolderTest, main, needs_new_torch, run_job


@needs_new_torch
class TorchCollectives(FolderTest):
    def test_collectives_give_what_those_of_gloo_give(self):
        code, output = run_job(self.folder, "torch_collectives_job.py", deadline_s=300,
                               flags=["--preload=torch,regroup.torch"])
        self.assertEqual(code, 0, output)
        counts = [int(count) for count in re.findall(r"compared (\d+)", output)]
        self.assertEqual(len(counts), 3, output)
        self.assertGreater(min(counts), 1000, output)


main()
