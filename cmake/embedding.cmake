# SPDX-License-Identifier: Apache-2.0
# The worker SDK as others link it: everything that it is made of in one static library, and behind
# the C interface in one shared library. Includes no other list of sources: whatever libraries of
# this tree the SDK links are taken in, and whatever comes from elsewhere is passed on.

# regroup_close_over(TARGET OURS OTHERS): the static libraries of this tree that TARGET is made of,
# itself included, and the libraries from elsewhere that they link.
function(regroup_close_over target ours others)
    set(found)
    set(foreign)
    set(todo ${target})
    while(todo)
        list(POP_FRONT todo item)
        if(item STREQUAL "regroup_options" OR item MATCHES "^::@")
            continue()  # How we compile, and CMake's own marks, are nobody else's business.
        elseif(item STREQUAL "nlohmann_json::nlohmann_json")
            continue()  # Headers, which are compiled in.
        endif()
        set(kind)
        if(TARGET ${item})
            get_target_property(alias ${item} ALIASED_TARGET)
            if(alias)
                set(item ${alias})
            endif()
            get_target_property(kind ${item} TYPE)
            get_target_property(imported ${item} IMPORTED)
        endif()
        if(item IN_LIST found OR item IN_LIST foreign)
            continue()
        elseif(NOT kind OR imported)
            list(APPEND foreign ${item})
        elseif(kind STREQUAL "INTERFACE_LIBRARY")
            get_target_property(links ${item} INTERFACE_LINK_LIBRARIES)
            list(APPEND todo ${links})
        else()
            list(APPEND found ${item})
            get_target_property(links ${item} LINK_LIBRARIES)
            list(APPEND todo ${links})
        endif()
        list(FILTER todo EXCLUDE REGEX "-NOTFOUND$")
    endwhile()
    set(${ours} ${found} PARENT_SCOPE)
    set(${others} ${foreign} PARENT_SCOPE)
endfunction()

regroup_close_over(regroup_worker_sdk regroup_parts regroup_foreign)
set(regroup_objects)
foreach(part ${regroup_parts})
    set_target_properties(${part} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    list(APPEND regroup_objects $<TARGET_OBJECTS:${part}>)
endforeach()

set(regroup_headers
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/worker_sdk/include>
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/rendezvous/base/include>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)
configure_file(cmake/version.h.in ${PROJECT_BINARY_DIR}/include/regroup/version.h @ONLY)

# Inside of this tree regroup::worker is the same code as several libraries (worker_sdk/).
add_library(regroup_worker STATIC ${regroup_objects})
target_link_libraries(regroup_worker PRIVATE ${regroup_foreign})
target_compile_features(regroup_worker PUBLIC cxx_std_20)
target_include_directories(regroup_worker INTERFACE ${regroup_headers})
set_target_properties(regroup_worker PROPERTIES EXPORT_NAME worker LINKER_LANGUAGE CXX)

# Which releases of the shared library a program can run with: those of one major version, but
# before 1.0 those of one minor version alone.
set(regroup_abi ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(regroup_abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()

# Exports the functions of the C interface and nothing else: a program may link another C++ runtime
# or another version of the SDK beside it.
set(map ${PROJECT_BINARY_DIR}/exports.map)
configure_file(worker_sdk/src/c_api/exports.map.in ${map} @ONLY)
add_library(regroup_c SHARED ${regroup_objects})
add_library(regroup::c_api ALIAS regroup_c)
target_link_libraries(regroup_c PRIVATE regroup_options ${regroup_foreign})
# dlclose does not unload it: its thread listens to the launcher for as long as the process lives.
target_link_options(regroup_c PRIVATE LINKER:--version-script=${map} LINKER:-z,nodelete)
target_include_directories(regroup_c INTERFACE ${regroup_headers})
set_target_properties(regroup_c PROPERTIES
    EXPORT_NAME c_api OUTPUT_NAME regroup LINKER_LANGUAGE CXX LINK_DEPENDS ${map}
    VERSION ${PROJECT_VERSION} SOVERSION ${regroup_abi})
if(NOT REGROUP_SANITIZE)
    target_link_options(regroup_c PRIVATE LINKER:-z,defs LINKER:-z,now LINKER:--as-needed LINKER:--gc-sections)
endif()

# libmpi.a holds the SDK too (worker_sdk/mpi/CMakeLists.txt).
target_sources(regroup_mpi_whole PRIVATE ${regroup_objects})
target_link_libraries(regroup_mpi_whole PRIVATE ${regroup_foreign})
set_target_properties(regroup_mpi_whole PROPERTIES EXPORT_NAME mpi)

if(NOT PROJECT_IS_TOP_LEVEL)
    set_target_properties(regroup_worker regroup_c regroup_mpi_whole PROPERTIES
        EXCLUDE_FROM_ALL ON)
endif()
