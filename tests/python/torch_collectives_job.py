# SPDX-License-Identifier: Apache-2.0
"""Every collective of torch.distributed with the back end "regroup" beside gloo, for
torch_collectives_test.py. Each is done with both on equal tensors, in every form, with every type,
with odd sizes and layouts, in the whole group and in a part of it; the results must be equal.

Prints "compared N" on each rank.
"""
import datetime
import faulthandler
import time
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

import regroup
import regroup.torch

faulthandler.enable()
faulthandler.dump_traceback_later(280, exit=True)
warnings.simplefilter("ignore")
torch.set_num_threads(1)
dist.init_process_group("regroup")
RANK = dist.get_rank()
CPU = torch.device("cpu")

#: Gloo has no operations on the types of the second column: it does the same with the third.
TYPES = ((torch.float32, None), (torch.float64, None), (torch.float16, None),
         (torch.bfloat16, torch.float32), (torch.uint8, None), (torch.int8, None),
         (torch.int32, None), (torch.int64, None), (torch.bool, torch.uint8))
#: The library only moves these.
MOVED = ((torch.int16, torch.int32), (torch.complex64, torch.float32), (torch.uint16, torch.int32),
         (torch.float8_e4m3fn, torch.float32))
SHAPES = ((), (0,), (1,), (7,), (3, 5), (2, 1, 513))
LAYOUTS = ("plain", "transposed", "strided", "offset")


def laid_out(tensor, layout):
    """Equal elements, elsewhere in memory."""
    if layout == "transposed" and tensor.dim() > 1:
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "strided" and tensor.dim() > 0:
        wide = torch.zeros(*tensor.shape[:-1], tensor.shape[-1] * 2, dtype=tensor.dtype)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "offset":
        long = torch.zeros(tensor.numel() + 3, dtype=tensor.dtype)
        long[3:] = tensor.reshape(-1)
        return long[3:].view(tensor.shape)
    return tensor


class Case:
    """Tensors, and how operations are called, of one case on one back end."""

    def __init__(self, group, form, dtype, stand_in, shape, layout):
        self.group, self.form, self.dtype = group, form, dtype
        self.stand_in = stand_in  # Of gloo.
        self.shape, self.layout = shape, layout
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.ranks = dist.get_process_group_ranks(group)

    def given(self, key=0, shape=None, like_of=None):
        """Small whole numbers, whose sums are exact in every type."""
        shape = self.shape if shape is None else shape
        count = torch.Size(shape).numel()
        number = (RANK if like_of is None else like_of) + 3 * key
        values = (torch.arange(count) * 5 + number) % 4
        if self.dtype == torch.bool:
            values = values > 2
        return self.tensor(values.view(shape))

    def tensor(self, values):
        return laid_out(values.to(self.dtype).to(self.stand_in or self.dtype), self.layout)

    def place(self, shape=None):
        return self.tensor(torch.zeros(self.shape if shape is None else shape))

    def rows(self):
        """The shape of the tensors of all ranks, one after the other."""
        first, *rest = self.shape or (1,)
        return (first * self.size, *rest)

    def places(self):
        return [self.place() for _ in self.ranks]

    def do(self, function, *arguments, **options):
        options["group"] = self.group
        if self.form == "blocking":
            function(*arguments, **options)
        elif self.form == "coalesced":
            with _coalescing_manager(self.group, CPU, async_ops=True) as manager:
                function(*arguments, **options)
            manager.wait()
        else:
            work = function(*arguments, **options, async_op=True)
            if self.form == "future" and hasattr(work, "get_future"):
                work = work.get_future()
            work.wait()


def all_reduce(op):
    def run(case):
        tensor = case.given()
        case.do(dist.all_reduce, tensor, op)
        return [tensor]
    return run


def all_reduce_coalesced(case):
    tensors = [case.given(0), case.given(1, (11,)), case.given(2)]
    case.do(dist.all_reduce_coalesced, tensors)
    return tensors


def reduce(case):
    tensor = case.given()
    case.do(dist.reduce, tensor, case.ranks[-1])
    return [tensor] if case.rank == case.size - 1 else []


def reduce_scatter(case):
    output = case.place()
    case.do(dist.reduce_scatter, output, [case.given(i) for i in range(case.size)])
    return [output]


def scattered_sum(function):
    def run(case):
        output = case.place(case.shape or (1,))  # Gloo crashes without a dimension.
        case.do(function, output, case.given(0, case.rows()))
        return [output]
    return run


def broadcast(case):
    tensor = case.given()
    case.do(dist.broadcast, tensor, case.ranks[1])
    return [tensor]


def all_gather(case):
    outputs = case.places()
    case.do(dist.all_gather, outputs, case.given())
    return outputs


