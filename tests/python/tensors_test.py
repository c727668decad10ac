# SPDX-License-Identifier: Apache-2.0
"""Which memory of Python becomes which tensor of C."""
import array
import ctypes
import unittest

import regroup
from regroup.tensors import BYTES, DTYPES, view
from support import main, needs_numpy, needs_torch, numpy, torch


def seen(value, **options):
    """Name of the type, count, and the bytes at the address."""
    tensor, _ = view(value, "x", **options)
    name = list(DTYPES)[tensor.dtype]
    return name, tensor.count, ctypes.string_at(tensor.data, tensor.count * BYTES[tensor.dtype])


class Exporter:
    """Something that has DLPack's protocol alone."""

    def __init__(self, value):
        self.value = value

    def __dlpack__(self):
        return self.value.__dlpack__()


class Tensors(unittest.TestCase):
    def refuse(self, value, text, **options):
        with self.assertRaisesRegex(regroup.InvalidArgument, text):
            view(value, "x", **options)

    def test_buffers(self):
        self.assertEqual(seen(b"abc"), ("uint8", 3, b"abc"))
        self.assertEqual(seen(bytearray(b"abc"), writable=True), ("uint8", 3, b"abc"))
        self.assertEqual(seen(array.array("l", [1])), ("int64", 1, b"\1" + bytes(7)))
        self.assertEqual(seen((ctypes.c_int32 * 2)(3, 4)), ("int32", 2, b"\3\0\0\0\4\0\0\0"))
        self.assertEqual(view(b"", "x")[0].count, 0)

    def test_buffer_stays_in_place_while_it_is_used(self):
        memory = bytearray(8)
        _, keeper = view(memory, "x")
        with self.assertRaises(BufferError):
            memory.extend(b"more")
        del keeper
        memory.extend(b"more")

    def test_refusals_say_what_to_do(self):
        self.refuse(b"abc", "x is read-only.*copy", writable=True)
        self.refuse(memoryview(b"abcd")[::2], "x is not contiguous.*bytearray")
        self.refuse(array.array("h", [1]), "type h.*float32")
        self.refuse(memoryview(b"ab").cast("?"), "view it as uint8")
        self.refuse([1, 2], "x is of type list.*NumPy array")

    @needs_numpy
    def test_arrays(self):
        self.assertEqual(seen(numpy.float16([1]))[:2], ("float16", 1))
        self.assertEqual(seen(numpy.zeros((2, 0)))[:2], ("float64", 0))
        self.assertEqual(seen(numpy.int32([[1, 2]])), ("int32", 2, b"\1\0\0\0\2\0\0\0"))
        values = numpy.arange(6.0).reshape(2, 3)
        self.refuse(values.T, r"numpy.ascontiguousarray\(x\)")
        self.refuse(values[:, 1], "not contiguous")
        self.refuse(values.astype(">f8"), "big-endian.*astype")
        self.refuse(values > 1, "bool.*view it as uint8")
        self.refuse(values.astype("complex64"), "complex64")
        values.flags.writeable = False
        self.refuse(values, "read-only", writable=True)

    @needs_torch
    def test_tensors_of_pytorch(self):
        self.assertEqual(seen(torch.tensor([1, 2], dtype=torch.int8)), ("int8", 2, b"\1\2"))
        self.assertEqual(seen(torch.tensor([1.0], dtype=torch.bfloat16)),
                         ("bfloat16", 1, b"\x80\x3f"))
        self.assertEqual(seen(torch.nn.Parameter(torch.zeros(3)), writable=True)[:2],
                         ("float32", 3))
        self.refuse(torch.zeros(2, 3).T, r"x.contiguous\(\)")
        self.refuse(torch.zeros(2, dtype=torch.bool), "view it as uint8")
        self.refuse(torch.zeros(2, device="meta"), "device meta")

    @needs_numpy
    def test_dlpack(self):
        self.assertEqual(seen(Exporter(numpy.int32([1, 2]))), ("int32", 2, b"\1\0\0\0\2\0\0\0"))
        values = numpy.arange(6.0).reshape(2, 3)
        self.refuse(Exporter(values.T), "not contiguous")
        _, keeper = view(Exporter(values), "x")
        del values
        self.assertIsNotNone(keeper)


main()
