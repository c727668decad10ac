# SPDX-License-Identifier: Apache-2.0
"""The step of graph_step with torch's DistributedDataParallel and fused AdamW, eager and as a graph.

    python3 torch_graph_step.py [RANKS]
"""

import os
import time

from torch_peer import is_rank, number_of, run_ranks, sharing, torch_or_end

LAYERS, LAYER_COUNT, BUCKETS, STEPS = 160, 62_464, 4, 200


def make_model(torch):
    class Layer(torch.autograd.Function):
        """Returns its input; the gradient of its weight is 1 + weight / 2, one kernel."""

        @staticmethod
        def forward(context, values, weight, one):
            context.save_for_backward(weight, one)
            return values.view_as(values)

        @staticmethod
        def backward(context, by_values):
            weight, one = context.saved_tensors
            return by_values, torch.add(one, weight, alpha=0.5), None

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList(
                torch.nn.Parameter(torch.ones(LAYER_COUNT)) for _ in range(LAYERS))
            self.register_buffer("one", torch.ones(1))

        def forward(self, values):
            for weight in self.weights:
                values = Layer.apply(values, weight, self.one)
            return values

    return Model()


def measure(torch, name, step):
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    start, process_start, own_start = time.monotonic(), time.process_time(), time.thread_time()
    for _ in range(STEPS):
        step()
    starting = time.thread_time() - own_start
    torch.cuda.synchronize()
    took = time.monotonic() - start
    others = (time.process_time() - process_start) - (time.thread_time() - own_start)
    if os.environ["RANK"] == "0":
        print(f"  {name:24} {1e3 * took / STEPS:8.3f} ms a step, "
              f"{1e6 * starting / STEPS:8.1f} us of CPU to start it, "
              f"{1e6 * max(others, 0) / STEPS:8.1f} us in other threads", flush=True)


def be_rank():
    import torch
    import torch.distributed as dist

    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # as torch asks for captures
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        model = torch.nn.parallel.DistributedDataParallel(
            make_model(torch).cuda(), gradient_as_bucket_view=True,
            bucket_cap_mb=LAYERS // BUCKETS * LAYER_COUNT * 4 / 2**20)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True,
                                      capturable=True)
        values = torch.ones(1, device="cuda", requires_grad=True)

        def step():
            optimizer.zero_grad(set_to_none=True)
            model(values).backward(torch.ones_like(values))
            optimizer.step()

        for _ in range(11):  # DistributedDataParallel needs 11 warm-up steps before a capture
            step()
        measure(torch, "eager", step)
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=stream):
            step()
        measure(torch, "graph", graph.replay)
    torch.cuda.synchronize()
    del graph  # before the communicator that it uses
    dist.destroy_process_group()


def main():
    torch = torch_or_end("torch_graph_step")
    ranks, gpus = number_of(1, 2), torch.cuda.device_count()
    print(f"torch {torch.__version__}, {ranks} rank(s) on {gpus} GPU(s){sharing(ranks, gpus)}, "
          f"{LAYERS * LAYER_COUNT} parameters, {LAYERS} layers, fused AdamW:")
    for output in run_ranks(ranks, gpus):
        print(output, end="")


if __name__ == "__main__":
    be_rank() if is_rank() else main()
