#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command in whose processes programs for aarch64 start like any others, by QEMU:
#
#     sh tests/support/with_qemu.sh COMMAND [WORD...]
#
# The kernel is told so in a user namespace of the command's own (Linux 6.7), so no other process of
# this machine notices. Its processes end with the command. The libraries are those of `sh cmake/setup.sh arm`. They are mounted where such
# programs look for them: with a prefix QEMU would take other paths for paths below it, too.
set -eu

if [ "${1-}" != --inside ]; then
    exec unshare --user --map-root-user --mount --pid --fork --kill-child --mount-proc \
        sh "$0" --inside "$@"
fi
shift

libraries=$(cd "$(dirname "$0")/../.." && pwd)/build/tools/aarch64
layer=$(mktemp -d)
mount -t tmpfs none "$layer"
mkdir "$layer/aarch64-linux-gnu"
ln -s aarch64-linux-gnu/ld-linux-aarch64.so.1 "$layer/ld-linux-aarch64.so.1"
mount -t overlay none -o "lowerdir=$layer:/usr/lib" /usr/lib
mount -t overlay none -o \
    "lowerdir=$libraries/lib/aarch64-linux-gnu:$libraries/usr/lib/aarch64-linux-gnu" \
    /usr/lib/aarch64-linux-gnu
umount "$layer"
rmdir "$layer"

formats=/proc/sys/fs/binfmt_misc
if ! mount -t binfmt_misc none "$formats" 2>/dev/null; then
    echo "with_qemu: this kernel has no binfmt_misc for a user namespace; that needs Linux 6.7" >&2
    exit 77
fi
# Such a program begins with this: ELF, 64 bits, little endian, executable or shared, aarch64. The
# flags: argv[0] stays, and the interpreter is opened now, for any root that a process may get.
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf '%s' ":aarch64:M::$magic:$mask:$(command -v qemu-aarch64):PF" >"$formats/register"
# As process 1 of its namespace this shell is ended by no signal that it does not handle.
trap 'exit 1' INT TERM
"$@"
