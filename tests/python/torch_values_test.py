# SPDX-License-Identifier: Apache-2.0
"""States as bytes: regroup.torch.values."""
import collections
import enum
import struct
import unittest
import warnings

import regroup
from support import main, needs_torch, numpy, run_program, torch

if torch:
    from torch.optim import lr_scheduler as schedulers

    from regroup.torch.values import decode, encode

Pair = collections.namedtuple("Pair", "first second")
NAN_BITS = "010203040506f8ff"


class Kind(enum.Enum):
    TUPLE = (1, 2)
    TEXT = "text"


class Flags(enum.Flag):
    ONE = 1
    TWO = 2


#: Warm-up, then steps down: Counters in a list in a dictionary.
WARM_UP = """
import torch
from torch.optim import lr_scheduler as schedulers
from regroup.torch import Elastic
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scheduler = schedulers.SequentialLR(optimizer, [
    schedulers.LinearLR(optimizer, 0.1, total_iters=3),
    schedulers.MultiStepLR(optimizer, [4, 6], 0.1)], [3])
elastic = Elastic(model, optimizer, scheduler, compare_every=1)
for step in elastic.steps(until=12):
    with step:
        optimizer.zero_grad()
        elastic.ddp(torch.randn(4, 4)).sum().backward()
        with step.update():
            optimizer.step()
            scheduler.step()
print("rate %.6f" % optimizer.param_groups[0]["lr"], flush=True)
"""


