#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A buffer of a type without a DType does not compile, and the compiler says what to use instead:
#
#     refused_types_test.sh CXX INCLUDES
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compiles TYPE: a program with a buffer of this type.
compiles() {
    cat >"$work/program.cc" <<END
#include <regroup/tensor_view.h>
#include <cstdint>
$1 values[2];
regroup::TensorView view{std::span(values)};
END
    "$cxx" -std=c++20 -fsyntax-only -I"$includes" "$work/program.cc" >"$work/output" 2>&1
}

# refuses TYPE SENTENCE
refuses() {
    if compiles "$1"; then
        echo "a buffer of $1 compiles" >&2
        exit 1
    fi
    if ! grep -F "$2" "$work/output"; then
        echo "for a buffer of $1 the compiler does not say: $2" >&2
        cat "$work/output" >&2
        exit 1
    fi
}

cxx=$1
includes=$2
if ! compiles std::int32_t; then
    cat "$work/output" >&2
    exit 1
fi
refuses bool "bool has no DType, since the sum of two bools is no bool: use std::uint8_t"
refuses std::int16_t "16-bit integers have no DType, since NCCL has none: widen them to std::int32_t"
refuses std::uint16_t "16-bit integers have no DType, since NCCL has none: widen them to std::int32_t"
refuses char "char has no DType: use std::int8_t, std::uint8_t or std::byte"
refuses "long double" "this element type has no DType; the DTypes are listed in regroup/tensor_view.h"
