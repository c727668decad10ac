# SPDX-License-Identifier: Apache-2.0
"""The flight records of PyTorch in a hang, and what `regroup explain` says about it."""
import json
import os
import subprocess
import unittest

from support import PROGRAM, FolderTest, main, run_job, torch


def has_recorder():
    """The releases whose function for C++ the SDK knows."""
    return torch is not None and tuple(int(part) for part in torch.__version__.split(".")[:2]) in (
        (2, 14), (2, 15))


@unittest.skipUnless(has_recorder(), "this interpreter has no PyTorch 2.14 or 2.15, whose flight "
                     "recorder the SDK can read")
class TorchHangTest(FolderTest):
    def test_rank_that_holds_the_lock_of_the_interpreter_is_named(self):
        # Imported ahead, so that the time of the import is no silence.
        code, output = run_job(
            self.folder, "torch_hang_job.py", ranks=2, deadline_s=180,
            flags=("--preload=torch", "--hang-timeout=5", "--max-restarts=0", "--log-dir=runs",
                   "--rdzv-id=job"))
        self.assertNotEqual(code, 0, output)
        hang = os.path.join(self.folder, "runs", "job", "hang-round1")
        self.assertTrue(os.path.exists(os.path.join(hang, "rank1.gloo.json")), output)
        explained = json.loads(subprocess.run([PROGRAM, "explain", "--json", hang], check=True,
                                              stdout=subprocess.PIPE).stdout)
        self.assertEqual(explained["verdict"], "not_entered", explained)
        self.assertEqual(explained["culprits"], [1])
        (stuck,) = explained["collectives"]
        self.assertEqual((stuck["recorder"], stuck["backend"], stuck["group"]),
                         ("pytorch", "gloo", "default_pg"))
        self.assertEqual((stuck["operation"], stuck["number"], stuck["elements"]),
                         ("all_reduce", 3, 3))
        self.assertEqual((stuck["entered"], stuck["not_entered"]), ([0], [1]))


main()
