#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the files of a release twice from the commit HEAD, in two folders, and compares them byte by byte:
#
#     reproducible.sh [ARCHITECTURE...]
#
# One folder is that of `make release`, which is not built again. If something differs, this names it, down to the
# member of an archive, and ends with exit code 1.
set -eu
cd "$(dirname "$0")/.."

one=build/release-work
other=build/release-check/at/another/place
sh cmake/artefacts.sh "$one" "$@"
sh cmake/artefacts.sh "$other" "$@"
python3 cmake/compare.py "$one/out" "$other/out"
echo "release-check: both builds have the same bytes"
