# SPDX-License-Identifier: Apache-2.0
"""Tensors in the safetensors files of a folder, whole or in pieces."""
from __future__ import annotations

import glob
import json
import mmap
import os
from typing import Any, Dict, List, Tuple, Union

import torch

from ..errors import InvalidArgument

Offset = Tuple[int, ...]

#: As safetensors names them.
NAMES: Dict[torch.dtype, str] = {
    getattr(torch, ours): theirs for ours, theirs in (
        ("bool", "BOOL"), ("uint8", "U8"), ("int8", "I8"), ("int16", "I16"), ("uint16", "U16"),
        ("float16", "F16"), ("bfloat16", "BF16"), ("int32", "I32"), ("uint32", "U32"),
        ("float32", "F32"), ("float64", "F64"), ("int64", "I64"), ("uint64", "U64"),
        ("float8_e4m3fn", "F8_E4M3"), ("float8_e5m2", "F8_E5M2")) if hasattr(torch, ours)}
_TYPES = {name: dtype for dtype, name in NAMES.items()}


class SafetensorsFolder:
    """Maps the files. Pieces have their offsets where torch.distributed.checkpoint writes them."""

    def __init__(self, folder: Union[str, "os.PathLike[str]"]) -> None:
        #: Of each tensor, by their offsets.
        self._pieces: Dict[str, Dict[Offset, torch.Tensor]] = {}
        self._folder = os.fspath(folder)
        paths = sorted(glob.glob(os.path.join(glob.escape(self._folder), "*.safetensors")))
        if not paths:
            raise InvalidArgument(f"{self._folder} has no .safetensors file")
        for path in paths:
            try:
                self._add(path)
            except (ValueError, KeyError, TypeError, RuntimeError) as error:
                raise InvalidArgument(f"{path} is no safetensors file: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self._pieces

    def has_all_of(self, name: str, like: torch.Tensor, offset: Offset) -> bool:
        """Whether the box of the shape of ``like`` at ``offset`` is there."""
        return like.numel() == sum(
            ours.numel() for ours, _ in self._common(name, like, offset))

    def read(self, name: str, target: torch.Tensor, offset: Offset) -> None:
        """Copies the box at ``offset`` to ``target``, and casts it if it has another type."""
        with torch.no_grad():
            for ours, theirs in self._common(name, target, offset):
                ours.copy_(theirs)

    def _common(self, name: str, target: torch.Tensor,
                offset: Offset) -> List[Tuple[torch.Tensor, torch.Tensor]]:
        """The overlap of ``target`` with each piece, as a view of either."""
        result = []
        for begin, piece in self._pieces[name].items():
            if piece.dim() != target.dim():
                continue
            ours, theirs = target, piece
            for i, (a, b) in enumerate(zip(offset, begin)):
                first, last = max(a, b), min(a + target.shape[i], b + piece.shape[i])
                if first >= last:
                    break
                ours = ours.narrow(i, first - a, last - first)
                theirs = theirs.narrow(i, first - b, last - first)
            else:
                result.append((ours, theirs))
        return result

    def _add(self, path: str) -> None:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if not 2 <= size <= os.path.getsize(path) - 8:
                raise ValueError(f"its header would have {size} bytes")
            header = json.loads(file.read(size))
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        metadata: Dict[str, Any] = header.pop("__metadata__", {})
        places = json.loads(metadata.get("DCP_SHARDING_INFO", "{}"))
        for name, entry in header.items():
            if entry["dtype"] not in _TYPES:
                raise ValueError(f"{name} is of type {entry['dtype']}")
            shape: List[int] = entry["shape"]
            begin = tuple(places.get(name, {}).get("saved_offsets", [0] * len(shape)))
            first, last = entry["data_offsets"]
            if last > first:
                dtype = _TYPES[entry["dtype"]]
                count = (last - first) // torch.empty(0, dtype=dtype).element_size()
                piece = torch.frombuffer(data, dtype=dtype, offset=8 + size + first, count=count)
                self._pieces.setdefault(name, {})[begin] = piece.reshape(shape)
