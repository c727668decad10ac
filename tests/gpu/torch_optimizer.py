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


def main():
    torch = torch_or_end("torch_optimizer")
    count = number_of(1, 400) * 1_000_000
    print(f"torch {torch.__version__}, {count} parameters")
    for name, options in (("fused", {"fused": True}), ("foreach", {"foreach": True})):
        parameter = torch.randn(count, device="cuda", requires_grad=True)
        parameter.grad = torch.randn(count, device="cuda")
        optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.01, **options)
        milliseconds = median_ms(torch, optimizer.step)
        print(f"AdamW {name:8} {milliseconds:9.3f} ms {28 * count / milliseconds / 1e6:9.1f} GB/s")
        del optimizer, parameter
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
