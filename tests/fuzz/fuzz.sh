#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs each fuzz target with libFuzzer, one after another:
#
#     sh tests/fuzz/fuzz.sh BUILD_FOLDER SECONDS [TARGET]...
#
# Its inputs stay in BUILD_FOLDER/corpus/TARGET, and an input that breaks a property goes to
# BUILD_FOLDER/artifacts/TARGET. The exit code is 1 if there is one. A run first repeats the inputs
# that are there; only those after them count as new.
set -u

build=$1
seconds=$2
shift 2
sources=$(dirname "$0")
programs=$build/tests/fuzz
if [ $# -eq 0 ]; then
    set -- $(cd "$programs" && ls -d fuzz_* | sed 's/^fuzz_//')
fi

export ASAN_OPTIONS="detect_leaks=1:detect_stack_use_after_return=0:${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
symbolizer=$(command -v llvm-symbolizer-19 || true)
[ -z "$symbolizer" ] || export ASAN_SYMBOLIZER_PATH="$symbolizer"

# A dictionary for libFuzzer: the names in the sources of FOLDERS between `before` and `after`, and
# numbers at the limits.
dictionary() {
    before=$1
    after=$2
    shift 2
    for folder in "$@"; do
        cat "$sources/../../rendezvous/$folder"/*.cc
    done | grep -oh '"[a-z][a-z_0-9]*"' | sort -u | sed "s/^\"/\"$before/; s/\"\$/$after\"/"
    for number in -1 0 1e308 nan null true 4294967296 9007199254740993 18446744073709551615; do
        echo "\"$number\""
    done
}

found=0
for target in "$@"; do
    program=$programs/fuzz_$target
    corpus=$build/corpus/$target
    artifacts=$build/artifacts/$target
    log=$artifacts/log
    if [ ! -x "$program" ]; then
        echo "fuzz: there is no target '$target' in $programs" >&2
        exit 2
    fi
    mkdir -p "$corpus" "$artifacts"
    "$program" --write-seeds="$corpus" || exit 2
    set -- "$corpus"
    [ ! -d "$sources/corpus/$target" ] || set -- "$@" "$sources/corpus/$target"
    case $target in
        control_protocol | etcd_replies | journal)
            dictionary '\\"' '\\"' protocol journal >"$artifacts/dict"
            set -- "-dict=$artifacts/dict" "$@"
            ;;
        worker_link)
            dictionary '\\x0a' '=' worker_link >"$artifacts/dict"
            set -- "-dict=$artifacts/dict" "$@"
            ;;
    esac
    if "$program" -max_total_time="$seconds" -timeout=25 -rss_limit_mb=2048 -max_len=4096 \
        -artifact_prefix="$artifacts/" -print_final_stats=1 "$@" >"$log" 2>&1; then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        repeated=$(sed -n 's/^#\([0-9]*\)\tINITED.*/\1/p' "$log")
        echo "fuzz: $target: $((runs - ${repeated:-runs})) new inputs, nothing found"
    else
        found=1
        grep -m 3 -E 'broken property|broken invariant|ERROR: |runtime error|SUMMARY' "$log"
        echo "fuzz: $target: FOUND something; see $log and the input beside it"
    fi
done
exit $found
