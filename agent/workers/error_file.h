// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// Reads the error file of a worker (PyTorch's `record` and the SDK write such files) into
/// `failure.error_message` and `failure.error_file`. Without a file nothing changes. If the file is
/// not understood, `error_message` has the reason.
///
///     {"message": "text", "timestamp": 1700000000}
///     {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp": "..."}}}
void read_error_file(const std::string& path, rendezvous::WorkerFailure& failure);

/// Writes the failure to `path`, for the parent process that set TORCHELASTIC_ERROR_FILE, such as a
/// scheduler. The content is the worker's own file with its exit code as `errorCode`, if it is on
/// this node; else the known facts in the same form. Replaces the file. Errors: system.
Result<void> write_parent_error_file(const std::string& path,
                                     const rendezvous::WorkerFailure& failure);

/// The same for an error of the launcher itself.
Result<void> write_own_error_file(const std::string& path, const std::string& message);

}  // namespace regroup::agent
