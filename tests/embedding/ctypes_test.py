# SPDX-License-Identifier: Apache-2.0
"""The C interface from Python, with the standard library only: two ranks started by the launcher
reduce, exchange messages and average gradients, and get errors for wrong calls.

    ctypes_test.py --library libregroup.so --regroup regroup
"""
import _ctypes
import argparse
import array
import ctypes
import os
import subprocess
import sys

OK, INVALID_ARGUMENT, DISCONNECTED, FENCED = 0, 1, 3, 5
FLOAT32, FLOAT64 = 0, 1
SUM = 0
ANY_DEVICE = -1


class ContextInfo(ctypes.Structure):
    _fields_ = [("job", ctypes.c_char_p), ("master_addr", ctypes.c_char_p)] + [
        (name, ctypes.c_uint32)
        for name in ("rank", "world_size", "local_rank", "local_world_size", "group_rank",
                     "group_world_size", "restart_count", "max_restarts")
    ] + [("round", ctypes.c_uint64), ("master_port", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("dtype", ctypes.c_int32),
                ("device_kind", ctypes.c_int32), ("device_index", ctypes.c_int32)]

    @classmethod
    def of(cls, values):
        """The memory of an array.array of 'f' or 'd'."""
        address, count = values.buffer_info()
        return cls(address, count, FLOAT32 if values.typecode == "f" else FLOAT64, 0, 0)


class Parameter(ctypes.Structure):
    _fields_ = [("value", Tensor), ("gradient", Tensor)]


class Failure(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Regroup:
    """Calls functions by name without their prefix; raises their errors."""

    def __init__(self, library):
        self.calls = ctypes.CDLL(library)
        self.calls.regroup_last_error.restype = ctypes.c_char_p
        self.calls.regroup_version.restype = ctypes.c_char_p

    def __getattr__(self, name):
        function = getattr(self.calls, "regroup_" + name)

        def call(*arguments):
            code = function(*arguments)
            if code != OK:
                raise Failure(code, self.calls.regroup_last_error().decode())
        return call

    def make(self, name, *arguments):
        """Calls a function whose last argument receives the handle."""
        handle = ctypes.c_void_p()
        getattr(self, name)(*arguments, ctypes.byref(handle))
        return handle

    def free(self, name, handle):
        function = getattr(self.calls, f"regroup_{name}_free")
        function.restype = None
        function(handle)


def expect(actual, expected):
    assert actual == expected, f"{actual!r} instead of {expected!r}"


def expect_failure(code, text, function, *arguments):
    try:
        function(*arguments)
    except Failure as failure:
        expect(failure.code, code)
        assert text in str(failure), f"{str(failure)!r} does not say {text!r}"
    else:
        raise AssertionError(f"no failure; it should have said {text!r}")


def reduce_and_exchange(regroup, group, rank, world_size):
    values = array.array("f", [rank, 1.0])
    regroup.all_reduce(group, Tensor.of(values), SUM, None)
    expect(list(values), [sum(range(world_size)), world_size])

    next_rank, previous = (rank + 1) % world_size, (rank - 1) % world_size
    sent, received = array.array("d", [rank + 0.5]), array.array("d", [-1.0])
    send = regroup.make("send", group, Tensor.of(sent), next_rank, 7)
    receive = regroup.make("recv", group, Tensor.of(received), previous, 7)
    regroup.work_wait(receive)
    regroup.work_wait(send)
    expect(received[0], previous + 0.5)
    regroup.free("work", send)
    regroup.free("work", receive)


def average_gradients(regroup, group, rank, world_size):
    weights, gradients = array.array("f", [rank] * 3), array.array("f", [0] * 3)
    parameters = (Parameter * 1)(Parameter(Tensor.of(weights), Tensor.of(gradients)))
    ddp = regroup.make("ddp_create", group, parameters, ctypes.c_size_t(1), None,
                       ctypes.c_size_t(0), None)
    expect(list(weights), [0, 0, 0])  # the weights of rank 0
    for index in range(3):
        gradients[index] = rank * 10 + index
    regroup.ddp_gradient_ready(ddp, ctypes.c_size_t(0))
    regroup.ddp_finish_step(ddp)
    mean = 10 * (world_size - 1) / 2
    expect(list(gradients), [mean, mean + 1, mean + 2])
    regroup.free("ddp", ddp)


def refuse(regroup, context, group, world_size):
    values = array.array("f", [1.0])
    wrong = Tensor.of(values)
    wrong.dtype = 99
    expect_failure(INVALID_ARGUMENT, "buffer's dtype is 99", regroup.all_reduce, group, wrong, SUM,
                   None)
    expect_failure(INVALID_ARGUMENT, "group is NULL", regroup.barrier, None, None)
    expect_failure(INVALID_ARGUMENT, str(world_size), regroup.send, group, Tensor.of(values),
                   world_size, 0, None)
    expect_failure(INVALID_ARGUMENT, "smoke", regroup.make, "group_create", context, b"smoke",
                   None, ctypes.c_int64(0), ANY_DEVICE)


def give_up(regroup, group, rank):
    """Rank 0 aborts the group; waiting ranks get an error that names rank 0."""
    values = array.array("f", [1.0])
    if rank == 0:
        regroup.group_abort(group, b"that is enough")
        expect_failure(FENCED, "that is enough", regroup.barrier, group, None)
    else:
        expect_failure(DISCONNECTED, "rank 0", regroup.recv, group, Tensor.of(values), 0, 0, None)


def have_children(library):
    """The launcher does not take a child of a worker for the worker, and does not disturb it."""
    child = os.fork()
    if child == 0:
        Regroup(library).make("context_from_environment")
        ctypes.CDLL(None).exit(3)  # Runs all exit handlers.
    expect(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 3)
    expect(os.waitstatus_to_exitcode(os.system("exit 4")), 4)
    # os.environ still names the worker's own link.
    for environment in (None, dict(os.environ)):
        expect(subprocess.run([sys.executable, __file__, "--library", library, "--child"],
                              env=environment, timeout=60).returncode, 0)


def unload(regroup):
    """The library's thread lives on, so its code must stay loaded."""
    _ctypes.dlclose(regroup.calls._handle)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        assert "/libregroup.so" in maps.read()


def work(library):
    regroup = Regroup(library)
    context = regroup.make("context_from_environment")
    info = ContextInfo()
    regroup.context_get(context, ctypes.byref(info))
    expect((info.rank, info.world_size), (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))

    store = regroup.make("context_store", context)
    total = ctypes.c_int64()
    regroup.store_add(store, b"arrived", ctypes.c_int64(1), ctypes.byref(total))
    assert 1 <= total.value <= info.world_size
    regroup.free("store", store)

    group = regroup.make("group_create", context, b"cpu", None, ctypes.c_int64(60_000), ANY_DEVICE)
    reduce_and_exchange(regroup, group, info.rank, info.world_size)
    have_children(library)
    average_gradients(regroup, group, info.rank, info.world_size)
    refuse(regroup, context, group, info.world_size)
    regroup.barrier(group, None)
    give_up(regroup, group, info.rank)
    regroup.free("group", group)
    regroup.free("context", context)
    print(f"rank {info.rank} of {info.world_size} is done with regroup",
          regroup.calls.regroup_version().decode())
    unload(regroup)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True, dest="shared_object")
    parser.add_argument("--regroup", help="the launcher; without it, be a worker")
    parser.add_argument("--child", action="store_true", help="be the child of a worker")
    options = parser.parse_args()
    if options.child:
        Regroup(options.shared_object).make("context_from_environment")
        return
    if options.regroup is None:
        work(options.shared_object)
        return
    environment = {name: value for name, value in os.environ.items()
                   if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
    job = subprocess.run(
        [options.regroup, "run", "--standalone", "--nproc-per-node=2", sys.executable, __file__,
         "--library", options.shared_object],
        env=environment, stdout=subprocess.PIPE, text=True, timeout=90)
    print(job.stdout, end="")
    expect(job.returncode, 0)
    for rank in range(2):
        assert f"rank {rank} of 2 is done" in job.stdout


if __name__ == "__main__":
    main()
