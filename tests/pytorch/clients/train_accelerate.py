# SPDX-License-Identifier: Apache-2.0
"""Trains with accelerate, and goes on from the state that it saved last."""
import os

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader, TensorDataset

from planned_failure import fail_as_planned, hash_of, say

EPOCHS = 4


def main():
    # Shuffles by the epoch's number, so that an epoch that is done again has the same order.
    configuration = DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = Accelerator(cpu=True, dataloader_config=configuration)
    set_seed(1)
    inputs = torch.randn(256, 16)
    data = TensorDataset(inputs, torch.sin(inputs.sum(dim=1, keepdim=True)))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Dropout(0.1),
                                torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=64)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

    first = 0
    saved = sorted(os.listdir("states")) if os.path.isdir("states") else []
    if saved:
        first = int(saved[-1])
        accelerator.load_state(os.path.join("states", saved[-1]))
        say(f"resumed at epoch {first}")
    step = first * len(loader)
    for epoch in range(first, EPOCHS):
        loader.set_epoch(epoch)
        for source, targets in loader:
            loss = torch.nn.functional.mse_loss(model(source), targets)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            fail_as_planned(step)
        accelerator.save_state("part")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            os.makedirs("states", exist_ok=True)
            os.rename("part", f"states/{epoch + 1}")
        accelerator.wait_for_everyone()
    say(f"final step {step}, parameters {hash_of(accelerator.unwrap_model(model).state_dict())}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
