# SPDX-License-Identifier: Apache-2.0
"""Every operation of the back end "regroup" of torch.distributed, for torch_backend_test.py:

    torch_backend_job.py BACKEND WAY

WAY is operations, or death (rank 1 kills itself in a backward pass; the others say what they see).
"""
import datetime
import faulthandler
import os
import signal
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import regroup
import regroup.torch

faulthandler.dump_traceback_later(120, exit=True)
torch.set_num_threads(1)
backend, way = sys.argv[1:]
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
everyone = list(range(size))
new = hasattr(dist, "all_gather_single")  # PyTorch 2.14.


def full(value, count=3, dtype=torch.float32):
    return torch.full((count,), value, dtype=dtype)


def expect(tensor, values):
    assert tensor.tolist() == values, (tensor, values)


def reductions():
    total = sum(everyone)
    for op, wanted in (("SUM", total), ("MAX", size - 1), ("MIN", 0)):
        for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
            tensor = full(rank, dtype=dtype)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, op))
            expect(tensor, [wanted] * 3)
    tensor = full(rank + 1.0)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    expect(tensor, [(total + size) / size] * 3)
    tensor = torch.tensor([rank == 1, True, False])
    dist.all_reduce(tensor)
    expect(tensor, [size > 1, True, False])
    tensor = torch.ones(2, 3).t()  # Not contiguous.
    dist.all_reduce(tensor)
    expect(tensor, [[float(size)] * 2] * 3)
    tensor = full(float(rank))
    dist.reduce(tensor, 1 % size)
    expect(tensor, [float(total if rank == 1 % size else rank)] * 3)
    output = torch.empty(2)
    dist.reduce_scatter(output, [full(float(i), 2) for i in everyone])
    expect(output, [float(rank * size)] * 2)
    dist.reduce_scatter_tensor(output, torch.arange(2.0 * size))
    expect(output, [2.0 * rank * size, (2.0 * rank + 1) * size])


def movements():
    for dtype in (torch.float32, torch.int16, torch.bool, torch.complex64):
        tensor = full(rank, dtype=dtype)
        dist.broadcast(tensor, 1 % size)
        expect(tensor, full(1 % size, dtype=dtype).tolist())
    outputs = [torch.empty(3) for _ in everyone]
    dist.all_gather(outputs, full(float(rank)))
    assert [output[0] for output in outputs] == everyone
    output = torch.empty(size, 3)
    dist.all_gather_into_tensor(output, full(float(rank)))
    expect(output[:, 0], [float(i) for i in everyone])
    outputs = [torch.empty(2) for _ in everyone] if rank == 0 else None
    dist.gather(full(float(rank), 2), outputs, 0)
    assert rank != 0 or [output[0] for output in outputs] == everyone
    dist.scatter(tensor := torch.empty(2),
                 [full(float(i), 2) for i in everyone] if rank == 0 else None, 0)
    expect(tensor, [float(rank)] * 2)
    output = torch.empty(size)
    dist.all_to_all_single(output, torch.arange(float(size)) + 10 * rank)
    expect(output, [10.0 * i + rank for i in everyone])
    output = torch.empty(sum(i + 1 for i in everyone), 2)
    dist.all_to_all_single(output, torch.full((size * (rank + 1), 2), float(rank)),
                           [i + 1 for i in everyone], [rank + 1] * size)
    expect(output[:, 0], [float(i) for i in everyone for _ in range(i + 1)])
    outputs = [torch.empty(i + 1) for i in everyone]
    dist.all_to_all(outputs, [full(float(rank), rank + 1) for _ in everyone])
    assert [output[0] for output in outputs] == everyone


