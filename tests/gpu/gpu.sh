#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and runs the programs of this folder with only a shell, a C++20 compiler and the CUDA
# toolkit: for GPU machines with little software and no network. It needs no make, CMake, Boost or
# GoogleTest.
#
#     sh tests/gpu/gpu.sh test     # or: make test-gpu
#     sh tests/gpu/gpu.sh bench    # or: make bench-gpu
#     sh tests/gpu/gpu.sh torch    # or: make torch-gpu. Trainings of PyTorch: torch_check.py, and its options
#     sh tests/gpu/gpu.sh build    # builds the programs of test and bench
#     sh tests/gpu/gpu.sh plan     # prints the commands of build, test, bench and torch
#
# Programs in bin/ were built elsewhere (cmake/gpu_bundle.sh); they are used if they start here. So is
# the package in wheels/, and PyTorch if it is there.
# CUDA_HOME, NCCL_HOME, XXHASH_HOME and SODIUM_HOME name places of headers, and of libsodium, if not
# the usual ones; CXX a compiler;
# LINK_FLAGS more flags for the linker; PYTHON one that has torch, for `torch` and for a comparison in
# `bench`. DEVICES is the folder of device files, if not /dev.
set -u
cd "$(dirname "$0")/../.." || exit 1
action=${1:-test}
out=${OUT:-build/gpu}
tests="gpu_check many_rounds data_parallel_check optimizer_check"
benches="time_to_communicator graph_step optimizer_bench"

run() {
    if [ "$action" = plan ]; then
        echo "$*"
    else
        "$@"
    fi
}

needs_compiling() {
    [ "$action" = plan ] && return 0
    [ ! -e "$2" ] || [ "$1" -nt "$2" ] ||
        [ -n "$(find worker_sdk rendezvous tests/gpu -name '*.h' -newer "$2" -o \
                     -name '*.cuh' -newer "$2" | head -n 1)" ]
}

# Called for each source, in several processes.
compile() {
    object=$out/$1.o
    needs_compiling "$1" "$object" || return 0
    run mkdir -p "$(dirname "$object")"
    case "$1" in
        *.cu) run $NVCC $cuda_flags -c "$1" -o "$object" ;;
        *) run $CXX $flags -c "$1" -o "$object" ;;
    esac
}
if [ "$action" = compile ]; then
    [ "$plan_only" = 1 ] && action=plan
    compile "$2"
    exit
fi

first() {
    for name in "$@"; do
        command -v "$name" && return
    done
}
folder_with() {
    file=$1
    shift
    for folder in "$@"; do
        [ -f "$folder/$file" ] && echo "$folder" && return
    done
}

PYTHON=${PYTHON:-$(first python3)}
wheel=
[ -n "$PYTHON" ] && wheel=$($PYTHON -c 'import importlib.util as u; s = u.find_spec("nvidia.nccl"); print(list(s.submodule_search_locations)[0] if s else "")' 2>/dev/null)
# PyTorch has loaded its own, perhaps another one.
if [ "$action" != torch ] && [ -z "${REGROUP_NCCL_LIBRARY:-}" ] && [ -f "$wheel/lib/libnccl.so.2" ]; then
    export REGROUP_NCCL_LIBRARY="$wheel/lib/libnccl.so.2"
fi

