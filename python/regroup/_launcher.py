# SPDX-License-Identifier: Apache-2.0
"""The launcher that the wheel installs beside the interpreter, and its name torchrun."""
from __future__ import annotations

import os
import pathlib
import shutil
import sys
import sysconfig
from typing import Iterator, List

_PROGRAM = "regroup"
_ALIAS = "torchrun"
_ASIDE = "torchrun.before-regroup"

_USAGE = """Usage: python -m regroup install-torchrun [--remove]

Puts a link called torchrun, which leads to regroup, into this virtual environment.
A torchrun that is there, PyTorch's for instance, is kept as torchrun.before-regroup;
--remove puts it back."""


def _places() -> Iterator[pathlib.Path]:
    package = pathlib.Path(__file__).resolve().parent
    yield pathlib.Path(sysconfig.get_path("scripts"))
    yield pathlib.Path(sysconfig.get_path("scripts", f"{os.name}_user"))
    yield pathlib.Path(sys.executable).parent
    yield package.parent / "bin"  # pip install --target
    yield package.parent.parent / "build" / "release" / "launcher"  # A source tree.


def find() -> str:
    for place in _places():
        program = place / _PROGRAM
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    found = shutil.which(_PROGRAM)
    if found is None:
        raise FileNotFoundError(f"regroup: the launcher is neither beside {sys.executable} nor on "
                                f"the PATH; install the wheel again")
    return found


def install_torchrun(arguments: List[str]) -> int:
    if arguments not in ([], ["--remove"]):
        print(_USAGE, file=sys.stdout if arguments == ["--help"] else sys.stderr)
        return 0 if arguments == ["--help"] else 2
    if sys.prefix == sys.base_prefix:
        print("regroup: install-torchrun changes virtual environments alone, and this is none",
              file=sys.stderr)
        return 1
    folder = pathlib.Path(sysconfig.get_path("scripts"))
    alias, aside = folder / _ALIAS, folder / _ASIDE
    ours = alias.is_symlink() and os.readlink(alias) == _PROGRAM
    if arguments == ["--remove"]:
        if not ours:
            print(f"regroup: {alias} does not lead to regroup; nothing was changed")
            return 0
        if aside.exists():
            os.replace(aside, alias)
        else:
            alias.unlink()
        print(f"regroup: {alias} is as before")
        return 0
    if not (folder / _PROGRAM).is_file():
        print(f"regroup: there is no {folder / _PROGRAM}; install regroup's wheel into this "
              f"environment first", file=sys.stderr)
        return 1
    if not ours:
        if os.path.lexists(alias):
            os.replace(alias, aside)
        alias.symlink_to(_PROGRAM)
    print(f"regroup: {alias} leads to regroup; --remove undoes it")
    return 0