def messages():
    tensor = torch.empty(2)
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    operations = [dist.P2POp(dist.isend, full(float(rank), 2), ahead),
                  dist.P2POp(dist.irecv, tensor, behind)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    expect(tensor, [float(behind)] * 2)
    if rank == 0:
        dist.send(full(7.0, 2), 1, tag=3)
    elif rank == 1:
        assert dist.recv(tensor, 0, tag=3) == 0
        expect(tensor, [7.0] * 2)


def objects_and_groups():
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert [item["rank"] for item in objects] == everyone
    objects = [{"of": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(objects, 0)
    assert objects == [{"of": 0}]
    pair = dist.new_group([1, 0])
    if rank < 2:
        tensor = full(float(rank))
        dist.all_reduce(tensor, group=pair)
        expect(tensor, [1.0] * 3)
    dist.barrier()


def futures():
    work = dist.all_reduce(torch.ones(100000), async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2).wait()
    assert doubled[0] == 2 * size
    work = dist.all_reduce(torch.ones(10), async_op=True)
    work.wait(datetime.timedelta(seconds=60))
    assert backend != "regroup" or work.is_completed()


def data_parallel():
    torch.manual_seed(rank)
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8),
                                 torch.nn.Linear(8, 1))
    ddp = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number in range(4):
        optimizer.zero_grad()
        inputs = torch.randn(4, 8)
        if number == 1:
            with ddp.no_sync():
                ddp(inputs).sum().backward()
        ddp(inputs).sum().backward()
        optimizer.step()
    sums = [None] * size
    dist.all_gather_object(sums, sum(value.sum().item() for value in module.parameters()))
    assert len(set(sums)) == 1, sums
    if new:
        import torch.distributed.checkpoint as checkpoint
        folder = [tempfile.mkdtemp() if rank == 0 else None]
        dist.broadcast_object_list(folder, 0)
        checkpoint.save({"model": module.state_dict()}, checkpoint_id=folder[0])
        checkpoint.load({"model": module.state_dict()}, checkpoint_id=folder[0])
        checkpoint.async_save({"model": module.state_dict()}, checkpoint_id=folder[0]).result()


def power_sgd():
    """Its callbacks start collectives, for several buckets at once, and wait for them."""
    if not new or backend != "regroup":
        return
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    torch.manual_seed(0)
    module = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(6)])
    ddp = DistributedDataParallel(module, bucket_cap_mb=0.005)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2,
                                        min_compression_rate=0.5)
    ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    torch.manual_seed(rank)
    for _ in range(6):
        optimizer.zero_grad()
        ddp(torch.randn(8, 32)).square().mean().backward()
        optimizer.step()
    sums = [None] * size
    dist.all_gather_object(sums, sum(value.sum().item() for value in module.parameters()))
    assert len(set(sums)) == 1, sums


def coalesced():
    if not new:
        return
    import torch.distributed._functional_collectives as functional
    group = dist.group.WORLD
    expect(functional.all_reduce(torch.ones(2), "sum", group) + 0, [float(size)] * 2)
    gathered = functional.all_gather_into_tensor_coalesced([full(float(rank), 1), torch.ones(2)],
                                                           group)
    expect(gathered[0] + 0, [float(i) for i in everyone])
    scattered = functional.reduce_scatter_tensor_coalesced(
        [torch.ones(size), torch.ones(2 * size)], "sum", [0, 0], group)
    expect(scattered[1] + 0, [float(size)] * 2)


def refusals():
    requests = (
        (lambda: dist.all_reduce(torch.ones(2).to_sparse()), "sparse=False"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)), "torch.int16"),
        (lambda: dist.recv(torch.ones(2)), "name the rank"),
    )
    for request, text in requests:
        try:
            request()
        except Exception as error:  # PyTorch's own classes, if the back end is one of several.
            assert text in str(error), error
        else:
            raise AssertionError(f"not refused: {text}")


def see_death():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Of the launcher, which ends the job.
    ddp = DistributedDataParallel(torch.nn.Linear(8, 1))
    ddp(torch.ones(2, 8)).sum().backward()
    loss = ddp(torch.ones(2, 8)).sum()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        loss.backward()
    except regroup.Error as error:
        print(f"rank {rank} sees {type(error).__name__}", flush=True)
    try:
        dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
    except (regroup.Error, RuntimeError):
        print(f"rank {rank} sees it again", flush=True)


if way == "death":
    see_death()
else:
    for check in (reductions, movements, messages, objects_and_groups, futures, data_parallel,
                  power_sgd, coalesced, refusals):
        if size > 1 or check is not messages and check is not objects_and_groups:
            check()
    dist.destroy_process_group()
    # Older releases, and gloo, may wait for ever on a store that was used before.
    if new and backend == "regroup":
        dist.init_process_group(backend)
        dist.all_reduce(torch.ones(1))
        dist.destroy_process_group()
    print(f"done {rank}", flush=True)
