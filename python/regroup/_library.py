# SPDX-License-Identifier: Apache-2.0
"""libregroup.so: where it is, its structures, and its functions with the types of their arguments.

ctypes releases the interpreter's lock during every call.
"""
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_size_t,
                    c_uint16, c_uint32, c_uint64, c_void_p)
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import errors

#: The release of the library that this package is written for. As for C programs, only the major
#: and the minor number count.
ABI = "0.1"
ANY_DEVICE = -1
CPU, CUDA = 0, 1
EVENT_ROUND, EVENT_STEP, EVENT_LEAVE, EVENT_FINISHED, EVENT_LEFT = range(5)


class Tensor(Structure):
    _fields_ = [("data", c_void_p), ("count", c_size_t), ("dtype", c_int32),
                ("device_kind", c_int32), ("device_index", c_int32)]


class ContextInfo(Structure):
    _fields_ = [("job", c_char_p), ("master_addr", c_char_p)] + [
        (name, c_uint32) for name in ("rank", "world_size", "local_rank", "local_world_size",
                                      "group_rank", "group_world_size", "restart_count",
                                      "max_restarts")
    ] + [("round", c_uint64), ("master_port", c_uint16)]


class GroupInfo(Structure):
    _fields_ = [("backend", c_char_p), ("rank", c_uint32), ("world_size", c_uint32),
                ("device_kind", c_int32), ("device_index", c_int32)]


class OperationOptions(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("timeout_ms", c_int64), ("has_stream", c_int32),
                ("stream", c_void_p)]


class ElasticOptions(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("backend", c_char_p), ("timeout_ms", c_int64),
                ("compare_every", c_uint64), ("snapshot_every", c_uint64)]


class RoundInfo(Structure):
    _fields_ = [("context", c_void_p), ("group", c_void_p), ("step", c_uint64), ("rank", c_uint32),
                ("world_size", c_uint32), ("first", c_int32)]


class StepInfo(Structure):
    _fields_ = [("context", c_void_p), ("group", c_void_p), ("number", c_uint64),
                ("samples_begin", c_uint64), ("rank", c_uint32), ("world_size", c_uint32)]


class LeaveInfo(Structure):
    _fields_ = [("step", c_uint64), ("reason", c_char_p), ("time_left_ms", c_int64)]


SaveValue = CFUNCTYPE(c_int32, c_void_p, POINTER(c_void_p), POINTER(c_size_t))
LoadValue = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)
Apply = CFUNCTYPE(c_int32, c_void_p)


class Parameter(Structure):
    _fields_ = [("value", Tensor), ("gradient", Tensor)]


class DdpOptions(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("bucket_bytes", c_size_t),
                ("first_bucket_bytes", c_size_t), ("sum_gradients", c_int32),
                ("fixed_buckets", c_int32), ("unused_parameters", c_int32),
                ("broadcast_buffers_each_step", c_int32), ("wire", c_int32), ("stream", c_void_p)]


class SnapshotOptions(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("name", c_char_p), ("replicated", c_int32),
                ("folder", c_char_p), ("threads", c_uint32)]


class SnapshotTensor(Structure):
    _fields_ = [("struct_bytes", c_size_t), ("name", c_char_p), ("dtype", c_char_p),
                ("data", c_void_p), ("device_kind", c_int32), ("device_index", c_int32),
                ("dimensions", c_size_t), ("shape", POINTER(c_uint64)),
                ("offset", POINTER(c_uint64)), ("global_shape", POINTER(c_uint64))]


# Handles, texts, and the places of results.
_H, _T = c_void_p, c_char_p
_HANDLE, _TEXT, _SIZE = POINTER(c_void_p), POINTER(c_char_p), POINTER(c_size_t)
_I32, _I64, _U64, _F64 = POINTER(c_int32), POINTER(c_int64), POINTER(c_uint64), POINTER(c_double)
_OPTIONS = POINTER(OperationOptions)

