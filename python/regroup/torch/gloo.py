# SPDX-License-Identifier: Apache-2.0
"""The connections of gloo's groups in this process.

gloo cannot release a rank that waits in an operation: ``abort`` of its groups does nothing (PyTorch
2.14), and a rank that does not itself talk with a dead one waits until its timeout. Its operations
fail at once when shutdown(2) has ended their connections. Each group watches its own connections,
also those that it makes later, through an epoll descriptor of its own. /proc/self/fdinfo says what
an epoll descriptor watches.

When a connection ends in the middle of a message, gloo does not tell the operation that waits for
the rest. So connections of living ranks are shut down only when gloo's own threads have moved all
messages. gloo leaves a message alone whose operation has failed here. Its sender waits for that, so
this module reads the rest. An operation that has got a part of a message from a dead rank waits
until its timeout.
"""
from __future__ import annotations

import array
import contextlib
import fcntl
import functools
import os
import re
import socket
import stat
import termios
import threading
import time
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Set

from torch._C import _distributed_c10d as c10d

from ..errors import Fenced, InvalidArgument
from .releasable import ReleasableCalls

#: How long a connection of a round that is over must be idle before it is shut down, after how long
#: gloo reads no more, how long it all may take, and how often to look.
_IDLE_S = 0.01
_UNREAD_S = 0.25
_LIMIT_S = 1.0
_LOOK_S = 0.002
_PART = 1 << 24  # Bytes to read at once.
_SIOCOUTQNSD = 0x894B  # Of linux/sockios.h: how many bytes have not been sent.

_WATCHED = re.compile(r"^tfd:\s*(\d+).*?(?:\bino:([0-9a-f]+).*)?$", re.MULTILINE)


class _Device(NamedTuple):
    """The part of gloo that watches the connections of a group. Its sockets identify it, since the
    numbers of descriptors are used again."""

    epoll: int  # A descriptor.
    sockets: FrozenSet[int]  # The inodes of those that it watched when the group was made.


class Connections:
    """The connections of the groups that are made through ``make``."""

    def __init__(self) -> None:
        self._calls = ReleasableCalls("regroup-gloo")
        self._lock = threading.Lock()
        self._devices: List[_Device] = []  # Guarded by _lock.
        self._is_released = False  # Guarded by _lock.

    def make(self, construct: Callable[[], None]) -> None:
        """Calls ``construct``, which makes a group. Raises Fenced as soon as ``release`` is called:
        nothing else would end a wait for a peer that does not connect but gloo's own limit, which
        is 30 s."""
        with _making:
            before = _epolls()
            self._calls.make(construct)
            with self._lock:
                if self._is_released:
                    raise Fenced("the round is over")
                made = [device for device in map(_device, _epolls() - before) if device is not None]
                self._devices += made
            if not made:
                raise InvalidArgument(
                    "this group of gloo has no connections that Linux shows in /proc/self/fdinfo, "
                    "so nothing could release a rank that waits in it: use gloo's transport \"tcp\" "
                    "(unset GLOO_DEVICE_TRANSPORT)")

    def release(self) -> None:
        """Ends all connections, so that operations fail on this rank, now and in future. Takes some
        10 ms, or a second if messages do not arrive. Any thread; may be repeated."""
        self._calls.release()
        with self._lock:
            self._is_released = True
            devices = list(self._devices)
        _shut_down(devices)


#: The owner of the groups that this process makes now.
_owner: Optional[Connections] = None
#: Only one group is made at a time, so that the new descriptors are its own.
_making = threading.Lock()


def own_groups_of(owner: Optional[Connections]) -> None:
    """Groups of gloo that any call in this process makes from now on belong to ``owner``."""
    global _owner
    _owner = owner
    if owner is not None and not hasattr(c10d.ProcessGroupGloo.__init__, "__wrapped__"):
        c10d.ProcessGroupGloo.__init__ = _owned(c10d.ProcessGroupGloo.__init__)


