# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel in regroup.torch.Elastic, over regroup and over gloo:
torch_elastic_job.py."""
import os
import re
import sys
import unittest
import unittest.mock

import regroup
from nodes import Node, NodesTest
from support import FolderTest, main, needs_torch, run_job, torch

#: Deaths of `many`: of rank 1, some steps apart.
DEATHS = 20
new_torch = torch and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 3)
#: The imports that a new process is spared.
PRELOADED = "torch,torch._dynamo,regroup.torch" if new_torch else "torch,regroup.torch"
needs_new_torch = unittest.skipUnless(
    new_torch, f"{sys.executable} has no PyTorch from 2.3 on, for GradScaler on the CPU and compile")


class Cases:
    """The cases of each back end."""

    back_end = None
    deaths = DEATHS
    undisturbed = None  # Results of runs without kills, which several cases have in common.

    def run_training(self, way, *kills, ranks=2, flags=(), **surroundings):
        flags = [f"--preload={PRELOADED}", *flags]
        return run_job(self.folder, "torch_elastic_job.py", self.back_end, way, self.folder, *kills,
                       ranks=ranks, deadline_s=300, flags=flags, surroundings=surroundings)

    def train(self, way, *kills, flags=(), **options):
        flags = [f"--max-restarts={len(kills) + 1}", *flags]
        code, output = self.run_training(way, *kills, flags=flags, **options)
        self.assertEqual(code, 0, output)
        return output

    def expected(self, way, ranks=2, **options):
        key = (way, ranks, *sorted(options.items()))
        if key not in self.undisturbed:
            self.undisturbed[key] = self.results(self.train(way, ranks=ranks, **options), ranks)
        return self.undisturbed[key]

    def results(self, output, ranks):
        results = re.findall(r"result .*", output)
        self.assertEqual(len(results), ranks, output)
        self.assertEqual(len(set(results)), 1, output)
        return results

    def expect_same_result(self, way, *kills, ranks=2, **options):
        """Two ranks kill themselves; the parameters at the end are those without it."""
        expected = self.expected(way, ranks=ranks, **options)
        output = self.train(way, *kills, ranks=ranks, **options)
        self.assertEqual(self.results(output, ranks), expected, output)
        for number, kill in enumerate(kills):
            # The others may have heard of the death before they applied the step before.
            step = int(kill.partition(":")[0])
            self.assertRegex(output, f"round {number + 2} of rank 0 of {ranks} from step "
                                     f"({step - 1}|{step}),")
        # Rank 0 keeps its process.
        self.assertEqual(len(set(re.findall(r" of rank 0 of .* (pid \d+)", output))), 1, output)

    def test_killed_ranks_do_not_change_the_result(self):
        self.expect_same_result("plain", "7:1", "20:2", ranks=3)

    def test_process_that_loads_data_is_started_again(self):
        self.expect_same_result("loader", "7:1", "17:1")

    def test_loss_of_all_processes_goes_back_to_the_newest_snapshot(self):
        expected = self.expected("plain")
        output = self.train("kept", "15:1")
        self.assertEqual(self.results(output, 2), expected)
        begun = re.findall(r"^\[\S+ round (\d+) of rank 0 of 2 from step (\d+),", output,
                           re.MULTILINE)
        self.assertEqual(begun, [("1", "0"), ("2", "12")], output)

    @needs_new_torch
    def test_accumulated_16_bit_gradients_and_scale_survive(self):
        self.expect_same_result("amp", "6:1", "13:1", "20:1")

    @needs_new_torch
    def test_compiled_module_survives(self):
        self.expect_same_result("compile", "7:1", "17:1")

    def test_hanging_rank_is_ended_and_the_result_is_the_same(self):
        expected = self.expected("plain")
        output = self.train("hang", flags=["--hang-floor=3", "--hang-factor=1"])
        self.assertEqual(self.results(output, 2), expected)
        self.assertIn("killing rank 1 because the round hangs", output)

    def test_deaths_leave_no_descriptors_threads_or_memory(self):
        kills = [f"{4 * number}:1" for number in range(1, self.deaths + 1)]
        output = self.train("many", *kills)
        used = [tuple(map(int, match)) for match in
                re.findall(r"used (\d+) (\d+) (\d+) in round (\d+)", output)]
        self.assertEqual(len(used), 2, output)
        (files, threads, kilobytes, first), (files_at_end, threads_at_end, more, last) = used
        self.assertGreaterEqual(last - first, self.deaths * 3 // 4 - 1)
        self.assertEqual((files_at_end, threads_at_end), (files, threads), output)
        self.assertLess(more - kilobytes, 8000, "kB more after deaths")

    def test_ranks_that_do_not_talk_with_a_dead_one_are_released(self):
        output = self.train("blocked", "7:1", "15:1", ranks=4)
        self.results(output, 4)
        for rank in (0, 2, 3):  # They keep their processes.
            begun = re.findall(f"round (\\d) of rank {rank} of 4 from step \\d+, (pid \\d+)", output)
            self.assertEqual([number for number, _ in begun], ["1", "2", "3"], output)
            self.assertEqual(len({process for _, process in begun}), 1, output)

    def test_error_of_the_program_ends_the_job_with_its_traceback(self):
        code, output = self.run_training("bug", flags=["--max-restarts=0"])
        self.assertEqual(code, 1, output)
        self.assertIn("Traceback", output)
        self.assertIn("RuntimeError: a bug of the program", output)
        self.assertNotIn("round 2 of rank", output)


@needs_torch
class OverRegroup(Cases, FolderTest):
    back_end = "regroup"
    undisturbed = {}

    def test_result_does_not_depend_on_kills_over_tcp(self):
        self.expect_same_result("plain", "7:1", "17:2", ranks=3, REGROUP_CPU_TRANSPORT="tcp")


@needs_torch
class OverGloo(Cases, FolderTest):
    back_end = "gloo"
    undisturbed = {}
    deaths = 8  # By hand, 200 were as good.

    def test_ranks_that_wait_for_the_connection_of_a_dead_one_are_released(self):
        output = self.train("forming", ranks=3, flags=["--max-restarts=1"])
        self.results(output, 3)
        begun = re.findall(r"round (\d) of rank (\d) of 3 from step 0,", output)
        self.assertEqual(sorted(begun), [("2", "0"), ("2", "1"), ("2", "2")], output)


@needs_torch
class Choices(unittest.TestCase):
    def refusal(self, *arguments, **options):
        from regroup.torch import Elastic
        with self.assertRaises(regroup.InvalidArgument) as caught:
            Elastic(*arguments, **options)
        return str(caught.exception)

    def test_back_end_that_cannot_be_released_is_refused(self):
        model = torch.nn.Linear(1, 1)
        self.assertIn("mpi has no way to end an operation", self.refusal(model, backend="mpi"))
        self.assertIn("nonesuch is no back end",
                      self.refusal(model, backend="cpu:gloo,cuda:nonesuch"))

    def test_gloo_that_connects_late_is_refused(self):
        with unittest.mock.patch.dict(os.environ, TORCH_GLOO_LAZY_INIT="1"):
            self.assertIn("TORCH_GLOO_LAZY_INIT is set",
                          self.refusal(torch.nn.Linear(1, 1), backend="gloo"))

    def test_device_without_a_back_end_is_refused(self):
        model = torch.nn.Linear(1, 1)
        model.register_buffer("far", torch.empty(1, device="meta"))
        self.assertIn("far is on meta", self.refusal(model))


class NodeCases:
    back_end = None

    def node(self, number, workers):
        return Node(self, number, workers, "torch_nodes_job.py", self.back_end, self.folder,
                    flags=[f"--preload={PRELOADED}"])

    def test_world_shrinks_and_grows_and_a_drained_node_saves(self):
        first, second = self.node(2, 2), self.node(3, 1)
        first.expect(self, "of rank 0 of 3 from step 0,")
        second.expect(self, "of rank 2 of 3 from step 0,")
        second.end()
        shrunk = first.expect(self, r"of rank 0 of 2 from step (\d+),")
        third = self.node(4, 1)
        grown = third.expect(self, r"of rank 2 of 3 from step (\d+),")
        self.assertGreaterEqual(int(grown.group(1)), int(shrunk.group(1)))
        self.drain(third)
        self.assertIn(", with time: True, ", third.output)
        left = re.search(r"left at step (\d+),", third.output)
        first.expect(self, f"of rank 0 of 2 from step {left.group(1)},")
        open(os.path.join(self.folder, "finish"), "w").close()
        self.assertEqual(first.wait(), 0, first.output)
        finished = re.findall(r"finished: .*", first.output)
        self.assertEqual(len(finished), 2, first.output)
        self.assertEqual(len(set(finished)), 1, first.output)
        self.assertIn("each once an epoch: True", finished[0])
        # The workers of the first node keep their processes.
        self.assertEqual(len(set(re.findall(r"pid (\d+)\.", first.output))), 2, first.output)


@needs_torch
class NodesOverRegroup(NodeCases, NodesTest):
    back_end = "regroup"


@needs_torch
class NodesOverGloo(NodeCases, NodesTest):
    back_end = "gloo"


main()
