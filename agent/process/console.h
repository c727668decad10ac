// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::agent {

/// Prints the lines of the agent itself.
class Console {
   public:
    /// Prints one line on stderr, as "regroup: `line`"; see printable().
    virtual void say(std::string_view line) = 0;
    /// The same for a line about the job as a whole, which its other nodes say, too. `here`: what
    /// only this node adds, if it prints the line itself. `topic`: what all nodes give for it if
    /// their lines differ, such as in the time that something has taken; empty: the line.
    virtual void say_of_job(const std::string& line, const std::string& here,
                            const std::string& topic) = 0;
    /// False if something else prints the lines about the job.
    [[nodiscard]] virtual bool prints_job_lines() const noexcept = 0;
    /// Prints lines on stderr without a prefix, such as a report. Each is one line, whatever
    /// characters it has.
    virtual void say_lines(const std::vector<std::string>& lines) = 0;
    /// Shows how far a wait has come, below all lines, in place of the line before; empty: nothing.
    /// False if stderr is no terminal with a cursor, or workers write to it themselves.
    virtual bool show_progress(const std::string& line) = 0;

    /// say(), for those that only need this. The console must outlive it.
    [[nodiscard]] std::function<void(const std::string&)> sayer() {
        return [this](const std::string& line) { say(line); };
    }

   protected:
    ~Console() = default;
};

}  // namespace regroup::agent
