#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Packs what a GPU machine without a network needs to run the checks and measurements of tests/gpu:
# the programs, the sources from which gpu.sh builds them anew where they do not start, the headers
# and libsodium, which such a machine may lack, and the Python package. Run in the root; writes
# build/regroup-gpu.tar.gz.
#
#     tar xzf regroup-gpu.tar.gz && sh regroup-gpu/tests/gpu/gpu.sh test
#
# PYTORCH names a release of PyTorch that is packed, too, for the Python in PYTHON or python3.
set -eu
out=build/gpu-bundle
folder=$out/regroup-gpu
header() {
    for place in "$2" "${XXHASH_HOME:-}/include" "${CUDA_HOME:-/usr/local/cuda}/include" \
                 /usr/include /usr/local/include; do
        [ -f "$place/$1" ] && echo "$place/$1" && return
    done
    echo "gpu_bundle: there is no $1 here" >&2
    exit 1
}
xxhash=$(header xxhash.h "${XXHASH_HOME:-}")
nccl=$(header nccl.h "${NCCL_HOME:-}/include")
json=$(header nlohmann/json.hpp "${JSON_HOME:-}/include")
sodium=$(header sodium.h "${SODIUM_HOME:-}/include")
sodium_archive=
for place in "${SODIUM_HOME:-}/lib" "/usr/lib/$(uname -m)-linux-gnu" /usr/lib64 /usr/local/lib; do
    [ -z "$sodium_archive" ] && [ -f "$place/libsodium.a" ] && sodium_archive=$place/libsodium.a
done
if [ -z "$sodium_archive" ]; then
    echo "gpu_bundle: there is no libsodium.a here" >&2
    exit 1
fi

# The C and C++ libraries are those of the other machine. Linked statically, the programs would need
# a newer C library, and could not open NCCL's.
OUT=$out/objects LINK_FLAGS=-s sh tests/gpu/gpu.sh build
[ -x "$out/objects/gpu_check" ] || exit 1

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/third_party"
cp "$xxhash" "$nccl" "$sodium" "$sodium_archive" "$folder/third_party"
cp -r "${sodium%.h}" "${json%/json.hpp}" "$folder/third_party"
find "$out/objects" -maxdepth 1 -type f -exec cp {} "$folder/bin" \;

mkdir "$folder/wheels"
REGROUP_CUDA=ON sh python/wheel.sh
cp build/wheel-cuda/regroup-*.whl "$folder/wheels"
if [ -n "${PYTORCH:-}" ]; then
    "${PYTHON:-python3}" -m pip download -q --only-binary=:all: -d "$out/pytorch-$PYTORCH" \
        "torch==$PYTORCH" numpy
    cp -l "$out/pytorch-$PYTORCH"/*.whl "$folder/wheels"
fi
find LICENSE NOTICE rendezvous/base rendezvous/cgroup rendezvous/files rendezvous/json rendezvous/security rendezvous/snapshot rendezvous/store rendezvous/worker_link worker_sdk/include worker_sdk/src tests/gpu \
     -type f -name '*[a-zA-Z]' | tar cf - -T - | tar xf - -C "$folder"
tar czf build/regroup-gpu.tar.gz -C "$out" regroup-gpu
newest() {
    objdump -T "$folder"/bin/* | grep -o "$1_[0-9.]*" | sort -uV | tail -n 1
}
echo "build/regroup-gpu.tar.gz: $(du -h build/regroup-gpu.tar.gz | cut -f 1); the programs start where libraries have $(newest GLIBC) and $(newest GLIBCXX)"