def all_gather_coalesced(case):
    outputs = [[case.place(), case.place((4,)), case.place()] for _ in case.ranks]
    case.do(dist.all_gather_coalesced, outputs,
            [case.given(0), case.given(1, (4,)), case.given(2)])
    return [tensor for tensors in outputs for tensor in tensors]


def gathered_by_all(function):
    def run(case):
        output = case.place(case.rows())
        case.do(function, output, case.given(0, case.shape or (1,)))
        return [output]
    return run


def gathered(function):
    """Gloo has no such operation: gather is compared with it."""
    def run(case):
        if case.stand_in is not None or dist.get_backend(case.group) == "gloo":
            outputs = case.places() if case.rank == 1 else None
            dist.gather(case.given(), outputs, case.ranks[1], case.group)
            return [torch.cat([output.reshape(case.shape or (1,)) for output in outputs])
                    ] if outputs else []
        output = case.place(case.rows()) if case.rank == 1 else None
        case.do(function, case.given(0, case.shape or (1,)), output, case.ranks[1])
        return [] if output is None else [output]
    return run


def gather(case):
    outputs = case.places() if case.rank == 1 else None
    case.do(dist.gather, case.given(), outputs, case.ranks[1])
    return outputs or []


def scatter(case):
    output = case.place()
    given = [case.given(i) for i in range(case.size)] if case.rank == 1 else None
    case.do(dist.scatter, output, given, case.ranks[1])
    return [output]


def all_to_all(case):
    outputs = case.places()
    case.do(dist.all_to_all, outputs, [case.given(i) for i in range(case.size)])
    return outputs


def all_to_all_single(case):
    output = case.place(case.rows())
    case.do(dist.all_to_all_single, output, case.given(0, case.rows()))
    return [output]


def all_to_all_uneven(case):
    rows = [i for i in range(case.size)]  # One rank gets nothing.
    output = case.place((sum(rows), 3))
    case.do(dist.all_to_all_single, output, case.given(0, (case.rank * case.size, 3)), rows,
            [case.rank] * case.size)
    return [output]


