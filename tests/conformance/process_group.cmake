# SPDX-License-Identifier: Apache-2.0
# Each suite runs over both transports.
foreach(part collectives memory results messages failures processes subgroups)
    set(name process_group_${part}_test)
    regroup_test(${name} conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/${name}.cc
        LINK regroup::worker_sdk regroup::store_core regroup_test_support)
    set_tests_properties(conformance.${name} PROPERTIES
        ENVIRONMENT REGROUP_CPU_TRANSPORT=shm)
    add_test(NAME conformance.${name}.tcp COMMAND ${name} --gtest_brief=1)
    set_tests_properties(conformance.${name}.tcp PROPERTIES
        LABELS conformance TIMEOUT 120 ENVIRONMENT REGROUP_CPU_TRANSPORT=tcp)
endforeach()
