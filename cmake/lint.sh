#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Format and static analysis of every source file:
#
#     sh cmake/lint.sh check BUILD_FOLDER JOBS     clang-format and clang-tidy; changes nothing
#     sh cmake/lint.sh format                      rewrites what clang-format would complain about
set -eu

folders="launcher rendezvous agent worker_sdk examples tests"

case ${1:-} in
    format)
        find $folders -name '*.h' -o -name '*.cc' | xargs clang-format-19 -i
        ;;
    check)
        find $folders -name '*.h' -o -name '*.cc' | xargs clang-format-19 --dry-run --Werror
        count=$(find $folders -name '*.cc' | wc -l)
        echo "lint: format is right; clang-tidy over $count files"
        # clang-tidy counts the warnings that it suppressed on stderr; findings are on stdout.
        find $folders -name '*.cc' | sort |
            xargs -P "$3" -n 1 sh -c 'clang-tidy-19 --quiet -p "$0" "$1" 2>/dev/null ||
                { echo "lint: $1 has findings" >&2; exit 1; }' "$2"
        echo "lint: clean"
        ;;
    *)
        echo "usage: sh cmake/lint.sh check BUILD_FOLDER JOBS | format" >&2
        exit 2
        ;;
esac
