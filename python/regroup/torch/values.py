# SPDX-License-Identifier: Apache-2.0
"""Values of Python with tensors as bytes: equal bytes for equal values, and no code in them.

A value is a line of JSON and the bytes of tensors. A type that JSON lacks is a list whose first
item names it. ``torch.save`` and ``pickle`` do not give equal bytes for equal values, and a pickle
can call any function where it is read.

Carried exactly, with their types: None, truth values, numbers (NaNs with their bits), texts, bytes,
lists, tuples, dictionaries of the standard library, sets, deques, ranges, ``torch.Size``, dtypes,
devices, named tuples, enumerations and functions that the program defines in a module, arrays and
scalars of NumPy, dense tensors and parameters. Lists and the like that occur twice are one object afterwards,
and tensors that share memory share it. Tensors arrive on the CPU. Everything else is refused, with
its place.
"""
from __future__ import annotations

import base64
import collections
import enum
import json
import struct
import sys
import types
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from ..errors import InvalidArgument

#: Functions that make the missing values of a defaultdict.
_FACTORIES = {kind.__name__: kind for kind in (int, float, bool, str, list, dict, set, tuple)}
_DICTIONARIES: Dict[type, str] = {
    dict: "dict", collections.OrderedDict: "ordered", collections.Counter: "counter",
    collections.defaultdict: "default"}
_INT64 = 1 << 63


def encode(value: Any, name: str = "the state") -> bytes:
    """The bytes of a value. Raises InvalidArgument, with the place that begins with ``name``."""
    encoder = _Encoder()
    encoder.find_memory(value)
    try:
        line = json.dumps(encoder.plain(value, name), separators=(",", ":"))
    except RecursionError:
        raise InvalidArgument(f"{name} is nested too deeply; register it with save= and load= "
                              f"functions of your own") from None
    return b"".join([line.encode(), b"\n", *encoder.memory])


