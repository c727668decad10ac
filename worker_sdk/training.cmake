# SPDX-License-Identifier: Apache-2.0
# The training half of the worker SDK.
target_sources(regroup_worker_sdk PRIVATE
    src/training/atomic_file.cc
    src/training/checkpoint.cc
    src/training/distributed_sampler.cc
    src/training/fence.cc)
