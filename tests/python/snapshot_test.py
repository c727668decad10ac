# SPDX-License-Identifier: Apache-2.0
"""Snapshots without an agent: ranks are threads with a store and a folder."""
import array
import glob
import os
import threading

import regroup
from support import DEADLINE_S, FolderTest, main, needs_numpy, needs_torch, numpy, torch


class Snapshot(FolderTest):
    def run_ranks(self, count, body):
        """Calls body(rank, snapshot) on so many threads."""
        store = regroup.Store.local(timeout=DEADLINE_S)
        failures = []

        def work(rank):
            try:
                context = regroup.Context.create(rank, count)
                context.use_store(store)
                snapshot = regroup.Snapshot(context, folder=self.folder)
                body(rank, snapshot)
                snapshot.close()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        if failures:
            raise failures[0]

    def test_state_is_loaded_by_the_next_start(self):
        def save(rank, snapshot):
            values, epoch = array.array("d", [0] * 10), [0]
            snapshot.add("values", values)
            snapshot.add_state("epoch", lambda: b"epoch %d of rank %d" % (epoch[0], rank), id)
            self.assertIsNone(snapshot.load())
            for step in (5, 6):
                values[3] = 10 * step + rank
                epoch[0] = step
                self.assertTrue(snapshot.save(step))
            self.assertTrue(snapshot.wait_until_whole(DEADLINE_S))
            self.assertEqual(snapshot.whole_step, 6)

        def load(rank, snapshot):
            values, epochs = array.array("d", [0] * 10), []
            snapshot.add("values", values)
            snapshot.add_state("epoch", bytes, epochs.append)
            self.assertEqual(snapshot.load(), 6)
            self.assertEqual(values[3], 60 + rank)
            self.assertEqual(epochs, [b"epoch 6 of rank %d" % rank])

        self.run_ranks(2, save)
        self.run_ranks(2, load)

    @needs_numpy
    def test_pieces_are_loaded_by_another_number_of_ranks(self):
        matrix = numpy.arange(60, dtype=numpy.float32).reshape(6, 10)

        def save(rank, snapshot):
            rows = numpy.ascontiguousarray(matrix[2 * rank:2 * rank + 2])
            snapshot.add("matrix", rows, offset=(2 * rank, 0), global_shape=(6, 10))
            self.assertTrue(snapshot.save(1))
            self.assertTrue(snapshot.wait_until_whole(DEADLINE_S))

        def load(rank, snapshot):
            columns = numpy.zeros((6, 5), dtype=numpy.float32)
            snapshot.add("matrix", columns, offset=(0, 5 * rank), global_shape=(6, 10))
            self.assertEqual(snapshot.load(), 1)
            self.assertTrue((columns == matrix[:, 5 * rank:5 * rank + 5]).all())
            self.assertEqual(snapshot.open(), 1)
            part = numpy.zeros((3, 2), dtype=numpy.float32)
            snapshot.read("matrix", part, offset=(1, 7), global_shape=(6, 10))
            self.assertTrue((part == matrix[1:4, 7:9]).all())

        self.run_ranks(3, save)
        self.run_ranks(2, load)

    @needs_torch
    def test_tensors_of_pytorch(self):
        def save(rank, snapshot):
            weights = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
            snapshot.add("weights", weights)
            self.assertTrue(snapshot.save(1))

        def load(rank, snapshot):
            weights = torch.zeros(2, 3, dtype=torch.bfloat16)
            snapshot.add("weights", weights)
            self.assertEqual(snapshot.load(), 1)
            self.assertEqual(weights.flatten().tolist(), [0, 1, 2, 3, 4, 5])

        self.run_ranks(1, save)
        self.run_ranks(1, load)

    def test_damaged_file_is_not_used(self):
        def save(rank, snapshot):
            snapshot.add("values", array.array("i", [7] * 1000))
            self.assertTrue(snapshot.save(1))

        def load(rank, snapshot):
            values = array.array("i", [0] * 1000)
            snapshot.add("values", values)
            self.assertIsNone(snapshot.load())
            self.assertEqual(values[0], 0)

        self.run_ranks(1, save)
        file, = glob.glob(os.path.join(self.folder, "state", "*", "*.safetensors"))
        with open(file, "r+b") as stream:
            stream.seek(-1, os.SEEK_END)
            stream.write(b"\1")
        self.run_ranks(1, load)

    def test_wrong_arguments_are_refused(self):
        snapshot = regroup.Snapshot(regroup.Context.create(0, 1))
        values = array.array("f", [0] * 6)
        snapshot.add("values", values)
        with self.assertRaisesRegex(regroup.InvalidArgument, "twice"):
            snapshot.add("values", values)
        with self.assertRaisesRegex(regroup.InvalidArgument, "offset has 2"):
            snapshot.add("other", values, offset=(0, 0), global_shape=(6, 1))
        with self.assertRaisesRegex(regroup.InvalidArgument, "read-only"):
            snapshot.add("bytes", b"abc")
        snapshot.add_state("state", bytes, id)
        with self.assertRaisesRegex(regroup.InvalidArgument, "twice"):
            snapshot.add_state("state", bytes, id)
        snapshot.close()


main()
