# SPDX-License-Identifier: Apache-2.0
"""The store of a round, as torch.distributed needs it."""
from __future__ import annotations

import datetime
from typing import Any, List, Optional

import torch.distributed as dist

from ..elastic import ElasticRound
from ..store import Store


class RoundStore(dist.Store):  # type: ignore[misc]
    """Calls fail when the round ends, unlike those of a TCPStore of PyTorch's own. A default group
    that is made with it uses the group of the round."""

    def __init__(self, current: ElasticRound) -> None:
        super().__init__()
        self.round = current
        self._store = current.context.store if current.world_size > 1 else Store.local()

    def set(self, key: str, value: Any) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount)

    def check(self, keys: List[str]) -> bool:
        return self._store.check(keys)

    def wait(self, keys: List[str], timeout: Optional[datetime.timedelta] = None) -> None:
        self._store.wait(keys, timeout.total_seconds() if timeout else None)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        return self._store.compare_set(key, expected, desired)

    def delete_key(self, key: str) -> bool:
        return self._store.delete(key)

    def multi_get(self, keys: List[str]) -> List[bytes]:
        return [self._store.get(key) for key in keys]

    def multi_set(self, keys: List[str], values: List[Any]) -> None:
        for key, value in zip(keys, values):
            self._store.set(key, value)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """The store keeps its own."""

    def clone(self) -> RoundStore:
        return self