# Finds what is needed to build, and says what is missing.
find_tools() {
    CXX=${CXX:-$(first clang++-19 g++ clang++)}
    NVCC=$(first nvcc /usr/local/cuda/bin/nvcc)
    CUDA_HOME=${CUDA_HOME:-${NVCC%/bin/nvcc}}
    cudart=$(folder_with libcudart_static.a "$CUDA_HOME/lib64" "$CUDA_HOME/lib")/libcudart_static.a
    nccl=$(folder_with nccl.h "${NCCL_HOME:-}/include" third_party "$CUDA_HOME/include" \
                       /usr/include /usr/local/include "$wheel/include")
    xxhash=$(folder_with xxhash.h "${XXHASH_HOME:-}/include" "${XXHASH_HOME:-}" third_party \
                         /usr/include /usr/local/include)
    json=$(folder_with nlohmann/json.hpp "${JSON_HOME:-}/include" "${JSON_HOME:-}" third_party \
                       /usr/include /usr/local/include)
    sodium=$(folder_with sodium.h "${SODIUM_HOME:-}/include" third_party \
                         /usr/include /usr/local/include)
    sodium_library=$(folder_with libsodium.a "${SODIUM_HOME:-}/lib" third_party \
                                 "/usr/lib/$(uname -m)-linux-gnu" /usr/lib64 /usr/local/lib)
    sodium_library=${sodium_library:+$sodium_library/libsodium.a}
    missing=
    if [ -z "$CXX" ]; then
        missing="C++ compiler: install g++ or clang, or name one in CXX"
    elif [ -z "$NVCC" ]; then
        missing="nvcc: install the CUDA toolkit, and put its folder bin into PATH"
    elif [ ! -f "$cudart" ]; then
        missing="libcudart_static.a: install the CUDA toolkit, or name its folder in CUDA_HOME"
    elif [ -z "$nccl" ]; then
        missing="nccl.h: install libnccl-dev or the Python package nvidia-nccl-cu12, or name its folder in NCCL_HOME"
    elif [ -z "$xxhash" ]; then
        missing="xxhash.h: install libxxhash-dev, or name the folder of this one header in XXHASH_HOME"
    elif [ -z "$json" ]; then
        missing="nlohmann/json.hpp: install nlohmann-json3-dev, or name its place in JSON_HOME"
    elif [ -z "$sodium" ]; then
        missing="sodium.h: install libsodium-dev, or name its place in SODIUM_HOME"
    fi
    includes="-I. -Iworker_sdk/include -Irendezvous/base/include"
    system=
    for folder in "$nccl" "$xxhash" "$json" "$sodium" "$CUDA_HOME/include"; do
        # The compiler's own folder must stay where it is in the order. An older nccl.h may lie beside
        # CUDA's headers.
        [ "$folder" = /usr/include ] || system="$system -isystem $folder"
    done
    flags="-std=c++20 -O2 -g -Wall -Wextra $includes$system -ffp-contract=off"
    cuda_flags="-std=c++20 -O2 -fmad=false $includes -gencode arch=compute_80,code=compute_80 -gencode arch=compute_90,code=sm_90"
    plan_only=0
    [ "$action" = plan ] && plan_only=1
    export CXX NVCC flags cuda_flags OUT="$out" plan_only
}

