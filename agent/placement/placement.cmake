# SPDX-License-Identifier: Apache-2.0
# hwloc reads the machine's topology. Its static library keeps `regroup` one file to copy to a node;
# what Debian's needs of libudev, only to describe disks, no_udev.cc stands in for. Where there is no
# static library the shared one is linked, and every node needs it.
find_path(REGROUP_HWLOC_INCLUDE NAMES hwloc.h REQUIRED)
find_library(REGROUP_HWLOC NAMES libhwloc.a hwloc REQUIRED)
if(NOT REGROUP_HWLOC MATCHES "\\.a$")
    message(STATUS "no static libhwloc: every node will need ${REGROUP_HWLOC}")
endif()

add_library(regroup_no_udev STATIC placement/no_udev.cc)
target_link_libraries(regroup_no_udev PRIVATE regroup_options)

add_library(regroup_hwloc INTERFACE)
target_include_directories(regroup_hwloc SYSTEM INTERFACE ${REGROUP_HWLOC_INCLUDE})
# The one mathematical function that it uses is in the C library too. Named first, that spares every
# launch another shared library.
target_link_libraries(regroup_hwloc INTERFACE ${REGROUP_HWLOC} regroup_no_udev ${CMAKE_DL_LIBS} c)

regroup_library(placement
    SOURCES placement/gpu_shares.cc placement/gpus.cc placement/placement.cc placement/shares.cc placement/topology.cc
    PUBLIC regroup::base
    PRIVATE regroup_hwloc)