#: Functions that return a code.
_FALLIBLE: Dict[str, Tuple[Any, ...]] = {
    "fail": (c_int32, _T),
    "report_fatal": (c_int32, _T),
    "obey_only_parent": (c_int32,),
    "watched_group_create": (_T, _T, c_uint64, c_uint32, c_uint32, c_int32, _HANDLE),
    "flight_record": (_HANDLE, _SIZE),
    "save_flight_record": (_T,),
    "context_from_environment": (_HANDLE,),
    "context_create": (c_uint32, c_uint32, _T, c_uint16, _HANDLE),
    "context_of_ranks": (_H, POINTER(c_uint32), c_size_t, _HANDLE),
    "context_cuda_device": (_H, _I32),
    "context_get": (_H, POINTER(ContextInfo)),
    "context_await_end": (_H, c_int64, _I32),
    "context_store": (_H, _HANDLE),
    "context_use_store": (_H, _H),
    "store_connect": (_T, c_uint16, c_int64, _HANDLE),
    "store_local": (c_int64, _HANDLE),
    "store_set": (_H, _T, _T, c_size_t),
    "store_get": (_H, _T, _HANDLE, _SIZE),
    "store_add": (_H, _T, c_int64, _I64),
    "store_check": (_H, _TEXT, c_size_t, _I32),
    "store_wait": (_H, _TEXT, c_size_t, c_int64),
    "store_compare_set": (_H, _T, _T, _T, _HANDLE, _SIZE),
    "store_delete": (_H, _T, _I32),
    "group_create": (_H, _T, _T, c_int64, c_int32, _HANDLE),
    "group_new_group": (_H, POINTER(c_uint32), c_size_t, _T, _HANDLE),
    "group_get": (_H, POINTER(GroupInfo)),
    "group_abort": (_H, _T),
    "group_use_stream": (_H, c_void_p),
    "group_allocate": (_H, c_size_t, _HANDLE, _HANDLE),
    "all_reduce_with": (_H, Tensor, Tensor, c_int32, _OPTIONS, _HANDLE),
    "reduce_with": (_H, Tensor, Tensor, c_int32, c_uint32, _OPTIONS, _HANDLE),
    "reduce_scatter_with": (_H, Tensor, Tensor, c_int32, _SIZE, _OPTIONS, _HANDLE),
    "broadcast_with": (_H, Tensor, c_uint32, _OPTIONS, _HANDLE),
    "all_gather_with": (_H, Tensor, Tensor, _SIZE, _OPTIONS, _HANDLE),
    "gather_with": (_H, Tensor, Tensor, c_uint32, _OPTIONS, _HANDLE),
    "scatter_with": (_H, Tensor, Tensor, c_uint32, _OPTIONS, _HANDLE),
    "all_to_all_with": (_H, Tensor, Tensor, _SIZE, _SIZE, _OPTIONS, _HANDLE),
    "barrier_with": (_H, _OPTIONS, _HANDLE),
    "send_with": (_H, Tensor, c_uint32, c_uint32, _OPTIONS, _HANDLE),
    "recv_with": (_H, Tensor, c_uint32, c_uint32, _OPTIONS, _HANDLE),
    "work_wait": (_H,),
    "work_test": (_H, _I32),
    "batch_begin": (_H, _HANDLE),
    "batch_start": (_H,),
    "elastic_create": (POINTER(ElasticOptions), _HANDLE),
    "elastic_register_tensor": (_H, _T, Tensor),
    "elastic_register_buffer": (_H, _T, Tensor),
    "elastic_register_value": (_H, _T, SaveValue, LoadValue, c_void_p),
    "elastic_will_import": (_H, _T),
    "elastic_resume_at": (_H, c_uint64, c_uint64),
    "elastic_next": (_H, _I32),
    "elastic_failed": (_H, c_int32, _T),
    "elastic_round": (_H, POINTER(RoundInfo)),
    "elastic_step": (_H, _HANDLE),
    "elastic_leave": (_H, POINTER(LeaveInfo)),
    "step_get": (_H, POINTER(StepInfo)),
    "step_take": (_H, c_uint64, _U64),
    "step_commit": (_H, Apply, c_void_p),
    "step_commit_begin": (_H,),
    "step_commit_end": (_H,),
    "step_pauses": (_H, _I32),
    "step_finish": (_H,),
    "step_report": (_H, _T, c_double),
    "step_section_begin": (_H, _T),
    "step_section_end": (_H,),
    "ddp_create": (_H, POINTER(Parameter), c_size_t, POINTER(Tensor), c_size_t,
                   POINTER(DdpOptions), _HANDLE),
    "ddp_gradient_ready": (_H, c_size_t),
    "ddp_gradient_unused": (_H, c_size_t),
    "ddp_finish_step": (_H,),
    "ddp_reduce_gradients": (_H,),
    "ddp_was_used": (_H, c_size_t, _I32),
    "ddp_no_sync_begin": (_H,),
    "ddp_no_sync_end": (_H,),
    "ddp_broadcast_parameters": (_H, c_uint32),
    "ddp_broadcast_buffers": (_H,),
    "sampler_create": (c_uint64, c_uint32, c_uint32, c_int32, c_uint64, c_int32, _HANDLE),
    "sampler_set_epoch": (_H, c_uint64),
    "sampler_count": (_H, _U64),
    "sampler_indices": (_H, c_uint64, _U64, c_size_t, _SIZE),
    "sampler_shard": (_H, c_uint64, c_uint64, _U64, c_size_t, _SIZE),
    "checkpoint_create": (_HANDLE,),
    "checkpoint_load": (_T, _HANDLE),
    "checkpoint_save_fenced": (_H, _T, c_size_t, c_uint64),
    "checkpoint_set_text": (_H, _T, _T, c_size_t),
    "checkpoint_set_integer": (_H, _T, c_int64),
    "checkpoint_set_number": (_H, _T, c_double),
    "checkpoint_set_tensor": (_H, _T, Tensor),
    "checkpoint_contains": (_H, _T, _I32),
    "checkpoint_get_text": (_H, _T, _HANDLE, _SIZE),
    "checkpoint_get_integer": (_H, _T, _I64),
    "checkpoint_get_number": (_H, _T, _F64),
    "checkpoint_get_tensor": (_H, _T, Tensor),
    "stop_requested": (_H, c_uint64, _I32),
    "snapshot_create": (_H, POINTER(SnapshotOptions), _HANDLE),
    "snapshot_add": (_H, POINTER(SnapshotTensor)),
    "snapshot_set_bytes": (_H, _T, _T, c_size_t),
    "snapshot_clear": (_H,),
    "snapshot_load": (_H, _I32, _U64),
    "snapshot_get_bytes": (_H, _T, _HANDLE, _SIZE),
    "snapshot_save": (_H, c_uint64, _I32),
    "snapshot_whole_step": (_H, _I32, _U64),
    "snapshot_kept_step": (_H, _I32, _U64),
    "snapshot_wait_until_whole": (_H, c_int64, _I32),
    "snapshot_wait_until_kept": (_H, c_int64, _I32),
    "snapshot_open": (_H, _I32, _U64),
    "snapshot_read": (_H, POINTER(SnapshotTensor)),
}

