#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds in build/PRESET and shows how far it is: as ninja does on a terminal, else one line for each
# ten percent.
#
#     sh cmake/build.sh PRESET JOBS [TARGET...]
#     sh cmake/build.sh estimate PRESET JOBS STEPS MORE [TARGET...]
#
# `estimate` prints the minutes that the build will take, with MORE seconds for what follows. STEPS:
# how many steps a clean build has.
set -eu

# CPU seconds of a step, with those of the compiler's largest: measured.
seconds_per_step=2

# The number of steps that are left; empty if ninja cannot tell.
steps_left() {
    preset=$1
    shift
    if [ -e "build/$preset/build.ninja" ]; then
        ninja -C "build/$preset" -n "$@" 2>/dev/null | sed -n 's/^\[[0-9]*\/\([0-9]*\)\].*/\1/p' | tail -n 1
    fi
}

if [ "$1" = estimate ]; then
    preset=$2 jobs=$3 steps=$4 more=$5
    shift 5
    if [ -e "build/$preset/.ninja_log" ]; then
        left=$(steps_left "$preset" "$@")
        steps=${left:-0}
    fi
    echo $(((steps * seconds_per_step / jobs + more + 59) / 60))
    exit
fi

preset=$1 jobs=$2
shift 2
targets=${*:+--target $*}
if [ -t 1 ]; then
    # shellcheck disable=SC2086
    exec cmake --build --preset "$preset" -j "$jobs" $targets
fi
status=$(mktemp)
trap 'rm -f "$status"' EXIT
shown=0
# shellcheck disable=SC2086
{
    code=0
    cmake --build --preset "$preset" -j "$jobs" $targets 2>&1 || code=$?
    echo "$code" > "$status"
} | while IFS= read -r line; do
    case $line in
        "["*/*"] "*)
            done=${line#\[} done=${done%%/*}
            total=${line#*/} total=${total%%]*}
            percent=$((done * 100 / total / 10 * 10))
            if [ "$percent" -gt "$shown" ]; then
                shown=$percent
                echo "build: $percent % ($done of $total steps)"
            fi
            ;;
        *) printf '%s\n' "$line" ;;
    esac
done
exit "$(cat "$status")"
