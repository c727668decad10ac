# SPDX-License-Identifier: Apache-2.0
regroup_test(data_parallel_test unit
    SOURCES
        ${CMAKE_CURRENT_LIST_DIR}/training_bucket_plan_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_data_parallel_features_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_data_parallel_property_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_data_parallel_stream_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_data_parallel_test.cc
        ${CMAKE_CURRENT_LIST_DIR}/training_data_parallel_wire_test.cc
    LINK regroup::worker_sdk)
