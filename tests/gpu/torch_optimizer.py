# SPDX-License-Identifier: Apache-2.0
"""The time of torch's AdamW for the same parameters: the peer of optimizer_bench.

    python3 torch_optimizer.py [millions of parameters]
"""

from torch_peer import number_of, torch_or_end


def median_ms(torch, step, runs=21):
    times = []
    for run in range(-2, runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        if run >= 0:
            times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def parameters_of(torch, count, tensors):
    """As in optimizer_bench: every third of many tensors is as small as a bias."""
    if tensors == 1:
        sizes = [count]
    else:
        large = int(count / (tensors * 2 / 3 + 0.001 * tensors / 3))
        sizes = [large // 1000 if i % 3 == 2 else large for i in range(tensors)]
    parameters = []
    for size in sizes:
        parameter = torch.randn(size, device="cuda", requires_grad=True)
        parameter.grad = torch.randn(size, device="cuda")
        parameters.append(parameter)
    return parameters


def main():
    torch = torch_or_end("torch_optimizer")
    count = number_of(1, 400) * 1_000_000
    print(f"torch {torch.__version__}, {count} parameters")
    for tensors in (1, 300):
        for name, options in (("fused", {"fused": True}), ("foreach", {"foreach": True})):
            parameters = parameters_of(torch, count, tensors)
            optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, **options)
            milliseconds = median_ms(torch, optimizer.step)
            rate = 28 * count / milliseconds / 1e6
            print(f"AdamW {name:8} {tensors:4} tensors {milliseconds:9.3f} ms {rate:9.1f} GB/s")
            del optimizer, parameters
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
