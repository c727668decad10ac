# SPDX-License-Identifier: Apache-2.0
regroup_test(protocol_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/protocol_codec_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/protocol_framing_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/protocol_limits_test.cc
            ${CMAKE_CURRENT_LIST_DIR}/protocol_refusals_test.cc
    LINK regroup::protocol nlohmann_json::nlohmann_json)

regroup_test(protocol_fuzz_test unit
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/protocol_fuzz_test.cc
    LINK regroup::protocol)
