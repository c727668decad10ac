# SPDX-License-Identifier: Apache-2.0
add_executable(ddp_step_worker ${CMAKE_CURRENT_LIST_DIR}/ddp_step_worker.cc)
target_link_libraries(ddp_step_worker PRIVATE regroup::worker_sdk regroup_options)
