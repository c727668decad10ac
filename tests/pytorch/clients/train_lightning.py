# SPDX-License-Identifier: Apache-2.0
"""Trains with Lightning, and goes on from its last checkpoint."""
import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from planned_failure import fail_as_planned, hash_of, say


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32),
                                          torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def training_step(self, batch, _):
        source, targets = batch
        loss = torch.nn.functional.mse_loss(self.layers(source), targets)
        self.log("loss", loss, sync_dist=True)
        return loss

    def on_train_start(self):
        if self.global_step:
            say(f"resumed at step {self.global_step}")

    def on_train_batch_end(self, *_):
        fail_as_planned(self.global_step)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main():
    lightning.seed_everything(1)
    inputs = torch.randn(256, 16)
    data = TensorDataset(inputs, torch.sin(inputs.sum(dim=1, keepdim=True)))
    trainer = lightning.Trainer(
        accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        max_epochs=4, default_root_dir=".", enable_progress_bar=False, logger=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(dirpath="checkpoints", every_n_epochs=1, save_last=True)])
    model = Model()
    trainer.fit(model, DataLoader(data, batch_size=16, shuffle=True), ckpt_path="last")
    say(f"environment {type(trainer.strategy.cluster_environment).__name__}")
    say(f"final step {trainer.global_step}, parameters {hash_of(model.state_dict())}")


if __name__ == "__main__":
    main()
