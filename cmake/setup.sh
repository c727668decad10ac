#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian 12 packages that a task needs and this machine lacks:
#
#     sh cmake/setup.sh build|test|browser|pytorch|sanitize|lint|bench|docs|package|package-test|wheel|arm
#
# Asks no question and is silent when everything is there. On another system it only checks for the
# tools and says what is missing.
set -eu

task=${1:-build}
unpack_servers=
unpack_libraries=

tools="clang++-19 ld.lld-19 cmake ninja"
libraries="libboost1.81-dev libsqlite3-dev nlohmann-json3-dev libeigen3-dev libgtest-dev libgmock-dev
           libhwloc-dev libxxhash-dev libsodium-dev libssl-dev libncurses-dev"
packages="clang-19 lld-19 llvm-19 cmake ninja-build make $libraries"
case $task in
    build) ;;
    test)
        # PyTorch is the larger part: 224 MB of downloads, 936 MB of disk.
        tools="$tools ip ps python3"
        packages="$packages iproute2 nftables procps python3-torch libtorch-dev pkg-config gdb
                  elfutils openssl systemd python3-jsonschema python3-yaml openssh-client libwrap0"
        unpack_servers=yes
        ;;
    browser)
        # Chromium: 100 MB of downloads, 400 MB of disk.
        tools="$tools ps python3 chromium"
        packages="$packages procps python3 chromium fonts-dejavu-core"
        ;;
    pytorch)
        tools="$tools ip ps python3"
        packages="$packages iproute2 procps python3-torch python3-venv"
        ;;
    sanitize)
        tools="$tools ip ps g++"
        packages="$packages iproute2 nftables procps libclang-rt-19-dev g++"
        ;;
    lint)
        tools="$tools clang-tidy-19 clang-format-19"
        packages="$packages clang-tidy-19 clang-format-19"
        ;;
    bench)
        packages="$packages python3-torch openmpi-bin libopenmpi-dev iproute2 nftables valgrind
                  binutils"
        ;;
    docs)
        tools="$tools doxygen"
        packages="$packages doxygen"
        ;;
    package)
        # CPack reads from programs which packages they depend on.
        tools="$tools dpkg-deb dpkg-shlibdeps file objdump strip gzip"
        packages="$packages dpkg-dev file binutils gzip"
        ;;
    package-test)
        tools="$tools dpkg-deb debootstrap"
        packages="$packages dpkg-dev debootstrap"
        ;;
    wheel)
        tools="$tools python3"
        packages="$packages python3-venv"
        ;;
    arm)
        # For the packages too: QEMU runs the tests, and CPack reads foreign programs with binutils.
        tools="$tools qemu-aarch64 dpkg-deb dpkg-shlibdeps file aarch64-linux-gnu-objdump gzip python3"
        packages="$packages qemu-user dpkg-dev file binutils-aarch64-linux-gnu gzip python3-venv"
        unpack_libraries=yes
        ;;
    *)
        echo "setup: unknown task '$task'; one of build, test, browser, pytorch, sanitize, lint, bench," \
             "docs, package, package-test, wheel, arm" >&2
        exit 2
        ;;
esac

release=unknown
if [ -r /etc/os-release ]; then
    release=$(. /etc/os-release && echo "$ID-${VERSION_ID:-rolling}")
fi

if [ "$release" != debian-12 ]; then
    missing=
    for tool in $tools; do
        command -v "$tool" >/dev/null || missing="$missing $tool"
    done
    if [ -n "$unpack_libraries" ] && [ ! -e build/tools/aarch64 ]; then
        missing="$missing build/tools/aarch64 (Debian's libraries for arm64)"
    fi
    if [ -n "$missing" ]; then
        echo "setup: this is $release, not debian-12, and these tools are missing:$missing" >&2
        echo "setup: install what Debian 12 calls:" $packages >&2
        exit 1
    fi
    exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $packages 2>/dev/null || true)
missing=
for package in $packages; do
    case "
$installed
" in
        *"
installed $package
"*) ;;
        *) missing="$missing $package" ;;
    esac
done

# Tests start an etcd, a Prometheus and an sshd of their own. Installing Debian's would start them
# as services of this machine, so their packages are only unpacked, beside the builds. Prometheus:
# 19 MB of downloads, 96 MB of disk.
get_servers() {
    [ -n "$unpack_servers" ] || return 0
    unpack etcd etcd-server
    unpack prometheus prometheus
    unpack sshd openssh-server
    # Slurm: 3 MB of downloads, 13 MB of disk. The last one is what is looked for.
    for package in libmunge2 munge slurm-wlm-basic-plugins slurm-client slurmd slurmctld; do
        unpack slurmctld-wlm "$package"
    done
}
unpack() {
    if command -v "$1" >/dev/null || [ -x "build/tools/usr/bin/$1" ] ||
        [ -x "build/tools/usr/sbin/$1" ]; then
        return 0
    fi
    mkdir -p build/tools
    if (cd build/tools && apt-get download "$2" && dpkg-deb -x "$2"_*.deb .) \
        >build/tools/log 2>&1; then
        rm -f build/tools/"$2"_*.deb
    else
        echo "setup: no $2 (see build/tools/log); its tests will be left out" >&2
    fi
}
get_libraries() {
    # shellcheck disable=SC2086
    [ -z "$unpack_libraries" ] || sh cmake/aarch64.sh $libraries libstdc++-12-dev libc6-dev python3
}
if [ -z "$missing" ]; then
    get_servers
    get_libraries
    exit 0
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "setup: missing:$missing" >&2
        echo "setup: installing needs root or sudo, and there is neither; run as root:" >&2
        echo "    apt-get install --no-install-recommends$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

echo "setup: installing Debian packages:$missing"
case $missing in
    *libboost1.81-dev*) echo "setup: (libboost1.74-dev, if installed, makes room for 1.81)" ;;
esac

# Quiet unless it fails. Waits up to five minutes for another apt to finish.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get() {
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -o DPkg::Lock::Timeout=300 "$@" \
        >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        echo "setup: 'apt-get $*' failed; its output is above" >&2
        return 1
    fi
}
apt_get update || echo "setup: going on with the package lists that are here" >&2
apt_get install --no-install-recommends $missing
get_servers
get_libraries
echo "setup: done"
