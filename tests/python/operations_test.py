# SPDX-License-Identifier: Apache-2.0
"""Every operation, with every kind of buffer that this interpreter has."""
import array
import gc
import unittest
import weakref

import regroup
from support import main, needs_numpy, needs_torch, numpy, run_ranks, torch

RANKS = 3
ARRAY_CODES = "fdiqBbIQ"
NUMPY_TYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "uint32",
               "uint64")
TORCH_TYPES = ("bfloat16", "float16", "float32", "float64", "int8", "int32", "int64", "uint8")


def makers():
    """(name, function from a list to a buffer) for each kind and type."""
    for code in ARRAY_CODES:
        yield f"array {code}", lambda values, code=code: array.array(code, values)
    yield "bytearray", bytearray
    if numpy:
        for name in NUMPY_TYPES:
            yield f"numpy {name}", lambda values, name=name: numpy.array(values, name)
    if torch:
        for name in TORCH_TYPES:
            yield f"torch {name}", (
                lambda values, name=name: torch.tensor(values, dtype=getattr(torch, name)))


def listed(buffer):
    return [int(value) for value in buffer]


def carry_out_all(expect, group, make):
    rank, size = group.rank, group.world_size
    everyone = list(range(1, size + 1))

    values = make([rank + 1, 2])
    group.all_reduce(values)
    expect(listed(values), [sum(everyone), 2 * size])
    output = make([0, 0])
    group.all_reduce(make([rank + 1, 2]), "max", output=output)
    expect(listed(output), [size, 2])
    values = make([rank + 1])
    group.reduce(values, root=1, op="product")
    if rank == 1:
        expect(listed(values), [6])
    output = make([0])
    group.reduce_scatter(make([1, 2, 3]), output)
    expect(listed(output), [size * (rank + 1)])
    values = make([7 if rank == 2 else 0])
    group.broadcast(values, root=2)
    expect(listed(values), [7])
    output = make([0] * size)
    group.all_gather(make([rank + 1]), output)
    expect(listed(output), everyone)
    output = make([0] * size) if rank == 1 else None
    group.gather(make([rank + 1]), output, root=1)
    if rank == 1:
        expect(listed(output), everyone)
    output = make([0])
    group.scatter(make(everyone) if rank == 0 else None, output)
    expect(listed(output), [rank + 1])
    output = make([0] * size)
    group.all_to_all(make([10 * rank + peer for peer in range(size)]), output)
    expect(listed(output), [10 * peer + rank for peer in range(size)])
    group.barrier()

    following, previous = (rank + 1) % size, (rank - 1) % size
    received = make([0])
    with group.batch():
        group.send(make([rank + 1]), following, tag=4)
        group.recv(received, previous, tag=4)
    expect(listed(received), [previous + 1])


