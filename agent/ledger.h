// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// One incident as a line of JSON, without the line's end: times in milliseconds. The fields are
/// in docs/operating.md. `time`: when it was over, for people.
[[nodiscard]] std::string ledger_line(const std::string& job, const rendezvous::Incident& incident,
                                      const std::string& time);

/// What became of a job's losses, in a file for tools: a line for each recovery, kept over runs.
/// Every line is whole: one for which the disk has no room is taken back, and those that follow are
/// written when there is room again.
class Ledger {
   public:
    /// `file` need not exist; its folder must, by the time of the first line.
    explicit Ledger(std::filesystem::path file) : file_(std::move(file)) {}

    /// Errors: system, naming the file: this line is not in it.
    Result<void> append(const std::string& line);

    [[nodiscard]] const std::filesystem::path& file() const noexcept { return file_; }

   private:
    std::filesystem::path file_;
};

}  // namespace regroup::agent
