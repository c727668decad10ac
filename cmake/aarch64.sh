#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Unpacks Debian 12's packages for arm64, with all that they depend on, into build/tools/aarch64, for
# cmake/aarch64.cmake: 61 MB of downloads, 460 MB of disk.
#
#     sh cmake/aarch64.sh PACKAGE...
#
# apt has folders of its own here and an empty list of installed packages. So this machine stays as it
# is.
set -eu

root=$PWD/build/tools/aarch64
work=$PWD/build/tools/aarch64-work
[ ! -e "$root" ] || exit 0
echo "setup: getting Debian's libraries for arm64 into build/tools/aarch64"
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/unpacked"
: >"$work/status"
log=$work/log

fail() {
    cat "$log" >&2
    echo "setup: $1 failed; its output is above" >&2
    exit 1
}
arm_apt() {
    apt-get -qy -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Install-Recommends=false \
        -o APT::Sandbox::User=root -o Dir::State="$work" -o Dir::State::status="$work/status" \
        -o Dir::Cache="$work" "$@" >"$log" 2>&1 </dev/null || fail "apt-get $*"
}
arm_apt update
arm_apt --download-only install "$@"

# As dpkg would know them: dpkg-shlibdeps finds there the package of a library, at the path that
# the library has here.
known=$work/unpacked/var/lib/dpkg
mkdir -p "$known/info" "$known/updates"
echo 1 >"$known/info/format"
for file in "$work"/archives/*.deb; do
    name=$(dpkg-deb -f "$file" Package):arm64
    dpkg-deb -x "$file" "$work/unpacked" >"$log" 2>&1 || fail "dpkg-deb -x $file"
    dpkg-deb -f "$file" Package Version Architecture Multi-Arch Maintainer Description
    printf 'Status: install ok installed\n\n'
    dpkg-deb -e "$file" "$work/control"
    for part in symbols shlibs; do
        [ ! -e "$work/control/$part" ] || mv "$work/control/$part" "$known/info/$name.$part"
    done
    rm -rf "$work/control"
    dpkg-deb --fsys-tarfile "$file" | tar -t | sed -n "s|^[.]\(/.*[^/]\)$|$root\1|p" \
        >"$known/info/$name.list"
done >"$known/status"

# An absolute link would lead into this machine's own root.
find "$work/unpacked" -type l -lname '/*' | while IFS= read -r link; do
    ln -snf "$root$(readlink "$link")" "$link"
done
mv "$work/unpacked" "$root"
rm -rf "$work"
