#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds what a release consists of, from the commit HEAD and nothing else of this folder:
#
#     artefacts.sh FOLDER [ARCHITECTURE...]
#
# FOLDER/tree gets the sources of the commit and is built, for this machine and each ARCHITECTURE
# (`make wheel ARCH=ARCHITECTURE`). FOLDER/out gets the source archive, the source distribution for
# Python, the wheels and the Debian packages, and FOLDER/origins says which folder of ninja each file
# with programs comes from. The same commit gives the same bytes, in whatever folder and whenever it is
# built, if the compilers and libraries are the same. A second call for the same commit does nothing.
set -eu
umask 022
cd "$(dirname "$0")/.."

mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
commit=$(git rev-parse --verify 'HEAD^{commit}')
if [ "$(cat "$folder/built" 2>/dev/null)" = "$commit $*" ]; then
    exit 0
fi
version=$(sed -n 's/^project(regroup VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
SOURCE_DATE_EPOCH=$(git show -s --format=%ct "$commit")
# Python's tools are the same in each tree, and need not be downloaded for each.
REGROUP_WHEEL_TOOLS=${REGROUP_WHEEL_TOOLS:-$PWD/build/wheel/tools}
export SOURCE_DATE_EPOCH REGROUP_WHEEL_TOOLS TZ=UTC LC_ALL=C.UTF-8

rm -rf "$folder/tree" "$folder/out" "$folder/built"
mkdir -p "$folder/tree" "$folder/out"
git archive --format=tar --prefix="regroup-$version/" "$commit" |
    gzip -9n >"$folder/out/regroup-$version-source.tar.gz"
tar -xzf "$folder/out/regroup-$version-source.tar.gz" -C "$folder/tree" --strip-components=1

make -C "$folder/tree" package
make -C "$folder/tree" wheel
for architecture in "$@"; do
    make -C "$folder/tree" package wheel ARCH="$architecture"
done
find "$folder/tree/build" \( -path '*/packages/*regroup*.deb' -o -path '*/wheel*/regroup-*.whl' \
    -o -path '*/wheel*/regroup-*.tar.gz' \) -type f \
    -not -path '*/_CPack_Packages/*' -not -path '*/raw/*' | sort | while read -r file; do
    cp "$file" "$folder/out/"
    case $file in
        *.deb) echo "${file##*/} ${file%/packages/*}" ;;
        *.whl) echo "${file##*/} ${file%/*}/tree" ;;
    esac
done >"$folder/origins"
echo "$commit $*" >"$folder/built"
