# SPDX-License-Identifier: Apache-2.0
foreach(part connections context control_group failure float_arrays low_precision mpi_environment
        node_collectives reduce ring_schedule shared_memory store)
    list(APPEND sdk_test_sources ${CMAKE_CURRENT_LIST_DIR}/sdk_${part}_test.cc)
endforeach()

# Each public header stands alone and may be included twice.
file(GLOB sdk_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/worker_sdk/include/regroup/*.h)
list(FILTER sdk_headers EXCLUDE REGEX "/torch\\.h$")  # It needs libtorch; see torch_adapter_test.
foreach(header ${sdk_headers})
    get_filename_component(name ${header} NAME)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/sdk_headers/${name}.cc)
    file(CONFIGURE OUTPUT ${source}
         CONTENT "#include <regroup/${name}>\n#include <regroup/${name}>\n" @ONLY)
    list(APPEND sdk_test_sources ${source})
endforeach()

# The line to the agent, and the loop that survives, with ranks as threads.
regroup_test(sdk_elastic_test unit
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/sdk_elastic_dissent_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/sdk_elastic_loop_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/sdk_elastic_losses_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/sdk_elastic_parts_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/sdk_elastic_replicas_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/sdk_link_test.cc
        ${PROJECT_SOURCE_DIR}/tests/support/fake_agent.cc
    LINK regroup::worker_sdk regroup::worker_link regroup::store_core)

regroup_test(sdk_test unit
    SOURCES ${sdk_test_sources}
    LINK regroup::worker_sdk regroup::store_core regroup_test_support)
