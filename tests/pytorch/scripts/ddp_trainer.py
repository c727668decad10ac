# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training that survives restarts, in the usual shape of a Trainer.

    torchrun --nproc-per-node=2 ddp_trainer.py --max_epochs 5 --batch_size 32

Rank 0 saves a snapshot after each epoch; later starts resume from it. The last line of each
rank is a hash of the parameters, which failures must not change. --kill_rank makes a rank end itself
in the first run of the job. --gate delays an epoch on all ranks until a file is there.
"""
import argparse
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

GATE_LIMIT_S = 120


def say(text):
    # One write per line, so that the lines of several ranks never mix.
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def make_data(samples):
    generator = torch.Generator().manual_seed(2048)
    inputs = torch.randn(samples, 20, generator=generator)
    return TensorDataset(inputs, torch.sin(inputs.sum(dim=1, keepdim=True)))


def make_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(20, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def hash_of(model):
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank = dist.get_rank()
        self.restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self.epochs_run = 0
        model = make_model()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        if os.path.exists(args.snapshot_path):
            self._load_snapshot(model)
        data = make_data(args.samples)
        self.loader = DataLoader(
            data, batch_size=args.batch_size, shuffle=False, sampler=DistributedSampler(data)
        )
        # The order of the parameters within a bucket decides in which order gradients are summed.
        # This keeps it the same in every iteration, so that a resumed run sums like the others.
        self.model = DDP(model, find_unused_parameters=True)

    def _load_snapshot(self, model):
        snapshot = torch.load(self.args.snapshot_path, map_location="cpu")
        model.load_state_dict(snapshot["MODEL_STATE"])
        self.optimizer.load_state_dict(snapshot["OPTIMIZER_STATE"])
        self.epochs_run = snapshot["EPOCHS_RUN"]
        say(f"[GPU: {self.rank}] Resuming at epoch {self.epochs_run}")

    def _save_snapshot(self, epoch):
        part = f"{self.args.snapshot_path}.part"
        torch.save(
            {
                "MODEL_STATE": self.model.module.state_dict(),
                "OPTIMIZER_STATE": self.optimizer.state_dict(),
                "EPOCHS_RUN": epoch + 1,
            },
            part,
        )
        os.replace(part, self.args.snapshot_path)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.optimizer.step()

    def _run_epoch(self, epoch):
        batch_size = len(next(iter(self.loader))[0])
        say(
            f"[GPU: {self.rank}] Epoch: {epoch} | Batchsize: {batch_size}"
            f" | Steps: {len(self.loader)}"
        )
        self.loader.sampler.set_epoch(epoch)
        for step, (source, targets) in enumerate(self.loader):
            if step == len(self.loader) // 2:
                self._fail_as_planned(epoch)
            self._run_batch(source, targets)

    def _fail_as_planned(self, epoch):
        args = self.args
        if (self.rank, epoch, self.restart) != (args.kill_rank, args.kill_epoch, 0):
            return
        say(f"[GPU: {self.rank}] Failing at epoch {epoch}")
        if args.exit_code is not None:
            os._exit(args.exit_code)
        os.kill(os.getpid(), signal.SIGKILL)

    def _wait_at_gate(self, epoch):
        if epoch != self.args.gate_epoch:
            return
        say(f"[GPU: {self.rank}] Waiting at epoch {epoch}")
        deadline = time.monotonic() + GATE_LIMIT_S
        while not os.path.exists(self.args.gate):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.args.gate} did not appear in {GATE_LIMIT_S} s")
            time.sleep(0.02)

    def train(self, max_epochs):
        for epoch in range(self.epochs_run, max_epochs):
            self._wait_at_gate(epoch)
            self._run_epoch(epoch)
            if self.rank == 0:
                self._save_snapshot(epoch)
        say(f"[GPU: {self.rank}] Parameters: {hash_of(self.model.module)}")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--max_epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=32, help="of each rank")
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--snapshot_path", default="snapshot.pt")
    parser.add_argument("--kill_rank", type=int, default=-1, help="that fails in restart 0")
    parser.add_argument("--kill_epoch", type=int, default=2, help="in the middle of which it does")
    parser.add_argument("--exit_code", type=int, help="with which it exits; default: SIGKILL")
    parser.add_argument("--gate_epoch", type=int, default=-1, help="that waits for the gate")
    parser.add_argument("--gate", default="gate", help="the file that opens it")
    return parser.parse_args()


def main():
    args = parse_arguments()
    dist.init_process_group("gloo")
    Trainer(args).train(args.max_epochs)
    # All ranks end together and keep the group: PyTorch 2.14 sometimes aborts while it destroys the
    # group ("terminate called without an active exception"), under torchrun as well.
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
