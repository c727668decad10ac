#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the wheel of `make wheel`, or of a release, into clean environments of every Python here, and
# runs it there:
#
#     sh tests/python/wheel_test.sh build/wheel
#     sh tests/python/wheel_test.sh build/release-VERSION
#
# With NumPy where pip can get it. Ends with code 77 where there is no wheel.
set -eu

folder=$(cd "$1" 2>/dev/null && pwd) || folder=
wheel=$(ls "$folder"/regroup-*_"$(uname -m)".whl 2>/dev/null || true)
if [ -z "$wheel" ]; then
    echo "skipped: there is no wheel in $1; run make wheel"
    exit 77
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
tools=${REGROUP_WHEEL_TOOLS:-$root/build/wheel/tools}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH REGROUP_LIBRARY

fail() {
    echo "wheel_test: $1" >&2
    exit 1
}

# The tag is true, the files that a wheel must have are there, and none that it must not have.
"$tools/bin/auditwheel" show "$wheel" | tr -s '\n' ' ' |
    grep -q "consistent with the following platform tag: \"manylinux_2_34_$(uname -m)\"" ||
    fail "auditwheel does not find $wheel consistent with manylinux_2_34"
contents=$("$tools/bin/python" -m zipfile -l "$wheel")
for file in regroup/py.typed regroup/libregroup.so scripts/regroup \
    data/lib/regroup/libnccl-profiler-regroup.so licenses/LICENSE \
    licenses/NOTICE THIRD_PARTY_LICENSES.txt; do
    case $contents in *"$file"*) ;; *) fail "$wheel has no $file" ;; esac
done
case $contents in *torchrun*) fail "$wheel has a torchrun" ;; esac

cat >"$work/groups.py" <<'END'
import array
import sys

import regroup

group = regroup.ProcessGroup.create("cpu", timeout=60)
values = array.array("d", [group.rank + 1])
group.all_reduce(values)
print(f"rank {group.rank} of {group.world_size}: {values[0]:.0f}, regroup {regroup.__version__}")
assert regroup.__file__.startswith(sys.prefix), regroup.__file__
END
# The first program of the page, which needs NumPy, without its pauses.
sed -n '/^```python$/,/^```$/p' "$root/docs/python.md" |
    sed '/^```$/q; /^```/d; s/time.sleep(0.02)/time.sleep(0)/' | sed '$d' >"$work/training.py"

# job PROGRAM WORDS: runs it on two ranks, of which each must say the words.
job() {
    (cd "$work" && PATH="$work/environment/bin:$PATH" timeout 60 \
        regroup run --standalone --nproc-per-node=2 python "$work/$1" >"$work/log" 2>&1) ||
        fail "$python: $1 failed: $(cat "$work/log")"
    [ "$(grep -c "$2" "$work/log")" -eq 2 ] || fail "$python: $1 said: $(cat "$work/log")"
}

tested=
for python in /usr/bin/python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin/python3; do
    "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null ||
        continue
    "$python" -m venv --clear "$work/environment"
    bin=$work/environment/bin
    "$bin/pip" install -q --no-index "$wheel"
    job groups.py 'of 2: 3, regroup'
    "$bin/regroup" version >"$work/version"
    "$bin/python" -m regroup version | cmp - "$work/version"
    "$bin/python" -m regroup install-torchrun >/dev/null
    "$bin/torchrun" --help | grep -q nproc-per-node
    "$bin/python" -m regroup install-torchrun --remove >/dev/null
    with=
    if "$bin/pip" install -q --only-binary=:all: numpy 2>"$work/log"; then
        job training.py 'y = 3.000 x + 1.000'
        with=" and NumPy"
    fi
    "$bin/pip" uninstall -q -y regroup
    ls "$bin" | grep -E 'regroup|torchrun' && fail "$python: left behind by the wheel"
    tested="$tested $("$python" -c 'import platform; print(platform.python_version())')$with,"
done
[ -n "$tested" ] || fail "no Python 3.9 or newer with venv here"
echo "wheel_test: passed on Python${tested%,}"
