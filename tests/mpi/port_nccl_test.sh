#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Checks the README of examples/port_nccl: fewer than ten lines make a plain NCCL program a job, and
# the README shows exactly these lines.
#
#     sh port_nccl_test.sh EXAMPLE_DIR
set -eu
cd "$1"

difference=$(diff -U0 before.cu after.cu | tail -n +3)
count=$(printf '%s\n' "$difference" | grep -c '^+') || true
if [ "$count" -eq 0 ] || [ "$count" -ge 10 ]; then
    echo "after.cu has $count lines that before.cu has not; it should be from 1 to 9" >&2
    exit 1
fi
shown=$(sed -n '/^+++ after.cu$/,/^```$/p' README.md | sed '1d;$d')
if [ "$shown" != "$difference" ]; then
    echo "README.md does not show the difference of the two programs, which is:" >&2
    printf '%s\n' "$difference" >&2
    exit 1
fi
