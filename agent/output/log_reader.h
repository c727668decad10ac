// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// Reads a part of the output of a worker of this node for an operator: at most kLogBytesMax, from
/// the place that `asked` names. `node`: the name of this node. `file`: the file to which the
/// worker's stream goes now; empty: to none. The answer has `trouble` if the file cannot be read. A
/// file that does not exist yet is empty. A file system that hangs blocks the caller.
[[nodiscard]] rendezvous::LogPart read_log(const rendezvous::ReadLog& asked,
                                           const std::string& node, const std::string& file);

}  // namespace regroup::agent
