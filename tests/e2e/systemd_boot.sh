#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Boots a real systemd that shares nothing but files with this machine:
#
#     systemd_boot.sh FOLDER UNITS PROGRAM...
#
# It is process 1 of namespaces of its own, below a control group of its own. Files that it and its
# services write are in memory, except for FOLDER, which they share with the caller. It knows only
# the units of the folder UNITS, and empty targets. The programs are in its /usr/local/bin. Ends
# when it is killed. Needs root. Exit code 77: something that this takes is missing.
set -eu
missing() {
    echo "no systemd can be booted here: $*"
    exit 77
}
mount() {
    command mount "$@" || missing "mount $* is not allowed"
}

if [ "${1:-}" != --inside ]; then
    [ "$(id -u)" -eq 0 ] || missing "this needs root"
    [ -x /lib/systemd/systemd ] || missing "there is no /lib/systemd/systemd"
    tree=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [ -n "$tree" ] || missing "no cgroup2 is mounted"
    group=$tree$(sed -n 's/^0:://p' /proc/self/cgroup)/regroup-test-$$
    mkdir "$group" 2>/dev/null || missing "no control group can be made in $tree"
    echo "control group $group"
    echo $$ >"$group/cgroup.procs"
    unshare --pid --mount --cgroup --uts --ipc --net --fork true 2>/dev/null ||
        missing "no namespaces can be made"
    exec unshare --pid --mount --cgroup --uts --ipc --net --fork --kill-child sh "$0" --inside "$@"
fi

shift
folder=$1
units=$2
shift 2
mount --make-rprivate /
stage=$folder/systemd
mkdir "$stage"
mount -t tmpfs tmpfs "$stage"
root=$stage/root
mkdir "$stage/upper" "$stage/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$stage/upper,workdir=$stage/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount --rbind /dev "$root/dev"
for place in run tmp var/tmp etc/regroup usr/local/bin; do
    mkdir -p "$root/$place"
    mount -t tmpfs tmpfs "$root/$place"
done
cp "$@" "$root/usr/local/bin/"
mkdir "$root/run/units" "$root/old"
for target in boot basic local-fs multi-user network-online remote-fs shutdown sockets sysinit; do
    printf '[Unit]\nDefaultDependencies=no\n' >"$root/run/units/$target.target"
done
cp -R "$units/." "$root/run/units/"
mkdir -p "$root$folder"
mount --bind "$folder" "$root$folder"
ip link set lo up
cd "$root"
pivot_root . old
umount -l /old
# Services get their credentials by mounts that propagate.
mount --make-rshared /
exec env -i PATH=/usr/local/bin:/usr/bin:/bin container=regroup-test SYSTEMD_UNIT_PATH=/run/units \
    SYSTEMD_GENERATOR_PATH=/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/none \
    /lib/systemd/systemd --system --unit=boot.target --log-target=console --show-status=no