class Operations(unittest.TestCase):
    def test_every_operation_has_its_result_in_every_type(self):
        for name, make in makers():
            with self.subTest(name):
                run_ranks(RANKS, lambda group, make=make: carry_out_all(self.assertEqual, group,
                                                                        make))

    def test_operators(self):
        def body(group):
            results = {}
            for op in ("sum", "product", "min", "max", "bit_and", "bit_or", "bit_xor"):
                values = array.array("i", [group.rank + 4])
                group.all_reduce(values, op)
                results[op] = values[0]
            self.assertEqual(results, {"sum": 15, "product": 120, "min": 4, "max": 6, "bit_and": 4,
                                       "bit_or": 7, "bit_xor": 7})
            mean = array.array("d", [group.rank])
            group.all_reduce(mean, "avg")
            self.assertEqual(mean[0], 1.0)

        run_ranks(RANKS, body)

    def test_rows_of_different_lengths(self):
        counts = [1, 0, 2]

        def body(group):
            rank = group.rank
            output = array.array("i", [0] * 3)
            group.all_gather(array.array("i", [rank] * counts[rank]), output, counts=counts)
            self.assertEqual(list(output), [0, 2, 2])
            part = array.array("i", [0] * counts[rank])
            group.reduce_scatter(array.array("i", [1, 2, 3]), part, counts=counts)
            self.assertEqual(list(part), [[3], [], [6, 9]][rank])
            received = array.array("i", [-1] * (rank * 3))
            group.all_to_all(array.array("i", [rank] * 3), received, input_counts=[0, 1, 2],
                             output_counts=[rank] * 3)
            self.assertEqual(list(received), [0] * rank + [1] * rank + [2] * rank)

        run_ranks(RANKS, body)

    def test_work_completes_later(self):
        def body(group):
            values = [array.array("d", [group.rank, step]) for step in range(20)]
            works = [group.all_reduce(value, async_op=True) for value in values]
            for step, work in enumerate(works):
                work.wait()
                work.wait()
                self.assertTrue(work.test())
                self.assertEqual(list(values[step]), [3, 3 * step])

        run_ranks(RANKS, body)

    def test_dropped_work_keeps_its_buffer_until_it_is_complete(self):
        class Buffer(bytearray):
            pass

        def body(group):
            if group.rank == 0:
                buffer = Buffer(4)
                seen = weakref.ref(buffer)
                group.recv(buffer, 1, async_op=True)
                del buffer
                gc.collect()
                self.assertIsNotNone(seen(), "the operation is in flight")
                group.send(b"go", 1)
                group.recv(bytearray(1), 1)  # Comes behind the first message.
                group.barrier()
                self.assertIsNone(seen())
            else:
                group.recv(bytearray(2), 0)
                group.send(b"data", 0)
                group.send(b"x", 0)
                group.barrier()

        run_ranks(2, body)

    def test_group_that_is_dropped_with_its_work_ends_the_operation(self):
        class Buffer(bytearray):
            pass

        def body(group):
            buffer = Buffer(4)
            seen = weakref.ref(buffer)
            pair = group.new_group([0, 1])
            if group.rank == 0:
                pair.recv(buffer, 1, async_op=True)
            del pair, buffer
            gc.collect()
            self.assertIsNone(seen())
            group.barrier()

        run_ranks(2, body)

    def test_group_with_dropped_work_can_be_closed(self):
        def body(group):
            if group.rank == 0:
                group.recv(bytearray(4), 1, async_op=True)
                group.close()
            else:
                with self.assertRaises(regroup.Error):
                    group.recv(bytearray(4), 0)

        run_ranks(2, body)

    def test_sub_groups(self):
        def body(group):
            pair = group.new_group([0, 2], name="pair")
            values = array.array("i", [group.rank])
            if group.rank == 1:
                with self.assertRaisesRegex(regroup.InvalidArgument, "not"):
                    pair.all_reduce(values)
            else:
                pair.all_reduce(values)
                self.assertEqual((values[0], pair.world_size), (2, 2))

        run_ranks(RANKS, body)

    def test_failed_block_of_a_batch_aborts_the_group(self):
        def body(group):
            with self.assertRaisesRegex(KeyError, "mine"):
                with group.batch():
                    group.barrier()
                    raise KeyError("mine")
            with self.assertRaises(regroup.Error):
                group.barrier()

        run_ranks(2, body)

    def test_memory_of_the_group(self):
        def body(group):
            memory = group.allocate(16)
            values = memory.cast("i")
            values[0] = group.rank + 1
            group.all_reduce(values)
            self.assertEqual(values.tolist(), [6, 0, 0, 0])
            if numpy:
                shared = numpy.frombuffer(memory, "int32")
                shared[1] = 5
                self.assertEqual(values[1], 5)
            group.close()
            values[3] = 1  # The memory outlives the group.

        run_ranks(RANKS, body)

    @needs_numpy
    def test_arrays_of_several_dimensions(self):
        def body(group):
            values = numpy.full((2, 3), group.rank + 1.0)
            group.all_reduce(values)
            self.assertEqual(values.tolist(), [[6.0] * 3] * 2)

        run_ranks(RANKS, body)

    @needs_torch
    def test_parameters_of_pytorch_are_reduced_in_place(self):
        def body(group):
            layer = torch.nn.Linear(2, 1)
            with torch.no_grad():
                layer.weight.fill_(group.rank)
            group.all_reduce(layer.weight, "avg")
            self.assertEqual(layer.weight.tolist(), [[1.0, 1.0]])

        run_ranks(RANKS, body)


class Failures(unittest.TestCase):
    def test_wrong_arguments_name_the_fault(self):
        def body(group):
            values = array.array("f", [1])
            calls = (
                (lambda: group.all_reduce(values, "mean"), "op is 'mean'.*avg"),
                (lambda: group.all_reduce([1.0]), "of type list.*NumPy"),
                (lambda: group.broadcast(values, root=9), "root"),
                (lambda: group.broadcast(values, root=-1), "root is -1"),
                (lambda: group.send(values, 5), "5"),
                (lambda: group.all_gather(values, values, counts=[1, 2]), "counts has 2"),
                (lambda: group.all_reduce(values, output=array.array("d", [1])), "float64"),
                (lambda: group.barrier(timeout=-1), "timeout is -1"),
                (lambda: regroup.ProcessGroup.create("smoke"), "smoke"),
            )
            for call, text in calls:
                with self.assertRaisesRegex(ValueError, text):
                    call()
            group.barrier()

        run_ranks(1, body)

    def test_deadline_of_an_operation(self):
        def body(group):
            if group.rank == 0:
                with self.assertRaises(TimeoutError):
                    group.recv(bytearray(1), 1, timeout=0.01)
            else:
                with self.assertRaises(regroup.Error):
                    group.recv(bytearray(1), 0)

        run_ranks(2, body)

    def test_rank_that_is_gone(self):
        def body(group):
            if group.rank == 0:
                with self.assertRaisesRegex(ConnectionError, "rank 1"):
                    group.recv(bytearray(1), 1)

        run_ranks(2, body)

    def test_aborted_group(self):
        def body(group):
            if group.rank == 0:
                work = group.recv(bytearray(1), 1, async_op=True)
                group.abort("that is enough")
                for call in (work.wait, group.barrier):
                    with self.assertRaisesRegex(regroup.Fenced, "that is enough"):
                        call()
            else:
                with self.assertRaisesRegex(regroup.Disconnected, "rank 0.*that is enough"):
                    group.recv(bytearray(1), 0)

        run_ranks(2, body)


main()
