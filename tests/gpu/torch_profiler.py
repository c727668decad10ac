# SPDX-License-Identifier: Apache-2.0
"""The profiler plugin under NCCL and PyTorch on real GPUs: see docs/gpu.md.

    python3 tests/gpu/torch_profiler.py build/release/launcher/libnccl-profiler-regroup.so

Two ranks run the same work without the plugin, with it, and with REGROUP_NCCL_KERNELS=1. With it,
each rank reads its own page and checks what the plugin says: of collectives that have ended, of one
that waits for the other rank, of messages, of a CUDA graph and of a second communicator. Prints
what a step of 100 collectives takes, eager and in a graph. Takes at most three minutes.
"""

import mmap
import os
import struct
import sys
import tempfile
import time

import torch_peer

# As rendezvous/worker_link/collectives_page.h has it, version 2.
VERSION = 2
GROUPS = 64
GROUP_BYTES = 4480
PAGE_BYTES = 64 + GROUPS * GROUP_BYTES
IN_USE = 2

COLLECTIVES = 100
STEPS = 20


class Group:
    """One communicator in the page, at one moment."""

    def __init__(self, data):
        self.state, self.backend, self.id, self.size, self.rank, self.starts, self.ends = \
            struct.unpack_from("<IIQIIII", data, 0)
        self.name = bytes(data[32:64]).split(b"\0")[0].decode()
        self.entered, = struct.unpack_from("<Q", data, 64)
        self.started, self.completed = struct.unpack_from("<QQ", data, 4224)
        self.messages_entered, self.messages_completed = struct.unpack_from("<QQ", data, 4416)

    def __str__(self):
        return (f"{self.name or '(no name)'} {self.id:016x}: rank {self.rank} of {self.size}, "
                f"entered {self.entered}, started {self.started if self.starts else '?'}, "
                f"completed {self.completed if self.ends else '?'}, messages "
                f"{self.messages_completed} of {self.messages_entered}")


class Page:
    def __init__(self, path):
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), PAGE_BYTES)

    @staticmethod
    def make(path):
        with open(path, "wb") as file:
            file.write(struct.pack("<I", VERSION).ljust(PAGE_BYTES, b"\0"))

    def groups(self):
        found = []
        for index in range(GROUPS):
            begin = 64 + index * GROUP_BYTES
            group = Group(self.memory[begin:begin + GROUP_BYTES])
            if group.state == IN_USE:
                found.append(group)
        return found

    def await_group(self, condition, what):
        """A group that meets the condition, within some seconds."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for group in self.groups():
                if condition(group):
                    return group
            time.sleep(0.001)
        shown = "; ".join(str(group) for group in self.groups())
        raise RuntimeError(f"the page does not say {what}: {shown or 'no group'}")


def timed(torch, step):
    """The median time of a step, in ms."""
    times = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        begin = time.monotonic()
        step()
        torch.cuda.synchronize()
        times.append((time.monotonic() - begin) * 1000)
    return sorted(times)[STEPS // 2]


def check(torch, dist, page, values):
    """Checks the page after each kind of call. Returns lines to print."""
    lines = []
    first = page.await_group(lambda group: group.entered > 0, "that a collective was called")
    lines.append(f"version {'.'.join(map(str, torch.cuda.nccl.version()))}: {first}")
    count = first.entered
    if first.ends:
        page.await_group(lambda group: group.completed == count == group.started,
                         "that all collectives have ended")
    dist.barrier()
    torch.cuda.synchronize()
    count = page.groups()[0].entered
    if dist.get_rank() == 0:
        # The other rank calls it two seconds later.
        work = dist.all_reduce(values, async_op=True)
        waiting = page.await_group(lambda group: group.entered == count + 1,
                                   "that a collective waits")
        time.sleep(0.5)
        waiting = page.groups()[0]
        if waiting.ends and waiting.completed > count:
            raise RuntimeError(f"a collective has ended before the other rank called it: {waiting}")
        lines.append(f"while the other rank is late: {waiting}")
        work.wait()
    else:
        time.sleep(2)
        dist.all_reduce(values)
    torch.cuda.synchronize()
    peer = 1 - dist.get_rank()
    received = torch.empty_like(values)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, values, peer),
                                        dist.P2POp(dist.irecv, received, peer)]):
        work.wait()
    torch.cuda.synchronize()
    page.await_group(lambda group: group.messages_entered >= 2, "that messages were sent")
    other = dist.new_group([0, 1], backend="nccl", group_desc="second")
    dist.all_reduce(values, group=other)
    torch.cuda.synchronize()
    if len(page.groups()) < 2:
        raise RuntimeError("the page does not have the second communicator")
    lines += [f"at the end: {group}" for group in page.groups()]
    return lines


def rank_main():
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl")
    values = torch.ones(1 << 16, device="cuda")

    def step():
        for _ in range(COLLECTIVES):
            dist.all_reduce(values)
            values.mul_(0.5)

    step()
    eager = timed(torch, step)
    lines = []
    path = os.environ.get("REGROUP_COLLECTIVES", "")
    if path:
        lines = check(torch, dist, Page(path), values)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graphed = timed(torch, graph.replay)
    if path:
        group = Page(path).groups()[0]
        lines.append(f"after {STEPS} replays of {COLLECTIVES} collectives: {group}")
    if dist.get_rank() == 0:
        print(f"{eager:.3f} {graphed:.3f}")
        print("\n".join(lines))
    del graph
    dist.destroy_process_group()


def main():
    torch = torch_peer.torch_or_end("torch_profiler")
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} PLUGIN")
    plugin = os.path.abspath(sys.argv[1])
    gpus = torch.cuda.device_count()
    print(f"torch_profiler: torch {torch.__version__}, {torch.cuda.get_device_name(0)}, 2 ranks on "
          f"{min(gpus, 2)} GPU(s){torch_peer.sharing(2, gpus)}")
    times = []
    with tempfile.TemporaryDirectory(prefix="regroup-profiler-") as folder:
        for name, kernels in (("none", "0"), (plugin, "0"), (plugin, "1")):
            os.environ.update(NCCL_PROFILER_PLUGIN=name, REGROUP_NCCL_KERNELS=kernels)
            print(f"  NCCL_PROFILER_PLUGIN={name} REGROUP_NCCL_KERNELS={kernels}")
            pages = []
            if name == plugin:
                pages = [os.path.join(folder, f"rank-{rank}") for rank in range(2)]
                for page in pages:
                    Page.make(page)
            output = torch_peer.run_ranks(2, gpus, limit_s=58, environments=[
                {"REGROUP_COLLECTIVES": page} for page in pages] or None)[0].splitlines()
            times.append([float(word) for word in output[0].split()])
            for line in output[1:]:
                print(f"    {line}")
    for what, without, calls, kernels in zip(("eager", "in a CUDA graph"), *times):
        print(f"  {COLLECTIVES} collectives {what}: {without:.3f} ms without the plugin, "
              f"{calls:.3f} ms ({(calls / without - 1) * 100:+.1f} %) with it, {kernels:.3f} ms "
              f"({(kernels / without - 1) * 100:+.1f} %) with kernels")
    print("torch_profiler: passed")


if __name__ == "__main__":
    if torch_peer.is_rank():
        rank_main()
    else:
        main()
