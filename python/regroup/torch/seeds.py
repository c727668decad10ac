# SPDX-License-Identifier: Apache-2.0
"""Random numbers that a repeated step draws again."""
from __future__ import annotations

import hashlib
import struct
from typing import Optional

import torch

from ..elastic import ElasticLoop


class Seed:
    """The seed of a training, which is that of rank 0 on all ranks once a round has begun."""

    def __init__(self, value: Optional[int], loop: ElasticLoop, device: str) -> None:
        self._device = device
        self.value = torch.initial_seed() if value is None else value
        loop.register_state("regroup.seed", save=self._save, load=self._load)

    def begin(self, step: int, index: int) -> None:
        """PyTorch's numbers, on the CPU and on the device of the model, begin anew: from the seed,
        the step and the index of this rank."""
        text = struct.pack("<QQI", self.value % (1 << 64), step, index)
        digest = hashlib.blake2b(text, digest_size=8).digest()
        seed = int.from_bytes(digest, "little") >> 1
        torch.default_generator.manual_seed(seed)
        if self._device == "cuda":
            torch.cuda.manual_seed(seed)

    def _save(self) -> bytes:
        return struct.pack("<Q", self.value % (1 << 64))

    def _load(self, data: bytes) -> None:
        self.value, = struct.unpack("<Q", data)
