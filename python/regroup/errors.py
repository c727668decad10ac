# SPDX-License-Identifier: Apache-2.0
"""The exceptions, one class for each code of failure of the C interface."""
from __future__ import annotations

from typing import ClassVar, Dict, Type


class Error(RuntimeError):
    """A failure of regroup. ``code`` is the number of its kind; its text is for people. Programs of
    PyTorch expect a RuntimeError."""

    code: ClassVar[int] = 7


class InvalidArgument(Error, ValueError):
    """The request is wrong; repeating it can never succeed."""

    code = 1


class DeadlineExceeded(Error, TimeoutError):
    """No answer in time. The operation may or may not have happened."""

    code = 2


class Disconnected(Error, ConnectionError):
    """The peer or the connection is gone. Leave the round."""

    code = 3


class Overloaded(Error):
    """The peer cannot serve now. Try again after a wait."""

    code = 4


class Fenced(Error):
    """The round is over. Join the next one."""

    code = 5


class Closed(Error):
    """The job has ended. There is no next round."""

    code = 6


class SystemFailure(Error, OSError):
    """The operating system refused, or memory ran out."""

    code = 7


_CLASSES: Dict[int, Type[Error]] = {
    kind.code: kind
    for kind in (InvalidArgument, DeadlineExceeded, Disconnected, Overloaded, Fenced, Closed,
                 SystemFailure)
}


def of_code(code: int, text: str) -> Error:
    return _CLASSES.get(code, SystemFailure)(text)
