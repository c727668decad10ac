# SPDX-License-Identifier: Apache-2.0
# Decides whether the GPU parts are built. They are compiled against the CUDA toolkit and nccl.h; what
# is built needs neither to start: the CUDA runtime is linked statically, and libnccl.so.2 and the
# driver are opened when a program asks for a GPU.
#
# Sets REGROUP_HAVE_CUDA, and with it the target regroup_cuda: the runtime, and NCCL's header.

set(REGROUP_CUDA AUTO CACHE STRING "GPU parts and the NCCL back end: AUTO (if CUDA and NCCL are found), ON, OFF")
set_property(CACHE REGROUP_CUDA PROPERTY STRINGS AUTO ON OFF)
set(REGROUP_HAVE_CUDA OFF)

function(regroup_find_cuda)
    find_package(CUDAToolkit 12.0 QUIET)
    if(NOT CUDAToolkit_FOUND)
        set(problem "the CUDA toolkit (nvcc) was not found" PARENT_SCOPE)
        return()
    endif()
    find_path(REGROUP_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    mark_as_advanced(REGROUP_NCCL_INCLUDE)
    if(NOT REGROUP_NCCL_INCLUDE)
        set(problem "NCCL's header nccl.h was not found" PARENT_SCOPE)
        return()
    endif()
    # Only the header must be so new; nccl_api.h says the same to compilers.
    file(STRINGS ${REGROUP_NCCL_INCLUDE}/nccl.h lines REGEX "^#define NCCL_(MAJOR|MINOR) [0-9]+")
    string(REGEX REPLACE ".*NCCL_MAJOR ([0-9]+).*NCCL_MINOR ([0-9]+).*" "\\1.\\2" header "${lines}")
    if(header VERSION_LESS 2.28)
        set(problem "${REGROUP_NCCL_INCLUDE}/nccl.h is of NCCL ${header}, and the header of 2.28 or newer is needed to build (the library that is used may be older)" PARENT_SCOPE)
        return()
    endif()
    set(problem "" PARENT_SCOPE)
    set(toolkit "${CUDAToolkit_VERSION}" PARENT_SCOPE)
    set(nvcc "${CUDAToolkit_NVCC_EXECUTABLE}" PARENT_SCOPE)
endfunction()

if(REGROUP_CUDA)
    regroup_find_cuda()
    if(problem)
        if(REGROUP_CUDA STREQUAL "AUTO")
            message(STATUS "regroup: without the NCCL back end: ${problem} (REGROUP_CUDA=AUTO)")
        else()
            message(FATAL_ERROR "REGROUP_CUDA=${REGROUP_CUDA}: ${problem}")
        endif()
    else()
        # PTX for the last of them lets newer GPUs run too. The presets of developers build for the
        # oldest alone, which halves the time of nvcc.
        if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
            set(CMAKE_CUDA_ARCHITECTURES 80 90)
        endif()
        if(NOT CMAKE_CUDA_COMPILER)
            set(CMAKE_CUDA_COMPILER ${nvcc})
        endif()
        if(NOT CMAKE_CUDA_HOST_COMPILER)
            set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
        endif()
        set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
        enable_language(CUDA)
        # CMake 3.25 takes the standard of C++ for CUDA too, and knows no flag for it; the flag itself
        # is among regroup_options.
        set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
        set(CMAKE_CUDA_STANDARD 17)
        set(CMAKE_CUDA17_STANDARD_COMPILE_OPTION "")
        find_package(CUDAToolkit REQUIRED)
        set(REGROUP_HAVE_CUDA ON)
        add_library(regroup_cuda INTERFACE)
        target_include_directories(regroup_cuda SYSTEM INTERFACE ${REGROUP_NCCL_INCLUDE})
        target_link_libraries(regroup_cuda INTERFACE CUDA::cudart_static ${CMAKE_DL_LIBS})
        message(STATUS "regroup: with the NCCL back end: CUDA ${toolkit}, ${REGROUP_NCCL_INCLUDE}/nccl.h")
    endif()
else()
    message(STATUS "regroup: without the NCCL back end (REGROUP_CUDA=${REGROUP_CUDA})")
endif()

# regroup_gpu_programs(TARGETS...): programs that need a GPU to run. Only the target gpu_programs
# builds them.
add_custom_target(gpu_programs)
function(regroup_gpu_programs)
    set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL ON)
    add_dependencies(gpu_programs ${ARGN})
endfunction()
