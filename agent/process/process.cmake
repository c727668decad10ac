# SPDX-License-Identifier: Apache-2.0
regroup_library(process
    SOURCES process/exit_status.cc process/linux_launcher.cc process/output_relay.cc
            process/process_tree.cc process/resolve_program.cc process/terminal_stream.cc
            process/warden.cc
    PUBLIC regroup::base regroup::asio)
