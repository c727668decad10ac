// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// Takes what a worker said of its error (PyTorch's `record` and the SDK write such files) into
/// `failure.error_message` and `failure.error_file`. A file that is not there changes nothing; one
/// that cannot be understood is named, with the reason, in `error_message`.
///
///     {"message": "text", "timestamp": 1700000000}
///     {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp": "..."}}}
void read_error_file(const std::string& path, rendezvous::WorkerFailure& failure);

/// Writes the failure to `path` for whoever started us (a scheduler that set
/// TORCHELASTIC_ERROR_FILE): the worker's own file with its exit code as `errorCode`, if it is on
/// this node, else what is known of the failure in the same form. What was there is replaced.
/// Errors: system.
Result<void> write_parent_error_file(const std::string& path,
                                     const rendezvous::WorkerFailure& failure);

/// The same for an error of the launcher itself.
Result<void> write_own_error_file(const std::string& path, const std::string& message);

}  // namespace regroup::agent
