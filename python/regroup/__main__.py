# SPDX-License-Identifier: Apache-2.0
"""``python -m regroup`` is the launcher; ``python -m regroup install-torchrun`` is Python's own."""
import os
import sys

from ._launcher import find, install_torchrun


def main() -> int:
    if sys.argv[1:2] == ["install-torchrun"]:
        return install_torchrun(sys.argv[2:])
    program = find()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
