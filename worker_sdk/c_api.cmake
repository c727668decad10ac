# SPDX-License-Identifier: Apache-2.0
# The interface for C.
target_sources(regroup_worker_sdk PRIVATE
    src/c_api/call.cc
    src/c_api/context_and_store.cc
    src/c_api/data_parallel.cc
    src/c_api/group.cc
    src/c_api/sampler_and_checkpoint.cc)
