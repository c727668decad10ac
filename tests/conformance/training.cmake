# SPDX-License-Identifier: Apache-2.0
if(TARGET byte_lm)
    regroup_test(training_byte_lm_processes_test conformance
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/training_byte_lm_processes_test.cc
        LINK regroup::worker_sdk regroup_test_support)
    target_compile_definitions(training_byte_lm_processes_test PRIVATE
        BYTE_LM_PROGRAM="$<TARGET_FILE:byte_lm>")
    add_dependencies(training_byte_lm_processes_test byte_lm)
endif()