@needs_torch
class Values(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def expect_same(self, one, other, place="value"):
        self.assertIs(type(one), type(other), place)
        if isinstance(one, torch.Tensor):
            self.assertEqual((one.dtype, one.shape, one.requires_grad),
                             (other.dtype, other.shape, other.requires_grad), place)
            self.assertEqual(encode(one), encode(other), place)
        elif isinstance(one, dict):
            self.assertEqual(list(one), list(other), place)
            for key in one:
                self.expect_same(one[key], other[key], f"{place}[{key!r}]")
        elif isinstance(one, (list, tuple, collections.deque)):
            self.assertEqual(len(one), len(other), place)
            for i, pair in enumerate(zip(one, other)):
                self.expect_same(*pair, f"{place}[{i}]")
        elif isinstance(one, float):
            self.assertEqual(struct.pack("<d", one), struct.pack("<d", other), place)
        else:
            self.assertEqual(one, other, place)

    def carried(self, value):
        """The value on the other side. Its bytes are the same there."""
        data = encode(value)
        result = decode(data)
        self.assertEqual(encode(result), data)
        self.expect_same(value, result)
        return result

    def test_values_keep_their_types_and_bits(self):
        nan, = struct.unpack("<d", bytes.fromhex(NAN_BITS))
        result = self.carried([
            None, True, 1, 2 ** 100, -0.0, float("inf"), 1j, "\ud800\n", b"\0\xff", bytearray(b"x"),
            (1, (2,)), [], {1: 2, (1, None): 3, "x": {}}, collections.OrderedDict(z=1, a=2),
            collections.Counter("aab"), collections.deque([1, 2], 5), {3, "x", (1, 2)},
            frozenset([1]), range(3, 9, 2), ..., torch.float16, torch.device("cpu"),
            torch.Size([1, 2]), Pair(1, [2]), Kind.TUPLE, Kind.TEXT, Flags.ONE | Flags.TWO,
            run_program])
        self.assertEqual(result[15].maxlen, 5)
        self.assertEqual(struct.pack("<d", decode(encode(nan))).hex(), NAN_BITS)
        lists = self.carried(collections.defaultdict(list, x=[1]))
        lists["new"].append(1)

    def test_lists_that_occur_twice_are_one_object(self):
        shared = [1]
        value = {"list": [shared, shared], "map": {"deep": shared}}
        value["self"] = value["list"]
        shared.append(shared)
        data = encode(value)
        result = decode(data)
        self.assertEqual(encode(result), data)
        self.assertIs(result["list"][0], result["map"]["deep"])
        self.assertIs(result["list"][0][1], result["list"][1])
        self.assertIs(result["self"], result["list"])

    def test_tensors_keep_type_bits_layout_and_shared_memory(self):
        whole = torch.arange(10.0)
        bits = torch.tensor([0x7FC00123, -1], dtype=torch.int32)
        value = {"views": [whole[2:5], whole[3:9:2], whole.view(2, 5).t()], "nan": bits.view(
            torch.float32), "none": whole[:0], "scalar": torch.tensor(4, dtype=torch.int64),
            "channels": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
            "half": torch.ones(3, dtype=torch.bfloat16), "truth": torch.tensor([True, False]),
            "parameter": torch.nn.Parameter(torch.ones(2)), "complex": torch.tensor([1 + 2j]),
            "odd": torch.empty_strided((1,), (2,)).fill_(3), "gaps": torch.arange(8)[::2]}
        value["again"] = value["views"][0]
        result = self.carried(value)
        self.assertEqual(result["nan"].view(torch.int32).tolist(), bits.tolist())
        self.assertEqual(result["channels"].stride(), value["channels"].stride())
        result["views"][0][1] = 77  # Element 3 of the whole.
        self.assertEqual(result["views"][1][0], 77)
        self.assertEqual(result["views"][2][3, 0], 77)
        self.assertIs(result["again"], result["views"][0])
        conjugate = torch.tensor([1 + 2j]).conj()
        self.assertEqual(decode(encode(conjugate)).tolist(), [1 - 2j])

    @unittest.skipUnless(numpy, "there is no NumPy")
    def test_arrays_and_scalars_of_numpy_are_carried(self):
        self.carried([numpy.float64(1.5), numpy.bool_(True), numpy.int8(3)])
        array = numpy.arange(6, dtype=numpy.int16).reshape(2, 3)
        first, second = decode(encode([array, numpy.array(3.0)]))
        self.assertEqual((first.dtype, first.tolist()), (array.dtype, array.tolist()))
        columns, = decode(encode([numpy.asfortranarray(array)]))
        self.assertEqual(columns.tolist(), array.tolist())
        self.assertTrue(columns.flags.f_contiguous)
        with self.assertRaisesRegex(regroup.Error, "shares its memory"):
            encode({"all": array, "row": array[1]})
        self.assertEqual((second.shape, float(second)), ((), 3.0))

    def test_states_of_all_optimizers_are_carried(self):
        for name in dir(torch.optim):
            kind = getattr(torch.optim, name)
            if (not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer)
                    or name in ("Optimizer", "SparseAdam")):
                continue

            def made(rate):
                model = torch.nn.Linear(4, 3)
                return model, kind([model.weight], lr=rate)

            model, optimizer = made(0.1)

            def loss():
                optimizer.zero_grad()
                value = model(torch.ones(2, 4)).square().sum()
                value.backward()
                return value

            optimizer.step(loss)
            optimizer.step(loss)
            with self.subTest(name):
                state = self.carried(optimizer.state_dict())
                _, other = made(0.2)
                other.load_state_dict(state)
                self.assertEqual(encode(other.state_dict()), encode(optimizer.state_dict()))

    def test_states_of_all_schedulers_are_carried(self):
        def sequential(optimizer):
            return schedulers.SequentialLR(optimizer, [
                schedulers.LinearLR(optimizer, 0.1, total_iters=2),
                schedulers.MultiStepLR(optimizer, [10, 20], 0.1)], [2])

        makers = {
            "lambda": lambda o: schedulers.LambdaLR(o, lambda epoch: 0.9 ** epoch),
            "factor": lambda o: schedulers.MultiplicativeLR(o, lambda epoch: 0.9),
            "step": lambda o: schedulers.StepLR(o, 3),
            "steps": lambda o: schedulers.MultiStepLR(o, [2, 2, 5]),
            "exponential": lambda o: schedulers.ExponentialLR(o, 0.9),
            "cosine": lambda o: schedulers.CosineAnnealingLR(o, 5),
            "plateau": lambda o: schedulers.ReduceLROnPlateau(o),
            "cyclic": lambda o: schedulers.CyclicLR(o, 0.1, 0.2, cycle_momentum=False),
            "one cycle": lambda o: schedulers.OneCycleLR(o, 0.1, 10, cycle_momentum=False),
            "warm": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 3),
            "sequence": sequential,
            "averages": lambda o: torch.optim.swa_utils.SWALR(o, 0.05),
        }
        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 3):
            del makers["cyclic"], makers["one cycle"]  # Their states hold methods.
        for name, make in makers.items():
            def made():
                return make(torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), 0.1))

            scheduler = made()
            for _ in range(3):
                scheduler.step(*([1.0] if name == "plateau" else []))
            with self.subTest(name):
                state = self.carried(scheduler.state_dict())
                other = made()
                other.load_state_dict(state)
                self.assertEqual(encode(other.state_dict()), encode(scheduler.state_dict()))

    def test_state_of_a_module_keeps_its_versions(self):
        module = torch.nn.BatchNorm1d(3)
        state = self.carried(module.state_dict())
        self.assertEqual(state._metadata, module.state_dict()._metadata)

    def test_state_of_an_unknown_type_is_refused_with_its_place(self):
        odd = type("Odd", (dict,), {})()
        for value, text in (
                (object(), "is of type object"), (odd, "is of type Odd"), (len, "builtin_function"),
                (lambda: 1, "does not have under this name"),
                (collections.defaultdict(lambda: 1), "defaultdict with the function"),
                ({torch.ones(1)}, "can be changed"), (torch.ones(2).to_sparse(), "sparse")):
            with self.subTest(text), self.assertRaises(regroup.InvalidArgument) as caught:
                encode({"deep": [1, {"odd": value}]}, "the state of x")
            self.assertIn("the state of x['deep'][1]['odd']", str(caught.exception))
            self.assertIn(text, str(caught.exception))
        deep = []
        for _ in range(5000):
            deep = [deep]
        with self.assertRaises(regroup.InvalidArgument):
            encode(deep)

    def test_warm_up_before_steps_goes_on_with_the_state_of_rank_0(self):
        code, output = run_program(WARM_UP)
        self.assertEqual(code, 0, output)
        self.assertEqual(output.count("rate 0.001000"), 2, output)


main()
