# SPDX-License-Identifier: Apache-2.0
# Toolchain: builds on Debian 12 for Linux on aarch64. The compiler and the linker are those of the
# other presets. The libraries are Debian's for arm64, which `sh cmake/setup.sh arm` unpacks below
# build/tools; nothing of them is installed on this machine. tests/support/with_qemu.sh runs what has
# been built.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
get_filename_component(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../build/tools/aarch64 ABSOLUTE)

foreach(language C CXX)
    set(CMAKE_${language}_COMPILER_TARGET aarch64-linux-gnu)
endforeach()
set(CMAKE_C_COMPILER clang-19)
set(CMAKE_CXX_COMPILER clang++-19)
foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT -fuse-ld=lld)
endforeach()
set(CMAKE_STRIP /usr/bin/llvm-strip-19)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
foreach(what INCLUDE LIBRARY PACKAGE)
    set(CMAKE_FIND_ROOT_PATH_MODE_${what} ONLY)
endforeach()
