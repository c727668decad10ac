// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// One incident as a line of JSON, without a newline. Times are in milliseconds; docs/operating.md
/// lists the fields. `time`: the wall-clock time of its end.
[[nodiscard]] std::string ledger_line(const std::string& job, const rendezvous::Incident& incident,
                                      const std::string& time);

/// The ledger of recoveries: a file with one line for each recovery, appended over all runs. A line
/// that does not fit the disk is taken back, so that all lines in the file are whole.
class Ledger {
   public:
    /// `file` need not exist. Its folder must exist before the first append().
    explicit Ledger(std::filesystem::path file) : file_(std::move(file)) {}

    /// Errors: system, with the name of the file. The line is then not in it.
    Result<void> append(const std::string& line);

    [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }

   private:
    std::filesystem::path file_;
};

}  // namespace regroup::agent
