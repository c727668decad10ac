# SPDX-License-Identifier: Apache-2.0
"""Trains with FSDP2 on a mesh of ranks, and goes on from a distributed checkpoint.

    train_sharded.py [--replicas N] [--save-at STEP] [--wait-at STEP]

A checkpoint may be loaded by another number of ranks than has saved it.
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     get_state_dict, set_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from planned_failure import fail_as_planned, hash_of, say

STEPS = 16
BATCH = 16  # Of all ranks together.
GATE_LIMIT_S = 120


def full_hash(model):
    """The hash of all parameters, whatever ranks have them."""
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return hash_of(state) if dist.get_rank() == 0 else ""


def wait_for(path):
    deadline = time.monotonic() + GATE_LIMIT_S
    while not os.path.exists(path):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear in {GATE_LIMIT_S} s")
        time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicas", type=int, default=1, help="that each have all shards")
    parser.add_argument("--save-at", type=int, default=8, help="the step after which it saves")
    parser.add_argument("--wait-at", type=int, help="the step before it waits for a file, gate")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (args.replicas, world // args.replicas),
                            mesh_dim_names=("replicate", "shard"))
    torch.manual_seed(1)
    inputs = torch.randn(STEPS, BATCH, 16)
    targets = torch.sin(inputs.sum(dim=2, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    fully_shard(model, mesh=mesh if args.replicas > 1 else mesh["shard"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    step = 0
    if os.path.exists("checkpoint"):
        step = args.save_at
        model_state, optimizer_state = get_state_dict(model, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        dcp.load(state, checkpoint_id="checkpoint")
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
        loaded = full_hash(model)
        if rank == 0:
            say(f"resumed at step {step} on {world} ranks, parameters {loaded}")
    for step in range(step + 1, STEPS + 1):
        mine = slice(rank, None, world)
        loss = torch.nn.functional.mse_loss(model(inputs[step - 1, mine]), targets[step - 1, mine])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        fail_as_planned(step)
        if step == args.save_at:
            model_state, optimizer_state = get_state_dict(model, optimizer)
            dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id="part")
            saved = full_hash(model)
            if rank == 0:
                os.rename("part", "checkpoint")
                say(f"saved step {step} on {world} ranks, parameters {saved}")
        if step == args.wait_at:
            say(f"waiting after step {step}")
            wait_for("gate")
    final = full_hash(model)
    if rank == 0:
        say(f"final step {step}, parameters {final}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
