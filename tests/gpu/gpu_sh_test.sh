#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that gpu.sh builds the same programs as CMake, from the same sources of the SDK, without
# any file that CMake generates, and that it does not succeed where it cannot check a GPU. Runs in
# the root:
#
#     gpu_sh_test.sh "PROGRAM;PROGRAM;..." "SOURCE;SOURCE;..."
set -u
programs=$(echo "$1" | tr ';' ' ')
sources=$(echo "$2" | tr ';' ' ')
plan=$(OUT=no/such/folder sh tests/gpu/gpu.sh plan) || exit 1
failed=0

fail() {
    echo "gpu.sh: $1"
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
        */c_api/*) continue ;;  # Not needed; it includes a header that CMake generates.
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
made "-B tests/gpu/torch_check.py" || fail "does not run torch_check.py"
# Every header that the sources include, directly or not, is found.
compiler=$(echo "$plan" | sed -n 's/^\(.*\) -c .*\.cc -o .*/\1/p' | head -n 1)
cat $compiled | grep '^#include' | sort -u | $compiler -E -x c++ - -o /dev/null ||
    fail "its sources include what is not there"
# Where it cannot build, it has checked nothing: a failure if there is a GPU.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
devices=$place/dev
mkdir -p "$devices" "$place/bin" "$place/tests/gpu"
checks() {
    told=$(CUDA_HOME=no/such/folder OUT=no/such/folder DEVICES=$devices sh tests/gpu/gpu.sh "$1" 2>&1)
}
names_the_lack() {
    [ "$(echo "$told" | wc -l)" = 1 ] &&
        case "$told" in
            *"no libcudart_static.a: install the CUDA toolkit"*) ;;
            *) false ;;
        esac
}
{ checks test && names_the_lack; } || fail "without a GPU and a toolkit says: $told"
{ ! checks build && names_the_lack; } || fail "builds without a toolkit: $told"
for device in nvidia0 nvidiactl; do
    touch "$devices/$device"
    for action in test bench; do
        { ! checks "$action" && names_the_lack; } || fail "$action with $device, no toolkit says: $told"
    done
    rm "$devices/$device"
done
# It has not run either if the programs are skipped, as with a driver that is too old.
for program in $programs; do
    printf '#!/bin/sh\n[ $# = 0 ] || exit 2\necho skipped\nexit 77\n' >"$place/bin/$program"
    chmod +x "$place/bin/$program"
done
cp tests/gpu/gpu.sh "$place/tests/gpu"
runs() {
    told=$(DEVICES=$devices sh "$place/tests/gpu/gpu.sh" test 2>&1)
}
runs || fail "without a GPU fails: $told"
touch "$devices/nvidia0"
{ ! runs && [ "$(echo "$told" | grep -c 'FAILED: there is a GPU here')" = 4 ]; } ||
    fail "with a GPU that no program can use says: $told"
# Trainings of PyTorch: with the wheels of the bundle, and as strict.
printf '#!/bin/sh\n[ "$1" = -c ] || echo "$*"\ncase "$*" in *torch_check*) exit 77 ;; esac\n' >"$place/python"
chmod +x "$place/python"
mkdir "$place/wheels"
touch "$place/wheels/regroup-1.whl" "$place/wheels/torch-1.whl"
checks_torch() {
    told=$(PYTHON=$place/python DEVICES=$devices sh "$place/tests/gpu/gpu.sh" torch --limit=9 2>&1)
}
{ ! checks_torch && [ "$(echo "$told" | grep -c 'torch_check.py --limit=9\|FAILED: there is a GPU here')" = 2 ]; } ||
    fail "torch with a GPU that it cannot use says: $told"
rm "$devices/nvidia0"
{ checks_torch && echo "$told" | grep -q 'pip install .* wheels/regroup-1.whl wheels/torch-1.whl'; } ||
    fail "torch without a GPU says: $told"
[ "$failed" = 0 ] && echo "gpu.sh makes what CMake makes"
exit "$failed"
