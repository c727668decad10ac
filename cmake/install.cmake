# SPDX-License-Identifier: Apache-2.0
# Where `cmake --install` puts headers, libraries, and the files by which CMake and pkg-config find
# them. The tree may be moved after it was installed.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS regroup_worker regroup_c EXPORT regroup_targets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
        NAMELINK_COMPONENT development)
target_include_directories(regroup_worker INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_include_directories(regroup_c INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(
    DIRECTORY worker_sdk/include/regroup rendezvous/base/include/regroup
              ${PROJECT_BINARY_DIR}/include/regroup
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT development
    FILES_MATCHING PATTERN "*.h")

install(FILES worker_sdk/tsan.supp
    DESTINATION ${CMAKE_INSTALL_DATADIR}/regroup
    COMPONENT development)

# The part of MPI: by the target regroup::mpi, or as a folder that can be named as MPI_HOME.
set(mpi_home ${CMAKE_INSTALL_LIBDIR}/regroup/mpi)
target_include_directories(regroup_mpi_whole INTERFACE $<INSTALL_INTERFACE:${mpi_home}/include>)
install(TARGETS regroup_mpi_whole EXPORT regroup_targets
    ARCHIVE DESTINATION ${mpi_home}/lib COMPONENT development)
install(FILES worker_sdk/mpi/mpi.h DESTINATION ${mpi_home}/include COMPONENT development)

# find_package(regroup). Of the libraries that regroup::worker links, those in a namespace are found
# by the package that it is named after. libsodium has no package for CMake.
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/regroup)
set(REGROUP_DEPENDENCIES)
foreach(library ${regroup_foreign})
    if(library MATCHES "^CUDA::")
        string(APPEND REGROUP_DEPENDENCIES "find_dependency(CUDAToolkit ${CUDAToolkit_VERSION_MAJOR})\n")
    elseif(library STREQUAL "regroup::sodium")
        continue()  # regroupConfig.cmake finds it.
    elseif(library MATCHES "^([^:]+)::")
        string(APPEND REGROUP_DEPENDENCIES "find_dependency(${CMAKE_MATCH_1})\n")
    endif()
endforeach()
configure_package_config_file(
    cmake/regroupConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/regroupConfig.cmake
    INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(
    ${PROJECT_BINARY_DIR}/cmake/regroupConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
    FILES ${PROJECT_BINARY_DIR}/cmake/regroupConfig.cmake
          ${PROJECT_BINARY_DIR}/cmake/regroupConfigVersion.cmake
    DESTINATION ${config_folder}
    COMPONENT development)
install(EXPORT regroup_targets
    FILE regroupTargets.cmake NAMESPACE regroup::
    DESTINATION ${config_folder}
    COMPONENT development)

# pkg-config regroup; regroup-c for the shared library; regroup-mpi.
function(regroup_link_flags out)
    set(flags)
    set(cuda)
    set(todo ${ARGN})
    while(todo)
        list(POP_FRONT todo item)
        string(REGEX REPLACE "^[$]<LINK_ONLY:(.*)>$" "\\1" item "${item}")
        if(item STREQUAL "Threads::Threads")
            list(APPEND flags -pthread)
        elseif(TARGET ${item})
            get_target_property(kind ${item} TYPE)
            if(NOT kind STREQUAL "INTERFACE_LIBRARY")
                get_target_property(file ${item} IMPORTED_LOCATION)
                if(file MATCHES "^(/.*)/lib(cudart_static)[.]a$")
                    # Where the toolkit is here says little of where it is there.
                    list(APPEND flags "-L\${cuda_libdir}" -l${CMAKE_MATCH_2})
                    set(cuda "cuda_libdir=${CMAKE_MATCH_1}\n")
                else()
                    list(APPEND todo ${file})
                endif()
            endif()
            get_target_property(links ${item} INTERFACE_LINK_LIBRARIES)
            if(links)
                list(APPEND todo ${links})
            endif()
        elseif(item MATCHES "^(/.*)/lib([^/]*)[.](a|so)$" AND
               CMAKE_MATCH_1 IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
            list(APPEND flags -l${CMAKE_MATCH_2})
        elseif(item MATCHES "^[-/]")
            list(APPEND flags ${item})
        else()
            list(APPEND flags -l${item})
        endif()
    endwhile()
    list(REMOVE_DUPLICATES flags)
    list(JOIN flags " " flags)
    set(${out} "${flags}" PARENT_SCOPE)
    set(REGROUP_PKGCONFIG_CUDA "${cuda}" PARENT_SCOPE)
endfunction()
regroup_link_flags(REGROUP_LINK_FLAGS ${regroup_foreign})
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH REGROUP_PREFIX_FROM_PKGCONFIG
    /prefix/${pkgconfig_folder} /prefix)
string(REGEX REPLACE "/$" "" REGROUP_PREFIX_FROM_PKGCONFIG "${REGROUP_PREFIX_FROM_PKGCONFIG}")
foreach(name regroup regroup-c regroup-mpi)
    configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/cmake/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/cmake/${name}.pc
        DESTINATION ${pkgconfig_folder}
        COMPONENT development)
endforeach()
