#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the packages of `make package`, or of a release, into a minimal Debian 12, runs the installed
# programs, builds the out-of-tree project there with Debian's compiler, and removes the packages:
#
#     package_test.sh build/package
#     package_test.sh build/release-VERSION
#
# Of a release the commands of its Containerfile run there, too. Needs root, debootstrap and a Debian
# mirror (REGROUP_DEBIAN_MIRROR names another one); ends with code 77 where one of them is missing. While
# the script runs, the system is in build/package-test/clean_root. Downloads stay in build/package-test/debs.
# Mounts are in a mount namespace, so that they end with the script.
set -eu

if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "skipped: it needs root and debootstrap"
    exit 77
fi
if [ "${REGROUP_PACKAGE_TEST_INSIDE-}" != yes ]; then
    REGROUP_PACKAGE_TEST_INSIDE=yes exec unshare --mount --propagation private --fork \
        --kill-child sh "$0" "$@"
fi

packages=$1
[ ! -d "$1/packages" ] || packages=$1/packages
if ! ls "$packages"/regroup_*_"$(dpkg --print-architecture)".deb >/dev/null 2>&1; then
    echo "skipped: there are no packages in $1 (make package)"
    exit 77
fi
build=$(cd "$(dirname "$0")/../.." && pwd)/build/package-test
sources=$(cd "$(dirname "$0")" && pwd)/out_of_tree
root=$build/clean_root
debs=$build/debs
mirror=${REGROUP_DEBIAN_MIRROR:-http://deb.debian.org/debian}
log=$build/package_test.log

# The mounts end with the last process of the namespace. The tree must not be removed before.
clean_up() {
    for mounted in proc dev/shm dev sys; do
        umount -l "$root/$mounted" 2>/dev/null || true
    done
    rm -rf --one-file-system "$root"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM

say() {
    echo "package test: $*"
}

# Output is shown when a step fails.
quietly() {
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 30 "$log" >&2
        say "failed: $*" >&2
        exit 1
    fi
}

inside() {
    timeout 300 chroot "$root" env -i -C /tmp PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive OMP_NUM_THREADS=1 "$@" </dev/null
}

expect() {
    expected=$1
    shift
    if ! inside "$@" >"$log" 2>&1 || ! grep -qF -- "$expected" "$log"; then
        cat "$log" >&2
        say "'$*' does not say '$expected'" >&2
        exit 1
    fi
    sed 's/^/    /' "$log"
}

clean_up
mkdir -p "$root" "$debs"
say "a clean Debian 12 from $mirror"
quietly timeout 600 debootstrap --variant=minbase --cache-dir="$debs" bookworm "$root" "$mirror"
mount -t proc proc "$root/proc"
mkdir -p "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"

mkdir "$root/packages"
cp "$packages"/*_"$(dpkg --print-architecture)".deb "$root/packages"
cp -r "$sources" "$root/out_of_tree"
# Keeps downloaded packages for the next run.
cp "$debs"/*.deb "$root/var/cache/apt/archives/" 2>/dev/null || true
printf 'Binary::apt::APT::Keep-Downloaded-Packages "true";\nAPT::Keep-Downloaded-Packages "true";\n' \
    >"$root/etc/apt/apt.conf.d/99keep"

say "install regroup, with what it depends on and nothing else"
quietly inside sh -c 'cd /packages && apt-get install -y --no-install-recommends ./regroup_*.deb'
expect "regroup 0." regroup --version
expect "rank 1 of 2" regroup run --standalone --nproc-per-node=2 sh -c 'echo rank $RANK of $WORLD_SIZE'
expect "/usr/lib/regroup/libnccl-profiler-regroup.so" \
    regroup run --standalone --nproc-per-node=1 sh -c 'ls $NCCL_PROFILER_PLUGIN'
expect "ListenStream=29400" cat /usr/lib/systemd/system/regroup-serve.socket
expect "rank 0 of 1" /usr/libexec/regroup/torchrun --standalone --nproc-per-node=1 --no-python \
    sh -c 'echo rank $RANK of $WORLD_SIZE'

if [ -e "$packages/Containerfile" ]; then
    say "run the commands of the Containerfile, which installs what is in its folder"
    sed -n '/^RUN /,/[^\\]$/p' "$packages/Containerfile" | sed 's/^RUN --mount=[^ ]*//' >"$root/recipe"
    quietly inside sh -e /recipe
    expect "libregroup0.1" dpkg-query -W libregroup0.1
    quietly inside apt-get update
fi
say "install libregroup0.1 and libregroup-dev, and Debian's compiler"
quietly inside sh -c \
    'apt-get install -y --no-install-recommends /packages/libregroup*.deb g++ libc6-dev pkg-config'
cp -n "$root"/var/cache/apt/archives/*.deb "$debs" 2>/dev/null || true
say "build and run the program in C"
quietly inside sh -c 'gcc -std=c99 -pedantic -Wall -Werror -o /train_c /out_of_tree/train_c.c \
    $(pkg-config --cflags --libs regroup-c) -lm'
expect "rank 0 of 1: y = 3.00 x + -1.00" /train_c
expect "rank 1 of 2: y = 3.00 x + -1.00" regroup run --standalone --nproc-per-node=2 /train_c
if inside pkg-config --libs regroup | grep -q cudart; then
    say "the program in C++ is left out: this libregroup-dev is to be linked with the CUDA toolkit"
else
    say "build and run the program in C++"
    quietly inside sh -c 'g++ -std=c++20 -Wall -Werror -o /train /out_of_tree/train.cc \
        $(pkg-config --cflags --libs regroup)'
    expect "rank 0 of 1: y = 3.00 x + -1.00" /train
    expect "rank 1 of 2: y = 3.00 x + -1.00" regroup run --standalone --nproc-per-node=2 /train
fi

say "remove them"
quietly inside apt-get purge -y regroup libregroup0.1 libregroup-dev
left=$(inside find / -xdev -name '*regroup*' -not -path '/packages/*' -not -path '/tmp/*' \
    -not -path '/var/*')
if [ -n "$left" ]; then
    say "left behind: $left" >&2
    exit 1
fi
say "passed"
