#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unpacks the packages or the wheel for aarch64, looks at what is in them, and runs a job with them:
#
#     sh tests/support/with_qemu.sh sh tests/embedding/arm_test.sh build/package-arm|build/wheel-aarch64
#
# Ends with code 77 where there are none.
set -eu

libraries=$(cd "$(dirname "$0")/../.." && pwd)/build/tools/aarch64
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "arm_test: $*" >&2
    exit 1
}

newest=GLIBC_2.36 # Debian 12
for file in "$1"/packages/*.deb "$1"/regroup-*.whl; do
    case $file in
        *'*'*) ;;
        *.deb)
            [ "$(dpkg-deb -f "$file" Architecture)" = arm64 ] || fail "$file is not for arm64"
            echo "arm_test: $(basename "$file"): $(dpkg-deb -f "$file" Depends)"
            dpkg-deb -x "$file" "$work"
            ;;
        *.whl)
            newest=GLIBC_2.34 # manylinux_2_34
            python3 -m zipfile -e "$file" "$work"
            ;;
    esac
done
regroup=$(find "$work" -path '*/bin/regroup' -o -path '*/scripts/regroup')
library=$(find "$work" -name 'libregroup*.so*' -type f)
[ -n "$regroup" ] && [ -n "$library" ] || { echo "skipped: nothing for aarch64 in $1"; exit 77; }
chmod +x "$regroup"

# Whatever runs must be of aarch64, and need no newer C library than there is.
for file in "$regroup" "$library"; do
    file -b "$file" | grep -q 'ELF 64-bit LSB.*ARM aarch64' || fail "$file: $(file -b "$file")"
    version=$(aarch64-linux-gnu-objdump -T "$file" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
    needed=$(aarch64-linux-gnu-objdump -p "$file" | sed -n 's/.*NEEDED *//p' | tr '\n' ' ')
    echo "arm_test: $(basename "$file"): $version, $needed"
    [ "$(printf '%s\n' "$version" "$newest" | sort -V | tail -n 1)" = "$newest" ] ||
        fail "$file needs $version"
done
echo "arm_test: $("$regroup" version | head -n 1)"

cat >"$work/groups.py" <<'END'
import array
import platform

import regroup

group = regroup.ProcessGroup.create("cpu", timeout=60)
values = array.array("d", [group.rank + 1])
group.all_reduce(values)
print(f"{platform.machine()}: rank {group.rank} of {group.world_size}: {values[0]:.0f}")
END
# job WORDS COMMAND...: runs it on two ranks, of which each must say the words.
job() {
    words=$1
    shift
    (cd "$work" && timeout 120 "$regroup" run --standalone --nproc-per-node=2 "$@" >log 2>&1) ||
        fail "$* failed: $(cat "$work/log")"
    [ "$(grep -c "$words" "$work/log")" -eq 2 ] || fail "$* said: $(cat "$work/log")"
}
job 'rank [01] of 2' sh -c 'echo "rank $RANK of $WORLD_SIZE"'
# Debian's Python for arm64, with the Python package if this is a wheel.
if [ -d "$work/regroup" ]; then
    job 'aarch64: rank [01] of 2: 3' \
        env PYTHONHOME="$libraries/usr" PYTHONPATH="$work" "$libraries/usr/bin/python3" groups.py
fi
echo "arm_test: passed"
