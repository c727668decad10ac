# SPDX-License-Identifier: Apache-2.0
"""Trains with DeepSpeed's ZeRO on CPUs, and goes on from the checkpoint that it saved last."""
import deepspeed
import torch

from planned_failure import fail_as_planned, hash_of, say

STEPS = 16
BATCH = 8  # Of each rank.


def main():
    deepspeed.init_distributed(dist_backend="gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(1)
    inputs = torch.randn(STEPS * BATCH * world, 16)
    targets = torch.sin(inputs.sum(dim=1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        config={"train_micro_batch_size_per_gpu": BATCH, "zero_optimization": {"stage": 1},
                "zero_allow_untested_optimizer": True})
    path, state = engine.load_checkpoint("checkpoints")
    if path:
        say(f"resumed from {path} at step {engine.global_steps}")
    for step in range(engine.global_steps, STEPS):
        mine = slice((step * world + rank) * BATCH, (step * world + rank + 1) * BATCH)
        loss = torch.nn.functional.mse_loss(engine(inputs[mine]), targets[mine])
        engine.backward(loss)
        engine.step()
        fail_as_planned(engine.global_steps)
        if engine.global_steps % 4 == 0:
            engine.save_checkpoint("checkpoints")
    say(f"final step {engine.global_steps}, parameters {hash_of(engine.module.state_dict())}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
