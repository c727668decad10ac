#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the project in out_of_tree/ against an installed regroup, and runs it alone and as two
# ranks:
#
#     out_of_tree_test.sh install BUILD PREFIX            installs the build there
#     out_of_tree_test.sh find_package PREFIX C CXX       builds by CMake, with these compilers
#     out_of_tree_test.sh pkg_config PREFIX C CXX         builds by pkg-config alone
#     out_of_tree_test.sh thread_sanitizer PREFIX C CXX   by pkg-config, under the thread sanitizer
#     out_of_tree_test.sh add_subdirectory PREFIX C CXX   builds the sources along (minutes)
#     out_of_tree_test.sh other_minor PREFIX C CXX        asks for other releases, which must fail
#     out_of_tree_test.sh alone PROGRAM                   runs a program that was built
set -eu
# MPI's variables would be recognized, too.
for name in $(env | grep -oE "^(OMPI|PMI|PMIX|SLURM|MV2)_[A-Z_]*"); do
    unset "$name"
done
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT CMAKE_PREFIX_PATH
export OMP_NUM_THREADS=1

source=$(cd "$(dirname "$0")" && pwd)/out_of_tree
way=$1

install_tree() {
    # Installed in one folder and used in another: no installed file may name the first.
    rm -rf "$2" "$2.first"
    for component in programs library development; do
        cmake --install "$1" --prefix "$2.first" --component $component >/dev/null
    done
    mv "$2.first" "$2"
    if grep -rlF "$2.first" "$2/include" "$2"/lib*/cmake "$2"/lib*/pkgconfig; then
        echo "these files name the place of installation" >&2
        exit 1
    fi
    for page in "$2"/share/doc/regroup/*.md "$2"/share/doc/regroup/docs/*.md; do
        for link in $(sed '/^```/,/^```/d' "$page" | grep -oE '\]\([^)# ]+' |
                cut -c 3- | grep -v '^https:'); do
            if [ ! -e "$(dirname "$page")/$link" ]; then
                echo "$page: the link leads nowhere: $link" >&2
                exit 1
            fi
        done
    done
    "$2/bin/regroup" --version
    find "$2" ! -type d | sed "s|^$2/|  |" | sort
}

run_both() {
    for program in train train_c mean_mpi; do
        timeout 60 "$work/$program"
        timeout 60 "$prefix/bin/regroup" run --standalone --nproc-per-node=2 "$work/$program"
    done
}

same_version() {
    if [ "$2" != "$("$prefix/bin/regroup" --version | cut -d' ' -f2)" ]; then
        echo "$1 says $2, and the program $("$prefix/bin/regroup" --version)" >&2
        exit 1
    fi
}

# CMake refuses the installed release to a project that asks for the minor version $1.
refuses_package() {
    mkdir "$work/$1"
    cat >"$work/$1/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(other_minor LANGUAGES NONE)
find_package(regroup $1 CONFIG)
if(regroup_FOUND OR NOT regroup_CONSIDERED_VERSIONS)
    message(FATAL_ERROR "asked for $1, found: '\${regroup_VERSION}'")
endif()
END
    cmake -S "$work/$1" -B "$work/$1/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
}

# The loader refuses a release of the minor version $1 to a program that was linked with the installed
# one. The stand-in has no versions of symbols, so that only the name of the file counts.
refuses_library() {
    other=$work/library-$1
    mkdir "$other"
    echo 'const char* regroup_version(void) { return "another"; }' >"$work/another.c"
    echo 'const char* regroup_version(void); int main(void) { return !regroup_version(); }' \
        >"$work/program.c"
    "$CC" -shared -fPIC -Wl,-soname,"libregroup.so.$major" -o "$other/libregroup.so.$1.0" \
        "$work/another.c"
    for name in "libregroup.so.$1" "libregroup.so.$major" libregroup.so; do
        ln -s "libregroup.so.$1.0" "$other/$name"
    done
    "$CC" -o "$work/program" "$work/program.c" -L"$libraries" -lregroup
    LD_LIBRARY_PATH=$libraries "$work/program"
    if LD_LIBRARY_PATH=$other "$work/program" 2>"$work/refusal"; then
        echo "a program linked with release $release starts with release $1" >&2
        exit 1
    fi
    grep "libregroup.so.$abi" "$work/refusal"
    # A program that asks for the major version alone would start there.
    "$CC" -o "$work/careless" "$work/program.c" -L"$other" -lregroup
    LD_LIBRARY_PATH=$other "$work/careless"
}

refuse_other_minors() {
    release=$("$prefix/bin/regroup" --version | cut -d' ' -f2)
    major=${release%%.*}
    minor=${release#*.}
    minor=${minor%%.*}
    libraries=$(dirname "$(find "$prefix" -name libregroup.so)")
    abi=$major
    [ "$major" -ne 0 ] || abi=$major.$minor
    if ! readelf -d "$libraries/libregroup.so" | grep -F "soname: [libregroup.so.$abi]"; then
        echo "the SONAME of release $release is not libregroup.so.$abi" >&2
        exit 1
    fi
    refuses_package "$major.$((minor + 1))"
    [ "$minor" -eq 0 ] || refuses_package "$major.$((minor - 1))"
    if [ "$major" -eq 0 ]; then
        refuses_library "$major.$((minor + 1))"
        [ "$minor" -eq 0 ] || refuses_library "$major.$((minor - 1))"
    fi
}

if [ "$way" = install ]; then
    install_tree "$2" "$3"
    exit
fi

if [ "$way" = alone ]; then
    exec "$2"
fi

prefix=$2
export CC=$3 CXX=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The installed SDK is compiled without the sanitizer, which then reports races that do not exist.
# With the suppressions the program is silent, but for a race of its own.
run_under_thread_sanitizer() {
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name regroup.pc)")
    export PKG_CONFIG_PATH
    echo 'int main() {}' >"$work/empty.cc"
    if ! "$CXX" -fsanitize=thread -o "$work/empty" "$work/empty.cc" 2>/dev/null; then
        echo "skipped, for $CXX has no thread sanitizer"
        exit 77
    fi
    "$CXX" -std=c++20 -g -fsanitize=thread -o "$work/threads" "$source/../threads.cc" \
        $(pkg-config --cflags --libs regroup)
    TSAN_OPTIONS="suppressions=$prefix/share/regroup/tsan.supp exitcode=66"
    export TSAN_OPTIONS
    cd "$work"
    for transport in shm tcp; do
        REGROUP_CPU_TRANSPORT=$transport timeout 60 "$prefix/bin/regroup" run --standalone \
            --nproc-per-node=2 ./threads
    done
    code=0
    timeout 60 "$prefix/bin/regroup" run --standalone --nproc-per-node=2 ./threads race || code=$?
    if [ $code -ne 66 ]; then
        echo "a race of the program was not reported: code $code" >&2
        exit 1
    fi
}

case $way in
    find_package)
        cmake -S "$source" -B "$work" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
        cmake --build "$work"
        ;;
    pkg_config)
        PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name regroup.pc)")
        export PKG_CONFIG_PATH
        same_version regroup.pc "$(pkg-config --modversion regroup)"
        same_version regroup-c.pc "$(pkg-config --modversion regroup-c)"
        "$CXX" -std=c++20 -o "$work/train" "$source/train.cc" $(pkg-config --cflags --libs regroup)
        "$CC" -std=c99 -pedantic -Wall -Werror -o "$work/train_c" "$source/train_c.c" \
            $(pkg-config --cflags --libs regroup-c) -lm
        "$CC" -o "$work/mean_mpi" -x c "$source/mean_mpi.cc" -x none \
            $(pkg-config --cflags --libs regroup-mpi)
        "$CXX" -o "$work/mean_mpi" "$source/mean_mpi.cc" $(pkg-config --cflags --libs regroup-mpi)
        LD_LIBRARY_PATH=$(pkg-config --variable=libdir regroup-c)
        export LD_LIBRARY_PATH
        same_version libregroup.so "$("$work/train_c" | sed 's/C with regroup \([^:]*\):.*/\1/')"
        ;;
    thread_sanitizer)
        run_under_thread_sanitizer
        exit
        ;;
    other_minor)
        refuse_other_minors
        exit
        ;;
    add_subdirectory)
        cmake -S "$source" -B "$work" -G Ninja -DREGROUP_SOURCE="$source/../../.." \
            -DCMAKE_BUILD_TYPE=RelWithDebInfo -DREGROUP_WARNINGS_AS_ERRORS=ON >/dev/null
        cmake --build "$work" | tail -n 1
        ;;
    *)
        echo "$0: unknown way '$way'" >&2
        exit 2
        ;;
esac
run_both
