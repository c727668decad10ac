# SPDX-License-Identifier: Apache-2.0
# The CPU back end.
target_sources(regroup_worker_sdk PRIVATE
    src/cpu/acceptor.cc
    src/cpu/arguments.cc
    src/cpu/collective_lane.cc
    src/cpu/collectives.cc
    src/cpu/control_group.cc
    src/cpu/control_line.cc
    src/cpu/cpu_process_group.cc
    src/cpu/cpu_process_group_helper.cc
    src/cpu/fork_guard.cc
    src/cpu/group_formation.cc
    src/cpu/interruption.cc
    src/cpu/mesh.cc
    src/cpu/messenger.cc
    src/cpu/node_barrier.cc
    src/cpu/node_collectives.cc
    src/cpu/node_executor.cc
    src/cpu/node_formation.cc
    src/cpu/node_memory.cc
    src/cpu/node_offer.cc
    src/cpu/outbound.cc
    src/cpu/poll_set.cc
    src/cpu/reduce.cc
    src/cpu/requests.cc
    src/cpu/ring_schedule.cc
    src/cpu/shared_memory.cc
    src/cpu/socket.cc
    src/cpu/solo_process_group.cc
    src/cpu/subgroup_formation.cc
    src/cpu/wire.cc)
# The reductions are bound by how well their loops vectorise, which g++ 12 does fully only at -O3.
set_source_files_properties(src/cpu/reduce.cc PROPERTIES
    COMPILE_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O3>)
