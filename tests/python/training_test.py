# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel, DistributedSampler, Checkpoint, the flight record."""
import array
import json
import os
import unittest

import regroup
from support import FolderTest, main, needs_torch, run_ranks, torch


class DataParallel(unittest.TestCase):
    def test_replicas_start_equal_and_gradients_are_averaged(self):
        def body(group):
            weights = array.array("f", [group.rank] * 3)
            means = array.array("d", [group.rank])
            gradient = array.array("f", [0] * 3)
            ddp = regroup.DistributedDataParallel(group, [(weights, gradient)], [means])
            self.assertEqual((list(weights), list(means)), ([0] * 3, [0]))
            gradient[0] = group.rank + 1
            ddp.gradient_ready(0)
            ddp.finish_step()
            self.assertEqual(list(gradient), [2, 0, 0])
            with ddp.no_sync():
                gradient[1] = group.rank
                ddp.reduce_gradients()
            self.assertEqual(gradient[1], group.rank)
            weights[2] = group.rank
            ddp.broadcast_parameters(root=2)
            self.assertEqual(weights[2], 2)
            ddp.close()

        run_ranks(3, body)

    def test_unused_parameters_and_sums(self):
        def body(group):
            pairs = [(array.array("f", [0]), array.array("f", [1])) for _ in range(2)]
            ddp = regroup.DistributedDataParallel(group, pairs, sum_gradients=True,
                                                  unused_parameters=True)
            ddp.gradient_ready(0)
            ddp.gradient_unused(1)
            ddp.finish_step()
            self.assertEqual([ddp.was_used(0), ddp.was_used(1)], [True, False])
            self.assertEqual(pairs[0][1][0], 2)

        run_ranks(2, body)

    def test_wrong_wire_is_refused(self):
        def body(group):
            with self.assertRaisesRegex(regroup.InvalidArgument, "wire is 'int8'"):
                regroup.DistributedDataParallel(group, [], wire="int8")

        run_ranks(1, body)

    @needs_torch
    def test_module_of_pytorch(self):
        def body(group):
            layer = torch.nn.Linear(2, 1)
            for parameter in layer.parameters():
                parameter.grad = torch.zeros_like(parameter)
            ddp = regroup.DistributedDataParallel(
                group, [(parameter, parameter.grad) for parameter in layer.parameters()])
            layer(torch.full((1, 2), float(group.rank))).sum().backward()
            ddp.reduce_gradients()
            self.assertEqual(layer.weight.grad.tolist(), [[0.5, 0.5]])

        run_ranks(2, body)


class Sampler(unittest.TestCase):
    def test_every_sample_belongs_to_one_rank(self):
        parts = [regroup.DistributedSampler(10, rank, 3) for rank in range(3)]
        for epoch in (0, 1):
            for part in parts:
                part.set_epoch(epoch)
            shards = [part.shard(range(0, 10)) for part in parts]
            self.assertEqual(sorted(sum(shards, [])), list(range(10)))
        self.assertEqual([len(part) for part in parts], [4] * 3)
        self.assertEqual(len(parts[0].indices(global_start=9)), 1)

    def test_order_without_shuffling(self):
        sampler = regroup.DistributedSampler(10, 1, 3, shuffle=False, drop_last=True)
        self.assertEqual(sampler.indices(), [1, 4, 7])
        self.assertEqual(sampler.shard(range(2, 9)), [3, 6])

    def test_positions_beyond_the_data_set_are_refused(self):
        with self.assertRaisesRegex(regroup.InvalidArgument, "10 samples"):
            regroup.DistributedSampler(10, 0, 1).shard(range(5, 11))


class Checkpoint(FolderTest):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.folder, "file.ckpt")

    def test_saved_values_are_loaded(self):
        checkpoint = regroup.Checkpoint()
        checkpoint.set_integer("step", -7)
        checkpoint.set_number("loss", 0.5)
        checkpoint.set_text("words", "ä\0b")
        checkpoint.set_tensor("weights", array.array("d", [1, 2]))
        checkpoint.save(self.path)
        loaded = regroup.Checkpoint.load(self.path)
        weights = array.array("d", [0, 0])
        loaded.get_tensor("weights", weights)
        self.assertEqual((loaded.get_integer("step"), loaded.get_number("loss"),
                          loaded.get_text("words"), list(weights)),
                         (-7, 0.5, "ä\0b".encode(), [1, 2]))
        self.assertIn("step", loaded)
        self.assertNotIn("stop", loaded)
        with self.assertRaisesRegex(regroup.Error, "stop"):
            loaded.get_integer("stop")
        with self.assertRaisesRegex(regroup.Error, "weights"):
            loaded.get_tensor("weights", array.array("d", [0]))

    def test_earlier_checkpoints_stay(self):
        checkpoint = regroup.Checkpoint()
        for _ in range(3):
            checkpoint.save(self.path, previous_count=1)
        self.assertEqual(len([name for name in os.listdir(os.path.dirname(self.path))
                              if not name.endswith(".lock")]), 2)

    def test_missing_file_is_none_and_damaged_file_an_error(self):
        self.assertIsNone(regroup.Checkpoint.load(self.path))
        with open(self.path, "wb") as file:
            file.write(b"no checkpoint")
        with self.assertRaises(regroup.Error):
            regroup.Checkpoint.load(self.path)


class FlightRecord(FolderTest):
    def test_operations_are_recorded(self):
        run_ranks(2, lambda group: group.all_reduce(bytearray(123)))
        record = regroup.flight_record()
        self.assertIn([[123]], [entry["input_sizes"] for entry in record["entries"]])
        path = os.path.join(self.folder, "record.json")
        regroup.save_flight_record(path)
        with open(path, encoding="utf-8") as file:
            self.assertEqual(json.load(file)["version"], record["version"])


main()