def messages(case):
    ahead = case.ranks[(case.rank + 1) % case.size]
    behind = case.ranks[(case.rank - 1) % case.size]
    first, second, third = case.place(), case.place(), case.place()
    operations = [dist.P2POp(dist.isend, case.given(), ahead, case.group),
                  dist.P2POp(dist.irecv, first, behind, case.group)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    sent = dist.isend(case.given(1), ahead, case.group, 5)
    dist.irecv(second, behind, case.group, 5).wait()
    sent.wait()
    if case.rank == 0:
        dist.send(case.given(2), ahead, case.group)
    elif case.rank == 1:
        dist.recv(third, behind, case.group)
    return [first, second, third]


def objects(case):
    mine = {"rank": RANK, "long": "x" * (100 * case.rank)}
    gathered = [None] * case.size
    dist.all_gather_object(gathered, mine, case.group)
    at_one = [None] * case.size if case.rank == 1 else None
    dist.gather_object(mine, at_one, case.ranks[1], case.group)
    shared = [mine, RANK]
    dist.broadcast_object_list(shared, case.ranks[1], case.group)
    scattered = [None]
    dist.scatter_object_list(scattered, [{"to": i} for i in range(case.size)], case.ranks[0],
                             case.group)
    received = [None, None]
    if case.rank == 0:
        dist.send_object_list([mine, "more"], case.ranks[1], case.group)
    elif case.rank == 1:
        dist.recv_object_list(received, case.ranks[0], case.group)
    dist.barrier(case.group)
    dist.monitored_barrier(case.group, datetime.timedelta(seconds=60))
    return [gathered, at_one, shared, scattered, received]


def functions(case):
    """The functional collectives, which give new tensors."""
    one, rows = case.given(), case.given(1, case.rows())
    group = case.group
    results = [
        functional.all_reduce(one, "sum", group),
        functional.broadcast(one, 1, group),
        functional.reduce_scatter_tensor(rows, "sum", 0, group),
        functional.all_to_all_single(rows, None, None, group),
        *functional.all_reduce_coalesced([one, rows], "max", group),
        *functional.reduce_scatter_tensor_coalesced([rows, rows], "sum", [0, 0], group),
    ]
    if one.dim() > 0:
        results += [functional.all_gather_tensor(one, 0, group),
                    functional.all_gather_tensor(one, one.dim() - 1, group),
                    *functional.all_gather_into_tensor_coalesced([one, one + one], group)]
    return [functional.wait_tensor(result) for result in results]


REDUCTIONS = {
    **{f"all_reduce.{op}": all_reduce(getattr(dist.ReduceOp, op))
       for op in ("SUM", "PRODUCT", "MIN", "MAX")},
    "all_reduce_coalesced": all_reduce_coalesced, "reduce": reduce,
    "reduce_scatter": reduce_scatter,
    "reduce_scatter_tensor": scattered_sum(dist.reduce_scatter_tensor),
    "reduce_scatter_single": scattered_sum(dist.reduce_scatter_single),
}
MOVEMENTS = {
    "broadcast": broadcast, "all_gather": all_gather, "all_gather_coalesced": all_gather_coalesced,
    "all_gather_into_tensor": gathered_by_all(dist.all_gather_into_tensor),
    "all_gather_single": gathered_by_all(dist.all_gather_single),
    "gather": gather, "gather_single": gathered(dist.gather_single),
    "gather_into_tensor": gathered(dist.gather_into_tensor), "scatter": scatter,
    "all_to_all": all_to_all, "all_to_all_single": all_to_all_single,
    "all_to_all_uneven": all_to_all_uneven,
}
#: Functions of torch.distributed that other parts of this program call.
ELSEWHERE = {
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
    "send_object_list", "recv_object_list", "barrier", "monitored_barrier", "batch_isend_irecv",
    "isend", "irecv", "send", "recv",
}
#: Those that do no collective.
OTHERS = {
    "destroy_process_group", "init_process_group", "new_group", "new_subgroups",
    "new_subgroups_by_enumeration", "get_group_rank", "get_global_rank", "set_timeout",
    "supports_complex", "record_comm", "reduce_op",
    "split_group", "shrink_group",  # For back ends of a device.
}
FORMS = ("blocking", "asynchronous", "future", "coalesced")
compared = 0


def memory(tensor):
    plain = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    return bytes(plain.view(-1).view(torch.uint8).numpy())


def compare(name, run, form, types, shape, layout, groups):
    global compared
    dtype, stand_in = types
    gloo, ours = groups
    # Gloo reduces tensors with gaps wrongly, without a word.
    expected = run(Case(gloo, "blocking", dtype, stand_in, shape, "plain"))
    results = run(Case(ours, form, dtype, None, shape, layout))
    place = (name, form, dtype, shape, layout, f"rank {RANK}")
    assert len(results) == len(expected), place
    for result, wanted in zip(results, expected):
        if isinstance(wanted, torch.Tensor):
            assert result.dtype == dtype and result.shape == wanted.shape, place
            # In a sum of bytes gloo counts; a sum of truth values is true.
            wanted = wanted != 0 if dtype == torch.bool else wanted.to(dtype)
            assert memory(result) == memory(wanted), (*place, result, wanted)
        else:
            assert result == wanted, (*place, result, wanted)
        compared += 1


def check_that_all_are_compared():
    """A collective that a release of PyTorch adds has no row yet."""
    public = {name for name in dist.distributed_c10d.__all__
              if name.islower() and not name.startswith(("get_", "is_", "default_", "group"))}
    rows = {name.partition(".")[0] for name in {**REDUCTIONS, **MOVEMENTS}}
    missing = public - rows - ELSEWHERE - OTHERS
    assert not missing, f"nothing compares {sorted(missing)}"


def compare_table(groups):
    check_that_all_are_compared()
    moved = {**MOVEMENTS, "messages": messages}
    for name, run in {**REDUCTIONS, **moved, "functions": functions}.items():
        forms = FORMS if name not in ("messages", "functions") else ("blocking",)
        for form in forms:
            for types in TYPES + (MOVED if name in moved else ()):
                compare(name, run, form, types, (7,), "plain", groups)
            for shape in SHAPES:
                for layout in LAYOUTS if form in ("blocking", "coalesced") else LAYOUTS[1:2]:
                    compare(name, run, form, TYPES[0], shape, layout, groups)
    compare("objects", objects, "blocking", TYPES[0], (), "plain", groups)
    for op in ("BAND", "BOR", "BXOR"):
        compare(op, all_reduce(getattr(dist.ReduceOp, op)), "blocking", (torch.int64, None), (7,),
                "plain", groups)


def lazy_conjugates(group):
    """Tensors whose elements are not what lies in memory."""
    size = dist.get_world_size(group)
    mine = torch.full((2,), complex(dist.get_rank(group), 1)).conj()
    outputs = [torch.empty(2, dtype=mine.dtype) for _ in range(size)]
    group.allgather([outputs], [mine]).wait()
    assert [output[0].item() for output in outputs] == [complex(i, -1) for i in range(size)]
    negative = mine.imag
    assert negative.is_neg()
    outputs = [torch.empty(2) for _ in range(size)]
    dist.all_gather(outputs, negative, group)
    assert all(output[0] == -1 for output in outputs), outputs


def coalesced_blocks(group):
    """Operations of a block are complete after its wait, although a rank is late."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    for turn in range(3 * size):
        tensors = [torch.full((50000,), float(rank)) for _ in range(2)]
        own, received = torch.full((50000,), float(rank)), torch.zeros(50000)
        if turn % size == rank:
            time.sleep(0.005)
        with _coalescing_manager(group, CPU, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)
        manager.wait()
        assert all(tensor.eq(size * (size - 1) / 2).all() for tensor in tensors), turn
        with _coalescing_manager(group, CPU, async_ops=True) as manager:
            dist.isend(own, group=group, group_dst=(rank + 1) % size)
            dist.irecv(received, group=group, group_src=(rank - 1) % size)
        manager.wait()
        assert received.eq((rank - 1) % size).all(), turn


def waiting_callbacks(group):
    """Callbacks wait for futures: of operations that they start, that were started before, and
    that are behind a message that does not come yet."""
    size = dist.get_world_size(group)
    rank = dist.get_rank(group)

    def again(depth):
        def callback(future):
            work = dist.all_reduce(future.value()[0] + 0, group=group, async_op=True)
            following = work.get_future()
            return (following.then(again(depth - 1)) if depth else following).wait()
        return callback

    time.sleep(0.1 * (rank == 1))
    future = dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future()
    result = future.then(again(3)).wait()
    while isinstance(result, list):
        result = result[0]
    assert result[0] == size ** 5, result

    # The thread that completes the first future must not be the only one.
    for wait in (lambda: later.wait(), lambda: torch.futures.wait_all([later])[0]):
        time.sleep(0.1 * (rank == 0))  # The others are in time before the first is complete.
        first = dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future()
        later = dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future()
        assert first.then(lambda _: wait()[0][0].item()).wait() == size

    ahead, behind = (rank + 1) % size, (rank - 1) % size
    place = torch.zeros(1)
    message = dist.irecv(place, group=group, group_src=behind).get_future()
    dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future().wait()
    dist.send(torch.full((1,), float(rank)), group=group, group_dst=ahead)
    assert message.wait()[0][0] == behind


def many_callbacks(group):
    """Callbacks of several operations start collectives, while the program starts others: each
    gets the operations of the same rank's callbacks, as the hook PowerSGD needs it."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)

    def twice(future):
        first = dist.all_reduce(future.value()[0] + 0, group=group, async_op=True)
        first = first.get_future().wait()[0]
        dist.all_reduce(first, group=group)
        return first

    def add(value):
        return dist.all_reduce(torch.full((100 + value,), 1.0 * value), group=group,
                               async_op=True).get_future().then(twice).then(
                                   lambda future: future.value() + 1)

    for turn in range(5):
        if turn % size == rank:
            time.sleep(0.02)
        futures = [add(value) for value in range(1, 9)]
        for value, future in enumerate(futures, 1):
            result = future.wait()
            assert result.shape == (100 + value,) and result.eq(value * size ** 3 + 1).all()


def late_peers(group):
    """A future of an operation that some rank does not join ends with the group's timeout, in a
    callback, too."""
    def again(future):
        return dist.all_reduce(future.value()[0], group=group, async_op=True).get_future().wait()

    work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
    if dist.get_rank(group) == 0:
        work.wait()
        return
    began = time.monotonic()
    try:
        work.get_future().then(again).wait()
        raise AssertionError("rank 0 was not there")
    except (regroup.Error, RuntimeError):
        assert time.monotonic() - began < 60


def refusals(group):
    size = dist.get_world_size(group)
    for request, text in (
            (lambda: group.allgather([[torch.empty(2)] * size],
                                     [torch.ones(2, dtype=torch.float64)]), "different types"),
            (lambda: group.allgather([[torch.empty(2, dtype=torch.int16)] * size],
                                     [torch.ones(2, dtype=torch.uint16)]), "different types"),
            (lambda: group.allgather_coalesced([[torch.empty(1)]] * size, [torch.ones(1)] * 2),
             "list")):
        try:
            request()
        except regroup.InvalidArgument as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"not refused: {text}")


whole = dist.group.WORLD
compare_table((dist.new_group(backend="gloo"), whole))
pair = [0, dist.get_world_size() - 1]
gloo_pair, own_pair = dist.new_group(pair, backend="gloo"), dist.new_group(pair)
if RANK in pair:
    compare_table((gloo_pair, own_pair))
lazy_conjugates(whole)
coalesced_blocks(whole)
waiting_callbacks(whole)
many_callbacks(whole)
refusals(whole)
dist.barrier()
late_peers(dist.new_group(timeout=datetime.timedelta(seconds=5)))
print(f"compared {compared}", flush=True)
dist.barrier()
dist.destroy_process_group()
