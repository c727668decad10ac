#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the launcher, the SDK's shared library and the elastic example of another release into
# build/versions/NAME/build, once; its sources are then in build/versions/NAME/tree:
#
#     other_release.sh NAME
#
# NAME: a tag, or whatever else git knows as a commit.
set -eu
cd "$(dirname "$0")/../.."

commit=$(git rev-parse --verify --quiet "$1^{commit}") || {
    echo "other_release: git knows no '$1'; name a tag: FROM=$(git describe --tags --abbrev=0 2>/dev/null || echo v0.1.0)" >&2
    exit 2
}
folder=$PWD/build/versions/$1
if [ "$(cat "$folder/commit" 2>/dev/null)" = "$commit" ]; then
    exit 0
fi
rm -rf "$folder"
mkdir -p "$folder/tree"
git archive "$commit" | tar -x -C "$folder/tree"
cd "$folder/tree"
cmake --preset release -B "$folder/build" -DBUILD_TESTING=OFF -DREGROUP_CUDA=OFF >/dev/null
cmake --build "$folder/build" --target regroup elastic regroup_c
echo "$commit" >"$folder/commit"