# All of the SDK except the files that replace CUDA, and the C interface, which needs a generated
# header.
sdk_sources() {
    find worker_sdk/src \( -name '*.cc' -o -name '*.cu' \) ! -name absent.cc \
         ! -name absent_kernels.cc ! -path '*/c_api/*'
    ls rendezvous/base/*.cc rendezvous/cgroup/*.cc rendezvous/store/*.cc rendezvous/worker_link/*.cc tests/gpu/ranks.cc
    ls rendezvous/json/*.cc rendezvous/snapshot/*.cc
    ls rendezvous/files/*.cc rendezvous/security/base64.cc rendezvous/security/key.cc rendezvous/security/secret_file.cc
}
sources_of() {
    echo "tests/gpu/$1.cc"
    case "$1" in
        gpu_check) ls tests/gpu/collectives.cc tests/gpu/failures.cc tests/gpu/operations.cc ;;
        graph_step) echo tests/gpu/small_kernels.cu ;;
    esac
}
objects_of() {
    for source in "$@"; do
        echo "$out/$source.o"
    done
}

build() {
    jobs=$(nproc)
    [ "$action" = plan ] && jobs=1
    shared=$(sdk_sources)
    {
        echo "$shared"
        for program in "$@"; do
            sources_of "$program"
        done
    } | xargs -P "$jobs" -n 1 sh tests/gpu/gpu.sh compile || return 1
    for program in "$@"; do
        run $CXX -o "$out/$program" $(objects_of $(sources_of "$program") $shared) "$cudart" \
            "${sodium_library:--lsodium}" -ldl -lrt -lpthread ${LINK_FLAGS:-} || return 1
    done
}

sees_gpu() {
    for device in nvidiactl nvidia0 dxg; do  # dxg: under WSL
        [ -e "${DEVICES:-/dev}/$device" ] && return
    done
    return 1
}

# Sets `bin` to the folder of the programs, which are built unless bin/ serves.
prepare() {
    bin=bin
    if [ "$action" != plan ] && [ -x bin/gpu_check ]; then
        bin/gpu_check --rank none >/dev/null 2>&1
        [ $? = 2 ] && return
        echo "gpu: the programs in bin/ do not start here, and are built anew"
    fi
    bin=$out
    find_tools
    if [ -n "$missing" ]; then
        if sees_gpu || [ "$action" = build ]; then
            echo "gpu: FAILED: there is no $missing" >&2
            exit 1
        fi
        echo "gpu: skipped: there is no GPU here, and no $missing"
        exit 0
    fi
    build "$@" || exit 1
}

# A benchmark's twin in torch.
peer() {
    if [ -n "$PYTHON" ]; then
        run "$PYTHON" -B "tests/gpu/$1"
    else
        echo "$1: skipped: there is no python3 here"
    fi
}

failed=0
# judge NAME COMMAND...
judge() {
    name=$1
    shift
    run "$@"
    status=$?
    if [ "$status" = 77 ]; then  # skipped
        sees_gpu || return
        echo "gpu: FAILED: there is a GPU here, but $name could not use it" >&2
    fi
    [ "$status" = 0 ] || failed=1
}

# The package is that of a wheel with CUDA, or the one that PYTHON has.
check_torch() {
    if [ -z "$PYTHON" ]; then
        echo "gpu: FAILED: there is no python3 here" >&2
        exit 1
    fi
    package=$(ls wheels/regroup-*.whl build/wheel-cuda/regroup-*.whl 2>/dev/null | head -n 1)
    if [ -n "$package" ]; then
        run mkdir -p "$out/python"
        # The interpreter's own folders may not be written, and pip's --target leaves out the plugin.
        run "$PYTHON" -m pip install -q --no-index --find-links=wheels --ignore-installed \
            --prefix="$out/python" "$package" $(ls wheels/torch-*.whl wheels/numpy-*.whl 2>/dev/null) ||
            exit 1
        installed() {
            find "$(cd "$out/python" && pwd)" -path "$1" 2>/dev/null | head -n 1
        }
        packages=$(installed '*-packages/regroup')
        export PYTHONPATH="${packages%/regroup}${PYTHONPATH:+:$PYTHONPATH}"
        REGROUP_PROGRAM=$(installed '*/bin/regroup')
        export REGROUP_PROGRAM
    fi
    judge torch_check.py "$PYTHON" -B tests/gpu/torch_check.py "$@"
}

case "$action" in
    build) prepare $tests $benches ;;
    torch)
        shift
        check_torch "$@" ;;
    test | bench | plan)
        case "$action" in
            test) prepare $tests ;;
            bench) prepare $benches ;;
            plan) prepare $tests $benches ;;
        esac
        if [ "$action" != bench ]; then
            for program in $tests; do
                judge "$program" "$bin/$program"
            done
        fi
        if [ "$action" != test ]; then
            judge time_to_communicator "$bin/time_to_communicator"
            peer torch_communicator.py
            judge graph_step "$bin/graph_step"
            peer torch_graph_step.py
            judge optimizer_bench "$bin/optimizer_bench"
            peer torch_optimizer.py
        fi
        [ "$action" != plan ] || check_torch ;;
    *)
        echo "usage: sh tests/gpu/gpu.sh test|bench|torch|build|plan" >&2
        exit 2 ;;
esac
exit $failed
