#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes build/pytorch, a virtual environment with a current PyTorch from PyPI, for the tests and
# benchmarks beside it:
#
#     sh tests/pytorch/setup.sh
#
# The first run takes some minutes, 3 GB of downloads and 6 GB of disk. Later runs do nothing. The
# environment appears only when it is complete.
set -eu

torch=2.14.1
numpy=2.4.6
disk_kb=9000000 # The environment, and pip's temporary files.

build=$(cd "$(dirname "$0")/../.." && pwd)/build
venv=$build/pytorch
part=$build/pytorch.part
log=$build/pytorch.log

fail() {
    echo "pytorch: $1" >&2
    exit 1
}

is_complete() {
    [ -x "$1/bin/python" ] && "$1/bin/python" - "$torch" "$numpy" >/dev/null 2>&1 <<'END'
import sys
from importlib.metadata import version
sys.exit([version("torch").split("+")[0], version("numpy")] != sys.argv[1:])
END
}

is_complete "$venv" && exit 0

python=
for candidate in "${PYTHON:-}" /usr/bin/python3 python3; do
    if [ -n "$candidate" ] && "$candidate" -c \
        'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] ||
    fail "no Python 3.11 or newer with venv and ensurepip here; on Debian: apt-get install python3-venv"

mkdir -p "$build"
free_kb=$(df -Pk "$build" | awk 'NR == 2 { print $4 }')
[ "$free_kb" -ge "$disk_kb" ] ||
    fail "$build has $((free_kb / 1000)) MB left, and $((disk_kb / 1000)) MB are needed"

# Only one process builds it. Processes that waited find it complete.
if command -v flock >/dev/null; then
    exec 9>"$build/pytorch.lock"
    flock -w 1800 9 || fail "another $0 has been at work for half an hour; see $log"
    is_complete "$venv" && exit 0
fi

echo "pytorch: making $venv with PyTorch $torch: some minutes and 6 GB, once"
rm -rf "$part"
: >"$log"

# In the background, since a shell handles no signals while it waits for a foreground command.
child=
run() {
    "$@" >>"$log" 2>&1 </dev/null 9>&- &
    child=$!
    wait "$child"
}
interrupted() {
    trap '' INT TERM HUP
    [ -z "$child" ] || { kill "$child" 2>/dev/null && wait "$child"; } || true
    fail "interrupted; nothing is left behind"
}
trap 'rm -rf "$part"' EXIT
trap interrupted INT TERM HUP

run "$python" -m venv "$part" || fail "$python -m venv failed; see $log"
run "$part/bin/python" -m pip install --no-input "torch==$torch" "numpy==$numpy" ||
    fail "pip could not install torch==$torch; see $log"
run "$part/bin/python" -c 'import numpy, torch.distributed as d; assert d.is_gloo_available()' ||
    fail "PyTorch $torch does not work under $python; see $log"

# The scripts in bin/ contain the absolute path of the interpreter.
grep -rlI "$part" "$part/bin" "$part/pyvenv.cfg" | while IFS= read -r file; do
    sed -i "s|$part|$venv|g" "$file"
done
rm -rf "$venv"
mv "$part" "$venv"
rm -f "$log"
echo "pytorch: done: $("$venv/bin/python" --version), PyTorch $torch"
