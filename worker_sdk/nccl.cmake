# SPDX-License-Identifier: Apache-2.0
# The NCCL back end, or what says that it is not there.
target_sources(regroup_worker_sdk PRIVATE
    src/cuda/device_choice.cc
    src/cuda/device_memory.cc)
if(REGROUP_HAVE_CUDA)
    target_sources(regroup_worker_sdk PRIVATE
        src/cuda/cuda.cc
        src/cuda/cuda_runtime.cc
        src/cuda/environment.cc
        src/nccl/arguments.cc
        src/nccl/bootstrap.cc
        src/nccl/collectives.cc
        src/nccl/communicator.cc
        src/nccl/control_ring.cc
        src/nccl/form_group.cc
        src/nccl/formation.cc
        src/nccl/lane.cc
        src/nccl/lane_issue.cc
        src/nccl/lane_memory.cc
        src/nccl/meeting.cc
        src/nccl/nccl_api.cc
        src/nccl/nccl_process_group.cc
        src/nccl/operation.cc
        src/nccl/reaper.cc
        src/nccl/wakeup.cc
        src/nccl/watchdog.cc)
    target_link_libraries(regroup_worker_sdk PRIVATE regroup_cuda)
    target_compile_definitions(regroup_worker_sdk PRIVATE REGROUP_HAVE_CUDA)
else()
    target_sources(regroup_worker_sdk PRIVATE src/cuda/absent.cc)
endif()
