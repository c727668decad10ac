# SPDX-License-Identifier: Apache-2.0
"""The back end "regroup" of torch.distributed: torch_backend_job.py."""
import os
import subprocess
import sys
import unittest

import regroup
from support import (DEADLINE_S, HERE, FolderTest, main, needs_new_torch, needs_torch, run_job,
                     torch)

if torch:
    import torch.distributed as dist

    import regroup.torch
    from regroup.torch.state import refuse_divided


@needs_torch
class TorchBackend(FolderTest):
    def run_way(self, backend, way, ranks=3, flags=()):
        return run_job(self.folder, "torch_backend_job.py", backend, way, ranks=ranks,
                       deadline_s=120, flags=["--preload=torch,regroup.torch", *flags])

    def test_every_operation_works(self):
        code, output = self.run_way("regroup", "operations")
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("done "), 3, output)

    def test_one_rank_alone_can_do_the_same(self):
        code, output = self.run_way("regroup", "operations", ranks=1)
        self.assertEqual(code, 0, output)

    @needs_new_torch
    def test_back_end_of_the_cpu_works_beside_that_of_another_device(self):
        code, output = self.run_way("cpu:regroup,cuda:gloo", "operations", ranks=2)
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("done "), 2, output)

    @needs_new_torch
    def test_entry_point_of_the_package_makes_the_back_end_known(self):
        import tomllib
        with open(os.path.join(HERE, "../../pyproject.toml"), "rb") as file:
            groups = tomllib.load(file)["project"]["entry-points"]
        information = os.path.join(self.folder, "regroup-0.dist-info")
        os.mkdir(information)
        with open(os.path.join(information, "METADATA"), "w", encoding="utf-8") as file:
            file.write("Metadata-Version: 2.1\nName: regroup\nVersion: 0\n")
        with open(os.path.join(information, "entry_points.txt"), "w", encoding="utf-8") as file:
            for group, points in groups.items():
                file.write(f"[{group}]\n")
                file.writelines(f"{name} = {value}\n" for name, value in points.items())
        program = ("import torch.distributed as dist; dist.init_process_group('regroup', "
                   "store=dist.HashStore(), rank=0, world_size=1); print(dist.get_backend())")
        path = os.pathsep.join([self.folder, os.environ.get("PYTHONPATH", "")])
        output = subprocess.run([sys.executable, "-c", program], env={**os.environ,
                                "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True,
                                timeout=DEADLINE_S, check=True).stdout
        self.assertEqual(output.strip(), "regroup")

    def test_death_of_a_peer_leaves_the_backward_pass_as_an_error_of_regroup(self):
        _, output = self.run_way("regroup", "death", flags=["--shutdown-timeout=20"])
        for rank in (0, 2):
            self.assertRegex(output, f"rank {rank} sees (Disconnected|Fenced)")
            self.assertIn(f"rank {rank} sees it again", output)


@needs_torch
class Refusals(unittest.TestCase):
    def refused(self, action):
        with self.assertRaises(regroup.InvalidArgument) as caught:
            action()
        return str(caught.exception)

    def test_store_without_a_server_is_refused(self):
        with self.assertRaises(Exception) as caught:
            dist.init_process_group("regroup", store=dist.HashStore(), rank=0, world_size=2)
        self.assertIn("TCPStore", str(caught.exception))

    def test_wrapper_of_one_round_is_refused(self):
        dist.init_process_group("regroup", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        self.assertIn("model.module", self.refused(lambda: refuse_divided(ddp)))
        self.assertIn("remove init_process_group", self.refused(
            lambda: regroup.torch.Elastic(torch.nn.Linear(2, 2))))

    @needs_new_torch
    def test_models_of_which_each_rank_holds_a_part_are_refused(self):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Replicate, distribute_tensor
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        mesh = init_device_mesh("cpu", (1,))
        loop = regroup.ElasticLoop()
        self.addCleanup(loop.close)
        sharded = fully_shard(torch.nn.Linear(2, 2), mesh=mesh)
        self.assertIn("torch.distributed.checkpoint",
                      self.refused(lambda: regroup.torch.register_state(loop, sharded)))
        module = torch.nn.Linear(2, 2)
        module.weight = torch.nn.Parameter(distribute_tensor(module.weight, mesh, [Replicate()]))
        self.assertIn("weight is a DTensor",
                      self.refused(lambda: regroup.torch.register_state(loop, module)))

    def test_part_without_a_state_is_refused(self):
        loop = regroup.ElasticLoop()
        self.addCleanup(loop.close)
        self.assertIn("save= and load=", self.refused(lambda: regroup.torch.register_state(
            loop, torch.nn.Linear(2, 2), None, object())))


main()
