# SPDX-License-Identifier: Apache-2.0
"""Trains a small language model with the Trainer of transformers, and goes on from its last
checkpoint."""
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

from planned_failure import fail_as_planned, hash_of, say


class Sequences(torch.utils.data.Dataset):
    """Numbers that count up from different starts."""

    def __len__(self):
        return 256

    def __getitem__(self, index):
        tokens = (torch.arange(16) + index) % 64
        return {"input_ids": tokens, "labels": tokens}


class PlannedFailure(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        fail_as_planned(state.global_step)


def main():
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2,
                                       n_head=2, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir="checkpoints", max_steps=16, per_device_train_batch_size=8, learning_rate=1e-3,
        save_steps=4, logging_steps=4, report_to=[], use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model, arguments, train_dataset=Sequences(), callbacks=[PlannedFailure()])
    last = get_last_checkpoint("checkpoints") if os.path.isdir("checkpoints") else None
    if last:
        say(f"resumed from {last}")
    trainer.train(resume_from_checkpoint=last)
    state = trainer.model.state_dict()
    say(f"final step {trainer.state.global_step}, parameters {hash_of(state)}")


if __name__ == "__main__":
    main()
