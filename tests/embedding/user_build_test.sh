#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Programs of users compile without a warning, with the flags that careful users have:
#
#     user_build_test.sh SOURCES INCLUDES CC CXX [CC CXX]...
#
# SOURCES is the root of this tree; INCLUDES are the compiler's flags for the public headers.
set -eu
sources=$1
includes=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags="-Werror -Wall -Wextra -Wpedantic -Wconversion -Wshadow"

for header in "$sources"/worker_sdk/include/regroup/*.h; do
    case $header in
        */torch.h) ;;  # It needs libtorch.
        */c_api*) echo "#include <regroup/$(basename "$header")>" >>"$work/all.c" ;;
        *) echo "#include <regroup/$(basename "$header")>" >>"$work/all.cc" ;;
    esac
done
cp "$work/all.c" "$work/c_in_cpp.cc"

while [ $# -gt 0 ]; do
    echo "$2"
    "$1" -std=c99 $flags -Wstrict-prototypes $includes -c -o "$work/out.o" "$work/all.c"
    for source in "$work/all.cc" "$work/c_in_cpp.cc" \
            "$sources/tests/embedding/out_of_tree/train.cc" \
            "$sources/examples/elastic/elastic_sharded.cc"; do
        # Some warnings need the analysis that optimisation does.
        "$2" -std=c++20 -O2 $flags -Wold-style-cast -Wnon-virtual-dtor $includes -c \
            -o "$work/out.o" "$source"
    done
    shift 2
done