def decode(data: bytes) -> Any:
    """The value. It imports no module, and calls no function of the program."""
    line, _, rest = data.partition(b"\n")
    return _Decoder(rest).value(json.loads(line))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a piece of memory, in any order."""
    extent = 1
    for size, stride in sorted(zip(tensor.shape, tensor.stride()), key=lambda pair: pair[1]):
        if size != 1:
            if stride != extent:
                return False
            extent *= size
    return True


def _normal_strides(tensor: torch.Tensor) -> List[int]:
    """Those of dimensions with one element mean nothing, and are not alike everywhere."""
    strides, following = [], 1
    for size, stride in reversed(list(zip(tensor.shape, tensor.stride()))):
        strides.append(stride if size != 1 else following)
        following *= size
    return strides[::-1]


def _storage(tensor: torch.Tensor) -> Any:
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage().untyped()  # PyTorch before 2.0.


class _Memory:
    """A part of a storage, as far as the tensors of a value use it."""

    def __init__(self) -> None:
        self.tensors = 0
        self.begin, self.end = sys.maxsize, 0  # In bytes.
        self.number: Optional[int] = None

    def add(self, tensor: torch.Tensor) -> None:
        begin, size = tensor.storage_offset(), tensor.element_size()
        last = sum((length - 1) * stride for length, stride in zip(tensor.shape, tensor.stride()))
        self.begin = min(self.begin, begin * size)
        self.end = max(self.end, (begin + last + 1) * size)
        self.tensors += 1


class _Encoder:
    def __init__(self) -> None:
        self.memory: List[bytes] = []
        self._seen: Dict[int, int] = {}  # Objects that can be changed, by id.
        self._kept: List[Any] = []  # An id is valid as long as its object lives.
        self._shared: Dict[int, _Memory] = {}
        self._arrays: Dict[int, str] = {}  # The path of the one that has the memory, by its id.

    def find_memory(self, value: Any) -> None:
        """Finds tensors that share memory."""
        seen: Dict[int, Any] = {}
        open_values = [value]
        while open_values:
            item = open_values.pop()
            if id(item) in seen:
                continue
            seen[id(item)] = item
            if isinstance(item, torch.Tensor):
                if _is_ordinary(item) and item.numel() > 0:
                    key = _storage(item)._cdata
                    self._shared.setdefault(key, _Memory()).add(item)
            elif isinstance(item, dict):
                open_values += [*item.keys(), *item.values(), *getattr(item, "__dict__", {}).values()]
            elif isinstance(item, (list, tuple, set, frozenset, collections.deque)):
                open_values += list(item)
        self._kept.append(seen)

    def plain(self, value: Any, path: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if -_INT64 <= value < _INT64 else ["int", hex(value)]
        if kind is float:
            return value if value - value == 0 else ["float", struct.pack("<d", value).hex()]
        if kind is complex:
            return ["complex", struct.pack("<dd", value.real, value.imag).hex()]
        if kind is bytes:
            return ["bytes", base64.b64encode(value).decode()]
        if kind in (torch.dtype, torch.device):
            return [kind.__name__, str(value).rpartition("torch.")[2]]
        if kind is range:
            return ["range", value.start, value.stop, value.step]
        if kind is type(Ellipsis):
            return ["ellipsis"]
        if kind is types.FunctionType:
            return ["function", *_place(value, path)]
        if isinstance(value, enum.Enum):
            return ["enum", *_place(kind, path), self.plain(value.value, path)]
        if kind in (tuple, torch.Size):
            return ["tuple" if kind is tuple else "size", self._items(value, path)]
        if kind is frozenset:
            return ["frozenset", self._unordered(value, path)]
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return ["named", *_place(kind, path), self._items(value, path)]
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic):
            return ["scalar", *_described(value, path), value.tobytes().hex()]
        number = self._seen.get(id(value))
        if number is not None:
            return ["again", number]
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        if kind is list:
            return ["list", self._items(value, path)]
        if kind is collections.deque:
            return ["deque", value.maxlen, self._items(value, path)]
        if kind is set:
            return ["set", self._unordered(value, path)]
        if kind is bytearray:
            return ["bytearray", base64.b64encode(value).decode()]
        if kind in _DICTIONARIES:
            return self._dictionary(value, path)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if numpy is not None and kind is numpy.ndarray:
            return self._array(value, path)
        raise _refused(value, path)

    def _items(self, values: Any, path: str) -> List[Any]:
        return [self.plain(item, f"{path}[{i}]") for i, item in enumerate(values)]

    def _unordered(self, values: Any, path: str) -> List[Any]:
        count = len(self._seen)
        items = [self.plain(item, f"an item of {path}") for item in values]
        if len(self._seen) != count:
            raise InvalidArgument(f"{path} is a set of objects that can be changed; only those of "
                                  f"numbers, texts and the like can be carried")
        return sorted(items, key=json.dumps)

    def _dictionary(self, value: Any, path: str) -> List[Any]:
        # A list of pairs keeps the order and the types of keys.
        kind = type(value)
        pairs = [[self.plain(key, f"a key of {path}"), self.plain(item, f"{path}[{key!r}]")]
                 for key, item in value.items()]
        plain: List[Any] = [_DICTIONARIES[kind], pairs]
        if kind is collections.defaultdict:
            factory = value.default_factory
            name = None if factory is None else getattr(factory, "__name__", "")
            if name is not None and _FACTORIES.get(name) is not factory:
                raise InvalidArgument(f"{path} is a defaultdict with the function {factory!r}; "
                                      f"only {', '.join(_FACTORIES)} can be carried")
            plain.append(name)
        elif getattr(value, "__dict__", None):  # The state of a module has the versions there.
            plain.append(self.plain(value.__dict__, f"{path}.__dict__"))
        return plain

    def _array(self, array: Any, path: str) -> List[Any]:
        whole = array
        while isinstance(whole.base, type(array)):
            whole = whole.base
        if self._arrays.setdefault(id(whole), path) != path:
            raise InvalidArgument(f"{path} shares its memory with {self._arrays[id(whole)]}; of "
                                  f"NumPy's arrays only whole ones can be carried: give a copy()")
        self._kept.append(whole)
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        self.memory.append(array.tobytes(order))
        return ["array", *_described(array, path), list(array.shape), order]

    def _tensor(self, tensor: torch.Tensor, path: str) -> List[Any]:
        if not _is_ordinary(tensor):
            raise InvalidArgument(
                f"{path} is a tensor of type {type(tensor).__name__}, layout {tensor.layout}, "
                f"device {tensor.device}; only dense tensors and parameters can be carried: "
                f"register it with save= and load= functions of your own")
        flags = int(isinstance(tensor, torch.nn.Parameter)) + 2 * int(tensor.requires_grad)
        dtype = str(tensor.dtype)[len("torch."):]
        tensor = tensor.detach()
        if tensor.numel() == 0:
            return ["tensor", dtype, flags, list(tensor.shape), None, 0, None]
        memory = self._shared[_storage(tensor)._cdata]
        if memory.tensors == 1:  # The rest of its storage means nothing.
            tensor = tensor.resolve_conj().resolve_neg()
            if not _is_dense(tensor):
                tensor = tensor.clone(memory_format=torch.contiguous_format)
            memory = _Memory()
            memory.add(tensor)
        elif tensor.is_conj() or tensor.is_neg():
            raise InvalidArgument(f"{path} is a lazily conjugated or negated view of another "
                                  f"tensor: give its resolve_conj().resolve_neg()")
        if memory.number is None:
            memory.number = len(self.memory)
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
                _storage(tensor), memory.begin, (memory.end - memory.begin,))
            self.memory.append(bytes(whole.cpu().numpy()))
        offset = tensor.storage_offset() * tensor.element_size() - memory.begin
        return ["tensor", dtype, flags, list(tensor.shape), _normal_strides(tensor), offset,
                [memory.number, memory.end - memory.begin]]


def _is_ordinary(tensor: torch.Tensor) -> bool:
    return (type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_quantized
            and tensor.layout == torch.strided and tensor.device.type != "meta")


def _place(item: Any, path: str) -> Tuple[str, str]:
    """Where the program defines a class or a function."""
    module, name = item.__module__, item.__qualname__
    if _found(module, name) is not item:
        raise InvalidArgument(f"{path} needs {name}, which the module {module} does not have under "
                              f"this name: register it with save= and load= functions of your own")
    return module, name


def _found(module: str, name: str) -> Any:
    place: Any = sys.modules.get(module)
    for part in name.split("."):
        place = getattr(place, part, None)
    return place


def _described(value: Any, path: str) -> List[str]:
    """The type of an array of NumPy."""
    if value.dtype.hasobject or value.dtype.names is not None:
        raise InvalidArgument(f"{path} is an array of type {value.dtype}; only numbers and texts "
                              f"can be carried")
    return [value.dtype.str]


def _refused(value: Any, path: str) -> InvalidArgument:
    return InvalidArgument(
        f"{path} is of type {type(value).__name__}; register_state takes tensors, numbers, texts, "
        f"and the collections of Python: register it with save= and load= functions of your own")


def _dtype(name: str) -> torch.dtype:
    value = getattr(torch, name)
    assert isinstance(value, torch.dtype)
    return value


#: By the name of a type: what makes a value of it.
_PLAIN: Dict[str, Callable[..., Any]] = {
    "int": lambda digits: int(digits, 16),
    "float": lambda bits: struct.unpack("<d", bytes.fromhex(bits))[0],
    "complex": lambda bits: complex(*struct.unpack("<dd", bytes.fromhex(bits))),
    "bytes": base64.b64decode, "dtype": _dtype, "device": torch.device, "range": range,
    "ellipsis": lambda: ...,
}
#: The same from its items, for types whose values cannot contain themselves.
_FIXED: Dict[str, Callable[[List[Any]], Any]] = {
    "tuple": tuple, "size": torch.Size, "frozenset": frozenset}
#: The same for an empty dictionary.
_FILLED: Dict[str, Callable[[], Any]] = {
    "dict": dict, "ordered": collections.OrderedDict, "counter": collections.Counter}


class _Decoder:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._seen: List[Any] = []
        self._memory: Dict[int, torch.Tensor] = {}

    def value(self, plain: Any) -> Any:
        if not isinstance(plain, list):
            return plain
        name, *rest = plain
        if name in _PLAIN:
            return _PLAIN[name](*rest)
        if name in _FIXED:
            return _FIXED[name](self._all(*rest))
        if name in _FILLED:
            return self._filled(_FILLED[name](), *rest)
        reader: Callable[..., Any] = getattr(self, f"_{name}")
        return reader(*rest)

    def _kept(self, value: Any) -> Any:
        self._seen.append(value)
        return value

    def _all(self, items: List[Any]) -> List[Any]:
        return [self.value(item) for item in items]

    def _taken(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size:self._at]

    def _again(self, number: int) -> Any:
        return self._seen[number]

    # Types whose values are made of others, by name.

    def _bytearray(self, text: str) -> bytearray:
        value: bytearray = self._kept(bytearray(base64.b64decode(text)))
        return value

    def _enum(self, module: str, name: str, value: Any) -> enum.Enum:
        kind = _found(module, name)
        if not (isinstance(kind, type) and issubclass(kind, enum.Enum)):
            raise InvalidArgument(f"{module} has no enumeration {name}, which another rank sent")
        member: enum.Enum = kind(self.value(value))
        return member

    def _function(self, module: str, name: str) -> Any:
        value = _found(module, name)
        if type(value) is not types.FunctionType:
            raise InvalidArgument(f"{module} has no function {name}, which another rank sent")
        return value

    def _named(self, module: str, name: str, items: List[Any]) -> Any:
        kind = _found(module, name)
        if not (isinstance(kind, type) and issubclass(kind, tuple)):
            raise InvalidArgument(f"{module} has no named tuple {name}, which another rank sent")
        return tuple.__new__(kind, self._all(items))

    def _set(self, items: List[Any]) -> Any:
        value = self._kept(set())
        value.update(self._all(items))
        return value

    def _list(self, items: List[Any]) -> Any:
        value = self._kept([])  # Before its items, which may contain it.
        value.extend(self._all(items))
        return value

    def _deque(self, length: Optional[int], items: List[Any]) -> Any:
        value = self._kept(collections.deque(maxlen=length))
        value.extend(self._all(items))
        return value

    def _filled(self, value: Any, pairs: List[Any], attributes: Any = None) -> Any:
        self._kept(value)
        for key, item in pairs:
            key = self.value(key)
            value[key] = self.value(item)
        if attributes is not None:
            value.__dict__.update(self.value(attributes))
        return value

    def _default(self, pairs: List[Any], factory: Optional[str]) -> Any:
        return self._filled(
            collections.defaultdict(None if factory is None else _FACTORIES[factory]), pairs)

    def _scalar(self, dtype: str, bits: str) -> Any:
        import numpy
        return numpy.frombuffer(bytes.fromhex(bits), numpy.dtype(dtype))[0]

    def _array(self, dtype: str, shape: List[int], order: Any) -> Any:
        import numpy
        array = numpy.empty(shape, numpy.dtype(dtype), order)
        array.reshape(-1, order=order).view(numpy.uint8)[:] = numpy.frombuffer(self._taken(array.nbytes),
                                                                  numpy.uint8)
        return self._kept(array)

    def _tensor(self, name: str, flags: int, shape: List[int], strides: Optional[List[int]],
                offset: int, memory: Optional[List[int]]) -> torch.Tensor:
        dtype = _dtype(name)
        tensor = torch.empty(shape, dtype=dtype)
        if memory is not None and strides is not None:
            number, size = memory
            if number not in self._memory:
                self._memory[number] = torch.frombuffer(bytearray(self._taken(size)),
                                                        dtype=torch.uint8).clone()
            storage = _storage(self._memory[number])
            tensor.set_(storage, offset // tensor.element_size(), shape, strides)
        if flags & 1:
            tensor = torch.nn.Parameter(tensor, requires_grad=False)
        tensor.requires_grad_(flags & 2 != 0)
        kept: torch.Tensor = self._kept(tensor)
        return kept
