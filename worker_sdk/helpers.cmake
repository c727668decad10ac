# SPDX-License-Identifier: Apache-2.0
# What a training loop needs around its steps: data, schedules, evaluation, processes.
target_sources(regroup_worker_sdk PRIVATE
    src/training/data_partitioner.cc
    src/training/evaluation.cc
    src/training/exact_sum.cc
    src/training/lr_schedule.cc
    src/training/main_process.cc
    src/training/python_random.cc
    src/training/spawn.cc
    src/training/spawned_process.cc)