def _owned(construct: Callable[..., None]) -> Callable[..., None]:
    # PyTorch makes groups in several places, and none of them can be told a device.
    @functools.wraps(construct)
    def construct_owned(*arguments: Any, **options: Any) -> None:
        if _owner is None:
            construct(*arguments, **options)
        else:
            _owner.make(lambda: construct(*arguments, **options))

    return construct_owned


def _epolls() -> Set[int]:
    """The epoll descriptors of this process."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == "anon_inode:[eventpoll]":
                found.add(int(name))
        except OSError:
            pass  # It has been closed meanwhile.
    return found


def _watched(epoll: int) -> Dict[int, Optional[int]]:
    """The descriptors that it watches, and their inodes, which Linux 4.13 and newer show."""
    try:
        with open(f"/proc/self/fdinfo/{epoll}", encoding="ascii") as file:
            text = file.read()
    except OSError:
        return {}
    return {int(number): int(inode, 16) if inode else None
            for number, inode in _WATCHED.findall(text)}


def _sockets(epoll: int) -> Optional[List[socket.socket]]:
    """Duplicates of the sockets that the epoll descriptor watches. None if it is not gloo's, which
    watches TCP sockets and a pipe only."""
    found: List[socket.socket] = []
    others = 0
    for number, inode in _watched(epoll).items():
        try:
            own = os.dup(number)
        except OSError:
            continue
        status = os.fstat(own)
        if inode is not None and status.st_ino != inode:
            os.close(own)  # The number means another file by now.
        elif stat.S_ISSOCK(status.st_mode):
            found.append(socket.socket(fileno=own))
            others += found[-1].family not in (socket.AF_INET, socket.AF_INET6)
        else:
            os.close(own)
            others += not stat.S_ISFIFO(status.st_mode)
    if others:
        _close(found)
        return None
    return found


def _close(connections: List[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def _inode(connection: socket.socket) -> int:
    return os.fstat(connection.fileno()).st_ino


def _device(epoll: int) -> Optional[_Device]:
    found = _sockets(epoll)
    if found is None:
        return None
    try:
        return _Device(epoll, frozenset(map(_inode, found)))
    finally:
        _close(found)


def _is_idle(connection: socket.socket) -> bool:
    """Whether nothing waits in the kernel to be sent or to be read."""
    place = array.array("i", [0])
    for question in (termios.FIONREAD, _SIOCOUTQNSD):
        fcntl.ioctl(connection.fileno(), question, place)
        if place[0] != 0:
            return False
    return True


def _shut_down(devices: List[_Device]) -> None:
    """Ends each connection when it has been idle for a while, at the latest after a limit."""
    began = time.monotonic()
    idle_from: Dict[int, float] = {}  # By inode.
    ended: Set[int] = set()
    while True:
        others = 0
        now = time.monotonic()
        for connection in _connections(devices):
            with connection:
                inode = _inode(connection)
                if inode in ended:
                    continue
                if not _is_idle(connection):
                    idle_from.pop(inode, None)
                    if now - began > _UNREAD_S:
                        with contextlib.suppress(OSError):  # Nothing to read; or it has ended.
                            connection.recv(_PART, socket.MSG_DONTWAIT)
                if (now - began < _LIMIT_S
                        and now - idle_from.setdefault(inode, now) < _IDLE_S):
                    others += 1
                    continue
                ended.add(inode)
                with contextlib.suppress(OSError):  # It has ended already.
                    connection.shutdown(socket.SHUT_RDWR)
        if others == 0:
            return
        time.sleep(_LOOK_S)


def _connections(devices: List[_Device]) -> List[socket.socket]:
    """Duplicates of the connections that the devices watch now, without listening sockets."""
    connections: List[socket.socket] = []
    for device in devices:
        found = _sockets(device.epoll) or []
        # Otherwise the group has ended, and the descriptor is another one's.
        is_device = not device.sockets.isdisjoint(map(_inode, found))
        for each in found:
            if is_device and each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0:
                connections.append(each)
            else:
                each.close()
    return connections
