# SPDX-License-Identifier: Apache-2.0
# DistributedDataParallel.
target_sources(regroup_worker_sdk PRIVATE
    src/training/bucket_plan.cc
    src/training/communication_hook.cc
    src/training/convert.cc
    src/training/distributed_data_parallel.cc
    src/training/gradient_device.cc
    src/training/gradient_memory.cc
    src/training/host_exchange.cc
    src/training/reducer.cc
    src/training/replicas.cc)
# Its loops are bound by how well they vectorise, which -O2 of some compilers does not do.
set_source_files_properties(src/training/convert.cc PROPERTIES
    COMPILE_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O3>)
if(REGROUP_HAVE_CUDA)
    target_sources(regroup_worker_sdk PRIVATE src/cuda/gradient_device.cc)
endif()
