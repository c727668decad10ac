# SPDX-License-Identifier: Apache-2.0
regroup_library(process
    SOURCES
        process/cgroup.cc
        process/child_process.cc
        process/exit_status.cc
        process/line_splitter.cc
        process/line_writer.cc
        process/linux_launcher.cc
        process/oom_evidence.cc
        process/orphan_reaper.cc
        process/output_relay.cc
        process/proc_files.cc
        process/process_tree.cc
        process/quit_signals.cc
        process/readable_watch.cc
        process/resolve_program.cc
        process/warden.cc
        process/worker_stream.cc
    PUBLIC regroup::base regroup::asio)
