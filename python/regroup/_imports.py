# SPDX-License-Identifier: Apache-2.0
"""The imports that a successor of this process needs."""
from __future__ import annotations

import re
import sys

#: Where packages are installed, as opposed to the program's own folder.
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
#: The limit of a message to the agent.
_BYTES_MAX = 12000


def installed_modules() -> str:
    """Modules of installed packages that this process has imported, in that order, with commas
    between. Deep modules are left out: they come with those above them."""
    names = []
    size = 0
    for depth in (1, 2, 3):
        for name, module in list(sys.modules.items()):
            origin = getattr(getattr(module, "__spec__", None), "origin", None)
            is_private = depth == 3 and "._" in name
            if name.count(".") != depth - 1 or is_private or not isinstance(origin, str) \
                    or not _INSTALLED.search(origin) or not re.fullmatch(r"[\w.]+", name, re.A):
                continue
            size += len(name) + 1
            if size > _BYTES_MAX:
                return ",".join(names)
            names.append(name)
    return ",".join(names)
