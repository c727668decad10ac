# SPDX-License-Identifier: Apache-2.0
# The part of MPI that GPU programs start with (mpi/mpi.h), over the SDK: the target regroup::mpi,
# and for other build systems a folder that can be named as MPI_HOME, with include/mpi.h and
# lib/libmpi.a, which holds the SDK too.
regroup_library(mpi
    SOURCES mpi/collectives.cc mpi/datatype.cc mpi/environment.cc mpi/messages.cc mpi/session.cc
    PRIVATE regroup::worker_sdk)
target_include_directories(regroup_mpi PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/mpi)

set(regroup_mpi_home ${PROJECT_BINARY_DIR}/mpi)
add_library(regroup_mpi_whole STATIC $<TARGET_OBJECTS:regroup_mpi>)  # And cmake/embedding.cmake's.
set_target_properties(regroup_mpi_whole PROPERTIES
    OUTPUT_NAME mpi LINKER_LANGUAGE CXX ARCHIVE_OUTPUT_DIRECTORY ${regroup_mpi_home}/lib)
configure_file(mpi/mpi.h ${regroup_mpi_home}/include/mpi.h COPYONLY)
