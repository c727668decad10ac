# SPDX-License-Identifier: Apache-2.0
"""Divided models in regroup.torch.ShardedElastic: torch_sharded_job.py."""
import re
import sys
import unittest

from nodes import Node, NodesTest, WorldChanges
from support import TrainingTest, main, new_torch, package, rounds_of

# Debian's release cannot be asked: its import of this package fails with Python 3.11.
has_fsdp2 = new_torch and hasattr(package("torch.distributed.fsdp"), "fully_shard")
needs_fsdp2 = unittest.skipUnless(has_fsdp2, f"{sys.executable} has no PyTorch from 2.14 on")
#: The imports that a new process is spared.
PRELOADED = "torch,torch._dynamo,regroup.torch,torch.distributed.fsdp," \
            "torch.distributed.tensor.parallel"
#: Deaths of `many`: of rank 1, some steps apart.
DEATHS = 8


@needs_fsdp2
class ShardedElastic(TrainingTest):
    script = "torch_sharded_job.py"
    preloaded = PRELOADED

    def result(self, output, ranks):
        result = super().result(output, ranks)
        self.assertIn("each once an epoch: True", result)
        return result

    def expect_rounds(self, way, begins, *kills, processes=1):
        """The result is that without kills. `begins`: the steps from which the rounds begin.
        `processes`: how many rank 0 has had."""
        output = self.expect_same_result(way, *kills, ranks=4)
        rounds = rounds_of(output, 0, 4)
        self.assertEqual([step for _, step, _ in rounds], begins, output)
        self.assertEqual(len({pid for _, _, pid in rounds}), processes, output)

    def test_fsdp_goes_back_to_the_newest_snapshot(self):
        self.expect_rounds("fsdp", [0, 4, 16], "7:1", "19:3")

    def test_loss_of_all_processes_costs_no_more(self):
        self.expect_rounds("fsdp", [0, 8], "11:0+1+2+3", processes=2)

    def test_replicas_lose_no_step(self):
        # The ranks die where all have committed the step before.
        self.expect_rounds("hsdp", [0, 8, 20], "8:1", "20:3")

    def test_gloo_is_made_anew_in_the_same_processes(self):
        self.expect_rounds("fsdp.gloo", [0, 4, 16], "7:1", "19:3")
        self.expect_rounds("hsdp.gloo", [0, 8, 20], "8:1", "20:3")

    def test_loss_of_all_replicas_of_a_shard_goes_back_to_the_newest_snapshot(self):
        self.expect_rounds("hsdp", [0, 4], "7:1+3")

    def test_tensor_parallel_ranks_share_their_samples(self):
        self.expect_rounds("tp", [0, 4, 16], "7:1", "19:3")

    def test_mesh_that_does_not_fit_ends_the_job_at_once(self):
        code, output = self.run_training("misfit", flags=["--max-restarts=3"])
        self.assertEqual(code, 78, output)
        self.assertIn("the mesh {'shard': 7} does not fit 2 ranks: let --nnodes", output)
        self.assertNotIn("Traceback", output)
        self.assertEqual(set(re.findall(r"after (\d+) restarts", output)), {"0"}, output)

    def test_deaths_leave_no_descriptors_threads_or_memory(self):
        kills = [f"{4 * number + 1}:1" for number in range(1, DEATHS + 1)]
        self.expect_no_growth(self.train("many", *kills), DEATHS)


@needs_fsdp2
class Nodes(WorldChanges, NodesTest):
    def node(self, number, workers, way="nodes"):
        return Node(self, number, workers, "torch_sharded_job.py", way, self.folder,
                    flags=[f"--preload={PRELOADED}"])

    def test_loss_of_a_node_that_leaves_a_misfit_ends_the_job(self):
        first, second = self.node(2, 2, "fixed"), self.node(3, 1, "fixed")
        first.expect(self, "of rank 0 of 3 from step 0,")
        second.expect(self, "of rank 2 of 3 from step 0,")
        second.end()
        self.assertEqual(first.wait(), 78, first.output)
        self.assertIn("the mesh {'shard': 3} does not fit 2 ranks: let --nnodes", first.output)


main()
