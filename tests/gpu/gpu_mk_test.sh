#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# That gpu.mk still makes what CMake makes: the same programs, of the same sources of the SDK, and of
# nothing that only CMake can write. Runs in the root:
#
#     gpu_mk_test.sh "PROGRAM;PROGRAM;..." "SOURCE;SOURCE;..."
set -u
programs=$(echo "$1" | tr ';' ' ')
sources=$(echo "$2" | tr ';' ' ')
plan=$(make -n -B -f tests/gpu/gpu.mk out=no/such/folder test bench) || exit 1
failed=0

fail() {
    echo "gpu.mk: $1"
    failed=1
}

made() {
    case "$plan" in
        *"$1"*) return 0 ;;
    esac
    return 1
}

for program in $programs; do
    made " -o no/such/folder/$program " || fail "does not link $program"
    echo "$plan" | grep -qx "no/such/folder/$program" || fail "does not run $program"
done
for source in $sources; do
    case "$source" in
        */c_api/*) continue ;;  # Nothing of it is needed, and it includes a header that CMake writes.
        "$PWD"/*) made " -c ${source#"$PWD"/} " || fail "does not compile ${source#"$PWD"/}" ;;
    esac
done
compiled=$(echo "$plan" | sed -n 's/.* -c \([^ ]*\) .*/\1/p' | sort -u)
for source in $compiled; do
    case " $sources " in
        *" $PWD/$source "*) ;;
        *) case "$source" in
               worker_sdk/*) fail "compiles $source, which CMake does not" ;;
           esac ;;
    esac
done
# Every header that they include is found, through any number of others: all of them at once.
compiler=$(echo "$plan" | sed -n 's/^\(.*\) -MMD -c .*\.cc -o .*/\1/p' | head -n 1)
cat $compiled | grep '^#include' | sort -u | $compiler -E -x c++ - -o /dev/null ||
    fail "its sources include what is not there"
[ "$failed" = 0 ] && echo "gpu.mk makes what CMake makes"
exit "$failed"
