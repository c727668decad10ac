#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes virtual environments with packages from PyPI, for the tests and benchmarks beside PyTorch:
#
#     sh tests/pytorch/setup.sh [current|newest|clients|peers|torchft ...]
#
#     current  build/pytorch: the PyTorch that the documentation is about. The default
#     newest   build/pytorch-newest: the newest PyTorch
#     clients  build/pytorch-clients: libraries that train with PyTorch, over build/pytorch
#     peers    build/pytorch-peers: DLRover and torchft, beside which benchmarks run, over build/pytorch
#     torchft  build/pytorch-torchft: a newer build of torchft, over build/pytorch
#
# The first run takes some minutes for each. current and newest are 3 GB of downloads and 6 GB of
# disk, clients is 0.6 GB. Later runs do nothing. An environment appears only when it is complete.
set -eu

if [ $# -gt 1 ]; then
    for name; do
        sh "$0" "$name"
    done
    exit 0
fi

build=$(cd "$(dirname "$0")/../.." && pwd)/build
check='import numpy, torch.distributed as d; assert d.is_gloo_available()'
below= # The folder of build/ whose packages the environment also has.
case ${1:-current} in
    current)
        venv=$build/pytorch
        packages="torch==2.14.1 numpy==2.4.6 safetensors==0.8.0 py-spy==0.4.1"
        disk_kb=9000000 # The environment, and pip's temporary files.
        ;;
    newest)
        venv=$build/pytorch-newest
        packages="torch==2.15.0 numpy==2.4.6 safetensors==0.8.0"
        disk_kb=9000000
        ;;
    clients)
        sh "$0" current
        venv=$build/pytorch-clients
        packages="accelerate==1.15.0 lightning==2.6.6 transformers==5.24.0 deepspeed==0.19.8
                  scikit-learn==1.9.1"
        disk_kb=1500000
        check='import accelerate, lightning, transformers, sklearn'
        below=pytorch
        ;;
    peers)
        sh "$0" current
        venv=$build/pytorch-peers
        packages="dlrover==0.6.1 grpcio==1.85.3 torchft==0.2.0"
        disk_kb=500000
        check='from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer'
        below=pytorch
        ;;
    torchft)
        sh "$0" current
        venv=$build/pytorch-torchft
        packages="torchft-nightly==2026.10.26"
        disk_kb=500000
        check='from torchft import Manager'
        below=pytorch
        ;;
    *)
        echo "pytorch: unknown environment '$1'; one of current, newest, clients, peers, torchft" >&2
        exit 2
        ;;
esac
part=$venv.part
log=$venv.log

fail() {
    echo "pytorch: $1" >&2
    exit 1
}

is_complete() {
    [ -x "$1/bin/python" ] && "$1/bin/python" - $packages >/dev/null 2>&1 <<'END'
import sys
from importlib.metadata import version
wanted = [word.split("==") for word in sys.argv[1:]]
sys.exit(any(version(name).split("+")[0] != release for name, release in wanted))
END
}

is_complete "$venv" && exit 0

python=
for candidate in "${PYTHON:-}" ${below:+"$build/$below/bin/python"} /usr/bin/python3 python3; do
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
    exec 9>"$venv.lock"
    flock -w 1800 9 || fail "another $0 has been at work for half an hour; see $log"
    is_complete "$venv" && exit 0
fi

echo "pytorch: making $venv with" $packages": some minutes, once"
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
# Packages that are built from source find PyTorch only without isolation.
isolation=
if [ -n "$below" ]; then
    site() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
    site "$build/$below/bin/python" >"$(site "$part/bin/python")/below.pth"
    isolation=--no-build-isolation
    run "$part/bin/python" -m pip install --no-input wheel setuptools ninja ||
        fail "pip could not install build tools; see $log"
fi
run "$part/bin/python" -m pip install --no-input $isolation $packages ||
    fail "pip could not install" $packages"; see $log"
run "$part/bin/python" -c "$check" || fail $packages "do not work under $python; see $log"

# The scripts in bin/ contain the absolute path of the interpreter.
grep -rlI "$part" "$part/bin" "$part/pyvenv.cfg" | while IFS= read -r file; do
    sed -i "s|$part|$venv|g" "$file"
done
rm -rf "$venv"
mv "$part" "$venv"
rm -f "$log"
echo "pytorch: done: $("$venv/bin/python" --version)," $packages
