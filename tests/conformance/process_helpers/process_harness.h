// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/process/linux_launcher.h"

namespace regroup::agent {

/// Generous: the machine may be busy and small. Nothing in these tests takes that long.
inline constexpr std::chrono::seconds kTestLimit{60};

/// Looks again and again until `condition` holds. Whether it did within kTestLimit.
bool wait_until(const std::function<bool()>& condition);

/// Runs the loop until `condition` holds. Whether it did within kTestLimit.
bool run_until(boost::asio::io_context& io, const std::function<bool()>& condition);

/// `program` with `arguments` and this process's environment.
ProcessSpec make_spec(const std::string& program, const std::vector<std::string>& arguments);
ProcessSpec helper_spec(const std::vector<std::string>& arguments);
ProcessSpec shell_spec(const std::string& script);

/// A pipe: first what is read from, second what is written to.
std::pair<UniqueFd, UniqueFd> make_pipe();

/// All until the end of file.
std::string read_all(int fd);

/// All until the end of file, or until `text` was read.
std::string read_until(int fd, const std::string& text);

/// "name=value" in a report of the helper.
std::string field(const std::string& report, const std::string& name);

/// Whether no process has this pid, or only one that nobody has reaped yet.
bool is_gone(pid_t pid);

/// How many descriptors this process has open.
std::size_t open_fd_count();

std::string read_file(const std::filesystem::path& path);

/// A fresh folder, removed with all that is in it.
class TemporaryFolder {
   public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

    /// The pid that the helper left under `name`, once it did; 0 if it never does.
    [[nodiscard]] pid_t pid(const std::string& name) const;

   private:
    std::filesystem::path path_;
};

/// The members of the helper's hostile tree.
inline const std::vector<std::string> kTreeNames = {"child", "session", "below_session", "daemon",
                                                    "worker"};

}  // namespace regroup::agent
