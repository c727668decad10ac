# SPDX-License-Identifier: Apache-2.0
"""Divided models in regroup.torch.ShardedElastic: torch_sharded_job.py."""
import os
import re
import sys
import unittest

from nodes import Node, NodesTest
from support import FolderTest, main, new_torch, package, run_job

# Debian's release cannot be asked: its import of this package fails with Python 3.11.
has_fsdp2 = new_torch and hasattr(package("torch.distributed.fsdp"), "fully_shard")
needs_fsdp2 = unittest.skipUnless(has_fsdp2, f"{sys.executable} has no PyTorch from 2.14 on")
#: What a new process need not import again.
PRELOADED = "--preload=torch,torch._dynamo,regroup.torch,torch.distributed.fsdp," \
            "torch.distributed.tensor.parallel"
#: Deaths of `many`: of rank 1, some steps apart.
DEATHS = 8
_results = {}


@needs_fsdp2
class ShardedElastic(FolderTest):
    def train(self, way, *kills, ranks=4):
        flags = [f"--max-restarts={len(kills) + 1}", PRELOADED]
        code, output = run_job(self.folder, "torch_sharded_job.py", way, self.folder, *kills,
                               ranks=ranks, deadline_s=300, flags=flags)
        self.assertEqual(code, 0, output)
        return output

    def result(self, output, ranks=4):
        results = re.findall(r"result .*", output)
        self.assertEqual(len(results), ranks, output)
        self.assertEqual(len(set(results)), 1, output)
        self.assertIn("each once an epoch: True", results[0])
        return results[0]

    def expect_same_result(self, way, steps, *kills):
        """The parameters at the end are those without kills. `steps`: from which each round after
        the first begins."""
        if way not in _results:
            _results[way] = self.result(self.train(way))
        output = self.train(way, *kills)
        self.assertEqual(self.result(output), _results[way], output)
        rounds = re.findall(r"^\[\S+ round \d+ of rank 0 of 4 from step (\d+), pid (\d+)", output,
                            re.MULTILINE)
        self.assertEqual([int(step) for step, _ in rounds], [0, *steps], output)
        return len({pid for _, pid in rounds})

    def test_fsdp_goes_back_to_the_newest_snapshot(self):
        self.assertEqual(self.expect_same_result("fsdp", [4, 16], "7:1", "19:3"), 1)

    def test_loss_of_all_processes_costs_no_more(self):
        self.assertEqual(self.expect_same_result("fsdp", [8], "11:0+1+2+3"), 2)

    def test_replicas_lose_no_step(self):
        # The ranks die where all have committed the step before.
        self.assertEqual(self.expect_same_result("hsdp", [8, 20], "8:1", "20:3"), 1)

    def test_gloo_is_made_anew_in_the_same_processes(self):
        self.assertEqual(self.expect_same_result("fsdp.gloo", [4, 16], "7:1", "19:3"), 1)
        self.assertEqual(self.expect_same_result("hsdp.gloo", [8, 20], "8:1", "20:3"), 1)

    def test_loss_of_all_replicas_of_a_shard_goes_back_to_the_newest_snapshot(self):
        self.assertEqual(self.expect_same_result("hsdp", [4], "7:1+3"), 1)

    def test_tensor_parallel_ranks_share_their_samples(self):
        self.assertEqual(self.expect_same_result("tp", [4, 16], "7:1", "19:3"), 1)

    def test_mesh_that_does_not_fit_ends_the_job_at_once(self):
        code, output = run_job(self.folder, "torch_sharded_job.py", "misfit", self.folder, ranks=2,
                               deadline_s=300, flags=["--max-restarts=3"])
        self.assertEqual(code, 78, output)
        self.assertIn("the mesh {'shard': 7} does not fit 2 ranks: let --nnodes", output)
        self.assertNotIn("Traceback", output)
        self.assertEqual(set(re.findall(r"after (\d+) restarts", output)), {"0"}, output)

    def test_deaths_leave_no_descriptors_threads_or_memory(self):
        kills = [f"{4 * number + 1}:1" for number in range(1, DEATHS + 1)]
        output = self.train("many", *kills, ranks=2)
        used = [tuple(map(int, match)) for match in
                re.findall(r"used (\d+) (\d+) (\d+) in round (\d+)", output)]
        self.assertEqual(len(used), 2, output)
        (files, threads, kilobytes, first), (files_at_end, threads_at_end, more, last) = used
        self.assertGreaterEqual(last - first, DEATHS * 3 // 4 - 1)
        self.assertEqual((files_at_end, threads_at_end), (files, threads), output)
        self.assertLess(more - kilobytes, 8000, "kB more after deaths")


@needs_fsdp2
class Nodes(NodesTest):
    def node(self, number, workers, way="nodes"):
        return Node(self, number, workers, "torch_sharded_job.py", way, self.folder,
                    flags=[PRELOADED])

    def test_world_shrinks_and_grows_and_a_drain_costs_no_step(self):
        first, second = self.node(2, 2), self.node(3, 1)
        first.expect(self, "of rank 0 of 3 from step 0,")
        second.expect(self, "of rank 2 of 3 from step 0,")
        second.end()
        first.expect(self, r"of rank 0 of 2 from step \d+,")
        third = self.node(4, 1)
        third.expect(self, r"of rank 2 of 3 from step \d+,")
        self.drain(third)
        left = re.search(r"left at step (\d+)\.", third.output)
        first.expect(self, f"of rank 0 of 2 from step {left.group(1)},")
        open(os.path.join(self.folder, "finish"), "w").close()
        self.assertEqual(first.wait(), 0, first.output)
        results = re.findall(r"result .*", first.output)
        self.assertEqual(len(results), 2, first.output)
        self.assertEqual(len(set(results)), 1, first.output)
        self.assertIn("each once an epoch: True", results[0])
        # The workers of the first node keep their processes.
        self.assertEqual(len(set(re.findall(r"pid (\d+)\.", first.output))), 2, first.output)

    def test_loss_of_a_node_that_leaves_a_misfit_ends_the_job(self):
        first, second = self.node(2, 2, "fixed"), self.node(3, 1, "fixed")
        first.expect(self, "of rank 0 of 3 from step 0,")
        second.expect(self, "of rank 2 of 3 from step 0,")
        second.end()
        self.assertEqual(first.wait(), 78, first.output)
        self.assertIn("the mesh {'shard': 3} does not fit 2 ranks: let --nnodes", first.output)


main()
