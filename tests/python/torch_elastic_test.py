# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel in regroup.torch.Elastic, over regroup and over gloo:
torch_elastic_job.py."""
import os
import re
import select
import socket
import sys
import tempfile
import threading
import unittest
import unittest.mock

import regroup
import support
from nodes import Node, NodesTest, WorldChanges
from support import TrainingTest, main, needs_torch, rounds_of, torch

#: Deaths of `many`: of rank 1, some steps apart.
DEATHS = 12
new_torch = torch and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 3)
#: The imports that a new process is spared.
PRELOADED = "torch,torch._dynamo,regroup.torch" if new_torch else "torch,regroup.torch"
needs_new_torch = unittest.skipUnless(
    new_torch, f"{sys.executable} has no PyTorch from 2.3 on, for GradScaler on the CPU and compile")


class Cases:
    """The cases of each back end."""

    script = "torch_elastic_job.py"
    preloaded = PRELOADED
    tells_collectives = True  #: The agent learns in which collectives ranks wait.

    def expect_no_loss(self, way, *kills, ranks=2, **options):
        """The result is that without kills. Rank 0 keeps its process, and no step is lost."""
        output = self.expect_same_result(way, *kills, ranks=ranks, **options)
        rounds = rounds_of(output, 0, ranks)
        begins = {number: step for number, step, _ in rounds}
        for number, kill in enumerate(kills):
            # The others may have heard of the death before they applied the step before.
            step = int(kill.partition(":")[0])
            self.assertIn(begins.get(number + 2), (step - 1, step), output)
        self.assertEqual(len({pid for _, _, pid in rounds}), 1, output)

    def test_killed_ranks_do_not_change_the_result(self):
        self.expect_no_loss("plain", "7:1", "20:2", ranks=3)

    def test_loss_of_all_processes_goes_back_to_the_newest_snapshot(self):
        expected = self.expected("plain")
        output = self.train("kept", "15:1+0")
        self.assertEqual(self.result(output, 2), expected)
        begun = [(number, step) for number, step, _ in rounds_of(output, 0, 2)]
        self.assertEqual(begun, [(1, 0), (2, 12)], output)

    def test_ranks_that_do_not_talk_with_a_dead_one_are_released(self):
        output = self.train("blocked", "7:1", "15:1", ranks=4)
        self.result(output, 4)
        for rank in (0, 2, 3):  # They keep their processes.
            rounds = rounds_of(output, rank, 4)
            self.assertEqual([number for number, _, _ in rounds], [1, 2, 3], output)
            self.assertEqual(len({pid for _, _, pid in rounds}), 1, output)


class MoreCases(Cases):
    """Cases that an old release has with one back end only."""

    deaths = DEATHS

    def test_process_that_loads_data_is_started_again(self):
        self.expect_no_loss("loader", "7:1", "17:1")

    @needs_new_torch
    def test_accumulated_16_bit_gradients_and_scale_survive(self):
        self.expect_no_loss("amp", "6:1", "13:1", "20:1")

    @needs_new_torch
    def test_compiled_module_survives(self):
        self.expect_no_loss("compile", "7:1", "17:1")

    def test_hanging_rank_is_ended_and_the_result_is_the_same(self):
        expected = self.expected("plain")
        output = self.train("hang", flags=["--hang-floor=3", "--hang-factor=1"])
        self.assertEqual(self.result(output, 2), expected)
        # Without hooks of the group, rank 0, which waits in it, looks as if it worked.
        ranks = "1" if self.tells_collectives else "[01]"
        self.assertRegex(output, f"killing rank {ranks} because the round hangs")

    def test_deaths_leave_no_descriptors_threads_or_memory(self):
        kills = [f"{4 * number}:1" for number in range(1, self.deaths + 1)]
        self.expect_no_growth(self.train("many", *kills), self.deaths)

    def test_error_of_the_program_ends_the_job_with_its_traceback(self):
        code, output = self.run_training("bug", flags=["--max-restarts=0"])
        self.assertEqual(code, 1, output)
        self.assertIn("Traceback", output)
        self.assertIn("RuntimeError: a bug of the program", output)
        self.assertNotIn("round 2 of rank", output)


@needs_torch
class OverRegroup(MoreCases, TrainingTest):
    words = ("regroup",)

    def test_result_does_not_depend_on_kills_over_tcp(self):
        self.expect_no_loss("plain", "7:1", "17:2", ranks=3, REGROUP_CPU_TRANSPORT="tcp")


@needs_torch
class OverGloo(MoreCases if new_torch else Cases, TrainingTest):
    words = ("gloo",)
    tells_collectives = support.new_torch
    deaths = 8  # By hand, 200 were as good.

    def test_ranks_that_wait_for_the_connection_of_a_dead_one_are_released(self):
        for way in ("forming", "beginning"):
            folder = tempfile.TemporaryDirectory()
            self.addCleanup(folder.cleanup)
            self.folder = folder.name
            output = self.train(way, ranks=3, flags=["--max-restarts=1"])
            self.result(output, 3)
            begun = re.findall(r"round (\d) of rank (\d) of 3 from step 0,", output)
            self.assertEqual(sorted(begun), [("2", "0"), ("2", "1"), ("2", "2")], output)


@needs_torch
class Connections(unittest.TestCase):
    def test_message_that_gloo_reads_no_more_arrives_before_the_end(self):
        from regroup.torch import gloo
        with socket.create_server(("127.0.0.1", 0)) as server:
            sender = socket.create_connection(server.getsockname())
            receiver, _ = server.accept()
        failures = []

        def send():
            try:
                sender.sendall(bytes(1 << 26))  # More than the kernel keeps.
            except OSError as failure:
                failures.append(failure)

        with sender, receiver, select.epoll() as epoll:
            epoll.register(receiver, select.EPOLLIN)
            thread = threading.Thread(target=send, daemon=True)
            thread.start()
            gloo._shut_down([gloo._device(epoll.fileno())])
            thread.join(60)
            self.assertFalse(thread.is_alive())
            self.assertEqual(failures, [])
            self.assertRaises(OSError, sender.sendall, bytes(1 << 26))  # It has ended.


@needs_torch
class Releases(unittest.TestCase):
    def test_rank_leaves_a_call_that_nothing_ends(self):
        from regroup.torch.releasable import ReleasableCalls
        calls, end = ReleasableCalls("endless"), threading.Event()
        self.addCleanup(end.set)
        threading.Timer(0.05, calls.release).start()
        self.assertRaises(regroup.Fenced, calls.make, end.wait)
        self.assertRaises(regroup.Fenced, calls.make, lambda: None)

    @needs_new_torch
    def test_groups_are_aborted_at_the_same_time(self):
        from regroup.torch import rounds
        both = threading.Barrier(2, timeout=30)  # An abort waits for that of another group.
        groups = {unittest.mock.Mock(abort=both.wait): str(number) for number in range(2)}
        with unittest.mock.patch.dict(torch.distributed.distributed_c10d._world.pg_names, groups):
            rounds._Aborts()()
        self.assertFalse(both.broken)


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

    @support.needs_new_torch
    def test_nccl_is_kept_from_ending_the_process(self):
        from regroup.torch.rounds import Rounds
        launched = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}  # By the launcher.
        with unittest.mock.patch.dict(os.environ, launched):
            Rounds("cpu:gloo,cuda:nccl")
            self.assertEqual(os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"], "0")
        with unittest.mock.patch.dict(os.environ, TORCH_DISTRIBUTED_DEBUG="DETAIL"):
            self.assertIn("unset them", self.refusal(torch.nn.Linear(1, 1), backend="nccl"))

    def test_device_without_a_back_end_is_refused(self):
        model = torch.nn.Linear(1, 1)
        model.register_buffer("far", torch.empty(1, device="meta"))
        self.assertIn("far is on meta", self.refusal(model))


class NodeCases(WorldChanges):
    back_end = None

    def node(self, number, workers):
        return Node(self, number, workers, "torch_nodes_job.py", self.back_end, self.folder,
                    flags=[f"--preload={PRELOADED}"])


@needs_torch
class NodesOverRegroup(NodeCases, NodesTest):
    back_end = "regroup"


@needs_torch
class NodesOverGloo(NodeCases, NodesTest):
    back_end = "gloo"


main()