#: Functions that return something else, or nothing.
_OTHERS: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "version": (c_char_p, ()),
    "errc_name": (c_char_p, (c_int32,)),
    "last_error": (c_char_p, ()),
    "free": (None, (c_void_p,)),
    "watched_group_entered": (c_uint64, (_H, c_int32, c_int32, c_uint64)),
    "watched_group_completed": (None, (_H, c_uint64)),
    "watched_group_looked": (None, (_H,)),
    "watched_group_message_entered": (None, (_H, c_int32, c_uint32, c_int32, c_uint64)),
    "watched_group_message_completed": (None, (_H,)),
}
_OTHERS.update({f"{kind}_free": (None, (_H,)) for kind in (
    "context", "store", "group", "memory", "work", "batch", "elastic", "ddp", "sampler",
    "checkpoint", "snapshot", "watched_group")})


def _candidates() -> Iterator[str]:
    chosen = os.environ.get("REGROUP_LIBRARY")
    if chosen:
        yield chosen
        return
    package = pathlib.Path(__file__).resolve().parent
    places: List[pathlib.Path] = [package / "libregroup.so"]
    # In a source tree, what its presets build.
    builds = package.parent.parent / "build"
    places += [builds / preset / "libregroup.so" for preset in ("release", "debug")]
    yield from (str(place) for place in places if place.exists())
    yield f"libregroup.so.{ABI}"  # Installed on this system.


def _open() -> ctypes.CDLL:
    tried: List[str] = []
    for candidate in _candidates():
        try:
            library = ctypes.CDLL(candidate)
            break
        except OSError as error:
            tried.append(str(error))
    else:
        raise ImportError(
            f"regroup: libregroup.so cannot be loaded ({'; '.join(tried)}); install the wheel, or "
            f"name the library of a build in REGROUP_LIBRARY")
    for name, types in _FALLIBLE.items():
        function = getattr(library, "regroup_" + name)
        function.argtypes, function.restype = types, c_int32
    for name, (result, types) in _OTHERS.items():
        function = getattr(library, "regroup_" + name)
        function.argtypes, function.restype = types, result
    version = library.regroup_version().decode()
    if version != ABI and not version.startswith(ABI + "."):
        raise ImportError(f"regroup: {library._name} is of release {version}, and this package is "
                          f"for {ABI}; install both from one release")
    return library


library = _open()
version: str = library.regroup_version().decode()


def that_keeps_the_lock(name: str) -> Any:
    """A function that returns sooner than another thread could take the interpreter's lock."""
    function = getattr(ctypes.PyDLL(library._name), "regroup_" + name)
    function.restype, function.argtypes = _OTHERS[name]
    return function


def last_error() -> str:
    sentence: bytes = library.regroup_last_error()
    return sentence.decode(errors="replace")


def check(code: int) -> None:
    """Raises the failure of the call that returned ``code``."""
    if code != 0:
        raise errors.of_code(code, last_error())


def text(value: str, name: str) -> bytes:
    """A text for C."""
    encoded = value.encode() if isinstance(value, str) else bytes(value)
    if b"\0" in encoded:
        raise errors.InvalidArgument(f"{name} has a NUL in it: {value!r}")
    return encoded


def optional_text(value: Optional[str], name: str) -> Optional[bytes]:
    return None if value is None else text(value, name)


def unsigned(value: int, name: str, bits: int = 32) -> int:
    """ctypes would cut off a number that is too large."""
    if not 0 <= value < 1 << bits:
        raise errors.InvalidArgument(f"{name} is {value}, which is not from 0 to 2^{bits} - 1")
    return value


def milliseconds(timeout: Optional[float]) -> int:
    """A timeout in seconds for C, where 0 means the default."""
    if timeout is None:
        return 0
    if not 0 < timeout <= 1e9:
        raise errors.InvalidArgument(
            f"timeout is {timeout}; it is a number of seconds above 0, or None for the default")
    return max(1, round(timeout * 1000))
