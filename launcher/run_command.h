// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "launcher/cluster/allocation.h"
#include "launcher/command.h"
#include "launcher/run_flags.h"
#include "launcher/ssh/supervisor.h"
#include "rendezvous/security/token.h"

namespace regroup::launcher {

/// The launcher on another machine, for a node that it has started.
struct Supervision {
    ssh::Supervisor& supervisor;
    Allocation allocation;        ///< Name and place of the node.
    std::optional<bool> is_head;  ///< Whether it runs the daemon; nothing: it finds out.
    std::optional<security::Token> token;
};

/// `regroup run`, `regroup launch` or torchrun: runs this node's part of a job, from the command
/// line to the verdict. `supervision` may be null.
CommandEnd run_command(Front front, std::span<const std::string> arguments,
                       const Supervision* supervision = nullptr);

}  // namespace regroup::launcher
