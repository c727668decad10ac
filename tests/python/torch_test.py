# SPDX-License-Identifier: Apache-2.0
"""A model and an optimizer of PyTorch in an ElasticLoop: torch_job.py."""
import re
import tempfile
import unittest

import regroup
from support import main, needs_torch, run_job, torch

if torch:
    from regroup import torch as regroup_torch


@needs_torch
class Torch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

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
        self.assertEqual(len(set(re.findall(r"pid \d+", output))), 5, output)

    def test_state_that_was_loaded_has_the_same_bytes(self):
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        saved = regroup_torch.state._encode(optimizer.state_dict())
        fresh = torch.optim.SGD(torch.nn.Linear(3, 2).parameters(), lr=0.5)
        fresh.load_state_dict(regroup_torch.state._decode(saved))
        self.assertEqual(regroup_torch.state._encode(fresh.state_dict()), saved)
        self.assertEqual(fresh.param_groups[0]["lr"], 0.1)

    def test_state_of_an_unknown_type_is_refused_with_its_place(self):
        with self.assertRaises(regroup.InvalidArgument) as caught:
            regroup_torch.state._encode({"deep": [1, {"odd": object()}]})
        self.assertIn("['deep'][1]['odd'] is of type object", str(caught.exception))


main()
